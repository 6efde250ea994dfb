//! What holds a sender back: windows, responder resources, fences, credits, turns; and what
//! many queue pairs cost.

use crate::testing::{
    BASE, Fate, Pair, Setup, ack_frame, address_of, bring_up, fetch_add, ok, read, send, write,
    write_to,
};
use crate::{QpState, QpType};
use core::time::Duration;
use feroce_wire::{Msn, Packet, Qpn};
use std::string::String;
use std::vec::Vec;

fn rc() -> Setup {
    Setup::new(QpType::Rc)
}

fn count(trace: &[String], word: &str) -> usize {
    trace.iter().filter(|words| words.contains(word)).count()
}

#[test]
fn no_more_bytes_are_in_flight_to_a_peer_than_its_window() {
    let mut pair = rc().with(|s| s.config.window_initial = 20_000).connect();
    pair.a.post(write(1).len(500_000));
    pair.transmit();
    let in_flight = pair.a.nic.bytes_in_flight();
    assert!((20_000..20_000 + 1536).contains(&in_flight), "{in_flight}");
    let trace = pair.trace();
    assert!(
        trace.last().unwrap().ends_with("+a"),
        "the last one asks: {trace:?}"
    );
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
    pair.assert_nothing_in_flight();
}

#[test]
fn the_owner_may_shrink_a_window_below_what_is_in_flight() {
    let mut pair = rc().connect();
    pair.a.post(write(1).len(500_000));
    pair.transmit();
    let peer = pair.b.address;
    pair.a.nic.set_peer_window(peer, 10_000);
    for _ in 0..50 {
        pair.step();
        pair.transmit();
    }
    assert!(pair.a.nic.bytes_in_flight() <= 10_000 + 1536);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
}

/// `count` queue pairs per end, all connected to their twin.
fn many(setup: &Setup, count: u32) -> Pair {
    let mut pair = setup.bare();
    for i in 0..count {
        let qpns = (Qpn::new(0x1000 + i), Qpn::new(0x8_0000 + i));
        (pair.a.qpn, pair.b.qpn) = qpns;
        pair.a.nic.create_qp(pair.a.qpn, setup.init()).unwrap();
        pair.b.nic.create_qp(pair.b.qpn, setup.init()).unwrap();
        let to_b = setup.attributes(&pair.a, &pair.b, (i, 77));
        let to_a = setup.attributes(&pair.b, &pair.a, (77, i));
        bring_up(&mut pair.a, QpType::Rc, to_b, QpState::ReadyToSend);
        bring_up(&mut pair.b, QpType::Rc, to_a, QpState::ReadyToSend);
    }
    pair
}

#[test]
fn queue_pairs_share_a_window_in_turn() {
    let setup = rc().with(|s| {
        s.config.window_initial = 9216;
        s.config.window_max = 9216;
        s.config.quantum = 2;
    });
    let mut pair = many(&setup, 20);
    for i in 0..20 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write(u64::from(i)).len(20_000));
    }
    pair.run_until_idle();
    let done: Vec<u64> = pair
        .a
        .completions()
        .iter()
        .map(|&(wr_id, _)| wr_id)
        .collect();
    let mut sorted = done.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    assert_eq!(
        pair.a.nic.counters().local_ack_timeout_err,
        0,
        "no one was forgotten"
    );
    pair.assert_nothing_in_flight();
    // All finish late: none was served before the others.
    let trace = pair.trace();
    let last = trace
        .iter()
        .position(|words| words.contains("last"))
        .unwrap();
    assert!(last * 10 > trace.len() * 6, "{last} of {}", trace.len());
}

#[test]
fn a_queue_pair_that_is_woken_and_has_no_use_for_it_passes_the_room_on() {
    let setup = rc().with(|s| s.config.window_initial = 9216);
    let mut pair = many(&setup, 3);
    for i in 0..3 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write(u64::from(i)).len(9000));
    }
    pair.transmit();
    // The second waits; it goes away, and the third must not wait for ever.
    pair.a.qpn = Qpn::new(0x1001);
    pair.a.move_to(QpState::Error);
    pair.a.completions();
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(0), ok(2)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
}

#[test]
fn queue_pairs_that_are_woken_but_drained_pass_the_room_on() {
    let setup = rc().with(|s| {
        s.config.window_initial = 9216;
        s.config.window_max = 9216;
    });
    let mut pair = many(&setup, 40);
    for i in 0..40 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write(u64::from(i)).len(9000));
    }
    pair.transmit();
    // Most wait to begin and may not begin any more; there are more of them than room for.
    for i in 1..39 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.move_to(QpState::SqDrained);
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(0), ok(39)]);
    for i in 1..39 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.move_to(QpState::ReadyToSend);
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 38);
}

