//! Set-up, planes and end of connections: part 4 of the specification.

use super::craft::{ack, bytes, frame, hello, request as piece};
use super::pair::{Fate, OK, Pair, Setup, write};
use crate::metaroce::connection::{Connection, State};
use crate::metaroce::handshake::{cookie, is_good_cookie};
use crate::metaroce::{Endpoint, EndpointConfig, Event, StreamTarget};
use crate::testing::{BASE, KEY};
use crate::{CompletionStatus, Instant, QpState};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use feroce_wire::metaroce::{
    Body, Close, CloseCode, ConnectionId, Frame, Handshake, Planes, RefuseCode, Remote, Request,
    RequestOpcode, Streams, Updates,
};
use std::boxed::Box;
use std::vec::Vec;

const HALF: u64 = 1 << 19;

fn stranger(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

/// What `b` answers to a hello from `from`.
fn answer(pair: &mut Pair, from: IpAddr, hello: Handshake) -> Vec<u8> {
    pair.deliver(true, from, &frame(ConnectionId(0), Body::Hello(hello)));
    let (route, headers) = pair.b.endpoint.replies.pop_back().expect("an answer");
    assert_eq!(route.destination, from);
    headers.as_bytes().to_vec()
}

//= MR-CON-002 type=test
//= MR-SEC-004 type=test
//= MR-SEC-005 type=test
#[test]
fn a_flood_of_hellos_costs_no_state() {
    let mut pair = Setup::default().connect();
    let before = pair.b.state();
    let sent = pair.b.endpoint.counters().retries_sent;
    for name in 1..=100_000_u64 {
        let source = IpAddr::V4(Ipv4Addr::from_bits(0xc633_0000 | name as u32));
        let mut offer = hello(source, name << 32);
        // Every other one guesses a cookie.
        offer.cookie = if name % 2 == 0 { name } else { 0 };
        let offer = frame(ConnectionId(0), Body::Hello(offer));
        pair.deliver(true, source, &offer);
        if name % 1000 == 0 {
            // Answers wait in bounded number, and none is longer than what it answers.
            assert!(pair.b.endpoint.replies.len() <= 64);
            for (_, retry) in pair.b.take_packets(pair.now) {
                assert!(matches!(Frame::parse(&retry).unwrap().body, Body::Retry(_)));
                assert!(retry.len() <= bytes(&offer).len());
            }
        }
    }
    assert_eq!(pair.b.state(), before, "something of a flood is left");
    let counters = pair.b.endpoint.counters();
    assert_eq!(counters.retries_sent - sent, 100_000);
    assert_eq!(counters.bad_cookies, 50_000);
}

//= MR-CON-003 type=test
#[test]
fn a_cookie_is_good_for_one_offer_from_one_address_for_a_while() {
    let (secret, start) = ([3, 4], Instant::from_nanos(1 << 40));
    let here = stranger(1);
    let mut offer = hello(here, 9);
    assert!(!is_good_cookie(secret, start, here, &offer), "none");
    offer.cookie = cookie(secret, start, here, &offer);
    let good = |secret, nanos, from, offer: &Handshake| {
        is_good_cookie(
            secret,
            Instant::from_nanos((1_u64 << 40) + nanos),
            from,
            offer,
        )
    };
    assert!(good(secret, 0, here, &offer));
    assert!(good(secret, 8_000_000_000, here, &offer));
    assert!(!good(secret, 18_000_000_000, here, &offer));
    assert!(!good([3, 5], 0, here, &offer), "of another endpoint");
    assert!(!good(secret, 0, stranger(2), &offer));
    let name = ConnectionId(10);
    assert!(!good(
        secret,
        0,
        here,
        &Handshake {
            source: name,
            ..offer
        }
    ));
    assert!(!good(secret, 0, here, &Handshake { nonce: 1, ..offer }));
    let cookie = offer.cookie ^ 1;
    assert!(!good(secret, 0, here, &Handshake { cookie, ..offer }));
}

//= MR-CON-004 type=test
#[test]
fn a_repeated_hello_gets_the_same_accept_and_changes_nothing() {
    let mut pair = Setup::default().bare();
    let source = stranger(1);
    let mut offer = hello(source, 7);
    offer.cookie = pair.b.cookie(pair.now, source, &offer);
    let first = answer(&mut pair, source, offer);
    let Body::Accept(accept) = Frame::parse(&first).unwrap().body else {
        panic!("accepted");
    };
    assert_eq!(accept.source, pair.b.connection().local);
    assert_eq!(accept.nonce, offer.nonce);
    let before = pair.b.state();
    assert_eq!(answer(&mut pair, source, offer), first);
    assert_eq!(pair.b.state(), before);
}

//= MR-CON-005 type=test
#[test]
fn an_acceptor_is_silent_until_the_initiator_has_shown_its_name() {
    let setup = Setup::default();
    let mut pair = setup.bare();
    let (a, b) = (pair.a.qpn, pair.b.qpn);
    pair.a.endpoint.create_stream(a, setup.init()).unwrap();
    pair.b.endpoint.create_stream(b, setup.init()).unwrap();
    // Nothing but the hellos reach b.
    pair.script = Some(Box::new(|words, _| {
        if words.starts_with("a hello") || words.starts_with("b ") {
            Fate::Pass
        } else {
            Fate::Drop
        }
    }));
    let to = StreamTarget {
        peer: pair.b.addresses[0],
        qpn: b,
        ..setup.target
    };
    pair.a.endpoint.connect_stream(pair.now, a, to).unwrap();
    pair.run_for(Duration::from_millis(1));
    let back = StreamTarget {
        peer: pair.a.addresses[0],
        qpn: a,
        send_number: setup.target.receive_number,
        receive_number: setup.target.send_number,
        ..setup.target
    };
    pair.b.endpoint.connect_stream(pair.now, b, back).unwrap();
    pair.b.post(pair.now, write(1, HALF, 0, 5000));
    pair.b.post_recv(pair.now, 2, BASE, 100);
    pair.run_for(Duration::from_millis(20));
    let quiet = |line: &&std::string::String| {
        ["retry", "accept", "ack"]
            .iter()
            .any(|it| line.contains(it))
    };
    assert_eq!(pair.lines("b", "").find(|line| !quiet(line)), None);
    assert!(pair.lines("b", "accept").count() >= 1);
    pair.script = None;
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), [(1, OK)]);
}

