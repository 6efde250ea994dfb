//! Rates: how fast one queue pair may send, in bytes per second.

use crate::Instant;
use core::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// How far a sender may run ahead of its rate, so that packets leave in batches.
const BURST: Duration = Duration::from_micros(20);

/// Spreads the packets of one queue pair over time.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes per second.
    rate: u64,
    /// When everything sent so far has passed at the rate.
    clear_at: Instant,
}

impl Pacer {
    pub(crate) const fn new(rate: u64) -> Self {
        Self {
            rate,
            clear_at: Instant::ZERO,
        }
    }

    /// Whether a packet may leave now.
    pub(crate) fn allows(&self, now: Instant) -> bool {
        self.clear_at.since(now) <= BURST
    }

    /// When the next packet may leave.
    pub(crate) fn next_at(&self, now: Instant) -> Instant {
        let wait = self.clear_at.since(now).saturating_sub(BURST / 2);
        now + wait
    }

    /// A packet of `bytes` has left.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64) {
        let nanos = u128::from(bytes) * NANOS_PER_SECOND / u128::from(self.rate.max(1));
        let span = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.clear_at = self.clear_at.max(now) + span;
    }
}
