//! `feroce perf` and `feroce devices` as a user meets them: two processes over loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn feroce(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feroce"));
    command.args(arguments.split_whitespace());
    command
        .env_remove("FEROCE_DEVICE")
        .env_remove("FEROCE_LINK");
    command
}

fn run(mut command: Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

fn json(command: Command) -> Value {
    serde_json::from_slice(&run(command).stdout).unwrap()
}

#[test]
fn every_test_moves_and_verifies_what_it_was_asked_to() {
    let command = feroce(
        "perf --device roce_lo --iterations 300 --size 1,5,4096,100000 --qps 2 --seed 24304 --json",
    );
    let report = json(command);
    assert_eq!(report["device"], "roce_lo");
    assert_eq!(report["verified"], true);
    assert_eq!(report["seed"], 24304);
    let rows = report["results"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| (row["test"].as_str().unwrap(), &row["size"]))
        .collect();
    assert_eq!(names.len(), 3 * 4 + 1, "{names:?}");
    for row in rows {
        assert_eq!(row["verified"], true, "{row}");
        assert_eq!(row["bandwidth"]["messages"], 600, "{row}");
        assert_eq!(row["latency"]["samples"], 300, "{row}");
        let figure = |group: &str, name: &str| row[group][name].as_f64().unwrap();
        assert!(figure("bandwidth", "megabytes_per_second") > 0.0, "{row}");
        let latencies = ["min_us", "median_us", "p99_us"].map(|name| figure("latency", name));
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{row}");
    }
}

#[test]
fn the_table_has_a_line_for_each_measurement() {
    let command =
        feroce("perf --device roce_lo --seconds 0.05 --test write,atomic --size 64 --latency");
    let text = String::from_utf8(run(command).stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert!(
        lines[0].starts_with("Two processes on roce_lo (127.0.0.1), path MTU 4096"),
        "{text}"
    );
    assert!(lines[2].starts_with("test "), "{text}");
    let first_words: Vec<_> = lines[3..]
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .collect();
    assert_eq!(first_words.len(), 2, "{text}");
    for (words, name) in first_words.iter().zip(["write", "atomic"]) {
        assert_eq!(words[0], name, "{text}");
        assert_eq!(words[2..5], ["-"; 3], "no bandwidth was asked for: {text}");
        assert_eq!(words[8], "yes", "{text}");
    }
}

#[test]
fn what_cannot_be_done_is_said_and_fails() {
    for (arguments, hint) in [
        (
            "perf --device roce_none",
            "there is no device roce_none; `feroce devices`",
        ),
        (
            "perf --device roce_lo --gid-index 15",
            "device roce_lo has no GID 15",
        ),
        ("perf --size 0", "a message has 1 to 1048576 bytes"),
    ] {
        let output = feroce(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(hint), "{arguments}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}

/// Kills the process it holds when dropped, by whatever way a test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_other_end_dies_with_the_measuring_process() {
    let mut command = feroce("perf --device roce_lo --seconds 60 --test write");
    let mut measuring = Running(command.stdout(Stdio::null()).spawn().unwrap());
    let serving = wait_for(|| child_of(measuring.0.id()));
    measuring.0.kill().unwrap();
    measuring.0.wait().unwrap();
    wait_for(|| if is_running(serving) { None } else { Some(()) });
}

#[test]
fn a_run_ends_when_the_other_end_dies() {
    let mut command = feroce("perf --device roce_lo --seconds 60 --test write --size 8");
    let mut measuring = Running(
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let serving = wait_for(|| child_of(measuring.0.id()));
    let status = Command::new("kill")
        .args(["-9", &serving.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
    let status = wait_for(|| measuring.0.try_wait().unwrap());
    assert!(!status.success());
    let mut errors = String::new();
    std::io::Read::read_to_string(&mut measuring.0.stderr.take().unwrap(), &mut errors).unwrap();
    assert!(errors.contains("the other end has ended"), "{errors}");
}

/// Looks again and again, for half a minute at most.
#[track_caller]
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited for too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The process whose parent is `parent`, once it runs its own program.
fn child_of(parent: u32) -> Option<u32> {
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything; state and parent follow it.
        let parent_of_it = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let serves = arguments
            .split(|&byte| byte == 0)
            .any(|word| word == b"perf-serve");
        (parent_of_it == parent.to_string() && serves).then_some(pid)
    })
}

fn is_running(pid: u32) -> bool {
    // A zombie that nobody has waited for yet has ended, too.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.starts_with(" Z"))
    })
}

#[test]
fn devices_lists_loopback_last_among_the_usable_ones() {
    let devices = json(feroce("devices --json"));
    let devices = devices.as_array().unwrap();
    let usable: Vec<_> = devices
        .iter()
        .filter(|device| device.get("left_out").is_none())
        .collect();
    let last = usable.last().expect("loopback is up where tests run");
    assert_eq!(last["name"], "roce_lo");
    assert_eq!(last["ports"][0]["state"], "active");
    assert_eq!(last["gids"][0]["address"], "127.0.0.1");
    assert_eq!(
        last["gids"][0]["gid"],
        "0000:0000:0000:0000:0000:ffff:7f00:0001"
    );
    let text = String::from_utf8(run(feroce("devices")).stdout).unwrap();
    assert!(text.contains("roce_lo  interface lo, GUID "), "{text}");
}

#[test]
fn devices_says_why_an_interface_is_left_out() {
    let mut command = feroce("devices --json");
    command.env("FEROCE_DEVICE", "roce_other");
    let devices = json(command);
    let lo = devices
        .as_array()
        .unwrap()
        .iter()
        .find(|device| device["name"] == "roce_lo")
        .unwrap();
    assert_eq!(lo["left_out"], "FEROCE_DEVICE names other devices");
}
