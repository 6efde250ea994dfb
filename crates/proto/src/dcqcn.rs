//! How fast one queue pair may send: a limit set by the program, and DCQCN (SIGCOMM 2015).
//!
//! The reaction point of DCQCN is a small machine in integers: alpha estimates congestion, the
//! current rate is cut by alpha/2 per CNP and climbs back to the target rate, which then grows.
//! Its timers are not armed anywhere: what they would have done is worked out when a packet is
//! to leave or a CNP comes in. While no CNP has come for long enough to reach the line
//! rate again, nothing is paced. The notification point is in [`crate::responder`].

use crate::{DcqcnParameters, Instant};
use core::time::Duration;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// How far a sender may run ahead of its rate, so that packets leave in batches.
const BURST: Duration = Duration::from_micros(20);

/// Alpha = 1 in its fixed-point form.
const ALPHA_ONE: u64 = 1 << 20;

/// Intervals worked out one by one; after more of them without a CNP, nothing is left of it.
const CATCH_UP_MAX: u64 = 4096;

/// Spreads the packets of one queue pair over time.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes per second that the program allows; 0 without.
    limit: u64,
    dcqcn: Option<ReactionPoint>,
    /// When everything sent so far has passed at the rate.
    clear_at: Instant,
}

impl Pacer {
    pub(crate) fn new(limit: u64, dcqcn: Option<DcqcnParameters>) -> Self {
        Self {
            limit,
            dcqcn: dcqcn.map(ReactionPoint::new),
            clear_at: Instant::ZERO,
        }
    }

    pub(crate) const fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Whether a packet may leave now.
    pub(crate) fn allows(&self, now: Instant) -> bool {
        self.clear_at.since(now) <= BURST
    }

    /// Whether another packet may leave now after one of `bytes`.
    pub(crate) fn allows_after(&self, now: Instant, bytes: u64) -> bool {
        let congested = self
            .dcqcn
            .as_ref()
            .and_then(|dcqcn| dcqcn.disturbed.as_ref());
        let Some(rate) = self.rate(congested.map(|disturbed| disturbed.current)) else {
            return true;
        };
        (self.clear_at.max(now) + span(bytes, rate)).since(now) <= BURST
    }

    /// The lower of the two rates that may apply.
    fn rate(&self, congested: Option<u64>) -> Option<u64> {
        let limit = (self.limit > 0).then_some(self.limit);
        limit.into_iter().chain(congested).min()
    }

    /// When the next batch may leave.
    pub(crate) fn next_at(&self, now: Instant) -> Instant {
        let wait = self.clear_at.since(now).saturating_sub(BURST / 2);
        now + wait
    }

    /// A packet of `bytes` has left.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64) {
        let congested = self.dcqcn.as_mut().and_then(|dcqcn| dcqcn.sent(now, bytes));
        if let Some(rate) = self.rate(congested) {
            self.clear_at = self.clear_at.max(now) + span(bytes, rate);
        }
    }

    /// A CNP has come.
    pub(crate) fn congestion_notified(&mut self, now: Instant) {
        if let Some(dcqcn) = &mut self.dcqcn {
            dcqcn.notified(now);
        }
    }
}

