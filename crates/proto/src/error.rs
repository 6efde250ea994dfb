//! Errors of the verbs: each names what was wrong and what would be right.

use crate::{AttributeMask, Mtu, QpState, QpType, SrqId};
use core::fmt;
use feroce_wire::Qpn;

/// Why a queue pair or shared receive queue is not created. The caller's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// The host chose a number twice.
    #[error("{0:?} exists already")]
    QpnInUse(Qpn),
    /// The host chose a number twice.
    #[error("SRQ {0:?} exists already")]
    SrqInUse(SrqId),
    /// QP numbers 0, 1 and 0xffffff have a meaning of their own.
    #[error("{0:?} is reserved")]
    QpnReserved(Qpn),
    /// The device is full.
    #[error("all {max} {what} of the device are in use")]
    DeviceFull {
        /// Plural name.
        what: &'static str,
        /// How many there are.
        max: u32,
    },
    /// A capacity above the device's.
    #[error("{what} is {asked}, but the device allows {max} at most")]
    TooMuch {
        /// The capacity, by its verbs name.
        what: &'static str,
        /// Wanted.
        asked: u32,
        /// Allowed.
        max: u32,
    },
    /// No such shared receive queue.
    #[error("SRQ {0:?} does not exist")]
    UnknownSrq(SrqId),
    /// A shared receive queue that is for XRC, or one that a type cannot have.
    #[error("a queue pair of type {0:?} cannot use this SRQ")]
    SrqNotUsable(QpType),
    /// An XRC target needs its domain.
    #[error("a queue pair of type XrcRecv needs an XRC domain (xrcd)")]
    XrcdMissing,
}

/// Why a queue pair or shared receive queue is not destroyed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestroyError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(Qpn),
    /// No such shared receive queue.
    #[error("SRQ {0:?} does not exist")]
    UnknownSrq(SrqId),
    /// Detach it from its multicast groups first.
    #[error("{0:?} is attached to a multicast group: detach it first")]
    AttachedToMulticast(Qpn),
    /// Destroy its queue pairs first.
    #[error("SRQ {0:?} is used by queue pairs: destroy them first")]
    SrqInUse(SrqId),
}

/// Why an attach or detach fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MulticastError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(Qpn),
    /// Only datagrams go to groups.
    #[error("{0:?} is not of type UD: only datagrams go to multicast groups")]
    NotDatagram(Qpn),
    /// Not a multicast address.
    #[error("the address is no multicast address")]
    NotMulticast,
    /// The device is full.
    #[error("all {0} multicast attachments of the device are in use")]
    DeviceFull(u32),
    /// It was not attached.
    #[error("{0:?} is not attached to this group")]
    NotAttached(Qpn),
}

/// Why `modify_qp` changes nothing. The caller's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(Qpn),
    /// The state table has no such edge.
    #[error("a queue pair of type {qp_type:?} cannot go from {from:?} to {to:?}")]
    Transition {
        /// Its type.
        qp_type: QpType,
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// Attributes that the transition needs are not in the mask.
    #[error("{from:?} to {to:?} needs {missing}")]
    Missing {
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The attributes.
        missing: Names,
    },
    /// Attributes that the transition does not take are in the mask.
    #[error("{from:?} to {to:?} does not take {extra}")]
    NotAllowed {
        /// Its state.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The attributes.
        extra: Names,
    },
    /// A value outside of its range.
    #[error("{attribute} is {value}, but {max} at most")]
    OutOfRange {
        /// The attribute, by its verbs name.
        attribute: &'static str,
        /// Wanted.
        value: u32,
        /// Allowed.
        max: u32,
    },
    /// `cur_qp_state` is wrong.
    #[error("cur_qp_state says {said:?}, but the queue pair is in {is:?}")]
    CurrentState {
        /// What the caller said.
        said: QpState,
        /// What is true.
        is: QpState,
    },
    /// The interface cannot carry packets of that size.
    #[error("path_mtu is {asked:?}, but the interface carries {max:?} at most: lower path_mtu")]
    PathMtu {
        /// Wanted.
        asked: Mtu,
        /// Allowed.
        max: Mtu,
    },
    /// `ah_attr` names no address, or two of different families.
    #[error("ah_attr must hold a global route (is_global, a source and a destination GID)")]
    Path,
}

