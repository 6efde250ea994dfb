//! Names and versions: our library against our table, our table against the installed library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::read::elf::{ElfFile64, FileHeader as _, Sym as _};
use object::{Endianness, elf};

use super::Report;
use crate::cargo;
use crate::symbols::Table;

/// A name under a version; `default` as the linker sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Export {
    name: String,
    version: String,
    default: bool,
}

impl Export {
    fn spelled(&self) -> String {
        let Self {
            name,
            version,
            default,
        } = self;
        format!("{name}{}{version}", if *default { "@@" } else { "@" })
    }
}

/// Compares one library, whose table lies in `crates/FOLDER/symbols.txt`; `package` is Debian's.
pub(super) fn check(
    library: &Path,
    folder: &str,
    package: &str,
    report: &mut Report,
) -> Result<()> {
    let table = cargo::workspace().join(format!("crates/{folder}/symbols.txt"));
    let table = Table::parse(&fs::read_to_string(table)?).map_err(anyhow::Error::msg)?;
    let wanted: BTreeSet<_> = table
        .symbols
        .iter()
        .map(|symbol| Export {
            name: symbol.name.clone(),
            version: symbol.node.clone(),
            default: symbol.default,
        })
        .collect();

    let before = report.faults.len();
    let exported = exports(library)?;
    for export in wanted.difference(&exported) {
        report.fault(format!(
            "{} is in the table but not in our library",
            export.spelled()
        ));
    }
    for export in exported.difference(&wanted) {
        report.fault(format!("{} leaks out of our library", export.spelled()));
    }
    report.conclude(
        before,
        &format!(
            "our {folder} library exports its table: {} names",
            wanted.len()
        ),
    );

    let soname = library.file_name().unwrap_or_default().to_string_lossy();
    let what = format!("the table has every name of the installed {soname}");
    let Some(installed) = installed(&soname) else {
        report.skip(format!("{what}: none is installed (package {package})"));
        return Ok(());
    };
    let before = report.faults.len();
    let theirs = exports(&installed)?;
    for export in theirs.difference(&wanted) {
        report.fault(format!(
            "{} of {} is missing",
            export.spelled(),
            installed.display()
        ));
    }
    report.conclude(before, &format!("{what}: {} names", theirs.len()));
    Ok(())
}

/// The library that programs get without us.
pub(super) fn installed(name: &str) -> Option<PathBuf> {
    let folders = [
        format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
    ];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists())
}

/// Every defined dynamic symbol with its version.
fn exports(library: &Path) -> Result<BTreeSet<Export>> {
    let data = fs::read(library).with_context(|| library.display().to_string())?;
    let file = ElfFile64::<Endianness>::parse(&*data)
        .with_context(|| format!("{} is no 64-bit ELF file", library.display()))?;
    let (header, endian) = (file.elf_header(), file.endian());
    let sections = header.sections(endian, &*data)?;
    let symbols = sections.symbols(endian, &*data, elf::SHT_DYNSYM)?;
    let versions = sections.versions(endian, &*data)?;
    let mut exports = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        let name = String::from_utf8_lossy(symbol.name(endian, symbols.strings())?).into_owned();
        // The version nodes themselves appear as absolute symbols.
        if name.is_empty() || symbol.is_undefined(endian) || symbol.is_absolute(endian) {
            continue;
        }
        let index = versions
            .as_ref()
            .map(|versions| versions.version_index(endian, index));
        let default = index.is_none_or(|index| !index.is_hidden());
        let version = match (&versions, index) {
            (Some(versions), Some(index)) => versions
                .version(index.index())?
                .map(|version| version.name()),
            _ => None,
        };
        let version = version
            .map(String::from_utf8_lossy)
            .unwrap_or_default()
            .into_owned();
        exports.insert(Export {
            name,
            version,
            default,
        });
    }
    Ok(exports)
}
