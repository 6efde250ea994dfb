//! The sender's view of one path: its port, its numbers, what is under way, its round trip and its
//! window.
//!
//! A path decides what was lost and when to probe; what to send and where is the connection's
//! business. docs/spec/metaroce/paths.md and reliability.md.

use super::congestion::{AnyWindow, Feedback, Window};
use super::job::JobRef;
use super::stream::StreamRef;
use crate::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use feroce_wire::metaroce::{Ack, Epoch, MessageNumber, PacketNumber, Vector};

/// What a packet carried, so that it can be sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Piece {
    Request {
        stream: StreamRef,
        message: MessageNumber,
        segment: u32,
    },
    Response {
        job: JobRef,
        segment: u32,
    },
    /// News of a stream.
    Update(StreamRef),
    /// Nothing that would have to be sent again.
    Probe,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    InFlight,
    Acknowledged,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    piece: Piece,
    at: Instant,
    bytes: u32,
    fate: Fate,
}

/// Whether a path is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PathState {
    /// It is.
    Active,
    /// [`SUSPECT_AFTER`] probe times in a row went by without an answer: only probes are sent until
    /// one is answered.
    Suspect,
}

/// Round trip of a path (RFC 6298, with samples that are never ambiguous).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    pub(super) smoothed: Duration,
    pub(super) variation: Duration,
    pub(super) least: Duration,
    pub(super) latest: Duration,
}

impl Rtt {
    pub(super) const fn is_known(&self) -> bool {
        !self.smoothed.is_zero()
    }

    fn sample(&mut self, rtt: Duration) {
        let rtt = rtt.max(Duration::from_nanos(1));
        self.latest = rtt;
        if !self.is_known() {
            (self.smoothed, self.variation, self.least) = (rtt, rtt / 2, rtt);
            return;
        }
        self.least = self.least.min(rtt);
        let difference = self.smoothed.abs_diff(rtt);
        self.variation = (self.variation * 3 + difference) / 4;
        self.smoothed = (self.smoothed * 7 + rtt) / 8;
    }
}

/// What a path counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathCounters {
    /// Packets sent.
    pub sent: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets found lost.
    pub lost: u64,
    /// Packets found lost that arrived after all.
    pub spurious: u64,
    /// Packets that arrived with a congestion mark.
    pub marked: u64,
    /// Probes sent.
    pub probes: u64,
    /// Changes of the port.
    pub rebinds: u64,
}

/// Constants a path needs of its endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) ack_delay_max: Duration,
    pub(super) grain: Duration,
    pub(super) rtt_initial: Duration,
    pub(super) probe_interval_max: Duration,
}

/// What became of pieces, by one acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) acknowledged: Vec<Piece>,
    pub(super) lost: Vec<Piece>,
    /// Found lost before, but arrived.
    pub(super) arrived_late: Vec<Piece>,
}

/// Probe times without an answer that make a path suspect. At 10 % loss in both directions a probe
/// goes unanswered with 19 %, two with 4 %.
pub(super) const SUSPECT_AFTER: u32 = 3;

/// Most packets that may overtake one on an ordered path before a gap means loss; learned from
/// packets that arrive after they were found lost.
const TOLERANCE_MAX: u32 = 64;

/// Packets in order after which the tolerance is halved.
const TOLERANCE_DECAY: u32 = 4096;

/// A path.
//= MR-PTH-001
#[derive(Debug)]
pub(super) struct Path {
    pub(super) id: u8,
    pub(super) epoch: Epoch,
    pub(super) port: u16,
    pub(super) plane: u8,
    pub(super) state: PathState,
    next: PacketNumber,
    /// Number of the first in `sent`.
    base: PacketNumber,
    sent: VecDeque<Sent>,
    in_flight: u64,
    /// Packets in flight.
    flying: u32,
    pub(super) rtt: Rtt,
    pub(super) window: AnyWindow,
    tolerance: u32,
    since_spurious: u32,
    /// Last acknowledgement, or first packet after none was in flight.
    progress: Instant,
    pub(super) probe_at: Option<Instant>,
    /// Probes since the last acknowledgement.
    pub(super) unanswered: u32,
    /// The timer has fired and a probe is to be sent.
    pub(super) probe_due: bool,
    since_ack_request: u32,
    acked_received: u32,
    acked_marked: u32,
    pub(super) counters: PathCounters,
}

impl Path {
    pub(super) fn new(id: u8, plane: u8, port: u16, window: AnyWindow) -> Self {
        Self {
            id,
            epoch: Epoch(0),
            port,
            plane,
            state: PathState::Active,
            next: PacketNumber(0),
            base: PacketNumber(0),
            sent: VecDeque::new(),
            in_flight: 0,
            flying: 0,
            rtt: Rtt::default(),
            window,
            tolerance: 0,
            since_spurious: 0,
            progress: Instant::ZERO,
            probe_at: None,
            unanswered: 0,
            probe_due: false,
            since_ack_request: 0,
            acked_received: 0,
            acked_marked: 0,
            counters: PathCounters::default(),
        }
    }

