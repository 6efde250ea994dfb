//! UC and UD: nothing is acknowledged, and nothing a peer or the network does harms.

use crate::testing::{
    BASE, End, Fate, Pair, Setup, Wr, address_of, bring_up, flushed, frame, ok, path, recv, remote,
    send, sge, write, write_to,
};
use crate::{
    CompletionOpcode, CompletionStatus as S, DatagramTarget, PostError, QpState, QpType,
    SendOperation, Sge,
};
use core::net::IpAddr;
use feroce_wire::header::Bth;
use feroce_wire::{Address, Extensions, MULTICAST_QPN, Opcode, Packet, Psn, Qpn};
use std::vec::Vec;

fn uc() -> Setup {
    Setup::new(QpType::Uc)
}

fn ud() -> Setup {
    Setup::new(QpType::Ud)
}

fn target(from: &End, to: &End) -> DatagramTarget {
    DatagramTarget {
        path: path(from.address, to.address),
        qpn: to.qpn,
        qkey: 0x1111,
    }
}

#[test]
fn uc_messages_complete_when_they_have_left() {
    let mut pair = uc().connect();
    pair.a.fill(BASE, 3000, 1);
    pair.b.post_recv(1, BASE, 4000);
    pair.a.post(write_to(1, BASE + 10_000).len(3000));
    pair.a.post(send(2).len(2000));
    pair.transmit();
    assert_eq!(pair.a.completions(), [ok(1), ok(2)]);
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), [ok(1)]);
    assert_eq!(
        pair.a.host.bytes(BASE, 3000),
        pair.b.host.bytes(BASE + 10_000, 3000)
    );
    assert_eq!(pair.a.nic.poll_timeout(), None);
}

/// W13: no packet of an unreliable service asks for an acknowledge.
#[test]
fn w13_unreliable_services_never_ask_for_an_acknowledge() {
    let mut pair = uc().connect();
    pair.a.post(write(1).len(100_000));
    pair.a.post(send(2).len(10));
    pair.run_until_idle();
    let trace = pair.trace();
    assert_eq!(trace.len(), 98 + 1);
    assert!(
        trace
            .iter()
            .all(|words| !words.contains("+a") && words.starts_with('a'))
    );
    let mut pair = ud().connect();
    let to_b = target(&pair.a, &pair.b);
    pair.a.post(send(1).len(10).to(to_b));
    pair.run_until_idle();
    assert_eq!(pair.trace(), ["a send only 0"]);
}

#[test]
fn uc_drops_a_message_with_a_gap_and_takes_the_next() {
    for lost in ["a send first 0", "a send middle 1", "a send last 2"] {
        let mut pair = uc().connect();
        pair.drop_once(lost);
        pair.b.post_recv(7, BASE, 4000);
        pair.b.post_recv(8, BASE, 4000);
        pair.a.post(send(1).len(3000));
        pair.a.post(send(2).len(2000));
        pair.run_until_idle();
        let received = pair.b.completion();
        assert_eq!(
            (received.wr_id, received.byte_len),
            (7, 2000),
            "lost {lost}"
        );
        assert_eq!(pair.b.state(), QpState::ReadyToSend);
        // The receive of the broken message was used by the next one; both are accounted for.
        pair.b.move_to(QpState::Error);
        assert_eq!(pair.b.completions(), [flushed(8)]);
    }
}

#[test]
fn uc_errors_are_silent() {
    let mut pair = uc().connect();
    let bad = crate::Remote {
        address: BASE,
        rkey: 0xdead,
    };
    pair.b.post_recv(1, BASE, 10);
    pair.a.post(Wr::new(1, SendOperation::Write(bad)).len(3000));
    pair.a.post(send(2).len(11));
    pair.a.post(send(3).len(10));
    pair.a.post(send(4).len(10));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), ok(2), ok(3), ok(4)]);
    assert_eq!(
        pair.b.completions(),
        [ok(1)],
        "the one that fits and finds a receive"
    );
    assert_eq!(pair.b.host.events, []);
    assert_eq!(pair.b.nic.counters().out_of_buffer, 1);
    assert!(pair.trace().iter().all(|words| words.starts_with('a')));
}

#[test]
fn uc_write_with_immediate() {
    let mut pair = uc().connect();
    pair.b.post_recv(5, BASE, 0);
    let operation = SendOperation::WriteImmediate(remote(BASE + 100), 9);
    pair.a.post(Wr::new(1, operation).len(2000));
    pair.run_until_idle();
    let received = pair.b.completion();
    assert_eq!(
        (received.opcode, received.immediate, received.byte_len),
        (CompletionOpcode::ReceiveWithImmediate, Some(9), 2000)
    );
}

