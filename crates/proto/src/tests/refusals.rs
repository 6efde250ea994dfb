//! Requests that a responder refuses, and what both sides see of it. `b` is the responder.

use crate::testing::{
    ALL_ACCESS, BASE, Fate, KEY, Pair, Setup, Wr, fetch_add, flushed, ok, read, recv, remote,
    request_frame, reth, send, sge, write,
};
use crate::{
    AsyncEvent, BindRequest, CompletionStatus as S, PdId, QpState, QpType, Remote, SendOperation,
};
use feroce_wire::{Extensions, Operation as O, Position as P};
use std::vec;
use std::vec::Vec;

const BAD_KEY: u32 = 0xdead;

fn rc() -> Setup {
    Setup::new(QpType::Rc)
}

fn bad() -> Remote {
    Remote {
        address: BASE,
        rkey: BAD_KEY,
    }
}

/// Injects one request and returns what `b` answers.
fn answer(
    pair: &mut Pair,
    kind: (O, P),
    extensions: &Extensions,
    payload: &[u8],
) -> Vec<std::string::String> {
    let bytes = request_frame(pair.b.qpn, 0, kind, extensions, payload);
    pair.inject_to_b(&bytes);
    pair.transmit();
    pair.trace()
}

/// W7: every kind of request with a bad key is answered by a NAK, also those that use no receive.
#[test]
fn w7_a_bad_key_draws_a_nak_for_every_operation() {
    let operations = [
        SendOperation::Write(bad()),
        SendOperation::Read(bad()),
        SendOperation::FetchAdd {
            remote: bad(),
            add: 1,
        },
        SendOperation::CompareSwap {
            remote: bad(),
            compare: 0,
            swap: 1,
        },
        SendOperation::AtomicWrite(bad()),
        SendOperation::Flush {
            remote: bad(),
            length: 8,
            placement: 1,
            level: 0,
        },
    ];
    for operation in operations {
        let mut pair = rc().connect();
        pair.b.post_recv(9, BASE, 10);
        pair.a.post(Wr::new(1, operation).len(8));
        pair.a.post(send(2));
        pair.run_until_idle();
        assert!(
            pair.trace().contains(&"b nak access 0".into()),
            "{operation:?}"
        );
        assert_eq!(pair.a.completions(), [(1, S::RemoteAccess), flushed(2)]);
        assert_eq!(pair.b.completions(), [flushed(9)]);
        assert_eq!(pair.b.host.events, [AsyncEvent::QpAccessError(pair.b.qpn)]);
        assert_eq!(
            (pair.a.state(), pair.b.state()),
            (QpState::Error, QpState::Error)
        );
        pair.assert_nothing_in_flight();
    }
}

/// W8, W9: the error completes the message once; everything else posted is flushed once.
#[test]
fn w8_w9_errors_complete_each_request_once_and_flush_the_rest() {
    let mut pair = rc().connect();
    for wr_id in 10..14 {
        pair.b.post_recv(wr_id, BASE, 100);
    }
    pair.b.post(write(20));
    pair.script(|words, _| {
        if words.starts_with("b write") {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    pair.a.post(send(1).len(50));
    pair.a.post(send(2).len(101));
    for wr_id in 3..6 {
        pair.a.post(send(wr_id).len(50));
    }
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [
            ok(1),
            (2, S::RemoteInvalidRequest),
            flushed(3),
            flushed(4),
            flushed(5)
        ]
    );
    assert_eq!(
        pair.b.completions(),
        [
            ok(10),
            (11, S::LocalLength),
            flushed(20),
            flushed(12),
            flushed(13)
        ]
    );
    // More packets, more posts: nothing completes twice.
    pair.b.post_recv(14, BASE, 100);
    pair.b.post(write(21));
    let late = request_frame(
        pair.b.qpn,
        2,
        (O::Send, P::Only),
        &Extensions::default(),
        b"x",
    );
    pair.inject_to_b(&late);
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), [flushed(14), flushed(21)]);
    assert_eq!(
        pair.b.nic.counters().dropped_state,
        3 + 1,
        "requests 3 to 5, and the late one"
    );
}

