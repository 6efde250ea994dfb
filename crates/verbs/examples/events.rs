//! Completion events: a receiver that sleeps until something arrives, instead of polling.
//!
//! `cargo run -p feroce-verbs --example events [DEVICE]`
//!
//! See `rc_write` and `send_recv` first: they explain the objects.

use feroce_verbs::{
    Access, Buffer, CompletionChannel, CompletionQueue, CompletionStatus, Context, CqOptions, Data,
    Peer, Psn, QpOptions, QpType, QueuePair, RecvRequest, SendFlags, SendOperation, SendRequest,
};
use std::error::Error;
use std::time::Duration;

const MESSAGES: u64 = 5;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "roce_lo".into());
    let context = Context::open(&device)?;
    let pd = context.alloc_pd();

    // The receiver's completion queue reports to a channel. One channel can serve many queues,
    // and its descriptor (`raw_fd`) can be waited on together with others.
    let channel = context.create_channel()?;
    let options = CqOptions {
        capacity: 16,
        channel: Some(channel.clone()),
    };
    let received = context.create_cq(options)?;
    let sent = context.create_cq(CqOptions::with_capacity(16))?;
    let sender = pd.create_qp(QpOptions::new(QpType::Rc, &sent, &sent))?;
    let receiver = pd.create_qp(QpOptions::new(QpType::Rc, &received, &received))?;
    sender.connect(&peer(&context, &receiver)?)?;
    receiver.connect(&peer(&context, &sender)?)?;

    let inbox = pd.alloc_buffer(8 * MESSAGES as usize, Access::LOCAL_WRITE)?;
    receiver.post_recv((0..MESSAGES).map(|slot| RecvRequest {
        wr_id: slot,
        sges: inbox.scatter(8 * slot, 8),
    }))?;

    let receiving = std::thread::spawn(move || receive_all(&channel, &received, &inbox));
    for number in 0..MESSAGES {
        std::thread::sleep(Duration::from_millis(20));
        send(&sender, &sent, number)?;
    }
    receiving
        .join()
        .map_err(|_| "the receiving thread panicked")?
}

/// Sleeps until there are completions, again and again.
fn receive_all(
    channel: &CompletionChannel,
    received: &CompletionQueue,
    inbox: &Buffer,
) -> Outcome<()> {
    let mut expected = 0;
    loop {
        // An event comes only for completions after the request for it. So: ask first, then
        // take what is there already, and sleep only if that was not all.
        received.request_notify(false);
        while let Some(entry) = received.poll_one() {
            assert_eq!(entry.completion.status, CompletionStatus::Success);
            assert_eq!(entry.completion.wr_id, expected);
            let mut bytes = [0; 8];
            inbox.read(8 * usize::try_from(expected)?, &mut bytes)?;
            assert_eq!(u64::from_be_bytes(bytes), expected);
            println!("message {expected} is here");
            expected += 1;
        }
        if expected == MESSAGES {
            return Ok(());
        }
        let cq = channel.wait()?;
        assert_eq!(cq, received.id());
    }
}

fn send(sender: &QueuePair, sent: &CompletionQueue, number: u64) -> Outcome<()> {
    sender.post_send([SendRequest {
        wr_id: number,
        operation: SendOperation::Send,
        data: Data::Inline(number.to_be_bytes()[..].into()),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        target: None,
        xrc_srqn: 0,
    }])?;
    let done = sent
        .wait_one(Duration::from_secs(5))
        .ok_or("nothing completed in 5 seconds")?;
    assert_eq!(done.status, CompletionStatus::Success);
    Ok(())
}

/// How to connect to a queue pair on the same device.
fn peer(context: &Context, other: &QueuePair) -> Outcome<Peer> {
    let address = context.gid(0).ok_or("the device has no address")?;
    Ok(Peer {
        path: context.path_to(address)?,
        qpn: other.qpn(),
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: context.port().mtu,
        access_flags: Access::NONE.bits(),
    })
}