/// Whoever hands its turn over may wait long for the next: what it has sent must be answered.
#[test]
fn the_last_packet_of_a_turn_asks_for_an_acknowledge() {
    let setup = rc().with(|s| s.config.quantum = 3);
    let mut pair = many(&setup, 2);
    for i in 0..2 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write(u64::from(i)).len(10_240));
    }
    pair.transmit();
    let trace = pair.trace();
    let asks: Vec<bool> = trace[..6]
        .iter()
        .map(|words| words.ends_with("+a"))
        .collect();
    assert_eq!(asks, [false, false, true, false, false, true]);
}

#[test]
fn read_responses_on_their_way_are_limited_over_all_queue_pairs() {
    let setup = rc().with(|s| {
        s.config.read_window = 10_000;
        s.config.read_chunk_max = 4096;
        s.rd_atomic = 16;
    });
    let mut pair = many(&setup, 10);
    for i in 0..10 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(read(u64::from(i)).len(20_000));
    }
    let mut most = 0;
    while pair.step() {
        most = most.max(pair.a.nic.bytes_in_flight());
    }
    assert!(most <= 10_000 + 4 * 1536, "{most}");
    assert_eq!(pair.a.completions().len(), 10);
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
    pair.assert_nothing_in_flight();
}

#[test]
fn no_more_reads_are_outstanding_than_agreed() {
    let mut pair = rc().with(|s| s.rd_atomic = 2).connect();
    for wr_id in 0..6 {
        pair.a.post(read(wr_id).len(10));
    }
    pair.a
        .nic
        .poll_transmit(pair.now, 64, &mut pair.a.host)
        .sent
        .eq(&2)
        .then_some(())
        .unwrap();
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 6);
    assert_eq!(pair.b.nic.counters().resp_invalid_request, 0);
}

#[test]
fn reads_without_responder_resources_fail_instead_of_hanging() {
    let mut pair = rc().with(|s| s.rd_atomic = 0).connect();
    pair.a.post(write(1));
    pair.a.post(read(2).len(10));
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [ok(1), (2, crate::CompletionStatus::LocalQpOperation)]
    );
}

/// FACTS §3.2: a fence waits for READs and atomics, not for WRITEs and SENDs.
#[test]
fn a_fence_waits_for_reads_and_atomics_only() {
    let mut pair = rc().connect();
    pair.a.post(write(1).len(10));
    pair.a.post(write(2).len(10).fenced());
    pair.a.post(read(3).len(10));
    pair.a.post(write(4).len(10).fenced());
    pair.a.post(write(5).len(10));
    pair.transmit();
    assert_eq!(
        pair.trace(),
        ["a write only 0 +a", "a write only 1 +a", "a read 2"]
    );
    pair.run_until_idle();
    assert_eq!(
        pair.trace(),
        [
            "b response only 2",
            "a write only 3 +a",
            "a write only 4 +a",
            "b ack 4"
        ]
    );
    pair.a.post(fetch_add(6, BASE + 64, 1));
    pair.a.post(fetch_add(7, BASE + 64, 1).fenced());
    pair.transmit();
    assert_eq!(pair.trace(), ["a fetch-add 5"]);
}

