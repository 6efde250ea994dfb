//! DREQ, DREP, TIMEWAIT, and programs that lose interest.

use super::bench::{Bench, PORT, QP_B, RESPONSE_TIME, events, service};
use crate::cm::{Accept, CmError, Connect, ConnectionState};
use core::time::Duration;
use feroce_wire::{Psn, Qpn};
use std::vec::Vec;

#[test]
fn dreq_drep_and_both_names_are_forgotten() {
    let mut bench = Bench::new();
    let (at_a, at_b) = bench.connected();
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    bench.a_sends(&["DREQ"]);
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Disconnected Asked"]);
    bench.b_sends(&["DREP"]);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Disconnected Answered"]);
    // A second call is no error and does nothing.
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    bench.b.cm.disconnect(bench.now, at_b, &[]).unwrap();
    bench.a_sends(&[]);
    bench.b_sends(&[]);
    bench.wait(Duration::from_secs(20));
    assert_eq!(events(&mut bench.a), ["TimewaitExit"]);
    assert_eq!(events(&mut bench.b), ["TimewaitExit"]);
    assert_eq!(
        bench.a.cm.disconnect(bench.now, at_a, &[]),
        Err(CmError::UnknownConnection(at_a))
    );
    bench.expect_empty();
}

#[test]
fn a_lost_drep_is_sent_again_from_timewait_and_from_nothing() {
    let mut bench = Bench::new();
    let (at_a, _) = bench.connected();
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    bench.deliver_to_b();
    bench.to_a.clear();
    bench.wait(RESPONSE_TIME);
    bench.a_sends(&["DREQ"]);
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Disconnected Asked"]);
    bench.b_sends(&["DREP"]);
    bench.to_a.clear();
    // b has forgotten everything: it agrees to what is over anyway.
    bench
        .b
        .cm
        .handle_timeout(bench.now + Duration::from_secs(60));
    assert_eq!(events(&mut bench.b), ["TimewaitExit"]);
    bench.wait(RESPONSE_TIME);
    bench.a_sends(&["DREQ"]);
    bench.deliver_to_b();
    bench.b_sends(&["DREP"]);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Disconnected Answered"]);
}

#[test]
fn dreqs_that_cross_end_the_connection_once_on_each_side() {
    let mut bench = Bench::new();
    let (at_a, at_b) = bench.connected();
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    bench.b.cm.disconnect(bench.now, at_b, &[]).unwrap();
    bench.a_sends(&["DREQ"]);
    bench.b_sends(&["DREQ"]);
    bench.settle();
    assert_eq!(events(&mut bench.a), ["Disconnected Asked"]);
    assert_eq!(events(&mut bench.b), ["Disconnected Asked"]);
}

#[test]
fn a_dead_peer_is_given_up_after_the_last_dreq() {
    let mut bench = Bench::new();
    let (at_a, _) = bench.connected();
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    for _ in 0..3 {
        bench.a_sends(&["DREQ"]);
        bench.to_b.clear();
        bench.wait(RESPONSE_TIME);
    }
    assert_eq!(events(&mut bench.a), ["Disconnected Unanswered"]);
    assert_eq!(bench.a.cm.state(at_a), Some(ConnectionState::Timewait));
}

#[test]
fn a_dreq_says_that_a_lost_rtu_was_sent() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.deliver_to_a();
    bench.a.cm.establish(bench.now, at_a, &[]).unwrap();
    bench.collect();
    bench.to_b.clear();
    bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
    bench.deliver_to_b();
    assert_eq!(
        events(&mut bench.b),
        ["Established by traffic", "Disconnected Asked"]
    );
}

#[test]
fn who_is_accepted_and_at_once_disconnected_is_rejected_even_if_the_rep_was_lost() {
    let mut bench = Bench::new();
    bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.to_a.clear();
    bench.b.cm.disconnect(bench.now, at_b, &[]).unwrap();
    bench.b_sends(&["DREQ"]);
    // That gets lost as well, so the REQ comes again.
    bench.to_a.clear();
    bench.a.cm.handle_timeout(bench.now + RESPONSE_TIME);
    bench.a_sends(&["REQ"]);
    bench.deliver_to_b();
    bench.b_sends(&["REJ 28"]);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Rejected 28"]);
}

#[test]
fn the_same_queue_pair_connects_again_at_once() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        let (at_a, at_b) = bench.connected();
        bench.b.cm.disconnect(bench.now, at_b, &[]).unwrap();
        bench.settle();
        assert_eq!(events(&mut bench.a), ["Disconnected Asked"]);
        assert_eq!(events(&mut bench.b), ["Disconnected Answered"]);
        assert_eq!(bench.a.cm.state(at_a), Some(ConnectionState::Timewait));
    }
}

