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
mod completion;
mod host;
mod request;
mod time;

pub use attributes::{
    AttributeMask, Mtu, Path, QpAttributes, QpCapabilities, QpInit, QpState, QpType, SrqAttributes,
    SrqInit,
};
pub use completion::{AsyncEvent, Completion, CompletionOpcode, CompletionStatus};
pub use host::{
    AtomicOperation, Envelope, Host, LocalFault, Payload, RemoteAccess, RemoteFault, RemoteRange,
    TransmitError,
};
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
