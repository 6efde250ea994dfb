//! Single measurements: which programs run, and what number is read from their output.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Options;
use super::guest::Inside;
use crate::cargo;
use crate::judge::pair::{Ended, Running, next_port, wait_for_listener};
use crate::judge::programs::Stage;
use crate::judge::{NOBODY, find_program};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(90);

/// How long a server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// One measurement. Their order is the order within a round: what figures compare lies close
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Measure {
    /// Gather-send and placement over buffers of this many bytes.
    Bandwidth { size: u32, what: Mover },
    /// Aggregate bandwidth of many queue pairs of one process, 64 KiB messages.
    QueuePairs { count: u32 },
    /// Aggregate bandwidth of pairs of processes on one address, 64 KiB messages.
    Pairs { count: u32 },
    /// One way, both ends awake.
    Awake(Pinger),
    /// One way, both ends asleep until something comes.
    Asleep(Pinger),
    /// Small messages, or packets, each second.
    Rate(Sender),
    /// System calls for each MiB of 64 KiB WRITEs, both ends together.
    SystemCalls,
    /// Packets sent again in all measurements of bandwidth and latency of the round so far.
    Retransmissions,
    /// In the virtual machine.
    Inside(Inside),
}

/// What moves the bytes of a bandwidth measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mover {
    /// Sockets, and nothing but what RDMA must do.
    Raw,
    /// `ib_write_bw`.
    Write,
    /// `ib_read_bw`.
    Read,
    /// `ib_send_bw`.
    Send,
    /// `feroce perf`, WRITE.
    FerocePerf,
    /// iperf3.
    Tcp,
}

/// What a latency measurement sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pinger {
    /// A datagram.
    Raw,
    /// RC WRITE, 8 bytes.
    Write,
    /// RC SEND, 8 bytes.
    Send,
}

/// What a measurement of rates sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sender {
    /// Datagrams, one system call each.
    Raw,
    /// RC WRITE, 8 bytes, 32 at a call.
    Write,
    /// RC SEND, 8 bytes, 32 at a call.
    Send,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    BytesPerSecond,
    Count,
    PerMebibyte,
    PerSecond,
    Seconds,
}

impl Unit {
    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BytesPerSecond => "bytes/s",
            Self::Count => "packets",
            Self::PerMebibyte => "calls/MiB",
            Self::PerSecond => "1/s",
            Self::Seconds => "s",
        }
    }

    /// For people.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::Count => format!("{value:.0}"),
            Self::PerMebibyte => format!("{value:.1}/MiB"),
            Self::PerSecond => format!("{:.3} M/s", value / 1e6),
            Self::Seconds => format!("{:.2} µs", value * 1e6),
        }
    }
}

impl Measure {
    /// What its number counts.
    pub(crate) const fn unit(self) -> Unit {
        match self {
            Self::Bandwidth { .. } | Self::QueuePairs { .. } | Self::Pairs { .. } => {
                Unit::BytesPerSecond
            }
            Self::Awake(_) | Self::Asleep(_) => Unit::Seconds,
            Self::Rate(_) => Unit::PerSecond,
            Self::SystemCalls => Unit::PerMebibyte,
            Self::Retransmissions => Unit::Count,
            Self::Inside(inside) => inside.unit(),
        }
    }

