//! Datagrams: no connection, no promise. One queue pair asks, another answers whoever asked.
//!
//! `cargo run -p feroce-verbs --example ud_pingpong [DEVICE]`
//!
//! See `rc_write` first: it explains the objects.

use feroce_verbs::{
    Access, Buffer, Completion, CompletionQueue, CompletionStatus, Context, CqOptions, Data,
    DatagramTarget, ProtectionDomain, QpOptions, QpType, QueuePair, RecvRequest, SendFlags,
    SendOperation, SendRequest,
};
use std::error::Error;
use std::time::Duration;

/// Both ends must know it: datagrams with another key are dropped.
const QKEY: u32 = 0x1234_5678;

/// Room that every received datagram has before its bytes, for the sender's address in the form
/// of a global routing header.
const GRH_BYTES: usize = 40;

/// Bytes of a message.
const MESSAGE_BYTES: usize = 8;

/// Datagrams get lost: after this time the question is asked again, this often.
const ANSWER_WAIT: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let device = std::env::args().nth(1).unwrap_or_else(|| "roce_lo".into());
    let context = Context::open(&device)?;
    let pd = context.alloc_pd();
    let asking = End::new(&context, &pd)?;
    let answering = End::new(&context, &pd)?;

    let address = context.gid(0).ok_or("the device has no address")?;
    let qpn = answering.qp.qpn();
    let target = DatagramTarget {
        path: context.path_to(address)?,
        qpn,
        qkey: QKEY,
    };
    for round in 0..5_u64 {
        let answer = ask(&context, &asking, &answering, target, round)?;
        assert_eq!(answer, round * round);
        println!("the square of {round} is {answer}");
    }
    Ok(())
}

/// One queue pair with a place for one datagram at a time.
struct End {
    qp: QueuePair,
    sent: CompletionQueue,
    received: CompletionQueue,
    inbox: Buffer,
}

impl End {
    fn new(context: &Context, pd: &ProtectionDomain) -> Result<Self, Box<dyn Error>> {
        let sent = context.create_cq(CqOptions::with_capacity(16))?;
        let received = context.create_cq(CqOptions::with_capacity(16))?;
        let qp = pd.create_qp(QpOptions::new(QpType::Ud, &sent, &received))?;
        qp.enable_datagrams(QKEY)?;
        let inbox = pd.alloc_buffer(GRH_BYTES + MESSAGE_BYTES, Access::LOCAL_WRITE)?;
        let end = Self {
            qp,
            sent,
            received,
            inbox,
        };
        end.make_room()?;
        Ok(end)
    }

    /// Posts a receive. A datagram that finds none is lost.
    fn make_room(&self) -> Result<(), Box<dyn Error>> {
        let sges = self.inbox.scatter(0, u32::try_from(self.inbox.len())?);
        Ok(self.qp.post_recv([RecvRequest { wr_id: 0, sges }])?)
    }

    fn send(&self, number: u64, target: DatagramTarget) -> Result<(), Box<dyn Error>> {
        self.qp.post_send([SendRequest {
            wr_id: 0,
            operation: SendOperation::Send,
            data: Data::Inline(number.to_be_bytes()[..].into()),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            target: Some(target),
            xrc_srqn: 0,
        }])?;
        // Says that the datagram has left, not that it arrived.
        let done = self
            .sent
            .wait_one(ANSWER_WAIT)
            .ok_or("the datagram did not leave")?;
        assert_eq!(done.status, CompletionStatus::Success);
        Ok(())
    }

    /// Waits for a datagram; `None` if it does not come.
    fn receive(&self) -> Result<Option<(u64, Completion)>, Box<dyn Error>> {
        let Some(done) = self.received.wait_one(ANSWER_WAIT) else {
            return Ok(None);
        };
        assert_eq!(done.byte_len as usize, GRH_BYTES + MESSAGE_BYTES);
        let mut bytes = [0; MESSAGE_BYTES];
        self.inbox.read(GRH_BYTES, &mut bytes)?;
        self.make_room()?;
        Ok(Some((u64::from_be_bytes(bytes), done)))
    }
}

/// Asks until there is an answer.
fn ask(
    context: &Context,
    asking: &End,
    answering: &End,
    target: DatagramTarget,
    question: u64,
) -> Result<u64, Box<dyn Error>> {
    for _ in 0..ATTEMPTS {
        asking.send(question, target)?;
        // What the other program would do: answer to where the question came from.
        if let Some((question, from)) = answering.receive()? {
            let address = from.source.ok_or("a datagram without a sender")?;
            let path = context.path_to(address)?;
            let back = DatagramTarget {
                path,
                qpn: from.source_qpn,
                qkey: QKEY,
            };
            answering.send(question * question, back)?;
        }
        if let Some((answer, _)) = asking.receive()? {
            return Ok(answer);
        }
    }
    Err(format!("no answer to {question} after {ATTEMPTS} attempts").into())
}
