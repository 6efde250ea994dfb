//! `cargo xtask spec`: is every demand of docs/spec/metaroce a requirement of the registry, met by
//! code, and would a test fail without it?
//!
//! The text is the source: a requirement is a list item `- **MR-REL-001** MUST: …`, and no other
//! sentence may demand. The registry beside it repeats them for programs and adds *gaps*: what is
//! not met, and why. Code cites `//= MR-REL-001`, tests `//= MR-REL-001 type=test`.
//!
//! It fails on a MUST that is neither covered nor a gap, on a gap that is covered, on a citation
//! of nothing, and when text and registry disagree.

mod citations;
mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lexopt::{Arg, Parser};

use crate::cargo;
use citations::{Citations, Cited};

const USAGE: &str = "\
cargo xtask spec            compare text, registry, code and tests; print what is missing
cargo xtask spec --write    write the registry again from the text; gaps stay";

/// The folder of the specification, from the root.
const FOLDER: &str = "docs/spec/metaroce";

/// Folders of code that may cite requirements.
const CODE: [&str; 2] = ["crates", "fuzz"];

/// Runs as the arguments say.
pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let mut write = false;
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("write") => write = true,
            other => bail!("{}\n\n{USAGE}", other.unexpected()),
        }
    }
    let root = cargo::workspace();
    let (mut requirements, mut complaints) = text::read(&root.join(FOLDER))?;
    let path = root.join(FOLDER).join("requirements.toml");
    let registry = fs::read_to_string(&path).unwrap_or_default();
    let registered = parse_registry(&registry).with_context(|| path.display().to_string())?;
    take_gaps(&mut requirements, &registered);
    if write {
        fs::write(&path, render(&requirements))?;
    } else {
        complaints.extend(differences(&requirements, &registered));
    }
    let mut citations = Citations::default();
    for folder in CODE {
        for file in rust_files(&root.join(folder))? {
            let name = file.strip_prefix(&root).unwrap_or(&file);
            let name = name.display().to_string();
            complaints.extend(citations.scan(&name, &fs::read_to_string(&file)?));
        }
    }
    complaints.extend(judge(&requirements, &citations));
    print!("{}", table(&requirements, &citations));
    for complaint in &complaints {
        println!("WRONG    {complaint}");
    }
    ensure!(
        complaints.is_empty(),
        "the specification: {} things are wrong",
        complaints.len()
    );
    Ok(())
}

/// Whether an implementation may do otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Must,
    Should,
}

impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "MUST" => Some(Self::Must),
            "SHOULD" => Some(Self::Should),
            _ => None,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
        }
    }
}

/// One numbered demand.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Requirement {
    level: Level,
    file: String,
    text: String,
    /// Why it is not met.
    gap: Option<String>,
}

type Requirements = BTreeMap<String, Requirement>;

const HEAD: &str = "\
# The requirements of this specification, for programs. The text is the source: `cargo xtask spec
# --write` makes this file again. Only a line `gap = \"why it is not met\"` is written by hand.
";

