//! REQ, REP, RTU: both sides become connected.

use super::bench::{Bench, QP_A, QP_B, RESPONSE_TIME, events};
use crate::cm::{Accept, CmEvent, ConnectionState};
use core::time::Duration;
use feroce_wire::Psn;

#[test]
fn req_rep_rtu() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    bench.a_sends(&["REQ"]);
    bench.deliver_to_b();
    let Some(CmEvent::Request {
        connection: at_b,
        listener,
        request,
        ..
    }) = bench.b.cm.poll_event()
    else {
        panic!("no request");
    };
    assert_eq!(listener, bench.listener);
    assert_eq!(
        (request.local_qpn, request.starting_psn),
        (QP_A, Psn::new(100))
    );
    bench.accept(at_b);
    bench.b_sends(&["REP"]);
    bench.deliver_to_a();
    let Some(CmEvent::Reply { reply, .. }) = bench.a.cm.poll_event() else {
        panic!("no reply");
    };
    assert_eq!((reply.local_qpn, reply.starting_psn), (QP_B, Psn::new(200)));
    bench.a.cm.establish(bench.now, at_a, b"go").unwrap();
    bench.a_sends(&["RTU"]);
    bench.deliver_to_b();
    match bench.b.cm.poll_event() {
        Some(CmEvent::Established {
            ready: Some(rtu), ..
        }) => {
            assert_eq!(&rtu.private_data[..3], b"go\0");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.a.cm.state(at_a), Some(ConnectionState::Established));
    assert_eq!(bench.b.cm.state(at_b), Some(ConnectionState::Established));
    // Nothing is due on an established connection.
    assert_eq!(bench.a.cm.poll_timeout(), None);
    assert_eq!(bench.b.cm.poll_timeout(), None);
    bench.wait(RESPONSE_TIME * 100);
    assert!(events(&mut bench.a).is_empty() && events(&mut bench.b).is_empty());
}

#[test]
fn a_lost_req_is_repeated_and_a_repeated_one_makes_no_second_connection() {
    let mut bench = Bench::new();
    bench.connect();
    bench.collect();
    let first = bench.to_b.pop_front().unwrap();
    bench.wait(RESPONSE_TIME);
    bench.a_sends(&["REQ"]);
    let at_b = bench.requested();
    bench.inject_to_b(&first);
    // The program is slow: the peer is asked to wait.
    bench.b_sends(&["MRA"]);
    bench.accept(at_b);
    bench.to_a.clear();
    // The REP was lost; the REQ comes again, and is answered again.
    bench.inject_to_b(&first);
    bench.b_sends(&["REP"]);
    assert!(events(&mut bench.b).is_empty());
}

#[test]
fn an_mra_prolongs_the_wait_for_a_rep() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    let at_b = bench.requested();
    // Code 24 is 68.7 s.
    bench.b.cm.ask_for_time(bench.now, at_b, 24).unwrap();
    bench.deliver_to_a();
    bench.wait(Duration::from_secs(68));
    bench.a_sends(&[]);
    bench.wait(Duration::from_secs(6));
    bench.a_sends(&["REQ"]);
    assert_eq!(bench.a.cm.state(at_a), Some(ConnectionState::ReqSent));
}

#[test]
fn a_silent_peer_is_unreachable_after_the_last_repetition_and_is_told() {
    let mut bench = Bench::new();
    bench.connect();
    for _ in 0..3 {
        bench.a_sends(&["REQ"]);
        bench.to_b.clear();
        assert!(events(&mut bench.a).is_empty());
        bench.wait(RESPONSE_TIME);
    }
    bench.a_sends(&["REJ 4"]);
    assert_eq!(events(&mut bench.a), ["Unreachable"]);
    bench.wait(Duration::from_secs(60));
    assert!(events(&mut bench.a).is_empty());
    assert_eq!(bench.a.cm.poll_timeout(), None);
}

#[test]
fn the_rej_of_a_peer_that_gave_up_finds_the_request_by_the_device() {
    let mut bench = Bench::new();
    bench.connect();
    let at_b = bench.requested();
    bench.wait(RESPONSE_TIME);
    bench.to_b.clear();
    bench.wait(RESPONSE_TIME);
    bench.to_b.clear();
    bench.wait(RESPONSE_TIME);
    bench.a_sends(&["REJ 4"]);
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Rejected 4"]);
    assert!(
        bench
            .b
            .cm
            .accept(bench.now, at_b, &Accept::new(QP_B, Psn::new(0)))
            .is_err()
    );
}

#[test]
fn a_lost_rtu_is_sent_again_when_the_rep_comes_again() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.deliver_to_a();
    // The program of a is slow as well.
    bench.wait(RESPONSE_TIME);
    bench.b_sends(&["REP"]);
    bench.deliver_to_a();
    bench.a_sends(&["MRA"]);
    bench.deliver_to_b();
    bench.a.cm.establish(bench.now, at_a, &[]).unwrap();
    bench.collect();
    bench.to_b.clear();
    // 68.7 s of the MRA, and the response time.
    bench.wait(Duration::from_secs(74));
    bench.b_sends(&["REP"]);
    bench.deliver_to_a();
    bench.a_sends(&["RTU"]);
    bench.deliver_to_b();
    assert_eq!(events(&mut bench.b), ["Established"]);
    assert_eq!(events(&mut bench.a), ["Reply"]);
}

#[test]
fn traffic_stands_for_a_lost_rtu_and_the_late_rtu_is_nothing_new() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    let at_b = bench.requested();
    assert!(bench.b.cm.traffic_arrived(bench.now, at_b).is_err());
    bench.accept(at_b);
    bench.deliver_to_a();
    bench.a.cm.establish(bench.now, at_a, &[]).unwrap();
    bench.b.cm.traffic_arrived(bench.now, at_b).unwrap();
    bench.b.cm.traffic_arrived(bench.now, at_b).unwrap();
    assert_eq!(events(&mut bench.b), ["Established by traffic"]);
    bench.deliver_to_b();
    assert!(events(&mut bench.b).is_empty());
}

#[test]
fn a_passive_side_that_hears_nothing_gives_up_and_the_active_one_learns_of_it() {
    let mut bench = Bench::new();
    let at_a = bench.connect();
    let at_b = bench.requested();
    bench.accept(at_b);
    bench.deliver_to_a();
    bench.a.cm.establish(bench.now, at_a, &[]).unwrap();
    bench.collect();
    for _ in 0..3 {
        bench.to_b.clear();
        bench.to_a.clear();
        bench.wait(RESPONSE_TIME);
    }
    assert_eq!(events(&mut bench.b), ["Unreachable"]);
    bench.b_sends(&["REJ 4"]);
    bench.deliver_to_a();
    assert_eq!(events(&mut bench.a), ["Reply", "Disconnected Rejected"]);
}
