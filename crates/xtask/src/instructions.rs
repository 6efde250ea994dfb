//! `cargo xtask instructions`: how many instructions the hot paths take, compared with what they
//! took before.
//!
//! callgrind counts what `feroce-instructions` runs in user space; the kernel's part does not
//! count. The counts hardly depend on what else the machine does, so a change of some percent is a
//! change of the code. Who makes a path faster, or has a good reason to make it slower, writes the
//! new counts down with `--bless`. Not here: time (`bench`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use lexopt::Parser;
use lexopt::prelude::{Long, ValueExt};

use crate::cargo;
use crate::judge::{find_program, in_namespace};

/// How often each path runs.
const TIMES: u32 = 50;

/// Growth that is let pass, in percent: compilers, C libraries and processors differ a little.
const TOLERANCE_PERCENT: f64 = 5.0;

/// The same as a factor.
const TOLERANCE: f64 = 1.0 + TOLERANCE_PERCENT / 100.0;

/// How often a path is counted at most.
const COUNTS: u32 = 3;

/// The function of `feroce-instructions` inside which instructions count.
const COUNTED: &str = "feroce_instructions::measured*";

/// Set for the run inside the namespace: everything has been built.
const BUILT: &str = "FEROCE_INSTRUCTIONS_BUILT";

/// Counts, and compares or blesses.
pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let (mut bless, mut only) = (false, String::new());
    let mut again = vec!["instructions".to_owned()];
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("bless") => {
                bless = true;
                again.push("--bless".to_owned());
            }
            Long("only") => {
                only = arguments.value()?.string()?;
                again.extend(["--only".to_owned(), only.clone()]);
            }
            other => bail!("{}", other.unexpected()),
        }
    }
    ensure!(
        !bless || only.is_empty(),
        "--bless writes all counts, so it goes without --only"
    );
    if find_program("valgrind").is_none() {
        println!("SKIPPED instructions: valgrind is not installed");
        return Ok(());
    }
    if std::env::var_os(BUILT).is_none() {
        cargo::build(&["feroce-instructions"], "release")?;
    }
    if let Some(status) = in_namespace(&again, &[(BUILT, "1")], &[])? {
        ensure!(status.success(), "instructions were not as expected");
        return Ok(());
    }
    let program = cargo::target_folder()?.join("release/feroce-instructions");
    let baseline = if bless {
        Counts::new()
    } else {
        read_baseline()?
    };
    let counts = count_all(&program, &only, &baseline)?;
    if bless {
        return write_baseline(&counts);
    }
    compare(&counts, &baseline, only.is_empty())
}

type Counts = BTreeMap<String, f64>;

fn count_all(program: &Path, only: &str, baseline: &Counts) -> Result<Counts> {
    let names = Command::new(program).output().context("the program")?;
    let mut counts = Counts::new();
    for name in String::from_utf8_lossy(&names.stdout).lines() {
        if name.contains(only) {
            let enough = baseline.get(name).map(|before| before * TOLERANCE);
            counts.insert(name.to_owned(), least(program, name, enough)?);
        }
    }
    ensure!(!counts.is_empty(), "no path has {only:?} in its name");
    Ok(counts)
}

/// Instructions of a path. A busy machine can only add some (looks in vain), so the least of a
/// few counts is right; one that is low enough needs no other.
fn least(program: &Path, name: &str, enough: Option<f64>) -> Result<f64> {
    let mut found = Err(anyhow::anyhow!("{name} was not counted"));
    for _ in 0..COUNTS {
        match (count(program, name), &found) {
            (Ok(count), Ok(before)) if count >= *before => {}
            (Err(_), Ok(_)) => {}
            (other, _) => found = other,
        }
        if let (Ok(count), Some(enough)) = (&found, enough)
            && *count <= enough
        {
            break;
        }
    }
    found
}