#[test]
fn a_queue_pair_that_connects_again_without_a_dreq_has_a_stale_connection() {
    let mut bench = Bench::new();
    let (at_a, _) = bench.connected();
    // The peer's process was killed; its successor gets the same queue pair number.
    bench.a.cm.abandon(bench.now, at_a);
    bench.collect();
    bench.to_b.clear();
    bench.connect();
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Disconnected Stale"]);
    bench.b_sends(&["DREQ", "REJ 10"]);
    bench.settle();
    // Now the way is free, and the program need not know.
    bench.wait(Duration::from_millis(500));
    bench.a_sends(&["REQ"]);
    bench.requested();
    assert!(events(&mut bench.a).is_empty());
}

#[test]
fn a_request_that_its_peer_gave_up_makes_room_for_the_next_with_the_same_queue_pair() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    bench.requested();
    // The REJ of who gave up is lost.
    bench.a.cm.abandon(bench.now, at_a);
    bench.collect();
    bench.to_b.clear();
    bench.connect();
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Rejected 10", "Request"]);
}

#[test]
fn a_rep_with_a_queue_pair_in_use_ends_what_used_it() {
    let mut bench = Bench::new();
    let (_, at_b) = bench.connected();
    bench.b.cm.abandon(bench.now, at_b);
    bench.collect();
    bench.to_a.clear();
    let other = Connect {
        qpn: Qpn::new(0x33),
        ..bench.request()
    };
    bench.a.cm.connect(bench.now, &other).unwrap();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Disconnected Stale", "Reply"]);
}

#[test]
fn an_abandoned_connection_tells_the_peer_and_no_one_else() {
    let mut bench = Bench::new();
    // ReqSent.
    let at_a = bench.connect();
    let at_b = bench.requested();
    bench.a.cm.abandon(bench.now, at_a);
    bench.a_sends(&["REJ 4"]);
    // The REP was faster.
    bench.accept(at_b);
    bench.deliver_to_a();
    bench.a_sends(&["REJ 4", "REJ 28"]);
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Rejected 4"]);
    // ReqReceived.
    bench.connect();
    let at_b = bench.requested();
    bench.b.cm.abandon(bench.now, at_b);
    bench.settle();
    assert_eq!(events(&mut bench.a), ["Rejected 28"]);
    // RepReceived.
    let at_a = bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Reply"]);
    bench.a.cm.abandon(bench.now, at_a);
    bench.settle();
    assert_eq!(events(&mut bench.b), ["Rejected 28"]);
    // Established.
    let (at_a, _) = bench.connected();
    bench.a.cm.abandon(bench.now, at_a);
    bench.settle();
    assert_eq!(events(&mut bench.b), ["Disconnected Asked"]);
    bench.wait(Duration::from_secs(60));
    assert!(events(&mut bench.a).is_empty());
    assert_eq!(events(&mut bench.b), ["TimewaitExit"]);
    bench.expect_empty();
}

#[test]
fn who_abandons_hears_no_more_not_even_what_was_to_be_told() {
    let mut bench = Bench::new();
    let (at_a, at_b) = bench.connected();
    bench.b.cm.disconnect(bench.now, at_b, &[]).unwrap();
    bench.deliver_to_a();
    bench.a.cm.abandon(bench.now, at_a);
    assert!(events(&mut bench.a).is_empty());
}

#[test]
fn what_is_over_is_bounded_and_the_oldest_is_forgotten() {
    let mut bench = Bench::new();
    bench.b.limit_closed(2);
    let mut told = Vec::new();
    for qpn in 1..=5 {
        let request = Connect {
            max_cm_retries: 0,
            ..Connect::new(
                bench.route_of_a(),
                service(PORT),
                Qpn::new(qpn),
                Psn::new(0),
            )
        };
        let at_a = bench.a.cm.connect(bench.now, &request).unwrap();
        let at_b = bench.requested();
        let accept = Accept::new(QP_B, Psn::new(0));
        bench.b.cm.accept(bench.now, at_b, &accept).unwrap();
        bench.deliver_to_a();
        bench.a.cm.establish(bench.now, at_a, &[]).unwrap();
        bench.a.cm.disconnect(bench.now, at_a, &[]).unwrap();
        bench.settle();
        told.extend(events(&mut bench.b));
    }
    assert_eq!(told.iter().filter(|e| *e == "TimewaitExit").count(), 3);
    assert_eq!(bench.b.records(), 2);
}
