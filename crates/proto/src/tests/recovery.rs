//! RC under scripted loss: who notices, who goes back, and how often.

use crate::testing::{
    BASE, Fate, KEY, Pair, Setup, Wr, fetch_add, flushed, ok, read, read_from, send, write,
    write_to,
};
use crate::{BindRequest, CompletionStatus, QpState, QpType, SendOperation};
use core::time::Duration;
use std::string::String;
use std::vec::Vec;

fn rc() -> Setup {
    Setup::new(QpType::Rc)
}

fn micros(duration: u64) -> Duration {
    Duration::from_micros(duration)
}

/// The trace without what does not matter to a test.
fn only(pair: &mut Pair, word: &str) -> Vec<String> {
    let mut trace = pair.trace();
    trace.retain(|words| words.contains(word));
    trace
}

#[test]
fn a_gap_draws_one_nak_and_sending_resumes_at_its_psn() {
    let mut pair = rc().connect();
    pair.drop_once("a write middle 1");
    pair.a.fill(BASE, 5000, 1);
    pair.a.post(write_to(1, BASE + 10_000).len(5000));
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        [
            "a write first 0",
            "a write middle 1",
            "a write middle 2",
            "a write middle 3",
            "a write last 4 +a",
            "b nak sequence 1",
            "a write middle 1",
            "a write middle 2",
            "a write middle 3",
            "a write last 4 +a",
            "b ack 4",
        ]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(
        pair.a.host.bytes(BASE, 5000),
        pair.b.host.bytes(BASE + 10_000, 5000)
    );
    assert_eq!(pair.a.nic.counters().packet_seq_err, 1);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
    assert_eq!(pair.a.nic.counters().retransmissions, 4);
    pair.assert_nothing_in_flight();
}

#[test]
fn each_gap_draws_a_nak_of_its_own() {
    let mut pair = rc().connect();
    // Each is lost in the round that the gap before it began.
    let mut left = [
        ("a write middle 1", 1),
        ("a write middle 3", 2),
        ("a write middle 6", 3),
    ];
    pair.script(move |words, _| {
        let Some((_, left)) = left.iter_mut().find(|(lost, _)| *lost == words) else {
            return Fate::Pass;
        };
        *left -= 1;
        if *left == 0 { Fate::Drop } else { Fate::Pass }
    });
    pair.a.post(write(1).len(9000));
    pair.run_until_idle();
    let naks = only(&mut pair, "nak");
    assert_eq!(
        naks,
        ["b nak sequence 1", "b nak sequence 3", "b nak sequence 6"]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
}

#[test]
fn a_repeated_nak_starts_no_second_recovery() {
    let mut pair = rc().connect();
    pair.script(|words, _| match words {
        "a write middle 1" => Fate::Drop,
        "b nak sequence 1" => Fate::Duplicate,
        _ => Fate::Pass,
    });
    pair.a.post(write(1).len(3000));
    pair.run_for(micros(100));
    assert_eq!(pair.a.nic.counters().packet_seq_err, 2);
    assert_eq!(pair.a.nic.counters().retransmissions, 2);
}

#[test]
fn a_lost_last_packet_is_sent_again_after_the_timeout_and_not_before() {
    let mut pair = rc().connect();
    pair.drop_once("a write last 1 +a");
    pair.a.post(write(1).len(2000));
    // 4.096 µs · 2^8
    pair.run_for(Duration::from_nanos(1_048_575));
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
    pair.run_for(micros(10));
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 1);
    assert_eq!(pair.a.nic.counters().retransmissions, 2);
    pair.run_until_idle();
    pair.assert_nothing_in_flight();
}

/// W3: the timer restarts on progress; a busy loss-free queue pair never retries.
#[test]
fn w3_no_retry_while_acknowledges_come() {
    let setup = rc().with(|s| {
        s.timeout = 2; // 16 µs, eight round trips
        s.config.window_max = 20_000;
    });
    let mut pair = setup.connect();
    let mut posted = 0;
    while posted < 2000 {
        while pair
            .a
            .try_post(write(posted).len(4000).unsignaled())
            .is_ok()
        {
            posted += 1;
        }
        pair.step();
    }
    pair.run_until_idle();
    assert!(
        pair.now.nanos() > 100_000,
        "many timeouts long: {:?}",
        pair.now
    );
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
}