/// Instructions of one run of a path.
fn count(program: &Path, name: &str) -> Result<f64> {
    let file = std::env::temp_dir().join(format!("feroce-callgrind-{}", std::process::id()));
    let output = Command::new("timeout")
        .args(["120", "valgrind", "--tool=callgrind"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args([name, &TIMES.to_string()])
        .output()
        .context("valgrind")?;
    let profile = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    ensure!(
        output.status.success(),
        "{name}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let profile = profile.context("callgrind's profile")?;
    let sum: f64 = profile
        .lines()
        .find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
        .context("callgrind's profile has no totals")?;
    ensure!(sum > 0.0, "{name}: callgrind counted nothing in {COUNTED}");
    Ok(sum / f64::from(TIMES))
}

fn compare(counts: &Counts, baseline: &Counts, all: bool) -> Result<()> {
    println!(
        "{:<24} {:>10} {:>10} {:>8}",
        "instructions", "before", "now", "change"
    );
    let mut grown = Vec::new();
    let mut shrunk = false;
    for (name, &now) in counts {
        let before = *baseline
            .get(name)
            .with_context(|| format!("{name} has no count in {BASELINE}: --bless"))?;
        let change = (now / before - 1.0) * 100.0;
        println!("{name:<24} {before:>10.0} {now:>10.0} {change:>+7.1}%");
        if now > before * TOLERANCE {
            grown.push(format!("{name} by {change:.1} %"));
        }
        shrunk |= change < -TOLERANCE_PERCENT;
    }
    if all && let Some(name) = baseline.keys().find(|name| !counts.contains_key(*name)) {
        bail!("{BASELINE} has a count of {name}, which is not a path any more: --bless");
    }
    if !grown.is_empty() {
        bail!(
            "more instructions than before (tolerance {TOLERANCE_PERCENT} %): {}; make it cheaper, \
             or say in the commit why not and run `cargo xtask instructions --bless`",
            grown.join(", ")
        );
    }
    if shrunk {
        println!("cheaper than before: keep it so with `cargo xtask instructions --bless`");
    }
    Ok(())
}

/// Where the counts are written down, below the workspace.
const BASELINE: &str = "crates/instructions/baseline.txt";

fn baseline() -> PathBuf {
    cargo::workspace().join(BASELINE)
}

fn read_baseline() -> Result<Counts> {
    let text = fs::read_to_string(baseline()).context(BASELINE)?;
    parse(&text)
}

fn parse(text: &str) -> Result<Counts> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, count) = line.split_once(' ').context("a line is NAME COUNT")?;
            Ok((name.to_owned(), count.trim().parse()?))
        })
        .collect()
}

fn write_baseline(counts: &Counts) -> Result<()> {
    let mut text = String::from(
        "# Instructions in user space of one run of each hot path (crates/instructions).\n\
         # Written by `cargo xtask instructions --bless`.\n",
    );
    for (name, count) in counts {
        println!("{name:<24} {count:>10.0}");
        text += &format!("{name} {count:.0}\n");
    }
    fs::write(baseline(), text).context(BASELINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Counts {
        parse(text).unwrap()
    }

    #[test]
    fn growth_within_tolerance_passes_and_beyond_it_fails() {
        let before = counts("# comment\npoll-empty 100\npost-send 1000\n");
        let now = |post: &str| counts(&format!("poll-empty 104\npost-send {post}\n"));
        assert!(compare(&now("1050"), &before, true).is_ok());
        let error = compare(&now("1051"), &before, true).unwrap_err();
        assert!(error.to_string().contains("post-send by 5.1 %"), "{error}");
    }

    #[test]
    fn a_path_that_is_gone_or_new_asks_for_a_blessing() {
        let before = counts("poll-empty 100\npost-send 1000\n");
        assert!(compare(&counts("poll-empty 100\n"), &before, true).is_err());
        assert!(compare(&counts("poll-empty 100\n"), &before, false).is_ok());
        assert!(compare(&before, &counts("poll-empty 100\n"), true).is_err());
    }
}
