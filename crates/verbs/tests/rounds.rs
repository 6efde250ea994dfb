//! Opening and closing leaves nothing behind: no memory, no descriptor, no slot.

#![allow(clippy::unwrap_used, reason = "a test and its helpers")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use common::End;
use feroce_verbs::{Context, QpType};
use std::time::{Duration, Instant};

const ROUNDS: usize = 4000;
const WARM_UP: usize = 50;

/// What grows per round when something leaks: a queue pair alone is far more than this.
const GROWTH_PER_ROUND_MAX: u64 = 256;

/// What the allocator keeps once, early or late: receive buffers that a busy moment touched.
const GROWTH_ONCE_MAX: u64 = 2 << 20;

#[test]
fn thousands_of_rounds_leave_nothing_behind() {
    let mut before = None;
    for round in 0..ROUNDS {
        let context = Context::open("roce_lo").unwrap();
        let (a, b) = (
            End::new(&context, QpType::Rc, 8192),
            End::new(&context, QpType::Rc, 8192),
        );
        a.connect(&b);
        b.connect(&a);
        let text = round.to_le_bytes();
        a.buffer.write(100, &text).unwrap();
        a.write_all(&b);
        let mut seen = [0; 8];
        b.buffer.read(100, &mut seen).unwrap();
        assert_eq!(seen, text);
        drop((a, b, context));
        if round == WARM_UP {
            before = Some(settled_usage());
        }
    }
    let (fds, slots, memory) = before.unwrap();
    let after = settled_usage();
    assert_eq!((after.0, after.1), (fds, slots), "descriptors and slots");
    let growth = after.2.saturating_sub(memory);
    assert!(
        growth < GROWTH_ONCE_MAX + (ROUNDS - WARM_UP) as u64 * GROWTH_PER_ROUND_MAX,
        "{growth} bytes more"
    );
}

/// Usage when the device's thread, which may hold it for a moment longer, has let go.
fn settled_usage() -> (usize, usize, u64) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let now = usage();
        if now.1 == 0 || Instant::now() > deadline {
            return now;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Open descriptors, slots of this process, resident bytes.
fn usage() -> (usize, usize, u64) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let inodes: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    let slots = std::fs::read_to_string("/proc/net/unix")
        .unwrap()
        .lines()
        .filter(|line| line.contains("@feroce/slot/"))
        .filter(|line| {
            let inode = line.split_whitespace().nth(6).unwrap_or_default();
            inodes
                .iter()
                .any(|link| link == &format!("socket:[{inode}]"))
        })
        .count();
    (fds, slots, resident_bytes())
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}
