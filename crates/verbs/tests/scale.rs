//! Queue pairs are small, and ten thousand of them fit.

#![allow(clippy::unwrap_used, reason = "a test and its helpers")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use common::End;
use feroce_verbs::{Context, CqOptions, QpOptions, QpType};

const QPS: usize = 10_000;
const BYTES_PER_QP_MAX: u64 = 8 * 1024;

#[test]
fn ten_thousand_connected_queue_pairs_are_small() {
    let context = Context::open("roce_lo").unwrap();
    let first = End::new(&context, QpType::Rc, 64);
    let second = End::new(&context, QpType::Rc, 64);
    first.connect(&second);
    second.connect(&first);
    let cq = context.create_cq(CqOptions::with_capacity(64)).unwrap();
    let before = memory_bytes();
    let mut ends = Vec::new();
    for _ in 0..QPS {
        let mut options = QpOptions::new(QpType::Rc, &cq, &cq);
        options.capabilities.max_send_wr = 1024;
        options.capabilities.max_recv_wr = 1024;
        ends.push(first.pd.create_qp(options).unwrap());
    }
    let path = first.qp.query().unwrap().path.unwrap();
    for pair in ends.chunks_exact(2) {
        for (a, b) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let peer = feroce_verbs::Peer {
                path,
                qpn: b.qpn(),
                rq_psn: feroce_verbs::Psn::new(1),
                sq_psn: feroce_verbs::Psn::new(1),
                path_mtu: feroce_verbs::Mtu::Mtu4096,
                access_flags: 0xf,
            };
            a.connect(&peer).unwrap();
        }
    }
    let each = (memory_bytes() - before) / QPS as u64;
    println!("{each} bytes for each idle RC queue pair");
    assert!(each < BYTES_PER_QP_MAX, "{each} bytes for each queue pair");
    first.buffer.write(0, b"still works").unwrap();
    first.write_all(&second);
    let mut seen = [0; 11];
    second.buffer.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"still works");
}

/// Bytes of anonymous memory in use, swapped or not.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}