fn render(requirements: &Requirements) -> String {
    let mut text = HEAD.to_owned();
    for (id, requirement) in requirements {
        let Requirement {
            level,
            file,
            text: demand,
            gap,
        } = requirement;
        let (level, demand) = (level.word(), escaped(demand));
        let _ = write!(
            text,
            "\n[{id}]\nlevel = \"{level}\"\nfile = \"{file}\"\ntext = \"{demand}\"\n"
        );
        if let Some(gap) = gap {
            let _ = writeln!(text, "gap = \"{}\"", escaped(gap));
        }
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

fn unescaped(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

/// Reads what [`render`] writes: tables of strings, and nothing else of TOML.
fn parse_registry(text: &str) -> Result<Requirements> {
    let mut requirements = Requirements::new();
    let mut fields: Option<(String, BTreeMap<String, String>)> = None;
    let lines = text.lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(id) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            enter(&mut requirements, fields.take())?;
            fields = Some((id.to_owned(), BTreeMap::new()));
            continue;
        }
        let (name, value) = line.split_once(" = ").context(line.to_owned())?;
        let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        let value = value.with_context(|| format!("no string: {line}"))?;
        let (id, fields) = fields.as_mut().context("a field before any [id]")?;
        let before = fields.insert(name.to_owned(), unescaped(value));
        ensure!(before.is_none(), "{id} has two fields {name}");
    }
    enter(&mut requirements, fields)?;
    Ok(requirements)
}

fn enter(
    requirements: &mut Requirements,
    entry: Option<(String, BTreeMap<String, String>)>,
) -> Result<()> {
    let Some((id, mut fields)) = entry else {
        return Ok(());
    };
    let mut take = |name: &str| {
        let value = fields.remove(name);
        value.with_context(|| format!("{id} has no {name}"))
    };
    let level = take("level")?;
    let requirement = Requirement {
        level: Level::parse(&level).with_context(|| format!("{id} has level {level}"))?,
        file: take("file")?,
        text: take("text")?,
        gap: take("gap").ok(),
    };
    ensure!(fields.is_empty(), "{id} has unknown fields {fields:?}");
    let before = requirements.insert(id.clone(), requirement);
    ensure!(before.is_none(), "{id} is there twice");
    Ok(())
}

/// Gaps are the registry's own; everything else is the text's.
fn take_gaps(requirements: &mut Requirements, registered: &Requirements) {
    for (id, requirement) in requirements {
        requirement.gap = registered.get(id).and_then(|known| known.gap.clone());
    }
}

/// Where text and registry disagree.
fn differences(requirements: &Requirements, registered: &Requirements) -> Vec<String> {
    let hint = "run `cargo xtask spec --write`";
    let mut complaints = Vec::new();
    for (id, requirement) in requirements {
        match registered.get(id) {
            None => complaints.push(format!("{id} is not in the registry: {hint}")),
            Some(known) if known != requirement => {
                complaints.push(format!("{id} is otherwise in the registry: {hint}"));
            }
            Some(_) => {}
        }
    }
    let gone = registered
        .keys()
        .filter(|id| !requirements.contains_key(*id));
    complaints.extend(gone.map(|id| format!("{id} is not in the text, but in the registry")));
    complaints
}

/// What is neither covered nor a gap, both, or cited and not there.
fn judge(requirements: &Requirements, citations: &Citations) -> Vec<String> {
    let mut complaints = Vec::new();
    for (id, requirement) in requirements {
        let cited = citations.of(id);
        match &requirement.gap {
            Some(gap) if gap.trim().is_empty() => {
                complaints.push(format!("{id} is a gap without a reason"));
            }
            Some(_) if cited.is_covered() => {
                complaints.push(format!("{id} is a gap, but has code and a test"));
            }
            None if requirement.level == Level::Must && !cited.is_covered() => {
                complaints.push(format!("{id} MUST, but {}", lack(cited)));
            }
            _ => {}
        }
    }
    for (id, place) in citations.places() {
        if !requirements.contains_key(id) {
            complaints.push(format!("{place} cites {id}, which does not exist"));
        }
    }
    complaints
}

const fn lack(cited: Cited) -> &'static str {
    match (cited.code, cited.tests) {
        (0, 0) => "no code and no test cite it",
        (0, _) => "no code cites it",
        _ => "no test cites it",
    }
}

