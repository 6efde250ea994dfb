//! `cargo xtask bench`: how fast Feroce is, as ratios to what this machine can do.
//!
//! Absolute figures of a machine that does other work too mean little, so every figure is a ratio
//! of two measurements made one right after the other, and what counts is the median over several
//! rounds. The measurements are in `measure`, the ratios and their targets in `figures`. Not here:
//! whether what is moved is right (the judges).

mod curves;
mod figures;
mod guest;
mod measure;
mod plot;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use lexopt::Parser;
use lexopt::prelude::{Long, Short, ValueExt};

use crate::guest::image::{Image, missing_tools};
use crate::judge::{find_program, in_namespace, is_root};
use crate::{cargo, dist};
use figures::Figure;
use measure::{Bench, Measure};
use report::Report;

const USAGE: &str = "\
cargo xtask bench [OPTIONS]

  --rounds N         how often everything is measured (default 5; with --quick 2)
  --quick            short measurements
  --only TEXT        figures whose name contains TEXT; may be given again, any may match
  --guest            against soft-RoCE in a virtual machine instead
  --list             name the figures and stop
  --dist FOLDER      measure that build instead of building this tree
  --against FOLDER   measure another build of Feroce as well, alternately, and compare
  --out FOLDER       measure curves too; write JSON, table and plots there
  --nice N           priority while measuring, as root (default -20)
";

/// What the arguments ask for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    rounds: Option<usize>,
    quick: bool,
    only: Vec<String>,
    list: bool,
    guest: bool,
    dist: Option<PathBuf>,
    against: Option<PathBuf>,
    out: Option<PathBuf>,
    nice: Option<i32>,
}

/// Rounds of a full run: the least that gives a median some meaning.
const ROUNDS: usize = 5;

/// Rounds of a quick run.
const ROUNDS_QUICK: usize = 2;

/// Priority while measuring, where we may set it: other work then disturbs less.
const NICE: i32 = -20;

/// Measures and reports.
pub(crate) fn run(arguments: Parser) -> Result<()> {
    let given: Vec<String> = arguments
        .clone()
        .raw_args()?
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let Some(mut options) = parse(arguments)? else {
        print!("{USAGE}");
        return Ok(());
    };
    let all = if options.guest {
        guest::figures()
    } else {
        figures::all()
    };
    let wanted: Vec<_> = all
        .into_iter()
        .filter(|figure| options.wants(&figure.name))
        .collect();
    ensure!(!wanted.is_empty(), "--only: no figure has such a name");
    if options.list {
        for figure in &wanted {
            println!("{}", figure.name);
        }
        return Ok(());
    }
    let inside = std::env::var_os(BUILT).is_some();
    if options.dist.is_none() {
        let folder = cargo::target_folder()?.join("feroce");
        if !inside {
            dist::build("release", &folder)?;
        }
        options.dist = Some(folder);
    }
    if !inside {
        cargo::build(&["feroce-bench"], "release")?;
        if options.guest && missing_tools().is_empty() {
            // Inside there is no network to fetch its kernel from.
            Image::build()?;
        }
    }
    let mut again = vec!["bench".to_owned()];
    again.extend(given);
    // A session of its own is a scheduling group of its own, which can be given a priority.
    let session: &[&str] = match find_program("setsid") {
        Some(_) => &["setsid", "--wait"],
        None => &[],
    };
    if let Some(status) = in_namespace(&again, &[(BUILT, "1")], session)? {
        ensure!(status.success(), "the bench did not end well");
        return Ok(());
    }
    if options.guest {
        measure_guest(&options, wanted)
    } else {
        measure_all(&options, wanted)
    }
}

/// Set for the run inside the namespace: everything has been built.
const BUILT: &str = "FEROCE_BENCH_BUILT";

fn parse(mut arguments: Parser) -> Result<Option<Options>> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("rounds") => options.rounds = Some(arguments.value()?.parse()?),
            Long("quick") => options.quick = true,
            Long("only") => options.only.push(arguments.value()?.string()?),
            Long("guest") => options.guest = true,
            Long("list") => options.list = true,
            Long("dist") => options.dist = Some(absolute(arguments.value()?.into())?),
            Long("against") => options.against = Some(absolute(arguments.value()?.into())?),
            Long("out") => options.out = Some(absolute(arguments.value()?.into())?),
            Long("nice") => options.nice = Some(arguments.value()?.parse()?),
            Short('h') | Long("help") => return Ok(None),
            other => bail!("{}\n\n{USAGE}", other.unexpected()),
        }
    }
    ensure!(options.rounds != Some(0), "--rounds: at least one");
    Ok(Some(options))
}

