//! Just enough of Rust's grammar to measure a file: where functions and tests begin and end.
//!
//! Not a parser: macros are read as if they were code, which is right for what is asked here.

/// A Rust file with the contents of comments, strings and characters blanked out; columns and
/// lines stay where they were.
pub(super) struct Source {
    code: Vec<char>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// From 1.
    pub(super) first_line: usize,
    /// From the signature to the closing brace.
    pub(super) lines: usize,
}

/// What stands behind one `#[cfg(test)]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TestItem {
    /// Lines of this file, the attribute's included.
    Lines(usize),
    /// `mod NAME;`: another file.
    Module(String),
}

impl Source {
    pub(super) fn new(text: &str) -> Self {
        let text: Vec<char> = text.chars().collect();
        let mut code = Vec::with_capacity(text.len());
        while code.len() < text.len() {
            let at = code.len();
            match blank_at(&text, at) {
                Some(end) => code.extend(
                    text[at..end]
                        .iter()
                        .map(|&c| if c == '\n' { c } else { ' ' }),
                ),
                None => code.push(text[at]),
            }
        }
        Self { code }
    }

    /// Lines, from 1, on which this word stands in code.
    pub(super) fn lines_with_word(&self, wanted: &str) -> Vec<usize> {
        let words = self
            .words()
            .filter(|&(start, end)| self.is(start, end, wanted));
        words.map(|(start, _)| self.line_of(start)).collect()
    }

    /// All functions that have a body, in the order of their names' places.
    pub(super) fn functions(&self) -> Vec<Function> {
        let mut functions = Vec::new();
        let mut words = self.words().peekable();
        while let Some((start, end)) = words.next() {
            let Some(&(name_start, name_end)) = words.peek() else {
                break;
            };
            let between = &self.code[end..name_start];
            if !self.is(start, end, "fn") || !between.iter().all(|c| c.is_whitespace()) {
                continue;
            }
            let Some(close) = self
                .end_of_item(name_end)
                .filter(|&at| self.code[at] == '}')
            else {
                continue;
            };
            let first_line = self.line_of(start);
            functions.push(Function {
                name: self.code[name_start..name_end].iter().collect(),
                first_line,
                lines: self.line_of(close) - first_line + 1,
            });
        }
        functions
    }

    /// Every item that is compiled only for tests.
    pub(super) fn test_items(&self) -> Vec<TestItem> {
        let attribute: Vec<char> = "#[cfg(test)]".chars().collect();
        let mut items = Vec::new();
        let mut at = 0;
        while let Some(found) = self.code[at..]
            .windows(attribute.len())
            .position(|window| window == attribute)
        {
            let start = at + found;
            let behind = start + attribute.len();
            at = behind;
            // A field or an arm: what ends it is not looked for, it has few lines.
            let Some(end) = self.end_of_item(behind) else {
                continue;
            };
            items.push(match self.module_name(behind, end) {
                Some(name) => TestItem::Module(name),
                None => TestItem::Lines(self.line_of(end) - self.line_of(start) + 1),
            });
            at = end;
        }
        items
    }

    /// NAME, if `mod NAME;` ends at `end`.
    fn module_name(&self, start: usize, end: usize) -> Option<String> {
        if self.code[end] != ';' {
            return None;
        }
        let item: String = self.code[start..end].iter().collect();
        let mut words = item.split_whitespace().rev();
        let name = words.next()?;
        (words.next()? == "mod").then(|| name.to_owned())
    }

    /// The `;` or the closing brace that ends the item which begins at `start`.
    fn end_of_item(&self, start: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, c) in self.code.iter().enumerate().skip(start) {
            match c {
                '(' | '[' | '{' => depth += 1,
                ')' | ']' => depth = depth.checked_sub(1)?,
                '}' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        return Some(at);
                    }
                }
                ';' if depth == 0 => return Some(at),
                _ => {}
            }
        }
        None
    }

    /// Start and end of every identifier and keyword.
    fn words(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + self.code[at..].iter().position(|&c| is_word(c))?;
            let len = self.code[start..].iter().position(|&c| !is_word(c));
            at = len.map_or(self.code.len(), |len| start + len);
            Some((start, at))
        })
    }

    fn is(&self, start: usize, end: usize, word: &str) -> bool {
        self.code[start..end].iter().copied().eq(word.chars())
    }

    fn line_of(&self, at: usize) -> usize {
        1 + self.code[..at].iter().filter(|&&c| c == '\n').count()
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the comment, string or character that begins at `at` ends, if one does.
fn blank_at(text: &[char], at: usize) -> Option<usize> {
    let next = text.get(at + 1);
    match text[at] {
        '/' if next == Some(&'/') => Some(
            text[at..]
                .iter()
                .position(|&c| c == '\n')
                .map_or(text.len(), |len| at + len),
        ),
        '/' if next == Some(&'*') => Some(end_of_comment(text, at)),
        '"' => Some(end_of_string(text, at, raw_hashes(text, at))),
        '\'' if next == Some(&'\\') => {
            let quote = text[at + 3..].iter().position(|&c| c == '\'');
            Some(quote.map_or(text.len(), |len| at + 3 + len + 1))
        }
        '\'' if text.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

fn end_of_comment(text: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at + 1 < text.len() {
        match (text[at], text[at + 1]) {
            ('/', '*') => {
                depth += 1;
                at += 2;
            }
            ('*', '/') => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// The number of `#` if the string that opens at `quote` is a raw one.
fn raw_hashes(text: &[char], quote: usize) -> Option<usize> {
    let hashes = text[..quote]
        .iter()
        .rev()
        .take_while(|&&c| c == '#')
        .count();
    let prefix: String = text[..quote - hashes]
        .iter()
        .rev()
        .take_while(|&&c| is_word(c))
        .collect();
    matches!(&*prefix, "r" | "rb" | "rc").then_some(hashes)
}

fn end_of_string(text: &[char], quote: usize, raw: Option<usize>) -> usize {
    let mut at = quote + 1;
    while at < text.len() {
        match (text[at], raw) {
            ('\\', None) => at += 1,
            ('"', None) => return at + 1,
            ('"', Some(hashes)) => {
                let behind = text.get(at + 1..at + 1 + hashes);
                if behind.is_some_and(|behind| behind.iter().all(|&c| c == '#')) {
                    return at + 1 + hashes;
                }
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}
