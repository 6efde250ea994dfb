//! `feroce dissect` as a program: what it prints of a foreign capture, and its exit status.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn dissect(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feroce"));
    command
        .arg("dissect")
        .args(arguments)
        .output()
        .expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_that_is_no_capture_is_named_and_nothing_printed() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = dissect(&[&file]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let message = text(&output.stderr);
    assert!(
        message.contains("Cargo.toml: neither pcap nor pcapng"),
        "{message}"
    );
}

/// The failure that `crates/wire/tests/captures.rs` tells more about.
#[test]
fn a_foreign_capture_with_nineteen_retransmissions() {
    let folder = env::var_os("FEROCE_CAPTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pcap"),
        PathBuf::from,
    );
    let file = folder.join("rocev2-rxe-smbdirect-read-retry.pcap");
    if !file.is_file() {
        let line = format!(
            "\nSKIPPED dissect: no {}: set FEROCE_CAPTURES\n",
            file.display()
        );
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let output = dissect(&[&file]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[..227]
            .iter()
            .filter(|line| line.ends_with("icrc ok  again"))
            .count(),
        19
    );
    let summary = [
        "227 frames, 227 of RoCE",
        "        93 RC SEND ONLY",
        "        23 RC RDMA READ REQUEST, 19 of them again",
        "        93 RC ACKNOWLEDGE",
        "        18 UD SEND ONLY",
        "ICRC: 227 right, 0 wrong, 0 not captured",
        "retransmissions: 19",
    ];
    assert_eq!(lines[227..], summary);
}
