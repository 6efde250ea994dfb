//! One queue pair with its memory: posts single messages, takes note of completions, and looks at
//! what came with them.

use super::pattern::{Layout, Slots, Wrong};
use super::protocol::{Case, LaneKeys, Test};
use anyhow::{Context as _, Result, bail};
use feroce_verbs::{
    Completion, CompletionStatus, Data, Peer, QueuePair, RecvRequest, Remote, SendFlags,
    SendOperation, SendRequest, SgeList,
};

/// Requests that are posted in one call at most; the last of them reports its completion.
const POST_LIST_MAX: usize = 32;

/// One queue pair.
#[derive(Debug)]
pub(super) struct Lane {
    index: usize,
    test: Test,
    layout: Layout,
    // The queue pair goes before the memory that it works on.
    qp: QueuePair,
    /// Messages that go out or are read.
    pub(super) source: Slots,
    /// Where messages arrive.
    pub(super) target: Slots,
    peer: Option<LaneKeys>,
    /// The peer's counter (lane 0), for atomics.
    counter: Option<Remote>,
    /// Messages posted.
    pub(super) posted: u64,
    /// Messages completed.
    pub(super) completed: u64,
    /// What the last atomic returned.
    counted: Option<u64>,
    /// Receives posted.
    receives: u64,
    /// Messages received.
    pub(super) received: u64,
}

/// What the number of a work request stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// A receive, not a message of ours.
    pub(super) receive: bool,
    /// Queue pair.
    pub(super) lane: usize,
    /// Number of the message, or of the receive.
    pub(super) number: u64,
}

impl Ticket {
    /// Above them lies the lane.
    const NUMBER_BITS: u32 = 48;
    const RECEIVE: u64 = 1 << 63;

    /// As number of a work request.
    pub(super) const fn to_wr_id(self) -> u64 {
        let receive = if self.receive { Self::RECEIVE } else { 0 };
        receive | (self.lane as u64) << Self::NUMBER_BITS | self.number
    }

    /// From the number of a work request.
    pub(super) const fn from_wr_id(wr_id: u64) -> Self {
        let lane = (wr_id & !Self::RECEIVE) >> Self::NUMBER_BITS;
        Self {
            receive: wr_id & Self::RECEIVE != 0,
            // Fifteen bits.
            lane: lane as usize,
            number: wr_id & ((1 << Self::NUMBER_BITS) - 1),
        }
    }
}

impl Lane {
    /// A lane that nothing was posted on.
    pub(super) const fn new(
        index: usize,
        case: &Case,
        qp: QueuePair,
        source: Slots,
        target: Slots,
    ) -> Self {
        Self {
            index,
            test: case.test,
            layout: Layout::new(case.size),
            qp,
            source,
            target,
            peer: None,
            counter: None,
            posted: 0,
            completed: 0,
            counted: None,
            receives: 0,
            received: 0,
        }
    }

    /// Connects to the queue pair that `keys` describe. `counter` is what atomics work on.
    pub(super) fn connect(
        &mut self,
        peer: &Peer,
        keys: &LaneKeys,
        counter: Option<Remote>,
    ) -> Result<()> {
        self.qp.connect(peer).context("connecting a queue pair")?;
        self.peer = Some(keys.clone());
        self.counter = counter;
        if self.test == Test::Send {
            self.post_receives(self.target.count())?;
        }
        Ok(())
    }

    /// Its place among the lanes.
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// Requests posted together.
    pub(super) fn list_len(&self) -> u64 {
        (self.source.count() / 4).clamp(1, POST_LIST_MAX) as u64
    }

    /// Messages that may be posted before an earlier one completes.
    pub(super) fn room(&self) -> u64 {
        self.source.count() as u64 - (self.posted - self.completed)
    }

    /// Posts `count` messages, at most [`room`](Self::room); only the last reports back.
    pub(super) fn post(&mut self, count: u64) -> Result<()> {
        let numbers = self.posted..self.posted + count;
        for number in numbers.clone() {
            let slot = self.source_slot(number);
            match self.test {
                Test::Write | Test::Send => self.source.put_number(slot, number)?,
                Test::Read | Test::Atomic => self.target.blank_number(slot)?,
            }
        }
        let last = numbers.end - 1;
        let mut requests = [const { None }; POST_LIST_MAX];
        for (entry, number) in requests.iter_mut().zip(numbers) {
            *entry = Some(self.request(number, self.operation(number)?, number == last));
        }
        self.qp
            .post_send(requests.into_iter().flatten())
            .context("posting messages")?;
        self.posted += count;
        Ok(())
    }

    /// Posts a compare-and-swap of the other end's counter.
    pub(super) fn post_compare_swap(&mut self, compare: u64, swap: u64) -> Result<()> {
        let number = self.posted;
        let remote = self.counter.context("the other end has no counter")?;
        self.target.blank_number(self.source_slot(number))?;
        let operation = SendOperation::CompareSwap {
            remote,
            compare,
            swap,
        };
        self.qp.post_send([self.request(number, operation, true)])?;
        self.posted += 1;
        Ok(())
    }

    /// Posts `count` receives.
    pub(super) fn post_receives(&mut self, count: usize) -> Result<()> {
        let first = self.receives;
        let Self {
            qp, target, index, ..
        } = self;
        qp.post_recv((first..first + count as u64).map(|number| {
            RecvRequest {
                wr_id: Ticket {
                    receive: true,
                    lane: *index,
                    number,
                }
                .to_wr_id(),
                sges: SgeList::from_slice(&[target.sge(slot_of(number, target))]),
            }
        }))
        .context("posting receives")?;
        self.receives += count as u64;
        Ok(())
    }