    /// Whether Feroce takes part.
    pub(crate) const fn is_ours(self) -> bool {
        !matches!(
            self,
            Self::Bandwidth {
                what: Mover::Raw | Mover::Tcp,
                ..
            } | Self::Awake(Pinger::Raw)
                | Self::Asleep(Pinger::Raw)
                | Self::Rate(Sender::Raw)
        )
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bandwidth { size, what } => {
                let name = match what {
                    Mover::Raw => "raw gather and place",
                    Mover::Write => "ib_write_bw",
                    Mover::Read => "ib_read_bw",
                    Mover::Send => "ib_send_bw",
                    Mover::FerocePerf => "feroce perf write",
                    Mover::Tcp => "iperf3",
                };
                write!(f, "{name} {}", size_name(*size))
            }
            Self::QueuePairs { count } => write!(f, "ib_write_bw 64 KiB, {count} queue pairs"),
            Self::Pairs { count } => write!(f, "ib_write_bw 64 KiB, {count} pairs of processes"),
            Self::Awake(Pinger::Raw) => f.write_str("raw ping-pong, spinning"),
            Self::Awake(Pinger::Write) => f.write_str("ib_write_lat 8 B"),
            Self::Awake(Pinger::Send) => f.write_str("ib_send_lat 8 B"),
            Self::Asleep(Pinger::Raw) => f.write_str("raw ping-pong, sleeping"),
            Self::Asleep(Pinger::Write) => f.write_str("ib_write_lat -e 8 B"),
            Self::Asleep(Pinger::Send) => f.write_str("ib_send_lat -e 8 B"),
            Self::Rate(Sender::Raw) => f.write_str("raw packets, one a call"),
            Self::Rate(Sender::Write) => f.write_str("ib_write_bw -l 32 8 B"),
            Self::Rate(Sender::Send) => f.write_str("ib_send_bw -l 32 8 B"),
            Self::SystemCalls => f.write_str("system calls, ib_write_bw 64 KiB"),
            Self::Retransmissions => f.write_str("retransmissions"),
            Self::Inside(inside) => inside.fmt(f),
        }
    }
}

/// A size as people write it.
pub(crate) fn size_name(bytes: u32) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Where measurements are made.
pub(crate) struct Bench {
    stage: Stage,
    raw: PathBuf,
    quick: bool,
    /// Sum over the statistics of Feroce's processes since it was last asked for.
    retransmissions: RefCell<u64>,
}

