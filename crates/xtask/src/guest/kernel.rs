//! Which kernel modules the guest needs, and in which order they are loaded.
//!
//! A module names those it depends on in its `.modinfo` section; that is all `insmod` in the right
//! order needs, so neither `depmod` nor `modprobe` takes part.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};

/// What is wanted in the guest, besides what these depend on.
const WANTED: &[&str] = &[
    // The machine: devices, this machine's files, the agent's port.
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    // Soft-RoCE, user-space verbs and the connection manager; rxe asks the crypto layer for crc32.
    "crc32_generic",
    "crc32-pclmul",
    "rdma_rxe",
    "ib_uverbs",
    "rdma_ucm",
    // Networks inside the guest, and faults on them, in both directions (ifb takes what arrives).
    "veth",
    "dummy",
    "ifb",
    "sch_netem",
    "sch_ingress",
    "sch_prio",
    "sch_red",
    "sch_tbf",
    "cls_matchall",
    "act_mirred",
];

/// Modules of the guest, each after those it depends on.
pub(crate) fn load_order(modules: &Path) -> Result<Vec<PathBuf>> {
    let mut files = BTreeMap::new();
    collect(modules, &mut files)?;
    let builtin = fs::read_to_string(modules.join("modules.builtin")).unwrap_or_default();
    let builtin = builtin
        .lines()
        .map(|line| module_name(Path::new(line)))
        .collect::<Vec<_>>();
    let mut order = Vec::new();
    for name in WANTED {
        let name = name.replace('-', "_");
        if !builtin.contains(&name) {
            add(&name, &files, &mut order)?;
        }
    }
    Ok(order)
}

fn add(name: &str, files: &BTreeMap<String, PathBuf>, order: &mut Vec<PathBuf>) -> Result<()> {
    let file = files
        .get(name)
        .with_context(|| format!("the kernel has no module {name}"))?;
    if order.contains(file) {
        return Ok(());
    }
    for dependency in dependencies(file)? {
        add(&dependency, files, order)?;
    }
    order.push(file.clone());
    Ok(())
}

/// Every module below a folder, by name.
fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "ko") {
            files.insert(module_name(&path), path);
        }
    }
    Ok(())
}

/// File names and dependencies differ in hyphens; the kernel treats both spellings as one.
fn module_name(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .replace('-', "_")
}

fn dependencies(file: &Path) -> Result<Vec<String>> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let module =
        object::File::parse(bytes.as_slice()).with_context(|| file.display().to_string())?;
    let Some(section) = module.section_by_name(".modinfo") else {
        bail!("{} is no kernel module", file.display());
    };
    let info = section.data()?;
    let depends = info
        .split(|&byte| byte == 0)
        .find_map(|entry| entry.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(depends.unwrap_or_default()).replace('-', "_");
    Ok(names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect())
}
