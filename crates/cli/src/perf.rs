//! `feroce perf`: how fast, and whether right, messages move between two processes on this
//! machine.
//!
//! This process measures; it starts a second one of the same program that serves (`serve`) and
//! is told what to do over its standard input (`protocol`). Both use the Rust API only. All data
//! is checked (`pattern`), in the run itself and afterwards by the end it went to.
//!
//! Not a replacement for perftest: reliable connections only, and no foreign peer.

mod client;
mod endpoint;
mod idle;
mod lane;
mod partner;
mod pattern;
mod protocol;
mod report;
pub(crate) mod serve;

use anyhow::{Context as _, Result, bail, ensure};
use client::Limit;
use endpoint::{CLIENT, Endpoint, mtu_from_bytes};
use feroce_verbs::{Context, candidates};
use partner::Partner;
use pattern::{MESSAGE_BYTES_MAX, problem_of};
use protocol::{Case, Mode, Reply, Request, Test};
use report::{BandwidthFigures, LatencyFigures, Report, Row};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// Queue pairs of a bandwidth measurement at most.
const QPS_MAX: u32 = 1024;

/// Seconds of one measurement at most.
const SECONDS_MAX: f64 = 3600.0;

/// Bytes of a message in the atomic tests.
const ATOMIC_BYTES: u32 = 8;

/// Measure bandwidth and latency between two processes on this machine, and verify all data
#[derive(clap::Args, Clone, Debug)]
#[command(
    after_help = "Bandwidth: as many messages under way as fit 1 MiB (2 to 128 on each \
    queue pair). Latency: one message at a time on one queue pair; for write and send half the \
    time until the other end's answer is there, for read and atomic the time until the result \
    is there. Exit status: 1 if data was wrong or a run failed."
)]
pub(crate) struct Arguments {
    /// Device to use [default: the first that `feroce devices` lists]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// GID of the device that both ends use
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    gid_index: u8,
    /// What to measure
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "all"
    )]
    test: Vec<Choice>,
    /// Bytes of a message, with k or M for 2^10 or 2^20; atomics always have 8
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_size,
          default_value = "8,4096,65536,1048576")]
    size: Vec<u32>,
    /// Time for each measurement
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "0.5",
          conflicts_with = "iterations")]
    seconds: Duration,
    /// Messages of each measurement, on each queue pair, instead of a time
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Measure latency only
    #[arg(long)]
    latency: bool,
    /// Measure bandwidth only
    #[arg(long)]
    bandwidth: bool,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the largest of the port]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    mtu: Option<u32>,
    /// Queue pairs of a bandwidth measurement
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)))]
    qps: u32,
    /// What the bytes of messages follow from
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// An operation, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
    /// SEND into posted receives
    Send,
    /// fetch-and-add, and a compare-and-swap at the end
    Atomic,
    /// All of them
    All,
}

impl Choice {
    const fn includes(self, test: Test) -> bool {
        match self {
            Self::Write => matches!(test, Test::Write),
            Self::Read => matches!(test, Test::Read),
            Self::Send => matches!(test, Test::Send),
            Self::Atomic => matches!(test, Test::Atomic),
            Self::All => true,
        }
    }
}

fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: u32 = digits.parse().map_err(|error| format!("{error}"))?;
    match number.checked_mul(unit) {
        Some(size @ 1..=MESSAGE_BYTES_MAX) => Ok(size),
        _ => Err(format!("a message has 1 to {MESSAGE_BYTES_MAX} bytes")),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(format!(
        "a measurement takes more than 0 and at most {SECONDS_MAX} seconds"
    ))
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes) if mtu_from_bytes(bytes).is_some() => Ok(bytes),
        _ => Err("a path MTU is 256, 512, 1024, 2048 or 4096".into()),
    }
}

