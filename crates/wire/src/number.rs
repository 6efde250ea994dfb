//! The 24-bit numbers of the transport, each a type of its own.

use core::fmt;

const MASK: u32 = 0x00ff_ffff;

/// A packet sequence number. It wraps at 2^24 and is therefore not `Ord`: ask for the
/// [`distance_from`](Self::distance_from) another one (IBTA 9.7.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Takes the low 24 bits.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Packets from `earlier` to `self`: positive if `self` comes after it. In -2^23..2^23.
    pub const fn distance_from(self, earlier: Self) -> i32 {
        // Shift the 24-bit difference to the top so the sign bit lands right.
        ((self.0.wrapping_sub(earlier.0) << 8).cast_signed()) >> 8
    }

    /// The number `packets` later; wraps.
    #[must_use]
    pub const fn plus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// The number `packets` earlier; wraps.
    #[must_use]
    pub const fn minus(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// The number after this one; wraps.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Whether `self` lies before `other` on the shorter way round.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) < 0
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "psn {}", self.0)
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A message sequence number: messages a responder has completed, modulo 2^24 (IBTA 9.7.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Msn(u32);

impl Msn {
    /// Takes the low 24 bits.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The number after this one; wraps.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }

    /// Messages from `earlier` to `self`. In -2^23..2^23.
    pub const fn distance_from(self, earlier: Self) -> i32 {
        Psn(self.0).distance_from(Psn(earlier.0))
    }
}

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// Takes the low 24 bits.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// The number, below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QP {:#08x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn psn_distance_wraps_at_24_bits() {
        assert_eq!(Psn::new(0).distance_from(Psn::new(0xff_ffff)), 1);
        assert_eq!(Psn::new(0xff_ffff).distance_from(Psn::new(0)), -1);
        assert_eq!(Psn::new(0x80_0000).distance_from(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).distance_from(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(5).minus(6), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
    }
}