#[test]
fn retries_are_counted_and_then_the_request_fails() {
    for retry_count in [0, 1, 7] {
        let mut pair = rc().with(|s| s.retry_count = retry_count).connect();
        pair.script(|words, _| {
            if words.starts_with('a') {
                Fate::Drop
            } else {
                Fate::Pass
            }
        });
        pair.a.post(write(1).unsignaled());
        pair.a.post(write(2).unsignaled());
        pair.run_until_idle();
        let timeouts = pair.a.nic.counters().local_ack_timeout_err;
        assert_eq!(timeouts, u64::from(retry_count) + 1);
        assert_eq!(
            pair.a.completions(),
            [(1, CompletionStatus::RetryExceeded), flushed(2)]
        );
        assert_eq!(pair.a.state(), QpState::Error);
        pair.assert_nothing_in_flight();
    }
}

#[test]
fn progress_gives_all_retries_back() {
    let mut pair = rc().with(|s| s.retry_count = 1).connect();
    // Every message is lost once: more losses than retries, each followed by progress.
    let mut last = String::new();
    pair.script(move |words, _| {
        if words.starts_with('a') && words != last {
            last = words.into();
            return Fate::Drop;
        }
        Fate::Pass
    });
    for wr_id in 0..5 {
        pair.a.post(write(wr_id));
        pair.run_until_idle();
        assert_eq!(pair.a.completions(), [ok(wr_id)]);
    }
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 5);
}

/// W4: after an RNR NAK the sender waits at least the time it names; the ACK timer, which is
/// shorter here, does not cut that short, and the NAKs of packets behind start nothing.
#[test]
fn w4_rnr_wait_is_kept() {
    let mut pair = rc()
        .with(|s| {
            s.min_rnr_timer = 14; // 1.28 ms
            s.timeout = 5; // 131 µs
        })
        .connect();
    pair.a.post(send(1).len(10));
    pair.a.post(send(2).len(10));
    pair.run_for(micros(1279));
    assert_eq!(
        pair.trace(),
        ["a send only 0 +a", "a send only 1 +a", "b rnr 0"]
    );
    pair.b.post_recv(8, BASE, 10);
    pair.b.post_recv(9, BASE, 10);
    pair.run_for(micros(10));
    assert_eq!(
        pair.trace(),
        ["a send only 0 +a", "a send only 1 +a", "b ack 1"]
    );
    assert_eq!(pair.a.completions(), [ok(1), ok(2)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
    assert_eq!(pair.b.nic.counters().out_of_buffer, 1);
}

#[test]
fn a_repeated_rnr_nak_costs_one_retry_and_one_wait() {
    let mut pair = rc().with(|s| s.rnr_retry = 1).connect();
    pair.script(|words, _| {
        if words == "b rnr 0" {
            Fate::Duplicate
        } else {
            Fate::Pass
        }
    });
    pair.a.post(send(1).len(10));
    pair.run_for(micros(630));
    pair.b.post_recv(8, BASE, 10);
    pair.run_for(micros(20));
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.nic.counters().rnr_nak_received, 2);
}

/// Some responders complain about what follows a refused packet: that is no loss and costs no
/// retry.
#[test]
fn sequence_naks_behind_an_rnr_nak_mean_nothing() {
    let mut pair = rc().with(|s| s.retry_count = 0).connect();
    let from = crate::testing::address_of(&pair.b, &pair.a);
    pair.a.post(send(1).len(10));
    pair.a.post(send(2).len(10));
    pair.transmit();
    for syndrome in [0x20 | 12, 0x60] {
        let frame = crate::testing::ack_frame(pair.a.qpn, 0, syndrome);
        let packet = feroce_wire::Packet::parse(&frame).unwrap();
        pair.a
            .nic
            .handle_packet(pair.now, &from, &packet, &mut pair.a.host);
    }
    assert_eq!(pair.a.state(), QpState::ReadyToSend);
    pair.b.post_recv(8, BASE, 10);
    pair.b.post_recv(9, BASE, 10);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), ok(2)]);
    assert!(pair.now.nanos() >= 640_000);
}

#[test]
fn rnr_retries_are_counted_and_seven_is_for_ever() {
    for (rnr_retry, naks) in [(0, 1), (3, 4)] {
        let mut pair = rc()
            .with(|s| {
                s.rnr_retry = rnr_retry;
                s.min_rnr_timer = 1;
            })
            .connect();
        pair.a.post(send(1));
        pair.run_until_idle();
        assert_eq!(
            pair.a.completions(),
            [(1, CompletionStatus::RnrRetryExceeded)]
        );
        assert_eq!(pair.a.nic.counters().rnr_nak_received, naks);
    }
    let mut pair = rc().with(|s| s.min_rnr_timer = 1).connect();
    pair.a.post(send(1));
    pair.run_for(micros(1000));
    assert!(pair.a.nic.counters().rnr_nak_received > 50);
    pair.b.post_recv(1, BASE, 10);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
}

