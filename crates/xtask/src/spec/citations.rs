//! Citations of requirements in code and tests.

use std::collections::BTreeMap;

use super::text::is_id;

/// Citations of one requirement.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Cited {
    pub(super) code: u32,
    pub(super) tests: u32,
}

impl Cited {
    pub(super) const fn is_covered(self) -> bool {
        self.code > 0 && self.tests > 0
    }
}

/// All citations.
#[derive(Default)]
pub(super) struct Citations {
    count: BTreeMap<String, Cited>,
    /// Where each is cited first.
    place: BTreeMap<String, String>,
}

/// What a citation begins with. In two parts, so that this file cites nothing.
const SIGN: &str = concat!("//", "= ");

impl Citations {
    pub(super) fn of(&self, id: &str) -> Cited {
        self.count.get(id).copied().unwrap_or_default()
    }

    /// Each id that is cited, with the first place.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        self.place.iter().map(|(id, at)| (id.as_str(), at.as_str()))
    }

    /// Takes a file in; returns what is wrong with its citations.
    pub(super) fn scan(&mut self, file: &str, text: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        let lines: Vec<&str> = text.lines().collect();
        let in_tests = is_test_file(file);
        let mut behind_tests = false;
        for (index, line) in lines.iter().enumerate() {
            behind_tests |= line.starts_with("#[cfg(test)]");
            // A citation stands alone: what follows other text is a text about citations.
            let Some(citation) = line.trim_start().strip_prefix(SIGN) else {
                continue;
            };
            let place = format!("{file}:{}", index + 1);
            let (id, kind) = citation.split_once(' ').unwrap_or((citation, ""));
            if !is_id(id) {
                complaints.push(format!("{place} cites {id}, which is no id"));
                continue;
            }
            let cited = self.count.entry(id.to_owned()).or_default();
            match kind {
                "" if in_tests || behind_tests => {
                    complaints.push(format!("{place} cites {id} as code, but is a test"));
                }
                "" => cited.code += 1,
                "type=test" if is_before_test(&lines[index + 1..]) => cited.tests += 1,
                "type=test" => complaints.push(format!("{place} cites {id} for no test")),
                _ => complaints.push(format!("{place} is no citation: {kind}")),
            }
            self.place.entry(id.to_owned()).or_insert(place);
        }
        complaints
    }
}

fn is_test_file(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

/// Whether the next item is a test: between a citation and its function stand comments and
/// attributes only.
fn is_before_test(lines: &[&str]) -> bool {
    let mut head = lines.iter().map(|line| line.trim());
    let head = head
        .by_ref()
        .take_while(|line| line.starts_with(['#', '/']));
    head.into_iter().any(|line| line == "#[test]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(file: &str, text: &str) -> (Citations, Vec<String>) {
        let mut citations = Citations::default();
        let complaints = citations.scan(file, &text.replace('@', SIGN));
        (citations, complaints)
    }

    #[test]
    fn citations_are_counted_by_kind() {
        let text = "@MR-A-001\nx();\n    @MR-A-001 type=test\n    #[test]\n    fn a() {}\n";
        let (citations, complaints) = scan("a.rs", text);
        assert_eq!(complaints, [""; 0]);
        assert_eq!(citations.of("MR-A-001"), Cited { code: 1, tests: 1 });
        assert_eq!(citations.of("MR-A-002"), Cited::default());
        assert_eq!(
            citations.places().collect::<Vec<_>>(),
            [("MR-A-001", "a.rs:1")]
        );
    }

    #[test]
    fn a_test_citation_belongs_to_a_test() {
        let (citations, complaints) = scan("a.rs", "@MR-A-001 type=test\nfn helper() {}\n");
        assert_eq!((citations.of("MR-A-001").tests, complaints.len()), (0, 1));
    }

    #[test]
    fn tests_do_not_count_as_code() {
        for (file, text) in [
            ("x/tests/a.rs", "@MR-A-001\n"),
            ("x/tests.rs", "@MR-A-001\n"),
            ("x/a.rs", "#[cfg(test)]\nmod tests {\n    @MR-A-001\n"),
        ] {
            let (citations, complaints) = scan(file, text);
            assert_eq!((citations.of("MR-A-001").code, complaints.len()), (0, 1));
        }
    }

    #[test]
    fn what_is_no_citation_is_told() {
        assert_eq!(scan("a.rs", "@MR-A-001 type=tset\n").1.len(), 1);
        assert_eq!(scan("a.rs", "@MR-A-1\n").1.len(), 1);
        assert_eq!(scan("a.rs", "@RC-RESP-021\n").1.len(), 1);
        assert_eq!(scan("a.rs", "text about `@MR-A-1`\n").1.len(), 0);
    }
}
