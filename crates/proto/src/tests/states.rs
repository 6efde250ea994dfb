//! `modify_qp`: which edges exist, what they need, what they do.

use crate::testing::{BASE, Fate, Setup, Wr, bring_up, flushed, ok, read, remote, send, write};
use crate::{
    AsyncEvent, AttributeMask as M, ModifyError, Mtu, PostError, QpAttributes, QpState as S,
    QpType, SendOperation,
};
use core::time::Duration;
use std::string::ToString;

const STATES: [S; 7] = [
    S::Reset,
    S::Init,
    S::ReadyToReceive,
    S::ReadyToSend,
    S::SqDrained,
    S::SqError,
    S::Error,
];

/// Every edge of the table, per type, by trying all pairs with exactly the required mask.
#[test]
fn the_state_table() {
    let init = 0x38;
    let rc_receive = 0x12_9180;
    let rc_send = 0x1_2e00;
    for (qp_type, init, receive, send) in [
        (QpType::Rc, init, rc_receive, rc_send),
        (QpType::Uc, init, 0x10_1180, 0x1_0000),
        (QpType::Ud, 0x70, 0, 0x1_0000),
        (QpType::XrcSend, init, 0x10_1180, rc_send),
        (QpType::XrcRecv, init, rc_receive, 0x1_0200),
    ] {
        let unreliable = matches!(qp_type, QpType::Uc | QpType::Ud);
        for from in STATES {
            for to in STATES {
                let required = match (from, to) {
                    (_, S::Reset | S::Error) => Some(0),
                    (S::Reset, S::Init) => Some(init),
                    (S::Init, S::Init) => Some(0),
                    (S::Init, S::ReadyToReceive) => Some(receive),
                    (S::ReadyToReceive, S::ReadyToReceive) => Some(0),
                    (S::ReadyToReceive, S::ReadyToSend) => Some(send),
                    (S::ReadyToSend | S::SqDrained, S::ReadyToSend | S::SqDrained) => Some(0),
                    (S::SqError, S::ReadyToSend) if unreliable => Some(0),
                    _ => None,
                };
                let mut pair = reach(qp_type, from);
                let attributes = QpAttributes {
                    state: to,
                    ..Setup::new(qp_type).attributes(&pair.a, &pair.b, (0, 0))
                };
                let Some(required) = required else {
                    let result = pair.a.modify(&attributes, M::STATE);
                    assert_eq!(result, Err(ModifyError::Transition { qp_type, from, to }));
                    assert_eq!(pair.a.state(), from);
                    continue;
                };
                for bit in 0..26 {
                    if required & (1 << bit) != 0 {
                        let mask = M(M::STATE.0 | required & !(1 << bit));
                        let result = pair.a.modify(&attributes, mask);
                        assert!(
                            matches!(result, Err(ModifyError::Missing { missing, .. })
                                if missing.0.0 == 1 << bit),
                            "{qp_type:?} {from:?} to {to:?} without bit {bit}: {result:?}"
                        );
                    }
                }
                pair.a
                    .modify(&attributes, M(M::STATE.0 | required))
                    .unwrap();
                assert_eq!(pair.a.state(), to, "{qp_type:?} {from:?}");
            }
        }
    }
}

fn reach(qp_type: QpType, state: S) -> crate::testing::Pair {
    let setup = Setup::new(qp_type);
    let mut pair = setup.bare();
    let mut init = setup.init();
    init.xrcd = Some(crate::XrcdId(1));
    pair.a.nic.create_qp(pair.a.qpn, init).unwrap();
    let attributes = setup.attributes(&pair.a, &pair.b, (0, 0));
    match state {
        S::Reset => {}
        S::Init | S::ReadyToReceive | S::ReadyToSend => {
            bring_up(&mut pair.a, qp_type, attributes, state);
        }
        S::Error => pair.a.move_to(S::Error),
        S::SqDrained => {
            bring_up(&mut pair.a, qp_type, attributes, S::ReadyToSend);
            pair.a.move_to(S::SqDrained);
        }
        S::SqError => {
            bring_up(&mut pair.a, qp_type, attributes, S::ReadyToSend);
            pair.a.nic.force_state(pair.a.qpn, S::SqError);
        }
    }
    pair
}

