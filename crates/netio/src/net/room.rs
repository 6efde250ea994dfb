//! How much may be under way to a socket of another process of this host.
//!
//! Nothing pushes back on loopback: what a socket has no room for is dropped, and unreliable
//! services never learn of it. So a sender counts what its datagrams cost the receiver's buffer,
//! and now and then puts a *mark* behind them: the cost of all it sent so far. The receiver
//! answers a mark when it takes it from the socket. A socket is a queue, so everything sent before
//! the mark has left it by then, received or lost on the way; that makes the count immune to loss,
//! and lost or repeated marks and answers do no harm either. The receiver counts no bytes. It only
//! knows who sent marks lately, and every answer says how many those are: they share the buffer.
//!
//! Pure tables, told the time in coarse milliseconds. Not here: the datagrams (`mark`), and when
//! a silent receiver is dead (`send`).

use std::net::SocketAddr;

/// Cost of a datagram or batch besides its bytes: measured 832, for bookkeeping and headers. What
/// the kernel charges varies with how it cuts memory: up to 1.8 times the estimate for large
/// batches and 2.5 times for tiny ones were seen. Senders keep to half of a buffer for that.
const OVERHEAD: u64 = 1024;

/// Of the receive buffer, all senders together may fill one part in this many. Another
/// quarter is taken by what was received lately, which the kernel gives back late; the rest is
/// for newcomers, who do not know yet how many they are.
const SHARE: u64 = 2;

/// A newcomer may fill one part of the buffer in this many, until the first answer.
const SHARE_AT_FIRST: u64 = 16;

/// No sender fills more than this, however large the buffer: what is under way should fit into
/// the processor's caches, since both sides touch it.
const ALLOWANCE_MAX: u64 = 2 << 20;

/// A sender that was idle this long is a newcomer again.
const IDLE_MS: u64 = 100;

/// How long without an answer before the mark is taken for lost.
const REPEAT_MS: u64 = 8;

/// How long without an answer before the receiver is asked whether it is alive. Other processes
/// may be using the processor, so this proves nothing.
const SUSPECT_MS: u64 = 20;

/// How long without an answer before a receiver that is alive (a stopped process, for instance)
/// is sent to all the same.
const PATIENCE_MS: u64 = 1_000;

/// Senders told apart by a receiver.
const SENDERS_MAX: usize = 64;

/// What single datagrams with so many bytes in all cost at most: the kernel rounds each up to a
/// power of two.
pub(super) const fn cost_of_singles(datagrams: usize, bytes: usize) -> u64 {
    2 * bytes as u64 + datagrams as u64 * OVERHEAD
}

/// What a batch the kernel is to cut costs: its bytes stay in one piece on their way.
pub(super) const fn cost_of_batch(bytes: usize) -> u64 {
    bytes as u64 + OVERHEAD
}

/// What one sender knows about one socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// The receive buffer, in the kernel's accounting.
    buffer: u64,
    /// How much may be under way.
    allowance: u64,
    /// Cost of all that was sent.
    sent: u64,
    /// The last mark.
    marked: u64,
    /// The last mark that was answered.
    passed: u64,
    /// When something was sent or answered last.
    active_ms: u64,
    marked_ms: u64,
    /// Since when an answer is missing.
    waiting_ms: u64,
    refused: bool,
}

/// What to do when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing yet.
    Wait,
    /// Find out whether the receiver is alive.
    Suspect,
    /// Go on without answers.
    GiveUp,
}

impl Room {
    pub(super) fn new(buffer: u32) -> Self {
        let mut room = Self {
            buffer: buffer.into(),
            ..Self::default()
        };
        room.start_over();
        room
    }