impl Bench {
    /// On the loopback device of the build that the options name.
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let dist = options.dist.as_deref().context("no build to measure")?;
        ensure!(
            find_program("ib_write_bw").is_some(),
            "perftest is not installed (`cargo xtask packages`)"
        );
        Ok(Self {
            stage: Stage::loopback(dist, "roce_lo")?,
            raw: cargo::target_folder()?.join("release/feroce-bench"),
            quick: options.quick,
            retransmissions: RefCell::new(0),
        })
    }

    /// The same with another build.
    pub(crate) fn with_dist(&self, dist: &Path) -> Result<Self> {
        Ok(Self {
            stage: Stage::loopback(dist, "roce_lo")?,
            raw: self.raw.clone(),
            quick: self.quick,
            retransmissions: RefCell::new(0),
        })
    }

    /// Makes one measurement.
    pub(crate) fn take(&self, measure: &Measure) -> Result<f64> {
        match *measure {
            Measure::Bandwidth { size, what } => self.bandwidth(size, what),
            Measure::QueuePairs { count } => self.queue_pairs(count),
            Measure::Pairs { count } => self.pairs(count),
            Measure::Awake(Pinger::Raw) => self.raw(&["ping-pong", "--spin"], "seconds"),
            Measure::Asleep(Pinger::Raw) => self.raw(&["ping-pong"], "seconds"),
            Measure::Awake(pinger) => self.latency(pinger, ""),
            Measure::Asleep(pinger) => self.latency(pinger, "-e"),
            Measure::Rate(Sender::Raw) => self.raw(&["rate"], "packets_per_second"),
            Measure::Rate(sender) => self.rate(sender),
            Measure::SystemCalls => self.system_calls(),
            Measure::Retransmissions => Ok(self.retransmissions.take() as f64),
            Measure::Inside(_) => bail!("that is measured in the guest"),
        }
    }

    /// How long raw and TCP measurements take.
    fn seconds(&self) -> &'static str {
        if self.quick { "0.3" } else { "1" }
    }

    fn raw(&self, arguments: &[&str], field: &str) -> Result<f64> {
        let mut command = Command::new(&self.raw);
        command.args(arguments).args(["--seconds", self.seconds()]);
        let ended = self.run(command, "raw")?;
        number(&ended.output, &[field])
    }

    pub(crate) fn bandwidth(&self, size: u32, what: Mover) -> Result<f64> {
        let program = match what {
            Mover::Raw => {
                let span = size.to_string();
                return self.raw(&["bandwidth", "--span", &span], "bytes_per_second");
            }
            Mover::Tcp => return self.tcp(size),
            Mover::FerocePerf => return self.feroce_perf(size),
            Mover::Write => "ib_write_bw",
            Mover::Read => "ib_read_bw",
            Mover::Send => "ib_send_bw",
        };
        let bytes: u64 = if self.quick { 1 << 28 } else { 3 << 30 };
        let count = (bytes / u64::from(size)).max(20);
        let rows = self.perftest(&format!("{program} -s {size} -n {count}"))?;
        average_bandwidth(&rows)
    }

    /// One way of a datagram of that size, both ends spinning; in seconds.
    pub(crate) fn raw_ping_pong(&self, size: u32) -> Result<f64> {
        let size = size.to_string();
        self.raw(&["ping-pong", "--spin", "--size", &size], "seconds")
    }

    /// A column of a program's figures for all sizes that it knows, times `scale`.
    pub(crate) fn all_sizes(
        &self,
        program: &str,
        column: usize,
        scale: f64,
    ) -> Result<Vec<(f64, f64)>> {
        let count = if self.quick { 20 } else { 400 };
        let rows = self.perftest(&format!("{program} -a -n {count}"))?;
        let point = |row: &Vec<f64>| Some((*row.first()?, row.get(column)? * scale));
        Ok(rows.iter().filter_map(point).collect())
    }

    fn queue_pairs(&self, count: u32) -> Result<f64> {
        // The same bytes however many queue pairs share them.
        let bytes: u64 = if self.quick { 1 << 28 } else { 2 << 30 };
        let each = (bytes / 65_536 / u64::from(count)).max(5);
        let depth = if count > 1 { "-t 16" } else { "" };
        let rows = self.perftest(&format!(
            "ib_write_bw -s 65536 -n {each} -q {count} {depth}"
        ))?;
        average_bandwidth(&rows)
    }

    fn latency(&self, pinger: Pinger, events: &str) -> Result<f64> {
        let program = match pinger {
            Pinger::Write => "ib_write_lat",
            _ => "ib_send_lat",
        };
        let count = if self.quick { 2000 } else { 20_000 };
        let rows = self.perftest(&format!("{program} -s 8 -n {count} {events}"))?;
        const TYPICAL: usize = 4;
        Ok(column(&rows, TYPICAL)? / 1e6)
    }

    fn rate(&self, sender: Sender) -> Result<f64> {
        let program = match sender {
            Sender::Send => "ib_send_bw",
            _ => "ib_write_bw",
        };
        let count = if self.quick { 64_000 } else { 640_000 };
        let rows = self.perftest(&format!("{program} -s 8 -n {count} -l 32"))?;
        const MESSAGES: usize = 4;
        Ok(column(&rows, MESSAGES)? * 1e6)
    }

    fn feroce_perf(&self, size: u32) -> Result<f64> {
        let mut command = Command::new(&self.stage.feroce);
        command.args(["perf", "--json", "--bandwidth", "--test", "write"]);
        command.args(["--device", &self.stage.device]);
        command.args(["--size", &size.to_string(), "--seconds", self.seconds()]);
        let ended = self.run(command, "perf")?;
        let value = number(
            &ended.output,
            &["results", "0", "bandwidth", "megabytes_per_second"],
        )?;
        Ok(value * 1e6)
    }

    fn tcp(&self, size: u32) -> Result<f64> {
        ensure!(find_program("iperf3").is_some(), "iperf3 is not installed");
        let port = next_port();
        let mut command = Command::new("iperf3");
        command.args(["-s", "-1", "-p", &port.to_string()]);
        let mut server = Running::start(command, &self.stage.scratch, "iperf3-server")?;
        ensure!(
            wait_for_listener(port, &mut server, LISTEN_LIMIT),
            "iperf3 does not listen"
        );
        let mut command = Command::new("iperf3");
        command.args(["-c", "127.0.0.1", "-p", &port.to_string(), "-J"]);
        command.args(["-t", "1", "-l", &size.to_string()]);
        let client = self.run(command, "iperf3-client");
        let _ = server.finish(Instant::now() + Duration::from_secs(5));
        let path = ["end", "sum_received", "bits_per_second"];
        Ok(number(&client?.output, &path)? / 8.0)
    }

    /// Runs one program to its good end.
    fn run(&self, command: Command, label: &str) -> Result<Ended> {
        let running = Running::start(command, &self.stage.scratch, label)?;
        let ended = running.finish(Instant::now() + LIMIT);
        ensure!(ended.is_good(), "{}", ended.describe());
        Ok(ended)
    }

    /// Runs both ends of a perftest program; returns the client's rows of figures.
    fn perftest(&self, line: &str) -> Result<Vec<Vec<f64>>> {
        let statistics = self.statistics();
        let mut pair = self.start_pair(line, &statistics, 0)?;
        let client = pair.client()?.finish(Instant::now() + LIMIT);
        let server = pair.server.finish(Instant::now() + Duration::from_secs(10));
        for ended in [&client, &server] {
            ensure!(ended.is_good(), "{line}: {}", ended.describe());
        }
        self.count_retransmissions(&statistics)?;
        Ok(rows(&client.output))
    }

    fn statistics(&self) -> PathBuf {
        let file = self.stage.scratch.join("statistics");
        let _ = std::fs::remove_file(&file);
        file
    }

    /// Starts both ends of a perftest program, as an unprivileged user.
    fn start_pair(&self, line: &str, statistics: &Path, number: u32) -> Result<Pair> {
        self.start_pair_by(line, statistics, &|command, label| {
            let label = format!("{label}-{number}");
            Ok(Running::start(command, &self.stage.scratch, &label)?)
        })
    }

    /// Starts both ends of a perftest program in the way of `start`.
    fn start_pair_by(
        &self,
        line: &str,
        statistics: &Path,
        start: &dyn Fn(Command, &str) -> Result<Running>,
    ) -> Result<Pair> {
        let port = next_port();
        let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
        let command = |client: bool| {
            let Stage {
                device,
                gid,
                address,
                ..
            } = &self.stage;
            let mut command = self.stage.command(program, statistics);
            command.args(arguments.split_whitespace());
            command.args(["-F", "-d", device, "-x", gid, "-p", &port.to_string()]);
            if client {
                command.arg(address);
            }
            command
        };
        let mut server = start(command(false), "server")?;
        if !wait_for_listener(port, &mut server, LISTEN_LIMIT) {
            bail!(
                "the server did not listen: {}",
                server.finish(Instant::now()).describe()
            );
        }
        let client = start(command(true), "client")?;
        Ok(Pair {
            server,
            client: Some(client),
        })
    }

    /// Pairs of processes at once. They start one after the other, so each measures the middle of
    /// its time, when all are at work.
    fn pairs(&self, count: u32) -> Result<f64> {
        let line = if self.quick {
            "ib_write_bw -s 65536 -D 3 -f 1"
        } else {
            "ib_write_bw -s 65536 -D 4 -f 1"
        };
        let statistics = self.statistics();
        let mut pairs = Vec::new();
        for number in 0..count {
            pairs.push(self.start_pair(line, &statistics, number)?);
        }
        let deadline = Instant::now() + LIMIT;
        let mut sum = 0.0;
        for mut pair in pairs {
            let client = pair.client()?.finish(deadline);
            ensure!(client.is_good(), "{}", client.describe());
            let _ = pair.server.finish(deadline);
            sum += average_bandwidth(&rows(&client.output))?;
        }
        self.count_retransmissions(&statistics)?;
        Ok(sum)
    }

    /// Calls of a long run without those of a short one: what setting up costs does not count.
    fn system_calls(&self) -> Result<f64> {
        let (short, long) = if self.quick {
            (500, 4500)
        } else {
            (2000, 18_000)
        };
        const MESSAGES_PER_MEBIBYTE: f64 = 16.0;
        let more = self.calls_of(long)? - self.calls_of(short)?;
        Ok(more / (f64::from(long - short) / MESSAGES_PER_MEBIBYTE))
    }

    /// System calls of both ends of a run, counted by the kernel (`perf stat`): unlike strace
    /// that does not slow them, which would change how much each one moves.
    fn calls_of(&self, messages: u32) -> Result<f64> {
        ensure!(find_program("perf").is_some(), "perf is not installed");
        let counts = self.stage.scratch.join("counts");
        File::create(&counts)?;
        let start = |command: Command, label: &str| {
            let mut counted = Command::new("perf");
            counted.args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter"]);
            counted.args(["--append", "-o"]).arg(&counts).arg("--");
            if crate::judge::is_root() {
                // perf needs our rights, the program must not have them.
                let user = NOBODY.to_string();
                counted.args(["setpriv", "--clear-groups", "--reuid", &user]);
                counted.args(["--regid", &user]);
            }
            counted.arg(command.get_program()).args(command.get_args());
            if let Some(folder) = command.get_current_dir() {
                counted.current_dir(folder);
            }
            let scratch = &self.stage.scratch;
            Ok(Running::start_as_we_are(counted, scratch, label)?)
        };
        let line = format!("ib_write_bw -s 65536 -n {messages}");
        let statistics = self.statistics();
        let mut pair = self.start_pair_by(&line, &statistics, &start)?;
        let deadline = Instant::now() + LIMIT;
        for ended in [
            pair.client()?.finish(deadline),
            pair.server.finish(deadline),
        ] {
            ensure!(ended.is_good(), "{}", ended.describe());
        }
        let counts = std::fs::read_to_string(&counts)?;
        let of_ends: Vec<f64> = counts
            .lines()
            .filter(|line| line.contains("raw_syscalls"))
            .filter_map(|line| line.split(',').next()?.parse().ok())
            .collect();
        ensure!(of_ends.len() == 2, "perf stat counted nothing: {counts}");
        Ok(of_ends.iter().sum())
    }

    fn count_retransmissions(&self, statistics: &Path) -> Result<()> {
        let text = std::fs::read_to_string(statistics).unwrap_or_default();
        let mut sum = 0;
        for line in text.lines() {
            let report: Value = serde_json::from_str(line).context("statistics")?;
            sum += report["retransmissions"]
                .as_u64()
                .context("statistics without retransmissions")?;
        }
        *self.retransmissions.borrow_mut() += sum;
        Ok(())
    }
}

