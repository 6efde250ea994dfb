//! Numbers, epochs, ports, failure and the way back: part 5 of the specification.

use super::craft::bytes;
use super::pair::{Fate, Faults, OK, Pair, Setup, at, request, write};
use crate::SendOperation;
use crate::metaroce::congestion::Window;
use crate::metaroce::connection::{SALT_ACK_PORT, SALT_PORT};
use crate::metaroce::path::PathState;
use crate::testing::BASE;
use core::net::IpAddr;
use core::time::Duration;
use feroce_wire::Address;
use feroce_wire::metaroce::{Body, Epoch, Frame};
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::vec::Vec;

const HALF: u64 = 1 << 19;

fn port(pair: &Pair, path: usize) -> u16 {
    pair.a.connection().paths[path].port
}

//= MR-PTH-001 type=test
//= MR-PTH-002 type=test
//= MR-PTH-003 type=test
#[test]
fn every_path_and_epoch_of_each_direction_counts_from_zero_and_by_one() {
    type Numbers = BTreeMap<(bool, u8, u8), u32>;
    let setup = Setup::default();
    let mut pair = setup.bare();
    let next = Rc::new(RefCell::new(Numbers::new()));
    let counts = next.clone();
    pair.script = Some(Box::new(move |words, frame| {
        if frame.body.kind().is_numbered() {
            let key = (words.starts_with('a'), frame.path, frame.epoch.0);
            let mut counts = counts.borrow_mut();
            let count = counts.entry(key).or_insert(0);
            assert_eq!(frame.number.0, *count, "{words}");
            *count += 1;
        }
        Fate::Pass
    }));
    for end in [&mut pair.a, &mut pair.b] {
        end.endpoint.create_stream(end.qpn, setup.init()).unwrap();
    }
    pair.connect_streams(&setup);
    pair.faults = Faults {
        loss: 50,
        reordering: 50,
        duplication: 50,
        ..Faults::default()
    };
    let dead = port(&pair, 2);
    pair.dead_ports.insert(dead);
    for wr_id in 0..30 {
        pair.a.post(pair.now, write(wr_id, HALF, 0, 20_000));
        let get = SendOperation::Read(at(0));
        pair.b
            .post(pair.now, request(wr_id, get, BASE + HALF, 20_000));
        pair.run_for(Duration::from_micros(200));
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 30);
    let next = next.borrow();
    let first_epochs: BTreeSet<_> = next.keys().map(|&(to_b, path, _)| (to_b, path)).collect();
    assert_eq!(first_epochs.len(), 8, "four paths in each direction");
    assert!(
        next.contains_key(&(true, 2, 1)),
        "the dead one changed its port"
    );
}

//= MR-PTH-004 type=test
#[test]
fn ports_are_of_the_dynamic_range_and_follow_from_the_secret() {
    let pair = Setup::default().connect();
    let connection = pair.a.connection();
    let mut config = pair.a.endpoint.config().clone();
    let mut ports = |secret, path, epoch| {
        config.secret = secret;
        connection.entropy(&config, SALT_PORT, path, Epoch(epoch))
    };
    let mut all = BTreeSet::new();
    for path in 0..32 {
        for epoch in 0..32 {
            let port = ports([1, 2], path, epoch);
            assert!(port >= 49_152);
            assert_eq!(port, ports([1, 2], path, epoch));
            all.insert(port);
        }
    }
    // 1024 of 16384: some 31 fall together.
    assert!(all.len() > 950, "{}", all.len());
    let moved = (0..32).filter(|&path| ports([1, 2], path, 0) != ports([9, 2], path, 0));
    assert!(moved.count() > 28);
}

//= MR-PTH-005 type=test
#[test]
fn a_path_whose_numbers_end_changes_its_port() {
    let mut pair = Setup::default().connect();
    for path in &mut pair.a.connection_mut().paths {
        path.jump((1 << 31) - 3);
    }
    let highest = Rc::new(RefCell::new(0));
    let seen = highest.clone();
    pair.script = Some(Box::new(move |words, frame| {
        if words.starts_with("a Write") {
            let mut seen = seen.borrow_mut();
            *seen = frame.number.0.max(*seen);
        }
        Fate::Pass
    }));
    pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert!(*highest.borrow() < 1 << 31);
    assert!(
        pair.a
            .connection()
            .paths
            .iter()
            .all(|path| path.epoch == Epoch(1))
    );
}

//= MR-PTH-007 type=test
#[test]
fn the_emptiest_window_is_chosen_and_a_repetition_goes_where_it_was_lost() {
    let mut pair = Setup::default().connect();
    let now = pair.now;
    assert_eq!(pair.a.connection().choose_path(Some(3)), Some(3));
    // Three paths are half full, the third in order is not.
    let timing = crate::metaroce::connection::timing(pair.a.endpoint.config());
    for path in [0, 1, 3] {
        let path = &mut pair.a.connection_mut().paths[path];
        let half = u32::try_from(path.window.bytes() / 2).unwrap();
        path.sent(
            now,
            crate::metaroce::path::Piece::Probe,
            half,
            false,
            &timing,
        );
    }
    assert_eq!(pair.a.connection().choose_path(None), Some(2));
    assert_eq!(pair.a.connection().choose_path(Some(1)), Some(1));
    pair.a.connection_mut().paths[1].state = PathState::Suspect;
    assert_eq!(
        pair.a.connection().choose_path(Some(1)),
        Some(2),
        "it carries no data"
    );
}

