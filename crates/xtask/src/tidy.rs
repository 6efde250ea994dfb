//! `cargo xtask tidy`: the limits of the house style, as a ratchet.
//!
//! What crosses a limit fails, unless `tidy.allow` at the root lists it with its number; an entry
//! may shrink but not grow, and one that is no longer needed fails until it is taken out
//! (`--update` does so, and never adds one). What rustfmt and clippy see is not looked at again.

mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo;
use source::{Source, TestItem};

/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file without its tests.
const FILE_LINES_MAX: usize = 600;
/// Characters of a line of Rust.
const LINE_COLUMNS_MAX: usize = 100;

/// The only places where `unsafe` may stand.
const UNSAFE_ALLOWED: [&str; 6] = [
    "crates/mem/",
    "crates/netio/src/sys/",
    "crates/verbs-abi/",
    "crates/ibverbs/",
    "crates/rdmacm/",
    "crates/shim/",
];

/// Beginnings of paths that exist on one machine only.
const MACHINE_PATHS: [&str; 3] = [
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "Users/"),
];

/// A file that has this near its head is written by a program, and its form is that program's.
const GENERATED: &str = concat!("Do not ", "edit");

const ALLOW_FILE: &str = "tidy.allow";

/// Checks all files that git knows or would add.
pub(crate) fn run(mut arguments: lexopt::Parser) -> Result<()> {
    let mut update = false;
    while let Some(argument) = arguments.next()? {
        match argument {
            lexopt::Arg::Long("update") => update = true,
            other => bail!("{}\n\ncargo xtask tidy [--update]", other.unexpected()),
        }
    }
    let root = cargo::workspace();
    let files = read_files(&root)?;
    let offences = check(&files);
    let allow_path = root.join(ALLOW_FILE);
    let text = fs::read_to_string(&allow_path).unwrap_or_default();
    let allowed = Allowed::parse(&text)?;
    if update {
        fs::write(&allow_path, allowed.shrunk(&offences).to_string())?;
    }
    let complaints = allowed.complaints(&offences, update);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    ensure!(complaints.is_empty(), "{} untidy places", complaints.len());
    println!(
        "tidy: {} files, {} old offences allowed",
        files.len(),
        allowed.0.len()
    );
    Ok(())
}

/// A file by its path from the root, with `/` between its parts.
type Files = BTreeMap<String, String>;

fn read_files(root: &Path) -> Result<Files> {
    let output = Command::new("git")
        .current_dir(root)
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("git ls-files")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let list = String::from_utf8(output.stdout).context("a file name that is not UTF-8")?;
    let mut files = Files::new();
    for path in list.split('\0').filter(|path| !path.is_empty()) {
        // Absent: deleted, but not yet in git's eyes. Not UTF-8: not text.
        if let Ok(text) = fs::read_to_string(root.join(path)) {
            files.insert(path.to_owned(), text);
        }
    }
    Ok(files)
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Function(String),
    File,
    Line,
    Tab,
    Space,
    Unsafe,
    Path,
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "file" => Self::File,
            "line" => Self::Line,
            "tab" => Self::Tab,
            "space" => Self::Space,
            "unsafe" => Self::Unsafe,
            "path" => Self::Path,
            _ => Self::Function(text.strip_prefix("function:")?.to_owned()),
        })
    }

    fn meaning(&self) -> String {
        match self {
            Self::Function(name) => {
                format!("lines of function {name}, {FUNCTION_LINES_MAX} at most")
            }
            Self::File => format!("lines without tests, {FILE_LINES_MAX} at most"),
            Self::Line => format!("lines of more than {LINE_COLUMNS_MAX} columns"),
            Self::Tab => "lines with a tab".to_owned(),
            Self::Space => "lines that end in a space".to_owned(),
            Self::Unsafe => "uses of unsafe outside the crates that may have it".to_owned(),
            Self::Path => "paths of one machine".to_owned(),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => write!(f, "function:{name}"),
            Self::File => f.write_str("file"),
            Self::Line => f.write_str("line"),
            Self::Tab => f.write_str("tab"),
            Self::Space => f.write_str("space"),
            Self::Unsafe => f.write_str("unsafe"),
            Self::Path => f.write_str("path"),
        }
    }
}

/// How far a rule is broken, and the first line where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    number: usize,
    line: usize,
}

type Offences = BTreeMap<(String, Rule), Extent>;

fn check(files: &Files) -> Offences {
    let tests = test_places(files);
    let mut offences = Offences::new();
    for (path, text) in files {
        let is_test = tests.iter().any(|place| place.holds(path));
        let mut found = check_text(path, text);
        if path.ends_with(".rs") {
            found.extend(check_rust(path, text, is_test));
        }
        for (rule, extent) in found {
            let worst = offences.entry((path.clone(), rule)).or_insert(extent);
            if extent.number > worst.number {
                *worst = extent;
            }
        }
    }
    offences
}

