//! Windows, pacing and shares of a connection: part 7 of the specification.

use super::craft::{ack, frame};
use super::pair::{End, Fate, OK, Pair, Setup, at, request, write};
use crate::metaroce::congestion::{Feedback, Window};
use crate::metaroce::{EndpointConfig, WindowRule};
use crate::testing::BASE;
use crate::{Instant, SendOperation};
use core::time::Duration;
use feroce_wire::metaroce::{Ack, Body, Flags, Frame, Updates};
use std::boxed::Box;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

const HALF: u64 = 1 << 19;

/// `b` grants `a` a share in bytes per second.
fn grant(pair: &mut Pair, share: u64) {
    let connection = pair.a.connection();
    let path = &connection.paths[0];
    let granted = Ack {
        share: u32::try_from(share / 1000).unwrap(),
        ..ack(Updates(&[]))
    };
    let granted = Frame {
        epoch: path.epoch,
        number: path.next_number().plus(u32::MAX),
        ..frame(connection.local, Body::Ack(granted))
    };
    pair.deliver(false, pair.b.addresses[0], &granted);
    assert_eq!(pair.a.connection().share(), share);
}

fn feedback(now: Instant, received: u32, marked: u32, rtt: Duration) -> Feedback {
    Feedback {
        now,
        bytes: 0,
        received,
        marked,
        lost: 0,
        rtt,
        rtt_min: rtt,
        limited: true,
    }
}

fn config(end: &End) -> EndpointConfig {
    end.endpoint.config().clone()
}

//= MR-CC-001 type=test
#[test]
fn what_is_in_flight_stays_within_the_windows() {
    for (window, packets) in [(1, 1), (5_000, 5), (20_000, 19)] {
        let mut pair = Setup::default()
            .with(|setup| {
                setup.config.windows = WindowRule::Fixed(window);
                setup.config.line_rate = 0;
            })
            .connect();
        pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
        let sent = pair.a.take_packets(pair.now).len();
        assert_eq!(sent, packets, "window {window}");
        for path in &pair.a.connection().paths {
            assert!(path.in_flight() < window + 1100);
        }
    }
}

//= MR-CC-005 type=test
#[test]
fn the_target_is_one_and_a_half_round_trips_at_the_share() {
    let mut pair = Setup::default().connect();
    grant(&mut pair, 1_000_000_000);
    let config = config(&pair.a);
    let connection = pair.a.connection_mut();
    let rtt = Duration::from_micros(95);
    // 95 us and the grain of 5 at 1 GB/s are 100 kB.
    assert_eq!(connection.target(&config, rtt), 150_000 + 1024);
    // Whatever the window was, it is within a smaller target at once.
    let short = Duration::from_micros(5);
    let now = pair.now;
    pair.a
        .connection_mut()
        .steer(&config, 0, &feedback(now, 1, 0, short));
    assert_eq!(pair.a.connection().window.bytes(), 15_000 + 1024);
}

//= MR-CC-006 type=test
#[test]
fn a_path_has_twice_its_part_and_at_most_twice_that() {
    let mut pair = Setup::default().connect();
    let config = config(&pair.a);
    let rtt = Duration::from_micros(12);
    for number in 1..200 {
        let now = Instant::from_nanos(1_000_000_000 + number * 12_000);
        let connection = pair.a.connection_mut();
        connection.steer(&config, 0, &feedback(now, 1, 0, rtt));
        let window = connection.window.bytes();
        assert_eq!(connection.path_part(), (window * 2 / 4).max(2 * 1024));
        let path = connection.paths[0].window.bytes();
        assert!(path <= 2 * connection.path_part());
        if number == 199 {
            assert_eq!(
                path,
                2 * connection.path_part(),
                "it grows up to its ceiling"
            );
        }
    }
    // Two packets at least.
    let small = Setup::default()
        .with(|setup| {
            setup.config.windows = WindowRule::Fixed(1);
            setup.config.paths = 8;
        })
        .connect();
    assert_eq!(small.a.connection().path_part(), 2048);
}

//= MR-CC-007 type=test
#[test]
fn the_first_round_trip_sets_the_windows() {
    let pair = Setup::default()
        .with(|setup| setup.config.window_initial = 3000)
        .connect();
    let connection = pair.a.connection();
    let rtt = connection
        .paths
        .iter()
        .map(|path| path.rtt.least)
        .min()
        .unwrap();
    let target = connection.target(pair.a.endpoint.config(), rtt);
    assert!(target > 100_000);
    assert_eq!(connection.window.bytes(), target);
    for path in &connection.paths {
        assert_eq!(path.window.bytes(), connection.path_part());
    }
}

