//! `cargo xtask spec`: is every requirement of docs/spec/metaroce in the registry, met by code, and
//! would a test fail without it?
//!
//! The text is the source: a requirement is a list item `- **MR-REL-001** MUST: …`. The registry
//! beside it repeats them for programs; `--write` makes it again. Code cites `//= MR-REL-001`,
//! tests `//= MR-REL-001 type=test`; an exception is written down as
//! `//= MR-REL-001 type=exception reason="…"`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lexopt::{Arg, Parser};

use crate::cargo;

const USAGE: &str = "\
cargo xtask spec            compare text, registry, code and tests; print what is missing
cargo xtask spec --strict   as above, and fail when a MUST has no code or no test
cargo xtask spec --write    write the registry again from the text";

/// The folder of the specification, from the root.
const FOLDER: &str = "docs/spec/metaroce";

/// Folders of code that may cite requirements.
const CODE: [&str; 2] = ["crates", "fuzz"];

/// Runs as the arguments say.
pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let (mut write, mut strict) = (false, false);
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("write") => write = true,
            Arg::Long("strict") => strict = true,
            other => bail!("{}\n\n{USAGE}", other.unexpected()),
        }
    }
    let root = cargo::workspace();
    let requirements = read_text(&root.join(FOLDER))?;
    let registry = root.join(FOLDER).join("requirements.toml");
    let rendered = render(&requirements);
    if write {
        fs::write(&registry, &rendered)?;
    }
    let there = fs::read_to_string(&registry).unwrap_or_default();
    ensure!(
        there == rendered,
        "{} differs from the text: run `cargo xtask spec --write`",
        registry.display()
    );
    let mut citations = Citations::default();
    for folder in CODE {
        for file in rust_files(&root.join(folder))? {
            let text = fs::read_to_string(&file)?;
            citations
                .scan(&text)
                .with_context(|| file.display().to_string())?;
        }
    }
    for id in citations.0.keys() {
        ensure!(
            requirements.contains_key(id),
            "{id} is cited, but no requirement"
        );
    }
    let missing = report(&requirements, &citations);
    ensure!(
        !strict || missing == 0,
        "{missing} requirements of level MUST lack code or test"
    );
    Ok(())
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Requirement {
    level: String,
    file: String,
    text: String,
}

type Requirements = BTreeMap<String, Requirement>;

fn read_text(folder: &Path) -> Result<Requirements> {
    let mut requirements = Requirements::new();
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    for path in files {
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().unwrap_or_default().display().to_string();
            parse(&name, &fs::read_to_string(&path)?, &mut requirements)?;
        }
    }
    Ok(requirements)
}

/// The requirements of one file: list items, which end at an empty line or at the next item.
fn parse(file: &str, text: &str, requirements: &mut Requirements) -> Result<()> {
    let mut current: Option<(String, Requirement)> = None;
    let mut finish = |current: &mut Option<(String, Requirement)>| {
        if let Some((id, requirement)) = current.take() {
            ensure!(
                requirements.insert(id.clone(), requirement).is_none(),
                "{file}: {id} is defined twice"
            );
        }
        Ok(())
    };
    for line in text.lines() {
        if let Some(item) = line.strip_prefix("- **MR-") {
            finish(&mut current)?;
            let (number, rest) = item.split_once("** ").context("an id ends with **")?;
            let (level, text) = rest.split_once(": ").context("a level ends with a colon")?;
            ensure!(
                matches!(level, "MUST" | "SHOULD"),
                "{file}: MR-{number} has level {level}"
            );
            let requirement = Requirement {
                level: level.to_owned(),
                file: file.to_owned(),
                text: text.to_owned(),
            };
            current = Some((format!("MR-{number}"), requirement));
        } else if line.trim().is_empty() || line.starts_with(['-', '|', '#', '*']) {
            finish(&mut current)?;
        } else if let Some((_, requirement)) = &mut current {
            requirement.text.push(' ');
            requirement.text.push_str(line.trim());
        }
    }
    finish(&mut current)
}

