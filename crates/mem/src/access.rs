//! Access rights, with the bit values of `ibv_access_flags` (`infiniband/verbs.h`).

use core::{fmt, ops};

/// A set of access rights of a region, a window, a queue pair or an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u32);

impl Access {
    /// Nothing but local reading, which is always allowed.
    pub const NONE: Self = Self(0);
    /// The device writes for its own process: receives, READ responses, atomic results.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers write.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// Peers read.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Peers execute atomics.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// Windows may be bound to the region.
    pub const MW_BIND: Self = Self(1 << 4);
    /// Addresses count from 0 instead of the iova.
    pub const ZERO_BASED: Self = Self(1 << 5);
    /// Pages need not be mapped until they are used.
    pub const ON_DEMAND: Self = Self(1 << 6);
    /// The program promises huge pages; nothing follows from it here.
    pub const HUGETLB: Self = Self(1 << 7);
    /// Peers flush to global visibility.
    pub const FLUSH_GLOBAL: Self = Self(1 << 8);
    /// Peers flush to persistence.
    pub const FLUSH_PERSISTENT: Self = Self(1 << 9);
    /// The device may reorder its accesses; nothing follows from it here.
    pub const RELAXED_ORDERING: Self = Self(1 << 20);

    /// Bits that a device may ignore (`IBV_ACCESS_OPTIONAL_RANGE`).
    pub const OPTIONAL_RANGE: u32 = 0x3ff0_0000;

    const KNOWN: u32 = 0x3ff | Self::RELAXED_ORDERING.0;

    /// All rights that a peer can have.
    pub(crate) const REMOTE: Self = Self::REMOTE_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC)
        .union(Self::FLUSH_GLOBAL)
        .union(Self::FLUSH_PERSISTENT);

    /// The set that a program passed as `ibv_access_flags`; unknown optional bits are dropped.
    ///
    /// # Errors
    /// [`AccessError::UnknownBits`] if a bit outside the optional range has no meaning.
    pub const fn from_bits(bits: u32) -> Result<Self, AccessError> {
        let unknown = bits & !(Self::KNOWN | Self::OPTIONAL_RANGE);
        if unknown != 0 {
            return Err(AccessError::UnknownBits(unknown));
        }
        Ok(Self(bits & Self::KNOWN))
    }

    /// The bits, as `ibv_access_flags`.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in this set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is in this set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[inline]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether there is no right in it.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a region can have these rights.
    ///
    /// # Errors
    /// [`AccessError::NeedsLocalWrite`] if peers may write where the own device may not.
    pub const fn check_region(self) -> Result<(), AccessError> {
        if self.needs_local_write() && !self.contains(Self::LOCAL_WRITE) {
            return Err(AccessError::NeedsLocalWrite(self));
        }
        Ok(())
    }

    /// Whether peers may change memory.
    pub(crate) const fn needs_local_write(self) -> bool {
        self.intersects(Self::REMOTE_WRITE.union(Self::REMOTE_ATOMIC))
    }
}

impl ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut separator = "";
        for (right, name) in NAMES {
            if self.contains(right) {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        Ok(())
    }
}

/// Why a set of rights is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// Bits without a meaning; holds them.
    #[error("access flags {0:#x} are unknown: pass a combination of ibv_access_flags")]
    UnknownBits(u32),
    /// Remote write or atomic without local write; holds the whole set.
    #[error("access {0} lets peers write: add LOCAL_WRITE, or drop REMOTE_WRITE and REMOTE_ATOMIC")]
    NeedsLocalWrite(Access),
}

const NAMES: [(Access, &str); 11] = [
    (Access::LOCAL_WRITE, "LOCAL_WRITE"),
    (Access::REMOTE_WRITE, "REMOTE_WRITE"),
    (Access::REMOTE_READ, "REMOTE_READ"),
    (Access::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
    (Access::MW_BIND, "MW_BIND"),
    (Access::ZERO_BASED, "ZERO_BASED"),
    (Access::ON_DEMAND, "ON_DEMAND"),
    (Access::HUGETLB, "HUGETLB"),
    (Access::FLUSH_GLOBAL, "FLUSH_GLOBAL"),
    (Access::FLUSH_PERSISTENT, "FLUSH_PERSISTENT"),
    (Access::RELAXED_ORDERING, "RELAXED_ORDERING"),
];

#[cfg(test)]
mod tests {
    use super::{Access, AccessError, NAMES};

    #[test]
    fn bits_are_those_of_verbs_h() {
        let bits: Vec<u32> = NAMES.iter().map(|(right, _)| right.bits()).collect();
        assert_eq!(
            bits,
            [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0x10_0000],
            "ibv_access_flags"
        );
    }

    #[test]
    fn optional_bits_are_accepted_and_others_are_not() {
        assert_eq!(
            Access::from_bits(0x10_0001),
            Ok(Access::LOCAL_WRITE | Access::RELAXED_ORDERING)
        );
        assert_eq!(Access::from_bits(0x2000_0001), Ok(Access::LOCAL_WRITE));
        assert_eq!(
            Access::from_bits(0x4000_0401),
            Err(AccessError::UnknownBits(0x4000_0400))
        );
        assert_eq!(
            Access::from_bits(u32::MAX),
            Err(AccessError::UnknownBits(0xc00f_fc00))
        );
    }

    #[test]
    fn peers_write_only_where_the_device_may() {
        for remote in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            assert_eq!(
                remote.check_region(),
                Err(AccessError::NeedsLocalWrite(remote))
            );
            assert_eq!((remote | Access::LOCAL_WRITE).check_region(), Ok(()));
        }
        assert_eq!(Access::REMOTE_READ.check_region(), Ok(()));
        assert_eq!(Access::NONE.check_region(), Ok(()));
    }

    #[test]
    fn a_set_prints_its_names() {
        let set = Access::LOCAL_WRITE | Access::REMOTE_READ;
        assert_eq!(set.to_string(), "LOCAL_WRITE|REMOTE_READ");
        assert_eq!(Access::NONE.to_string(), "none");
    }
}