//= MR-CON-006 type=test
#[test]
fn offers_that_cannot_be_accepted_are_refused_with_their_reason() {
    let mut pair = Setup::default()
        .with(|setup| setup.config.max_connections = 1)
        .bare();
    let source = stranger(1);
    let good = hello(source, 7);
    let cases = [
        (
            Handshake {
                versions: (1, 9),
                ..good
            },
            RefuseCode::Version,
        ),
        (
            Handshake {
                segment: 255,
                ..good
            },
            RefuseCode::Invalid,
        ),
        (
            Handshake {
                message_window: 0,
                ..good
            },
            RefuseCode::Invalid,
        ),
        (
            Handshake {
                planes: Planes::new(&[stranger(2)]),
                ..good
            },
            RefuseCode::Invalid,
        ),
    ];
    let refusal = |bytes: &[u8]| match Frame::parse(bytes).unwrap().body {
        Body::Refuse(refuse) => (refuse.nonce, refuse.code),
        other => panic!("{other:?}"),
    };
    for (mut offer, code) in cases {
        offer.cookie = pair.b.cookie(pair.now, source, &offer);
        let answered = answer(&mut pair, source, offer);
        assert_eq!(refusal(&answered), (good.nonce, code));
        assert_eq!(pair.b.endpoint.connection_count(), 0);
    }
    for (name, full) in [(8, false), (9, true)] {
        let mut offer = hello(source, name);
        offer.cookie = pair.b.cookie(pair.now, source, &offer);
        let answered = answer(&mut pair, source, offer);
        if full {
            assert_eq!(refusal(&answered), (offer.nonce, RefuseCode::Full));
        }
        assert_eq!(pair.b.endpoint.connection_count(), 1);
    }
}

fn offered_nonce(connection: &Connection) -> u64 {
    match &connection.state {
        State::Offering(offer) => offer.nonce,
        other => panic!("{other:?}"),
    }
}

