//! Verbs: order, receives, READs and atomics, errors: part 8 of the specification.

use super::craft::request as piece;
use super::pair::{End, Fate, OK, Pair, Setup, at, request, sges, write};
use crate::metaroce::StreamTarget;
use crate::testing::{BASE, KEY, PD};
use crate::{
    CompletionStatus, QpState, RecvRequest, Remote, SendFlags, SendOperation, SendRequest,
    SrqAttributes, SrqId, SrqInit,
};
use core::time::Duration;
use feroce_wire::Qpn;
use feroce_wire::metaroce::{
    Body, Frame, MessageNumber, ReceiveNumber, RefusalCode, Remote as RemoteMemory, Request,
    RequestOpcode, ResponseOpcode,
};
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

const HALF: u64 = 1 << 19;
const FLUSHED: CompletionStatus = CompletionStatus::WorkRequestFlushed;
/// A second stream of each end.
const SECOND: [Qpn; 2] = [Qpn::new(0x111), Qpn::new(0x112)];

/// Connects [`SECOND`].
fn second(pair: &mut Pair, setup: &Setup) {
    let ends = [&mut pair.a, &mut pair.b];
    let addresses = [ends[1].addresses[0], ends[0].addresses[0]];
    for (place, end) in ends.into_iter().enumerate() {
        end.endpoint
            .create_stream(SECOND[place], setup.init())
            .unwrap();
        let target = StreamTarget {
            peer: addresses[place],
            qpn: SECOND[1 - place],
            send_number: MessageNumber(7),
            receive_number: MessageNumber(7),
            ..setup.target
        };
        end.endpoint
            .connect_stream(pair.now, SECOND[place], target)
            .unwrap();
    }
    pair.run_until_idle();
}

/// Different messages among the packets that end `from` sent and `what` describes.
fn messages(pair: &Pair, from: &str, what: &str) -> BTreeSet<String> {
    let number = |line: &String| {
        line.split(' ')
            .find(|it| it.starts_with('m'))
            .map(String::from)
    };
    pair.lines(from, what).filter_map(number).collect()
}

fn write_to(remote: Remote, wr_id: u64, length: u32) -> SendRequest {
    request(wr_id, SendOperation::Write(remote), BASE, length)
}

fn send(wr_id: u64, length: u32) -> SendRequest {
    request(wr_id, SendOperation::Send, BASE, length)
}

/// A READ by `b`'s peer, made by hand.
const fn read(message: u32) -> Request<'static> {
    Request {
        length: 100,
        remote: RemoteMemory {
            address: BASE,
            key: KEY,
        },
        ..piece(RequestOpcode::Read, 0x102, message)
    }
}

/// Responses among the packets that `b` sends: message, opcode, refusal.
fn responses(pair: &mut Pair) -> Vec<(u32, ResponseOpcode, Option<RefusalCode>)> {
    let packets = pair.b.take_packets(pair.now);
    let bodies = packets.iter().filter_map(|(_, bytes)| {
        let Body::Response(response) = Frame::parse(bytes).unwrap().body else {
            return None;
        };
        let code = response.refusal.map(|refusal| refusal.code);
        Some((response.message.0, response.opcode, code))
    });
    bodies.collect()
}

fn same(pair: &Pair, from: u64, to: u64, length: usize) -> bool {
    pair.a.host.bytes(BASE + from, length) == pair.b.host.bytes(BASE + to, length)
}

