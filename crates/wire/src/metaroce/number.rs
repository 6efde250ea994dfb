//! The numbers of MetaRoCE, each a type of its own.

use core::fmt;

/// Names a connection at the endpoint that chose it. Unpredictable for whoever does not see its
/// packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ConnectionId(pub u64);

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {:#018x}", self.0)
    }
}

macro_rules! wrapping {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// Steps from `earlier` to `self`: positive if `self` comes after it. The numbers wrap
            /// at 2^32.
            pub const fn distance_from(self, earlier: Self) -> i32 {
                self.0.wrapping_sub(earlier.0).cast_signed()
            }

            /// The number `steps` later; wraps.
            #[must_use]
            pub const fn plus(self, steps: u32) -> Self {
                Self(self.0.wrapping_add(steps))
            }

            /// The number after this one; wraps.
            #[must_use]
            pub const fn next(self) -> Self {
                self.plus(1)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

wrapping! {
    /// Numbers one *transmission* on one path and epoch. Not `Ord`: it wraps.
    PacketNumber
}
wrapping! {
    /// Numbers the messages of one stream and direction.
    MessageNumber
}
wrapping! {
    /// Numbers the receive requests of one stream: the receive that a message uses.
    ReceiveNumber
}

/// How often a path has changed its port; numbers of another epoch mean nothing in this one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epoch(pub u8);

impl Epoch {
    /// Changes from `earlier` to `self`, in -128..128.
    pub const fn distance_from(self, earlier: Self) -> i8 {
        self.0.wrapping_sub(earlier.0).cast_signed()
    }

    /// The epoch after this one; wraps.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