    pub(super) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) const fn is_flying(&self) -> bool {
        self.flying > 0
    }

    pub(super) fn has_room(&self) -> bool {
        self.state == PathState::Active
            && self.in_flight < self.window.bytes()
            && !self.is_worn_out()
    }

    /// The number that the next packet will have.
    pub(super) const fn next_number(&self) -> PacketNumber {
        self.next
    }

    /// Whether the next packet of `bytes` should ask for an acknowledgement: it fills the window,
    /// or a quarter of the window has passed since the last that did.
    pub(super) fn wants_ack(&self, bytes: u32) -> bool {
        let per_window = self.window.bytes() / u64::from(bytes.max(1));
        self.in_flight + u64::from(bytes) >= self.window.bytes()
            || u64::from(self.since_ack_request + 1) * 4 >= per_window
    }

    /// A packet has left.
    pub(super) fn sent(
        &mut self,
        now: Instant,
        piece: Piece,
        bytes: u32,
        ack_requested: bool,
        timing: &Timing,
    ) {
        if self.flying == 0 {
            self.progress = now;
        }
        self.sent.push_back(Sent {
            piece,
            at: now,
            bytes,
            fate: Fate::InFlight,
        });
        //= MR-PTH-002
        self.next = self.next.next();
        self.in_flight += u64::from(bytes);
        self.flying += 1;
        self.since_ack_request = if ack_requested {
            0
        } else {
            self.since_ack_request + 1
        };
        self.counters.sent += 1;
        self.counters.sent_bytes += u64::from(bytes);
        self.arm(timing);
    }

    /// Time without an acknowledgement after which a probe is sent.
    //= MR-PTH-010
    //= MR-PTH-012
    pub(super) fn probe_timeout(&self, timing: &Timing) -> Duration {
        let (smoothed, variation) = if self.rtt.is_known() {
            (self.rtt.smoothed, self.rtt.variation)
        } else {
            (timing.rtt_initial, Duration::ZERO)
        };
        let base = smoothed + (variation * 4).max(timing.grain) + timing.ack_delay_max;
        // The first probes come at an even pace, so that a dead path is left soon.
        let doublings = self.unanswered.saturating_sub(SUSPECT_AFTER - 1).min(16);
        let longest = timing.probe_interval_max.max(base);
        (base * (1 << doublings)).min(longest)
    }

    fn arm(&mut self, timing: &Timing) {
        self.probe_at = (self.flying > 0).then(|| self.progress + self.probe_timeout(timing));
    }

    /// The timer has fired. Returns whether the path has become suspect.
    pub(super) fn time_out(&mut self, now: Instant, timing: &Timing) -> bool {
        self.progress = now;
        self.probe_due = true;
        self.unanswered = self.unanswered.saturating_add(1);
        self.arm(timing);
        //= MR-PTH-011
        let suspect = self.unanswered >= SUSPECT_AFTER && self.state == PathState::Active;
        if suspect {
            self.state = PathState::Suspect;
        }
        suspect
    }

    /// Everything in flight counts as lost; what it was.
    pub(super) fn give_up(&mut self, lost: &mut Vec<Piece>) {
        for sent in &mut self.sent {
            if sent.fate == Fate::InFlight {
                sent.fate = Fate::Lost;
                lost.push(sent.piece);
                self.counters.lost += u64::from(sent.piece != Piece::Probe);
            }
        }
        self.in_flight = 0;
        self.flying = 0;
    }

    /// A new port and a new epoch: numbers begin again, and what comes of the old ones is ignored.
    //= MR-PTH-003
    pub(super) fn rebind(&mut self, port: u16) {
        self.port = port;
        self.epoch = self.epoch.next();
        self.next = PacketNumber(0);
        self.base = PacketNumber(0);
        self.sent = VecDeque::new();
        self.in_flight = 0;
        self.flying = 0;
        self.tolerance = 0;
        (self.acked_received, self.acked_marked) = (0, 0);
        self.rtt = Rtt::default();
        self.counters.rebinds += 1;
    }

    /// Takes an acknowledgement of the current epoch in. None: it says nothing new or names what
    /// was never sent.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        highest: PacketNumber,
        ack: &Ack<'_>,
        timing: &Timing,
        outcome: &mut Outcome,
    ) -> Option<Feedback> {
        if highest.distance_from(self.next) >= 0 {
            return None;
        }
        let limited = self.in_flight.saturating_add(self.in_flight / 4) >= self.window.bytes();
        let mut feedback = Feedback {
            now,
            bytes: 0,
            received: 0,
            marked: 0,
            lost: 0,
            rtt: Duration::ZERO,
            rtt_min: Duration::ZERO,
            limited,
        };
        self.sample(now, highest, ack);
        let newer = ack.received.wrapping_sub(self.acked_received);
        if newer.cast_signed() > 0 {
            feedback.received = newer;
            feedback.marked = ack.marked.wrapping_sub(self.acked_marked).min(newer);
            self.counters.marked += u64::from(feedback.marked);
            (self.acked_received, self.acked_marked) = (ack.received, ack.marked);
        }
        self.judge(highest, &ack.vector, &mut feedback, outcome);
        self.forget(highest);
        if feedback.bytes == 0 && feedback.received == 0 && feedback.lost == 0 {
            return None;
        }
        self.progress = now;
        self.unanswered = 0;
        self.probe_due = false;
        self.state = PathState::Active;
        self.arm(timing);
        feedback.rtt = self.rtt.smoothed;
        feedback.rtt_min = self.rtt.least;
        Some(feedback)
    }

    /// The packet with the highest number gives a clean sample: no number is used twice.
    //= MR-PTH-008
    fn sample(&mut self, now: Instant, highest: PacketNumber, ack: &Ack<'_>) {
        let place = usize::try_from(highest.distance_from(self.base)).ok();
        let Some(sent) = place.and_then(|place| self.sent.get(place)) else {
            return;
        };
        if sent.fate == Fate::InFlight {
            let raw = now.since(sent.at);
            let delay = Duration::from_nanos(u64::from(ack.delay_nanos));
            self.rtt.sample(raw.checked_sub(delay).unwrap_or(raw));
        }
    }

    fn judge(
        &mut self,
        highest: PacketNumber,
        vector: &Vector,
        feedback: &mut Feedback,
        outcome: &mut Outcome,
    ) {
        let Ok(last) = usize::try_from(highest.distance_from(self.base)) else {
            return;
        };
        let highest_at = self.sent.get(last).map(|sent| sent.at);
        let patience = self.rtt.smoothed / 4;
        let mut tolerance = self.tolerance;
        for (place, sent) in self.sent.iter_mut().enumerate().take(last + 1) {
            let back = u32::try_from(last - place).unwrap_or(u32::MAX);
            let arrived = vector.has(back);
            match sent.fate {
                Fate::InFlight if arrived => {
                    sent.fate = Fate::Acknowledged;
                    self.in_flight = self.in_flight.saturating_sub(u64::from(sent.bytes));
                    self.flying -= 1;
                    feedback.bytes += u64::from(sent.bytes);
                    outcome.acknowledged.push(sent.piece);
                    self.since_spurious = self.since_spurious.saturating_add(1);
                }
                Fate::InFlight => {
                    let waited = highest_at.is_some_and(|at| at.since(sent.at) > patience);
                    //= MR-REL-010
                    // A gap means loss, unless this path has been seen to reorder.
                    if back > tolerance || (tolerance > 0 && waited) {
                        sent.fate = Fate::Lost;
                        self.in_flight = self.in_flight.saturating_sub(u64::from(sent.bytes));
                        self.flying -= 1;
                        feedback.lost += u64::from(sent.bytes);
                        outcome.lost.push(sent.piece);
                        self.counters.lost += u64::from(sent.piece != Piece::Probe);
                    }
                }
                Fate::Lost if arrived => {
                    sent.fate = Fate::Acknowledged;
                    outcome.arrived_late.push(sent.piece);
                    self.counters.spurious += 1;
                    //= MR-REL-011
                    tolerance = tolerance.max(back.min(TOLERANCE_MAX));
                    self.since_spurious = 0;
                }
                Fate::Lost | Fate::Acknowledged => {}
            }
        }
        if self.since_spurious >= TOLERANCE_DECAY {
            tolerance /= 2;
            self.since_spurious = 0;
        }
        self.tolerance = tolerance;
    }

    /// Drops what no acknowledgement can tell anything about any more.
    fn forget(&mut self, highest: PacketNumber) {
        while let Some(sent) = self.sent.front() {
            let back = highest.distance_from(self.base);
            let old = back > Vector::BITS.cast_signed();
            let done = match sent.fate {
                Fate::InFlight => false,
                Fate::Acknowledged => back >= 0,
                Fate::Lost => old,
            };
            if !done {
                break;
            }
            self.sent.pop_front();
            self.base = self.base.next();
        }
    }

    /// Whether numbers are about to run out in this epoch.
    //= MR-PTH-005
    pub(super) const fn is_worn_out(&self) -> bool {
        self.next.0 >= 1 << 31
    }
}

#[cfg(test)]
mod tests;