/// Both ends of a perftest program.
struct Pair {
    server: Running,
    client: Option<Running>,
}

impl Pair {
    fn client(&mut self) -> Result<Running> {
        self.client.take().context("the client was taken")
    }
}

/// The rows of figures that a perftest program printed.
pub(crate) fn rows(output: &str) -> Vec<Vec<f64>> {
    output
        .lines()
        .filter_map(|line| {
            let row: Option<Vec<f64>> = line
                .split_whitespace()
                .map(|word| word.parse().ok())
                .collect();
            row.filter(|row| row.len() >= 5)
        })
        .collect()
}

/// A column of the last row.
pub(crate) fn column(rows: &[Vec<f64>], index: usize) -> Result<f64> {
    rows.last()
        .and_then(|row| row.get(index))
        .copied()
        .context("perftest printed no figures")
}

/// Bytes a second: perftest's MB are MiB.
pub(crate) fn average_bandwidth(rows: &[Vec<f64>]) -> Result<f64> {
    const AVERAGE: usize = 3;
    Ok(column(rows, AVERAGE)? * f64::from(1 << 20))
}

/// A number in JSON, by its path.
fn number(json: &str, path: &[&str]) -> Result<f64> {
    let start = json.find('{').unwrap_or_default();
    let value: Value = serde_json::from_str(&json[start..]).context(json.to_owned())?;
    let found = path.iter().try_fold(&value, |value, &step| {
        step.parse::<usize>()
            .map_or_else(|_| value.get(step), |index| value.get(index))
    });
    found
        .and_then(Value::as_f64)
        .with_context(|| format!("no number {} in {json}", path.join(".")))
}