/// Coverage by chapter, then gaps, then what SHOULD be and is not covered.
fn table(requirements: &Requirements, citations: &Citations) -> String {
    #[derive(Default)]
    struct Row {
        must: [usize; 2],
        should: [usize; 2],
        gaps: usize,
    }
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut total = Row::default();
    let mut remarks = String::new();
    for (id, requirement) in requirements {
        let cited = citations.of(id);
        let covered = cited.is_covered() && requirement.gap.is_none();
        for row in [rows.entry(&requirement.file).or_default(), &mut total] {
            let level = match requirement.level {
                Level::Must => &mut row.must,
                Level::Should => &mut row.should,
            };
            level[0] += 1;
            level[1] += usize::from(covered);
            row.gaps += usize::from(requirement.gap.is_some());
        }
        let level = requirement.level.word();
        if let Some(gap) = &requirement.gap {
            let _ = writeln!(remarks, "GAP      {id} {level}: {gap}");
        } else if !covered && requirement.level == Level::Should {
            let _ = writeln!(remarks, "note     {id} SHOULD, but {}", lack(cited));
        }
    }
    let mut text = String::from("chapter              MUST covered   SHOULD covered   gaps\n");
    for (name, row) in rows.into_iter().chain([("all", total)]) {
        let Row { must, should, gaps } = row;
        let _ = writeln!(
            text,
            "{name:20} {:4} {:7}   {:6} {:7}   {gaps:4}",
            must[0], must[1], should[0], should[1]
        );
    }
    text + &remarks
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

    fn requirement(level: Level, gap: Option<&str>) -> Requirement {
        Requirement {
            level,
            file: "a.md".to_owned(),
            text: "says \"it\" \\ all".to_owned(),
            gap: gap.map(str::to_owned),
        }
    }

    fn cited(id: &str, kinds: &[&str]) -> Citations {
        let mut citations = Citations::default();
        for kind in kinds {
            let line = format!("{}= {id}{kind}\n#[test]\nfn a() {{}}\n", "//");
            assert_eq!(citations.scan("a.rs", &line), [""; 0]);
        }
        citations
    }

    #[test]
    fn the_registry_is_read_as_it_is_written() {
        let all = Requirements::from([
            ("MR-A-001".to_owned(), requirement(Level::Must, None)),
            (
                "MR-A-002".to_owned(),
                requirement(Level::Should, Some("no \"x\"")),
            ),
        ]);
        assert_eq!(parse_registry(&render(&all)).unwrap(), all);
        assert!(parse_registry("[MR-A-001]\nlevel = \"MAY\"").is_err());
        let unknown = render(&all) + "why = \"not\"\n";
        assert!(parse_registry(&unknown).is_err());
    }

    #[test]
    fn a_must_has_code_and_test_or_is_a_gap_and_never_both() {
        let judge = |gap, kinds: &[&str]| {
            let one = Requirements::from([("MR-A-001".to_owned(), requirement(Level::Must, gap))]);
            judge(&one, &cited("MR-A-001", kinds)).len()
        };
        assert_eq!(judge(None, &["", " type=test"]), 0);
        assert_eq!(judge(None, &[""]), 1);
        assert_eq!(judge(None, &[" type=test"]), 1);
        assert_eq!(judge(Some("why"), &[""]), 0);
        assert_eq!(judge(Some(" "), &[]), 1);
        assert_eq!(judge(Some("why"), &["", " type=test"]), 1);
    }

    #[test]
    fn a_citation_of_nothing_is_wrong() {
        let complaints = judge(&Requirements::new(), &cited("MR-A-009", &[""]));
        assert_eq!(complaints, ["a.rs:1 cites MR-A-009, which does not exist"]);
    }

    #[test]
    fn text_and_registry_agree() {
        let one = |text: &str| {
            let mut requirement = requirement(Level::Must, None);
            text.clone_into(&mut requirement.text);
            Requirements::from([("MR-A-001".to_owned(), requirement)])
        };
        assert_eq!(differences(&one("a"), &one("a")), [""; 0]);
        assert_eq!(differences(&one("a"), &one("b")).len(), 1);
        assert_eq!(differences(&one("a"), &Requirements::new()).len(), 1);
        assert_eq!(differences(&Requirements::new(), &one("a")).len(), 1);
    }

    #[test]
    fn a_gap_is_printed_and_not_covered() {
        let gap = requirement(Level::Must, Some("nobody needs it"));
        let one = Requirements::from([("MR-A-001".to_owned(), gap)]);
        let text = table(&one, &cited("MR-A-001", &["", " type=test"]));
        assert!(
            text.contains("GAP      MR-A-001 MUST: nobody needs it"),
            "{text}"
        );
        let all = text.lines().find(|line| line.starts_with("all")).unwrap();
        let numbers: Vec<&str> = all.split_whitespace().collect();
        assert_eq!(numbers, ["all", "1", "0", "0", "0", "1"]);
    }
}
