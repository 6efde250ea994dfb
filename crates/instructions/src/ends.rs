//! Two connected queue pairs on two devices of one process, driven by hand.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use feroce_verbs::{
    Access, AttributeMask, Buffer, CompletionQueue, CompletionStatus, Context, CqOptions, Data,
    Mtu, Psn, QpAttributes, QpOptions, QpState, QpType, QueuePair, RecvRequest, Remote, SendFlags,
    SendOperation, SendRequest,
};

/// A large message.
pub(crate) const LARGE_BYTES: u32 = 65_536;

/// A small message.
pub(crate) const SMALL_BYTES: u32 = 8;

/// Requests that each queue holds.
const DEPTH: u32 = 256;

/// Looks before an expected packet or completion is given up. Delivery over loopback is nearly
/// always done when the sender's system call returns, but a busy kernel may put it off.
const LOOKS_MAX: u32 = 500;

/// How long to sleep after each look in vain, which costs the fewest instructions.
const PATIENCE: Duration = Duration::from_millis(2);

/// Rounds after which nothing is on its way any more. A round in vain looks at the main socket
/// only, every so many look at all.
const RESTING_ROUNDS: u32 = 20;

/// How often to rest before a measurement: question, answer, and what follows from it.
const RESTS: u32 = 3;

/// Acknowledgement timeout, 4.096 µs × 2^20 (IBTA vol. 1, section 9.7.6.1.3): callgrind slows
/// everything, and a retransmission would count.
const TIMEOUT: u8 = 20;

/// One end.
struct End {
    context: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    buffer: Buffer,
    /// Completions taken in all.
    completed: u32,
}

/// The requester, and the target of its messages.
pub(crate) struct Ends {
    requester: End,
    target: End,
    /// Requests posted by the requester in all.
    posted: u32,
}

impl Ends {
    pub(crate) fn connect() -> Result<Self> {
        let ends = Self {
            requester: End::open()?,
            target: End::open()?,
            posted: 0,
        };
        // Each step for both: a peer is asked for its port when it is first heard of.
        for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
            ends.requester.advance(state, &ends.target)?;
            ends.target.advance(state, &ends.requester)?;
        }
        Ok(ends)
    }

    /// Has the requester work until so many packets have left since `before`, a result of
    /// [`sent`](Self::sent): it may have to hear of room at the target first.
    pub(crate) fn leave(&self, before: u64, packets: u64) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            if self.sent() >= before + packets {
                return Ok(());
            }
            self.requester.context.device().poll_progress();
            std::thread::sleep(PATIENCE);
        }
        bail!("{packets} packets did not leave");
    }

    /// Packets that the requester has sent in all.
    pub(crate) fn sent(&self) -> u64 {
        self.requester.context.device().counters().0.sent_packets
    }

    /// Has both ends work until everything that was on its way has been seen: acknowledgements,
    /// and what receivers tell senders about room.
    pub(crate) fn rest(&self) {
        for _ in 0..RESTS {
            std::thread::sleep(PATIENCE / 2);
            for _ in 0..RESTING_ROUNDS {
                self.target.context.device().poll_progress();
                self.requester.context.device().poll_progress();
            }
        }
    }

    /// Packets that a WRITE of so many bytes takes.
    pub(crate) fn packets_of(&self, bytes: u32) -> u64 {
        let mtu = self.mtu().bytes();
        u64::from(bytes.div_ceil(mtu).max(1))
    }

    fn mtu(&self) -> Mtu {
        self.requester.context.port().mtu
    }

    /// Posts a WRITE.
    pub(crate) fn post_write(&mut self, bytes: u32) -> Result<()> {
        let remote = Remote {
            address: 0,
            rkey: self.target.buffer.rkey(),
        };
        let data = self.requester.buffer.gather(0, bytes);
        let request = request(SendOperation::Write(remote), data);
        self.requester.qp.post_send([request])?;
        self.posted += 1;
        Ok(())
    }

    /// Posts a list of small SENDs.
    pub(crate) fn post_sends(&mut self, count: u32) -> Result<()> {
        let buffer = &self.requester.buffer;
        let one = |_| request(SendOperation::Send, buffer.gather(0, SMALL_BYTES));
        self.requester.qp.post_send((0..count).map(one))?;
        self.posted += count;
        Ok(())
    }

    /// Posts receives.
    pub(crate) fn post_receive(&self, count: u32) -> Result<()> {
        let buffer = &self.target.buffer;
        let one = |_| RecvRequest {
            wr_id: 2,
            sges: buffer.scatter(0, SMALL_BYTES),
        };
        self.target.qp.post_recv((0..count).map(one))?;
        Ok(())
    }

    /// Has the target take packets until it has taken so many more.
    pub(crate) fn target_receives(&self, packets: u64) -> Result<()> {
        self.target.receive(packets)
    }

    /// Has the requester take packets until it has taken so many more.
    pub(crate) fn requester_receives(&self, packets: u64) -> Result<()> {
        self.requester.receive(packets)
    }

    /// Takes so many completions of the requester.
    pub(crate) fn requester_completes(&mut self, count: u32) -> Result<()> {
        self.requester.complete(count)
    }

    /// Takes so many completions of the target.
    pub(crate) fn target_completes(&mut self, count: u32) -> Result<()> {
        self.target.complete(count)
    }

    /// Sees a WRITE through to its completion.
    pub(crate) fn settle_write(&mut self) -> Result<()> {
        self.settle_writes(1)
    }

    /// Sees WRITEs through to their completions; both ends work in turn.
    pub(crate) fn settle_writes(&mut self, count: u32) -> Result<()> {
        let aim = self.requester.completed + count;
        for _ in 0..LOOKS_MAX {
            if self.requester.completed >= aim {
                return Ok(());
            }
            self.target.context.device().poll_progress();
            self.requester.poll(count)?;
        }
        bail!("WRITEs did not complete");
    }

    /// Sees small SENDs through; both ends work in turn.
    pub(crate) fn settle_sends(&mut self, count: u32) -> Result<()> {
        let (aim, requested) = (
            self.target.completed + count,
            self.requester.completed + count,
        );
        for _ in 0..LOOKS_MAX {
            let (received, done) = (self.target.completed, self.requester.completed);
            if received >= aim && done >= requested {
                return Ok(());
            }
            self.target.poll(aim - received)?;
            self.requester.poll(requested - done)?;
        }
        bail!("SENDs did not complete");
    }

    /// Posts large WRITEs until nothing may be sent any more; returns how many.
    pub(crate) fn fill_window(&mut self) -> Result<u32> {
        for count in 1..DEPTH - 1 {
            let before = self.sent();
            self.post_write(LARGE_BYTES)?;
            if self.sent() == before {
                return Ok(count);
            }
        }
        bail!("{DEPTH} large WRITEs did not fill the window");
    }

    /// Polls the requester, which has nothing under way.
    pub(crate) fn poll_in_vain(&mut self) -> Result<()> {
        ensure!(self.requester.poll(1)? == 0, "a completion from nowhere");
        Ok(())
    }
}