/// How long `bytes` take at `rate`.
fn span(bytes: u64, rate: u64) -> Duration {
    let nanos = u128::from(bytes) * NANOS_PER_SECOND / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The reaction point of DCQCN for one queue pair.
#[derive(Debug)]
struct ReactionPoint {
    parameters: DcqcnParameters,
    /// `None` while undisturbed.
    disturbed: Option<Disturbed>,
    /// Congestion estimate, of [`ALPHA_ONE`].
    alpha: u64,
    /// Up to when alpha has decayed; it does not before the first CNP.
    alpha_at: Option<Instant>,
}

/// What CNPs have left behind.
#[derive(Debug)]
struct Disturbed {
    /// Bytes per second.
    current: u64,
    target: u64,
    cut_at: Instant,
    /// Increases by time and by bytes since the last cut.
    rounds_by_time: u64,
    rounds_by_bytes: u64,
    /// When the round that is being timed began.
    round_at: Instant,
    /// Bytes sent in the round that is being counted.
    round_bytes: u64,
}

impl ReactionPoint {
    const fn new(parameters: DcqcnParameters) -> Self {
        Self {
            parameters,
            disturbed: None,
            alpha: ALPHA_ONE,
            alpha_at: None,
        }
    }

    /// Counts a packet; returns the rate, if one applies.
    fn sent(&mut self, now: Instant, bytes: u64) -> Option<u64> {
        self.catch_up(now);
        let parameters = self.parameters;
        let disturbed = self.disturbed.as_mut()?;
        disturbed.round_bytes = disturbed.round_bytes.saturating_add(bytes);
        if disturbed.round_bytes >= parameters.increase_bytes.max(1) {
            disturbed.round_bytes = 0;
            disturbed.rounds_by_bytes += 1;
            disturbed.increase(&parameters);
        }
        Some(disturbed.current)
    }

    /// A CNP: cut, at most once per interval, and estimate more congestion.
    fn notified(&mut self, now: Instant) {
        self.catch_up(now);
        let parameters = self.parameters;
        let undisturbed = Disturbed {
            current: parameters.line_rate,
            target: parameters.line_rate,
            cut_at: now,
            rounds_by_time: 0,
            rounds_by_bytes: 0,
            round_at: now,
            round_bytes: 0,
        };
        let first = self.disturbed.is_none();
        let disturbed = self.disturbed.get_or_insert(undisturbed);
        if first || now.since(disturbed.cut_at) >= parameters.decrease_interval {
            disturbed.cut(now, self.alpha, parameters.rate_min);
        }
        self.alpha += (ALPHA_ONE - self.alpha) >> parameters.g_shift.min(20);
        self.alpha_at = Some(now);
    }

    /// Does what the timers would have done up to `now`.
    fn catch_up(&mut self, now: Instant) {
        let parameters = self.parameters;
        if let Some(alpha_at) = &mut self.alpha_at {
            for _ in 0..intervals(alpha_at, now, parameters.alpha_interval) {
                self.alpha -= self.alpha >> parameters.g_shift.min(20);
            }
        }
        let Some(disturbed) = &mut self.disturbed else {
            return;
        };
        let interval = parameters.increase_interval;
        for _ in 0..intervals(&mut disturbed.round_at, now, interval) {
            disturbed.rounds_by_time += 1;
            disturbed.increase(&parameters);
            if disturbed.current >= parameters.line_rate {
                self.disturbed = None;
                return;
            }
        }
    }
}

/// Whole intervals from `since` to `now`, at most [`CATCH_UP_MAX`]; moves `since` on.
fn intervals(since: &mut Instant, now: Instant, interval: Duration) -> u64 {
    let nanos = u64::try_from(interval.as_nanos())
        .unwrap_or(u64::MAX)
        .max(1);
    let passed = u64::try_from(now.since(*since).as_nanos()).unwrap_or(u64::MAX);
    let whole = passed / nanos;
    *since = *since + Duration::from_nanos(whole.saturating_mul(nanos));
    whole.min(CATCH_UP_MAX)
}

impl Disturbed {
    fn cut(&mut self, now: Instant, alpha: u64, rate_min: u64) {
        self.target = self.current;
        let part = u128::from(self.current) * u128::from(alpha) / (2 * u128::from(ALPHA_ONE));
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        self.current = self.current.saturating_sub(part).max(rate_min);
        self.cut_at = now;
        self.rounds_by_time = 0;
        self.rounds_by_bytes = 0;
        self.round_at = now;
        self.round_bytes = 0;
    }

    /// Fast recovery towards the target; then the target grows, by more once both the timer and
    /// the byte counter have passed fast recovery.
    fn increase(&mut self, parameters: &DcqcnParameters) {
        let fast = u64::from(parameters.fast_recovery_rounds);
        let least = self.rounds_by_time.min(self.rounds_by_bytes);
        let most = self.rounds_by_time.max(self.rounds_by_bytes);
        if least > fast {
            let step = parameters.hyper_increase.saturating_mul(least - fast);
            self.target = self.target.saturating_add(step);
        } else if most > fast {
            self.target = self.target.saturating_add(parameters.additive_increase);
        }
        self.target = self.target.min(parameters.line_rate);
        // Rounded up, so that the target is reached.
        self.current = self.current.midpoint(self.target).max(self.current + 1);
        self.current = self.current.min(self.target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: DcqcnParameters = DcqcnParameters {
        line_rate: 1_000_000_000,
        rate_min: 1_000_000,
        cnp_interval: Duration::from_micros(50),
        decrease_interval: Duration::from_micros(50),
        alpha_interval: Duration::from_micros(50),
        increase_interval: Duration::from_micros(55),
        increase_bytes: 10_000_000,
        g_shift: 8,
        fast_recovery_rounds: 5,
        additive_increase: 1_000_000,
        hyper_increase: 10_000_000,
    };

    fn micros(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    fn rate(point: &mut ReactionPoint, at: u64) -> Option<u64> {
        point.sent(micros(at), 0)
    }

    #[test]
    fn the_first_cnp_halves_and_fast_recovery_returns() {
        let mut point = ReactionPoint::new(PARAMETERS);
        assert_eq!(rate(&mut point, 0), None, "nothing is paced before a CNP");
        let start = 1_000_000;
        point.notified(micros(start));
        assert_eq!(rate(&mut point, start), Some(500_000_000));
        assert_eq!(rate(&mut point, start + 54), Some(500_000_000));
        assert_eq!(rate(&mut point, start + 55), Some(750_000_000));
        assert_eq!(rate(&mut point, start + 110), Some(875_000_000));
        // The target is the line rate, so recovery ends there.
        assert_eq!(rate(&mut point, start + 20_000), None);
    }

    #[test]
    fn cnps_within_an_interval_cut_once() {
        let mut point = ReactionPoint::new(PARAMETERS);
        for at in 0..50 {
            point.notified(micros(at));
        }
        assert_eq!(rate(&mut point, 50), Some(500_000_000));
        point.notified(micros(51));
        let after = rate(&mut point, 51).unwrap();
        assert!((250_000_000..260_000_000).contains(&after), "{after}");
    }

    #[test]
    fn a_second_target_grows_additively_after_fast_recovery() {
        let mut point = ReactionPoint::new(PARAMETERS);
        point.notified(micros(0));
        point.notified(micros(50));
        // Target 500 MB/s. Five rounds of fast recovery, then 1 MB/s per round.
        let near = rate(&mut point, 50 + 5 * 55).unwrap();
        assert!((490_000_000..500_000_000).contains(&near), "{near}");
        let later = rate(&mut point, 50 + 105 * 55).unwrap();
        assert!((590_000_000..601_000_000).contains(&later), "{later}");
    }

    #[test]
    fn bytes_and_time_together_grow_faster() {
        let mut by_time = ReactionPoint::new(PARAMETERS);
        let mut by_both = ReactionPoint::new(PARAMETERS);
        for point in [&mut by_time, &mut by_both] {
            point.notified(micros(0));
            point.notified(micros(50));
        }
        for round in 1..20 {
            rate(&mut by_time, 50 + round * 55);
            by_both.sent(micros(50 + round * 55), PARAMETERS.increase_bytes);
        }
        assert!(rate(&mut by_both, 1100).unwrap() > rate(&mut by_time, 1100).unwrap() + 50_000_000);
    }

    #[test]
    fn alpha_decays_so_that_late_cnps_cut_less() {
        let mut point = ReactionPoint::new(PARAMETERS);
        point.notified(micros(0));
        // 5,000 intervals later alpha is next to nothing.
        point.notified(micros(250_000));
        let after = rate(&mut point, 250_000).unwrap();
        assert!(after > 990_000_000, "{after}");
    }

    #[test]
    fn the_rate_has_a_floor() {
        let mut point = ReactionPoint::new(PARAMETERS);
        for round in 0..100 {
            point.notified(micros(round * 51));
        }
        assert_eq!(rate(&mut point, 100 * 51 - 51), Some(1_000_000));
    }

    #[test]
    fn packets_leave_in_batches_at_the_rate() {
        let mut pacer = Pacer::new(1_000_000_000, None); // a byte per nanosecond
        let mut now = Instant::ZERO;
        let mut sent = 0;
        while now < micros(10_000) {
            while pacer.allows(now) {
                pacer.sent(now, 1000);
                sent += 1;
            }
            let next = pacer.next_at(now);
            assert!(next > now);
            now = next;
        }
        assert!(
            (10_000..10_050).contains(&sent),
            "{sent} packets of 1 µs in 10 ms"
        );
    }
}
