//! Entry points that need no device must answer as the installed library does: names of values,
//! rates. A small C program loads both and compares. An installed library that is older than a
//! value calls it unknown; that is no difference.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Report, symbols};
use crate::cargo;

pub(super) fn check(library: &Path, report: &mut Report) -> Result<()> {
    const WHAT: &str = "names of values and rates are those of the installed library";
    let Some(installed) = symbols::installed("libibverbs.so.1") else {
        report.skip(format!("{WHAT}: none is installed (package libibverbs1)"));
        return Ok(());
    };
    let folder = cargo::target_folder()?.join("feroce/abi");
    fs::create_dir_all(&folder)?;
    let (source, program) = (folder.join("answers.c"), folder.join("answers"));
    fs::write(&source, SOURCE)?;
    let output = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(&source)
        .arg("-ldl")
        .output()
        .context("cc")?;
    ensure!(
        output.status.success(),
        "answers.c: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let before = report.faults.len();
    let output = Command::new(&program)
        .arg(library)
        .arg(&installed)
        .output()?;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        report.fault(line.to_owned());
    }
    if !output.status.success() && report.faults.len() == before {
        report.fault(format!(
            "the comparing program ended with {}",
            output.status
        ));
    }
    report.conclude(before, WHAT);
    Ok(())
}

const SOURCE: &str = r#"#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
typedef const char *(*name_fn)(int);
typedef int (*number_fn)(int);
static void *ours, *theirs;
static int faults;
static void names(const char *function)
{
    name_fn a = (name_fn)dlsym(ours, function), b = (name_fn)dlsym(theirs, function);
    for (int value = -2; value < 64; value++) {
        if (!strcmp(b(value), "unknown") || !strcmp(a(value), b(value)))
            continue;
        printf("%s(%d): ours %s, theirs %s\n", function, value, a(value), b(value));
        faults++;
    }
}
static void numbers(const char *function, int first, int last)
{
    number_fn a = (number_fn)dlsym(ours, function), b = (number_fn)dlsym(theirs, function);
    for (int value = first; value < last; value++) {
        if (a(value) == b(value))
            continue;
        printf("%s(%d): ours %d, theirs %d\n", function, value, a(value), b(value));
        faults++;
    }
}
int main(int argc, char **argv)
{
    ours = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    theirs = argc == 3 ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!ours || !theirs || ours == theirs) {
        printf("the two libraries cannot be loaded side by side\n");
        return 1;
    }
    names("ibv_node_type_str");
    names("ibv_port_state_str");
    names("ibv_event_type_str");
    names("ibv_wc_status_str");
    numbers("ibv_rate_to_mult", -2, 64);
    numbers("ibv_rate_to_mbps", -2, 64);
    numbers("mult_to_ibv_rate", -2, 1000);
    numbers("mbps_to_ibv_rate", -2, 2000000);
    return faults != 0;
}
"#;
