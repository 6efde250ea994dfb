//! What an attacker can and cannot do: part 9 of the specification.

use super::craft::{ack, bytes, frame, hello, request as piece};
use super::pair::{Fate, OK, Pair, Setup, at, request, write};
use crate::metaroce::handshake::{connection_id, nonce};
use crate::testing::{BASE, KEY, Random};
use crate::{QpState, SendOperation};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use feroce_wire::metaroce::{
    Body, Close, CloseCode, ConnectionId, Epoch, Frame, Handshake, MessageNumber, PacketNumber,
    ReceiveNumber, Refuse, RefuseCode, Remote, Request, RequestOpcode, Retry, Streams, Update,
    Updates, Vector,
};
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

const HALF: u64 = 1 << 19;

fn stranger() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 66))
}

/// One packet of every type that takes effect on a connection, all as harmful as can be.
fn attacks(pair: &Pair, name: ConnectionId) -> Vec<Vec<u8>> {
    let stream = pair.b.qpn.value();
    let overwrite = Request {
        length: 8,
        remote: Remote {
            address: BASE + HALF,
            key: KEY,
        },
        payload: b"attacked",
        ..piece(RequestOpcode::Write, stream, 100)
    };
    let all_done = [Update {
        stream,
        completed: MessageNumber(u32::MAX - 2),
        limit: Some(ReceiveNumber(1000)),
        delay_code: 1,
    }
    .into()];
    let streams = [stream.into()];
    let close = Close {
        source: pair.a.connection().local,
        code: CloseCode::Done,
        answer: false,
    };
    let (epoch, number) = pair.b.next_on(0);
    let numbered = |body| Frame {
        epoch,
        number,
        ..frame(name, body)
    };
    vec![
        bytes(&numbered(Body::Request(overwrite))),
        bytes(&numbered(Body::Update(Updates(&all_done)))),
        bytes(&numbered(Body::Probe(Streams(&streams)))),
        bytes(&frame(name, Body::Ack(ack(Updates(&all_done))))),
        bytes(&frame(name, Body::Close(close))),
    ]
}

/// A pair whose `b` has a write of its own under way, which an attacker would like to end.
fn busy() -> Pair {
    let mut pair = Setup::default().connect();
    pair.b.post(pair.now, write(1, 0, 0, 100));
    pair.b.take_packets(pair.now);
    pair
}

//= MR-SEC-002 type=test
#[test]
fn a_wrong_name_takes_no_effect() {
    let mut pair = busy();
    let a = pair.a.addresses[0];
    let name = pair.b.connection().local;
    let before = pair.b.state();
    let mut random = Random::new(1);
    for turn in 0..2000 {
        let bit = 1 << random.below(64);
        let guess = if turn % 2 == 0 {
            name.0 ^ bit
        } else {
            random.next()
        };
        for attack in attacks(&pair, ConnectionId(guess)) {
            let attack = Frame::parse(&attack).unwrap();
            pair.deliver(true, a, &attack);
        }
    }
    // Who closes what nobody knows is answered, in bounded number, and that is all.
    pair.b.endpoint.replies.clear();
    assert_eq!(pair.b.state(), before);
    assert_eq!(
        pair.b.endpoint.counters().dropped_unknown_connection,
        10_000
    );
}

//= MR-SEC-002 type=test
//= MR-CON-011 type=test
#[test]
fn a_spoofed_source_takes_no_effect_even_with_the_right_names() {
    let mut pair = busy();
    let name = pair.b.connection().local;
    let before = pair.b.state();
    let attacks = attacks(&pair, name);
    for attack in &attacks {
        pair.deliver(true, stranger(), &Frame::parse(attack).unwrap());
    }
    assert_eq!(pair.b.state(), before);
    assert_eq!(pair.b.endpoint.counters().dropped_address, 5);
    // From the right address they would have taken effect: the attacks are real.
    let (writes, a) = (pair.b.host.writes, pair.a.addresses[0]);
    pair.deliver(true, a, &Frame::parse(&attacks[0]).unwrap());
    assert_eq!(pair.b.host.writes, writes + 1);
    pair.deliver(true, a, &Frame::parse(&attacks[4]).unwrap());
    assert_eq!(pair.b.endpoint.connection_count(), 0);
}