#[test]
fn a_refused_modify_says_what_is_wrong_and_changes_nothing() {
    let mut pair = Setup::new(QpType::Rc).connect();
    let before = pair.a.nic.query_qp(pair.a.qpn).unwrap().0;
    let attributes = QpAttributes {
        state: S::ReadyToSend,
        min_rnr_timer: 32,
        ..before
    };
    let error = pair.a.modify(&attributes, M::MIN_RNR_TIMER).unwrap_err();
    assert_eq!(error.to_string(), "min_rnr_timer is 32, but 31 at most");
    let error = pair
        .a
        .modify(&attributes, M::PATH_MTU | M::DEST_QPN)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ReadyToSend to ReadyToSend does not take path_mtu, dest_qp_num"
    );
    let wrong = QpAttributes {
        current_state: S::Init,
        ..before
    };
    let error = pair.a.modify(&wrong, M::CURRENT_STATE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cur_qp_state says Init, but the queue pair is in ReadyToSend"
    );
    assert_eq!(pair.a.nic.query_qp(pair.a.qpn).unwrap().0, before);
}

#[test]
fn min_rnr_timer_alone_is_taken_from_rtr_on() {
    for state in [S::ReadyToReceive, S::ReadyToSend] {
        let mut pair = reach(QpType::Rc, state);
        let attributes = QpAttributes {
            min_rnr_timer: 3,
            ..QpAttributes::default()
        };
        pair.a.modify(&attributes, M(0x8000)).unwrap();
        let (now, _) = pair.a.nic.query_qp(pair.a.qpn).unwrap();
        assert_eq!((now.min_rnr_timer, now.state), (3, state));
    }
}

#[test]
fn a_path_mtu_above_the_interface_is_refused_by_name() {
    let setup = Setup::new(QpType::Rc).with(|s| {
        s.config.path_mtu_max = Mtu::Mtu1024;
        s.mtu = Mtu::Mtu2048;
    });
    let mut pair = setup.bare();
    pair.a.nic.create_qp(pair.a.qpn, setup.init()).unwrap();
    let attributes = setup.attributes(&pair.a, &pair.b, (0, 0));
    bring_up(&mut pair.a, QpType::Rc, attributes, S::Init);
    let attributes = QpAttributes {
        state: S::ReadyToReceive,
        ..attributes
    };
    let error = pair.a.modify(&attributes, M(0x12_9181)).unwrap_err();
    assert_eq!(
        error,
        ModifyError::PathMtu {
            asked: Mtu::Mtu2048,
            max: Mtu::Mtu1024
        }
    );
}

#[test]
fn wishes_for_responder_resources_are_clamped() {
    let setup = Setup::new(QpType::Rc).with(|s| s.rd_atomic = 255);
    let pair = setup.connect();
    let (attributes, _) = pair.a.nic.query_qp(pair.a.qpn).unwrap();
    assert_eq!(
        (attributes.max_rd_atomic, attributes.max_dest_rd_atomic),
        (128, 128)
    );
}

#[test]
fn posting_follows_the_state() {
    for state in STATES {
        let mut pair = reach(QpType::Ud, state);
        let target = crate::DatagramTarget {
            path: crate::testing::path(pair.a.address, pair.b.address),
            qpn: pair.b.qpn,
            qkey: 0x1111,
        };
        let result = pair.a.try_post(send(1).to(target));
        let refused = matches!(state, S::Reset | S::Init | S::ReadyToReceive);
        assert_eq!(
            result,
            if refused {
                Err(PostError::BadState(state))
            } else {
                Ok(())
            }
        );
        let is_error = matches!(state, S::Error | S::SqError);
        assert_eq!(
            pair.a.completions(),
            if is_error {
                std::vec![flushed(1)]
            } else {
                std::vec![]
            }
        );
        let request = crate::testing::recv(2, BASE, 100);
        let result = pair
            .a
            .nic
            .post_recv(pair.now, pair.a.qpn, request, &mut pair.a.host);
        assert_eq!(result.is_err(), state == S::Reset);
        assert_eq!(
            pair.a.completions(),
            if state == S::Error {
                std::vec![flushed(2)]
            } else {
                std::vec![]
            }
        );
    }
}