/// W8: the queue pair goes to the error state while a SEND is half received.
#[test]
fn w8_error_in_the_middle_of_a_message() {
    let mut pair = rc().connect();
    for wr_id in 10..15 {
        pair.b.post_recv(wr_id, BASE, 5000);
    }
    pair.script(|words, _| {
        if words.starts_with("a send last") {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    pair.a.post(send(1).len(2000));
    pair.step();
    pair.b.move_to(QpState::Error);
    pair.run_until_idle();
    let due: Vec<_> = (10..15).map(flushed).collect();
    assert_eq!(pair.b.completions(), due);
    assert_eq!(pair.a.completions(), [(1, S::RetryExceeded)]);
}

/// W10: a key violation raises the affiliated event, except when the WRITE carries immediate
/// data: then the receive it takes completes with an error.
#[test]
fn w10_key_violations_raise_an_event_unless_a_completion_tells() {
    let mut pair = rc().connect();
    pair.b.post_recv(7, BASE, 10);
    pair.b.post_recv(8, BASE, 10);
    pair.a
        .post(Wr::new(1, SendOperation::WriteImmediate(bad(), 5)).len(4));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, S::RemoteAccess)]);
    assert_eq!(pair.b.completions(), [(7, S::LocalAccess), flushed(8)]);
    assert_eq!(pair.b.host.events, []);

    let mut pair = rc().connect();
    pair.b.post_recv(7, BASE, 10);
    pair.a
        .post(Wr::new(1, SendOperation::WriteImmediate(bad(), 5)).len(2000));
    pair.run_until_idle();
    assert_eq!(
        pair.b.completions(),
        [flushed(7)],
        "its first packet says nothing of immediate"
    );
    assert_eq!(pair.b.host.events, [AsyncEvent::QpAccessError(pair.b.qpn)]);
}

/// W11: an ATOMIC WRITE that does not carry exactly eight bytes is refused and writes nothing.
#[test]
fn w11_atomic_write_is_eight_bytes() {
    for length in 0..=16 {
        let mut pair = rc().connect();
        let payload = vec![0xee; length];
        let extensions = reth(BASE, length as u32);
        let trace = answer(&mut pair, (O::AtomicWrite, P::Only), &extensions, &payload);
        if length == 8 {
            assert_eq!(trace, ["b response only 0"]);
            assert_eq!(pair.b.host.bytes(BASE, 8), [0xee; 8]);
        } else {
            assert_eq!(trace, ["b nak invalid 0"]);
            assert_eq!(pair.b.host.bytes(BASE, 16), [0; 16]);
        }
    }
    let mut pair = rc().connect();
    let trace = answer(
        &mut pair,
        (O::AtomicWrite, P::Only),
        &reth(BASE, 9),
        &[1; 8],
    );
    assert_eq!(trace, ["b nak invalid 0"], "RETH and payload disagree");
}

/// W12: ranges that wrap at 2^64 are refused, in new requests and in duplicates.
#[test]
fn w12_ranges_do_not_wrap() {
    let top = 0xffff_ffff_ffff_fc00;
    for kind in [O::ReadRequest, O::Write, O::Flush] {
        let mut pair = rc().connect();
        let mut extensions = reth(top, 0x400);
        extensions.flush = Some(1);
        let payload: &[u8] = if kind == O::Write { &[0; 0x400] } else { &[] };
        let trace = answer(&mut pair, (kind, P::Only), &extensions, payload);
        assert_eq!(trace, ["b nak access 0"], "{kind:?}");
    }
    let mut pair = rc().connect();
    pair.a.post(read(1).len(0x400));
    pair.run_until_idle();
    pair.trace();
    let trace = answer(&mut pair, (O::ReadRequest, P::Only), &reth(top, 0x400), &[]);
    assert_eq!(trace, ["b nak access 0"]);
    assert_eq!(pair.b.state(), QpState::Error);
}

