//! What the environment asks for, seen from outside: each case runs in a process of its own,
//! because logging is set up once and the environment is read as it is at the start.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

use feroce_obs::pcapng::{Capture, Direction};
use feroce_wire::icrc::{Flow, IPV4_DONT_FRAGMENT};

const CHILD: &str = "FEROCE_TEST_CHILD";

/// Not a test by itself: the program all cases run.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    feroce_obs::init_logging();
    feroce_obs::init_logging();
    log::warn!(target: "test", "a warning");
    log::debug!(target: "test", "a detail");
    feroce_obs::statistics::append("roce_lo", &[("sent_packets", 3)]);
    if let Some(mut capture) = Capture::from_environment() {
        let flow = Flow {
            source: IpAddr::from([10, 0, 0, 1]),
            destination: IpAddr::from([10, 0, 0, 2]),
            source_port: 50_000,
            destination_port: 4791,
            ipv4_id: 0,
            ipv4_fragment: IPV4_DONT_FRAGMENT,
        };
        capture.record(Direction::Out, &flow, 0, 64, &[0; 16]);
    }
}

struct Outcome {
    process: u32,
    stderr: String,
}

fn run(variables: &[(&str, &str)]) -> Outcome {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, "1");
    for variable in ["FEROCE_LOG", "FEROCE_STATS", "FEROCE_PCAP"] {
        command.env_remove(variable);
    }
    command.envs(variables.iter().copied());
    let child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert!(status.success());
    Outcome {
        process,
        stderr: String::from_utf8(stderr).unwrap(),
    }
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("feroce-environment-{name}-{}", std::process::id()))
}

#[test]
fn without_being_asked_nothing_is_said() {
    assert_eq!(run(&[]).stderr, "");
    assert_eq!(run(&[("FEROCE_LOG", "")]).stderr, "");
    assert_eq!(run(&[("FEROCE_LOG", "error")]).stderr, "");
}

#[test]
fn the_level_asked_for_is_said_and_no_more() {
    let Outcome { process, stderr } = run(&[("FEROCE_LOG", "info")]);
    assert_eq!(stderr, format!("feroce[{process}] warn test: a warning\n"));
    let Outcome { stderr, .. } = run(&[("FEROCE_LOG", "DEBUG")]);
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
}

#[test]
fn a_level_that_is_none_is_complained_about_once() {
    let Outcome { process, stderr } = run(&[("FEROCE_LOG", "loud")]);
    assert_eq!(
        stderr,
        format!(
            "feroce[{process}]: FEROCE_LOG=loud is no level; use error, warn, info, debug or \
             trace\n"
        )
    );
}

#[test]
fn statistics_are_appended_where_asked_for() {
    let path = file("statistics");
    let asked = [("FEROCE_STATS", path.to_str().unwrap())];
    let processes = [run(&asked).process, run(&asked).process];
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for (line, process) in text.lines().zip(processes) {
        let tail = format!("\"pid\":{process},\"device\":\"roce_lo\",\"sent_packets\":3}}");
        assert!(line.ends_with(&tail), "{line}");
    }
    assert_eq!(text.lines().count(), 2);
    let stderr = run(&[("FEROCE_STATS", "/proc/nowhere/x")]).stderr;
    assert!(stderr.contains("FEROCE_STATS: /proc/nowhere/x cannot be written"));
}

#[test]
fn a_capture_is_named_after_its_process() {
    let path = file("capture-%p");
    let Outcome { process, stderr } = run(&[("FEROCE_PCAP", path.to_str().unwrap())]);
    assert_eq!(stderr, "");
    let path = file(&format!("capture-{process}"));
    assert!(std::fs::metadata(&path).unwrap().len() > 100);
    std::fs::remove_file(&path).unwrap();
    let stderr = run(&[("FEROCE_PCAP", "/proc/nowhere/x")]).stderr;
    assert!(stderr.contains("FEROCE_PCAP: /proc/nowhere/x cannot be written"));
}
