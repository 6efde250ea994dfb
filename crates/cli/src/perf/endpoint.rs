//! One end of a measurement: queue pairs with their memory, and their common completion queue.
//! Both processes have the same; what differs is who starts and who looks at what.

use super::lane::{Lane, succeeded};
use super::pattern::{Content, Layout, Slots, last_in_slot, problem_of};
use super::protocol::{Case, Mode, Side, Test};
use anyhow::{Context as _, Result, ensure};
use feroce_verbs::{
    Access, Completion, CompletionQueue, Context, CqOptions, Mtu, PathRequest, Peer, Psn,
    QpCapabilities, QpOptions, QpType, Qpn, gid_bytes,
};

/// Messages under way on one queue pair at most.
const DEPTH_MAX: usize = 128;

/// Slots that messages take by turns in a latency measurement.
const LATENCY_SLOTS_MAX: usize = 16;

/// Two, so that one message can be under way while the next one is prepared.
const SLOTS_MIN: usize = 2;

/// Bytes of messages on one side that are in use at a time, if they are not longer than half of
/// it: what moves is then mostly in a cache, as with one buffer that is used again and again.
const FOOTPRINT_BYTES: usize = 1 << 20;

/// Completions taken in one call at most.
const POLL_MAX: usize = 64;

/// Tells the directions apart: what the client's messages contain, and the server's.
pub(super) const CLIENT: u64 = 0x636c_6965_6e74;
/// See [`CLIENT`].
pub(super) const SERVER: u64 = 0x7365_7276_6572;

/// Queue pairs and memory of one side.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// What is measured.
    pub(super) case: Case,
    /// Where messages lie.
    layout: Layout,
    /// Which side it is: [`CLIENT`] or [`SERVER`].
    role: u64,
    /// The queue pairs.
    pub(super) lanes: Vec<Lane>,
    /// Completions of all of them.
    pub(super) cq: CompletionQueue,
    context: Context,
    gid_index: u8,
}

impl Endpoint {
    /// Makes queue pairs and memory.
    pub(super) fn new(context: &Context, gid_index: u8, role: u64, case: Case) -> Result<Self> {
        let layout = Layout::new(case.size);
        let slots = slots_for(&case, layout);
        let targets = match case.test {
            Test::Send => receives_for(&case, layout),
            _ => slots,
        };
        let pd = context.alloc_pd();
        let cq = context
            .create_cq(CqOptions::with_capacity(case.qps * (slots + targets)))
            .context("creating the completion queue")?;
        let mut options = QpOptions::new(QpType::Rc, &cq, &cq);
        options.capabilities = QpCapabilities {
            max_send_wr: u32::try_from(slots)?,
            max_recv_wr: u32::try_from(targets)?,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let mut lanes = Vec::with_capacity(case.qps);
        for index in 0..case.qps {
            let qp = pd
                .create_qp(options.clone())
                .context("creating a queue pair")?;
            let source = Slots::new(&pd, layout, slots)?;
            source.fill(case.seed ^ role, index)?;
            if case.test == Test::Atomic {
                source.set_word(0, 0)?;
            }
            let target = Slots::new(&pd, layout, targets)?;
            lanes.push(Lane::new(index, &case, qp, source, target));
        }
        Ok(Self {
            case,
            layout,
            role,
            lanes,
            cq,
            context: context.clone(),
            gid_index,
        })
    }

    /// What the other end must know of this one.
    pub(super) fn side(&self) -> Result<Side> {
        let address = self
            .context
            .gid(usize::from(self.gid_index))
            .with_context(|| format!("GID {} of the device is empty", self.gid_index))?;
        let lanes = self
            .lanes
            .iter()
            .map(|lane| lane.keys(self.first_psn()))
            .collect();
        Ok(Side { address, lanes })
    }

    /// Connects all queue pairs, and posts receives where they are needed.
    pub(super) fn connect(&mut self, side: &Side) -> Result<()> {
        ensure!(
            side.lanes.len() == self.lanes.len(),
            "the other end has other queue pairs"
        );
        let path = self.context.resolve(&PathRequest {
            destination: gid_bytes(side.address),
            source_gid_index: self.gid_index,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            service_level: 0,
        })?;
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let path_mtu = mtu_from_bytes(self.case.mtu)
            .with_context(|| format!("{} bytes are no path MTU", self.case.mtu))?;
        let sq_psn = Psn::new(self.first_psn());
        // All lanes add to one counter, which has a message's place on the first.
        let first = side.lanes.first();
        let counter = first.and_then(|lane| self.layout.remote(&lane.source_rkeys, 0));
        for (lane, keys) in self.lanes.iter_mut().zip(&side.lanes) {
            let peer = Peer {
                path,
                qpn: Qpn::new(keys.qpn),
                rq_psn: Psn::new(keys.psn),
                sq_psn,
                path_mtu,
                access_flags: access.bits(),
            };
            lane.connect(&peer, keys, counter)?;
        }
        Ok(())
    }

    /// Compares all bytes that the other end wrote or sent with what it should have; `messages`
    /// were sent on each lane.
    pub(super) fn verify_target(&self, messages: &[u64]) -> Result<()> {
        for (lane, &messages) in self.lanes.iter().zip(messages) {
            let slots = lane.target.count();
            lane.target.verify(|slot| {
                let number = last_in_slot(messages, slot, slots)?;
                let source_slot = lane.source_slot(number);
                Some(self.peer_content(lane, source_slot, number))
            })?;
        }
        Ok(())
    }

    /// Compares all bytes that this end read with what the other end has to offer.
    pub(super) fn verify_read(&self) -> Result<()> {
        for lane in &self.lanes {
            let slots = lane.target.count();
            lane.target.verify(|slot| {
                last_in_slot(lane.completed, slot, slots)?;
                Some(self.peer_content(lane, slot, slot as u64))
            })?;
        }
        Ok(())
    }

    /// Takes completions, or makes progress when there are none; returns how many. The first
    /// problem with data is kept in `problem`.
    ///
    /// # Errors
    /// If a request failed.
    pub(super) fn poll(&mut self, problem: &mut Option<String>) -> Result<usize> {
        let mut verdict = Ok(());
        let Self { lanes, cq, .. } = self;
        let taken = cq.poll(POLL_MAX, |entry| {
            if verdict.is_ok() {
                verdict = note(lanes, &entry.completion, problem);
            }
        });
        verdict?;
        Ok(taken)
    }

    /// Messages that completed on each lane.
    pub(super) fn completed(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.completed).collect()
    }

