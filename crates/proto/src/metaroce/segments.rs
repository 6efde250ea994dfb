//! Which segments of a message have arrived: a count of those at the beginning, and bits for what
//! came ahead of a gap.

use alloc::collections::VecDeque;

const BITS: u32 = 64;

/// A set of segment numbers, compact when they arrive almost in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments {
    /// All segments before this multiple of 64 are in.
    floor: u32,
    /// Bits from `floor` on.
    words: VecDeque<u64>,
    count: u32,
}

/// What became of an insertion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Inserted {
    /// It is new.
    New,
    /// It was in already.
    Duplicate,
    /// Noting it would cost more words than allowed; nothing has changed.
    TooFar,
}

impl Segments {
    /// Segments in the set.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Words in use.
    pub(super) fn words(&self) -> usize {
        self.words.len()
    }

    pub(super) fn contains(&self, segment: u32) -> bool {
        let Some(ahead) = segment.checked_sub(self.floor) else {
            return true;
        };
        let word = self.words.get((ahead / BITS) as usize);
        word.is_some_and(|word| word & (1 << (ahead % BITS)) != 0)
    }

    /// What an insertion would come to, with `words_max` more words allowed.
    //= MR-REL-008
    pub(super) fn judge(&self, segment: u32, words_max: usize) -> Inserted {
        if self.contains(segment) {
            return Inserted::Duplicate;
        }
        let needed = ((segment - self.floor) / BITS) as usize + 1;
        // The first word costs nothing: a message in order must always go on.
        if needed > 1 && needed > self.words.len() + words_max {
            Inserted::TooFar
        } else {
            Inserted::New
        }
    }

    /// Adds a segment that [`judge`](Self::judge) found new.
    pub(super) fn insert(&mut self, segment: u32) {
        let Some(ahead) = segment.checked_sub(self.floor) else {
            return;
        };
        let place = (ahead / BITS) as usize;
        while self.words.len() <= place {
            self.words.push_back(0);
        }
        let bit = 1 << (ahead % BITS);
        if self.words[place] & bit == 0 {
            self.words[place] |= bit;
            self.count += 1;
        }
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.floor += BITS;
        }
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::BTreeSet;

    #[test]
    fn like_a_set_in_any_order() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut segments = Segments::default();
            let mut model = BTreeSet::new();
            let total = 1 + random.below(700) as u32;
            for _ in 0..2000 {
                let segment = random.below(u64::from(total)) as u32;
                let expected = if model.insert(segment) {
                    Inserted::New
                } else {
                    Inserted::Duplicate
                };
                assert_eq!(segments.judge(segment, 100), expected, "seed {seed}");
                segments.insert(segment);
                assert_eq!(segments.count() as usize, model.len(), "seed {seed}");
            }
            for segment in 0..total {
                assert_eq!(segments.contains(segment), model.contains(&segment));
            }
        }
    }

    //= MR-REL-008 type=test
    #[test]
    fn what_lies_too_far_ahead_is_refused_and_order_never_is() {
        let mut segments = Segments::default();
        assert_eq!(segments.judge(64, 0), Inserted::TooFar);
        assert_eq!(segments.judge(64, 2), Inserted::New);
        assert_eq!(segments.judge(0, 0), Inserted::New);
        for segment in 0..1000 {
            assert_eq!(segments.judge(segment, 0), Inserted::New);
            segments.insert(segment);
        }
        assert_eq!(segments.words(), 1);
    }
}