//= MR-CC-008 type=test
#[test]
fn a_connection_sends_no_faster_than_its_share() {
    let mut pair = Setup::default()
        .with(|setup| {
            setup.config.line_rate = 1_000_000_000;
            setup.config.windows = WindowRule::Fixed(1 << 20);
        })
        .connect();
    pair.now = pair.now + Duration::from_millis(1);
    let (mut wire, mut burst) = (0_u64, 0_u64);
    let start = pair.now;
    pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
    let config = config(&pair.a);
    while wire < 60_000 {
        for (_, packet) in pair.a.take_packets(pair.now) {
            // 4 bytes of check sum, and what Ethernet, IP and UDP need.
            wire += packet.len() as u64 + 4 + 66;
        }
        let passed = u64::try_from(pair.now.since(start).as_nanos()).unwrap();
        // One byte takes a nanosecond. What is beyond that is the credit, and the packet that
        // uses it up.
        burst = burst.max(wire.saturating_sub(passed));
        pair.now = pair.now + Duration::from_nanos(100);
        pair.a.endpoint.handle_timeout(pair.now, &mut pair.a.host);
        assert!(passed < 1_000_000, "it sends at all: {wire}");
    }
    assert!(burst <= config.pacing_burst + 1200, "{burst}");
    assert!(burst > 2_000, "two packets of credit");
    let passed = u64::try_from(pair.now.since(start).as_nanos()).unwrap();
    assert!(passed < 62_000, "and it is used: {passed}");
}

//= MR-CC-009 type=test
#[test]
fn a_granted_connection_does_not_shrink_below_two_thirds_of_its_target() {
    let rtt = Duration::from_micros(20);
    let shrunk = |share| {
        let mut pair = Setup::default().connect();
        grant(&mut pair, share);
        let config = config(&pair.a);
        let connection = pair.a.connection_mut();
        for number in 1..100 {
            let now = Instant::from_nanos(1_000_000_000 + number * 20_000);
            connection.steer(&config, 0, &feedback(now, 10, 10, rtt));
        }
        let target = connection.target(&config, rtt);
        connection.window.bytes() * 100 / target
    };
    assert_eq!(shrunk(10_000_000_000), 66);
    assert!(shrunk(12_000_000_000) < 10, "the grant is not the limit");
}

//= MR-CC-013 type=test
#[test]
fn after_idleness_the_last_share_holds() {
    let mut pair = Setup::default().connect();
    grant(&mut pair, 1_000_000_000);
    let window = pair.a.connection().window.bytes();
    pair.now = pair.now + Duration::from_secs(60);
    pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
    pair.a.take_packets(pair.now);
    assert_eq!(pair.a.connection().share(), 1_000_000_000);
    assert_eq!(pair.a.connection().window.bytes(), window);
    // The first acknowledgement corrects it: nobody else sends.
    pair.run_for(Duration::from_micros(100));
    assert_eq!(pair.a.connection().share(), 12_500_000_000);
}

//= MR-CC-014 type=test
#[test]
fn marks_are_told_back() {
    let mut pair = Setup::default().connect();
    let told = Rc::new(RefCell::new(0));
    let most = told.clone();
    pair.script = Some(Box::new(move |words, frame| {
        if let Body::Ack(ack) = &frame.body {
            let mut most = most.borrow_mut();
            *most = ack.marked.max(*most);
        }
        if words.starts_with("a Write") {
            Fate::Mark
        } else {
            Fate::Pass
        }
    }));
    pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
    let ecn: Vec<u8> = {
        let packets = pair.a.take_packets(pair.now);
        packets
            .iter()
            .map(|(route, _)| route.traffic_class & 3)
            .collect()
    };
    assert!(ecn.iter().all(|&ecn| ecn == 2), "ECT(0)");
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert!(*told.borrow() > 0);
    let counted: u64 = pair
        .a
        .connection()
        .paths
        .iter()
        .map(|it| it.counters.marked)
        .sum();
    assert!(counted > 0);
}

//= MR-CC-015 type=test
#[test]
fn a_read_counts_its_answer_and_takes_the_share_along() {
    let mut pair = Setup::default().connect();
    assert_eq!(pair.a.endpoint.shares.grant(), 12_500_000);
    // Somebody else sends to a.
    let now = pair.now;
    pair.a.endpoint.shares.arrived(now, 999, 4096, false, false);
    let get = SendOperation::Read(at(0));
    pair.a.post(pair.now, request(1, get, BASE + HALF, 4096));
    let packets = pair.a.take_packets(pair.now);
    let frames: Vec<_> = packets
        .iter()
        .map(|(_, it)| Frame::parse(it).unwrap())
        .collect();
    assert!(matches!(frames[0].body, Body::Request(_)));
    let told = frames.iter().find_map(|frame| match frame.body {
        Body::Ack(ack) => Some(ack.share),
        _ => None,
    });
    assert_eq!(told, Some(6_250_000));
}

//= MR-CC-010 type=test
#[test]
fn who_has_nothing_more_to_send_says_so_and_counts_no_more() {
    let mut pair = Setup::default().connect();
    let now = pair.now;
    pair.b.endpoint.shares.arrived(now, 999, 4096, false, false);
    pair.a.post(pair.now, write(1, HALF, 0, 8192));
    let packets = pair.a.take_packets(pair.now);
    let drained: Vec<bool> = packets
        .iter()
        .map(|(_, it)| Frame::parse(it).unwrap().flags.contains(Flags::DRAINED))
        .collect();
    assert_eq!(drained, [[false; 7].as_slice(), &[true]].concat());
    for (place, (_, packet)) in packets.iter().enumerate() {
        let frame = Frame::parse(packet).unwrap();
        pair.deliver(true, pair.a.addresses[0], &frame);
        let shared = if place < 7 { 2 } else { 1 };
        assert_eq!(pair.b.endpoint.shares.grant(), 12_500_000 / shared);
    }
}