//= MR-STR-001 type=test
//= MR-STR-002 type=test
//= MR-STR-003 type=test
#[test]
fn data_lands_at_once_and_effects_wait_for_their_turn() {
    let setup = Setup::default();
    let mut pair = setup.connect();
    second(&mut pair, &setup);
    pair.a.fill(BASE, 8192, 1);
    pair.b.post_recv(pair.now, 50, BASE + HALF + 8192, 4096);
    let held = pair.drop_while("a Write m100 @0 ");
    pair.a.post(pair.now, write(1, HALF, 0, 2048));
    let send = SendOperation::SendImmediate(9);
    pair.a.post(pair.now, request(2, send, BASE + 4096, 2000));
    let other = write(3, HALF + 32_768, 0, 3000);
    let End { endpoint, host, .. } = &mut pair.a;
    endpoint
        .post_send(pair.now, SECOND[0], other, host)
        .unwrap();
    pair.run_for(Duration::from_micros(200));
    // The rest is in place, and no effect shows. The other stream did not wait.
    assert!(same(&pair, 1024, HALF + 1024, 1024) && same(&pair, 4096, HALF + 8192, 2000));
    assert!(!same(&pair, 0, HALF, 1024));
    assert_eq!(pair.b.completions(), []);
    assert_eq!(pair.a.completions(), [(3, OK)]);
    held.set(false);
    let done = loop {
        pair.run_for(Duration::from_micros(1));
        let done = pair.b.completions();
        if !done.is_empty() {
            break done;
        }
    };
    assert_eq!(done, [(50, OK)]);
    assert!(same(&pair, 0, HALF, 2048) && same(&pair, 4096, HALF + 8192, 2000));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK), (2, OK)]);
}

//= MR-STR-004 type=test
#[test]
fn a_fence_waits_for_answers() {
    let mut pair = Setup::default().connect();
    let held = pair.drop_while("b ReadData");
    let get = SendOperation::Read(at(0));
    pair.a.post(pair.now, request(1, get, BASE + HALF, 100));
    let fenced = SendRequest {
        flags: SendFlags {
            fence: true,
            signaled: true,
            ..SendFlags::default()
        },
        ..write(2, HALF, 0, 100)
    };
    pair.a.post(pair.now, fenced);
    pair.run_for(Duration::from_micros(500));
    assert_eq!(pair.lines("a", "Write").count(), 0);
    held.set(false);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK), (2, OK)]);
}

//= MR-STR-005 type=test
#[test]
fn no_more_messages_are_unconfirmed_than_the_window() {
    let mut pair = Setup::default()
        .with(|setup| setup.config.message_window = 4)
        .connect();
    let held = pair.drop_while("b ack");
    for wr_id in 0..10 {
        pair.a.post(pair.now, write(wr_id, HALF, 0, 100));
    }
    pair.run_for(Duration::from_micros(500));
    assert_eq!(messages(&pair, "a", "Write").len(), 4);
    held.set(false);
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 10);
    assert_eq!(pair.b.endpoint.counters().dropped_violation, 0);
}

//= MR-STR-006 type=test
#[test]
fn the_nth_message_that_uses_one_names_the_nth_receive() {
    let mut pair = Setup::default().connect();
    for wr_id in 0..3 {
        pair.b
            .post_recv(pair.now, wr_id, BASE + HALF + wr_id * 4096, 4096);
    }
    let named = Rc::new(RefCell::new(Vec::new()));
    let names = named.clone();
    pair.script = Some(Box::new(move |_, frame| {
        if let Body::Request(request) = &frame.body {
            names
                .borrow_mut()
                .push((request.message.0, request.receive.0));
        }
        Fate::Pass
    }));
    let immediate = SendOperation::WriteImmediate(at(HALF), 5);
    for request in [
        write(1, HALF, 0, 100),
        send(2, 100),
        write(3, HALF, 0, 100),
        request(4, immediate, BASE, 100),
        send(5, 100),
    ] {
        pair.a.post(pair.now, request);
    }
    pair.run_until_idle();
    let mut named = named.borrow().clone();
    named.sort_unstable();
    assert_eq!(named, [(100, 0), (101, 0), (102, 0), (103, 1), (104, 2)]);
    assert_eq!(pair.b.completions(), [(0, OK), (1, OK), (2, OK)]);
}

