//! Drives the protocols of `feroce-proto` over sockets and application memory.
//!
//! One [`Device`] stands for one network interface in one process. Everything that packets touch
//! (protocol, memory table, sockets) lies under one lock; completion queues are polled without
//! it. The program's own calls make progress; a service thread covers for programs that sleep.
//!
//! Not here: verbs objects and their life times (`feroce-verbs`), protocol rules (`feroce-proto`).

#![forbid(unsafe_code)]

mod batch;
mod clock;
mod core;
mod counter;
mod cq;
mod device;
mod discover;
mod events;
mod fork;
mod gsi;
mod host;
mod ids;
mod lateness;
mod listeners;
mod piggyback;
mod queues;
mod service;
mod settings;
mod statistics;
mod waiter;

pub use crate::core::Counters;
pub use counter::{counter, hardware_counter_names, port_counter_names};
pub use cq::{Channel, Cq, Notify, Stamped};
pub use device::{Device, DeviceEvent, DeviceEvents, OpenError};
pub use discover::{Candidate, GID_TABLE_LEN, Gid, PortInfo, candidates, gid_address, gid_bytes};
pub use events::{EVENTS_MAX, EventQueue};
pub use feroce_netio::{ClaimError, Place};
pub use fork::{Forking, before_fork};
pub use gsi::{Agent, AgentError, Listener, MAD_LEN, Mad, MadAddress, MadSendError};
pub use queues::{PostListError, QpError};
pub use statistics::before_exit;

use feroce_wire::Qpn;

/// Bits of a queue pair number below the slot (DESIGN: a QPN is slot and index).
pub const QPN_INDEX_BITS: u32 = 14;

/// The process slot that a queue pair number belongs to.
pub(crate) const fn slot_of(qpn: Qpn) -> u16 {
    // 24 - 14 = 10 bits.
    (qpn.value() >> QPN_INDEX_BITS) as u16
}