#[test]
fn write_with_immediate_meets_rnr_at_its_last_packet() {
    let mut pair = rc().connect();
    pair.a.fill(BASE, 2000, 1);
    let operation = SendOperation::WriteImmediate(crate::testing::remote(BASE + 5000), 0xabcd);
    pair.a.post(Wr::new(1, operation).len(2000));
    pair.run_for(micros(20));
    assert_eq!(
        pair.trace(),
        ["a write first 0", "a write last 1 +a", "b rnr 1"]
    );
    pair.b.post_recv(7, BASE, 0);
    pair.run_until_idle();
    assert_eq!(pair.trace(), ["a write last 1 +a", "b ack 1"]);
    let received = pair.b.completion();
    assert_eq!(
        (received.byte_len, received.immediate),
        (2000, Some(0xabcd))
    );
    assert_eq!(
        pair.a.host.bytes(BASE, 2000),
        pair.b.host.bytes(BASE + 5000, 2000)
    );
}

/// W5: the answer of an atomic is lost; asked again, the responder gives the saved value and
/// does not execute again.
#[test]
fn w5_a_lost_atomic_answer_is_replayed() {
    let mut pair = rc().connect();
    pair.b.host.set_word(BASE + 64, 5);
    pair.drop_once("b atomic-ack 0");
    pair.a.post(fetch_add(1, BASE + 64, 3));
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        [
            "a fetch-add 0",
            "b atomic-ack 0",
            "a fetch-add 0",
            "b atomic-ack 0"
        ]
    );
    assert_eq!(pair.a.host.word(BASE), 5);
    assert_eq!(pair.b.host.word(BASE + 64), 8);
    assert_eq!(pair.b.host.atomics, 1);
    assert_eq!(pair.a.completions(), [ok(1)]);
}

#[test]
fn a_duplicate_atomic_that_is_not_remembered_is_dropped() {
    let mut pair = rc().with(|s| s.rd_atomic = 1).connect();
    for wr_id in 0..3 {
        pair.a.post(fetch_add(wr_id, BASE + 64, 1));
    }
    pair.run_until_idle();
    pair.trace();
    let again = crate::testing::atomic_frame(pair.b.qpn, 0, BASE + 64);
    pair.inject_to_b(&again);
    pair.run_until_idle();
    assert_eq!(pair.trace(), Vec::<String>::new());
    assert_eq!(pair.b.host.atomics, 3);
}

/// W6: going back does not execute local operations again.
#[test]
fn w6_local_operations_run_once() {
    let mut pair = rc().connect();
    pair.drop_once("a write only 0 +a");
    pair.a.host.keys.insert(0x200, pair.a.host.keys[&KEY]);
    let bind = BindRequest {
        window: 0x300,
        region: KEY,
        address: BASE,
        length: 100,
        access: 0,
        type_2: true,
    };
    pair.a.post(write(1).len(10));
    pair.a.post(Wr::new(2, SendOperation::Bind(bind)));
    pair.a.post(write(3).len(10));
    pair.a
        .post(Wr::new(4, SendOperation::LocalInvalidate(0x200)));
    pair.a.post(write(5).len(10));
    pair.run_until_idle();
    assert_eq!(
        only(&mut pair, "a "),
        [
            "a write only 0 +a",
            "a write only 1 +a",
            "a write only 0 +a",
            "a write only 1 +a",
            "a write only 2 +a"
        ],
        "the invalidate waits until nothing before it can need the key"
    );
    assert_eq!(pair.a.completions(), [ok(1), ok(2), ok(3), ok(4), ok(5)]);
    assert_eq!((pair.a.host.binds, pair.a.host.invalidates), (1, 1));
}

#[test]
fn a_lost_read_response_is_asked_for_from_there() {
    let mut pair = rc().connect();
    pair.b.fill(BASE, 5000, 4);
    pair.drop_once("b response middle 2");
    pair.a.post(read(1).at(BASE + 10_000, 5000));
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        [
            "a read 0",
            "b response first 0",
            "b response middle 1",
            "b response middle 2",
            "b response middle 3",
            "b response last 4",
            "a read 2",
            "b response first 2",
            "b response middle 3",
            "b response last 4",
        ]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(
        pair.b.host.bytes(BASE, 5000),
        pair.a.host.bytes(BASE + 10_000, 5000)
    );
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
    pair.assert_nothing_in_flight();
}