//= MR-STR-007 type=test
#[test]
fn what_has_no_receive_is_not_sent() {
    let mut pair = Setup::default().connect();
    for wr_id in 1..=3 {
        pair.a.post(pair.now, send(wr_id, 100));
    }
    pair.run_for(Duration::from_millis(5));
    let first = [String::from("m100")].into();
    // Nothing is known yet, so one finds out.
    assert_eq!(messages(&pair, "a", "Send"), first);
    pair.b.post_recv(pair.now, 50, BASE + HALF, 4096);
    pair.run_for(Duration::from_millis(20));
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert_eq!(
        messages(&pair, "a", "Send"),
        first,
        "one receive is known of"
    );
    for wr_id in 51..53 {
        pair.b.post_recv(pair.now, wr_id, BASE + HALF, 4096);
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(2, OK), (3, OK)]);
}

//= MR-STR-008 type=test
#[test]
fn news_of_receives_come_again_until_they_arrive() {
    let mut pair = Setup::default().connect();
    pair.b.post_recv(pair.now, 50, BASE + HALF, 4096);
    pair.run_until_idle();
    pair.a.post(pair.now, send(1, 100));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    pair.a.post(pair.now, send(2, 100));
    pair.run_for(Duration::from_micros(100));
    let before = pair.lines("b", "update").count();
    pair.drop_first("b update", 2);
    pair.b.post_recv(pair.now, 51, BASE + HALF, 4096);
    // Soon after the third, and long before anyone would ask.
    pair.run_for(Duration::from_millis(2));
    assert_eq!(pair.a.completions(), [(2, OK)]);
    assert!(pair.lines("b", "update").count() >= before + 3);
}

//= MR-REL-021 type=test
#[test]
fn a_requester_asks_for_receives_whose_news_were_lost() {
    let mut pair = Setup::default().connect();
    pair.b.post_recv(pair.now, 50, BASE + HALF, 4096);
    pair.run_until_idle();
    pair.a.post(pair.now, send(1, 100));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK)]);
    // As after an acknowledgement that told of the next receive and got lost.
    let stream = pair.b.endpoint.streams.by_number_mut(pair.b.qpn.value());
    stream.unwrap().responder.told_limit = Some(ReceiveNumber(2));
    pair.b.post_recv(pair.now, 51, BASE + HALF, 4096);
    pair.run_until_idle();
    pair.a.post(pair.now, send(2, 100));
    pair.run_for(Duration::from_millis(2));
    assert_eq!(pair.a.completions(), [(2, OK)]);
    assert_eq!(pair.lines("b", "update").count(), 1, "nobody tells unasked");
}

//= MR-STR-009 type=test
#[test]
fn a_requester_without_a_receive_waits_as_often_as_it_was_told() {
    let run = |rnr_retry| {
        let mut pair = Setup::default()
            .with(|setup| {
                setup.target.rnr_retry = rnr_retry;
                // Code 16: 2.56 ms.
                setup.target.min_rnr_timer = 16;
            })
            .connect();
        let start = pair.now;
        pair.a.post(pair.now, send(1, 100));
        let mut done = Vec::new();
        while done.is_empty() && pair.now.since(start) < Duration::from_millis(150) {
            pair.run_for(Duration::from_micros(100));
            done = pair.a.completions();
        }
        (done, pair.now.since(start).as_micros())
    };
    for (retries, least) in [(0, 0), (1, 2_560), (3, 7_680)] {
        let (done, waited) = run(retries);
        assert_eq!(done, [(1, CompletionStatus::RnrRetryExceeded)]);
        assert!(
            (least..least + 3_000).contains(&waited),
            "{retries}: {waited} µs"
        );
    }
    assert_eq!(run(7).0, [], "for ever");
}

/// A pair whose `b` takes receives from a shared queue.
fn shared() -> Pair {
    let setup = Setup::default();
    let mut pair = setup.bare();
    let (pd, xrc) = (PD, None);
    let attributes = SrqAttributes {
        max_wr: 8,
        max_sge: 4,
        limit: 0,
    };
    let init = SrqInit {
        pd,
        attributes,
        xrc,
    };
    pair.b.endpoint.create_srq(SrqId(1), init).unwrap();
    let mut init = setup.init();
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.a.endpoint.create_stream(a, init).unwrap();
    init.srq = Some(SrqId(1));
    pair.b.endpoint.create_stream(b, init).unwrap();
    pair.connect_streams(&setup);
    pair.run_until_idle();
    pair
}

