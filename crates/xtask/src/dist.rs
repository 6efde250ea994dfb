//! `cargo xtask dist`: builds what a user runs, into `target/feroce` (or `--out`):
//!
//! ```text
//! bin/feroce                 the command
//! lib/libibverbs.so.1        the verbs library, and the link libibverbs.so
//! lib/librdmacm.so.1         the connection manager, and the link librdmacm.so
//! lib/libferoce_shim.so      the file-call shim that `feroce run` preloads
//! ```
//!
//! Needs Rust and a C compiler driver (`cc`) to link with, nothing else. Not here: whether the
//! result is right (`abi`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use lexopt::Parser;
use lexopt::prelude::{Long, ValueExt};

use crate::cargo::{self, Artifact};
use crate::symbols::Table;

pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let mut profile = "release".to_owned();
    let mut folder = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("profile") => profile = arguments.value()?.string()?,
            Long("out") => folder = Some(PathBuf::from(arguments.value()?)),
            _ => bail!(argument.unexpected()),
        }
    }
    let folder = match folder {
        Some(folder) => std::path::absolute(folder)?,
        None => cargo::target_folder()?.join("feroce"),
    };
    for file in build(&profile, &folder)? {
        let size = fs::symlink_metadata(&file)?.len();
        match fs::read_link(&file) {
            Ok(target) => println!("{} -> {}", file.display(), target.display()),
            Err(_) => println!("{} ({} KiB)", file.display(), size.div_ceil(1024)),
        }
    }
    Ok(())
}

/// Builds everything with one cargo profile and returns the files of the result.
pub(crate) fn build(profile: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let artifacts = cargo::build(
        &[
            "feroce-cli",
            "feroce-ibverbs",
            "feroce-rdmacm",
            "feroce-shim",
        ],
        profile,
    )?;
    let (programs, libraries) = (folder.join("bin"), folder.join("lib"));
    for folder in [&programs, &libraries] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut files = vec![
        install(
            find(&artifacts, "feroce-cli", "bin")?,
            &programs.join("feroce"),
        )?,
        install(
            find(&artifacts, "feroce-shim", "cdylib")?,
            &libraries.join("libferoce_shim.so"),
        )?,
    ];
    for library in LIBRARIES {
        let archive = find(&artifacts, library.package, "staticlib")?;
        files.extend(library.link(archive, &libraries)?);
    }
    Ok(files)
}

/// A C library: a static archive from cargo, linked with its names and versions.
///
/// rustc cannot do this last step itself: it writes a version script of its own for a `cdylib`.
struct CLibrary {
    package: &'static str,
    /// Holds the table `symbols.txt`.
    crate_folder: &'static str,
    soname: &'static str,
    /// Libraries of ours that it calls: linked before it.
    needs: &'static [&'static str],
}

const LIBRARIES: [CLibrary; 2] = [
    CLibrary {
        package: "feroce-ibverbs",
        crate_folder: "ibverbs",
        soname: "libibverbs.so.1",
        needs: &[],
    },
    CLibrary {
        package: "feroce-rdmacm",
        crate_folder: "rdmacm",
        soname: "librdmacm.so.1",
        needs: &["libibverbs.so.1"],
    },
];

impl CLibrary {
    fn link(&self, archive: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
        let table = cargo::workspace()
            .join("crates")
            .join(self.crate_folder)
            .join("symbols.txt");
        let table = fs::read_to_string(&table).with_context(|| table.display().to_string())?;
        let table = Table::parse(&table).map_err(anyhow::Error::msg)?;
        let script = archive.with_extension("version-script");
        fs::write(&script, table.version_script())?;

        // A running program may have the old file mapped: never write into it.
        let library = folder.join(self.soname);
        let fresh = folder.join(format!("{}.new", self.soname));
        let mut linker = Command::new("cc");
        linker.args(["-shared", "-o"]).arg(&fresh);
        linker
            .arg("-Wl,--whole-archive")
            .arg(archive)
            .arg("-Wl,--no-whole-archive");
        linker.args(self.needs.iter().map(|library| folder.join(library)));
        linker.arg(format!("-Wl,-soname,{}", self.soname));
        linker.arg(format!("-Wl,--version-script={}", script.display()));
        // Calls inside the library stay inside it, whatever a program preloads.
        linker.args([
            "-Wl,-Bsymbolic-functions",
            "-Wl,--gc-sections",
            "-Wl,-z,defs",
        ]);
        linker.args(["-Wl,-z,relro", "-Wl,-z,now", "-Wl,--as-needed"]);
        linker.args([
            "-lgcc_s",
            "-lutil",
            "-lrt",
            "-lpthread",
            "-lm",
            "-ldl",
            "-lc",
        ]);
        let output = linker.output().context("cc (install a C compiler)")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "linking {} failed:\n{errors}",
            self.soname
        );
        fs::rename(&fresh, &library)?;

        let link = folder.join(self.soname.trim_end_matches(".1"));
        if fs::symlink_metadata(&link).is_ok() {
            fs::remove_file(&link)?;
        }
        symlink(self.soname, &link).with_context(|| link.display().to_string())?;
        Ok(vec![library, link])
    }
}

fn find<'a>(artifacts: &'a [Artifact], package: &str, kind: &str) -> Result<&'a Path> {
    artifacts
        .iter()
        .find(|artifact| artifact.package == package && artifact.kind == kind)
        .map(|artifact| artifact.path.as_path())
        .with_context(|| format!("cargo built no {kind} of {package}"))
}

fn install(from: &Path, to: &Path) -> Result<PathBuf> {
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("copying {}", from.display()))?;
    fs::rename(&fresh, to).with_context(|| to.display().to_string())?;
    Ok(to.to_owned())
}