//= MR-CON-007 type=test
#[test]
fn of_two_offers_at_the_same_time_the_lower_nonce_stands() {
    let mut lower = [0, 0];
    for secret in 0..20 {
        let setup = Setup::default();
        let mut pair = setup.bare();
        for (end, salt) in [(&mut pair.a, 1), (&mut pair.b, 2)] {
            end.endpoint = Endpoint::new(EndpointConfig {
                secret: [secret, salt],
                ..end.endpoint.config().clone()
            });
            end.endpoint.create_stream(end.qpn, setup.init()).unwrap();
        }
        let (a, b) = (pair.a.qpn, pair.b.qpn);
        let to = StreamTarget {
            peer: pair.b.addresses[0],
            qpn: b,
            ..setup.target
        };
        let back = StreamTarget {
            peer: pair.a.addresses[0],
            qpn: a,
            send_number: to.receive_number,
            receive_number: to.send_number,
            ..to
        };
        pair.a.endpoint.connect_stream(pair.now, a, to).unwrap();
        pair.b.endpoint.connect_stream(pair.now, b, back).unwrap();
        let nonces = [&pair.a, &pair.b].map(|end| offered_nonce(end.connection()));
        pair.a.post(pair.now, write(1, HALF, 0, 5000));
        pair.b.post(pair.now, write(2, HALF, 0, 5000));
        pair.run_until_idle();
        assert_eq!(pair.a.completions(), [(1, OK)]);
        assert_eq!(pair.b.completions(), [(2, OK)]);
        let least = nonces[0].min(nonces[1]);
        lower[usize::from(nonces[1] == least)] += 1;
        for end in [&pair.a, &pair.b] {
            assert_eq!(end.connection().nonce, least, "secret {secret}");
        }
    }
    assert!(lower[0] > 0 && lower[1] > 0, "{lower:?}");
}

//= MR-CON-008 type=test
#[test]
fn a_hello_comes_again_at_doubled_intervals_from_other_ports() {
    let setup = Setup::default().with(|setup| setup.planes = 2);
    let mut pair = setup.bare();
    let (a, b) = (pair.a.qpn, pair.b.addresses[0]);
    pair.a.endpoint.connect(pair.now, b, pair.b.qpn, a).unwrap();
    let (mut times, mut ports, mut planes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..6 {
        let packets = pair.a.take_packets(pair.now);
        assert_eq!(packets.len(), 1);
        times.push(pair.now.nanos() / 1_000);
        ports.push(packets[0].0.source_port);
        planes.push(packets[0].0.source);
        pair.now = pair.a.endpoint.poll_timeout().unwrap();
        pair.a.endpoint.handle_timeout(pair.now, &mut pair.a.host);
    }
    assert_eq!(times, [0, 250, 750, 1_750, 3_750, 7_750]);
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 6);
    for turn in [0, 2, 4] {
        assert_eq!(planes[turn], pair.a.addresses[0]);
    }
}

//= MR-CON-009 type=test
#[test]
fn the_smaller_segment_and_the_responders_window_hold() {
    let setup = Setup::default();
    let mut pair = setup.bare();
    pair.b.endpoint = Endpoint::new(EndpointConfig {
        segment: 512,
        message_window: 7,
        ..pair.b.endpoint.config().clone()
    });
    for end in [&mut pair.a, &mut pair.b] {
        end.endpoint.create_stream(end.qpn, setup.init()).unwrap();
    }
    pair.connect_streams(&setup);
    pair.run_until_idle();
    let (a, b) = (pair.a.connection(), pair.b.connection());
    assert_eq!((a.segment(), b.segment()), (512, 512));
    assert_eq!((a.message_window, b.message_window), (7, 256));
    pair.a.fill(BASE, 3000, 1);
    pair.script = Some(Box::new(|_, frame| {
        if let Body::Request(request) = &frame.body {
            assert!(request.payload.len() <= 512);
        }
        Fate::Pass
    }));
    for wr_id in 0..20 {
        pair.a.post(pair.now, write(wr_id, HALF, 0, 3000));
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions().len(), 20);
}