#[test]
fn an_atomic_write_brings_its_bytes_whatever_room_for_inline_data_there_is() {
    let mut pair = Setup::new(QpType::Rc)
        .with(|s| s.max_inline_data = 0)
        .connect();
    let request =
        |bytes: &[u8]| Wr::new(1, SendOperation::AtomicWrite(remote(BASE + 800))).inline(bytes);
    pair.a.post(request(b"feroce!!"));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.b.host.bytes(BASE + 800, 8), b"feroce!!");
    let error = pair.a.try_post(request(&[0; 9])).unwrap_err();
    assert_eq!(error, PostError::InlineTooLong { asked: 9, max: 8 });
}

#[test]
fn bad_requests_are_refused_with_the_limit_they_break() {
    let mut pair = Setup::new(QpType::Rc).with(|s| s.depth = 2).connect();
    let five = [crate::testing::sge(BASE, 1); 5];
    let error = pair.a.try_post(write(1).pieces(&five)).unwrap_err();
    assert_eq!(error, PostError::TooManySge { asked: 5, max: 4 });
    let error = pair.a.try_post(write(1).inline(&[0; 257])).unwrap_err();
    assert_eq!(
        error,
        PostError::InlineTooLong {
            asked: 257,
            max: 256
        }
    );
    let error = pair.a.try_post(read(1).inline(&[0; 8])).unwrap_err();
    assert_eq!(error, PostError::InlineNotAllowed);
    let half = [crate::testing::sge(BASE, 1 << 30); 2];
    pair.a.try_post(write(1).pieces(&half)).unwrap();
    let more = [half[0], half[1], crate::testing::sge(BASE, 1)];
    let error = pair.a.try_post(write(1).pieces(&more)).unwrap_err();
    assert_eq!(
        error,
        PostError::TooLong {
            bytes: (1 << 31) + 1,
            max: 1 << 31
        }
    );
    pair.a.try_post(write(2)).unwrap();
    assert_eq!(
        pair.a.try_post(write(3)).unwrap_err(),
        PostError::QueueFull(2)
    );
}

#[test]
fn reset_forgets_everything_without_completions() {
    let mut pair = Setup::new(QpType::Rc).connect();
    pair.a.post_recv(1, BASE, 100);
    pair.a.post(write(2).len(100_000));
    pair.transmit();
    pair.a.move_to(S::Reset);
    assert_eq!(pair.a.completions(), []);
    assert_eq!(pair.a.nic.poll_timeout(), None);
    pair.assert_nothing_in_flight();
    pair.run_until_idle();
    assert_eq!(pair.a.nic.send_queue_len(pair.a.qpn), Some(0));
    // It can be brought up again, from other PSNs.
    let setup = Setup::new(QpType::Rc);
    pair.b.move_to(S::Reset);
    let to_b = setup.attributes(&pair.a, &pair.b, (500, 600));
    let to_a = setup.attributes(&pair.b, &pair.a, (600, 500));
    bring_up(&mut pair.a, QpType::Rc, to_b, S::ReadyToSend);
    bring_up(&mut pair.b, QpType::Rc, to_a, S::ReadyToSend);
    pair.trace();
    pair.a.post(write(3).len(10));
    pair.run_until_idle();
    assert_eq!(pair.trace(), ["a write only 500 +a", "b ack 500"]);
    assert_eq!(pair.a.completions(), [ok(3)]);
}