    const fn first_psn(&self) -> u32 {
        // Close below the wrap, so that every longer run crosses it.
        0x00ff_ff00 | (self.case.seed & 0xff) as u32
    }

    const fn peer_content(&self, lane: &Lane, source_slot: usize, number: u64) -> Content {
        let peer = self.role ^ CLIENT ^ SERVER;
        Content {
            seed: self.case.seed ^ peer,
            lane: lane.index(),
            source_slot,
            number,
        }
    }
}

fn note(lanes: &mut [Lane], completion: &Completion, problem: &mut Option<String>) -> Result<()> {
    let ticket = succeeded(completion)?;
    let lane = &mut lanes[ticket.lane];
    let seen = if ticket.receive {
        lane.receive(ticket.number, completion)
    } else {
        lane.complete(ticket.number)
    };
    if let Some(found) = problem_of(seen)? {
        problem.get_or_insert(found);
    }
    Ok(())
}

/// Messages of a case that may be under way on each queue pair.
fn slots_for(case: &Case, layout: Layout) -> usize {
    let most = match case.mode {
        Mode::Bandwidth => DEPTH_MAX,
        Mode::Latency => LATENCY_SLOTS_MAX,
    };
    slots_that_fit(case, layout).clamp(SLOTS_MIN, most)
}

/// Receives for them: more, because a receiver that is a little late must not run out of them.
fn receives_for(case: &Case, layout: Layout) -> usize {
    let slots = slots_for(case, layout);
    let enough = slots + slots.div_ceil(2);
    let many = (4 * slots).min(slots_that_fit(case, layout));
    // An odd number, so that a slot's next message differs from its last one even if there is
    // room for the low byte of its number only.
    many.max(enough) | 1
}

fn slots_that_fit(case: &Case, layout: Layout) -> usize {
    FOOTPRINT_BYTES / layout.stride() / case.qps
}

/// The path MTU of so many bytes, if there is one.
pub(super) fn mtu_from_bytes(bytes: u32) -> Option<Mtu> {
    [
        Mtu::Mtu256,
        Mtu::Mtu512,
        Mtu::Mtu1024,
        Mtu::Mtu2048,
        Mtu::Mtu4096,
    ]
    .into_iter()
    .find(|mtu| mtu.bytes() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_to_the_footprint_but_allow_overlap() {
        let slots = |size, qps, mode| {
            let case = Case {
                test: Test::Send,
                mode,
                size,
                qps,
                mtu: 1024,
                seed: 0,
            };
            let layout = Layout::new(size);
            (slots_for(&case, layout), receives_for(&case, layout))
        };
        assert_eq!(slots(8, 1, Mode::Bandwidth), (128, 513));
        assert_eq!(slots(4096, 1, Mode::Bandwidth), (128, 257));
        assert_eq!(slots(65_536, 1, Mode::Bandwidth), (16, 25));
        assert_eq!(slots(65_536, 4, Mode::Bandwidth), (4, 7));
        assert_eq!(slots(1 << 20, 16, Mode::Bandwidth), (2, 3));
        assert_eq!(slots(8, 1, Mode::Latency), (16, 65));
        assert_eq!(slots(1 << 20, 1, Mode::Latency), (2, 3));
    }

    #[test]
    fn only_the_five_sizes_are_path_mtus() {
        assert_eq!(mtu_from_bytes(4096), Some(Mtu::Mtu4096));
        assert_eq!(mtu_from_bytes(1500), None);
    }
}
