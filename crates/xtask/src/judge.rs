//! `cargo xtask judge`: outside judges, programs that nobody here wrote, run on our device.
//!
//! A check ends as passed, failed or skipped. A skipped one says why and never counts as passed.
//! Not here: the foreign peer on the wire (`guest`).

pub(crate) mod captures;
pub(crate) mod cm;
pub(crate) mod consumers;
pub(crate) mod pair;
pub(crate) mod processes;
pub(crate) mod programs;
pub(crate) mod pyverbs;
pub(crate) mod rsockets;
mod statistics;

use crate::cargo;
use anyhow::{Result, bail};
use lexopt::Parser;
use lexopt::prelude::{Long, Value, ValueExt};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Runs the judges that the arguments name, all without a name.
pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let mut which = None;
    let mut filter = String::new();
    let mut device = "roce_lo".to_owned();
    let mut quick = false;
    let mut given = vec!["judge".to_owned()];
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("filter") => {
                filter = arguments.value()?.string()?;
                given.extend(["--filter".to_owned(), filter.clone()]);
            }
            Long("device") => {
                device = arguments.value()?.string()?;
                given.extend(["--device".to_owned(), device.clone()]);
            }
            Long("quick") => {
                quick = true;
                given.push("--quick".to_owned());
            }
            Value(name) if which.is_none() => {
                let name = name.string()?;
                given.push(name.clone());
                which = Some(name);
            }
            _ => bail!(argument.unexpected()),
        }
    }
    if let Some(status) = in_namespace(&given, &[], &[])? {
        if !status.success() {
            bail!("a judge is not content");
        }
        return Ok(());
    }
    let tally = judge(which.as_deref(), &device, &filter, quick)?;
    println!("{tally}");
    if !tally.is_good() {
        bail!("a judge is not content");
    }
    Ok(())
}

/// Runs this command again in a network namespace of its own, where nobody else holds the port. As
/// root only; `None`: stay here. `environment` is for that run, and so is
/// `prefix`, a command that runs another one.
pub(crate) fn in_namespace(
    arguments: &[String],
    environment: &[(&str, &str)],
    prefix: &[&str],
) -> Result<Option<ExitStatus>> {
    let tools = ["unshare", "ip"]
        .into_iter()
        .all(|tool| find_program(tool).is_some());
    if !is_root() || !tools || is_inside() {
        return Ok(None);
    }
    let status = Command::new("unshare")
        .arg("--net")
        .args(prefix)
        .args(["sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe()?)
        .args(arguments)
        .env(INSIDE, "1")
        .envs(environment.iter().copied())
        .status()?;
    Ok(Some(status))
}

/// Tells a run that it is the one in a network namespace of its own.
const INSIDE: &str = "FEROCE_JUDGE_INSIDE";

/// Whether this run has a network namespace of its own.
pub(crate) fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs one judge, or all of them.
pub(crate) fn judge(which: Option<&str>, device: &str, filter: &str, quick: bool) -> Result<Tally> {
    let dist = cargo::target_folder()?.join("feroce");
    let stage = programs::Stage::loopback(&dist, device)?;
    let mut tally = Tally::default();
    if which.is_none_or(|name| name == "programs") {
        tally.add(programs::run(&stage, filter, quick));
    }
    if which.is_none_or(|name| name == "captures") {
        tally.add(captures::run(&stage, filter));
    }
    if which.is_none_or(|name| name == "pyverbs") {
        tally.add(pyverbs::run(&stage, filter));
    }
    if which.is_none_or(|name| name == "cm") {
        tally.add(cm::run_all(&stage, filter, quick || which.is_none()));
    }
    if which.is_none_or(|name| name == "consumers") {
        tally.add(consumers::run(&stage, filter, quick));
    }
    if which.is_none_or(|name| name == "rsockets") {
        tally.add(rsockets::run(&stage, filter, quick));
    }
    if which.is_none_or(|name| name == "processes") {
        tally.add(processes::run(&stage));
    }
    Ok(tally)
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As it should.
    Passed,
    /// Not as it should; the text says what was seen.
    Failed(String),
    /// It could not be made here; the text says what is missing.
    Skipped(String),
}

/// The results of a run of checks.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

impl Tally {
    /// Notes and prints one result.
    pub(crate) fn note(&mut self, name: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => {
                self.passed += 1;
                println!("ok       {name}");
            }
            Outcome::Failed(why) => {
                self.failed.push(name.to_owned());
                println!("FAILED   {name}\n{}", indent(why));
            }
            Outcome::Skipped(why) => {
                self.skipped.push(format!("{name}: {why}"));
                println!("SKIPPED  {name}: {why}");
            }
        }
    }

    /// Adds the results of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Whether nothing failed.
    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.failed {
            writeln!(f, "failed: {name}")?;
        }
        for text in &self.skipped {
            writeln!(f, "skipped: {text}")?;
        }
        let Self {
            passed,
            failed,
            skipped,
        } = self;
        write!(
            f,
            "{passed} passed, {} failed, {} skipped",
            failed.len(),
            skipped.len()
        )
    }
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("         | {line}\n"))
        .collect()
}

/// Finds a program on the path.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_file(file))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file())
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|data| {
        use std::os::unix::fs::MetadataExt;
        data.uid() == 0
    })
}

/// The uid and gid that programs run with when we are root: stock programs must need no rights.
pub(crate) const NOBODY: u32 = 65_534;