/// Prints the verbs names of the attributes in a mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Names(pub AttributeMask);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for bit in 0..32 {
            if self.0.0 & (1 << bit) != 0 {
                let name = NAMES.get(bit).copied().unwrap_or("an unknown attribute");
                write!(f, "{separator}{name}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// Names of the bits of `ibv_qp_attr_mask`.
const NAMES: [&str; 26] = [
    "qp_state",
    "cur_qp_state",
    "en_sqd_async_notify",
    "qp_access_flags",
    "pkey_index",
    "port_num",
    "qkey",
    "ah_attr",
    "path_mtu",
    "timeout",
    "retry_cnt",
    "rnr_retry",
    "rq_psn",
    "max_rd_atomic",
    "alt_ah_attr",
    "min_rnr_timer",
    "sq_psn",
    "max_dest_rd_atomic",
    "path_mig_state",
    "cap",
    "dest_qp_num",
    "a reserved attribute",
    "a reserved attribute",
    "a reserved attribute",
    "a reserved attribute",
    "rate_limit",
];

/// Why a work request is not posted. The caller's fault; nothing was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(Qpn),
    /// No such shared receive queue.
    #[error("SRQ {0:?} does not exist")]
    UnknownSrq(SrqId),
    /// The queue holds as many requests as it was created for.
    #[error("the queue is full: it was created for {0} work requests")]
    QueueFull(u32),
    /// The state takes no such request.
    #[error("a queue pair in state {0:?} takes no such request")]
    BadState(QpState),
    /// More entries than the queue was created for.
    #[error("{asked} scatter/gather entries, but the queue was created for {max}")]
    TooManySge {
        /// In the request.
        asked: usize,
        /// Allowed.
        max: u32,
    },
    /// More inline bytes than the queue pair was created for.
    #[error("{asked} inline bytes, but the queue pair was created for max_inline_data {max}")]
    InlineTooLong {
        /// In the request.
        asked: usize,
        /// Allowed.
        max: u32,
    },
    /// The operation takes no inline data.
    #[error("this operation takes no inline data")]
    InlineNotAllowed,
    /// The service has no such operation.
    #[error("a queue pair of type {0:?} has no such operation")]
    OpcodeNotSupported(QpType),
    /// A datagram without an address handle.
    #[error("a datagram needs a target: address handle, remote QP number and Q_Key")]
    MissingTarget,
    /// Longer than a message may be.
    #[error("{bytes} bytes, but a message of this type has {max} at most")]
    TooLong {
        /// In the request.
        bytes: u64,
        /// Allowed.
        max: u64,
    },
    /// Atomics work on eight bytes.
    #[error("{0} bytes of local memory, but an atomic needs eight")]
    AtomicLength(u64),
    /// The queue pair has no receive queue of its own.
    #[error("the queue pair has no receive queue of its own: post to its SRQ")]
    NoReceiveQueue,
}

/// Why an SRQ is not modified.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SrqError {
    /// No such shared receive queue.
    #[error("SRQ {0:?} does not exist")]
    Unknown(SrqId),
    /// A size above the device's.
    #[error("max_wr is {asked}, but the device allows {max} at most")]
    TooLarge {
        /// Wanted.
        asked: u32,
        /// Allowed.
        max: u32,
    },
    /// A size below the requests that are posted now.
    #[error("max_wr is {asked}, but {posted} requests are posted")]
    InUse {
        /// Wanted.
        asked: u32,
        /// Posted.
        posted: u32,
    },
    /// A limit above the size.
    #[error("srq_limit is {limit}, but the queue holds {max_wr}")]
    Limit {
        /// Wanted.
        limit: u32,
        /// Size.
        max_wr: u32,
    },
}
