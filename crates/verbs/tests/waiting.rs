//! Threads that wait for completion events: they wake, together or alone, and cost nothing
//! meanwhile.

#![allow(clippy::unwrap_used, reason = "a test and its helpers")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use common::End;
use feroce_verbs::{
    CompletionChannel, CompletionQueue, Context, CqOptions, Data, QpOptions, QpType, QueuePair,
    RecvRequest, SendFlags, SendOperation, SendRequest, SgeList,
};
use std::sync::mpsc;
use std::time::Duration;

/// Long for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

/// A receiver that lives by events, connected to `peer`.
fn receiver(context: &Context, peer: &End) -> (QueuePair, CompletionQueue, CompletionChannel, End) {
    let channel = context.create_channel().unwrap();
    let mut end = End::new(context, QpType::Rc, 64);
    let cq = context
        .create_cq(CqOptions {
            capacity: 64,
            channel: Some(channel.clone()),
        })
        .unwrap();
    end.qp = end
        .pd
        .create_qp(QpOptions::new(QpType::Rc, &cq, &cq))
        .unwrap();
    end.connect(peer);
    peer.connect(&end);
    for wr_id in 0..8 {
        end.qp
            .post_recv([RecvRequest {
                wr_id,
                sges: SgeList::from_slice(&[end.buffer.sge(0, 64)]),
            }])
            .unwrap();
    }
    (end.qp.clone(), cq, channel, end)
}

fn send(sender: &End) {
    sender
        .qp
        .post_send([SendRequest {
            wr_id: 1,
            operation: SendOperation::Send,
            data: Data::Inline([7; 8][..].into()),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            target: None,
            xrc_srqn: 0,
        }])
        .unwrap();
}

#[test]
fn a_thread_that_waits_is_woken_by_each_message() {
    let context = Context::open("roce_lo").unwrap();
    let sender = End::new(&context, QpType::Rc, 64);
    let (_qp, cq, channel, _end) = receiver(&context, &sender);
    cq.request_notify(false);
    let (tell, told) = mpsc::channel();
    let waiter = {
        let (cq, channel) = (cq.clone(), channel.clone());
        std::thread::spawn(move || {
            for _ in 0..4 {
                assert_eq!(channel.wait().unwrap(), cq.id());
                cq.request_notify(false);
                while cq.poll_one().is_some() {}
                tell.send(()).unwrap();
            }
        })
    };
    for pause in [0, 1, 5, 100] {
        // The waiting thread is asleep for longer and longer.
        std::thread::sleep(Duration::from_millis(pause));
        send(&sender);
        told.recv_timeout(PATIENCE).unwrap();
    }
    waiter.join().unwrap();
}

#[test]
fn of_two_threads_on_one_channel_each_event_wakes_one() {
    let context = Context::open("roce_lo").unwrap();
    let sender = End::new(&context, QpType::Rc, 64);
    let (_qp, cq, channel, _end) = receiver(&context, &sender);
    cq.request_notify(false);
    let (tell, told) = mpsc::channel();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let (channel, tell) = (channel.clone(), tell.clone());
            std::thread::spawn(move || tell.send(channel.wait().unwrap()).unwrap())
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..2 {
        send(&sender);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), cq.id());
        assert!(told.try_recv().is_err(), "one event woke two threads");
        cq.request_notify(false);
    }
    for waiter in waiters {
        waiter.join().unwrap();
    }
}

#[test]
fn a_thread_that_waits_on_another_channel_is_not_in_the_way() {
    let context = Context::open("roce_lo").unwrap();
    let idle = context.create_channel().unwrap();
    let wakeable = context
        .create_cq(CqOptions {
            capacity: 1,
            channel: Some(idle.clone()),
        })
        .unwrap();
    let sender = End::new(&context, QpType::Rc, 64);
    let (_qp, cq, channel, _end) = receiver(&context, &sender);
    // It waits for ever: the test's process takes it along.
    std::thread::spawn(move || (idle.wait(), drop(wakeable)));
    std::thread::sleep(Duration::from_millis(20));
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(channel.wait().unwrap()).unwrap());
    cq.request_notify(false);
    send(&sender);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), cq.id());
}
