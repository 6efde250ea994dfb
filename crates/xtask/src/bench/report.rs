//! What a run of the bench found: as a table for people, as JSON for programs.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::curves::Curves;
use super::figures::{Figure, Target};
use super::measure::Measure;
use super::{Options, Values};

/// Everything that was measured.
pub(crate) struct Report {
    figures: Vec<Figure>,
    rounds: Vec<Values>,
    /// The same measurements of the build to compare with.
    others: Vec<Values>,
    machine: Machine,
    quick: bool,
    /// Shapes over all sizes, where they were asked for.
    pub(crate) curves: Option<Curves>,
    /// How long everything took.
    pub(crate) seconds: u64,
}

/// What was measured on, and how busy it was.
#[derive(Debug, Default)]
struct Machine {
    date: String,
    processor: String,
    processors: usize,
    kernel: String,
    commit: String,
    load_before: f64,
    load_after: f64,
}

/// The least, the middle and the greatest of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) minimum: f64,
    pub(crate) median: f64,
    pub(crate) maximum: f64,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            (values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0
        } else {
            *values.get(middle)?
        };
        Some(Self {
            minimum: *values.first()?,
            median,
            maximum: *values.last()?,
        })
    }

    fn to_json(self) -> Value {
        let Self {
            minimum,
            median,
            maximum,
        } = self;
        json!({"min": minimum, "median": median, "max": maximum})
    }
}

impl Report {
    /// An empty one.
    pub(crate) fn new(options: &Options, figures: Vec<Figure>) -> Self {
        Self {
            figures,
            rounds: Vec::new(),
            others: Vec::new(),
            machine: Machine::look(),
            quick: options.quick,
            curves: None,
            seconds: 0,
        }
    }

    /// Notes the measurements of a round.
    pub(crate) fn add_round(&mut self, values: Values, others: Values) {
        self.rounds.push(values);
        if !others.is_empty() {
            self.others.push(others);
        }
    }

    /// Notes what can only be known at the end.
    pub(crate) fn finish(&mut self) {
        self.machine.load_after = load();
    }

    /// Whether a measurement gave nothing.
    pub(crate) fn has_failures(&self) -> bool {
        let rounds = self.rounds.iter().chain(&self.others);
        rounds.flat_map(BTreeMap::values).any(Result::is_err)
    }

    /// Writes JSON and table to files named after `stem`, and the plots.
    pub(crate) fn write(&self, folder: &Path, stem: &str) -> Result<()> {
        fs::create_dir_all(folder)?;
        let mut files = vec![
            (
                format!("{stem}.json"),
                serde_json::to_string_pretty(&self.to_json())? + "\n",
            ),
            (format!("{stem}.txt"), self.to_string()),
        ];
        if let Some(curves) = &self.curves {
            let plots = curves.plots(&self.machine.to_string());
            files.extend(plots.map(|(name, content)| (name.to_owned(), content)));
        }
        for (name, content) in files {
            let file = folder.join(&name);
            fs::write(&file, content).with_context(|| file.display().to_string())?;
            println!("{}", file.display());
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let machine = &self.machine;
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                let spread = values_of(figure, &self.rounds);
                let (least, most) = match figure.target {
                    Target::AtLeast(least) => (Some(least), None),
                    Target::AtMost(most) => (None, Some(most)),
                    Target::None => (None, None),
                };
                json!({
                    "name": figure.name,
                    "at_least": least,
                    "at_most": most,
                    "value": spread.map(Spread::to_json),
                    "reached": spread.and_then(|spread| figure.target.judge(spread.median)),
                })
            })
            .collect();
        json!({
            "date": machine.date,
            "commit": machine.commit,
            "machine": {
                "processor": machine.processor,
                "processors": machine.processors,
                "kernel": machine.kernel,
                "load_before": machine.load_before,
                "load_after": machine.load_after,
            },
            "rounds": self.rounds.len(),
            "quick": self.quick,
            "seconds": self.seconds,
            "figures": figures,
            "measurements": measurements(&self.rounds),
            "curves": self.curves.as_ref().map(Curves::to_json),
        })
    }
}

/// The values of one measurement in all rounds.
fn taken(measure: &Measure, rounds: &[Values]) -> Vec<f64> {
    rounds
        .iter()
        .filter_map(|round| round.get(measure)?.as_ref().ok().copied())
        .collect()
}

/// The values of one figure: each is made of measurements of one round.
fn values_of(figure: &Figure, rounds: &[Values]) -> Option<Spread> {
    let value = |round: &Values, measure: &Measure| round.get(measure)?.as_ref().ok().copied();
    Spread::of(
        rounds
            .iter()
            .filter_map(|round| {
                let over = value(round, &figure.over)?;
                match &figure.under {
                    Some(under) => Some(over / value(round, under)?),
                    None => Some(over),
                }
            })
            .collect(),
    )
}

