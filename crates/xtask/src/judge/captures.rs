//! Frames of ours, looked at by a dissector that nobody here wrote (tshark), and by our own.

use super::pair::{Running, next_port, wait_for_listener};
use super::programs::Stage;
use super::{Outcome, Tally, find_program};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Programs whose packets, taken together, have every form that they can cause.
const PROGRAMS: &[(&str, &str)] = &[
    ("ibv_rc_pingpong", "-c -n 20 -s 10000"),
    ("ibv_uc_pingpong", "-c -n 20 -s 3"),
    ("ibv_ud_pingpong", "-c -n 20 -s 33"),
    ("ibv_xsrq_pingpong", "-s 5000"),
    ("ib_read_bw", "-n 20 -s 10001"),
    ("ib_write_bw", "-n 20 -s 10002"),
    ("ib_atomic_bw", "-n 20"),
    ("ib_atomic_lat", "-n 20 -A CMP_AND_SWAP"),
    ("ib_send_lat", "-n 20 -c UD -s 7"),
    (MANAGED, "-C 10 -S 3000 -V"),
];

/// The program that connects over the connection manager, and takes no device.
const MANAGED: &str = "rping";

/// Severity from which tshark's remarks count. Notes are about what the program asked for: the
/// pingpongs ask for a hop limit of 1.
const WARNING: u32 = 0x0060_0000;

const LIMIT: Duration = Duration::from_secs(30);

/// Captures each program and has the packets judged.
pub(crate) fn run(stage: &Stage, filter: &str) -> Tally {
    let mut tally = Tally::default();
    for (program, arguments) in PROGRAMS {
        let name = format!("tshark on {program} {arguments}");
        if !name.contains(filter) {
            continue;
        }
        let outcome = match ["tshark", program]
            .into_iter()
            .find(|it| find_program(it).is_none())
        {
            Some(absent) => Outcome::Skipped(format!("{absent} is not installed")),
            None => judge(stage, program, arguments)
                .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
        };
        tally.note(&name, &outcome);
    }
    tally
}

fn judge(stage: &Stage, program: &str, arguments: &str) -> Result<Outcome> {
    let port = next_port().to_string();
    let capture = |client: bool| {
        stage.scratch.join(format!(
            "{}.pcapng",
            if client { "client" } else { "server" }
        ))
    };
    let start = |client: bool| {
        let statistics = stage.scratch.join("statistics");
        let _ = std::fs::remove_file(capture(client));
        let mut command = stage.command(program, &statistics);
        command
            .env("FEROCE_PCAP", capture(client))
            .args(arguments.split_whitespace());
        if program == MANAGED {
            let role = if client { "-c" } else { "-s" };
            command.args([role, "-a", &stage.address, "-p", &port]);
            return Running::start(command, &stage.scratch, role.trim_start_matches('-'));
        }
        command.args(["-d", &stage.device, "-p", &port]);
        let gid = if program.starts_with("ibv_") {
            "-g"
        } else {
            "-x"
        };
        command.args([gid, &stage.gid]);
        if client {
            command.arg(&stage.address);
        }
        Running::start(
            command,
            &stage.scratch,
            if client { "client" } else { "server" },
        )
    };
    let mut server = start(false)?;
    wait_for_listener(port.parse()?, &mut server, Duration::from_secs(10));
    let client = start(true)?.finish(Instant::now() + LIMIT);
    let server = server.finish(Instant::now() + Duration::from_secs(10));
    if !client.is_good() || !server.is_good() {
        bail!("{}\n{}", server.describe(), client.describe());
    }
    for file in [capture(false), capture(true)] {
        dissect(&file)?;
        if let Some(complaint) = stage.own_dissector(&file)? {
            return Ok(Outcome::Failed(complaint));
        }
    }
    Ok(Outcome::Passed)
}

/// Every packet must be InfiniBand to tshark, and none may draw a complaint.
fn dissect(file: &Path) -> Result<()> {
    let tshark = |filter: &str| -> Result<Vec<String>> {
        let output = Command::new("tshark")
            // Its guess at what lies in a SEND is not about our frames.
            .args(["--disable-protocol", "rpcordma", "-n", "-r"])
            .arg(file)
            .args([
                "-Y",
                filter,
                "-T",
                "fields",
                "-e",
                "frame.number",
                "-e",
                "_ws.col.Info",
            ])
            .output()
            .context("tshark")?;
        if !output.status.success() {
            bail!("tshark: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect())
    };
    let all = tshark("frame")?;
    let ours = tshark("infiniband")?;
    if all.is_empty() || all.len() != ours.len() {
        bail!(
            "{} of {} packets are InfiniBand to tshark",
            ours.len(),
            all.len()
        );
    }
    let complaints = tshark(&format!(
        "_ws.malformed || _ws.expert.severity >= {WARNING}"
    ))?;
    if !complaints.is_empty() {
        bail!(
            "tshark complains about {}: {}",
            complaints.len(),
            complaints[0]
        );
    }
    Ok(())
}

impl Stage {
    /// What `feroce dissect` has to complain about.
    fn own_dissector(&self, file: &Path) -> Result<Option<String>> {
        let output = Command::new(&self.feroce)
            .arg("dissect")
            .arg(file)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if output.status.success() {
            return Ok(None);
        }
        let tail: Vec<&str> = text.lines().rev().take(10).collect();
        Ok(Some(format!(
            "feroce dissect: {}\n{}",
            output.status,
            tail.join("\n")
        )))
    }
}
