//! Stock programs in pairs over the loopback device: ibverbs-utils and perftest.

use super::pair::{Running, next_port, wait_for_listener};
use super::statistics::Packets;
use super::{NOBODY, Outcome, Tally, find_program, is_root};
use crate::cargo;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(10);

/// Where programs run and how.
pub(crate) struct Stage {
    /// The `feroce` binary.
    pub(crate) feroce: PathBuf,
    /// A folder that unprivileged programs may write.
    pub(crate) scratch: PathBuf,
    /// The device they use.
    pub(crate) device: String,
    /// The address they connect to.
    pub(crate) address: String,
    /// GID index of that address.
    pub(crate) gid: String,
}

impl Stage {
    /// The loopback stage, with an empty scratch folder.
    pub(crate) fn loopback(dist: &Path, device: &str) -> Result<Self> {
        let scratch = std::env::temp_dir().join(format!("feroce-judge-{}", std::process::id()));
        std::fs::create_dir_all(&scratch).context("making a scratch folder")?;
        if is_root() {
            std::os::unix::fs::chown(&scratch, Some(NOBODY), Some(NOBODY))?;
        }
        Ok(Self {
            feroce: dist.join("bin/feroce"),
            scratch,
            device: device.to_owned(),
            address: "127.0.0.1".to_owned(),
            gid: "0".to_owned(),
        })
    }

    /// The same on another device, with a scratch folder of its own.
    pub(crate) fn on(&self, device: &str, address: &str) -> Result<Self> {
        let dist = self.feroce.parent().and_then(Path::parent);
        let mut stage = Self::loopback(dist.context("the folder of the build")?, device)?;
        stage.scratch = stage.scratch.join(device);
        std::fs::create_dir_all(&stage.scratch).context("making a scratch folder")?;
        if is_root() {
            std::os::unix::fs::chown(&stage.scratch, Some(NOBODY), Some(NOBODY))?;
        }
        stage.address = address.to_owned();
        Ok(stage)
    }

    /// Whether the build has a connection manager library.
    pub(crate) fn has_connection_manager(&self) -> bool {
        let lib = self.feroce.with_file_name("../lib/librdmacm.so.1");
        lib.exists()
    }

