//! The receiver's side of congestion control: who gets which share of the inbound bandwidth.
//!
//! All connections that send at the moment get the same share, except that what slower ones leave
//! unused is divided among the rest. The first packet of a new one counts at once.

use crate::Instant;
use alloc::collections::BTreeMap;
use core::time::Duration;
use feroce_wire::metaroce::SHARE_UNLIMITED;

/// Rates are measured over this long. About four round trips of a data centre: long enough for
/// some packets of each of a hundred senders, short enough to follow them.
const INTERVAL: Duration = Duration::from_micros(50);

/// Intervals without a packet after which a sender counts no more.
const INTERVALS_SILENT_MAX: u32 = 4;

/// When every packet is marked, an eighth less is granted: a queue of half a megabyte is gone in
/// 350 µs at 100 Gb/s.
const QUEUE_DIVISOR: u64 = 8;

#[derive(Clone, Copy, Debug)]
struct Active {
    bytes: u64,
    /// Bytes per second in the last interval.
    rate: u64,
    /// Intervals in a row in which it left at least a quarter of its share unused.
    slow: u32,
    silent: u32,
}

/// Shares of one receiver.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Bytes per second; 0: unknown, no limit.
    capacity: u64,
    active: BTreeMap<u32, Active>,
    level: u64,
    interval_start: Instant,
    /// Packets of this interval, and those with a mark.
    packets: u64,
    marked: u64,
    /// Share of marks in the last intervals, in 1/1024.
    marked_share: u64,
}