#[test]
fn an_acknowledge_does_not_jump_over_a_read() {
    let mut pair = rc().connect();
    pair.b.fill(BASE, 100, 5);
    pair.drop_once("b response only 1");
    pair.a.post(write_to(1, BASE + 500).len(100));
    pair.a.post(read(2).at(BASE + 10_000, 100));
    pair.a.post(write_to(3, BASE + 700).len(100));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), ok(2), ok(3)]);
    assert_eq!(
        pair.b.host.bytes(BASE, 100),
        pair.a.host.bytes(BASE + 10_000, 100)
    );
    assert_eq!(pair.a.nic.counters().implied_nak_seq_err, 1);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
}

#[test]
fn a_long_read_goes_in_pieces_and_only_the_missing_rest_is_repeated() {
    let mut pair = rc().with(|s| s.config.read_chunk_max = 2048).connect();
    pair.b.fill(BASE, 4500, 6);
    pair.drop_once("b response last 3");
    pair.a.post(read_from(1, BASE).at(BASE + 10_000, 4500));
    pair.run_until_idle();
    assert_eq!(
        only(&mut pair, "a "),
        ["a read 0", "a read 2", "a read 4", "a read 3", "a read 4"]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(
        pair.b.host.bytes(BASE, 4500),
        pair.a.host.bytes(BASE + 10_000, 4500)
    );
}

#[test]
fn a_lost_acknowledge_is_given_again_and_nothing_is_executed_twice() {
    let mut pair = rc().connect();
    pair.b.post_recv(1, BASE, 100);
    pair.b.post_recv(2, BASE, 100);
    pair.drop_once("b ack 0");
    pair.a.post(send(1).len(100));
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        ["a send only 0 +a", "b ack 0", "a send only 0 +a", "b ack 0"]
    );
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.b.completions(), [ok(1)]);
    assert_eq!(pair.b.nic.counters().duplicate_request, 1);
}

#[test]
fn acknowledges_of_nothing_are_ignored() {
    let mut pair = rc().connect();
    let from = crate::testing::address_of(&pair.b, &pair.a);
    for psn in [0, 5, 0x80_0000, 0xff_ffff] {
        for syndrome in [0x1f, 0x20, 0x60, 0x61, 0x62, 0x40, 0x7f] {
            let frame = crate::testing::ack_frame(pair.a.qpn, psn, syndrome);
            let packet = feroce_wire::Packet::parse(&frame).unwrap();
            pair.a
                .nic
                .handle_packet(pair.now, &from, &packet, &mut pair.a.host);
        }
    }
    pair.run_until_idle();
    assert_eq!(pair.a.state(), QpState::ReadyToSend);
    pair.a.post(write(1).len(10));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
}

/// FACTS §3.2: transmit back-pressure must leave no trace in what is sent.
#[test]
fn a_busy_host_changes_nothing_but_the_time() {
    let mut pair = rc().connect();
    pair.a.fill(BASE, 9000, 9);
    pair.a.post(write_to(1, BASE + 20_000).len(9000));
    for _ in 0..20 {
        pair.a.host.room = 1;
        let progress = pair.a.nic.poll_transmit(pair.now, 64, &mut pair.a.host);
        assert!(progress.sent <= 1);
        if progress.busy {
            assert_eq!(progress.sent, 1);
        }
    }
    pair.a.host.room = usize::MAX;
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(
        pair.a.host.bytes(BASE, 9000),
        pair.b.host.bytes(BASE + 20_000, 9000)
    );
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
}

/// FACTS §3.2 (replay array): a smaller `max_dest_rd_atomic` forgets no answer in use.
#[test]
fn changing_max_dest_rd_atomic_keeps_the_answers() {
    let mut pair = rc().connect();
    pair.drop_once("b atomic-ack 0");
    pair.a.post(fetch_add(1, BASE + 64, 1));
    pair.run_for(micros(10));
    pair.b.move_to(QpState::SqDrained);
    let attributes = crate::QpAttributes {
        state: QpState::SqDrained,
        max_dest_rd_atomic: 1,
        ..crate::QpAttributes::default()
    };
    let mask = crate::AttributeMask::STATE | crate::AttributeMask::MAX_DEST_RD_ATOMIC;
    pair.b.modify(&attributes, mask).unwrap();
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.b.host.atomics, 1);
}
