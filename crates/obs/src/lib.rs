//! Watching without touching: captures written and read, log lines, counters as JSON.
//!
//! What is observed never depends on being observed, and nothing is written unless the environment
//! asks for it: `FEROCE_PCAP` ([`pcapng`]), `FEROCE_LOG` ([`init_logging`]), `FEROCE_STATS`
//! ([`statistics`]). Counting itself is done where things happen, in plain numbers.

pub mod frame;
mod logging;
pub mod pcapng;
pub mod read;
pub mod statistics;

pub use logging::init_logging;

use std::io::Write as _;

/// The running program's name, without its path.
fn program_name() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_name();
    name.unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes a whole line to stderr at once. That it may be closed is not our business.
fn write_line(line: &str) {
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Says that something asked for by the environment cannot be done.
fn complain(what: &str) {
    write_line(&format!("feroce[{}]: {what}\n", std::process::id()));
}

/// A path for a test to write to, different for each test and process.
#[cfg(test)]
fn test_file(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("feroce-obs-{name}-{}", std::process::id()))
}