fn post_shared(pair: &mut Pair, wr_id: u64) {
    let request = RecvRequest {
        wr_id,
        sges: sges(BASE + HALF + wr_id * 4096, 4096),
    };
    pair.b.endpoint.post_srq_recv(SrqId(1), request).unwrap();
}

//= MR-STR-011 type=test
#[test]
fn a_later_message_gives_its_shared_receive_to_an_earlier_one() {
    let mut pair = shared();
    post_shared(&mut pair, 1);
    // The peer learns that receives are shared.
    pair.a.post(pair.now, send(1, 100));
    pair.run_until_idle();
    assert_eq!(
        (pair.a.completions(), pair.b.completions()),
        ([(1, OK)].into(), [(1, OK)].into())
    );
    let held = pair.drop_while("a Send m101 ");
    post_shared(&mut pair, 2);
    pair.a.fill(BASE, 4000, 3);
    pair.a.post(pair.now, send(2, 1000));
    pair.a
        .post(pair.now, request(3, SendOperation::Send, BASE + 2000, 1000));
    pair.run_for(Duration::from_micros(300));
    assert!(
        same(&pair, 2000, HALF + 2 * 4096, 1000),
        "the later one has it"
    );
    held.set(false);
    pair.run_for(Duration::from_micros(400));
    assert_eq!(pair.b.completions(), [(2, OK)]);
    assert!(same(&pair, 0, HALF + 2 * 4096, 1000));
    assert!(pair.lines("b", "Refused m102").count() >= 1);
    // With none at all, a message is refused and comes again.
    pair.run_for(Duration::from_millis(3));
    assert_eq!(pair.b.completions(), []);
    post_shared(&mut pair, 3);
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), [(3, OK)]);
    assert_eq!(pair.a.completions(), [(2, OK), (3, OK)]);
}

//= MR-STR-012 type=test
#[test]
fn a_read_sees_what_was_written_before_it_and_lands_piece_by_piece() {
    let mut pair = Setup::default().connect();
    pair.a.fill(BASE, 2048, 1);
    let held = pair.drop_while("a Write m100 @0 ");
    pair.a.post(pair.now, write(1, HALF, 0, 2048));
    let get = SendOperation::Read(at(HALF));
    pair.a.post(pair.now, request(2, get, BASE + 4096, 2048));
    pair.run_for(Duration::from_micros(200));
    assert_eq!(pair.b.endpoint.counters().reads_executed, 0);
    held.set(false);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK), (2, OK)]);
    assert_eq!(
        pair.a.host.bytes(BASE, 2048),
        pair.a.host.bytes(BASE + 4096, 2048)
    );

    pair.b.fill(BASE, 3000, 2);
    let held = pair.drop_while("b ReadData m102 @0 ");
    let get = SendOperation::Read(at(0));
    pair.a.post(pair.now, request(3, get, BASE + HALF, 3000));
    pair.run_for(Duration::from_micros(200));
    assert!(pair.a.host.bytes(BASE + HALF + 1024, 1976) == pair.b.host.bytes(BASE + 1024, 1976));
    assert_eq!(pair.a.completions(), []);
    held.set(false);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(3, OK)]);
    assert!(pair.a.host.bytes(BASE + HALF, 3000) == pair.b.host.bytes(BASE, 3000));
}