//= MR-PTH-011 type=test
//= MR-PTH-012 type=test
//= MR-PTH-013 type=test
#[test]
fn a_dead_path_is_left_probed_and_moved_to_another_port() {
    let mut pair = Setup::default().connect();
    let dead = port(&pair, 1);
    pair.dead_ports.insert(dead);
    let start = pair.now;
    pair.a.post(pair.now, write(1, HALF, 0, 64 << 10));
    let mut done = Vec::new();
    while done.is_empty() {
        pair.run_for(Duration::from_micros(10));
        done = pair.a.completions();
    }
    assert_eq!(done, [(1, OK)]);
    assert!(
        pair.now.since(start) < Duration::from_millis(1),
        "{:?}",
        pair.now
    );
    assert_eq!(pair.a.endpoint.counters().paths_suspected, 1);
    assert_eq!(pair.a.connection().paths[1].state, PathState::Suspect);
    assert_eq!(port(&pair, 1), dead, "three probes more come first");
    pair.run_until_idle();
    let path = &pair.a.connection().paths[1];
    assert_eq!((path.state, path.epoch), (PathState::Active, Epoch(1)));
    assert_ne!(path.port, dead);
    assert_eq!(path.window.bytes(), pair.a.connection().path_part());
    assert_eq!(pair.a.endpoint.counters().paths_rebound, 1);
    // The third made it suspect, the sixth changed the port, the seventh was answered.
    let unanswered = pair.lines("a", "probe p1 e0");
    assert_eq!(unanswered.filter(|line| !line.contains(" n0")).count(), 5);
}

//= MR-PTH-014 type=test
#[test]
fn what_arrives_on_a_path_that_was_given_up_is_recognised() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 16 << 10, 1);
    let mut late = 0;
    pair.script = Some(Box::new(move |words, frame| {
        if !words.starts_with('a') || frame.path != 0 || frame.epoch != Epoch(0) {
            return Fate::Pass;
        }
        match frame.body {
            // Everything of path 0 comes, but long after the path is given up.
            Body::Request(_) => {
                late += 1;
                Fate::Late(1_000_000 + late)
            }
            _ => Fate::Drop,
        }
    }));
    pair.a.post(pair.now, write(1, HALF, 0, 16 << 10));
    pair.run_for(Duration::from_micros(900));
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert!(pair.a.endpoint.counters().retransmissions > 0);
    let writes = pair.b.host.writes;
    pair.run_until_idle();
    assert_eq!(pair.b.host.writes, writes);
    let counters = pair.b.endpoint.counters();
    assert!(counters.duplicate_messages + counters.dropped_old_epoch > 0);
    assert_eq!(pair.a.completions(), []);
}

//= MR-PTH-015 type=test
//= MR-PTH-016 type=test
#[test]
fn an_acknowledgement_goes_back_where_the_packet_came_from() {
    let mut pair = Setup::default().with(|setup| setup.planes = 2).connect();
    pair.a.post(pair.now, write(1, HALF, 0, 16 << 10));
    let mut from: BTreeMap<u8, (IpAddr, IpAddr)> = BTreeMap::new();
    for (route, packet) in pair.a.take_packets(pair.now) {
        let frame = Frame::parse(&packet).unwrap();
        from.insert(frame.path, (route.source, route.destination));
        let address = Address {
            source: route.source,
            destination: route.destination,
            source_port: route.source_port,
            traffic_class: 2,
            hop_limit: 64,
        };
        let end = &mut pair.b;
        end.endpoint
            .handle_packet(pair.now, &address, &bytes(&frame), &mut end.host);
    }
    pair.now = pair.now + Duration::from_micros(20);
    pair.b.endpoint.handle_timeout(pair.now, &mut pair.b.host);
    let mut acknowledged = 0;
    for (route, packet) in pair.b.take_packets(pair.now) {
        let frame = Frame::parse(&packet).unwrap();
        let Body::Ack(_) = frame.body else {
            continue;
        };
        acknowledged += 1;
        assert_eq!((route.destination, route.source), from[&frame.path]);
        let connection = pair.b.connection();
        let config = pair.b.endpoint.config();
        let port = connection.entropy(config, SALT_ACK_PORT, frame.path, frame.epoch);
        assert_eq!(route.source_port, port);
        let moved = connection.entropy(config, SALT_ACK_PORT, frame.path, frame.epoch.next());
        assert_ne!(moved, port, "the way back changes with the epoch");
    }
    assert_eq!(acknowledged, from.len());
}