//= MR-CON-010 type=test
//= MR-PTH-006 type=test
#[test]
fn plane_k_is_the_pair_of_the_kth_addresses() {
    let setup = Setup::default().with(|setup| setup.planes = 4);
    let mut pair = setup.bare();
    let two = pair.b.addresses[..2].to_vec();
    pair.b.endpoint = Endpoint::new(EndpointConfig {
        planes: two.clone(),
        ..pair.b.endpoint.config().clone()
    });
    for end in [&mut pair.a, &mut pair.b] {
        end.endpoint.create_stream(end.qpn, setup.init()).unwrap();
    }
    pair.connect_streams(&setup);
    pair.run_until_idle();
    assert_eq!(pair.a.connection().planes(), 2);
    assert_eq!(pair.b.connection().planes(), 2);
    let handle = pair.handle_a();
    let planes: Vec<u8> = pair.a.endpoint.paths(handle).map(|it| it.plane).collect();
    assert_eq!(planes, [0, 1, 0, 1]);
    pair.a.post(pair.now, write(1, HALF, 0, 16_000));
    let packets = pair.a.take_packets(pair.now);
    assert!(!packets.is_empty());
    for (route, bytes) in packets {
        let plane = usize::from(planes[usize::from(Frame::parse(&bytes).unwrap().path)]);
        assert_eq!(route.source, pair.a.addresses[plane]);
        assert_eq!(route.destination, two[plane]);
    }
}

fn close(to: ConnectionId, source: ConnectionId, answer: bool) -> Frame<'static> {
    let close = Close {
        source,
        code: CloseCode::Done,
        answer,
    };
    frame(to, Body::Close(close))
}

//= MR-CON-012 type=test
#[test]
fn a_close_has_both_names_comes_four_times_and_ends_everything() {
    for answered in [true, false] {
        let mut pair = Setup::default().connect();
        let (a_name, b_name) = (pair.a.connection().local, pair.b.connection().local);
        pair.script = Some(Box::new(move |words, frame| {
            if let ("a", Body::Close(close)) = (&words[..1], &frame.body) {
                assert_eq!((frame.connection, close.source), (b_name, a_name));
            }
            if words.starts_with("b close") && !answered {
                Fate::Drop
            } else {
                Fate::Pass
            }
        }));
        let handle = pair.handle_a();
        pair.a.endpoint.close(pair.now, handle, &mut pair.a.host);
        // Data that arrives now is not taken.
        let writes = pair.a.host.writes;
        let late = Request {
            length: 4,
            payload: b"late",
            remote: Remote {
                address: BASE,
                key: KEY,
            },
            ..piece(RequestOpcode::Write, pair.a.qpn.value(), u32::MAX - 3)
        };
        let (epoch, number) = pair.a.next_on(0);
        let late = Frame {
            epoch,
            number,
            ..frame(a_name, Body::Request(late))
        };
        pair.deliver(false, pair.b.addresses[0], &late);
        assert_eq!(pair.a.host.writes, writes);
        pair.run_until_idle();
        let times = if answered { 1 } else { 4 };
        assert_eq!(pair.lines("a", "close").count(), times);
        for end in [&pair.a, &pair.b] {
            assert_eq!(end.endpoint.connection_count(), 0);
            assert_eq!(end.endpoint.stream_state(end.qpn), Some(QpState::Error));
        }
    }
}

//= MR-CON-013 type=test
#[test]
fn only_who_knows_both_names_can_close() {
    let mut pair = Setup::default().connect();
    let (a_name, b_name) = (pair.a.connection().local, pair.b.connection().local);
    let a = pair.a.addresses[0];
    let before = pair.b.state();
    for (source, answer) in [(ConnectionId(1), false), (b_name, false), (a_name, true)] {
        pair.deliver(true, a, &close(b_name, source, answer));
        assert_eq!(pair.b.state(), before, "{source:?} {answer}");
    }
    while pair.b.endpoint.poll_event().is_some() {}
    pair.deliver(true, a, &close(b_name, a_name, false));
    assert_eq!(
        pair.b.endpoint.stream_state(pair.b.qpn),
        Some(QpState::Error)
    );
    assert!(matches!(
        pair.b.endpoint.poll_event(),
        Some(Event::Closed(_))
    ));
    let packets = pair.b.take_packets(pair.now);
    let answer = Frame::parse(&packets[0].1).unwrap();
    assert_eq!(answer, close(a_name, b_name, true));
}