//= MR-STR-013 type=test
#[test]
fn reads_in_progress_are_limited_on_both_sides() {
    let one = Setup::default().with(|setup| {
        setup.target.max_rd_atomic = 2;
        setup.target.max_dest_rd_atomic = 1;
    });
    let mut pair = one.connect();
    let held = pair.drop_while("b ");
    for wr_id in 0..5 {
        let get = SendOperation::Read(at(0));
        pair.a.post(pair.now, request(wr_id, get, BASE + HALF, 100));
    }
    pair.run_for(Duration::from_micros(100));
    assert_eq!(messages(&pair, "a", "Read").len(), 2);
    held.set(false);
    // Beyond the responder's limit, with the first answer still to be sent.
    let mut pair = one.connect();
    pair.forge(0, Body::Request(read(100)));
    pair.forge(0, Body::Request(read(101)));
    let invalid = (
        101,
        ResponseOpcode::Refused,
        Some(RefusalCode::InvalidRequest),
    );
    assert!(responses(&mut pair).contains(&invalid));
    // The first answer has been sent whole: who asks on has it.
    let mut pair = one.connect();
    pair.forge(0, Body::Request(read(100)));
    assert_eq!(
        responses(&mut pair),
        [(100, ResponseOpcode::ReadData, None)]
    );
    pair.forge(0, Body::Request(read(101)));
    assert_eq!(
        responses(&mut pair),
        [(101, ResponseOpcode::ReadData, None)]
    );
    assert_eq!(pair.b.connection().jobs.len(), 1);
}

//= MR-STR-014 type=test
#[test]
fn an_atomic_happens_once_and_on_an_aligned_word() {
    let mut pair = Setup::default().connect();
    pair.script = Some(Box::new(|_, _| Fate::Twice));
    pair.b.host.set_word(BASE + 16, 5);
    let add = SendOperation::FetchAdd {
        remote: at(16),
        add: 2,
    };
    pair.a.post(pair.now, request(1, add, BASE + 64, 8));
    pair.a.host.set_word(BASE + 128, 99);
    let put = SendOperation::AtomicWrite(at(24));
    pair.a.post(pair.now, request(2, put, BASE + 128, 8));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK), (2, OK)]);
    assert_eq!(
        (pair.a.host.word(BASE + 64), pair.b.host.word(BASE + 16)),
        (5, 7)
    );
    assert_eq!(pair.b.host.word(BASE + 24), 99);
    assert_eq!((pair.b.host.atomics, pair.b.host.writes), (1, 1));
    let odd = SendOperation::FetchAdd {
        remote: at(20),
        add: 2,
    };
    pair.a.post(pair.now, request(3, odd, BASE + 64, 8));
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [(3, CompletionStatus::RemoteInvalidRequest)]
    );
    assert_eq!(pair.b.host.atomics, 1);
}

//= MR-STR-015 type=test
#[test]
fn what_fails_is_refused_when_its_turn_comes() {
    let mut pair = Setup::default().connect();
    pair.b.post_recv(pair.now, 50, BASE + HALF, 4096);
    pair.run_until_idle();
    pair.a.fill(BASE, 2048, 1);
    let held = pair.drop_while("a Write m100 @0 ");
    pair.a.post(pair.now, write(1, HALF + 8192, 0, 2048));
    let nowhere = Remote {
        address: BASE,
        rkey: 0x999,
    };
    pair.a.post(pair.now, write_to(nowhere, 2, 100));
    pair.a.post(pair.now, send(3, 100));
    pair.run_for(Duration::from_micros(300));
    // It must fail, and its turn has not come.
    assert_eq!(pair.lines("b", "Refused").count(), 0);
    held.set(false);
    pair.run_until_idle();
    let refused = CompletionStatus::RemoteAccess;
    assert_eq!(pair.a.completions(), [(1, OK), (2, refused), (3, FLUSHED)]);
    assert!(same(&pair, 0, HALF + 8192, 2048));
    assert_eq!(pair.b.completions(), [(50, FLUSHED)]);
    assert_eq!(
        pair.b.endpoint.stream_state(pair.b.qpn),
        Some(QpState::Error)
    );
}

//= MR-STR-016 type=test
#[test]
fn the_first_piece_has_the_whole_range_checked() {
    let mut pair = Setup::default().connect();
    // All but the last piece would fit.
    let end = 1 << 20;
    pair.a.post(pair.now, write(1, end - 4096, 0, 5000));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, CompletionStatus::RemoteAccess)]);
    assert_eq!(pair.b.host.writes, 0);
}

