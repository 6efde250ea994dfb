//! Random numbers from a seed, whose sequences never change (xoshiro256++, a public-domain
//! algorithm), and chances as whole numbers.

use core::fmt;

/// Random numbers from a seed and the name of a stream.
///
/// Every link and every workload draws from a stream of its own, so that what one of them does
/// changes no number that another one sees.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut x = seed ^ mix(stream);
        let state = [(); 4].map(|()| {
            x = x.wrapping_add(GOLDEN);
            mix(x)
        });
        Self { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// True as often as `chance` says. What never happens draws no number.
    pub fn happens(&mut self, chance: Chance) -> bool {
        chance.0 > 0 && self.below(Chance::ONE) < chance.0
    }

    /// Puts items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// How often something happens, in parts of a million.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Chance(u64);

impl Chance {
    const ONE: u64 = 1_000_000;
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Always.
    pub const ALWAYS: Self = Self(Self::ONE);

    /// `percent` in a hundred.
    pub const fn percent(percent: u64) -> Self {
        Self(percent * 10_000)
    }

    /// `parts` in a million.
    pub const fn millionths(parts: u64) -> Self {
        Self(parts)
    }

    /// Parts of a million.
    pub const fn as_millionths(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 10_000, self.0 % 10_000);
        if part == 0 {
            write!(f, "{whole} %")
        } else {
            write!(f, "{whole}.{part:04} %")
        }
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads the bits of a number over all 64 (the finish of SplitMix64).
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_never_change() {
        let mut random = Random::new(1, 0);
        let first = [(); 3].map(|()| random.bits());
        assert_eq!(
            first,
            [
                0xcfc5_d07f_6f03_c29b,
                0xbf42_4132_963f_e08d,
                0x19a3_7d57_57aa_f520
            ]
        );
        assert_ne!(Random::new(1, 1).bits(), first[0]);
    }

    #[test]
    fn a_chance_is_met() {
        let mut random = Random::new(7, 0);
        let hits = (0..100_000)
            .filter(|_| random.happens(Chance::percent(10)))
            .count();
        assert!((9_700..10_300).contains(&hits), "{hits}");
        assert!(!random.happens(Chance::NEVER));
        assert!(random.happens(Chance::ALWAYS));
    }
}