    /// Takes note that messages up to `number` completed; looks at what they brought.
    ///
    /// # Errors
    /// [`Wrong`] if a READ or an atomic brought something else than it should.
    pub(super) fn complete(&mut self, number: u64) -> Result<()> {
        if matches!(self.test, Test::Read | Test::Atomic) {
            for number in self.completed..=number {
                self.look_at(number)?;
            }
        }
        self.completed = number + 1;
        Ok(())
    }

    fn look_at(&mut self, number: u64) -> Result<()> {
        let slot = self.source_slot(number);
        if self.test == Test::Read && !self.target.has_number(slot, slot as u64)? {
            bail!(Wrong(format!(
                "READ {number} completed, but its bytes are not there"
            )));
        }
        if self.test == Test::Atomic {
            let before = self.counted.replace(self.target.word(slot)?);
            // Others may have added in between, but each value is returned once and in order.
            if self.counted <= before {
                let (before, counted) = (before.unwrap_or(0), self.counted.unwrap_or(0));
                bail!(Wrong(format!(
                    "atomic {number} found {counted} after {before}"
                )));
            }
        }
        Ok(())
    }

    /// The value that an atomic returned.
    pub(super) fn atomic_result(&self, number: u64) -> Result<u64> {
        self.target.word(self.source_slot(number))
    }

    /// Takes note of a received message and looks at its length and number.
    ///
    /// # Errors
    /// [`Wrong`] if they are not right.
    pub(super) fn receive(&mut self, number: u64, completion: &Completion) -> Result<()> {
        let slot = slot_of(number, &self.target);
        let (index, size) = (self.index, self.layout.size());
        let in_turn = number == self.received;
        self.received += 1;
        if !in_turn || !self.target.has_number(slot, number)? {
            bail!(Wrong(format!(
                "queue pair {index} did not receive message {number} in turn"
            )));
        }
        if completion.byte_len as usize != size {
            let len = completion.byte_len;
            bail!(Wrong(format!(
                "message {number} came with {len} bytes instead of {size}"
            )));
        }
        Ok(())
    }

    /// Whether message `number` lies in the memory that the other end writes to.
    pub(super) fn has_arrived(&self, number: u64) -> Result<bool> {
        self.target
            .has_number(slot_of(number, &self.target), number)
    }

    /// Receives that could be posted again.
    pub(super) fn receives_free(&self) -> usize {
        self.target.count() - usize::try_from(self.receives - self.received).unwrap_or(usize::MAX)
    }

    /// What the other end must know of it.
    pub(super) fn keys(&self, psn: u32) -> LaneKeys {
        LaneKeys {
            qpn: self.qp.qpn().value(),
            psn,
            source_rkeys: self.source.rkeys(),
            target_rkeys: self.target.rkeys(),
        }
    }

    /// The slot that message `number` goes out from.
    pub(super) fn source_slot(&self, number: u64) -> usize {
        slot_of(number, &self.source)
    }

    fn operation(&self, number: u64) -> Result<SendOperation> {
        let peer = self
            .peer
            .as_ref()
            .context("the queue pair is not connected")?;
        let slot = self.source_slot(number);
        let remote = |rkeys| {
            self.layout
                .remote(rkeys, slot)
                .context("the other end has less memory")
        };
        Ok(match self.test {
            Test::Write => SendOperation::Write(remote(&peer.target_rkeys)?),
            Test::Read => SendOperation::Read(remote(&peer.source_rkeys)?),
            Test::Send => SendOperation::Send,
            Test::Atomic => SendOperation::FetchAdd {
                remote: self.counter.context("the other end has no counter")?,
                add: 1,
            },
        })
    }

    fn request(&self, number: u64, operation: SendOperation, signaled: bool) -> SendRequest {
        let slot = self.source_slot(number);
        let memory = match self.test {
            Test::Write | Test::Send => &self.source,
            Test::Read | Test::Atomic => &self.target,
        };
        SendRequest {
            wr_id: Ticket {
                receive: false,
                lane: self.index,
                number,
            }
            .to_wr_id(),
            operation,
            data: Data::Gather(SgeList::from_slice(&[memory.sge(slot)])),
            flags: SendFlags {
                signaled,
                ..SendFlags::default()
            },
            target: None,
            xrc_srqn: 0,
        }
    }
}

/// The completion's ticket.
///
/// # Errors
/// If the request failed, with its status.
pub(super) fn succeeded(completion: &Completion) -> Result<Ticket> {
    let ticket = Ticket::from_wr_id(completion.wr_id);
    if completion.status == CompletionStatus::Success {
        return Ok(ticket);
    }
    let what = if ticket.receive { "receive" } else { "message" };
    let Ticket { lane, number, .. } = ticket;
    let status = completion.status;
    bail!("{what} {number} of queue pair {lane} failed: {status:?}")
}

fn slot_of(number: u64, slots: &Slots) -> usize {
    // Below the count, which is a usize.
    (number % slots.count() as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_survive_the_number_of_a_work_request() {
        for receive in [false, true] {
            for (lane, number) in [(0, 0), (1, 0), (0, 1), (1000, (1 << 48) - 1)] {
                let ticket = Ticket {
                    receive,
                    lane,
                    number,
                };
                assert_eq!(Ticket::from_wr_id(ticket.to_wr_id()), ticket);
            }
        }
    }
}
