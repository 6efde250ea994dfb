//! Timers that fire late because this process, or the whole machine, stood still.
//!
//! A timer that is due for long was not looked at: nobody here ran meanwhile, and often the peer
//! did not either (a virtual machine that was stopped, a laptop that slept). What the timer waits
//! for is on its way then, so the peer gets a moment to run before the timer may fire.

use feroce_proto::Instant;
use std::time::Duration;

/// A timer that is due for so long was not looked at in time.
const LATE: Duration = Duration::from_millis(20);

/// What the peer gets to run: some turns at the processor.
const GRACE: Duration = Duration::from_millis(10);

/// Whether late timers wait.
#[derive(Debug, Default)]
pub(crate) struct Lateness {
    until: Option<Instant>,
}

impl Lateness {
    /// Whether timers that are due since `due` wait still.
    pub(crate) fn excuses(&mut self, due: Instant, now: Instant) -> bool {
        if now.since(due) < LATE {
            self.until = None;
            return false;
        }
        let until = *self.until.get_or_insert(now + GRACE);
        // Once: the grace counts for what was due when it began, and ends with it.
        now < until
    }

    /// Timers have fired, or none is due any more.
    pub(crate) const fn settle(&mut self) {
        self.until = None;
    }

    /// Until when timers wait.
    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_timer_that_is_looked_at_in_time_fires() {
        let mut lateness = Lateness::default();
        assert!(!lateness.excuses(at(100), at(100)));
        assert!(!lateness.excuses(at(100), at(119)));
        assert_eq!(lateness.until(), None);
    }

    #[test]
    fn one_that_is_late_waits_a_moment_and_then_fires() {
        let mut lateness = Lateness::default();
        assert!(lateness.excuses(at(100), at(120)));
        assert_eq!(lateness.until(), Some(at(130)));
        assert!(lateness.excuses(at(100), at(129)));
        assert!(!lateness.excuses(at(100), at(130)));
        lateness.settle();
        assert!(lateness.excuses(at(140), at(170)), "the next standstill");
    }
}
