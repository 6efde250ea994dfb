//! Losses, duplicates, completions: part 6 of the specification.

use super::craft::{ack, frame, request as piece};
use super::pair::{Fate, OK, Setup, at, request, write};
use crate::metaroce::connection::Again;
use crate::metaroce::path::{Outcome, Piece};
use crate::testing::{BASE, KEY};
use crate::{QpState, SendOperation};
use core::time::Duration;
use feroce_wire::metaroce::{
    Body, Flags, Frame, MessageNumber, ReceiveNumber, RefusalCode, Remote, Request, RequestOpcode,
    Update, Updates,
};
use std::boxed::Box;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

const HALF: u64 = 1 << 19;

/// Segment `segment` of a write to `b` of `length` bytes.
fn segment(message: u32, segment: u32, length: u32) -> Request<'static> {
    Request {
        offset: segment * 1024,
        length,
        remote: Remote {
            address: BASE,
            key: KEY,
        },
        payload: &[7; 1024],
        ..piece(RequestOpcode::Write, 0x102, message)
    }
}

//= MR-REL-005 type=test
//= MR-STR-005 type=test
#[test]
fn what_there_is_no_room_for_has_not_arrived() {
    let mut pair = Setup::default()
        .with(|setup| setup.config.message_window = 4)
        .connect();
    let (before, writes) = (pair.b.next_on(0), pair.b.host.writes);
    // The fifth message is beyond the window.
    pair.forge(0, Body::Request(segment(104, 0, 1024)));
    assert_eq!(pair.b.next_on(0), before);
    assert_eq!(pair.b.host.writes, writes);
    pair.forge(0, Body::Request(segment(103, 0, 1024)));
    assert_ne!(pair.b.next_on(0), before);
    assert_eq!(pair.b.host.writes, writes + 1);
    // A segment far ahead of a gap, with all words in use.
    let mut pair = Setup::default()
        .with(|setup| setup.config.reorder_words_max = 1)
        .connect();
    let (before, writes) = (pair.b.next_on(0), pair.b.host.writes);
    pair.forge(0, Body::Request(segment(100, 200, 1 << 20)));
    assert_eq!((pair.b.next_on(0), pair.b.host.writes), (before, writes));
    assert_eq!(pair.b.endpoint.counters().dropped_resources, 1);
    pair.forge(0, Body::Request(segment(100, 0, 1 << 20)));
    assert_eq!(pair.b.host.writes, writes + 1);
}

//= MR-REL-006 type=test
#[test]
fn the_last_packets_ask_for_acknowledgement() {
    let mut pair = Setup::default().connect();
    pair.a.post(pair.now, write(1, HALF, 0, 8192));
    let packets = pair.a.take_packets(pair.now);
    let asked: Vec<bool> = packets
        .iter()
        .map(|(_, bytes)| Frame::parse(bytes).unwrap().flags)
        .map(|flags| flags.contains(Flags::ACK_REQUEST))
        .collect();
    assert_eq!(asked.len(), 8);
    assert_eq!(asked[4..], [true; 4], "as many as there are paths");
}

//= MR-REL-007 type=test
#[test]
fn a_piece_that_is_no_segment_is_a_fault_of_its_message() {
    let good = segment(100, 0, 4096);
    let beside = Request {
        offset: 512,
        ..good
    };
    let short = Request {
        payload: &[7; 1000],
        ..good
    };
    let second = segment(100, 1, 4096);
    let longer = Request {
        length: 8192,
        ..second
    };
    let elsewhere = Request {
        remote: Remote {
            address: BASE + 8,
            key: KEY,
        },
        ..second
    };
    for (first, then) in [
        (None, beside),
        (None, short),
        (Some(good), longer),
        (Some(good), elsewhere),
    ] {
        let mut pair = Setup::default().connect();
        if let Some(first) = first {
            pair.forge(0, Body::Request(first));
            assert_eq!(pair.b.host.writes, 1);
        }
        let writes = pair.b.host.writes;
        pair.forge(0, Body::Request(then));
        assert_eq!(pair.b.host.writes, writes);
        assert_eq!(refusal(&mut pair), Some((100, RefusalCode::InvalidRequest)));
        assert_eq!(
            pair.b.endpoint.stream_state(pair.b.qpn),
            Some(QpState::Error)
        );
    }
}

