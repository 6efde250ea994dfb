//! The receiver's view of one path: which numbers have arrived, and whether an acknowledgement is
//! due.

use crate::Instant;
use core::time::Duration;
use feroce_wire::Address;
use feroce_wire::metaroce::{Epoch, PacketNumber, Vector};

/// What the number of a packet means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It has not arrived before.
    New,
    /// It has, or is so old that nobody knows.
    Duplicate,
    /// It belongs to an epoch that is over.
    OldEpoch,
}

/// State of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct ReceivePath {
    epoch: Epoch,
    /// None: nothing has arrived.
    highest: Option<PacketNumber>,
    /// Bit *i* of the whole: the number *i* + 1 before the highest.
    words: [u64; 4],
    received: u32,
    marked: u32,
    highest_at: Instant,
    unacknowledged: u32,
    /// An acknowledgement is to be sent now.
    pub(super) due: bool,
    /// An acknowledgement is to be sent then.
    pub(super) deadline: Option<Instant>,
    /// Where the last packet came from.
    pub(super) from: Option<Address>,
}

/// When an acknowledgement is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckRule {
    pub(super) delay_max: Duration,
    pub(super) packets_max: u32,
}

impl ReceivePath {
    //= MR-REL-001
    pub(super) fn judge(&self, epoch: Epoch, number: PacketNumber) -> Verdict {
        let Some(highest) = self.highest else {
            return Verdict::New;
        };
        match epoch.distance_from(self.epoch) {
            0 => {}
            1.. => return Verdict::New,
            //= MR-PTH-003
            _ => return Verdict::OldEpoch,
        }
        let back = highest.distance_from(number);
        match u32::try_from(back) {
            Err(_) => Verdict::New,
            Ok(0) => Verdict::Duplicate,
            Ok(back) if back > Vector::BITS || self.has(back) => Verdict::Duplicate,
            Ok(_) => Verdict::New,
        }
    }

    fn has(&self, back: u32) -> bool {
        let bit = back - 1;
        let word = self.words.get((bit / 64) as usize);
        word.is_some_and(|word| word & (1 << (bit % 64)) != 0)
    }