#[test]
fn uc_local_faults_stop_the_queue_they_happen_in() {
    let mut pair = uc().connect();
    let mut piece = sge(BASE, 10);
    piece.lkey = 0xdead;
    pair.a.post(write(1).len(10));
    pair.a.post(write(2).pieces(&[piece]));
    pair.a.post(write(3).len(10));
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [ok(1), (2, S::LocalProtection), flushed(3)]
    );
    assert_eq!(pair.a.state(), QpState::SqError);
    pair.a.move_to(QpState::ReadyToSend);
    pair.a.post(write_to(4, BASE + 50).len(10));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(4)]);

    let mut request = recv(5, BASE, 100);
    request.sges[0].lkey = 0xdead;
    let (now, qpn) = (pair.b.now, pair.b.qpn);
    pair.b
        .nic
        .post_recv(now, qpn, request, &mut pair.b.host)
        .unwrap();
    pair.a.post(send(5).len(10));
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), [(5, S::LocalProtection)]);
    assert_eq!(pair.b.state(), QpState::Error);
}

/// A datagram that waits for the wire leaves as it was posted, if its bytes are kept; one whose
/// keys do not cover it fails when its turn comes, as ever.
#[test]
fn ud_datagrams_that_are_kept_leave_as_they_were_posted() {
    let mut pair = ud().connect();
    let to_b = target(&pair.a, &pair.b);
    pair.a.fill(BASE, 150, 1);
    let (sent, kept) = pair.a.host.bytes(BASE, 150).split_at(50);
    let (sent, kept) = (sent.to_vec(), kept.to_vec());
    pair.b.post_recv(1, BASE, 200);
    pair.b.post_recv(2, BASE + 200, 200);
    let strange = Sge {
        lkey: 0xbad,
        ..sge(BASE, 7)
    };
    pair.a.post(send(1).len(50).to(to_b));
    pair.transmit();
    pair.a.post(
        send(2)
            .pieces(&[sge(BASE + 50, 60), sge(BASE + 110, 40)])
            .to(to_b),
    );
    pair.a.post(send(3).pieces(&[strange]).to(to_b));
    let qpn = pair.a.qpn;
    let End { nic, host, .. } = &mut pair.a;
    nic.keep_datagrams(qpn, |pd, sges| host.gather(pd, sges));
    pair.a.fill(BASE, 150, 9);
    pair.run_until_idle();
    assert_eq!(
        pair.a.completions(),
        [ok(1), ok(2), (3, S::LocalProtection)]
    );
    assert_eq!(&pair.b.host.bytes(BASE, 90)[40..], sent);
    assert_eq!(&pair.b.host.bytes(BASE + 200, 140)[40..], kept);
}