/// Runs the measurements; fails if one of them does or if data was wrong.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    feroce_obs::init_logging();
    match measure(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("feroce perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all data was right.
fn measure(arguments: &Arguments) -> Result<bool> {
    let mut bench = Bench::start(arguments)?;
    let mut report = Report {
        device: bench.context.device_name().to_owned(),
        address: bench.address.clone(),
        mtu: bench.mtu,
        qps: bench.qps,
        seed: arguments.seed,
        verified: true,
        results: Vec::new(),
    };
    if !arguments.json {
        say(&format!("{}\n\n{}", title(&report), report::table_head()))?;
    }
    for (test, size) in rows(arguments) {
        let row = bench
            .row(test, size)
            .with_context(|| format!("{test}, {size} bytes"))?;
        report.verified &= row.verified;
        if !arguments.json {
            say(&report::table_line(&row))?;
        }
        report.results.push(row);
    }
    if arguments.json {
        say(&serde_json::to_string_pretty(&report)?)?;
    }
    for row in &report.results {
        for problem in &row.problems {
            eprintln!("feroce perf: {}, {} bytes: {problem}", row.test, row.size);
        }
    }
    Ok(report.verified)
}

/// Prints a line; a reader that has gone away is an error like any other.
fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{line}").context("writing the results")
}

fn title(report: &Report) -> String {
    let Report {
        device,
        address,
        mtu,
        qps,
        ..
    } = report;
    let pairs = if *qps == 1 {
        "queue pair"
    } else {
        "queue pairs"
    };
    format!("Two processes on {device} ({address}), path MTU {mtu}, {qps} {pairs}")
}

/// Operations and sizes, in the order they are measured.
fn rows(arguments: &Arguments) -> Vec<(Test, u32)> {
    let mut rows = Vec::new();
    for test in Test::ALL {
        if !arguments.test.iter().any(|choice| choice.includes(test)) {
            continue;
        }
        match test {
            Test::Atomic => rows.push((test, ATOMIC_BYTES)),
            _ => rows.extend(arguments.size.iter().map(|&size| (test, size))),
        }
    }
    rows
}

/// The device's name: as asked for, or the first usable one; loopback comes last among those.
fn device_name(arguments: &Arguments) -> Result<String> {
    if let Some(name) = &arguments.device {
        return Ok(name.clone());
    }
    let candidates = candidates().context("listing the interfaces")?;
    match candidates
        .into_iter()
        .find(|candidate| candidate.left_out.is_none())
    {
        Some(candidate) => Ok(candidate.name),
        None => bail!("no interface can be used; `feroce devices` says why"),
    }
}

/// Both ends, ready to measure.
struct Bench {
    context: Context,
    partner: Partner,
    address: String,
    gid_index: u8,
    mtu: u32,
    qps: usize,
    seed: u64,
    limit: Limit,
    modes: Vec<Mode>,
}

impl Bench {
    fn start(arguments: &Arguments) -> Result<Self> {
        let name = device_name(arguments)?;
        let context = Context::open(&name)?;
        let gid_index = arguments.gid_index;
        let address = context
            .gid(usize::from(gid_index))
            .with_context(|| format!("device {name} has no GID {gid_index}"))?
            .to_string();
        let port_mtu = context.port().mtu.bytes();
        let mtu = arguments.mtu.unwrap_or(port_mtu);
        ensure!(
            mtu <= port_mtu,
            "--mtu {mtu} is above the {port_mtu} that {name} can carry"
        );
        let partner = Partner::start(&name, gid_index)?;
        let limit = match arguments.iterations {
            Some(count) => Limit::Iterations(count),
            None => Limit::Time(arguments.seconds),
        };
        let mut modes = vec![Mode::Bandwidth, Mode::Latency];
        if arguments.latency != arguments.bandwidth {
            modes.retain(|&mode| (mode == Mode::Latency) == arguments.latency);
        }
        Ok(Self {
            context,
            partner,
            address,
            gid_index,
            mtu,
            qps: usize::try_from(arguments.qps)?,
            seed: arguments.seed,
            limit,
            modes,
        })
    }

    /// Measures one operation with one size.
    fn row(&mut self, test: Test, size: u32) -> Result<Row> {
        let mut row = Row {
            test,
            size,
            bandwidth: None,
            latency: None,
            verified: true,
            problems: Vec::new(),
            retransmissions: 0,
        };
        for mode in self.modes.clone() {
            let qps = if mode == Mode::Latency { 1 } else { self.qps };
            let case = Case {
                test,
                mode,
                size,
                qps,
                mtu: self.mtu,
                seed: self.seed,
            };
            self.run_case(case, &mut row)?;
        }
        row.verified = row.problems.is_empty();
        Ok(row)
    }

    fn run_case(&mut self, case: Case, row: &mut Row) -> Result<()> {
        let sent_before = serve::retransmissions(&self.context);
        let side = match self.partner.ask(&Request::Prepare(case))? {
            Reply::Prepared(side) => side,
            other => bail!("the other end replied {other:?}"),
        };
        let mut endpoint = Endpoint::new(&self.context, self.gid_index, CLIENT, case)?;
        endpoint.connect(&side)?;
        match self.partner.ask(&Request::Connect(endpoint.side()?))? {
            Reply::Connected => {}
            other => bail!("the other end replied {other:?}"),
        }
        let measured = measure_case(&mut endpoint, self.limit, row);
        if let Err(error) = measured {
            return Err(match self.partner.failure() {
                Some(failure) => error.context(failure),
                None => error,
            });
        }
        // The compare-and-swap that ends a run of atomics is no message of the run.
        let messages = endpoint.completed();
        if case.test == Test::Atomic {
            let total = messages.iter().sum();
            let settled = problem_of(client::settle_counter(&mut endpoint, total))?;
            row.problems.extend(settled);
        }
        match self.partner.ask(&Request::Finish { messages })? {
            Reply::Finished {
                problem,
                retransmissions,
            } => {
                row.problems.extend(problem);
                row.retransmissions += retransmissions;
            }
            other => bail!("the other end replied {other:?}"),
        }
        row.retransmissions += serve::retransmissions(&self.context) - sent_before;
        Ok(())
    }
}

fn measure_case(endpoint: &mut Endpoint, limit: Limit, row: &mut Row) -> Result<()> {
    match endpoint.case.mode {
        Mode::Bandwidth => {
            let measured = client::bandwidth(endpoint, limit)?;
            row.bandwidth = Some(BandwidthFigures::new(row.size, &measured));
            row.problems.extend(measured.problem);
        }
        Mode::Latency => {
            let measured = client::latency(endpoint, limit)?;
            row.latency = LatencyFigures::new(row.test, &measured);
            row.problems.extend(measured.problem);
        }
    }
    Ok(())
}

#[cfg(test)]
mod pair_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        Line::try_parse_from(std::iter::once("perf").chain(line.split_whitespace()))
            .map(|line| line.arguments)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_measure_everything_in_four_sizes() {
        let arguments = parse("").unwrap();
        assert_eq!(arguments.seconds, Duration::from_millis(500));
        let rows = rows(&arguments);
        assert_eq!(rows.len(), 3 * 4 + 1);
        assert_eq!(rows[0], (Test::Write, 8));
        assert_eq!(rows[7], (Test::Read, 1 << 20));
        assert_eq!(rows[12], (Test::Atomic, 8));
    }

    #[test]
    fn lists_and_units_are_understood() {
        let arguments = parse("--test send,atomic --size 1,64k,1M --iterations 5").unwrap();
        assert_eq!(arguments.iterations, Some(5));
        let expected = [
            (Test::Send, 1),
            (Test::Send, 65_536),
            (Test::Send, 1_048_576),
            (Test::Atomic, 8),
        ];
        assert_eq!(rows(&arguments), expected);
    }

    #[test]
    fn bad_values_are_refused_with_what_would_be_right() {
        for (line, hint) in [
            ("--size 0", "1 to 1048576 bytes"),
            ("--size 2M", "1 to 1048576 bytes"),
            ("--size 5000M", "1 to 1048576 bytes"),
            ("--size x", "invalid digit"),
            ("--seconds 0", "more than 0"),
            ("--seconds nan", "more than 0"),
            ("--mtu 1500", "256, 512, 1024, 2048 or 4096"),
            ("--qps 0", "1..=1024"),
            ("--iterations 0", "1.."),
            ("--iterations 5 --seconds 1", "cannot be used with"),
            ("--test fly", "write, read, send, atomic, all"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(hint), "{line}: {error}");
        }
    }
}