//= MR-SEC-002 type=test
#[test]
fn a_wrong_cookie_or_nonce_takes_no_effect() {
    let mut pair = Setup::default().bare();
    let (target, origin) = (pair.b.qpn, pair.a.qpn);
    let b = pair.b.addresses[0];
    let before = pair.b.state();
    let offer = hello(stranger(), 5);
    let good = pair.b.cookie(pair.now, stranger(), &offer);
    for bit in 0..64 {
        let cookie = good ^ 1 << bit;
        let forged = Body::Hello(Handshake { cookie, ..offer });
        pair.deliver(true, stranger(), &frame(ConnectionId(0), forged));
        pair.b.endpoint.replies.clear();
        assert_eq!(pair.b.state(), before, "bit {bit}");
    }
    // An offer of a's under way: answers that do not know its nonce are nobody's.
    pair.a
        .endpoint
        .connect(pair.now, b, target, origin)
        .unwrap();
    pair.a.take_packets(pair.now);
    let name = pair.a.connection().local;
    let before = pair.a.state();
    let forged = [
        Body::Retry(Retry {
            nonce: 1,
            cookie: 1,
            versions: (0, 0),
        }),
        Body::Accept(hello(b, 6)),
        Body::Refuse(Refuse {
            nonce: 1,
            code: RefuseCode::Full,
        }),
    ];
    for body in forged {
        pair.deliver(false, b, &frame(name, body));
        assert_eq!(pair.a.state(), before, "{body:?}");
    }
}

//= MR-SEC-002 type=test
//= MR-PTH-003 type=test
#[test]
fn an_old_epoch_takes_no_effect() {
    let mut pair = busy();
    // Path 0 of a changes its port, and b has heard of it.
    let config = pair.a.endpoint.config().clone();
    pair.a.connection_mut().rebind(&config, 0);
    for wr_id in 0..8 {
        pair.a.post(pair.now, write(wr_id, HALF, 0, 1024));
    }
    pair.run_for(Duration::from_micros(500));
    assert_eq!(pair.b.next_on(0).0, Epoch(1));
    let name = pair.b.connection().local;
    let attacks = attacks(&pair, name);
    let (writes, a) = (pair.b.host.writes, pair.a.addresses[0]);
    let before = pair.b.state();
    for attack in attacks.iter().take(3) {
        let number = PacketNumber(500);
        let attack = Frame {
            epoch: Epoch(0),
            number,
            ..Frame::parse(attack).unwrap()
        };
        pair.deliver(true, a, &attack);
    }
    assert_eq!(pair.b.host.writes, writes);
    assert_eq!(pair.b.endpoint.counters().dropped_old_epoch, 3);
    pair.b.take_packets(pair.now);
    assert_eq!(pair.b.state(), before);
}

//= MR-PTH-003 type=test
//= MR-REL-014 type=test
#[test]
fn an_acknowledgement_of_another_epoch_or_of_what_was_never_sent_changes_nothing() {
    let mut pair = busy();
    let b = pair.b.connection();
    let name = b.local;
    let (epoch, next) = (b.paths[0].epoch, b.paths[0].next_number());
    let all_done = [Update {
        stream: pair.b.qpn.value(),
        completed: MessageNumber(u32::MAX - 2),
        limit: None,
        delay_code: 1,
    }
    .into()];
    let before = pair.b.state();
    let a = pair.a.addresses[0];
    for (epoch, number) in [
        (epoch.next(), PacketNumber(0)),
        (Epoch(epoch.0.wrapping_sub(1)), PacketNumber(0)),
        (epoch, next),
        (epoch, next.plus(1 << 30)),
    ] {
        let forged = Frame {
            epoch,
            number,
            ..frame(name, Body::Ack(ack(Updates(&all_done))))
        };
        pair.deliver(true, a, &forged);
        pair.b.take_packets(pair.now);
        assert_eq!(pair.b.state(), before, "{epoch:?} {number}");
    }
    assert_eq!(pair.b.endpoint.counters().dropped_old_epoch, 4);
    assert_eq!(pair.b.completions(), []);
}

/// Everything that is sent, in order, and to whom.
type Tape = Rc<RefCell<Vec<(bool, Vec<u8>)>>>;

fn record(pair: &mut Pair) -> Tape {
    let tape = Tape::default();
    let writer = tape.clone();
    pair.script = Some(Box::new(move |words, frame| {
        let to_b = words.starts_with('a');
        writer.borrow_mut().push((to_b, bytes(frame)));
        Fate::Pass
    }));
    tape
}