    /// Notes a packet that was judged new and has been dealt with.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        (epoch, number): (Epoch, PacketNumber),
        from: &Address,
        ack_requested: bool,
        rule: AckRule,
    ) {
        if self.highest.is_none() || epoch != self.epoch {
            *self = Self {
                epoch,
                due: self.due,
                ..Self::default()
            };
        }
        self.from = Some(*from);
        self.received = self.received.wrapping_add(1);
        //= MR-CC-014
        if from.congestion_experienced() {
            self.marked = self.marked.wrapping_add(1);
        }
        let in_order = match self.highest {
            // The first number of an epoch is 0; what came before it is missing.
            None => number == PacketNumber(0),
            Some(highest) => number == highest.next(),
        };
        self.note(now, number);
        self.unacknowledged += 1;
        //= MR-REL-002
        if ack_requested || !in_order || self.unacknowledged >= rule.packets_max {
            self.due = true;
        } else if self.deadline.is_none() {
            self.deadline = Some(now + rule.delay_max);
        }
    }

    fn note(&mut self, now: Instant, number: PacketNumber) {
        let Some(highest) = self.highest else {
            self.highest = Some(number);
            self.highest_at = now;
            return;
        };
        match u32::try_from(number.distance_from(highest)) {
            Ok(ahead) => {
                self.shift(ahead);
                self.set(ahead);
                self.highest = Some(number);
                self.highest_at = now;
            }
            Err(_) => self.set(highest.distance_from(number).unsigned_abs()),
        }
    }

    fn set(&mut self, back: u32) {
        let Some(bit) = back.checked_sub(1) else {
            return;
        };
        if let Some(word) = self.words.get_mut((bit / 64) as usize) {
            *word |= 1 << (bit % 64);
        }
    }

    /// Moves every bit `by` places up; what leaves is forgotten.
    fn shift(&mut self, by: u32) {
        if by >= Vector::BITS {
            self.words = [0; 4];
            return;
        }
        let (whole, part) = ((by / 64) as usize, by % 64);
        let old = self.words;
        for (place, word) in self.words.iter_mut().enumerate() {
            let low = place.checked_sub(whole).map_or(0, |from| old[from]);
            let carry = place.checked_sub(whole + 1).map_or(0, |from| old[from]);
            *word = low << part;
            if part > 0 {
                *word |= carry >> (64 - part);
            }
        }
    }

    /// A duplicate has come: the sender has missed an acknowledgement.
    pub(super) const fn repeat(&mut self) {
        self.due = true;
    }

    /// What to acknowledge: epoch, number, vector, delay, counts. None: nothing has arrived.
    //= MR-REL-003
    //= MR-PKT-006
    pub(super) fn report(&self, now: Instant) -> Option<Report> {
        let mut vector = Vector::default();
        for (place, word) in self.words.iter().enumerate() {
            vector.0[place * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        Some(Report {
            epoch: self.epoch,
            number: self.highest?,
            vector,
            delay: now.since(self.highest_at),
            received: self.received,
            marked: self.marked,
        })
    }

    /// An acknowledgement has left.
    pub(super) const fn acknowledged(&mut self) {
        self.unacknowledged = 0;
        self.due = false;
        self.deadline = None;
    }
}

/// What an acknowledgement says of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    pub(super) epoch: Epoch,
    pub(super) number: PacketNumber,
    pub(super) vector: Vector,
    pub(super) delay: Duration,
    pub(super) received: u32,
    pub(super) marked: u32,
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::BTreeSet;
    use std::net::{IpAddr, Ipv4Addr};

    const RULE: AckRule = AckRule {
        delay_max: Duration::from_micros(10),
        packets_max: 16,
    };

    fn from() -> Address {
        Address {
            source: IpAddr::V4(Ipv4Addr::LOCALHOST),
            destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
            source_port: 1,
            traffic_class: 2,
            hop_limit: 64,
        }
    }

    //= MR-REL-001 type=test
    //= MR-REL-003 type=test
    #[test]
    fn like_a_set_of_the_last_257_numbers() {
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut path = ReceivePath::default();
            let (mut model, mut highest) = (BTreeSet::new(), 0);
            for _ in 0..3000 {
                let number = (highest + random.below(8)).saturating_sub(random.below(300)) as u32;
                let back = highest as i64 - i64::from(number);
                let old = !model.is_empty() && back > 256;
                let verdict = path.judge(Epoch(0), PacketNumber(number));
                let new = !old && !model.contains(&number);
                assert_eq!(verdict == Verdict::New, new, "seed {seed} number {number}");
                if new {
                    model.insert(number);
                    highest = highest.max(u64::from(number));
                    let place = (Epoch(0), PacketNumber(number));
                    path.accept(Instant::ZERO, place, &from(), false, RULE);
                }
                let report = path.report(Instant::ZERO).unwrap();
                assert_eq!(u64::from(report.number.0), highest);
                let back = 1 + random.below(256) as u32;
                let there = highest.checked_sub(u64::from(back));
                let there = there.is_some_and(|n| model.contains(&(n as u32)));
                assert_eq!(report.vector.has(back), there, "seed {seed}");
            }
        }
    }

    //= MR-REL-002 type=test
    #[test]
    fn a_gap_a_wish_and_the_sixteenth_packet_are_acknowledged_at_once() {
        let mut path = ReceivePath::default();
        let mut take = |number, wish| {
            let place = (Epoch(0), PacketNumber(number));
            path.accept(Instant::ZERO, place, &from(), wish, RULE);
            let due = path.due;
            if due {
                path.acknowledged();
            }
            due
        };
        for number in 0..15 {
            assert!(!take(number, false), "{number}");
        }
        assert!(take(15, false), "the sixteenth");
        assert!(take(16, true), "asked for");
        assert!(take(18, false), "17 is missing");
        assert!(take(17, false), "17 is there after all");
        assert!(!take(19, false));
    }

    //= MR-PTH-003 type=test
    #[test]
    fn an_old_epoch_is_over() {
        let mut path = ReceivePath::default();
        path.accept(
            Instant::ZERO,
            (Epoch(255), PacketNumber(9)),
            &from(),
            false,
            RULE,
        );
        assert_eq!(path.judge(Epoch(0), PacketNumber(0)), Verdict::New);
        path.accept(
            Instant::ZERO,
            (Epoch(0), PacketNumber(0)),
            &from(),
            false,
            RULE,
        );
        assert_eq!(path.judge(Epoch(255), PacketNumber(10)), Verdict::OldEpoch);
        assert_eq!(path.judge(Epoch(0), PacketNumber(0)), Verdict::Duplicate);
        assert_eq!(path.report(Instant::ZERO).unwrap().received, 1);
    }
}
