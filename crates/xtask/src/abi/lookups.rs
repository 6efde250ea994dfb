//! Look-ups at run time: what NCCL and its descendants do (`dlopen`, then `dlvsym` for each name
//! with a version) and what the Python bindings do (`dlsym` without one). A small C program does
//! both, so that the loader is the judge.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Report;
use crate::cargo;

/// The names that NCCL's loader asks for, with the version it asks by.
const BY_VERSION: [(&str, &str); 35] = [
    ("ibv_get_device_list", "IBVERBS_1.1"),
    ("ibv_free_device_list", "IBVERBS_1.1"),
    ("ibv_get_device_name", "IBVERBS_1.1"),
    ("ibv_open_device", "IBVERBS_1.1"),
    ("ibv_close_device", "IBVERBS_1.1"),
    ("ibv_get_async_event", "IBVERBS_1.1"),
    ("ibv_ack_async_event", "IBVERBS_1.1"),
    ("ibv_query_device", "IBVERBS_1.1"),
    ("ibv_query_port", "IBVERBS_1.1"),
    ("ibv_query_gid", "IBVERBS_1.1"),
    ("ibv_query_qp", "IBVERBS_1.1"),
    ("ibv_alloc_pd", "IBVERBS_1.1"),
    ("ibv_dealloc_pd", "IBVERBS_1.1"),
    ("ibv_reg_mr", "IBVERBS_1.1"),
    ("ibv_reg_mr_iova2", "IBVERBS_1.8"),
    ("ibv_reg_dmabuf_mr", "IBVERBS_1.12"),
    ("ibv_dereg_mr", "IBVERBS_1.1"),
    ("ibv_create_cq", "IBVERBS_1.1"),
    ("ibv_destroy_cq", "IBVERBS_1.1"),
    ("ibv_create_comp_channel", "IBVERBS_1.0"),
    ("ibv_destroy_comp_channel", "IBVERBS_1.0"),
    ("ibv_create_qp", "IBVERBS_1.1"),
    ("ibv_modify_qp", "IBVERBS_1.1"),
    ("ibv_destroy_qp", "IBVERBS_1.1"),
    ("ibv_create_srq", "IBVERBS_1.1"),
    ("ibv_destroy_srq", "IBVERBS_1.1"),
    ("ibv_create_ah", "IBVERBS_1.1"),
    ("ibv_destroy_ah", "IBVERBS_1.1"),
    ("ibv_fork_init", "IBVERBS_1.1"),
    ("ibv_event_type_str", "IBVERBS_1.1"),
    ("ibv_query_ece", "IBVERBS_1.10"),
    ("ibv_set_ece", "IBVERBS_1.10"),
    ("ibv_is_fork_initialized", "IBVERBS_1.13"),
    ("ibv_query_gid_type", "IBVERBS_PRIVATE_34"),
    ("ibv_query_gid_type", "IBVERBS_PRIVATE_65"),
];

/// (name, version): an unversioned look-up must find this one, not an older twin.
const DEFAULTS: [(&str, &str); 4] = [
    ("ibv_open_device", "IBVERBS_1.1"),
    ("ibv_query_gid", "IBVERBS_1.1"),
    ("ibv_create_qp", "IBVERBS_1.1"),
    ("ibv_reg_mr", "IBVERBS_1.1"),
];

pub(super) fn check(library: &Path, report: &mut Report) -> Result<()> {
    let folder = cargo::target_folder()?.join("feroce/abi");
    fs::create_dir_all(&folder)?;
    let (source, program) = (folder.join("lookups.c"), folder.join("lookups"));
    fs::write(&source, source_text())?;
    let output = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-ldl")
        .output()
        .context("cc")?;
    ensure!(
        output.status.success(),
        "lookups.c: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let before = report.faults.len();
    let output = Command::new(&program)
        .env("LD_LIBRARY_PATH", library.parent().unwrap_or(library))
        .output()
        .context("the look-up program")?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        report.fault(line.to_owned());
    }
    if !output.status.success() && report.faults.len() == before {
        report.fault(format!("the look-up program ended with {}", output.status));
    }
    let count = BY_VERSION.len() + DEFAULTS.len();
    report.conclude(
        before,
        &format!("dlopen, dlvsym and dlsym find what they should: {count}"),
    );
    Ok(())
}

fn source_text() -> String {
    let mut text = String::from(
        r#"#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static int faults;
static void by_version(void *library, const char *name, const char *version)
{
    if (dlvsym(library, name, version))
        return;
    printf("dlvsym(%s, %s): %s\n", name, version, dlerror());
    faults++;
}
static void by_default(void *library, const char *name, const char *version)
{
    if (dlsym(library, name) && dlsym(library, name) == dlvsym(library, name, version))
        return;
    printf("dlsym(%s) is not %s@%s\n", name, name, version);
    faults++;
}
int main(void)
{
    const char *(*name)(int);
    void *library = dlopen("libibverbs.so", RTLD_NOW);
    if (!library)
        library = dlopen("libibverbs.so.1", RTLD_NOW);
    if (!library) {
        printf("dlopen: %s\n", dlerror());
        return 1;
    }
"#,
    );
    for (name, version) in BY_VERSION {
        let _ = writeln!(text, "\tby_version(library, \"{name}\", \"{version}\");");
    }
    for (name, version) in DEFAULTS {
        let _ = writeln!(text, "\tby_default(library, \"{name}\", \"{version}\");");
    }
    // One call, so that it is known that the names lead to code.
    text.push_str(
        r#"    name = (const char *(*)(int))dlvsym(library, "ibv_wc_status_str", "IBVERBS_1.1");
    if (!name || strcmp(name(0), "success")) {
        printf("ibv_wc_status_str(0) is not \"success\"\n");
        faults++;
    }
    return faults != 0;
}
"#,
    );
    text
}
