//! Why access to memory is not granted. Local faults are this program's, remote ones the peer's.

use crate::{Access, Claim, Key, PdId};

/// A claim of this process's own work request that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocalFault {
    /// No region has this L_Key now.
    #[error("{0}: no region has this L_Key; was it deregistered?")]
    UnknownKey(Claim),
    /// The region is of another protection domain than the queue pair.
    #[error("{0}: the region is in protection domain {1}, not that of the queue pair")]
    WrongPd(Claim, PdId),
    /// The device would write, and the region has no LOCAL_WRITE.
    #[error("{0}: the device must write there; register the region with LOCAL_WRITE")]
    NotPermitted(Claim),
    /// The range is not all inside the region.
    #[error("{0}: outside of the region")]
    OutOfRange(Claim),
}

/// A claim of a peer that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteFault {
    /// No region or window has this R_Key now.
    #[error("{0}: the peer's R_Key names no region or window; was it deregistered or rebound?")]
    UnknownKey(Claim),
    /// The window is not bound.
    #[error("{0}: the window of the peer's R_Key is not bound")]
    Unbound(Claim),
    /// The memory is of another protection domain than the queue pair.
    #[error("{0}: the memory is in protection domain {1}, not that of the queue pair")]
    WrongPd(Claim, PdId),
    /// The type 2 window is bound to another queue pair, given.
    #[error("{0}: the window is bound to queue pair {1:#x}")]
    WrongQp(Claim, u32),
    /// Not all the rights asked for, given, were granted to peers.
    #[error("{0}: peers have no right of {1} there")]
    NotPermitted(Claim, Access),
    /// The range is not all inside the region or window.
    #[error("{0}: the peer claims memory outside of the region or window")]
    OutOfRange(Claim),
}

/// Why a granted range cannot be used after all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GrantFault {
    /// A page is not mapped, or protected against this access.
    #[error(
        "memory at {address:#x} cannot be used (errno {errno}): map it, or change its protection"
    )]
    NotMapped {
        /// First address known to be affected.
        address: usize,
        /// What the kernel said.
        errno: i32,
    },
    /// An atomic needs an address that is a multiple of 8.
    #[error("atomic access at {address:#x}, which is not a multiple of 8")]
    Misaligned {
        /// Address in this process.
        address: usize,
    },
    /// The grant was asked for something else: a fault of the engine.
    #[error("the grant does not cover this kind of access")]
    NotGranted,
    /// Bytes and grant differ in length, or a part lies outside: a fault of the engine.
    #[error("access of {wanted} bytes under a grant of {granted}")]
    WrongLength {
        /// Bytes of the grant.
        granted: usize,
        /// Bytes, or end of the part, asked for.
        wanted: usize,
    },
}

/// Why a key cannot be invalidated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidateFault {
    /// No region or window has this key now.
    #[error("key {0} names no region or window")]
    UnknownKey(Key),
    /// Only type 2 windows can be invalidated.
    #[error("key {0} is of a region or a type 1 window: only type 2 windows can be invalidated")]
    NotType2(Key),
    /// The window is not bound.
    #[error("the window of key {0} is not bound")]
    Unbound(Key),
    /// The window is of another protection domain, given, than the queue pair.
    #[error("the window of key {0} is in protection domain {1}, not that of the queue pair")]
    WrongPd(Key, PdId),
    /// The window is bound to another queue pair, given.
    #[error("the window of key {0} is bound to queue pair {1:#x}")]
    WrongQp(Key, u32),
}
