//! A deterministic packet-level simulator of Ethernet fabrics that runs the protocol code of
//! `feroce-proto` unmodified.
//!
//! Discrete events in whole picoseconds, one seed, no floating point in any state: the same
//! seed gives the same run, event for event. A [`Topology`] of hosts, switches and links becomes
//! a [`World`] with an [`Endpoint`] on every host; [`Flow`]s are what programs ask for,
//! [`Fault`]s what goes wrong, and oracles watch that every byte and every message arrives
//! exactly once. [`experiment`] has the questions that the transports are judged by.
//!
//! It is no second implementation of anything: what a host sends is decided by `proto` alone. What
//! is modelled and what is not is written in `docs/sim.md`.
#![forbid(unsafe_code)]

mod channel;
mod endpoint;
mod events;
pub mod experiment;
mod fabric;
mod fault;
mod frame;
mod host;
mod ledger;
mod memory;
mod metaroce;
mod network;
mod random;
mod roce;
#[cfg(test)]
mod tests;
mod time;
mod topology;
mod world;

pub use channel::ChannelStatistics;
pub use endpoint::{Endpoint, EndpointStatistics, FlowId, FlowSetup, Report, Role, Uplink};
pub use events::EventQueue;
pub use fabric::{Fabric, LeafSpine, back_to_back, dumbbell};
pub use fault::{Action, Fault, Impairment};
pub use frame::{FRAMING_BYTES, Frame, FrameBytes};
pub use ledger::{FlowResult, Violation};
pub use metaroce::{MetaroceHost, MetaroceSettings};
pub use network::Network;
pub use random::{Chance, Random};
pub use roce::{Roce, RoceSettings};
pub use time::{Rate, Span, Time};
pub use topology::{
    ChannelId, EcmpRule, EcnRamp, HostId, LinkConfig, LinkId, Node, SwitchConfig, SwitchId,
    Topology, address,
};
pub use world::{Flow, Operation, Samples, World};

pub(crate) use frame::FrameId;
