//! Several processes on one address, and processes that die without a word.

use super::pair::{Ended, Running, next_port, wait_for_listener};
use super::programs::{Stage, compile};
use super::{Outcome, Tally, find_program};
use anyhow::{Result, bail};
use std::process::Command;
use std::time::{Duration, Instant};

/// Pairs of processes that run at once.
const PAIRS: usize = 8;

/// Which pair loses its client, and which its server.
const VICTIMS: [usize; 2] = [2, 5];

/// How long everything may take.
const LIMIT: Duration = Duration::from_secs(90);

struct Pair {
    server: Running,
    client: Running,
}

/// Runs the checks.
pub(crate) fn run(stage: &Stage) -> Tally {
    let mut tally = Tally::default();
    let outcome = match find_program("ib_write_bw") {
        None => Outcome::Skipped("ib_write_bw is not installed".into()),
        Some(_) => judge(stage).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
    };
    tally.note(
        &format!("{PAIRS} pairs of processes, one client and one server killed"),
        &outcome,
    );
    let outcome = match find_program("ibv_rc_pingpong") {
        None => Outcome::Skipped("ibv_rc_pingpong is not installed".into()),
        Some(_) => weigh(stage).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
    };
    let limit = RESIDENT_MAX_KIB / 1024;
    tally.note(
        &format!("a waiting program with our library is below {limit} MiB"),
        &outcome,
    );
    let outcome = match find_program("cc") {
        None => Outcome::Skipped("cc is not installed".into()),
        Some(_) => cancel(stage).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
    };
    tally.note("a thread that waits for an event is cancelled", &outcome);
    tally
}

fn cancel(stage: &Stage) -> Result<Outcome> {
    let program = compile(stage, "cancel")?.to_string_lossy().into_owned();
    let mut command = stage.command(&program, &stage.scratch.join("statistics-cancel"));
    command.arg(&stage.device);
    let ended = Running::start(command, &stage.scratch, "cancel")?.finish(Instant::now() + LIMIT);
    if ended.is_good() && ended.output.contains("cancelled") {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Failed(ended.describe()))
}

/// Resident memory of a small program that has opened a device and made a queue pair, all of it:
/// the program's own, the C library's and ours.
const RESIDENT_MAX_KIB: u64 = 10 * 1024;

fn weigh(stage: &Stage) -> Result<Outcome> {
    let port = next_port();
    let mut command = stage.command("ibv_rc_pingpong", &stage.scratch.join("statistics-weigh"));
    command.args([
        "-d",
        &stage.device,
        "-g",
        &stage.gid,
        "-p",
        &port.to_string(),
    ]);
    let mut server = Running::start(command, &stage.scratch, "weighed")?;
    if !wait_for_listener(port, &mut server, Duration::from_secs(20)) {
        bail!(
            "the server did not listen: {}",
            server.finish(Instant::now()).describe()
        );
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()));
    server.stop();
    let status = status?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().unwrap_or_default().parse()?;
    println!("resident memory of ibv_rc_pingpong, waiting: {kib} KiB");
    if kib < RESIDENT_MAX_KIB {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Failed(format!(
        "{kib} KiB resident, {RESIDENT_MAX_KIB} at most"
    )))
}

fn judge(stage: &Stage) -> Result<Outcome> {
    let slots_before = slots();
    let mut pairs = Vec::new();
    for number in 0..PAIRS {
        pairs.push(start(stage, number)?);
    }
    std::thread::sleep(Duration::from_secs(2));
    for (nth, victim) in VICTIMS.into_iter().enumerate() {
        let pair = &pairs[victim];
        let pid = if nth == 0 {
            pair.client.pid()
        } else {
            pair.server.pid()
        };
        kill_children(pid)?;
    }
    let deadline = Instant::now() + LIMIT;
    let mut complaints = Vec::new();
    for (number, mut pair) in pairs.into_iter().enumerate() {
        if VICTIMS.contains(&number) {
            // The survivor of a dead peer may wait for long: it is not what is judged.
            pair.client.stop();
            pair.server.stop();
            continue;
        }
        for ended in [pair.client.finish(deadline), pair.server.finish(deadline)] {
            if !ended.is_good() {
                complaints.push(Ended::describe(&ended));
            }
        }
    }
    let left = slots().saturating_sub(slots_before);
    if left > 0 {
        complaints.push(format!(
            "{left} slots are still taken after all processes ended"
        ));
    }
    if complaints.is_empty() {
        Ok(Outcome::Passed)
    } else {
        Ok(Outcome::Failed(complaints.join("\n")))
    }
}

fn start(stage: &Stage, number: usize) -> Result<Pair> {
    let port = next_port();
    let statistics = stage.scratch.join(format!("statistics-{number}"));
    let program = |client: bool| {
        let mut command = stage.command("ib_write_bw", &statistics);
        command.args([
            "-F",
            "-D",
            "8",
            "-s",
            "65536",
            "-d",
            &stage.device,
            "-x",
            &stage.gid,
        ]);
        command.args(["-p", &port.to_string()]);
        if client {
            command.arg(&stage.address);
        }
        command
    };
    let mut server = Running::start(program(false), &stage.scratch, &format!("server-{number}"))?;
    if !wait_for_listener(port, &mut server, Duration::from_secs(20)) {
        let ended = server.finish(Instant::now());
        bail!(
            "the server of pair {number} did not listen: {}",
            ended.describe()
        );
    }
    let client = Running::start(program(true), &stage.scratch, &format!("client-{number}"))?;
    Ok(Pair { server, client })
}

/// Kills what `feroce run` started, the stock program itself, so that nothing can clean up.
fn kill_children(parent: u32) -> Result<()> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(path)?;
    let mut victims: Vec<&str> = children.split_whitespace().collect();
    let own = parent.to_string();
    if victims.is_empty() {
        victims.push(&own);
    }
    for pid in victims {
        Command::new("kill").args(["-KILL", pid]).status()?;
    }
    Ok(())
}

/// Slots taken in this network namespace.
fn slots() -> usize {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets
        .lines()
        .filter(|line| line.contains("@feroce/slot/"))
        .count()
}
