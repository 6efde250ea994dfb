//! Simulated time in whole picoseconds, and the rates of links.
//!
//! A bit at 1 Tb/s lasts one picosecond, so the time a packet takes on a link of any usual rate is
//! a whole number, and 64 bits last for 213 days.

use core::fmt;
use core::ops::{Add, AddAssign, Mul};
use feroce_proto::Instant;

const PICOS_PER_NANO: u64 = 1_000;
const PICOS_PER_MICRO: u64 = 1_000_000;

/// A point in simulated time: picoseconds since the start of the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

/// A length of simulated time in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(u64);

impl Time {
    /// The start of a run.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const MAX: Self = Self(u64::MAX);

    /// `picos` picoseconds after the start.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// `micros` microseconds after the start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * PICOS_PER_MICRO)
    }

    /// Picoseconds since the start.
    pub const fn picos(self) -> u64 {
        self.0
    }

    /// Whole nanoseconds since the start, as protocols count time.
    pub const fn instant(self) -> Instant {
        Instant::from_nanos(self.0 / PICOS_PER_NANO)
    }

    /// The first picosecond of a protocol's nanosecond.
    pub const fn from_instant(instant: Instant) -> Self {
        Self(instant.nanos().saturating_mul(PICOS_PER_NANO))
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);

    /// `picos` picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos * PICOS_PER_NANO)
    }

    /// `micros` microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * PICOS_PER_MICRO)
    }

    /// Picoseconds.
    pub const fn picos(self) -> u64 {
        self.0
    }

    /// Microseconds, for people and tables.
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    pub const fn as_micros(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Several of it.
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }

    /// An equal part of it.
    pub const fn divided_by(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / PICOS_PER_MICRO, self.0 % PICOS_PER_MICRO);
        write!(f, "{whole}.{part:06} µs")
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

/// What a link carries, in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rate {
    bits_per_second: u64,
    /// Picoseconds per byte with 16 bits of fraction, so that no packet costs a division.
    picos_per_byte: u64,
}

impl Rate {
    /// `megabits` million bits per second; at least one.
    pub const fn megabits(megabits: u64) -> Self {
        let megabits = if megabits == 0 { 1 } else { megabits };
        Self {
            bits_per_second: megabits * 1_000_000,
            picos_per_byte: (8_000_000 << 16) / megabits,
        }
    }

    /// `gigabits` thousand million bits per second.
    pub const fn gigabits(gigabits: u64) -> Self {
        Self::megabits(gigabits * 1000)
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.bits_per_second
    }

    /// A part of it.
    pub const fn divided_by(self, parts: u64) -> Self {
        Self::megabits(self.bits_per_second / 1_000_000 / parts)
    }

    /// How long `bytes` take.
    pub const fn span_of(self, bytes: u64) -> Span {
        Span((bytes * self.picos_per_byte) >> 16)
    }

    /// Bytes that pass in `span`.
    pub const fn bytes_in(self, span: Span) -> u64 {
        let bits = span.0 as u128 * self.bits_per_second as u128 / 1_000_000_000_000;
        (bits / 8) as u64
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabits = self.bits_per_second / 1_000_000;
        if megabits.is_multiple_of(1000) {
            write!(f, "{} Gb/s", megabits / 1000)
        } else {
            write!(f, "{megabits} Mb/s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_rates_are_exact() {
        for (gigabits, picos) in [
            (1, 8000),
            (10, 800),
            (25, 320),
            (100, 80),
            (400, 20),
            (800, 10),
        ] {
            let rate = Rate::gigabits(gigabits);
            assert_eq!(rate.span_of(1), Span::from_picos(picos));
            assert_eq!(rate.span_of(4178), Span::from_picos(4178 * picos));
            assert_eq!(rate.bytes_in(rate.span_of(4178)), 4178);
        }
    }

    #[test]
    fn protocols_see_whole_nanoseconds() {
        let time = Time::from_picos(1_999);
        assert_eq!(time.instant().nanos(), 1);
        assert_eq!(Time::from_instant(time.instant()).picos(), 1_000);
    }
}