fn absolute(path: PathBuf) -> Result<PathBuf> {
    Ok(std::path::absolute(path)?)
}

impl Options {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }

    /// Curves take their time, and are for files.
    fn wants_curves(&self) -> bool {
        self.out.is_some() && self.only.is_empty()
    }

    fn rounds(&self) -> usize {
        let default = if self.quick { ROUNDS_QUICK } else { ROUNDS };
        self.rounds.unwrap_or(default)
    }
}

/// Measures on this machine, and the other build alternately.
fn measure_all(options: &Options, figures: Vec<Figure>) -> Result<()> {
    set_priority(options.nice.unwrap_or(NICE));
    let bench = Bench::new(options)?;
    let other = match &options.against {
        Some(folder) => Some(bench.with_dist(folder)?),
        None => None,
    };
    let take = |measure: &Measure| bench.take(measure);
    let take_other = |measure: &Measure| {
        let other = other.as_ref().filter(|_| measure.is_ours())?;
        Some(other.take(measure))
    };
    let mut report = rounds(options, figures, &take, &take_other);
    if options.wants_curves() {
        eprintln!("curves");
        match curves::Curves::measure(&bench) {
            Ok(curves) => report.curves = Some(curves),
            // The figures have been measured: they are not lost for a plot.
            Err(error) => eprintln!("  no curves: {error:#}"),
        }
    }
    conclude(options, report, "bench")
}

/// Measures in the guest.
fn measure_guest(options: &Options, figures: Vec<Figure>) -> Result<()> {
    ensure!(
        options.against.is_none(),
        "--against: not with --guest, where the other one is soft-RoCE"
    );
    set_priority(options.nice.unwrap_or(NICE));
    let guest = match guest::Guest::boot(options) {
        Ok(guest) => guest,
        Err(error) => {
            println!("SKIPPED bench --guest: {error:#}");
            return Ok(());
        }
    };
    let take = |measure: &Measure| match measure {
        Measure::Inside(inside) => guest.take(*inside),
        _ => bail!("that is not measured in the guest"),
    };
    let report = rounds(options, figures, &take, &|_| None);
    conclude(options, report, "guest")
}

/// Measures everything that figures need, round by round.
fn rounds(
    options: &Options,
    figures: Vec<Figure>,
    take: &dyn Fn(&Measure) -> Result<f64>,
    take_other: &dyn Fn(&Measure) -> Option<Result<f64>>,
) -> Report {
    let mut needed: Vec<Measure> = Vec::new();
    for measure in figures.iter().flat_map(Figure::measures) {
        if !needed.contains(measure) {
            needed.push(*measure);
        }
    }
    // What is compared lies next to each other, whatever figure asked first.
    needed.sort();
    let started = Instant::now();
    let mut report = Report::new(options, figures);
    for round in 0..options.rounds() {
        eprintln!("round {} of {}", round + 1, options.rounds());
        let mut values = BTreeMap::new();
        let mut others = BTreeMap::new();
        for measure in &needed {
            note(&mut values, measure, take(measure));
            if let Some(other) = take_other(measure) {
                note(&mut others, measure, other);
            }
        }
        report.add_round(values, others);
    }
    report.seconds = started.elapsed().as_secs();
    report
}

fn conclude(options: &Options, mut report: Report, stem: &str) -> Result<()> {
    report.finish();
    println!("{report}");
    if let Some(folder) = &options.out {
        report.write(folder, stem)?;
    }
    ensure!(
        !report.has_failures(),
        "a measurement failed; its error is above"
    );
    Ok(())
}

/// Whether there is no such file.
fn absent(file: &Path) -> bool {
    !file.is_file()
}

/// What a measurement gave, or why it gave nothing.
type Values = BTreeMap<Measure, Result<f64, String>>;

fn note(values: &mut Values, measure: &Measure, taken: Result<f64>) {
    match &taken {
        Ok(value) => eprintln!("  {measure}: {}", measure.unit().format(*value)),
        Err(error) => eprintln!("  {measure}: FAILED: {error:#}"),
    }
    values.insert(*measure, taken.map_err(|error| format!("{error:#}")));
}

/// Has this process, and what it starts, go before other work; as root only.
fn set_priority(nice: i32) {
    if !is_root() || find_program("renice").is_none() {
        return;
    }
    let nice = nice.to_string();
    let _ = Command::new("renice")
        .args(["-n", &nice, "-p", &std::process::id().to_string()])
        .stdout(Stdio::null())
        .status();
    // Where the kernel groups processes by session, this is what counts (man 7 sched, autogroup).
    let _ = std::fs::write("/proc/self/autogroup", nice);
}