/// W16: the host's refusal to bind is reported as a bind error.
#[test]
fn w16_bind_across_domains_fails() {
    let mut pair = rc().connect();
    let mut foreign = pair.a.host.keys[&KEY];
    foreign.pd = PdId(99);
    pair.a.host.keys.insert(0x200, foreign);
    let bind = BindRequest {
        window: 0x300,
        region: 0x200,
        address: BASE,
        length: 10,
        access: 0,
        type_2: true,
    };
    pair.a.post(write(1).len(10));
    pair.a.post(Wr::new(2, SendOperation::Bind(bind)));
    pair.a.post(write(3).len(10));
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [ok(1), (2, S::WindowBind), flushed(3)]
    );
    assert_eq!(pair.a.state(), QpState::Error);
}

#[test]
fn a_duplicate_read_of_another_range_is_dropped() {
    let mut pair = rc().connect();
    pair.a.post(read(1).len(3000));
    pair.run_until_idle();
    pair.trace();
    for (psn, address, length) in [
        (0, BASE + 1, 100),
        (0, BASE, 3001),
        (1, BASE, 100),
        (2, BASE + 2048, 953),
        (0xff_fff0, BASE, 100),
    ] {
        let kind = (O::ReadRequest, P::Only);
        let bytes = request_frame(pair.b.qpn, psn, kind, &reth(address, length), &[]);
        pair.inject_to_b(&bytes);
        pair.transmit();
        assert_eq!(
            pair.trace(),
            Vec::<std::string::String>::new(),
            "{psn} {address:x}"
        );
    }
    let kind = (O::ReadRequest, P::Only);
    let mut other_key = reth(BASE, 3000);
    other_key.reth.as_mut().unwrap().rkey = 0x700;
    pair.b.host.keys.insert(0x700, pair.b.host.keys[&KEY]);
    let bytes = request_frame(pair.b.qpn, 0, kind, &other_key, &[]);
    pair.inject_to_b(&bytes);
    pair.transmit();
    assert_eq!(
        pair.trace(),
        Vec::<std::string::String>::new(),
        "another key"
    );
    let bytes = request_frame(pair.b.qpn, 1, kind, &reth(BASE + 1024, 1976), &[]);
    pair.inject_to_b(&bytes);
    pair.transmit();
    assert_eq!(pair.trace(), ["b response first 1", "b response last 2"]);
}

#[test]
fn a_region_that_goes_away_below_a_read_ends_it() {
    let mut pair = rc().connect();
    pair.a.post(read(1).len(4000));
    pair.transmit();
    pair.b.host.room = 2;
    pair.run_for(core::time::Duration::from_micros(1));
    assert_eq!(
        pair.trace(),
        ["a read 0", "b response first 0", "b response middle 1"]
    );
    pair.b.host.keys.clear();
    pair.b.host.room = usize::MAX;
    pair.run_until_idle();
    assert_eq!(pair.trace(), ["b nak access 2"]);
    assert_eq!(pair.a.completions(), [(1, S::RemoteAccess)]);
    assert_eq!(pair.b.host.events, [AsyncEvent::QpAccessError(pair.b.qpn)]);
    pair.assert_nothing_in_flight();
}

#[test]
fn reads_before_a_refused_request_are_answered_first() {
    let mut pair = rc().connect();
    pair.b.fill(BASE, 3000, 1);
    pair.a.post(read(1).at(BASE + 8000, 3000));
    pair.a.post(Wr::new(2, SendOperation::Write(bad())).len(8));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), (2, S::RemoteAccess)]);
    assert_eq!(
        pair.b.host.bytes(BASE, 3000),
        pair.a.host.bytes(BASE + 8000, 3000)
    );
}