fn work(pair: &mut Pair) {
    pair.b.post_recv(pair.now, 50, BASE + 4096, 4096);
    let add = SendOperation::FetchAdd {
        remote: at(0),
        add: 1,
    };
    pair.a.post(pair.now, write(1, HALF, 4096, 9000));
    pair.a.post(pair.now, request(2, add, BASE + 64, 8));
    pair.a
        .post(pair.now, request(3, SendOperation::Send, BASE + 4096, 3000));
    let read = SendOperation::Read(at(4096));
    pair.a.post(pair.now, request(4, read, BASE + HALF, 5000));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, OK), (2, OK), (3, OK), (4, OK)]);
    assert_eq!(pair.b.completions(), [(50, OK)]);
}

//= MR-SEC-003 type=test
#[test]
fn everything_that_was_ever_sent_comes_again_without_effect() {
    let setup = Setup::default();
    let mut pair = setup.bare();
    let tape = record(&mut pair);
    for end in [&mut pair.a, &mut pair.b] {
        end.endpoint.create_stream(end.qpn, setup.init()).unwrap();
    }
    pair.connect_streams(&setup);
    work(&mut pair);
    pair.script = None;
    let tape = tape.borrow().clone();
    let mut random = Random::new(3);
    for seconds in [0, 9, 100] {
        pair.now = pair.now + Duration::from_secs(seconds);
        let memory = [&pair.a, &pair.b].map(|end| end.host.memory.clone());
        for _ in 0..3 * tape.len() {
            let (to_b, packet) = &tape[random.below(tape.len() as u64) as usize];
            let from = if *to_b { &pair.a } else { &pair.b }.addresses[0];
            pair.deliver(*to_b, from, &Frame::parse(packet).unwrap());
        }
        pair.run_until_idle();
        for (end, memory) in [&mut pair.a, &mut pair.b].into_iter().zip(memory) {
            assert!(end.host.memory == memory, "memory was touched");
            assert_eq!(end.completions(), []);
            assert_eq!(
                end.endpoint.stream_state(end.qpn),
                Some(QpState::ReadyToSend)
            );
            assert_eq!(end.endpoint.connection_count(), 1);
        }
        assert_eq!(pair.b.host.atomics, 1);
    }
    work(&mut pair);
}

//= MR-SEC-004 type=test
#[test]
fn mutated_packets_break_nothing_and_cost_bounded_memory() {
    for seed in 0..20 {
        let mut pair = Setup::default()
            .with(|setup| setup.config.reorder_words_max = 16)
            .connect();
        let tape = record(&mut pair);
        work(&mut pair);
        pair.script = None;
        let tape = tape.borrow().clone();
        let mut random = Random::new(seed);
        for _ in 0..3000 {
            let (to_b, packet) = &tape[random.below(tape.len() as u64) as usize];
            let mut packet = packet.clone();
            for _ in 0..1 + random.below(3) {
                let place = random.below(packet.len() as u64) as usize;
                packet[place] = random.next() as u8;
            }
            // Mostly with a number that is new, so that the rest is looked at.
            if random.chance(3, 4) {
                packet[12..16].copy_from_slice(&(random.below(1 << 16) as u32).to_be_bytes());
            }
            let Ok(frame) = Frame::parse(&packet) else {
                continue;
            };
            let from = if *to_b { &pair.a } else { &pair.b }.addresses[0];
            pair.deliver(*to_b, from, &frame);
            pair.run_for(Duration::from_micros(random.below(20)));
        }
        for end in [&pair.a, &pair.b] {
            assert!(end.endpoint.connection_count() <= 2);
            assert!(end.endpoint.replies.len() <= 64);
            for (_, connection) in &end.endpoint.connections {
                assert!(connection.jobs.len() <= 1024 + 32);
            }
        }
        pair.run_for(Duration::from_secs(2));
    }
}

//= MR-SEC-004 type=test
#[test]
fn refusals_for_unknown_streams_are_bounded() {
    let mut pair = Setup::default().connect();
    for message in 0..5000 {
        let nobody = piece(RequestOpcode::Read, 0x00ff_0000, message);
        let nobody = Request {
            length: 1,
            ..nobody
        };
        pair.forge((message % 4) as u8, Body::Request(nobody));
    }
    assert_eq!(pair.b.connection().jobs.len(), 1024);
}