/// The bytes of the receive, the header in front of the payload.
#[test]
fn ud_writes_the_ip_header_before_the_payload() {
    let mut pair = ud().connect();
    pair.a.fill(BASE, 50, 1);
    pair.b.post_recv(3, BASE, 100);
    let to_b = target(&pair.a, &pair.b);
    pair.a.post(
        Wr::new(1, SendOperation::SendImmediate(77))
            .len(50)
            .solicited()
            .to(to_b),
    );
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    let received = pair.b.completion();
    assert_eq!(
        (received.wr_id, received.byte_len, received.immediate),
        (3, 90, Some(77))
    );
    assert_eq!(received.source_qpn, pair.a.qpn);
    assert_eq!(received.source, Some(pair.a.address));
    assert!(received.solicited);
    let bytes = pair.b.host.bytes(BASE, 90);
    assert_eq!(bytes[..20], [0; 20]);
    // 20 IPv4 + 8 UDP + 12 BTH + 8 DETH + 4 immediate + 50 payload + 2 pad + 4 ICRC
    assert_eq!(bytes[20..26], [0x45, 0, 0, 108, 0, 0]);
    assert_eq!(bytes[28..30], [64, 17]);
    assert_eq!(bytes[32..40], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(&bytes[40..], pair.a.host.bytes(BASE, 50));
}

#[test]
fn ud_over_ipv6_writes_that_header() {
    let mut pair = ud().connect();
    pair.b.post_recv(3, BASE, 100);
    let bytes = datagram(pair.b.qpn, 0x1111, &[7; 4]);
    let packet = Packet::parse(&bytes).unwrap();
    let source: IpAddr = "2001:db8::1".parse().unwrap();
    let from = Address {
        source,
        destination: "2001:db8::2".parse().unwrap(),
        source_port: 1,
        traffic_class: 0xa5,
        hop_limit: 9,
    };
    pair.b
        .nic
        .handle_packet(pair.now, &from, &packet, &mut pair.b.host);
    assert_eq!(pair.b.completion().source, Some(source));
    let bytes = pair.b.host.bytes(BASE, 44);
    assert_eq!(bytes[..8], [0x6a, 0x50, 0, 0, 0, 8 + 12 + 8 + 4 + 4, 17, 9]);
    assert_eq!(bytes[8..12], [0x20, 0x01, 0x0d, 0xb8]);
    assert_eq!((bytes[23], bytes[39]), (1, 2));
    assert_eq!(bytes[40..], [7; 4]);
}

fn datagram(dest: Qpn, qkey: u32, payload: &[u8]) -> Vec<u8> {
    let extensions = Extensions {
        datagram: Some((qkey, Qpn::new(0x55))),
        ..Extensions::default()
    };
    frame(
        Bth::new(Opcode(0x64), dest, Psn::new(0)),
        &extensions,
        payload,
    )
}

/// W14: a datagram longer than the receive is dropped; the receive and the queue pair stay.
#[test]
fn w14_an_oversized_datagram_is_dropped_and_harms_nothing() {
    let mut pair = ud().connect();
    let to_b = target(&pair.a, &pair.b);
    pair.a.post(send(1).len(10).to(to_b));
    pair.run_until_idle();
    assert_eq!(pair.b.nic.counters().out_of_buffer, 1);
    pair.b.post_recv(3, BASE, 60);
    pair.a.post(send(2).len(21).to(to_b));
    pair.a.post(send(3).len(20).to(to_b));
    pair.run_until_idle();
    assert_eq!(pair.b.nic.counters().datagram_too_long, 1);
    assert_eq!(pair.b.completion().byte_len, 60);
    assert_eq!(pair.b.state(), QpState::ReadyToSend);
    assert_eq!(pair.b.host.events, []);
}

#[test]
fn ud_checks_the_queue_key() {
    let mut pair = ud().connect();
    pair.b.post_recv(3, BASE, 100);
    let mut to_b = target(&pair.a, &pair.b);
    to_b.qkey = 0x2222;
    pair.a.post(send(1).len(10).to(to_b));
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), []);
    assert_eq!(pair.b.nic.counters().qkey_violations, 1);
    to_b.qkey = 0x8000_0000;
    pair.a.post(send(2).len(10).to(to_b));
    pair.run_until_idle();
    assert_eq!(
        pair.b.completions(),
        [ok(3)],
        "the top bit stands for the sender's own key"
    );
}

#[test]
fn ud_requests_need_a_target_and_fit_one_packet() {
    let mut pair = ud().connect();
    assert_eq!(pair.a.try_post(send(1)), Err(PostError::MissingTarget));
    let to_b = target(&pair.a, &pair.b);
    assert_eq!(
        pair.a.try_post(send(1).len(4097).to(to_b)),
        Err(PostError::TooLong {
            bytes: 4097,
            max: 4096
        })
    );
    assert_eq!(
        pair.a.try_post(write(1).to(to_b)),
        Err(PostError::OpcodeNotSupported(QpType::Ud))
    );
    pair.b.post_recv(3, BASE, 5000);
    pair.a.post(send(1).len(4096).to(to_b));
    pair.run_until_idle();
    assert_eq!(pair.b.completion().byte_len, 4136);
}

#[test]
fn multicast_reaches_every_attached_queue_pair() {
    let setup = ud();
    let mut pair = setup.connect();
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let first = pair.b.qpn;
    let second = Qpn::new(0x300);
    pair.b.nic.create_qp(second, setup.init()).unwrap();
    let attributes = setup.attributes(&pair.b, &pair.a, (0, 0));
    pair.b.qpn = second;
    bring_up(&mut pair.b, QpType::Ud, attributes, QpState::ReadyToSend);
    for (qpn, wr_id) in [(first, 1), (second, 2)] {
        pair.b.qpn = qpn;
        pair.b.post_recv(wr_id, BASE, 100);
        pair.b.nic.attach_multicast(qpn, group).unwrap();
    }
    let to_group = DatagramTarget {
        path: path(pair.a.address, group),
        qpn: MULTICAST_QPN,
        qkey: 0x1111,
    };
    pair.a.post(send(1).len(10).to(to_group));
    pair.run_until_idle();
    let received: Vec<_> = pair.b.host.take_completions();
    let got: Vec<_> = received.iter().map(|c| (c.qpn, c.wr_id)).collect();
    assert_eq!(got, [(first, 1), (second, 2)]);
    assert!(pair.b.nic.destroy_qp(first).is_err(), "attached");
    pair.b.nic.detach_multicast(first, group).unwrap();
    assert!(pair.b.nic.detach_multicast(first, group).is_err());
    pair.b.nic.destroy_qp(first).unwrap();
    pair.b.nic.detach_multicast(second, group).unwrap();
    pair.a.post(send(2).len(10).to(to_group));
    pair.run_until_idle();
    assert_eq!(pair.b.completions(), [], "a group no one is in is no error");
}

