//! Shared receive queues, with RC, UD and XRC.

use crate::testing::{
    BASE, End, PD, Pair, Setup, Wr, bring_up, flushed, ok, path, recv, remote, send, write,
};
use crate::{
    AsyncEvent, CompletionStatus as S, CqId, DatagramTarget, DestroyError, PostError, QpState,
    QpType, SendOperation, SrqAttributes, SrqError, SrqId, SrqInit, XrcdId,
};
use core::time::Duration;
use feroce_wire::Qpn;

const SRQ: SrqId = SrqId(0x77);
const XRCD: XrcdId = XrcdId(3);

fn srq_init(xrc: Option<(XrcdId, CqId)>) -> SrqInit {
    SrqInit {
        pd: PD,
        attributes: SrqAttributes {
            max_wr: 4,
            max_sge: 2,
            limit: 0,
        },
        xrc,
    }
}

/// Two queue pairs at `b` on one SRQ, each connected to one at `a`.
fn two_on_one_srq() -> Pair {
    let setup = Setup::new(QpType::Rc);
    let mut pair = setup.bare();
    pair.b.nic.create_srq(SRQ, srq_init(None)).unwrap();
    for i in [1, 0] {
        (pair.a.qpn, pair.b.qpn) = (Qpn::new(0x10 + i), Qpn::new(0x20 + i));
        let mut init = setup.init();
        pair.a.nic.create_qp(pair.a.qpn, init).unwrap();
        init.srq = Some(SRQ);
        pair.b.nic.create_qp(pair.b.qpn, init).unwrap();
        let to_b = setup.attributes(&pair.a, &pair.b, (0, 0));
        let to_a = setup.attributes(&pair.b, &pair.a, (0, 0));
        bring_up(&mut pair.a, QpType::Rc, to_b, QpState::ReadyToSend);
        bring_up(&mut pair.b, QpType::Rc, to_a, QpState::ReadyToSend);
    }
    pair
}

#[test]
fn queue_pairs_take_receives_from_one_queue() {
    let mut pair = two_on_one_srq();
    pair.transmit();
    for wr_id in 0..2 {
        pair.b
            .nic
            .post_srq_recv(SRQ, recv(wr_id, BASE, 100))
            .unwrap();
    }
    for i in 0..2 {
        pair.a.qpn = Qpn::new(0x10 + i);
        pair.a.post(send(u64::from(i)).len(10));
    }
    pair.run_until_idle();
    let received = pair.b.host.take_completions();
    assert_eq!((received[0].wr_id, received[0].qpn.value()), (0, 0x20));
    assert_eq!((received[1].wr_id, received[1].qpn.value()), (1, 0x21));
    assert_eq!(pair.b.nic.srq_len(SRQ), Some(0));
}

#[test]
fn an_empty_srq_draws_rnr_naks() {
    let mut pair = two_on_one_srq();
    pair.a.post(send(1).len(10));
    pair.run_for(Duration::from_micros(100));
    assert!(pair.trace().contains(&"b rnr 0".into()));
    pair.b.nic.post_srq_recv(SRQ, recv(5, BASE, 100)).unwrap();
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.b.completions(), [ok(5)]);
}

#[test]
fn the_limit_event_comes_once() {
    let mut pair = two_on_one_srq();
    for wr_id in 0..4 {
        pair.b
            .nic
            .post_srq_recv(SRQ, recv(wr_id, BASE, 100))
            .unwrap();
    }
    let full = pair.b.nic.post_srq_recv(SRQ, recv(9, BASE, 100));
    assert_eq!(full, Err(PostError::QueueFull(4)));
    assert_eq!(
        pair.b.nic.modify_srq(SRQ, None, Some(5)),
        Err(SrqError::Limit {
            limit: 5,
            max_wr: 4
        })
    );
    assert_eq!(
        pair.b.nic.modify_srq(SRQ, Some(3), None),
        Err(SrqError::InUse {
            asked: 3,
            posted: 4
        })
    );
    pair.b.nic.modify_srq(SRQ, Some(8), Some(3)).unwrap();
    for wr_id in 0..3 {
        pair.a.post(send(wr_id).len(10));
        pair.run_until_idle();
        let due: &[AsyncEvent] = match wr_id {
            0 => &[],
            _ => &[AsyncEvent::SrqLimitReached(SRQ)],
        };
        assert_eq!(pair.b.host.events, due);
    }
    let attributes = pair.b.nic.query_srq(SRQ).unwrap();
    assert_eq!((attributes.limit, attributes.max_wr), (0, 8));
}