#[test]
fn destroy_leaves_nothing_behind() {
    let mut pair = Setup::new(QpType::Rc).connect();
    pair.a.post(write(2).len(500_000));
    pair.transmit();
    assert!(pair.a.nic.bytes_in_flight() > 0);
    pair.a.nic.destroy_qp(pair.a.qpn).unwrap();
    assert_eq!(pair.a.nic.bytes_in_flight(), 0);
    assert_eq!(pair.a.nic.poll_timeout(), None);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), []);
    assert!(pair.a.nic.destroy_qp(pair.a.qpn).is_err());
}

#[test]
fn to_error_flushes_both_queues_in_order() {
    let mut pair = Setup::new(QpType::Rc).connect();
    for wr_id in 0..3 {
        pair.a.post(read(wr_id).len(5000).unsignaled());
        pair.a.post_recv(10 + wr_id, BASE, 100);
    }
    pair.transmit();
    pair.a.move_to(S::Error);
    assert_eq!(
        pair.a.completions(),
        [
            flushed(0),
            flushed(1),
            flushed(2),
            flushed(10),
            flushed(11),
            flushed(12)
        ]
    );
    pair.assert_nothing_in_flight();
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), []);
}

#[test]
fn drained_finishes_what_has_begun_and_holds_the_rest() {
    let mut pair = Setup::new(QpType::Rc)
        .with(|s| s.config.window_initial = 9216)
        .connect();
    pair.a.post(write(1).len(50_000));
    pair.a.post(write(2).len(10));
    pair.transmit();
    let attributes = QpAttributes {
        state: S::SqDrained,
        en_sqd_async_notify: true,
        ..QpAttributes::default()
    };
    pair.a
        .modify(&attributes, M::STATE | M::EN_SQD_ASYNC_NOTIFY)
        .unwrap();
    assert!(pair.a.nic.query_qp(pair.a.qpn).unwrap().0.sq_draining);
    assert_eq!(pair.a.host.events, []);
    pair.a.post(write(3).len(10));
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(1)]);
    assert_eq!(pair.a.host.events, [AsyncEvent::SqDrained(pair.a.qpn)]);
    assert!(!pair.a.nic.query_qp(pair.a.qpn).unwrap().0.sq_draining);
    pair.a.move_to(S::ReadyToSend);
    pair.run_until_idle();
    assert_eq!(pair.a.completions(), [ok(2), ok(3)]);
}

#[test]
fn the_first_packet_in_rtr_establishes() {
    let setup = Setup::new(QpType::Rc);
    let mut pair = setup.bare();
    for end in [&mut pair.a, &mut pair.b] {
        end.nic.create_qp(end.qpn, setup.init()).unwrap();
    }
    let to_b = setup.attributes(&pair.a, &pair.b, (0, 100));
    let to_a = setup.attributes(&pair.b, &pair.a, (100, 0));
    bring_up(&mut pair.a, QpType::Rc, to_b, S::ReadyToSend);
    bring_up(&mut pair.b, QpType::Rc, to_a, S::ReadyToReceive);
    pair.a.post(write(1));
    pair.a.post(write(2));
    pair.run_until_idle();
    assert_eq!(
        pair.b.host.events,
        [AsyncEvent::CommunicationEstablished(pair.b.qpn)]
    );
    assert_eq!(
        pair.a.completions(),
        [ok(1), ok(2)],
        "a responder in RTR answers"
    );
}

#[test]
fn packets_before_rtr_are_dropped() {
    let setup = Setup::new(QpType::Rc);
    let mut pair = setup.bare();
    for end in [&mut pair.a, &mut pair.b] {
        end.nic.create_qp(end.qpn, setup.init()).unwrap();
    }
    let to_b = setup.attributes(&pair.a, &pair.b, (0, 100));
    bring_up(&mut pair.a, QpType::Rc, to_b, S::ReadyToSend);
    pair.script(|_, _| Fate::Pass);
    pair.a.post(write(1));
    pair.run_for(Duration::from_micros(10));
    assert_eq!(pair.b.nic.counters().dropped_state, 1);
    assert_eq!(pair.b.host.events, []);
}