#[test]
fn the_general_service_interface_gets_whole_management_datagrams_only() {
    let mut pair = ud().connect();
    let from = address_of(&pair.a, &pair.b);
    let to_gsi = |source, qkey, payload: &[u8]| {
        let extensions = Extensions {
            datagram: Some((qkey, Qpn::new(source))),
            ..Extensions::default()
        };
        let bth = Bth::new(Opcode(0x64), Qpn::new(1), Psn::new(0));
        frame(bth, &extensions, payload)
    };
    let mut hand_in = |bytes: &[u8]| {
        let packet = Packet::parse(bytes).unwrap();
        let b = &mut pair.b;
        b.nic.handle_packet(pair.now, &from, &packet, &mut b.host);
        let counters = *b.nic.counters();
        let bad = counters.gsi_malformed + counters.qkey_violations;
        (b.host.managed, counters.gsi_packets, bad)
    };
    assert_eq!(hand_in(&to_gsi(1, 0x8001_0000, &[0; 256])), (1, 1, 0));
    assert_eq!(hand_in(&to_gsi(1, 0x8001_0000, &[0; 255])), (1, 1, 1));
    assert_eq!(hand_in(&to_gsi(1, 0x8001_0000, &[0; 260])), (1, 1, 2));
    assert_eq!(hand_in(&to_gsi(1, 0x1111, &[0; 256])), (1, 1, 3));
    assert_eq!(hand_in(&to_gsi(7, 0x8001_0000, &[0; 256])), (1, 1, 4));
    let mut other = to_gsi(1, 0x8001_0000, &[0; 256]);
    other[0] = 0x65; // with immediate: four bytes of the datagram are that
    assert_eq!(hand_in(&other), (1, 1, 5));
    let reliable = Bth::new(Opcode(0x04), Qpn::new(1), Psn::new(0));
    let reliable = frame(reliable, &Extensions::default(), &[0; 256]);
    assert_eq!(hand_in(&reliable), (1, 1, 6));
}

/// Seeded loss, duplication and reordering: what arrives is whole and in order.
#[test]
fn uc_delivers_whole_messages_in_order_or_not_at_all() {
    for seed in 0..200 {
        let mut pair: Pair = uc().connect();
        pair.wire.random = crate::testing::Random::new(seed);
        pair.wire.impairment.loss = 40;
        pair.wire.impairment.duplication = 40;
        pair.wire.impairment.reordering = 40;
        for wr_id in 0..40 {
            pair.b.post_recv(wr_id, BASE + wr_id * 4096, 4096);
        }
        for wr_id in 0..40_u64 {
            let length = 100 + 90 * wr_id as usize;
            let at = BASE + wr_id * 4096;
            pair.a.host.bytes_mut(at, length).fill(wr_id as u8 + 1);
            pair.a.post(send(wr_id).at(at, length as u32));
            pair.step();
        }
        pair.run_until_idle();
        assert_eq!(pair.a.completions().len(), 40);
        let received = pair.b.host.take_completions();
        let mut before = 0;
        for (place, completion) in received.iter().enumerate() {
            assert_eq!(completion.wr_id, place as u64, "receives are used in order");
            let message = (completion.byte_len as u64 - 100) / 90;
            let value = message as u8 + 1;
            assert!(value > before, "seed {seed}: messages keep their order");
            before = value;
            let at = BASE + completion.wr_id * 4096;
            let bytes = pair.b.host.bytes(at, completion.byte_len as usize);
            assert!(bytes.iter().all(|&byte| byte == value), "seed {seed}");
        }
        assert!(received.len() > 10);
        let _ = Fate::Pass;
    }
}