//= MR-STR-017 type=test
#[test]
fn a_refused_message_has_its_status_and_the_rest_is_flushed() {
    let cases = [
        (CompletionStatus::RemoteInvalidRequest, 0, KEY),
        (CompletionStatus::RemoteAccess, 0x30e, 0x999),
        (CompletionStatus::RemoteOperation, 0x30e, KEY),
    ];
    for (status, access_flags, rkey) in cases {
        let setup = Setup::default().with(|setup| setup.target.access_flags = access_flags);
        let mut pair = setup.connect();
        // Two receives: the second has a key that grants nothing.
        pair.b.post_recv(pair.now, 50, BASE + HALF, 4096);
        let mut list = sges(BASE + HALF, 4096);
        list[0].lkey = 0x999;
        let faulty = RecvRequest {
            wr_id: 51,
            sges: list,
        };
        let End {
            endpoint,
            host,
            qpn,
            ..
        } = &mut pair.b;
        endpoint.post_recv(pair.now, *qpn, faulty, host).unwrap();
        pair.run_until_idle();
        pair.a.post(pair.now, send(1, 100));
        if status == CompletionStatus::RemoteOperation {
            pair.a.post(pair.now, send(2, 100));
        } else {
            let remote = Remote {
                address: BASE,
                rkey,
            };
            pair.a.post(pair.now, write_to(remote, 2, 100));
        }
        for wr_id in 3..6 {
            pair.a.post(pair.now, write(wr_id, HALF, 0, 3000));
        }
        pair.run_until_idle();
        let expected = [
            (1, OK),
            (2, status),
            (3, FLUSHED),
            (4, FLUSHED),
            (5, FLUSHED),
        ];
        assert_eq!(pair.a.completions(), expected);
    }
}

//= MR-STR-018 type=test
#[test]
fn a_stream_that_does_not_exist_yet_is_waited_for() {
    let setup = Setup::default().with(|setup| setup.target.retry_count = 2);
    let mut pair = setup.connect();
    let End { endpoint, qpn, .. } = &mut pair.a;
    endpoint.destroy_stream(*qpn).unwrap();
    endpoint.create_stream(*qpn, setup.init()).unwrap();
    let nobody = StreamTarget {
        peer: pair.b.addresses[0],
        qpn: Qpn::new(0x1ff),
        ..setup.target
    };
    endpoint.connect_stream(pair.now, *qpn, nobody).unwrap();
    pair.a.post(pair.now, write(1, HALF, 0, 100));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, CompletionStatus::RetryExceeded)]);
    let times: Vec<u64> = pair
        .lines("a", "Write m100")
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    let waits: Vec<u64> = times
        .windows(2)
        .map(|two| (two[1] - two[0]) / 1000)
        .collect();
    // Two tries, and six more.
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64]);
    // The refusal names the stream that was asked for.
    pair.forge(
        0,
        Body::Request(Request {
            stream: 0x1ff,
            ..read(5)
        }),
    );
    let packets = pair.b.take_packets(pair.now);
    let named = packets
        .iter()
        .find_map(|(_, bytes)| match Frame::parse(bytes).unwrap().body {
            Body::Response(response) => Some((response.stream, response.refusal?.code)),
            _ => None,
        });
    assert_eq!(named, Some((0x1ff, RefusalCode::UnknownStream)));
}

//= MR-STR-019 type=test
#[test]
fn datagrams_are_refused() {
    for opcode in [RequestOpcode::Datagram, RequestOpcode::DatagramImmediate] {
        let mut pair = Setup::default().connect();
        let datagram = Request {
            length: 4,
            payload: b"data",
            ..piece(opcode, 0x102, 100)
        };
        pair.forge(0, Body::Request(datagram));
        let invalid = (
            100,
            ResponseOpcode::Refused,
            Some(RefusalCode::InvalidRequest),
        );
        assert_eq!(responses(&mut pair), [invalid]);
    }
}
