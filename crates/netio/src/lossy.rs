//! A seeded bad network: loss, duplication, reordering, corruption, delay and a bottleneck.
//!
//! Pure: time is an argument, and the same seed gives the same packets the same fate whatever the
//! wall clock did. It judges single packets, also those of one batch: a batch dropped whole would
//! be a burst, which is a different network. It is not a model of a fabric (queues of switches,
//! marking, pauses): that is the simulator.
//!
//! [`Lossy`] judges, [`Link`] also keeps what is on its way. The text form of [`Impairment`] is
//! `loss=1%,reorder=2%,dup=1/1000,corrupt=0.01%,delay=25us,hold=100us,rate=5G,queue=1M,seed=7`.

mod options;
mod prng;

pub use options::{Impairment, ImpairmentError};
pub use prng::{Prng, Ratio};

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Packets a [`Link`] keeps at once; what comes on top is lost.
const HELD_MAX: usize = 65_536;

const NS_PER_S: u128 = 1_000_000_000;

/// Decides the fate of packets, one after the other.
#[derive(Clone, Debug)]
pub struct Lossy {
    options: Impairment,
    prng: Prng,
    /// When the bottleneck has sent all it accepted.
    free_at_ns: u64,
    counts: LossyCounts,
}

/// What a [`Lossy`] did so far, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyCounts {
    /// Offered.
    pub offered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Delivered twice.
    pub duplicated: u64,
    /// Held back so that others can overtake.
    pub reordered: u64,
    /// Delivered with a byte changed.
    pub corrupted: u64,
    /// Lost because the bottleneck's queue was full.
    pub overflowed: u64,
}

/// One delivery of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// When it arrives, on the clock of `now_ns`.
    pub at_ns: u64,
    /// The byte to change and the bits to flip in it.
    pub flip: Option<(usize, u8)>,
}

impl Fate {
    /// Does to `bytes` what happens to them on the way.
    pub fn apply(&self, bytes: &mut [u8]) {
        if let Some((at, mask)) = self.flip
            && let Some(byte) = bytes.get_mut(at)
        {
            *byte ^= mask;
        }
    }
}

/// The deliveries of one packet: none, one or two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fates([Option<Fate>; 2]);

impl Iterator for Fates {
    type Item = Fate;

    fn next(&mut self) -> Option<Fate> {
        self.0[0].take().or_else(|| self.0[1].take())
    }
}

impl Lossy {
    /// A network with these properties, at its beginning.
    #[must_use]
    pub const fn new(options: Impairment) -> Self {
        Self {
            options,
            prng: Prng::new(options.seed),
            free_at_ns: 0,
            counts: LossyCounts {
                offered: 0,
                lost: 0,
                duplicated: 0,
                reordered: 0,
                corrupted: 0,
                overflowed: 0,
            },
        }
    }

    /// Its properties, for reports and replays.
    #[must_use]
    pub const fn options(&self) -> &Impairment {
        &self.options
    }

    /// What it did so far.
    #[must_use]
    pub const fn counts(&self) -> LossyCounts {
        self.counts
    }

    /// Judges the next packet, `length` bytes long, entering the network at `now_ns`.
    pub fn judge(&mut self, now_ns: u64, length: usize) -> Fates {
        // Always the same draws, so that the options of one kind do not move the others.
        let options = self.options;
        let lost = self.prng.chance(options.loss);
        let doubled = self.prng.chance(options.duplicate);
        let held = self.prng.chance(options.reorder);
        let corrupted = self.prng.chance(options.corrupt);
        let hold_ns = 1 + self.prng.below(options.hold_ns.max(1));
        let echo_ns = self.prng.below(options.hold_ns.max(1));
        let at = self.prng.below(length.max(1) as u64) as usize;
        let mask = 1 + self.prng.below(255) as u8;

        self.counts.offered += 1;
        if lost {
            self.counts.lost += 1;
            return Fates::default();
        }
        let Some(sent_ns) = self.pass_bottleneck(now_ns, length) else {
            self.counts.overflowed += 1;
            return Fates::default();
        };
        let mut at_ns = sent_ns.saturating_add(options.delay_ns);
        if held {
            self.counts.reordered += 1;
            at_ns = at_ns.saturating_add(hold_ns);
        }
        let corrupted = corrupted && length > 0;
        self.counts.corrupted += u64::from(corrupted);
        let first = Fate {
            at_ns,
            flip: corrupted.then_some((at, mask)),
        };
        self.counts.duplicated += u64::from(doubled);
        let second = doubled.then_some(Fate {
            at_ns: at_ns.saturating_add(echo_ns),
            flip: None,
        });
        Fates([Some(first), second])
    }

    /// Offers a packet; returns what arrives of it, each copy with its time.
    pub fn offer(&mut self, now_ns: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.judge(now_ns, bytes.len()).map(move |fate| {
            let mut copy = bytes.to_vec();
            fate.apply(&mut copy);
            (fate.at_ns, copy)
        })
    }

    /// When the bottleneck has sent the packet; `None` if its queue is full.
    fn pass_bottleneck(&mut self, now_ns: u64, length: usize) -> Option<u64> {
        let Some(rate) = self.options.rate_bits_per_s.filter(|rate| *rate > 0) else {
            return Some(now_ns);
        };
        let rate = u128::from(rate);
        let backlog_ns = self.free_at_ns.saturating_sub(now_ns);
        let backlog_bytes = u128::from(backlog_ns) * rate / (8 * NS_PER_S);
        if backlog_bytes > u128::from(self.options.queue_bytes) {
            return None;
        }
        let takes_ns = (length as u128 * 8 * NS_PER_S).div_ceil(rate);
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        self.free_at_ns = self.free_at_ns.max(now_ns).saturating_add(takes_ns);
        Some(self.free_at_ns)
    }
}

/// A [`Lossy`] together with the packets on their way, each with a `T` that travels along.
#[derive(Debug)]
pub struct Link<T> {
    lossy: Lossy,
    held: BinaryHeap<Reverse<Held<T>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Held<T> {
    at_ns: u64,
    /// Breaks ties, so that packets of one moment keep their order.
    sequence: u64,
    bytes: Vec<u8>,
    tag: T,
}

impl<T> Held<T> {
    const fn key(&self) -> (u64, u64) {
        (self.at_ns, self.sequence)
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Held<T> {}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T: Clone> Link<T> {
    /// An empty network with these properties.
    #[must_use]
    pub const fn new(options: Impairment) -> Self {
        Self {
            lossy: Lossy::new(options),
            held: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// Sends a packet into it.
    pub fn push(&mut self, now_ns: u64, bytes: &[u8], tag: T) {
        for fate in self.lossy.judge(now_ns, bytes.len()) {
            if self.held.len() >= HELD_MAX {
                self.lossy.counts.overflowed += 1;
                continue;
            }
            let mut bytes = bytes.to_vec();
            fate.apply(&mut bytes);
            self.sequence += 1;
            self.held.push(Reverse(Held {
                at_ns: fate.at_ns,
                sequence: self.sequence,
                bytes,
                tag: tag.clone(),
            }));
        }
    }

    /// Takes the next packet that has arrived by `now_ns`.
    pub fn pop(&mut self, now_ns: u64) -> Option<(Vec<u8>, T)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        Some((held.bytes, held.tag))
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.held.peek().map(|held| held.0.at_ns)
    }

    /// What the network did so far.
    #[must_use]
    pub const fn counts(&self) -> LossyCounts {
        self.lossy.counts()
    }
}

#[cfg(test)]
mod tests;
