//! Every operation over a good network, and over one that drops exactly one packet.

use super::pair::{Fate, OK, Setup, at, request, write};
use crate::testing::BASE;
use crate::{CompletionOpcode, SendOperation};
use std::vec;

const HALF: u64 = 1 << 19;

#[test]
fn a_write_is_placed_and_completes() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 10_000, 1);
    pair.a.post(pair.now, write(7, HALF, 0, 10_000));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(7, OK)]);
    let sent = pair.a.host.bytes(BASE, 10_000).to_vec();
    assert_eq!(pair.b.host.bytes(BASE + HALF, 10_000), sent);
    assert_eq!(pair.b.completions(), []);
}

#[test]
fn sends_use_receives_in_order() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 8000, 1);
    for wr_id in 0..4 {
        pair.b
            .post_recv(pair.now, wr_id, BASE + HALF + wr_id * 4096, 4096);
    }
    let operations = [
        SendOperation::Send,
        SendOperation::SendImmediate(77),
        SendOperation::WriteImmediate(at(1 << 18), 78),
        SendOperation::Send,
    ];
    for (place, operation) in operations.into_iter().enumerate() {
        let wr_id = place as u64;
        pair.a.post(
            pair.now,
            request(wr_id, operation, BASE + wr_id * 2000, 2000),
        );
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(0, OK), (1, OK), (2, OK), (3, OK)]);
    let received = pair.b.full_completions();
    let told: vec::Vec<_> = received.iter().map(|c| (c.wr_id, c.immediate)).collect();
    assert_eq!(told, [(0, None), (1, Some(77)), (2, Some(78)), (3, None)]);
    assert_eq!(received[2].opcode, CompletionOpcode::ReceiveWithImmediate);
    for (from, to) in [
        (0, HALF),
        (2000, HALF + 4096),
        (4000, 1 << 18),
        (6000, HALF + 3 * 4096),
    ] {
        let sent = pair.a.host.bytes(BASE + from, 2000).to_vec();
        assert_eq!(pair.b.host.bytes(BASE + to, 2000), sent);
    }
}

#[test]
fn reads_and_atomics_are_answered() {
    let mut pair = Setup::default().connect();
    pair.b.fill(BASE, 9000, 2);
    pair.b.host.set_word(BASE + 16_000, 5);
    let read = request(1, SendOperation::Read(at(0)), BASE + HALF, 9000);
    pair.a.post(pair.now, read);
    let add = SendOperation::FetchAdd {
        remote: at(16_000),
        add: 3,
    };
    pair.a.post(pair.now, request(2, add, BASE + 64, 8));
    let swap = SendOperation::CompareSwap {
        remote: at(16_000),
        compare: 8,
        swap: 100,
    };
    pair.a.post(pair.now, request(3, swap, BASE + 72, 8));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK), (2, OK), (3, OK)]);
    let there = pair.b.host.bytes(BASE, 9000).to_vec();
    assert_eq!(pair.a.host.bytes(BASE + HALF, 9000), there);
    assert_eq!(pair.a.host.word(BASE + 64), 5);
    assert_eq!(pair.a.host.word(BASE + 72), 8);
    assert_eq!(pair.b.host.word(BASE + 16_000), 100);
}

//= MR-REL-010 type=test
#[test]
fn a_gap_is_repaired_at_once() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 64 << 10, 1);
    let mut dropped = false;
    pair.script = Some(std::boxed::Box::new(move |words, _| {
        if words.contains("Write m100 @4096") && !dropped {
            dropped = true;
            return Fate::Drop;
        }
        Fate::Pass
    }));
    let start = pair.now;
    pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert_eq!(pair.count("Write m100 @4096 "), 2);
    assert_eq!(pair.a.endpoint.counters().retransmissions, 1);
    assert!(pair.now.since(start).as_micros() < 100);
    let sent = pair.a.host.bytes(BASE, 64 << 10).to_vec();
    assert_eq!(pair.b.host.bytes(BASE + HALF, 64 << 10), sent);
}
