//! Deadlines of queue pairs, ordered, re-armed lazily.
//!
//! A deadline that moves to later costs nothing: its old entry stays, fires once, and the owner
//! then puts in the true one. Only a first or an earlier deadline touches the tree.

use crate::Instant;
use crate::lists::Index;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Timer {
    /// ACK timeout or the end of an RNR wait.
    Retry,
    /// The rate of the queue pair allows the next packet.
    Pace,
    /// Nothing has been heard of bytes in flight.
    Hold,
}

/// Kinds of [`Timer`].
const KINDS: usize = 3;

/// The deadlines of all queue pairs of a device.
#[derive(Default, Debug)]
pub(crate) struct Timers {
    queue: BTreeSet<(Instant, Index, Timer)>,
    /// Per queue pair and kind: the entry that is in `queue`.
    armed: Vec<[Option<Instant>; KINDS]>,
}

impl Timers {
    /// Makes sure that something fires at `deadline` or earlier.
    pub(crate) fn arm(&mut self, index: Index, timer: Timer, deadline: Instant) {
        let row = index as usize;
        if row >= self.armed.len() {
            self.armed.resize(row + 1, [None; KINDS]);
        }
        let armed = &mut self.armed[row][timer as usize];
        match *armed {
            Some(at) if at <= deadline => return,
            Some(at) => {
                self.queue.remove(&(at, index, timer));
            }
            None => {}
        }
        *armed = Some(deadline);
        self.queue.insert((deadline, index, timer));
    }

    /// Takes all entries of a queue pair out.
    pub(crate) fn forget(&mut self, index: Index) {
        let Some(row) = self.armed.get_mut(index as usize) else {
            return;
        };
        for (timer, armed) in [Timer::Retry, Timer::Pace, Timer::Hold]
            .into_iter()
            .zip(row)
        {
            if let Some(at) = armed.take() {
                self.queue.remove(&(at, index, timer));
            }
        }
    }

    /// Takes out the first entry that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(Index, Timer)> {
        let &(at, index, timer) = self.queue.first()?;
        if at > now {
            return None;
        }
        self.queue.pop_first();
        self.armed[index as usize][timer as usize] = None;
        Some((index, timer))
    }

    /// When the next entry is due.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.queue.first().map(|&(at, ..)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_later_deadline_leaves_the_entry_and_an_earlier_one_moves_it() {
        let mut timers = Timers::default();
        timers.arm(3, Timer::Retry, at(100));
        timers.arm(3, Timer::Retry, at(200));
        assert_eq!(timers.first(), Some(at(100)));
        timers.arm(3, Timer::Retry, at(50));
        assert_eq!(timers.pop_due(at(49)), None);
        assert_eq!(timers.pop_due(at(50)), Some((3, Timer::Retry)));
        assert_eq!(timers.first(), None);
    }

    #[test]
    fn forgetting_takes_every_kind_out() {
        let mut timers = Timers::default();
        timers.arm(0, Timer::Retry, at(1));
        timers.arm(0, Timer::Pace, at(2));
        timers.arm(1, Timer::Retry, at(3));
        timers.forget(0);
        timers.forget(9);
        assert_eq!(timers.pop_due(at(9)), Some((1, Timer::Retry)));
        assert_eq!(timers.pop_due(at(9)), None);
    }
}
