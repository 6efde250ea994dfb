//! Packets to and from the machine: UDP sockets, slots, interfaces, impairment.
//!
//! This crate moves datagrams and knows nothing of what is in them: no header of the protocols
//! above, no queue pair, no memory region. What it does know is the machine: which sockets a
//! device needs so that many processes share one address ([`Net`]), which process owns a queue
//! pair number ([`Slot`]) or a port of the connection manager ([`Claim`]), which interfaces exist
//! ([`interfaces`], [`Monitor`]), and how to make a good network bad on purpose ([`lossy`]).
//!
//! What the design relies on (identification and DF of unconnected sockets, batches cut by the
//! kernel) is in docs/DESIGN.md §5 and §6.

mod claim;
mod counters;
#[cfg(fuzzing)]
pub mod fuzzing;
mod interface;
pub mod lossy;
mod net;
mod netlink;
mod slot;
mod sys;

pub use claim::{
    Claim, ClaimError, ConnectPort, Courier, Delivery, EPHEMERAL_PORTS, Place, REQUEST_MAX,
    Service, claim_descriptors,
};
pub use counters::Counters;
pub use interface::{Address, Change, Interface, Monitor, Scope, interfaces};
pub use net::bundle;
pub use net::{
    Datagram, Destination, ENTROPY_PORTS, Net, NetConfig, OpenError, SEGMENTS_MAX, SendError,
    UDP_PORT, Verdict,
};
pub use slot::{
    INDEX_BITS, MESSAGE_MAX, SLOT_BITS, SLOTS, Slot, SlotError, SlotMessage, SlotSendError, slot_of,
};
pub use sys::interrupted_calls_restart;