//= MR-CON-014 type=test
#[test]
fn a_peer_that_says_nothing_while_waited_for_is_dead() {
    let mut pair = Setup::default().connect();
    pair.dead_addresses.insert(pair.b.addresses[0]);
    let start = pair.now;
    for wr_id in 1..=3 {
        pair.a.post(pair.now, write(wr_id, HALF, 0, 100));
    }
    pair.run_until_idle();
    let flushed = CompletionStatus::WorkRequestFlushed;
    let expected = [
        (1, CompletionStatus::RetryExceeded),
        (2, flushed),
        (3, flushed),
    ];
    assert_eq!(pair.a.completions(), expected);
    let waited = pair.now.since(start).as_millis();
    assert!((200..300).contains(&waited), "{waited} ms");
    assert_eq!(pair.a.endpoint.connection_count(), 0);
}

//= MR-CON-014 type=test
//= MR-CON-016 type=test
#[test]
fn idle_time_is_not_waiting() {
    let mut pair = Setup::default().connect();
    for wr_id in 1..4 {
        // An idle connection has no timer and says nothing, for far longer than the dead time.
        assert_eq!(pair.a.endpoint.poll_timeout(), None);
        assert_eq!(pair.b.endpoint.poll_timeout(), None);
        pair.now = pair.now + Duration::from_secs(10);
        let sent = pair.trace.len();
        pair.run_until_idle();
        assert_eq!(pair.trace.len(), sent);
        pair.b.post_recv(pair.now, 1, BASE, 100);
        pair.a.post(pair.now, write(wr_id, HALF, 0, 5000));
        pair.run_until_idle();
        assert_eq!(pair.a.completions(), [(wr_id, OK)]);
    }
}

//= MR-CON-014 type=test
#[test]
fn a_dead_plane_does_not_end_an_idle_connection() {
    let mut pair = Setup::default().with(|setup| setup.planes = 2).connect();
    pair.dead_addresses.insert(pair.b.addresses[1]);
    pair.a.post(pair.now, write(1, HALF, 0, 50_000));
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.a.completions(), [(1, OK)]);
    assert_eq!(pair.a.endpoint.connection_count(), 1);
    pair.a.post(pair.now, write(2, HALF, 0, 50_000));
    pair.run_for(Duration::from_secs(2));
    assert_eq!(pair.a.completions(), [(2, OK)]);
}

//= MR-CON-014 type=test
#[test]
fn an_acceptance_that_nobody_takes_up_ends() {
    let mut pair = Setup::default().bare();
    let source = stranger(1);
    let mut offer = hello(source, 7);
    offer.cookie = pair.b.cookie(pair.now, source, &offer);
    answer(&mut pair, source, offer);
    assert_eq!(pair.b.endpoint.connection_count(), 1);
    pair.run_until_idle();
    assert_eq!(pair.b.endpoint.connection_count(), 0);
    assert_eq!(pair.b.endpoint.poll_timeout(), None);
}

//= MR-CON-015 type=test
//= MR-SEC-005 type=test
#[test]
fn unknown_connections_are_answered_nothing_but_a_close() {
    let mut pair = Setup::default().connect();
    let source = pair.a.addresses[0];
    let unknown = ConnectionId(0x1234_5678);
    let before = pair.b.state();
    let request = piece(RequestOpcode::Write, pair.b.qpn.value(), 100);
    for body in [
        Body::Request(request),
        Body::Probe(Streams(&[])),
        Body::Update(Updates(&[])),
        Body::Ack(ack(Updates(&[]))),
    ] {
        pair.deliver(true, source, &frame(unknown, body));
    }
    pair.deliver(true, source, &close(unknown, ConnectionId(5), true));
    assert_eq!(pair.b.state(), before);
    assert_eq!(pair.b.endpoint.counters().dropped_unknown_connection, 5);
    let asked = close(unknown, ConnectionId(5), false);
    pair.deliver(true, source, &asked);
    let answers = pair.b.take_packets(pair.now);
    assert_eq!(answers.len(), 1);
    assert!(answers[0].1.len() <= bytes(&asked).len());
    assert_eq!(pair.b.state(), before);
}
