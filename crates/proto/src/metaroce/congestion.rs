//! Windows: how many bytes may be under way on a path and on a connection.
//!
//! Marks decide, delay confirms, and loss alone takes nothing: a fabric that loses packets at
//! random is no full one. docs/spec/metaroce/congestion.md argues every constant.

use crate::Instant;
use core::time::Duration;

/// What one acknowledgement says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feedback {
    pub(super) now: Instant,
    /// Bytes acknowledged for the first time.
    pub(super) bytes: u64,
    /// Packets received since the last acknowledgement, and how many of them were marked.
    pub(super) received: u32,
    pub(super) marked: u32,
    /// Bytes found lost.
    pub(super) lost: u64,
    /// Smoothed and least round trip.
    pub(super) rtt: Duration,
    pub(super) rtt_min: Duration,
    /// The window was the limit, not the program.
    pub(super) limited: bool,
}

/// Between what a window moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Least and most it may become.
    pub(super) floor: u64,
    pub(super) ceiling: u64,
    /// What it may grow by in a round.
    pub(super) step: u64,
    /// It stands for many paths: marks on some are theirs, marks on all are its own. The share of
    /// marks counts squared.
    pub(super) whole: bool,
}

impl Bounds {
    fn clamp(&self, bytes: u64) -> u64 {
        bytes.min(self.ceiling).max(self.floor)
    }
}

/// A congestion window. The specified one is [`Aimd`]; [`Fixed`] serves tests.
pub(super) trait Window {
    /// Bytes that may be in flight.
    fn bytes(&self) -> u64;
    /// Takes an acknowledgement in.
    fn acknowledged(&mut self, feedback: &Feedback, bounds: &Bounds);
    /// Nothing was in flight for a while, or the path is new: begin again at `bytes`.
    fn restart(&mut self, now: Instant, bytes: u64);
    /// Share of marked packets in the last rounds, in 1/1024.
    fn marked_share(&self) -> u32;
}

/// A window that never changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed(pub(super) u64);

impl Window for Fixed {
    fn bytes(&self) -> u64 {
        self.0
    }

    fn acknowledged(&mut self, _: &Feedback, _: &Bounds) {}

    fn restart(&mut self, _: Instant, _: u64) {}

    fn marked_share(&self) -> u32 {
        0
    }
}

/// One in fixed-point shares.
pub(super) const ONE: u32 = 1024;

/// The share of marks moves by 1/4 of the difference in a round: a round of a path has a handful
/// of packets, so one round is little evidence, and four are enough.
const MARK_GAIN_SHIFT: u32 = 2;

/// Additive increase, multiplicative decrease by the share of marked packets, once in a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aimd {
    window: u64,
    marked_share: u32,
    round_start: Instant,
    received: u32,
    marked: u32,
    lost: u64,
    limited: bool,
}

impl Aimd {
    pub(super) const fn new(now: Instant, bytes: u64) -> Self {
        Self {
            window: bytes,
            marked_share: 0,
            round_start: now,
            received: 0,
            marked: 0,
            lost: 0,
            limited: false,
        }
    }

    fn end_round(&mut self, feedback: &Feedback, bounds: &Bounds) {
        let share = (u64::from(self.marked) * u64::from(ONE)) / u64::from(self.received.max(1));
        let share = u32::try_from(share).unwrap_or(ONE).min(ONE);
        if share >= self.marked_share {
            self.marked_share += (share - self.marked_share).div_ceil(1 << MARK_GAIN_SHIFT);
        } else {
            self.marked_share -= (self.marked_share - share).div_ceil(1 << MARK_GAIN_SHIFT);
        }
        // A queue of half a least round trip stands in the way: delay confirms.
        let delayed = feedback.rtt > feedback.rtt_min * 3 / 2;
        //= MR-CC-002
        if self.marked > 0 {
            let mut share = u64::from(self.marked_share.max(share / 2));
            if bounds.whole {
                share = share * share / u64::from(ONE);
            }
            self.window -= self.window * share / (2 * u64::from(ONE));
        } else if self.lost > 0 && delayed {
            //= MR-CC-004
            self.window = self.window.saturating_sub(self.lost);
        } else if self.limited {
            //= MR-CC-003
            self.window = self.window.saturating_add(bounds.step);
        }
        self.window = bounds.clamp(self.window);
        self.round_start = feedback.now;
        (self.received, self.marked, self.lost) = (0, 0, 0);
        self.limited = false;
    }
}

impl Window for Aimd {
    fn bytes(&self) -> u64 {
        self.window
    }

    fn acknowledged(&mut self, feedback: &Feedback, bounds: &Bounds) {
        self.received = self.received.saturating_add(feedback.received);
        self.marked = self.marked.saturating_add(feedback.marked);
        self.lost = self.lost.saturating_add(feedback.lost);
        self.limited |= feedback.limited;
        if feedback.now.since(self.round_start) >= feedback.rtt {
            self.end_round(feedback, bounds);
        } else {
            // A share that shrinks is obeyed at once.
            self.window = bounds.clamp(self.window);
        }
    }

    fn restart(&mut self, now: Instant, bytes: u64) {
        *self = Self::new(now, bytes);
    }

    fn marked_share(&self) -> u32 {
        self.marked_share
    }
}

/// The windows there are, one type for the state of paths and connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyWindow {
    Specified(Aimd),
    Fixed(Fixed),
}

impl Window for AnyWindow {
    fn bytes(&self) -> u64 {
        match self {
            Self::Specified(window) => window.bytes(),
            Self::Fixed(window) => window.bytes(),
        }
    }

    fn acknowledged(&mut self, feedback: &Feedback, bounds: &Bounds) {
        match self {
            Self::Specified(window) => window.acknowledged(feedback, bounds),
            Self::Fixed(window) => window.acknowledged(feedback, bounds),
        }
    }

    fn restart(&mut self, now: Instant, bytes: u64) {
        match self {
            Self::Specified(window) => window.restart(now, bytes),
            Self::Fixed(window) => window.restart(now, bytes),
        }
    }

    fn marked_share(&self) -> u32 {
        match self {
            Self::Specified(window) => window.marked_share(),
            Self::Fixed(window) => window.marked_share(),
        }
    }
}

#[cfg(test)]
mod tests;