#[test]
fn an_error_flushes_the_receive_in_use_and_no_other() {
    let mut pair = two_on_one_srq();
    for wr_id in 0..3 {
        pair.b
            .nic
            .post_srq_recv(SRQ, recv(wr_id, BASE, 5000))
            .unwrap();
    }
    pair.drop_once("a send last 2 +a");
    pair.a.post(send(1).len(3000));
    pair.run_for(Duration::from_micros(5));
    pair.b.move_to(QpState::Error);
    assert_eq!(pair.b.completions(), [flushed(0)]);
    assert_eq!(
        pair.b.host.events,
        [AsyncEvent::QpLastWqeReached(pair.b.qpn)]
    );
    assert_eq!(pair.b.nic.srq_len(SRQ), Some(2));
    let own = pair
        .b
        .nic
        .post_recv(pair.now, pair.b.qpn, recv(1, BASE, 1), &mut pair.b.host);
    assert_eq!(own, Err(PostError::NoReceiveQueue));
}

#[test]
fn an_srq_in_use_stays() {
    let mut pair = two_on_one_srq();
    assert_eq!(
        pair.b.nic.destroy_srq(SRQ),
        Err(DestroyError::SrqInUse(SRQ))
    );
    pair.b.nic.destroy_qp(Qpn::new(0x20)).unwrap();
    pair.b.nic.destroy_qp(Qpn::new(0x21)).unwrap();
    pair.b.nic.destroy_srq(SRQ).unwrap();
    assert_eq!(
        pair.b.nic.destroy_srq(SRQ),
        Err(DestroyError::UnknownSrq(SRQ))
    );
}

#[test]
fn datagrams_take_receives_from_an_srq() {
    let setup = Setup::new(QpType::Ud);
    let mut pair = setup.bare();
    pair.b.nic.create_srq(SRQ, srq_init(None)).unwrap();
    let mut init = setup.init();
    pair.a.nic.create_qp(pair.a.qpn, init).unwrap();
    init.srq = Some(SRQ);
    pair.b.nic.create_qp(pair.b.qpn, init).unwrap();
    let attributes = setup.attributes(&pair.a, &pair.b, (0, 0));
    bring_up(&mut pair.a, QpType::Ud, attributes, QpState::ReadyToSend);
    bring_up(&mut pair.b, QpType::Ud, attributes, QpState::ReadyToReceive);
    pair.b.nic.post_srq_recv(SRQ, recv(5, BASE, 100)).unwrap();
    let target = DatagramTarget {
        path: path(pair.a.address, pair.b.address),
        qpn: pair.b.qpn,
        qkey: 0x1111,
    };
    pair.a.post(send(1).len(61).to(target));
    pair.a.post(send(2).len(60).to(target));
    pair.run_until_idle();
    assert_eq!(pair.b.completion().byte_len, 100);
    assert_eq!(pair.b.nic.counters().datagram_too_long, 1);
}

/// An XRC initiator at `a`, its target at `b`, and an XRC SRQ in the domain.
fn xrc() -> Pair {
    let setup = Setup::new(QpType::XrcSend);
    let mut pair = setup.bare();
    pair.b
        .nic
        .create_srq(SRQ, srq_init(Some((XRCD, CqId(50)))))
        .unwrap();
    let mut init = setup.init();
    pair.a.nic.create_qp(pair.a.qpn, init).unwrap();
    init.qp_type = QpType::XrcRecv;
    assert!(
        pair.b.nic.create_qp(pair.b.qpn, init).is_err(),
        "needs a domain"
    );
    init.xrcd = Some(XRCD);
    pair.b.nic.create_qp(pair.b.qpn, init).unwrap();
    let to_b = setup.attributes(&pair.a, &pair.b, (0, 0));
    let to_a = setup.attributes(&pair.b, &pair.a, (0, 0));
    bring_up(&mut pair.a, QpType::XrcSend, to_b, QpState::ReadyToSend);
    bring_up(&mut pair.b, QpType::XrcRecv, to_a, QpState::ReadyToSend);
    pair
}

