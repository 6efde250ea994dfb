//! Sans-IO RDMA transport protocols: queue pairs of the services RC, UC, UD and XRC.
//!
//! Nothing here knows a socket, a thread, a clock or application memory. Time is an argument.
//! Calls go in through `handle_*` and the verbs of [`Nic`]; packets, memory accesses and
//! completions go out through the [`Host`] passed in. The same calls give the same results, so
//! the engine, the simulator and the compliance suite all drive this code.
//!
//! Read IBTA volume 1 chapters 9 (transport) and 10 (queue pairs) first.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod attributes;
pub mod cm;
mod completion;
mod config;
mod counters;
mod datagram;
mod dcqcn;
mod error;
mod host;
mod lists;
pub mod metaroce;
mod nic;
mod qp;
mod request;
mod requester;
mod responder;
mod srq;
mod table;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "toy memory is small")]
mod testing;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "toy memory is small")]
mod tests;
mod time;
mod timers;
mod transition;
mod window;

pub use attributes::{
    AttributeMask, Mtu, Path, QpAttributes, QpCapabilities, QpInit, QpState, QpType, SrqAttributes,
    SrqInit,
};
pub use completion::{AsyncEvent, Completion, CompletionOpcode, CompletionStatus};
pub use config::{
    CongestionControl, DcqcnParameters, MESSAGE_BYTES_MAX, NicConfig, RD_ATOMIC_MAX, SGE_MAX,
};
pub use counters::Counters;
pub use error::{
    CreateError, DestroyError, ModifyError, MulticastError, Names, PostError, SrqError,
};
pub use host::{
    AtomicOperation, Envelope, GSI_QKEY, Host, LocalFault, MAD_LEN, Payload, RemoteAccess,
    RemoteFault, RemoteRange, TransmitError,
};
pub use nic::{GSI_QPN, Nic, Progress};
pub use request::{
    BindRequest, Data, DatagramTarget, RecvRequest, Remote, SendFlags, SendOperation, SendRequest,
    Sge, SgeList,
};
pub use time::Instant;

/// A protection domain, named by the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PdId(pub u32);

/// A completion queue, named by the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CqId(pub u32);

/// A shared receive queue: its 24-bit SRQ number, chosen by the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SrqId(pub u32);

/// An XRC domain, named by the host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct XrcdId(pub u32);