#[test]
fn credits_limit_messages_that_need_a_receive() {
    let mut pair = rc().connect();
    let from = address_of(&pair.b, &pair.a);
    pair.script(|words, _| {
        if words.starts_with('b') {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    for wr_id in 0..10 {
        pair.b.post_recv(wr_id, BASE, 10);
    }
    pair.a.post(send(0).len(1));
    pair.transmit();
    // One message done, two more receives (code 2).
    let grant = |pair: &mut Pair, psn: u32, msn: u32, code: u8| {
        let mut frame = ack_frame(pair.a.qpn, psn, code);
        let at = frame.len() - 7;
        frame[at..at + 3].copy_from_slice(&Msn::new(msn).value().to_be_bytes()[1..]);
        let packet = Packet::parse(&frame).unwrap();
        pair.a
            .nic
            .handle_packet(pair.now, &from, &packet, &mut pair.a.host);
        pair.transmit();
    };
    for wr_id in 1..8 {
        pair.a.post(send(wr_id).len(1));
        pair.a.post(write(10 + wr_id).len(1));
    }
    pair.trace();
    grant(&mut pair, 0, 1, 2);
    let trace = pair.trace();
    assert_eq!(
        trace,
        ["a send only 1 +a", "a write only 2 +a"],
        "up to message 1 + 2"
    );
    grant(&mut pair, 1, 2, 31);
    let trace = pair.trace();
    assert_eq!(count(&trace, "send"), 6, "no limit any more: {trace:?}");
    // An acknowledge that comes late knows less.
    grant(&mut pair, 1, 1, 0);
    pair.a.post(send(8).len(1));
    pair.transmit();
    assert_eq!(count(&pair.trace(), "send"), 1);
}

/// A receiver that is slower than the sender costs no RNR NAK: each acknowledge tells how many
/// receives there are, and a new one is told of without being asked.
#[test]
fn credits_keep_a_sender_from_running_into_rnr_naks() {
    let mut pair = rc().connect();
    for wr_id in 0..2 {
        pair.b.post_recv(wr_id, BASE, 5000);
    }
    pair.a.post(send(0).len(10));
    pair.run_for(Duration::from_micros(10));
    for wr_id in 1..50 {
        pair.a.post(send(wr_id).len(5000));
    }
    for wr_id in 2..50 {
        pair.run_for(Duration::from_micros(30));
        pair.b.post_recv(wr_id, BASE, 5000);
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 50);
    assert_eq!(pair.b.completions().len(), 50);
    assert_eq!(pair.b.nic.counters().out_of_buffer, 0);
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
}

/// A peer that tells of new receives by itself may take its time with them.
#[test]
fn a_slow_receiver_that_tells_of_its_receives_is_not_tried() {
    let mut pair = rc().connect();
    pair.b.post_recv(0, BASE, 10);
    pair.a.post(send(0).len(10));
    pair.run_for(Duration::from_micros(10));
    pair.b.post_recv(1, BASE, 10);
    pair.run_for(Duration::from_micros(10));
    for wr_id in 1..5 {
        pair.a.post(send(wr_id).len(10));
    }
    for wr_id in 2..5 {
        pair.run_for(Duration::from_millis(19));
        pair.b.post_recv(wr_id, BASE, 10);
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 5);
    assert_eq!(pair.b.nic.counters().out_of_buffer, 0);
}

#[test]
fn without_credits_one_message_is_tried_after_a_while() {
    let mut pair = rc().connect();
    pair.b.post_recv(0, BASE, 10);
    pair.a.post(send(0).len(10));
    pair.a.post(send(1).len(10));
    pair.run_for(Duration::from_micros(10));
    pair.a.completions();
    pair.trace();
    // Whatever tells of the new receive is lost.
    pair.script(|words, _| {
        if words == "b ack 0" {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    pair.run_for(Duration::from_micros(2_000));
    pair.b.post_recv(1, BASE, 10);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
}

#[test]
fn turns_are_of_a_quantum_and_the_budget_is_kept() {
    let setup = rc().with(|s| s.config.quantum = 4);
    let mut pair = many(&setup, 2);
    for i in 0..2 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write_to(u64::from(i), BASE).len(10_240));
    }
    let progress = pair.a.nic.poll_transmit(pair.now, 6, &mut pair.a.host);
    assert_eq!(
        (progress.sent, progress.more, progress.busy),
        (6, true, false)
    );
    let order: Vec<u32> = pair
        .a
        .host
        .sent
        .iter()
        .map(|f| f.to.dest_qp.value())
        .collect();
    assert_eq!(
        order,
        [0x80000, 0x80000, 0x80000, 0x80000, 0x80001, 0x80001]
    );
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 2);
}

#[test]
fn a_peer_without_room_does_not_keep_others_waiting() {
    let setup = rc().with(|s| s.config.quantum = 4);
    let mut pair = many(&setup, 3);
    for i in 0..3 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write_to(u64::from(i), BASE).len(10_240));
    }
    pair.a.host.no_room_for = Some(Qpn::new(0x80000));
    let progress = pair.a.nic.poll_transmit(pair.now, 1000, &mut pair.a.host);
    assert_eq!(
        (progress.sent, progress.more, progress.busy),
        (20, false, true)
    );
    let nothing = pair.a.nic.poll_transmit(pair.now, 1000, &mut pair.a.host);
    assert_eq!((nothing.sent, nothing.busy), (0, true));
    pair.a.host.no_room_for = None;
    let progress = pair.a.nic.poll_transmit(pair.now, 1000, &mut pair.a.host);
    assert_eq!((progress.sent, progress.busy), (10, false));
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 3);
}

#[test]
fn many_peers_without_room_cost_a_bounded_time_and_come_last() {
    let mut pair = many(&rc(), 200);
    for i in 0..200 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write_to(u64::from(i), BASE).len(10));
    }
    pair.a.host.room = 0;
    let _ = pair.a.nic.poll_transmit(pair.now, 1000, &mut pair.a.host);
    pair.a.host.room = usize::MAX;
    let _ = pair.a.nic.poll_transmit(pair.now, 1, &mut pair.a.host);
    let first = pair.a.host.sent.front().unwrap();
    assert_eq!(first.to.dest_qp, Qpn::new(0x80000 + 64));
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 200);
}