#[test]
fn lengths_are_checked_by_place() {
    let full = [0; 1024];
    let none = Extensions::default();
    let cases: [(O, P, Extensions, &[u8]); 12] = [
        (O::Send, P::First, none, &full[..1023]),
        (O::Send, P::First, none, &[0; 1025]),
        (O::Send, P::Only, none, &[0; 1025]),
        (O::Write, P::First, reth(BASE, 2000), &full[..1000]),
        (O::Write, P::First, reth(BASE, 1024), &full),
        (O::Write, P::Only, reth(BASE, 100), &full[..99]),
        (O::Write, P::Only, reth(BASE, 100), &full[..101]),
        (O::Write, P::First, reth(BASE, u32::MAX), &full),
        (O::ReadRequest, P::Only, reth(BASE, (1 << 31) + 1), &[]),
        (O::Send, P::Middle, none, &full),
        (O::Send, P::Last, none, &full),
        (O::Write, P::Last, none, &full),
    ];
    for (operation, position, extensions, payload) in cases {
        let mut pair = rc().connect();
        pair.b.post_recv(1, BASE, 5000);
        let trace = answer(&mut pair, (operation, position), &extensions, payload);
        assert_eq!(
            trace,
            ["b nak invalid 0"],
            "{operation:?} {position:?} {}",
            payload.len()
        );
        assert_eq!(pair.b.completions(), [flushed(1)]);
        assert_eq!(pair.b.host.events, [AsyncEvent::QpRequestError(pair.b.qpn)]);
        assert_eq!(pair.b.host.writes, 0);
    }
}

#[test]
fn a_message_is_continued_by_its_own_kind_only() {
    let full = [0; 1024];
    let none = Extensions::default();
    for (operation, position, extensions, payload) in [
        (O::Send, P::Only, none, &full[..1]),
        (O::Send, P::First, none, &full),
        (O::Write, P::Middle, none, &full),
        (O::Write, P::Only, reth(BASE, 1), &full[..1]),
        (O::ReadRequest, P::Only, reth(BASE, 1), &[]),
        (O::Send, P::Last, none, &[]),
    ] {
        let mut pair = rc().connect();
        pair.b.post_recv(1, BASE, 5000);
        answer(&mut pair, (O::Send, P::First), &none, &full);
        let bytes = request_frame(pair.b.qpn, 1, (operation, position), &extensions, payload);
        pair.inject_to_b(&bytes);
        pair.transmit();
        assert_eq!(
            pair.trace(),
            ["b nak invalid 1"],
            "{operation:?} {position:?}"
        );
        assert_eq!(pair.b.completions(), [flushed(1)]);
    }
}

#[test]
fn a_write_is_as_long_as_its_reth_says() {
    for (last, refused) in [(99, true), (100, false), (101, true)] {
        let mut pair = rc().connect();
        answer(
            &mut pair,
            (O::Write, P::First),
            &reth(BASE, 1124),
            &[1; 1024],
        );
        let payload = vec![2; last];
        let none = Extensions::default();
        let bytes = request_frame(pair.b.qpn, 1, (O::Write, P::Last), &none, &payload);
        pair.inject_to_b(&bytes);
        pair.transmit();
        let due = if refused {
            "b nak invalid 1"
        } else {
            "b ack 1"
        };
        assert_eq!(pair.trace(), [due]);
    }
}

#[test]
fn operations_that_the_queue_pair_does_not_allow_are_invalid() {
    for (flag, operation) in [
        (1 << 1, SendOperation::Write(remote(BASE))),
        (1 << 1, SendOperation::AtomicWrite(remote(BASE))),
        (1 << 2, SendOperation::Read(remote(BASE))),
        (
            1 << 3,
            SendOperation::FetchAdd {
                remote: remote(BASE),
                add: 1,
            },
        ),
        (
            1 << 8,
            SendOperation::Flush {
                remote: remote(BASE),
                length: 1,
                placement: 1,
                level: 0,
            },
        ),
        (
            1 << 9,
            SendOperation::Flush {
                remote: remote(BASE),
                length: 1,
                placement: 3,
                level: 1,
            },
        ),
    ] {
        let mut pair = rc().with(|s| s.access = ALL_ACCESS & !flag).connect();
        pair.a.post(Wr::new(1, operation).len(8));
        pair.run_until_idle();
        assert_eq!(
            pair.a.completions(),
            [(1, S::RemoteInvalidRequest)],
            "{operation:?}"
        );
        assert_eq!(pair.b.host.events, [AsyncEvent::QpRequestError(pair.b.qpn)]);
    }
}

