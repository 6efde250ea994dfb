//! Atomics: two ends count in the memory of a third one, and none of their additions is lost.
//!
//! `cargo run -p feroce-verbs --example atomics [DEVICE]`
//!
//! See `rc_write` first: it explains the objects.

use feroce_verbs::{
    Access, Buffer, CompletionQueue, CompletionStatus, Context, CqOptions, Peer, ProtectionDomain,
    Psn, QpOptions, QpType, QueuePair, Remote, SendFlags, SendOperation, SendRequest,
};
use std::error::Error;
use std::time::Duration;

/// Additions of each end.
const ADDITIONS: u64 = 1000;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "roce_lo".into());
    let context = Context::open(&device)?;
    let pd = context.alloc_pd();

    // Atomics work on eight bytes at a multiple of eight.
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    let counter = pd.alloc_buffer(8, access)?;
    let remote = Remote {
        address: 0,
        rkey: counter.rkey(),
    };

    let ends = [End::new(&context, &pd)?, End::new(&context, &pd)?];
    std::thread::scope(|scope| {
        let threads = ends
            .each_ref()
            .map(|end| scope.spawn(|| count(end, remote)));
        for thread in threads {
            thread.join().map_err(|_| "a counting thread panicked")??;
        }
        Outcome::Ok(())
    })?;

    // Compare-and-swap stores the new value only if the old one is what was expected; it
    // returns the old one in any case.
    let total = ends.len() as u64 * ADDITIONS;
    let swap = |compare, swap| SendOperation::CompareSwap {
        remote,
        compare,
        swap,
    };
    assert_eq!(
        ends[0].execute(swap(total + 1, 0))?,
        total,
        "not what was expected: no change"
    );
    assert_eq!(
        ends[0].execute(swap(total, 0))?,
        total,
        "as expected: now 0"
    );

    let mut bytes = [1; 8];
    counter.read(0, &mut bytes)?;
    assert_eq!(u64::from_ne_bytes(bytes), 0);
    println!(
        "{total} additions from {} ends, none lost; the counter is 0 again",
        ends.len()
    );
    Ok(())
}

/// Adds 1 again and again.
fn count(end: &End, remote: Remote) -> Outcome<()> {
    let mut before = None;
    for _ in 0..ADDITIONS {
        let value = end.execute(SendOperation::FetchAdd { remote, add: 1 })?;
        // The other end adds in between, so numbers may be left out, but none comes twice.
        assert!(Some(value) > before);
        before = Some(value);
    }
    Ok(())
}

/// An end that executes atomics, and the queue pair that serves it.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    result: Buffer,
    _served_by: QueuePair,
}

impl End {
    fn new(context: &Context, pd: &ProtectionDomain) -> Outcome<Self> {
        let cq = context.create_cq(CqOptions::with_capacity(16))?;
        let qp = pd.create_qp(QpOptions::new(QpType::Rc, &cq, &cq))?;
        let serving = pd.create_qp(QpOptions::new(QpType::Rc, &cq, &cq))?;
        let address = context.gid(0).ok_or("the device has no address")?;
        let peer = |other: &QueuePair| {
            Outcome::Ok(Peer {
                path: context.path_to(address)?,
                qpn: other.qpn(),
                rq_psn: Psn::new(0),
                sq_psn: Psn::new(0),
                path_mtu: context.port().mtu,
                access_flags: Access::REMOTE_ATOMIC.bits(),
            })
        };
        qp.connect(&peer(&serving)?)?;
        serving.connect(&peer(&qp)?)?;
        let result = pd.alloc_buffer(8, Access::LOCAL_WRITE)?;
        Ok(Self {
            qp,
            cq,
            result,
            _served_by: serving,
        })
    }

    /// Executes an atomic and returns the value before it.
    fn execute(&self, operation: SendOperation) -> Outcome<u64> {
        self.qp.post_send([SendRequest {
            wr_id: 0,
            operation,
            data: self.result.gather(0, 8),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            target: None,
            xrc_srqn: 0,
        }])?;
        let done = self
            .cq
            .wait_one(Duration::from_secs(5))
            .ok_or("nothing completed in 5 seconds")?;
        assert_eq!(done.status, CompletionStatus::Success);
        let mut bytes = [0; 8];
        self.result.read(0, &mut bytes)?;
        // In the byte order of this machine, unlike what is on the wire.
        Ok(u64::from_ne_bytes(bytes))
    }
}
