//! Counters as lines of JSON, for whoever wants to know what a process did.
//!
//! `FEROCE_STATS` names a file; each device of each process appends one line to it when it is
//! closed. Nothing here counts: it is handed names and numbers.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// The environment variable that asks for statistics.
pub const VARIABLE: &str = "FEROCE_STATS";

/// Appends the counters of `device` to the file `FEROCE_STATS` names; without it, nothing. A
/// failure is told on stderr, since someone asked for the file.
pub fn append(device: &str, counters: &[(impl AsRef<str>, u64)]) {
    let Some(path) = path() else {
        return;
    };
    let path = Path::new(&path);
    if let Err(error) = append_to(path, &line(device, counters)) {
        crate::complain(&format!(
            "{VARIABLE}: {} cannot be written: {error}",
            path.display()
        ));
    }
}

/// Whether statistics are asked for.
#[must_use]
pub fn is_wanted() -> bool {
    path().is_some()
}

fn path() -> Option<OsString> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty())
}

/// One JSON object on one line: who counted, then every counter under its name.
#[must_use]
pub fn line(device: &str, counters: &[(impl AsRef<str>, u64)]) -> String {
    let mut line = String::from("{\"program\":");
    put_string(&mut line, &crate::program_name());
    let _ = write!(line, ",\"pid\":{},\"device\":", std::process::id());
    put_string(&mut line, device);
    for (name, count) in counters {
        line.push(',');
        put_string(&mut line, name.as_ref());
        let _ = write!(line, ":{count}");
    }
    line.push_str("}\n");
    line
}

/// Appends in one write, so that lines of processes that end together stay whole.
fn append_to(path: &Path, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

fn put_string(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' => line.push_str("\\\""),
            '\\' => line.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(line, "\\u{:04x}", u32::from(control));
            }
            other => line.push(other),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let line = line("roce_\"\\\n", &[("sent_packets", 7), ("big", u64::MAX)]);
        let (head, tail) = line.split_once(",\"pid\":").unwrap();
        assert!(head.starts_with("{\"program\":\"feroce_obs-"), "{head}");
        let expected = format!(
            "{},\"device\":\"roce_\\\"\\\\\\u000a\",\"sent_packets\":7,\"big\":{}}}\n",
            std::process::id(),
            u64::MAX
        );
        assert_eq!(tail, expected);
    }

    #[test]
    fn lines_written_at_once_stay_whole() {
        let path = crate::test_file("statistics");
        let lines: Vec<String> = (0..8)
            .map(|n| line("d", &[(n.to_string().repeat(500), n)]))
            .collect();
        std::thread::scope(|scope| {
            for line in &lines {
                let path = &path;
                scope.spawn(move || (0..50).for_each(|_| append_to(path, line).unwrap()));
            }
        });
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.lines().count(), 400);
        for whole in text.split_inclusive('\n') {
            assert!(lines.iter().any(|line| line == whole), "torn: {whole}");
        }
    }
}