    /// `feroce run` in front of a program; its statistics go to `statistics`.
    pub(crate) fn command(&self, program: &str, statistics: &Path) -> Command {
        let mut command = Command::new(&self.feroce);
        command
            .args(["run", "--device", &self.device, "--stats"])
            .arg(statistics)
            .arg("--");
        command
            .arg(program)
            .current_dir(&self.scratch)
            .env("TMPDIR", &self.scratch);
        command
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// One pair of runs: what both ends get, and what only one of them gets.
struct Case {
    program: &'static str,
    arguments: &'static str,
    /// The family of the program decides how address and device are given.
    family: Family,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Pingpong,
    Perftest,
}

/// Runs all cases whose text contains `filter`.
pub(crate) fn run(stage: &Stage, filter: &str, quick: bool) -> Tally {
    let mut tally = Tally::default();
    for (program, option) in LISTERS {
        let name = format!("{program} {option}").trim_end().to_owned();
        if name.contains(filter) {
            tally.note(&name, &list(stage, program, option));
        }
    }
    for case in cases(quick) {
        let name = format!("{} {}", case.program, case.arguments)
            .trim_end()
            .to_owned();
        if !name.contains(filter) {
            continue;
        }
        let outcome = match find_program(case.program) {
            None => Outcome::Skipped(format!("{} is not installed", case.program)),
            Some(_) => {
                run_case(stage, &case).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
            }
        };
        tally.note(&name, &outcome);
    }
    tally
}

/// Programs that list devices, with an option each.
const LISTERS: &[(&str, &str)] = &[("ibv_devices", ""), ("ibv_devinfo", "-v")];

fn list(stage: &Stage, program: &str, option: &str) -> Outcome {
    if find_program(program).is_none() {
        return Outcome::Skipped(format!("{program} is not installed"));
    }
    let mut command = stage.command(program, &stage.scratch.join("statistics-list"));
    command.args(option.split_whitespace());
    let ended = Running::start(command, &stage.scratch, "lister")
        .map(|running| running.finish(Instant::now() + Duration::from_secs(10)));
    match ended {
        Ok(ended) if ended.is_good() && ended.output.contains(&stage.device) => Outcome::Passed,
        Ok(ended) => Outcome::Failed(ended.describe()),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

fn cases(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for line in PINGPONGS
        .iter()
        .chain(if quick { &[][..] } else { PINGPONGS_LONG })
    {
        cases.push(case(line, Family::Pingpong));
    }
    for line in PERFTESTS
        .iter()
        .chain(if quick { &[][..] } else { PERFTESTS_LONG })
    {
        cases.push(case(line, Family::Perftest));
    }
    cases
}

fn case(line: &'static str, family: Family) -> Case {
    let (program, arguments) = line.split_once(' ').unwrap_or((line, ""));
    Case {
        program,
        arguments,
        family,
    }
}

fn run_case(stage: &Stage, case: &Case) -> Result<Outcome> {
    let statistics = stage.scratch.join("statistics");
    let _ = std::fs::remove_file(&statistics);
    let port = next_port();
    let server = arguments(
        stage,
        case,
        port,
        &mut stage.command(case.program, &statistics),
        false,
    );
    let mut server = Running::start(server, &stage.scratch, "server")?;
    let listening = wait_for_listener(port, &mut server, LISTEN_LIMIT);
    let client = arguments(
        stage,
        case,
        port,
        &mut stage.command(case.program, &statistics),
        true,
    );
    let client = Running::start(client, &stage.scratch, "client")?;
    let deadline = Instant::now() + LIMIT;
    let client = client.finish(deadline);
    let grace = Instant::now() + Duration::from_secs(if client.is_good() { 10 } else { 1 });
    let server = server.finish(grace);
    if !client.is_good() || !server.is_good() {
        let late = if listening {
            ""
        } else {
            "the server did not listen in time\n"
        };
        return Ok(Outcome::Failed(format!(
            "{late}{}\n{}",
            server.describe(),
            client.describe()
        )));
    }
    for ended in [&server, &client] {
        if let Some(counter) = idle_counter(&ended.output) {
            return Ok(Outcome::Failed(format!(
                "the counter {counter} did not count\n{}",
                ended.describe()
            )));
        }
    }
    Ok(judge_statistics(
        &std::fs::read_to_string(&statistics).unwrap_or_default(),
    ))
}

/// A counter of sysfs that perftest (`-W`) saw stand still during its traffic.
fn idle_counter(output: &str) -> Option<&str> {
    output.lines().find_map(|line| {
        let (name, growth) = line.trim().split_once('=')?;
        (name.contains("counters/") && growth == "0").then_some(name)
    })
}

/// Compiles a C program of `tests/programs` against our libraries.
pub(super) fn compile(stage: &Stage, name: &str) -> Result<PathBuf> {
    let target = stage.scratch.join(name);
    let library = |name: &str| stage.feroce.with_file_name(format!("../lib/{name}"));
    let source = cargo::workspace().join(format!("tests/programs/{name}.c"));
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&target)
        .arg(source)
        .arg(library("librdmacm.so.1"))
        .arg(library("libibverbs.so.1"))
        .output()
        .context("running the compiler")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(target)
}

/// The bytes must have gone through the device: both processes report packets.
pub(crate) fn judge_statistics(lines: &str) -> Outcome {
    let packets = match Packets::read(lines) {
        Ok(packets) => packets,
        Err(outcome) => return outcome,
    };
    // Unreliable services go one way only.
    if packets.users >= 2 && packets.sent > 0 && packets.received > 0 {
        Outcome::Passed
    } else {
        Outcome::Failed(format!(
            "only {} of 2 processes used the device:\n{lines}",
            packets.users
        ))
    }
}

fn arguments(
    stage: &Stage,
    case: &Case,
    port: u16,
    command: &mut Command,
    client: bool,
) -> Command {
    let device = &stage.device;
    command.args(case.arguments.split_whitespace());
    command.args(["-d", device, "-p", &port.to_string()]);
    match case.family {
        Family::Pingpong => command.args(["-g", &stage.gid]),
        Family::Perftest => command.args(["-x", &stage.gid, "-F"]),
    };
    if client {
        command.arg(&stage.address);
    }
    std::mem::replace(command, Command::new(""))
}

const PINGPONGS: &[&str] = &[
    "ibv_rc_pingpong -c -n 1000",
    "ibv_rc_pingpong -c -e -n 500",
    "ibv_rc_pingpong -c -s 1",
    "ibv_rc_pingpong -c -s 1048576 -n 200",
    "ibv_rc_pingpong -c -m 256 -s 65536",
    "ibv_rc_pingpong -N -c",
    "ibv_rc_pingpong -t",
    "ibv_uc_pingpong -c",
    "ibv_uc_pingpong -c -e -s 65536 -n 200",
    "ibv_ud_pingpong -c",
    "ibv_ud_pingpong -c -e -s 1024",
    "ibv_srq_pingpong -c",
    "ibv_srq_pingpong -c -e -q 4",
    "ibv_xsrq_pingpong",
];

const PINGPONGS_LONG: &[&str] = &[
    "ibv_rc_pingpong -c -m 512 -s 3",
    "ibv_rc_pingpong -c -m 1024 -s 1025",
    "ibv_rc_pingpong -c -m 4096 -r 100 -s 65536 -n 2000",
    "ibv_rc_pingpong -c -o",
    "ibv_rc_pingpong -c -j",
    "ibv_uc_pingpong -c -s 1",
    "ibv_uc_pingpong -c -s 1048576 -n 100",
    "ibv_uc_pingpong -c -m 256 -s 65536 -n 200",
    "ibv_ud_pingpong -c -s 1",
    "ibv_srq_pingpong -c -q 16",
    "ibv_srq_pingpong -c -s 1048576 -n 100",
    "ibv_xsrq_pingpong -e",
    "ibv_xsrq_pingpong -s 1048576 -n 50",
];

const PERFTESTS: &[&str] = &[
    "ib_write_bw -s 65536 -n 1000",
    "ib_write_bw -a -n 100",
    "ib_write_bw -b -n 500",
    "ib_write_bw -q 16 -n 100",
    "ib_write_bw -c UC -n 200",
    "ib_write_lat -n 500",
    "ib_read_bw -n 500",
    "ib_read_lat -n 500",
    "ib_send_bw -n 500",
    "ib_send_bw -c UC -n 200",
    "ib_send_bw -c UD -s 1024 -n 500",
    "ib_send_bw -e -n 300",
    "ib_send_bw --use-srq -n 300",
    "ib_send_lat -n 500",
    "ib_send_lat -c UD -s 64 -n 500",
    "ib_send_lat -e -n 300",
    "ib_atomic_bw -n 500",
    "ib_atomic_lat -A CMP_AND_SWAP -n 500",
    "ib_write_bw -I 128 -s 64 -n 500",
    "ib_send_bw -c XRC -n 200",
    "ib_write_bw -D 3",
    "ib_write_bw -n 300 -W hw_counters/sent_pkts,hw_counters/rcvd_pkts,counters/port_rcv_data",
];

const PERFTESTS_LONG: &[&str] = &[
    "ib_write_lat -a -n 100",
    "ib_write_lat -c UC -n 500",
    "ib_write_lat -I 64 -s 64 -n 500",
    "ib_read_bw -a -n 100",
    "ib_read_bw -b -n 300",
    "ib_read_bw -q 16 -n 50",
    "ib_read_bw -e -n 300",
    "ib_read_lat -a -n 100",
    "ib_read_lat -e -n 300",
    "ib_send_bw -a -n 100",
    "ib_send_bw -b -n 300",
    "ib_send_bw -q 16 -n 50",
    "ib_send_bw --use-srq -q 4 -n 100",
    "ib_send_bw -I 128 -s 64 -n 300",
    "ib_send_bw -c UD -s 4096 -n 500",
    "ib_send_lat -a -n 100",
    "ib_send_lat -c UC -n 300",
    "ib_send_lat --use-srq -n 300",
    "ib_send_lat -I 64 -s 64 -n 300",
    "ib_atomic_bw -A CMP_AND_SWAP -n 500",
    "ib_atomic_bw -q 16 -n 50",
    "ib_atomic_bw -b -n 300",
    "ib_atomic_bw -e -n 300",
    "ib_atomic_lat -n 500",
    "ib_atomic_lat -e -n 300",
    "ib_write_bw -m 256 -n 200",
    "ib_write_bw -m 512 -n 200",
    "ib_write_bw -m 1024 -n 200",
    "ib_write_bw -m 2048 -n 200",
    "ib_write_bw -m 4096 -n 200",
    "ib_read_bw -m 256 -n 200",
    "ib_send_bw -m 1024 -n 200",
    "ib_write_bw -c XRC -n 200",
    "ib_read_bw -c XRC -n 200",
    "ib_send_lat -c XRC -n 200",
    "ib_write_lat -c XRC -n 200",
    "ib_read_bw -D 3",
    "ib_send_bw -D 3",
    "ib_atomic_bw -D 3",
    "ib_write_bw -b --report-both -n 300",
    "ib_write_bw --reversed -n 300",
    "ib_write_bw -l 8 -n 320",
    "ib_send_bw -l 8 --recv_post_list=8 -n 320",
    "ib_write_bw -Q 1 -t 1 -n 300",
    "ib_read_bw -o 1 -n 300",
    "ib_read_bw -o 16 -n 300",
    "ib_write_bw --mr_per_qp -q 3 -n 100",
    "ib_write_lat -U -n 300",
    "ib_write_bw --use_old_post_send -n 300",
    "ib_send_bw --inline_recv=64 -s 32 -n 300",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_stands_still_is_found_in_perftests_report() {
        let report = |sent: u32| {
            format!(
                " 65536      300   2879.72\n\thw_counters/sent_pkts={sent}\n\t\
                 counters/port_rcv_data=17\n"
            )
        };
        assert_eq!(idle_counter(&report(4800)), None);
        assert_eq!(idle_counter(&report(0)), Some("hw_counters/sent_pkts"));
        assert_eq!(idle_counter("Max inline data : 0[B]\n qps=0"), None);
    }
}
