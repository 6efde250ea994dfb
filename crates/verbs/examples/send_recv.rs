//! Two-sided messages: the receiver says beforehand where they go, the sender only that they go.
//!
//! `cargo run -p feroce-verbs --example send_recv [DEVICE]`
//!
//! See `rc_write` first: it explains the objects.

use feroce_verbs::{
    Access, Completion, CompletionQueue, CompletionStatus, Context, CqOptions, Data, Peer, Psn,
    QpOptions, QpType, QueuePair, RecvRequest, SendFlags, SendOperation, SendRequest,
};
use std::error::Error;
use std::time::Duration;

/// Bytes that the receiver has for each message.
const ROOM: u32 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "roce_lo".into());
    let context = Context::open(&device)?;
    let pd = context.alloc_pd();
    let sent = context.create_cq(CqOptions::with_capacity(16))?;
    let received = context.create_cq(CqOptions::with_capacity(16))?;
    let sender = pd.create_qp(QpOptions::new(QpType::Rc, &sent, &sent))?;
    let receiver = pd.create_qp(QpOptions::new(QpType::Rc, &received, &received))?;
    sender.connect(&peer(&context, &receiver)?)?;
    receiver.connect(&peer(&context, &sender)?)?;

    // Each message takes the oldest posted receive. Without one the sender tries again for a
    // while: messages are not buffered anywhere else.
    let inbox = pd.alloc_buffer(3 * ROOM as usize, Access::LOCAL_WRITE)?;
    receiver.post_recv((0..3).map(|slot| RecvRequest {
        wr_id: slot,
        sges: inbox.scatter(slot * u64::from(ROOM), ROOM),
    }))?;

    // Registered memory is sent from where it lies, and must stay as it is until the completion.
    let outbox = pd.alloc_buffer(ROOM as usize, Access::NONE)?;
    outbox.write(0, b"from registered memory\n\n")?;
    let plain = request(1, SendOperation::Send, outbox.gather(0, 24));
    // Short messages can be copied into the request, and then need no registered memory.
    let inline = Data::Inline(b"copied into the request\n"[..].into());
    let inline = request(2, SendOperation::Send, inline);
    // A message can carry a number beside its bytes, or instead of them.
    let number = request(3, SendOperation::SendImmediate(42), Data::empty());
    sender.post_send([plain, inline, number])?;

    for slot in 0..3 {
        let message = success(&received)?;
        assert_eq!(message.wr_id, slot);
        let mut bytes = vec![0; message.byte_len as usize];
        inbox.read((slot * u64::from(ROOM)) as usize, &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        println!(
            "message {slot}: {:?}, number {:?}",
            text.trim_end(),
            message.immediate
        );
    }
    for wr_id in 1..=3 {
        assert_eq!(success(&sent)?.wr_id, wr_id);
    }
    println!("the sender knows that all of them arrived");
    Ok(())
}

fn request(wr_id: u64, operation: SendOperation, data: Data) -> SendRequest {
    let flags = SendFlags {
        signaled: true,
        ..SendFlags::default()
    };
    SendRequest {
        wr_id,
        operation,
        data,
        flags,
        target: None,
        xrc_srqn: 0,
    }
}

/// The next completion, which must be a good one.
fn success(cq: &CompletionQueue) -> Result<Completion, Box<dyn Error>> {
    let done = cq
        .wait_one(Duration::from_secs(5))
        .ok_or("nothing completed in 5 seconds")?;
    match done.status {
        CompletionStatus::Success => Ok(done),
        status => Err(format!("request {} failed: {status:?}", done.wr_id).into()),
    }
}

/// How to connect to a queue pair on the same device.
fn peer(context: &Context, other: &QueuePair) -> Result<Peer, Box<dyn Error>> {
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