#[test]
fn responses_leave_before_requests() {
    let mut pair = rc().connect();
    pair.b.post(write(1).len(3000));
    pair.a.post(read(2).len(10));
    pair.a
        .nic
        .poll_transmit(pair.now, 64, &mut pair.a.host)
        .sent
        .eq(&1)
        .then_some(())
        .unwrap();
    let frame = pair.a.host.sent.pop_front().unwrap();
    pair.inject_to_b(&frame.bytes);
    let _ = pair.b.nic.poll_transmit(pair.now, 64, &mut pair.b.host);
    let first = pair.b.host.sent.front().unwrap();
    assert_eq!(first.bytes[0], 0x10, "READ response only");
}

#[test]
fn psns_wrap() {
    let mut pair = rc().with(|s| s.psn = (0xff_fffe, 0xff_fffd)).connect();
    pair.a.fill(BASE, 6000, 3);
    pair.a.post(write_to(1, BASE + 10_000).len(6000));
    pair.a.post(read(2).at(BASE + 30_000, 6000));
    pair.drop_once("a write middle 0");
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), ok(2)]);
    assert_eq!(
        pair.a.host.bytes(BASE, 6000),
        pair.b.host.bytes(BASE + 10_000, 6000)
    );
    assert_eq!(pair.a.nic.counters().local_ack_timeout_err, 0);
}

#[test]
fn an_idle_queue_pair_is_small() {
    let size = size_of::<crate::qp::Qp>();
    assert!(size < 1024, "{size}");
    // What a posted request costs beside its inline data.
    let size = size_of::<crate::requester::Wqe>();
    assert!(size <= 320, "{size}");
}

#[test]
fn ten_thousand_queue_pairs() {
    let setup = rc().with(|s| s.memory = 4096);
    let mut pair = many(&setup, 10_000);
    assert_eq!(pair.a.nic.poll_timeout(), None, "idle costs nothing");
    for i in 0..10_000 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write(u64::from(i)).len(64));
    }
    pair.run_until_idle();
    let completions = pair.a.completions();
    assert_eq!(completions.len(), 10_000);
    assert_eq!(pair.a.nic.counters().retransmissions, 0);
    pair.assert_nothing_in_flight();
    for i in 0..10_000 {
        pair.a.nic.destroy_qp(Qpn::new(0x1000 + i)).unwrap();
    }
    assert_eq!(pair.a.nic.qp_count(), 0);
}

#[test]
fn a_timer_that_moves_fires_once_in_vain_at_most() {
    let mut pair = rc().connect();
    let mut timeouts = 0;
    for wr_id in 0..100 {
        pair.a.post(write(wr_id).len(10));
        pair.run_for(Duration::from_micros(10));
        timeouts += usize::from(pair.a.nic.poll_timeout().is_some());
    }
    assert!(timeouts > 90);
    // One for the ACK timeout, one for the hold on the window.
    for _ in 0..2 {
        let at = pair.a.nic.poll_timeout().unwrap();
        pair.a.nic.handle_timeout(at, &mut pair.a.host);
    }
    assert_eq!(pair.a.nic.poll_timeout(), None);
    assert_eq!(pair.a.completions().len(), 100);
}

/// A queue pair whose peer is gone holds the window for `window_hold`, not for its retries.
#[test]
fn a_dead_peer_does_not_hold_up_the_others() {
    let setup = rc().with(|s| {
        s.timeout = 20; // 4.3 s
        s.config.window_initial = 20_000;
    });
    let mut pair = many(&setup, 2);
    pair.script(|_, packet| {
        if packet.dest_qp.value() == 0x8_0000 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    for i in 0..2 {
        pair.a.qpn = Qpn::new(0x1000 + i);
        pair.a.post(write(u64::from(i)).len(200_000));
    }
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.a.completions(), [], "the first has filled the window");
    let sent = pair.a.nic.counters().tx_packets;
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(
        pair.a.nic.counters().tx_packets,
        sent + 196,
        "the dead one sends no more"
    );
    pair.a.qpn = Qpn::new(0x1000);
    pair.a.post(write(9).len(10));
    pair.transmit();
    let sent_since = pair.a.nic.counters().tx_packets - sent;
    assert_eq!(sent_since, 196, "nor when it is given more to send");
    pair.run_for(Duration::from_secs(40));
    assert_eq!(
        pair.a.completions(),
        [
            (0, crate::CompletionStatus::RetryExceeded),
            crate::testing::flushed(9)
        ]
    );
    pair.assert_nothing_in_flight();
}

#[test]
fn all_unreliable_queue_pairs_share_one_rate() {
    let setup = Setup::new(QpType::Uc).with(|s| s.config.unreliable_rate = 100_000_000);
    let mut pair = setup.connect();
    for wr_id in 0..10 {
        pair.a.post(write(wr_id).len(100_000));
    }
    while pair.a.host.completions.len() < 10 {
        pair.step();
    }
    // 980 packets of 1,536 bytes with overhead
    let micros = pair.now.nanos() / 1000;
    assert!((14_900..15_200).contains(&micros), "{micros}");
}