/// The refusal among the packets that `b` sends.
fn refusal(pair: &mut super::pair::Pair) -> Option<(u32, RefusalCode)> {
    let packets = pair.b.take_packets(pair.now);
    packets.iter().find_map(|(_, bytes)| {
        let Body::Response(response) = Frame::parse(bytes).unwrap().body else {
            return None;
        };
        let code = response.refusal?.code;
        Some((response.message.0, code))
    })
}

//= MR-REL-012 type=test
#[test]
fn a_repetition_is_dropped_when_its_piece_has_arrived() {
    let mut pair = Setup::default().connect();
    pair.a.post(pair.now, write(1, HALF, 0, 4096));
    pair.a.take_packets(pair.now);
    let stream = pair.a.connection().streams[0];
    let lost = |segment| Piece::Request {
        stream,
        message: MessageNumber(100),
        segment,
    };
    let mut outcome = Outcome {
        lost: [lost(0), lost(1)].into(),
        ..Outcome::default()
    };
    let connection = pair.a.connection_mut();
    connection.settle(&mut outcome, 0);
    assert_eq!(connection.again.len(), 2);
    let mut outcome = Outcome {
        arrived_late: [lost(0)].into(),
        ..Outcome::default()
    };
    connection.settle(&mut outcome, 0);
    let left: Vec<Piece> = connection
        .again
        .iter()
        .map(|Again { piece, .. }| *piece)
        .collect();
    assert_eq!(left, [lost(1)]);
    let index = connection.index;
    pair.a.endpoint.schedule(index);
    pair.now = pair.now + Duration::from_micros(100);
    let packets = pair.a.take_packets(pair.now);
    let again: Vec<u32> = packets
        .iter()
        .filter_map(|(_, bytes)| match Frame::parse(bytes).unwrap() {
            Frame {
                flags,
                body: Body::Request(request),
                ..
            } if flags.contains(Flags::AGAIN) => Some(request.offset),
            _ => None,
        })
        .collect();
    assert_eq!(again, [1024]);
}

/// What arrived may be old news: those that wait to be sent are sent.
//= MR-REL-012 type=test
#[test]
fn news_that_wait_are_sent_though_older_ones_arrived_late() {
    let mut pair = Setup::default().connect();
    let connection = pair.a.connection_mut();
    let news = Piece::Update(connection.streams[0]);
    let mut outcome = Outcome {
        lost: [news].into(),
        ..Outcome::default()
    };
    connection.settle(&mut outcome, 0);
    outcome.arrived_late.push(news);
    connection.settle(&mut outcome, 0);
    assert_eq!(connection.again.len(), 1);
    let index = connection.index;
    pair.a.endpoint.schedule(index);
    pair.now = pair.now + Duration::from_micros(100);
    let before = pair.lines("a", "update").count();
    pair.run_until_idle();
    assert_eq!(pair.lines("a", "update").count(), before + 1);
}

//= MR-REL-013 type=test
#[test]
fn a_probe_repairs_a_loss_at_the_end() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 8192, 1);
    let start = pair.now;
    pair.drop_first("a Write m100 @7168 ", 1);
    pair.a.post(pair.now, write(1, HALF, 0, 8192));
    pair.run_for(Duration::from_millis(1));
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert_eq!(pair.a.endpoint.counters().retransmissions, 1);
    let since = start.nanos() / 1000;
    let time =
        |line: &std::string::String| -> u64 { line.split(' ').next().unwrap().parse().unwrap() };
    let probes = pair.lines("a", "probe").filter(|line| time(line) > since);
    assert!(probes.count() >= 1);
    let sent = pair.a.host.bytes(BASE, 8192).to_vec();
    assert_eq!(pair.b.host.bytes(BASE + HALF, 8192), sent);
}