#[test]
fn length_zero_needs_no_key() {
    for operation in [SendOperation::Write(bad()), SendOperation::Read(bad())] {
        let mut pair = rc().connect();
        pair.drop_once("b ack 0");
        pair.a.post(Wr::new(1, operation));
        pair.run_until_idle();
        assert_eq!(pair.a.completions(), [ok(1)]);
    }
}

#[test]
fn misaligned_atomics_are_invalid() {
    let mut pair = rc().connect();
    pair.a.post(fetch_add(1, BASE + 4, 1));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, S::RemoteInvalidRequest)]);
    assert_eq!(pair.b.host.atomics, 0);
}

#[test]
fn more_reads_than_agreed_are_invalid() {
    let mut pair = rc().with(|s| s.rd_atomic = 2).connect();
    for psn in 0..3 {
        let kind = (O::ReadRequest, P::Only);
        let bytes = request_frame(pair.b.qpn, psn, kind, &reth(BASE, 10), &[]);
        pair.inject_to_b(&bytes);
    }
    pair.transmit();
    assert_eq!(
        pair.trace(),
        ["b response only 0", "b response only 1", "b nak invalid 2"]
    );
}

#[test]
fn a_receive_whose_key_is_bad_fails_on_both_sides() {
    let mut pair = rc().connect();
    let mut request = recv(5, BASE, 100);
    request.sges[0].lkey = BAD_KEY;
    pair.b
        .nic
        .post_recv(pair.now, pair.b.qpn, request, &mut pair.b.host)
        .unwrap();
    pair.b.post_recv(6, BASE, 100);
    pair.a.post(send(1).len(10));
    pair.run_until_idle();
    assert!(pair.trace().contains(&"b nak operational 0".into()));
    assert_eq!(pair.a.completions(), [(1, S::RemoteOperation)]);
    assert_eq!(pair.b.completions(), [(5, S::LocalProtection), flushed(6)]);
}

#[test]
fn a_send_whose_key_is_bad_fails_in_its_turn() {
    let mut pair = rc().connect();
    let mut piece = sge(BASE, 100);
    piece.lkey = BAD_KEY;
    pair.b.post_recv(9, BASE, 5000);
    pair.a.post(send(1).len(2000));
    pair.a.post(write(2).pieces(&[piece]));
    pair.a.post(write(3));
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [ok(1), (2, S::LocalProtection), flushed(3)]
    );
    pair.assert_nothing_in_flight();
}

#[test]
fn a_read_into_a_bad_key_fails() {
    let mut pair = rc().connect();
    let mut piece = sge(BASE, 100);
    piece.lkey = BAD_KEY;
    pair.a.post(read(1).pieces(&[piece]));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, S::LocalProtection)]);
    pair.assert_nothing_in_flight();
}

#[test]
fn send_with_invalidate_takes_the_key() {
    let mut pair = rc().connect();
    pair.b.host.keys.insert(0x500, pair.b.host.keys[&KEY]);
    pair.b.post_recv(1, BASE, 10);
    pair.b.post_recv(2, BASE, 10);
    pair.a
        .post(Wr::new(1, SendOperation::SendInvalidate(0x500)).len(3));
    pair.run_until_idle();
    let received = pair.b.completion();
    assert_eq!(
        (received.status, received.invalidated),
        (S::Success, Some(0x500))
    );
    assert!(!pair.b.host.keys.contains_key(&0x500));
    assert_eq!(pair.a.completions(), [ok(1)]);
    // The key is gone: the next one is refused.
    pair.a
        .post(Wr::new(2, SendOperation::SendInvalidate(0x500)).len(3));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(2, S::RemoteAccess)]);
    assert_eq!(pair.b.state(), QpState::Error);
    assert_eq!(pair.b.completions().len(), 1);
}

#[test]
fn flush_reaches_the_host_and_completes() {
    let mut pair = rc().connect();
    let operation = SendOperation::Flush {
        remote: Remote {
            address: 0,
            rkey: KEY,
        },
        length: 0,
        placement: 3,
        level: 1,
    };
    pair.a.post(write(1).len(10));
    pair.a.post(Wr::new(2, operation));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), ok(2)]);
    assert_eq!(
        pair.b.host.flushes,
        [
            (crate::RemoteAccess::FlushGlobal, true),
            (crate::RemoteAccess::FlushPersistent, true)
        ]
    );
    assert!(pair.trace().contains(&"b response only 1".into()));
}

