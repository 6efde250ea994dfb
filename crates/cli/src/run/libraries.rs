//! Where Feroce's libraries are.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The verbs library, found by programs under this name.
const VERBS: &str = "libibverbs.so.1";
/// The connection manager's library, if there is one.
const CONNECTION_MANAGER: &str = "librdmacm.so.1";
/// The preloaded library of file calls.
const SHIM: &str = "libferoce_shim.so";
/// Names the folder outright.
const VARIABLE: &str = "FEROCE_LIB";

/// A folder that holds the libraries.
#[derive(Debug)]
pub(crate) struct Libraries {
    folder: PathBuf,
}

impl Libraries {
    /// The folder that `FEROCE_LIB` names, else the one installed or built beside this command.
    ///
    /// # Errors
    /// If the libraries are in none of them, or the folder cannot be named in the variables that
    /// the loader reads.
    pub(crate) fn find() -> Result<Self> {
        let command = env::current_exe().context("finding the path of this command")?;
        Self::find_from(env::var_os(VARIABLE), &command)
    }

    fn find_from(named: Option<OsString>, command: &Path) -> Result<Self> {
        let folder = match named.filter(|folder| !folder.is_empty()) {
            Some(folder) => {
                let folder = std::path::absolute(PathBuf::from(folder))?;
                for file in [VERBS, SHIM] {
                    if !folder.join(file).is_file() {
                        bail!("{VARIABLE} names {}, which has no {file}", folder.display());
                    }
                }
                folder
            }
            None => search(command)?,
        };
        // The loader's separators; it knows no way to quote them.
        let text = folder.as_os_str().as_encoded_bytes();
        if text
            .iter()
            .any(|&byte| matches!(byte, b':' | b';') || byte.is_ascii_whitespace())
        {
            bail!(
                "the loader cannot take libraries from {}: a space, colon or semicolon in the \
                 path; move them, or name another folder with {VARIABLE}",
                folder.display()
            );
        }
        Ok(Self { folder })
    }

    /// Whether programs connect by our library and not by the system's.
    pub(crate) fn have_connection_manager(&self) -> bool {
        self.folder.join(CONNECTION_MANAGER).is_file()
    }

    /// `LD_LIBRARY_PATH` with the folder first.
    pub(crate) fn library_path(&self, present: Option<OsString>) -> OsString {
        join(
            self.folder.as_os_str().to_owned(),
            present.unwrap_or_default(),
        )
    }

    /// `LD_PRELOAD` with the shim last: others that are preloaded go on working.
    pub(crate) fn preload(&self, present: Option<OsString>) -> OsString {
        join(
            present.unwrap_or_default(),
            self.folder.join(SHIM).into_os_string(),
        )
    }
}

fn search(command: &Path) -> Result<PathBuf> {
    let bin = command.parent().unwrap_or_else(|| Path::new("/"));
    // Installed under a prefix, made by `cargo xtask dist`, run from cargo's target folder.
    let places = ["../lib/feroce", "../lib", "../feroce/lib"].map(|place| bin.join(place));
    let complete = |folder: &&PathBuf| [VERBS, SHIM].iter().all(|file| folder.join(file).is_file());
    if let Some(folder) = places.iter().find(complete) {
        return folder
            .canonicalize()
            .with_context(|| folder.display().to_string());
    }
    let places = places
        .map(|place| format!("\n  {}", place.display()))
        .concat();
    bail!(
        "{VERBS} and {SHIM} are not together in any of{places}\n\
         build them with `cargo xtask dist`, or name their folder with {VARIABLE}"
    )
}

fn join(first: OsString, second: OsString) -> OsString {
    match (first.is_empty(), second.is_empty()) {
        (true, _) => second,
        (_, true) => first,
        _ => [first, second].join(std::ffi::OsStr::new(":")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::folder::tests::TestFolder;
    use std::fs;

    fn install(folder: &Path, files: &[&str]) {
        fs::create_dir_all(folder).unwrap();
        for file in files {
            fs::write(folder.join(file), "").unwrap();
        }
    }

    #[test]
    fn the_folder_is_found_beside_the_command() {
        for (bin, lib) in [
            ("prefix/bin", "prefix/lib"),
            ("prefix/bin", "prefix/lib/feroce"),
            ("target/debug", "target/feroce/lib"),
        ] {
            let root = TestFolder::new();
            fs::create_dir_all(root.path().join(bin)).unwrap();
            install(&root.path().join(lib), &[VERBS, SHIM]);
            let command = root.path().join(bin).join("feroce");
            let found = Libraries::find_from(None, &command).unwrap();
            assert_eq!(found.folder, root.path().join(lib).canonicalize().unwrap());
        }
    }

    #[test]
    fn a_foreign_verbs_library_alone_is_not_ours() {
        let root = TestFolder::new();
        install(&root.path().join("lib"), &[VERBS]);
        let error = Libraries::find_from(None, &root.path().join("bin/feroce")).unwrap_err();
        assert!(error.to_string().contains("cargo xtask dist"), "{error}");
    }

    #[test]
    fn a_named_folder_is_used_or_refused_never_ignored() {
        let root = TestFolder::new();
        install(&root.path().join("here"), &[VERBS, SHIM]);
        install(&root.path().join("half"), &[VERBS]);
        install(&root.path().join("a b"), &[VERBS, SHIM]);
        let command = Path::new("/nowhere/bin/feroce");
        let find = |name: &str| Libraries::find_from(Some(root.path().join(name).into()), command);
        assert_eq!(find("here").unwrap().folder, root.path().join("here"));
        let error = find("half").unwrap_err().to_string();
        assert!(error.contains("has no libferoce_shim.so"), "{error}");
        let error = find("a b").unwrap_err().to_string();
        assert!(error.contains("a space, colon or semicolon"), "{error}");
    }

    #[test]
    fn present_values_of_the_loaders_variables_are_kept() {
        let libraries = Libraries {
            folder: "/l".into(),
        };
        for (present, path, preload) in [
            (None, "/l", "/l/libferoce_shim.so"),
            (Some(""), "/l", "/l/libferoce_shim.so"),
            (Some("/x:/y"), "/l:/x:/y", "/x:/y:/l/libferoce_shim.so"),
        ] {
            assert_eq!(libraries.library_path(present.map(OsString::from)), path);
            assert_eq!(libraries.preload(present.map(OsString::from)), preload);
        }
    }
}
