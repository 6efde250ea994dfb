//! Does the loader start stock programs and libraries with ours in place of theirs? Every program,
//! library and Python module on this machine that needs libibverbs is resolved completely, as
//! `LD_BIND_NOW` would, by the loader itself (`ldd -r`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ReadCache};

use super::Report;

/// Folders that hold such files, where Debian and Fedora put them.
const FOLDERS: [&str; 7] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/python3/dist-packages/pyverbs",
    "/usr/lib/python3/dist-packages/pyverbs/providers",
];
/// Deep enough for pyverbs/providers/mlx5 and .../ucx, …/libibverbs.
const DEPTH_MAX: usize = 2;

pub(super) fn check(library: &Path, report: &mut Report) -> Result<()> {
    const WHAT: &str = "stock programs resolve completely with our library";
    let mut files = Vec::new();
    for folder in FOLDERS {
        users_of_verbs(Path::new(folder), DEPTH_MAX, &mut files);
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        report.skip(format!(
            "{WHAT}: none here (packages perftest, python3-pyverbs, …)"
        ));
        return Ok(());
    }
    let before = report.faults.len();
    for file in &files {
        resolve(file, library, report)?;
    }
    report.conclude(before, &format!("{WHAT}: {} files", files.len()));
    Ok(())
}

fn resolve(file: &Path, library: &Path, report: &mut Report) -> Result<()> {
    let text = ldd(file, library.parent())?;
    let ours = format!("=> {} ", library.display());
    if !text.contains(&ours) {
        report.fault(format!("{} does not load our library", file.display()));
    }
    let is_wrong = |line: &&str| line.contains("undefined symbol") || line.contains("not found");
    let wrong: Vec<&str> = text.lines().filter(is_wrong).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    // A plug-in takes names from the program that loads it: they are missing with any library.
    let theirs = ldd(file, None)?;
    let of_verbs = |line: &str| {
        [
            "symbol: ibv_",
            "symbol: rdma_",
            "symbol: verbs_",
            "not found",
        ]
        .iter()
        .any(|name| line.contains(name))
    };
    for line in wrong {
        if of_verbs(line) || !theirs.lines().any(|other| other == line) {
            report.fault(format!("{}: {}", file.display(), line.trim()));
        }
    }
    Ok(())
}

/// What the loader says of a file, with the libraries of `folder` first.
fn ldd(file: &Path, folder: Option<&Path>) -> Result<String> {
    let mut command = Command::new("ldd");
    command.arg("-r").arg(file).env("LC_ALL", "C");
    match folder {
        Some(folder) => command.env("LD_LIBRARY_PATH", folder),
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
    let output = command.output().context("ldd")?;
    let (text, errors) = (&output.stdout, &output.stderr);
    Ok(String::from_utf8_lossy(text).into_owned() + &String::from_utf8_lossy(errors))
}

/// Collects the ELF files under `folder` that need libibverbs or a library that does.
fn users_of_verbs(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() && depth > 0 {
            users_of_verbs(&path, depth - 1, files);
        } else if kind.is_file() && needs_verbs(&path).unwrap_or(false) {
            files.push(path);
        }
    }
}

fn needs_verbs(path: &Path) -> Option<bool> {
    const LIBRARIES: [&[u8]; 3] = [b"libibverbs.so.1", b"libmlx5.so.1", b"librdmacm.so.1"];
    // Reads a few pages of each file only.
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let mut libraries = file.import_libraries().ok()?.flatten();
    Some(libraries.any(|library| LIBRARIES.contains(&library.name())))
}