    /// How many datagrams of `length` bytes may be sent as one batch, out of `most`; 0 for none
    /// now. When nothing is under way, there is room for one of any size.
    pub(super) fn datagrams(&mut self, length: usize, most: usize, now_ms: u64) -> usize {
        if now_ms.saturating_sub(self.active_ms) >= IDLE_MS {
            self.allowance = self.allowance.min(self.allowance_at_first());
        }
        let under_way = self.under_way();
        let left = self.allowance.saturating_sub(under_way);
        // Not for every little bit of room: that would make for little batches.
        if under_way > 0 && (left < self.allowance / 8 || left < cost_of_singles(1, length)) {
            return 0;
        }
        self.refused = false;
        // Two batches keep both sides busy where one would fill everything.
        let bytes = left.saturating_sub(OVERHEAD).min(self.allowance / 2);
        let count = bytes / (length as u64).max(1);
        usize::try_from(count).unwrap_or(most).clamp(1, most)
    }

    /// Notes that there was no room; returns whether that is new.
    pub(super) const fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.refused, true)
    }

    /// Something was sent.
    pub(super) const fn charge(&mut self, cost: u64, now_ms: u64) {
        self.sent += cost;
        self.active_ms = now_ms;
    }

    /// Whether it is time for a mark: a quarter of the allowance has left since the last one.
    pub(super) const fn wants_mark(&self) -> bool {
        self.sent - self.marked >= self.allowance / 4
    }

    /// Whether a sender without room needs a mark to get on: no answer is to be expected.
    pub(super) fn needs_mark(&self, now_ms: u64) -> bool {
        // Ever more patiently: a receiver that does not look gets few of them.
        let patience = REPEAT_MS.max(self.marked_ms.saturating_sub(self.waiting_ms));
        self.passed == self.marked || now_ms.saturating_sub(self.marked_ms) >= patience
    }

    /// What a mark says now.
    pub(super) const fn position(&self) -> u64 {
        self.sent
    }

    /// A mark with the current position has left.
    pub(super) const fn mark(&mut self, now_ms: u64) {
        if self.passed == self.marked {
            self.waiting_ms = now_ms;
        }
        self.marked = self.sent;
        self.marked_ms = now_ms;
    }

    /// A mark was answered by a receiver with so many senders. One that was not sent, or that is
    /// old, says nothing.
    pub(super) fn answered(&mut self, position: u64, senders: u16, now_ms: u64) -> bool {
        if position <= self.passed || position > self.marked {
            return false;
        }
        self.passed = position;
        self.waiting_ms = now_ms;
        self.active_ms = now_ms;
        let share = self.buffer / SHARE / u64::from(senders.max(1));
        self.allowance = share.min(ALLOWANCE_MAX);
        true
    }

    /// What to make of the time without an answer.
    pub(super) const fn silence(&self, now_ms: u64) -> Silence {
        if self.passed == self.marked {
            return Silence::Wait;
        }
        match now_ms.saturating_sub(self.waiting_ms) {
            PATIENCE_MS.. => Silence::GiveUp,
            SUSPECT_MS.. => Silence::Suspect,
            _ => Silence::Wait,
        }
    }

    /// Forgets what is under way.
    pub(super) fn start_over(&mut self) {
        self.marked = self.sent;
        self.passed = self.sent;
        self.allowance = self.allowance_at_first();
    }

    fn allowance_at_first(&self) -> u64 {
        (self.buffer / SHARE_AT_FIRST).min(ALLOWANCE_MAX)
    }

    const fn under_way(&self) -> u64 {
        self.sent - self.passed
    }
}

/// Who sent marks to this process lately.
#[derive(Debug, Default)]
pub(super) struct Senders {
    seen: Vec<(SocketAddr, u64)>,
}

impl Senders {
    /// Notes a mark; returns how many senders there are.
    pub(super) fn note(&mut self, source: SocketAddr, now_ms: u64) -> u16 {
        let known = self.seen.iter().position(|(sender, _)| *sender == source);
        if let Some(known) = known {
            self.seen[known].1 = now_ms;
        } else {
            self.seen
                .retain(|(_, seen_ms)| now_ms.saturating_sub(*seen_ms) < IDLE_MS);
            if self.seen.len() < SENDERS_MAX {
                self.seen.push((source, now_ms));
            }
        }
        let active = self
            .seen
            .iter()
            .filter(|(_, seen_ms)| now_ms.saturating_sub(*seen_ms) < IDLE_MS);
        active.count() as u16
    }
}

#[cfg(test)]
mod tests;
