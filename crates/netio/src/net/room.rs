//! How much may be under way to a socket of another process of this host.
//!
//! Nothing pushes back on loopback: what a socket has no room for is dropped, and unreliable
//! services never learn of it. So a sender counts what its datagrams cost the receiver's buffer,
//! and now and then puts a *mark* behind them: the cost of all it sent so far. The receiver
//! answers a mark when it takes it from the socket. A socket is a queue, so everything sent before
//! the mark has left it by then, received or lost on the way; that makes the count immune to loss,
//! and lost or repeated marks and answers do no harm either. The receiver counts no bytes.
//!
//! Several senders share a buffer. Each answer says how much its sender may have under way from
//! then on; the receiver remembers what it told whom, and tells no more than it has.
//!
//! Pure tables, told the time in coarse milliseconds. Not here: the datagrams (`mark`), and what
//! to do about a silent receiver (`backpressure`).

use std::net::SocketAddr;

use super::bundle;

/// Cost of a datagram or batch besides its bytes, for bookkeeping and headers: measured 832, and
/// up to 1,036 where the sum with the bytes is rounded up.
const OVERHEAD: u64 = 1152;

/// Of the receive buffer, one part in this many is told to senders. Another quarter is taken by
/// what was received lately, which the kernel gives back late; the rest is for newcomers.
const SHARE: u64 = 2;

/// A newcomer may fill one part of the buffer in this many, until the first answer.
const SHARE_AT_FIRST: u64 = 16;

/// No sender fills more than this, however large the buffer: what is under way should fit into
/// the processor's caches, since both sides touch it. It is more than reliable connections have
/// under way, which thus hardly ever wait.
const ALLOWANCE_MAX: u64 = 2 << 20;

/// A sender without an answer for this long is a newcomer again. The receiver remembers it for
/// twice as long.
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

/// What a bundle costs: its bytes, unless it is so short that the kernel rounds them up.
pub(super) const fn cost_of_bundle(bytes: usize) -> u64 {
    if bundle::is_paged(bytes) {
        cost_of_batch(bytes)
    } else {
        cost_of_singles(1, bytes)
    }
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
    marked_ms: u64,
    answered_ms: u64,
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
        let Some(bytes) = self.batch_bytes(length, now_ms) else {
            return 0;
        };
        let count = bytes / (length as u64).max(1);
        usize::try_from(count).unwrap_or(most).clamp(1, most)
    }

    /// How long a bundle that begins with a datagram of `length` bytes may get, at most `most`
    /// bytes; 0 for none now.
    pub(super) fn bundle(&mut self, length: usize, most: usize, now_ms: u64) -> usize {
        let Some(bytes) = self.batch_bytes(length, now_ms) else {
            return 0;
        };
        let bytes = usize::try_from(bytes).unwrap_or(most);
        let bytes = if bundle::is_paged(bytes) {
            bytes
        } else {
            bytes / 2
        };
        bytes.min(most).max(length)
    }

    /// How many bytes may follow one another as one; none while there is no room for `length`.
    fn batch_bytes(&mut self, length: usize, now_ms: u64) -> Option<u64> {
        if now_ms.saturating_sub(self.answered_ms) >= IDLE_MS {
            self.allowance = self.allowance.min(allowance_at_first(self.buffer));
        }
        let under_way = self.under_way();
        let left = self.allowance.saturating_sub(under_way);
        // Not for every little bit of room: that would make for little batches.
        if under_way > 0 && (left < self.allowance / 8 || left < cost_of_singles(1, length)) {
            return None;
        }
        self.refused = false;
        // Two batches keep both sides busy where one would fill everything.
        Some(left.saturating_sub(OVERHEAD).min(self.allowance / 2))
    }

    /// Notes that there was no room; returns whether that is new.
    pub(super) const fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.refused, true)
    }

    /// Something was sent.
    pub(super) const fn charge(&mut self, cost: u64) {
        self.sent += cost;
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

    /// A mark was answered; from now on so much may be under way. An answer to a mark that was
    /// not sent, or to an old one, says nothing.
    pub(super) const fn answered(&mut self, position: u64, allowance: u64, now_ms: u64) -> bool {
        if position <= self.passed || position > self.marked {
            return false;
        }
        self.passed = position;
        self.waiting_ms = now_ms;
        self.answered_ms = now_ms;
        self.allowance = allowance;
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
        self.allowance = allowance_at_first(self.buffer);
    }

    const fn under_way(&self) -> u64 {
        self.sent - self.passed
    }
}

fn allowance_at_first(buffer: u64) -> u64 {
    (buffer / SHARE_AT_FIRST).min(ALLOWANCE_MAX)
}

/// Who sent marks to the sockets of this process lately, and what it was told.
#[derive(Debug, Default)]
pub(super) struct Senders {
    all: Vec<Sender>,
}

#[derive(Debug)]
struct Sender {
    source: SocketAddr,
    /// Token of the socket it sends to.
    socket: usize,
    seen_ms: u64,
    allowance: u64,
}

impl Senders {
    /// Notes a mark; returns how much its sender may have under way to this socket.
    pub(super) fn allow(
        &mut self,
        source: SocketAddr,
        socket: usize,
        buffer: u32,
        now_ms: u64,
    ) -> u64 {
        let buffer = u64::from(buffer);
        let all = &mut self.all;
        all.retain(|sender| now_ms.saturating_sub(sender.seen_ms) < 2 * IDLE_MS);
        let known = all
            .iter()
            .position(|sender| sender.source == source && sender.socket == socket);
        let position = known.unwrap_or(all.len());
        if known.is_none() {
            if all.len() >= SENDERS_MAX {
                return buffer / SHARE / SENDERS_MAX as u64;
            }
            all.push(Sender {
                source,
                socket,
                seen_ms: now_ms,
                allowance: allowance_at_first(buffer),
            });
        }
        let here = all.iter().filter(|sender| sender.socket == socket);
        let told: u64 = here.clone().map(|sender| sender.allowance).sum();
        let count = here.count() as u64;
        let sender = &mut all[position];
        sender.seen_ms = now_ms;
        let share = buffer / SHARE / count;
        // What others were told is theirs until they are told less.
        let left = (buffer / SHARE).saturating_sub(told - sender.allowance);
        let least = share.min(allowance_at_first(buffer));
        // Step by step, since others may be coming that have not shown up yet.
        let most = share.min(2 * sender.allowance).min(ALLOWANCE_MAX);
        sender.allowance = most.min(left).max(least);
        sender.allowance
    }
}

#[cfg(test)]
mod tests;
