//! RC without loss: cutting, acknowledging, completing.

use crate::testing::{BASE, Setup, fetch_add, ok, read, send, write, write_to};
use crate::{CompletionOpcode, QpType};
use core::time::Duration;

fn rc() -> Setup {
    Setup::new(QpType::Rc)
}

#[test]
fn a_write_is_cut_by_the_path_mtu_and_acknowledged_once() {
    let mut pair = rc().connect();
    pair.a.fill(BASE, 4000, 1);
    pair.a.post(write_to(1, BASE + 8000).len(4000));
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        [
            "a write first 0",
            "a write middle 1",
            "a write middle 2",
            "a write last 3 +a",
            "b ack 3"
        ]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.b.completions(), []);
    assert_eq!(
        pair.a.host.bytes(BASE, 4000),
        pair.b.host.bytes(BASE + 8000, 4000)
    );
    pair.assert_nothing_in_flight();
}

#[test]
fn a_send_lands_in_the_receive_and_completes_on_both_sides() {
    let mut pair = rc().connect();
    pair.a.fill(BASE, 1025, 2);
    pair.b.post_recv(7, BASE + 100, 5000);
    pair.a.post(send(1).len(1025).solicited());
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        ["a send first 0", "a send last 1 +a", "b ack 1"]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    let received = pair.b.completion();
    assert_eq!(received.wr_id, 7);
    assert_eq!(received.byte_len, 1025);
    assert_eq!(received.opcode, CompletionOpcode::Receive);
    assert!(received.solicited);
    assert_eq!(
        pair.a.host.bytes(BASE, 1025),
        pair.b.host.bytes(BASE + 100, 1025)
    );
}

#[test]
fn a_read_is_answered_from_memory() {
    let mut pair = rc().connect();
    pair.b.fill(BASE, 2500, 3);
    pair.a.post(read(1).at(BASE + 10_000, 2500));
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        [
            "a read 0",
            "b response first 0",
            "b response middle 1",
            "b response last 2"
        ]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(
        pair.b.host.bytes(BASE, 2500),
        pair.a.host.bytes(BASE + 10_000, 2500)
    );
    pair.assert_nothing_in_flight();
}

#[test]
fn an_atomic_returns_the_value_before() {
    let mut pair = rc().connect();
    pair.b.host.set_word(BASE + 64, 40);
    pair.a.post(fetch_add(1, BASE + 64, 2));
    pair.run_until_idle();
    assert_eq!(pair.trace(), ["a fetch-add 0", "b atomic-ack 0"]);
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.host.word(BASE), 40);
    assert_eq!(pair.b.host.word(BASE + 64), 42);
}

#[test]
fn requests_complete_in_order_and_unsignaled_ones_silently() {
    let mut pair = rc().connect();
    for wr_id in 0..50 {
        let request = write(wr_id).len(3000);
        pair.a.post(if wr_id % 10 == 9 {
            request
        } else {
            request.unsignaled()
        });
    }
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [ok(9), ok(19), ok(29), ok(39), ok(49)]
    );
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
    pair.assert_nothing_in_flight();
}

#[test]
fn a_held_acknowledge_leaves_behind_the_next_request() {
    let mut pair = rc().connect();
    pair.b.nic.hold_acknowledges(true);
    pair.a.post(write(1).len(8));
    pair.run_for(Duration::from_micros(100));
    assert_eq!(pair.trace(), ["a write only 0 +a"]);
    assert!(pair.b.nic.holds_acknowledges());

    pair.b.post(write(2).len(8));
    pair.b.nic.hold_acknowledges(false);
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        ["b write only 100 +a", "b ack 0", "a ack 100"]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.b.completions(), [ok(2)]);
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
}

#[test]
fn a_held_acknowledge_covers_all_that_came_and_leaves_by_itself_when_released() {
    let mut pair = rc().connect();
    pair.b.nic.hold_acknowledges(true);
    (0..3).for_each(|wr_id| pair.a.post(write(wr_id).len(8)));
    pair.run_for(Duration::from_micros(100));
    pair.trace();
    pair.b.nic.hold_acknowledges(false);
    assert!(!pair.b.nic.holds_acknowledges());
    pair.run_until_idle();
    assert_eq!(pair.trace(), ["b ack 2"]);
    assert_eq!(pair.a.completions(), [ok(0), ok(1), ok(2)]);
}

#[test]
fn responses_and_complaints_are_not_held() {
    let mut pair = rc().connect();
    pair.b.nic.hold_acknowledges(true);
    pair.a.post(read(1).at(BASE + 10_000, 8));
    pair.a.post(fetch_add(2, BASE + 64, 2));
    pair.a.post(send(3).len(8));
    pair.run_for(Duration::from_micros(100));
    assert_eq!(
        pair.trace(),
        [
            "a read 0",
            "a fetch-add 1",
            "a send only 2 +a",
            "b response only 0",
            "b atomic-ack 1",
            "b rnr 2"
        ]
    );
}

#[test]
fn a_queue_pair_that_goes_takes_its_held_acknowledge_along() {
    let mut pair = rc().connect();
    pair.b.nic.hold_acknowledges(true);
    pair.a.post(write(1).len(8));
    pair.run_for(Duration::from_micros(100));
    pair.b.nic.destroy_qp(pair.b.qpn).unwrap();
    assert!(!pair.b.nic.holds_acknowledges());
}

#[test]
fn the_acknowledge_of_a_turn_comes_last_but_within_it() {
    let mut pair = rc().with(|setup| setup.config.quantum = 4).connect();
    for wr_id in 0..8 {
        pair.b.post(write(wr_id).len(8));
    }
    pair.a.post(write(9).len(8));
    pair.run_until_idle();
    let trace = pair.trace();
    let ack = trace.iter().position(|words| words == "b ack 0").unwrap();
    let before = trace[..ack]
        .iter()
        .filter(|words| words.starts_with("b write"));
    assert!(before.count() <= 8, "{trace:?}");
    assert_eq!(pair.a.completions(), [ok(9)]);
}