fn measurements(rounds: &[Values]) -> Vec<Value> {
    let mut all: Vec<&Measure> = rounds.iter().flat_map(BTreeMap::keys).collect();
    all.sort();
    all.dedup();
    all.into_iter()
        .map(|measure| {
            let values = taken(measure, rounds);
            json!({
                "name": measure.to_string(),
                "unit": measure.unit().name(),
                "rounds": values,
                "value": Spread::of(values.clone()).map(Spread::to_json),
            })
        })
        .collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "{} rounds, {} s\n", self.rounds.len(), self.seconds)?;
        self.write_measurements(f)?;
        self.write_figures(f)?;
        if !self.others.is_empty() {
            self.write_comparison(f)?;
        }
        Ok(())
    }
}

impl Report {
    fn write_measurements(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<54} {:>12} {:>12} {:>12}",
            "measurement", "min", "median", "max"
        )?;
        let mut all: Vec<&Measure> = self.rounds.iter().flat_map(BTreeMap::keys).collect();
        all.sort();
        all.dedup();
        for measure in all {
            let name = measure.to_string();
            match Spread::of(taken(measure, &self.rounds)) {
                Some(spread) => {
                    let format = |value| measure.unit().format(value);
                    let (least, most) = (format(spread.minimum), format(spread.maximum));
                    let median = format(spread.median);
                    writeln!(f, "{name:<54} {least:>12} {median:>12} {most:>12}")?;
                }
                None => writeln!(f, "{name:<54} {:>12}", "failed")?,
            }
        }
        writeln!(f)
    }

    fn write_figures(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<54} {:>8} {:>8} {:>8}  {:<8} verdict",
            "figure", "min", "median", "max", "target"
        )?;
        for figure in &self.figures {
            let target = match figure.target {
                Target::AtLeast(least) => format!("≥ {least}"),
                Target::AtMost(most) => format!("≤ {most}"),
                Target::None => String::new(),
            };
            let Some(spread) = values_of(figure, &self.rounds) else {
                writeln!(f, "{:<54} {:>26}  {target:<8} failed", figure.name, "")?;
                continue;
            };
            let verdict = match figure.target.judge(spread.median) {
                Some(true) => "reached",
                Some(false) => "MISSED",
                None => "",
            };
            writeln!(
                f,
                "{:<54} {:>8.2} {:>8.2} {:>8.2}  {target:<8} {verdict}",
                figure.name, spread.minimum, spread.median, spread.maximum
            )?;
        }
        Ok(())
    }

    /// How this build compares with the other one, round by round.
    fn write_comparison(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<54} {:>8} {:>8} {:>8}",
            "this build ÷ the other", "min", "median", "max"
        )?;
        let mut all: Vec<&Measure> = self.others.iter().flat_map(BTreeMap::keys).collect();
        all.sort();
        all.dedup();
        for measure in all {
            let ratios = self
                .rounds
                .iter()
                .zip(&self.others)
                .filter_map(|(ours, other)| {
                    let ours = *ours.get(measure)?.as_ref().ok()?;
                    let other = *other.get(measure)?.as_ref().ok()?;
                    (other != 0.0).then(|| ours / other)
                });
            if let Some(spread) = Spread::of(ratios.collect()) {
                writeln!(
                    f,
                    "{:<54} {:>8.2} {:>8.2} {:>8.2}",
                    measure.to_string(),
                    spread.minimum,
                    spread.median,
                    spread.maximum
                )?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, commit {}: {} × {}, Linux {}, load {:.1} before and {:.1} after",
            self.date,
            self.commit,
            self.processors,
            self.processor,
            self.kernel,
            self.load_before,
            self.load_after,
        )
    }
}

impl Machine {
    fn look() -> Self {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("unknown", |(_, name)| name);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let commit = ["rev-parse", "--short", "HEAD"];
        Self {
            date: said_by(Command::new("date").args(["-u", "+%F %R UTC"])),
            processor: processor.to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: kernel
                .split('-')
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
            commit: said_by(
                Command::new("git")
                    .args(commit)
                    .current_dir(crate::cargo::workspace()),
            ),
            load_before: load(),
            load_after: 0.0,
        }
    }
}

/// What a command prints, or nothing.
fn said_by(command: &mut Command) -> String {
    command
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// The load average of the last minute.
fn load() -> f64 {
    fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(spread(&[]), None);
        let Some(found) = spread(&[4.0, 1.0, 3.0, 2.0]) else {
            panic!("there are values");
        };
        assert_eq!(
            (found.minimum, found.median, found.maximum),
            (1.0, 2.5, 4.0)
        );
    }
}
