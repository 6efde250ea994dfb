//! When acknowledges wait for the program's next request.
//!
//! A program that answers what it receives (a ping-pong, a server) sends a packet right after each
//! one that arrives: the acknowledge leaves with it as one batch and costs no system call. A
//! program that does not answer must not keep its peer waiting. So waiting is tried only after the
//! program has answered promptly several times, and after each time in vain it takes more of them.

use feroce_proto::Instant;
use std::time::Duration;

/// How soon a request counts as an answer to what arrived.
const PROMPT: Duration = Duration::from_micros(50);

/// How long an acknowledge waits at most while the service thread is at work.
pub(crate) const HOLD: Duration = Duration::from_micros(50);

/// Prompt answers in a row after which acknowledges wait, at first and at most.
const TRUST_MIN: u32 = 4;
const TRUST_MAX: u32 = 64;

/// What the program's habits say.
#[derive(Debug)]
pub(crate) struct Piggyback {
    /// When packets last arrived, if no request followed yet.
    heard_at: Option<Instant>,
    /// Prompt answers in a row.
    answers: u32,
    /// How many it takes.
    trust: u32,
    /// Until when acknowledges wait, if they do.
    until: Option<Instant>,
}

impl Piggyback {
    pub(crate) const fn new() -> Self {
        Self {
            heard_at: None,
            answers: 0,
            trust: TRUST_MIN,
            until: None,
        }
    }

    /// Packets arrived: whether what they are owed waits for a request.
    pub(crate) fn heard(&mut self, now: Instant) -> bool {
        self.heard_at = Some(now);
        let waits = self.answers >= self.trust && self.until.is_none();
        if waits {
            self.until = Some(now + HOLD);
        }
        waits
    }

    /// The program posted requests.
    pub(crate) fn posted(&mut self, now: Instant) {
        if self.until.take().is_some() {
            self.trust = (self.trust - 1).max(TRUST_MIN);
        }
        if let Some(heard_at) = self.heard_at.take() {
            let prompt = now.since(heard_at) <= PROMPT;
            self.answers = if prompt {
                (self.answers + 1).min(TRUST_MAX)
            } else {
                0
            };
        }
    }

    /// No request came: acknowledges leave by themselves. `some`: there was one that waited.
    pub(crate) fn released(&mut self, some: bool) {
        self.until = None;
        if some {
            self.answers = 0;
            self.trust = (self.trust * 2).min(TRUST_MAX);
        }
    }

    /// Until when acknowledges wait, if they do.
    pub(crate) const fn until(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    /// Packets arrive at `micros` and are answered after `delay`.
    fn exchange(habits: &mut Piggyback, micros: u64, delay: u64) -> bool {
        let waits = habits.heard(at(micros));
        habits.posted(at(micros + delay));
        waits
    }

    #[test]
    fn acknowledges_wait_after_some_prompt_answers() {
        let mut habits = Piggyback::new();
        for round in 0..4 {
            assert!(!exchange(&mut habits, round * 100, 10));
        }
        assert!(exchange(&mut habits, 400, 10));
        assert_eq!(habits.until(), None);
    }

    #[test]
    fn a_late_answer_starts_anew() {
        let mut habits = Piggyback::new();
        for round in 0..8 {
            assert!(!exchange(
                &mut habits,
                round * 1_000,
                if round == 3 { 51 } else { 50 }
            ));
        }
        assert!(exchange(&mut habits, 8_000, 50));
    }

    #[test]
    fn requests_that_answer_nothing_prove_nothing() {
        let mut habits = Piggyback::new();
        habits.heard(at(0));
        (0..10).for_each(|micros| habits.posted(at(micros)));
        assert!(!habits.heard(at(20)));
    }

    #[test]
    fn waiting_in_vain_takes_twice_the_answers_to_try_again() {
        let mut habits = Piggyback::new();
        for round in 0..4 {
            exchange(&mut habits, round * 100, 1);
        }
        assert!(habits.heard(at(400)));
        assert_eq!(habits.until(), Some(at(450)));
        habits.released(true);
        let tries = (0..).find(|round| exchange(&mut habits, 1_000 + round * 100, 1));
        assert_eq!(tries, Some(8));
    }

    #[test]
    fn what_waits_already_does_not_wait_longer() {
        let mut habits = Piggyback::new();
        for round in 0..4 {
            exchange(&mut habits, round * 100, 1);
        }
        assert!(habits.heard(at(400)));
        assert!(!habits.heard(at(420)));
        assert_eq!(habits.until(), Some(at(450)));
    }
}
