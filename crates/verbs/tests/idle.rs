//! An idle device costs nothing.

#![allow(clippy::unwrap_used, reason = "a test and its helpers")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use common::End;
use feroce_verbs::{Context, QpType};
use std::time::{Duration, Instant};

#[test]
fn an_idle_device_uses_no_processor_time() {
    let context = Context::open("roce_lo").unwrap();
    let (a, b) = (
        End::new(&context, QpType::Rc, 64),
        End::new(&context, QpType::Rc, 64),
    );
    a.connect(&b);
    b.connect(&a);
    a.write_all(&b);
    // Timers of the last acknowledge and the habit of polling fade first.
    std::thread::sleep(Duration::from_millis(500));
    let (before, started) = (service_thread_wakeups(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let woken = service_thread_wakeups() - before;
    assert!(
        woken <= 2,
        "{woken} wake-ups of the service thread in {:?}",
        started.elapsed()
    );
}

/// Times that threads named `feroce` gave up the processor by themselves.
fn service_thread_wakeups() -> u64 {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("status")).ok())
        .filter(|status| status.starts_with("Name:\tferoce\n"))
        .filter_map(|status| {
            let line = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .sum()
}