#[test]
fn xrc_messages_go_to_the_srq_they_name() {
    let mut pair = xrc();
    pair.a.fill(BASE, 3000, 1);
    pair.b
        .nic
        .post_srq_recv(SRQ, recv(5, BASE + 50, 5000))
        .unwrap();
    pair.b.nic.post_srq_recv(SRQ, recv(6, BASE, 0)).unwrap();
    pair.a.post(send(1).len(3000).srqn(SRQ.0));
    let operation = SendOperation::WriteImmediate(remote(BASE + 9000), 3);
    pair.a.post(Wr::new(2, operation).len(3000).srqn(SRQ.0));
    pair.a
        .post(crate::testing::read(3).at(BASE + 20_000, 10).srqn(SRQ.0));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1), ok(2), ok(3)]);
    let queues: std::vec::Vec<_> = pair
        .b
        .host
        .completions
        .iter()
        .map(|(cq, c)| (cq.0, c.wr_id))
        .collect();
    assert_eq!(queues, [(50, 5), (50, 6)]);
    assert_eq!(
        pair.a.host.bytes(BASE, 3000),
        pair.b.host.bytes(BASE + 50, 3000)
    );
    assert_eq!(
        pair.a.host.bytes(BASE, 3000),
        pair.b.host.bytes(BASE + 9000, 3000)
    );
}

#[test]
fn xrc_refuses_an_srq_of_another_domain() {
    xrc_with_a_foreign_srq(false);
    xrc_with_a_foreign_srq(true);
}

fn xrc_with_a_foreign_srq(write_immediate: bool) {
    let mut pair = xrc();
    let other = SrqId(0x88);
    pair.b
        .nic
        .create_srq(other, srq_init(Some((XrcdId(9), CqId(51)))))
        .unwrap();
    pair.b.nic.post_srq_recv(other, recv(5, BASE, 100)).unwrap();
    let immediate = SendOperation::WriteImmediate(remote(BASE + 9000), 3);
    if write_immediate {
        pair.a.post(Wr::new(1, immediate).len(10).srqn(other.0));
    } else {
        pair.a.post(send(1).len(10).srqn(other.0));
    }
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [(1, S::RemoteInvalidRequest)]);
    assert_eq!(
        pair.b.host.writes, 0,
        "nothing is written before all checks"
    );
    assert_eq!(pair.b.host.events, [AsyncEvent::QpRequestError(pair.b.qpn)]);
    assert_eq!(pair.b.nic.srq_len(other), Some(1));
}

#[test]
fn xrc_without_a_receive_is_not_ready() {
    let mut pair = xrc();
    pair.a.post(send(1).len(10).srqn(SRQ.0));
    pair.run_for(Duration::from_micros(100));
    assert!(pair.trace().contains(&"b rnr 0".into()));
    pair.b.nic.post_srq_recv(SRQ, recv(5, BASE, 100)).unwrap();
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
}

#[test]
fn xrc_ends_have_one_direction() {
    let mut pair = xrc();
    let error = post_at(&mut pair.b);
    assert_eq!(error, Err(PostError::OpcodeNotSupported(QpType::XrcRecv)));
    let own = pair
        .a
        .nic
        .post_recv(pair.now, pair.a.qpn, recv(1, BASE, 1), &mut pair.a.host);
    assert_eq!(own, Err(PostError::NoReceiveQueue));
}

fn post_at(end: &mut End) -> Result<(), PostError> {
    end.try_post(write(1))
}