#[test]
fn malformed_read_responses_fail_the_request() {
    for (position, length, status) in [
        (P::First, 1024, S::Success),
        (P::Middle, 1024, S::Success),
        (P::First, 1023, S::BadResponse),
        (P::Last, 1024, S::BadResponse),
        (P::Only, 1024, S::BadResponse),
    ] {
        let mut pair = rc().connect();
        pair.a.post(read(1).len(3000));
        pair.transmit();
        let extensions = Extensions {
            aeth: Some((0x1f, feroce_wire::Msn::new(1))),
            ..Extensions::default()
        };
        let kind = (O::ReadResponse, position);
        let bytes = request_frame(pair.a.qpn, 0, kind, &extensions, &vec![7; length]);
        let packet = feroce_wire::Packet::parse(&bytes).unwrap();
        let from = crate::testing::address_of(&pair.b, &pair.a);
        pair.a
            .nic
            .handle_packet(pair.now, &from, &packet, &mut pair.a.host);
        if status == S::Success {
            pair.run_until_idle();
        }
        assert_eq!(pair.a.completions(), [(1, status)], "{position:?} {length}");
    }
}

#[test]
fn partition_keys_need_one_full_member() {
    for (own, theirs, passes) in [
        (0xffff, 0xffff, true),
        (0xffff, 0x7fff, true),
        (0x7fff, 0xffff, true),
        (0x7fff, 0x7fff, false),
        (0xffff, 0xfffe, false),
    ] {
        let mut pair = rc().with(|s| s.config.pkey = own).connect();
        let none = Extensions::default();
        let bytes = request_frame(pair.b.qpn, 0, (O::Send, P::Only), &none, b"x");
        let mut packet = feroce_wire::Packet::parse(&bytes).unwrap();
        packet.pkey = theirs;
        let from = crate::testing::address_of(&pair.a, &pair.b);
        pair.b
            .nic
            .handle_packet(pair.now, &from, &packet, &mut pair.b.host);
        assert_eq!(
            pair.b.nic.counters().dropped_pkey == 0,
            passes,
            "{own:x} {theirs:x}"
        );
    }
}

#[test]
fn packets_that_are_not_from_the_peer_are_dropped() {
    let mut pair = rc().connect();
    pair.b.post_recv(1, BASE, 10);
    let bytes = request_frame(
        pair.b.qpn,
        0,
        (O::Send, P::Only),
        &Extensions::default(),
        b"x",
    );
    let packet = feroce_wire::Packet::parse(&bytes).unwrap();
    let right = crate::testing::address_of(&pair.a, &pair.b);
    let mut wrong_source = right;
    wrong_source.source = [9, 9, 9, 9].into();
    let mut wrong_destination = right;
    wrong_destination.destination = [9, 9, 9, 9].into();
    let mut wrong_pkey = packet;
    wrong_pkey.pkey = 0x1234;
    let mut unknown = packet;
    unknown.dest_qp = feroce_wire::Qpn::new(77);
    let mut other_service = packet;
    other_service.opcode = feroce_wire::Opcode(0x24);
    other_service.info = other_service.opcode.info().unwrap();
    for (from, packet) in [
        (wrong_source, packet),
        (wrong_destination, packet),
        (right, wrong_pkey),
        (right, unknown),
        (right, other_service),
    ] {
        pair.b
            .nic
            .handle_packet(pair.now, &from, &packet, &mut pair.b.host);
    }
    let counters = *pair.b.nic.counters();
    assert_eq!(counters.dropped_address, 2);
    assert_eq!(counters.dropped_pkey, 1);
    assert_eq!(counters.dropped_unknown_qp, 1);
    assert_eq!(counters.dropped_service, 1);
    assert_eq!(pair.b.completions(), []);
}