impl Shares {
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            level: capacity,
            ..Self::default()
        }
    }

    /// `bytes` of a connection have arrived; `drained`: it has nothing more to send.
    //= MR-CC-010
    pub(super) fn arrived(
        &mut self,
        now: Instant,
        connection: u32,
        bytes: u64,
        marked: bool,
        drained: bool,
    ) {
        if self.capacity == 0 {
            return;
        }
        let elapsed = now.since(self.interval_start);
        if elapsed >= INTERVAL {
            self.end_interval(now, elapsed);
        }
        self.packets += 1;
        self.marked += u64::from(marked);
        if drained {
            if self.active.remove(&connection).is_some() {
                self.divide();
            }
            return;
        }
        self.enter(connection, bytes);
    }

    /// A connection is about to send, because we have asked it to: it counts from now on, so that
    /// the grants that go out with many questions fit together.
    pub(super) fn expect(&mut self, connection: u32) {
        if self.capacity > 0 {
            self.enter(connection, 0);
        }
    }

    /// Whether grants differ from the whole.
    pub(super) fn is_shared(&self) -> bool {
        self.active.len() > 1
    }

    fn enter(&mut self, connection: u32, bytes: u64) {
        let mut new = false;
        let active = self.active.entry(connection).or_insert_with(|| {
            new = true;
            Active {
                bytes: 0,
                rate: 0,
                slow: 0,
                silent: 0,
            }
        });
        active.bytes += bytes;
        active.silent = 0;
        if new {
            self.divide();
        }
    }

    /// A connection is gone.
    pub(super) fn forget(&mut self, connection: u32) {
        if self.active.remove(&connection).is_some() {
            self.divide();
        }
    }

    /// What a connection is granted, in units of 1000 bytes per second.
    pub(super) fn grant(&self) -> u32 {
        if self.capacity == 0 {
            return SHARE_UNLIMITED;
        }
        u32::try_from(self.level / 1000)
            .unwrap_or(SHARE_UNLIMITED - 1)
            .max(1)
    }

    fn end_interval(&mut self, now: Instant, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX).max(1);
        let intervals = nanos / u64::try_from(INTERVAL.as_nanos()).unwrap_or(1).max(1);
        let intervals = u32::try_from(intervals).unwrap_or(u32::MAX);
        for active in self.active.values_mut() {
            let rate = u128::from(active.bytes) * 1_000_000_000 / u128::from(nanos);
            active.rate = u64::try_from(rate).unwrap_or(u64::MAX);
            //= MR-CC-011
            active.slow = if active.rate < self.level / 4 * 3 {
                active.slow.saturating_add(1)
            } else {
                0
            };
            active.silent = if active.bytes == 0 {
                active.silent.saturating_add(intervals)
            } else {
                0
            };
            active.bytes = 0;
        }
        self.active
            //= MR-CC-012
            .retain(|_, active| active.silent < INTERVALS_SILENT_MAX);
        self.interval_start = now;
        let marked = self.marked * 1024 / self.packets.max(1);
        self.marked_share = (self.marked_share + marked) / 2;
        (self.packets, self.marked) = (0, 0);
        self.divide();
    }

    /// Slow senders are taken at their rate and a quarter, the others divide the rest.
    fn divide(&mut self) {
        let slow = |active: &Active| active.slow >= 2;
        let (mut taken, mut others) = (0_u64, 0_u64);
        for active in self.active.values() {
            if slow(active) {
                taken = taken.saturating_add(active.rate / 4 * 5);
            } else {
                others += 1;
            }
        }
        //= MR-CC-016
        // A queue stands before the port: it empties if less is granted than comes out, and as long
        // as it is there the port idles for nobody.
        let queue = self.capacity / 1024 * self.marked_share / QUEUE_DIVISOR;
        let capacity = self.capacity - queue;
        let equal = capacity / (self.active.len() as u64).max(1);
        let left = capacity.saturating_sub(taken) / others.max(1);
        // Never less than an equal division: what is slow now may not stay so.
        self.level = left.max(equal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 12_500_000_000;

    fn micros(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    //= MR-CC-010 type=test
    #[test]
    fn a_new_sender_counts_with_its_first_packet_and_a_drained_one_no_more() {
        let mut shares = Shares::new(LINE);
        assert_eq!(shares.grant(), 12_500_000);
        for connection in 0..10 {
            shares.arrived(micros(1), connection, 4096, false, false);
            assert_eq!(shares.grant(), 12_500_000 / (connection + 1));
        }
        for connection in 0..9 {
            shares.arrived(micros(2), connection, 4096, false, true);
        }
        assert_eq!(shares.grant(), 12_500_000);
    }

    //= MR-CC-011 type=test
    #[test]
    fn what_a_slow_sender_leaves_goes_to_the_others() {
        let mut shares = Shares::new(LINE);
        // One sends 1 Gb/s, two send what they may.
        for round in 0..20 {
            let now = micros(50 * round);
            shares.arrived(now, 0, 6_250, false, false);
            let granted = u64::from(shares.grant()) * 1000 / 20_000;
            shares.arrived(now, 1, granted, false, false);
            shares.arrived(now, 2, granted, false, false);
        }
        let granted = u64::from(shares.grant()) * 1000;
        assert!(
            granted > LINE * 45 / 100 && granted <= LINE / 2,
            "{granted}"
        );
    }

    //= MR-CC-012 type=test
    #[test]
    fn a_silent_sender_is_forgotten_after_four_intervals() {
        let mut shares = Shares::new(LINE);
        shares.arrived(micros(0), 0, 4096, false, false);
        for round in 1..10 {
            shares.arrived(micros(50 * round), 1, 4096, false, false);
            // Its interval, and four without it.
            let both = round < 5;
            assert_eq!(shares.active.len() == 2, both, "interval {round}");
        }
    }

    //= MR-CC-016 type=test
    #[test]
    fn of_the_line_rate_an_eighth_of_the_marked_share_is_not_granted() {
        let granted = |marked_of_four: u64| {
            let mut shares = Shares::new(LINE);
            for packet in 0..4000 {
                let marked = packet % 4 < marked_of_four;
                shares.arrived(micros(packet), 0, 12_500, marked, false);
            }
            f64::from(shares.grant()) / 12_500_000.0
        };
        assert!((granted(0) - 1.0).abs() < 0.001);
        assert!((granted(2) - 15.0 / 16.0).abs() < 0.01, "{}", granted(2));
        assert!((granted(4) - 7.0 / 8.0).abs() < 0.01, "{}", granted(4));
    }
}