//= MR-SEC-004 type=test
#[test]
fn what_a_failed_stream_held_is_free_again() {
    let setup = Setup::default().with(|setup| setup.config.reorder_words_max = 4);
    let mut pair = setup.connect();
    let length = 1 << 18;
    for round in 0..20 {
        // The first segments are missing, and then the stream fails.
        let body = |segment: u32| Request {
            offset: segment * 1024,
            length,
            remote: Remote {
                address: BASE,
                key: KEY,
            },
            payload: &[7; 1024],
            ..piece(RequestOpcode::Write, 0x102, 100)
        };
        pair.forge(0, Body::Request(body(130)));
        assert_eq!(pair.b.endpoint.counters().dropped_resources, 0, "{round}");
        let (now, qpn) = (pair.now, pair.b.qpn);
        pair.b.endpoint.fail_stream(now, qpn, &mut pair.b.host);
        pair.b.endpoint.destroy_stream(qpn).unwrap();
        pair.b.endpoint.create_stream(qpn, setup.init()).unwrap();
        let back = crate::metaroce::StreamTarget {
            peer: pair.a.addresses[0],
            qpn: pair.a.qpn,
            receive_number: MessageNumber(100),
            ..setup.target
        };
        pair.b.endpoint.connect_stream(now, qpn, back).unwrap();
    }
}

//= MR-SEC-001 type=test
#[test]
fn names_and_nonces_differ_and_follow_from_the_secret_alone() {
    let mut seen = BTreeSet::new();
    let mut upper = BTreeSet::new();
    for secret in [[1, 2], [1, 3], [0, 0]] {
        for count in 0..2000 {
            let name = connection_id(secret, count).0;
            assert_eq!(name, connection_id(secret, count).0);
            assert!(seen.insert(name) && seen.insert(nonce(secret, count)));
            upper.insert(name >> 32);
        }
    }
    // 6000 of 2^32: two alike are possible, three are not to be expected.
    assert!(upper.len() >= 5998, "{}", upper.len());
    let ones: u32 = seen.iter().map(|name| name.count_ones()).sum();
    let mean = f64::from(ones) / seen.len() as f64;
    assert!((31.8..32.2).contains(&mean), "{mean}");
}

//= MR-SEC-006 type=test
//= MR-STR-016 type=test
#[test]
fn keys_are_checked_for_every_piece() {
    let mut pair = Setup::default().connect();
    let body = |segment: u32| Request {
        offset: segment * 1024,
        length: 4096,
        remote: Remote {
            address: BASE,
            key: KEY,
        },
        payload: &[7; 1024],
        ..piece(RequestOpcode::Write, 0x102, 100)
    };
    pair.forge(0, Body::Request(body(1)));
    assert_eq!(pair.b.host.writes, 1);
    // The key is gone: the pieces that come now are not placed, though the message was checked.
    pair.b.host.keys.remove(&KEY);
    pair.forge(0, Body::Request(body(2)));
    pair.forge(0, Body::Request(body(0)));
    assert_eq!(pair.b.host.writes, 1);
    assert_eq!(
        pair.b.endpoint.stream_state(pair.b.qpn),
        Some(QpState::Error)
    );
    assert_eq!(pair.b.host.bytes(BASE, 1024), [0; 1024]);
}

//= MR-SEC-002 type=test
#[test]
fn an_acknowledgement_of_the_right_path_is_what_it_takes() {
    // The counterpart of the tests above: what is right in everything does take effect.
    let mut pair = busy();
    let b = pair.b.connection();
    let flying = b.paths.iter().find(|path| path.is_flying()).unwrap();
    let (path, epoch, next) = (flying.id, flying.epoch, flying.next_number());
    let done = [Update {
        stream: pair.b.qpn.value(),
        completed: MessageNumber(u32::MAX - 2),
        limit: None,
        delay_code: 1,
    }
    .into()];
    let right = Frame {
        path,
        epoch,
        number: next.plus(u32::MAX),
        ..frame(b.local, Body::Ack(ack(Updates(&done))))
    };
    assert!(Vector([0xff; 32]).has(256));
    pair.deliver(true, pair.a.addresses[0], &right);
    assert_eq!(pair.b.completions(), [(1, OK)]);
}