//= MR-REL-020 type=test
#[test]
fn received_is_not_completed() {
    let mut pair = Setup::default().connect();
    pair.a.post(pair.now, write(1, HALF, 0, 100));
    let packets = pair.a.take_packets(pair.now);
    let sent = Frame::parse(&packets[0].1).unwrap();
    let acknowledged = |updates| Frame {
        path: sent.path,
        epoch: sent.epoch,
        number: sent.number,
        ..frame(pair.a.connection().local, Body::Ack(ack(updates)))
    };
    let b = pair.b.addresses[0];
    let done = [Update {
        stream: pair.a.qpn.value(),
        completed: MessageNumber(101),
        limit: Some(ReceiveNumber(0)),
        delay_code: 0,
    }
    .into()];
    let (bare, telling) = (acknowledged(Updates(&[])), acknowledged(Updates(&done)));
    pair.deliver(false, b, &bare);
    assert!(
        pair.a
            .connection()
            .paths
            .iter()
            .all(|path| !path.is_flying())
    );
    assert_eq!(pair.a.completions(), []);
    pair.deliver(false, b, &telling);
    assert_eq!(pair.a.completions(), [(1, OK)]);
}

//= MR-REL-021 type=test
#[test]
fn who_waits_for_an_update_asks() {
    let mut pair = Setup::default().connect();
    let asked = Rc::new(RefCell::new(0));
    let (count, mut dropped) = (asked.clone(), 0);
    pair.script = Some(Box::new(move |words, frame| {
        if let Body::Probe(streams) = &frame.body {
            *count.borrow_mut() += streams.iter().filter(|&stream| stream == 0x102).count();
        }
        // The first updates are lost.
        if words.starts_with("b ack 1") && dropped < 3 {
            dropped += 1;
            return Fate::Drop;
        }
        Fate::Pass
    }));
    pair.a.post(pair.now, write(1, HALF, 0, 100));
    pair.run_for(Duration::from_millis(5));
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert!(*asked.borrow() >= 1);
    // After twice the probe time, then at doubled intervals.
    let config = pair.a.endpoint.config().clone();
    let connection = pair.a.connection_mut();
    let timing = crate::metaroce::connection::timing(&config);
    let probe_times = connection
        .paths
        .iter()
        .map(|path| path.probe_timeout(&timing));
    let twice = probe_times.max().unwrap() * 2;
    for doublings in 0..4 {
        connection.queries = doublings;
        assert_eq!(connection.query_interval(&config), twice * (1 << doublings));
    }
}

//= MR-REL-022 type=test
#[test]
fn a_piece_of_a_complete_message_is_answered_with_an_update() {
    let mut pair = Setup::default().connect();
    pair.a.post(pair.now, write(1, HALF, 0, 1024));
    pair.run_until_idle();
    let writes = pair.b.host.writes;
    pair.forge(0, Body::Request(segment(100, 0, 1024)));
    let packets = pair.b.take_packets(pair.now);
    let told = packets
        .iter()
        .find_map(|(_, bytes)| match Frame::parse(bytes).unwrap().body {
            Body::Ack(ack) => ack.updates.iter().next(),
            _ => None,
        });
    let told = told.expect("an update");
    assert_eq!((told.stream, told.completed), (0x101, MessageNumber(101)));
    assert_eq!(pair.b.host.writes, writes);
    assert_eq!(pair.b.endpoint.counters().duplicate_messages, 1);
}

//= MR-REL-023 type=test
#[test]
fn an_answer_is_kept_until_it_has_arrived_and_sent_again() {
    let mut pair = Setup::default().connect();
    pair.b.fill(BASE, 4096, 1);
    let held = pair.drop_while("b ReadData m100 @1024 ");
    let read = SendOperation::Read(at(0));
    pair.a.post(pair.now, request(1, read, BASE + HALF, 4096));
    pair.run_for(Duration::from_micros(500));
    assert_eq!(pair.a.completions(), []);
    assert_eq!(pair.b.connection().jobs.len(), 1);
    held.set(false);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert!(pair.lines("b", "ReadData m100 @1024 ").count() >= 2);
    assert_eq!(pair.lines("b", "ReadData m100 @0 ").count(), 1);
    assert_eq!(pair.b.connection().jobs.len(), 0);
    // An atomic whose answer is lost is not executed again.
    pair.drop_first("b Original", 3);
    let add = SendOperation::FetchAdd {
        remote: at(8),
        add: 1,
    };
    pair.b.host.set_word(BASE + 8, 41);
    pair.a.post(pair.now, request(2, add, BASE, 8));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(2, OK)]);
    assert_eq!(
        (pair.a.host.word(BASE), pair.b.host.word(BASE + 8)),
        (41, 42)
    );
    assert_eq!(pair.b.host.atomics, 1);
    assert_eq!(pair.b.connection().jobs.len(), 0);
}