fn render(requirements: &Requirements) -> String {
    let mut text = String::from(
        "# The requirements of this specification, for programs. Do not edit: the text is the\n\
         # source, and `cargo xtask spec --write` makes this file again.\n",
    );
    for (id, requirement) in requirements {
        let Requirement {
            level,
            file,
            text: demand,
        } = requirement;
        let demand = demand.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(
            text,
            "\n[{id}]\nlevel = \"{level}\"\nfile = \"{file}\"\ntext = \"{demand}\"\n"
        );
    }
    text
}

/// Citations of one requirement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Cited {
    code: u32,
    tests: u32,
    exceptions: u32,
}

#[derive(Default)]
struct Citations(BTreeMap<String, Cited>);

impl Citations {
    fn scan(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            let Some((_, citation)) = line.split_once("//= MR-") else {
                continue;
            };
            // A citation stands alone or behind code, never in a text about citations.
            if line.contains("`//=") || line.contains("\"//=") {
                continue;
            }
            let (number, rest) = citation.split_once(' ').unwrap_or((citation, ""));
            let cited = self.0.entry(format!("MR-{number}")).or_default();
            if rest.is_empty() {
                cited.code += 1;
            } else if rest == "type=test" {
                cited.tests += 1;
            } else if rest.starts_with("type=exception reason=\"") {
                cited.exceptions += 1;
            } else {
                bail!("a citation that is none: {}", line.trim());
            }
        }
        Ok(())
    }
}

/// Prints the table; returns how many MUSTs lack something.
fn report(requirements: &Requirements, citations: &Citations) -> usize {
    let mut by_group: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut missing = BTreeSet::new();
    for (id, requirement) in requirements {
        let cited = citations.0.get(id).copied().unwrap_or_default();
        let group = by_group.entry(id.get(..6).unwrap_or(id)).or_default();
        let excepted = cited.exceptions > 0;
        group[0] += 1;
        group[1] += usize::from(cited.code > 0);
        group[2] += usize::from(cited.tests > 0);
        group[3] += usize::from(excepted);
        if requirement.level == "MUST" && !excepted && (cited.code == 0 || cited.tests == 0) {
            let lacks = match (cited.code, cited.tests) {
                (0, 0) => "no code, no test",
                (0, _) => "no code",
                _ => "no test",
            };
            missing.insert(format!("{id}  {lacks}"));
        }
    }
    println!("group    requirements   code   test   exceptions");
    for (group, [all, code, tests, excepted]) in by_group {
        println!("{group:8} {all:12} {code:6} {tests:6} {excepted:12}");
    }
    for line in &missing {
        println!("{line}");
    }
    println!(
        "{} requirements, {} of level MUST lack code or test",
        requirements.len(),
        missing.len()
    );
    missing.len()
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_requirements() {
        let text = "text\n- **MR-A-001** MUST: one\n  more\n- **MR-A-002** SHOULD: two\n\nrest\n";
        let mut requirements = Requirements::new();
        parse("a.md", text, &mut requirements).unwrap();
        assert_eq!(requirements["MR-A-001"].text, "one more");
        assert_eq!(requirements["MR-A-002"].level, "SHOULD");
        let twice = "- **MR-A-001** MUST: again\n";
        assert!(parse("b.md", twice, &mut requirements).is_err());
        let vague = "- **MR-A-003** MAY: anything\n";
        assert!(parse("c.md", vague, &mut requirements).is_err());
    }

    #[test]
    fn citations_are_counted_by_kind() {
        let sign = concat!("//", "= ");
        let text = format!(
            "x(); {sign}MR-A-001\n{sign}MR-A-001 type=test\n\
             {sign}MR-A-002 type=exception reason=\"none\"\n"
        );
        let mut citations = Citations::default();
        citations.scan(&text).unwrap();
        let expected = Cited {
            code: 1,
            tests: 1,
            exceptions: 0,
        };
        assert_eq!(citations.0["MR-A-001"], expected);
        assert_eq!(citations.0["MR-A-002"].exceptions, 1);
        assert!(
            citations
                .scan(&format!("{sign}MR-A-001 type=tset"))
                .is_err()
        );
    }
}
