//! Requirements as the text has them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Level, Requirement, Requirements};

/// The file that explains the words.
const README: &str = "README.md";

/// Reads the files of the specification. Also returns what is wrong with them.
pub(super) fn read(folder: &Path) -> Result<(Requirements, Vec<String>)> {
    let (mut requirements, mut complaints) = (Requirements::new(), Vec::new());
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    for path in files {
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().unwrap_or_default().display().to_string();
            let text = fs::read_to_string(&path)?;
            complaints.extend(parse(&name, &text, &mut requirements));
        }
    }
    Ok((requirements, complaints))
}

/// The requirements of one file: list items, which end at an empty line or at the next item.
fn parse(file: &str, text: &str, requirements: &mut Requirements) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut current: Option<String> = None;
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        let place = format!("{file}:{number}");
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            current = None;
            continue;
        }
        if line.trim_start().starts_with("- **MR-") {
            current = None;
            let Some((id, level, demand)) = item(line) else {
                complaints.push(format!(
                    "{place} is no `- **MR-XXX-000** MUST: …` (or SHOULD)"
                ));
                continue;
            };
            let requirement = Requirement {
                level,
                file: file.to_owned(),
                text: demand.to_owned(),
                gap: None,
            };
            if requirements.insert(id.to_owned(), requirement).is_some() {
                complaints.push(format!("{place} defines {id} again"));
            }
            current = Some(id.to_owned());
            continue;
        }
        if line.trim().is_empty() || line.starts_with(['-', '|', '#', '*']) {
            current = None;
        }
        let requirement = current.as_ref().and_then(|id| requirements.get_mut(id));
        if let Some(requirement) = requirement {
            requirement.text.push(' ');
            requirement.text.push_str(line.trim());
        } else if file != README && demands(line) {
            complaints.push(format!("{place} demands something outside a requirement"));
        }
    }
    complaints
}

/// Id, level and demand of a list item.
fn item(line: &str) -> Option<(&str, Level, &str)> {
    let (id, rest) = line.strip_prefix("- **")?.split_once("** ")?;
    let (level, demand) = rest.split_once(": ")?;
    is_id(id).then_some((id, Level::parse(level)?, demand))
}

/// Whether it has the form of `MR-REL-001`.
pub(super) fn is_id(text: &str) -> bool {
    let mut parts = text.split('-');
    let head = parts.next() == Some("MR");
    let group = parts
        .next()
        .is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase()));
    let number = parts
        .next()
        .is_some_and(|it| it.len() == 3 && it.bytes().all(|byte| byte.is_ascii_digit()));
    head && group && number && parts.next().is_none()
}

/// Whether a line speaks as a requirement does.
fn demands(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_ascii_alphabetic());
    words.any(|word| matches!(word, "MUST" | "SHOULD" | "SHALL" | "MAY"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Requirements, Vec<String>) {
        let mut requirements = Requirements::new();
        let complaints = parse("a.md", text, &mut requirements);
        (requirements, complaints)
    }

    #[test]
    fn items_become_requirements() {
        let text = "text\n- **MR-A-001** MUST: one\n  more\n- **MR-A-002** SHOULD: two\n\nrest\n";
        let (requirements, complaints) = parsed(text);
        assert_eq!(complaints, [""; 0]);
        assert_eq!(requirements["MR-A-001"].text, "one more");
        assert_eq!(requirements["MR-A-002"].level, Level::Should);
        assert_eq!(requirements["MR-A-002"].text, "two");
    }

    #[test]
    fn an_item_has_an_id_of_its_own_and_a_level() {
        let one = "- **MR-A-001** MUST: one\n";
        assert_eq!(parsed(&one.repeat(2)).1, ["a.md:2 defines MR-A-001 again"]);
        for vague in [
            "- **MR-A-003** MAY: anything",
            "- **MR-A-3** MUST: anything",
            "- **MR-A-003**: anything",
            "  - **MR-A-003** MUST: inside another list",
        ] {
            assert_eq!(parsed(vague).1.len(), 1, "{vague}");
        }
    }

    #[test]
    fn only_items_demand() {
        assert_eq!(parsed("Receivers MUST wait.\n").1.len(), 1);
        assert_eq!(parsed("Mustard may be MUSTY.\n").1.len(), 0);
        assert_eq!(
            parsed("- **MR-A-001** MUST: one\n\nand MUST two\n").1.len(),
            1
        );
    }
}
