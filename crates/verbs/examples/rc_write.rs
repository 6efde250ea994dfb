//! One-sided RDMA's hello world: one end writes into the memory of another, which does nothing.
//!
//! `cargo run -p feroce-verbs --example rc_write [DEVICE]`
//!
//! Both ends live in this process to keep it short. In two processes nothing changes but that
//! they must tell each other address, queue pair number and key first, over a TCP connection say.

use feroce_verbs::{
    Access, CompletionStatus, Context, CqOptions, Peer, Psn, QpOptions, QpType, QueuePair, Remote,
    SendFlags, SendOperation, SendRequest,
};
use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    // `feroce devices` lists what there is.
    let device = std::env::args().nth(1).unwrap_or_else(|| "roce_lo".into());
    let context = Context::open(&device)?;

    // Queue pairs and memory that are to work together belong to one protection domain. How
    // requests end is told through a completion queue.
    let pd = context.alloc_pd();
    let cq = context.create_cq(CqOptions::with_capacity(16))?;
    let writer = pd.create_qp(QpOptions::new(QpType::Rc, &cq, &cq))?;
    let target = pd.create_qp(QpOptions::new(QpType::Rc, &cq, &cq))?;
    writer.connect(&peer(&context, &target)?)?;
    target.connect(&peer(&context, &writer)?)?;

    // Memory that peers may write to must say so.
    let text = b"hello, remote memory";
    let source = pd.alloc_buffer(4096, Access::LOCAL_WRITE)?;
    let destination = pd.alloc_buffer(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    source.write(0, text)?;

    // Whoever has these two numbers can write there.
    let remote = Remote {
        address: 1000,
        rkey: destination.rkey(),
    };
    writer.post_send([SendRequest {
        wr_id: 1,
        operation: SendOperation::Write(remote),
        data: source.gather(0, u32::try_from(text.len())?),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        target: None,
        xrc_srqn: 0,
    }])?;

    // The completion says that the bytes are in the peer's memory.
    let done = cq
        .wait_one(Duration::from_secs(5))
        .ok_or("nothing completed in 5 seconds")?;
    assert_eq!((done.wr_id, done.status), (1, CompletionStatus::Success));
    let mut found = vec![0; text.len()];
    destination.read(1000, &mut found)?;
    assert_eq!(found, text);
    println!(
        "the target's memory says: {}",
        String::from_utf8_lossy(&found)
    );
    Ok(())
}

/// How to connect to a queue pair on the same device.
fn peer(context: &Context, other: &QueuePair) -> Result<Peer, Box<dyn Error>> {
    let address = context.gid(0).ok_or("the device has no address")?;
    Ok(Peer {
        path: context.path_to(address)?,
        qpn: other.qpn(),
        // Any number will do as long as both ends agree on it.
        rq_psn: Psn::new(0),
        sq_psn: Psn::new(0),
        path_mtu: context.port().mtu,
        access_flags: Access::REMOTE_WRITE.bits(),
    })
}