impl End {
    fn open() -> Result<Self> {
        let context = Context::open_unattended("roce_lo")?;
        let pd = context.alloc_pd();
        let cq = context.create_cq(CqOptions::with_capacity(2 * DEPTH as usize))?;
        let mut options = QpOptions::new(QpType::Rc, &cq, &cq);
        options.capabilities.max_send_wr = DEPTH;
        options.capabilities.max_recv_wr = DEPTH;
        let qp = pd.create_qp(options)?;
        let buffer = pd.alloc_buffer(
            LARGE_BYTES as usize,
            Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        )?;
        Ok(Self {
            context,
            cq,
            qp,
            buffer,
            completed: 0,
        })
    }

    /// Takes the queue pair to the next state, as a peer of `other`.
    fn advance(&self, state: QpState, other: &Self) -> Result<()> {
        use AttributeMask as Mask;
        let address = self.context.gid(0).context("the device has no address")?;
        let attributes = QpAttributes {
            state,
            access_flags: Access::REMOTE_WRITE.bits(),
            path: Some(self.context.path_to(address)?),
            path_mtu: self.context.port().mtu,
            dest_qpn: other.qp.qpn(),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            timeout: TIMEOUT,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            ..QpAttributes::default()
        };
        let rest = match state {
            QpState::Init => Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS,
            QpState::ReadyToReceive => {
                let path = Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN;
                path | Mask::RQ_PSN | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER
            }
            _ => {
                let retries = Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY;
                retries | Mask::SQ_PSN | Mask::MAX_QP_RD_ATOMIC
            }
        };
        self.qp.modify(&attributes, Mask::STATE | rest)?;
        Ok(())
    }

    /// Makes rounds until so many more packets have arrived.
    fn receive(&self, packets: u64) -> Result<()> {
        let received = || self.context.device().counters().0.received_packets;
        let aim = received() + packets;
        for _ in 0..LOOKS_MAX {
            self.context.device().poll_progress();
            if received() >= aim {
                return Ok(());
            }
            std::thread::sleep(PATIENCE);
        }
        bail!("{packets} packets did not arrive");
    }

    /// Polls until so many more completions are taken.
    fn complete(&mut self, count: u32) -> Result<()> {
        let aim = self.completed + count;
        for _ in 0..LOOKS_MAX {
            self.poll(aim - self.completed)?;
            if self.completed >= aim {
                return Ok(());
            }
            std::thread::sleep(PATIENCE);
        }
        bail!("{count} requests did not complete");
    }

    /// Polls once; returns how many completions were there.
    fn poll(&mut self, count: u32) -> Result<u32> {
        let (mut taken, mut failed) = (0, None);
        self.cq.poll(count as usize, |entry| {
            taken += 1;
            if entry.completion.status != CompletionStatus::Success {
                failed = Some(entry.completion.status);
            }
        });
        self.completed += taken;
        match failed {
            Some(status) => bail!("a request ended with {status:?}"),
            None => Ok(taken),
        }
    }
}

fn request(operation: SendOperation, data: Data) -> SendRequest {
    SendRequest {
        wr_id: 1,
        operation,
        data,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        target: None,
        xrc_srqn: 0,
    }
}
