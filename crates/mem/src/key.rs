//! Keys and protection domains: the names by which memory is claimed.

use core::fmt;

/// Names one region or window: a 24-bit slot index and an 8-bit tag.
///
/// A region has one key, used both as L_Key and as R_Key. The tag is the generation of the slot:
/// it changes when the slot is used again, when a region gets another translation and when a
/// window is bound, so that an old key faults instead of naming something new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(pub u32);

impl Key {
    /// The key of `tag` in slot `index`.
    #[inline]
    pub(crate) const fn new(index: u32, tag: u8) -> Self {
        Self(index << 8 | tag as u32)
    }

    /// The slot, 24 bits.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The generation, the low byte.
    #[inline]
    pub const fn tag(self) -> u8 {
        self.0 as u8
    }

    /// The same slot under another tag.
    #[inline]
    #[must_use]
    pub const fn with_tag(self, tag: u8) -> Self {
        Self::new(self.index(), tag)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:#010x})", self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A protection domain: memory and queue pairs work together only within one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PdId(pub u32);

impl fmt::Display for PdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What someone says about memory, unproven: a key and a range under it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The key that was given.
    pub key: Key,
    /// First byte, in the terms of the region or window (its iova).
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "key {}, address {:#x}, {} bytes",
            self.key, self.address, self.length
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Claim, Key};

    #[test]
    fn a_key_is_index_and_tag() {
        let key = Key::new(0xab_cdef, 0x12);
        assert_eq!(key, Key(0xabcd_ef12));
        assert_eq!((key.index(), key.tag()), (0xab_cdef, 0x12));
        assert_eq!(key.with_tag(0xff), Key(0xabcd_efff));
    }

    #[test]
    fn a_claim_prints_what_was_asked_for() {
        let claim = Claim {
            key: Key(0x1234),
            address: 0xdead_0000,
            length: 8,
        };
        assert_eq!(
            claim.to_string(),
            "key 0x00001234, address 0xdead0000, 8 bytes"
        );
    }
}
