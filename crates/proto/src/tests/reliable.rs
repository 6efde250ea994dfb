//! RC without loss: cutting, acknowledging, completing.

use crate::testing::{BASE, Setup, fetch_add, ok, read, send, write, write_to};
use crate::{CompletionOpcode, QpType};

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