/// Rules for any text that people write.
fn check_text(path: &str, text: &str) -> Vec<(Rule, Extent)> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if !matches!(
        extension,
        "" | "c" | "h" | "md" | "py" | "rs" | "sh" | "toml"
    ) {
        return Vec::new();
    }
    let lines_where = |rule, bad: &dyn Fn(&str) -> bool| {
        lines_extent(text.lines().map(bad)).map(|extent| (rule, extent))
    };
    [
        lines_where(Rule::Tab, &|line| line.contains('\t')),
        lines_where(Rule::Space, &|line| line.ends_with(' ')),
        lines_where(Rule::Path, &|line| {
            MACHINE_PATHS.iter().any(|path| line.contains(path))
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn check_rust(path: &str, text: &str, is_test: bool) -> Vec<(Rule, Extent)> {
    let source = Source::new(text);
    let mut found = Vec::new();
    if !UNSAFE_ALLOWED.iter().any(|prefix| path.starts_with(prefix)) {
        let lines = source.lines_with_word("unsafe");
        if let Some(&line) = lines.first() {
            found.push((
                Rule::Unsafe,
                Extent {
                    number: lines.len(),
                    line,
                },
            ));
        }
    }
    if text.lines().take(3).any(|line| line.contains(GENERATED)) {
        return found;
    }
    let long = lines_extent(
        text.lines()
            .map(|line| line.chars().count() > LINE_COLUMNS_MAX),
    );
    found.extend(long.map(|extent| (Rule::Line, extent)));
    for function in source.functions() {
        if function.lines > FUNCTION_LINES_MAX {
            let extent = Extent {
                number: function.lines,
                line: function.first_line,
            };
            found.push((Rule::Function(function.name), extent));
        }
    }
    let test_lines: usize = source
        .test_items()
        .iter()
        .map(|item| match item {
            TestItem::Lines(lines) => *lines,
            TestItem::Module(_) => 0,
        })
        .sum();
    let lines = text.lines().count().saturating_sub(test_lines);
    if !is_test && lines > FILE_LINES_MAX {
        found.push((
            Rule::File,
            Extent {
                number: lines,
                line: 1,
            },
        ));
    }
    found
}

/// How many lines are bad, and the first of them.
fn lines_extent(bad: impl Iterator<Item = bool>) -> Option<Extent> {
    let mut extent: Option<Extent> = None;
    for (index, _) in bad.enumerate().filter(|(_, bad)| *bad) {
        extent
            .get_or_insert(Extent {
                number: 0,
                line: index + 1,
            })
            .number += 1;
    }
    extent
}

/// Where only tests are: a folder named `tests`, or a module that is declared so.
enum TestPlace {
    AnyTestsFolder,
    /// The path of the module's file without `.rs`, which is also its folder.
    Module(PathBuf),
}

impl TestPlace {
    fn holds(&self, path: &str) -> bool {
        match self {
            Self::AnyTestsFolder => path.split('/').any(|part| part == "tests"),
            Self::Module(module) => {
                Path::new(path).with_extension("") == *module || Path::new(path).starts_with(module)
            }
        }
    }
}

fn test_places(files: &Files) -> Vec<TestPlace> {
    let mut places = vec![TestPlace::AnyTestsFolder];
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        let path = Path::new(path);
        let stem = path.file_stem().unwrap_or_default();
        let folder = if stem == "lib" || stem == "main" || stem == "mod" {
            path.parent().map(Path::to_owned).unwrap_or_default()
        } else {
            path.with_extension("")
        };
        for item in Source::new(text).test_items() {
            if let TestItem::Module(name) = item {
                places.push(TestPlace::Module(folder.join(name)));
            }
        }
    }
    places
}

/// The entries of `tidy.allow`.
struct Allowed(BTreeMap<(String, Rule), usize>);

const ALLOW_HEAD: &str = "\
# Old offences against the limits that `cargo xtask tidy` checks: file, rule, number.
# This list only shrinks. `cargo xtask tidy --update` lowers and removes entries.
";

impl Allowed {
    fn parse(text: &str) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut parts = line.split_whitespace();
            let entry = (|| {
                let path = parts.next()?.to_owned();
                let rule = Rule::parse(parts.next()?)?;
                let number = parts.next()?.parse().ok()?;
                parts.next().is_none().then_some(((path, rule), number))
            })();
            let (key, number) = entry.with_context(|| {
                format!(
                    "{ALLOW_FILE}:{}: expected FILE RULE NUMBER: {line}",
                    index + 1
                )
            })?;
            entries.insert(key, number);
        }
        Ok(Self(entries))
    }

    /// The entries that are still needed, no larger than they must be.
    fn shrunk(&self, offences: &Offences) -> Self {
        let kept = self.0.iter().filter_map(|(key, &number)| {
            offences
                .get(key)
                .map(|extent| (key.clone(), number.min(extent.number)))
        });
        Self(kept.collect())
    }

    /// What is wrong, one line each. After an update, entries that are too large are right.
    fn complaints(&self, offences: &Offences, updated: bool) -> Vec<String> {
        let mut complaints = Vec::new();
        for ((path, rule), extent) in offences {
            let Extent { number, line } = extent;
            let allowed = self
                .0
                .get(&(path.clone(), rule.clone()))
                .copied()
                .unwrap_or(0);
            if *number > allowed {
                let meaning = rule.meaning();
                complaints.push(format!("{path}:{line}: {number} {meaning} [{rule}]"));
            } else if *number < allowed && !updated {
                complaints.push(format!(
                    "{ALLOW_FILE}: {path} {rule} {allowed} is {number} now: \
                     run `cargo xtask tidy --update`"
                ));
            }
        }
        for (path, rule) in self
            .0
            .keys()
            .filter(|key| !offences.contains_key(key) && !updated)
        {
            complaints.push(format!(
                "{ALLOW_FILE}: {path} {rule} holds now: run `cargo xtask tidy --update`"
            ));
        }
        complaints
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ALLOW_HEAD)?;
        for ((path, rule), number) in &self.0 {
            writeln!(f, "{path} {rule} {number}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
