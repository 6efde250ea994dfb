//! MetaRoCE, sans-IO: behaviour as published by Meta, Feroce wire format v0.
//!
//! An [`Endpoint`] has connections to other processes and streams (queue pairs) on them. Data goes
//! over many paths at once and is placed as it lands; effects happen once and in the order of
//! their stream. Memory is the host's: this code holds keys and claims only.
//!
//! Read docs/spec/metaroce first; its requirements are cited here as `//= MR-…`.

mod config;
mod congestion;
mod connection;
mod counters;
mod endpoint;
mod event;
mod handshake;
mod job;
mod path;
mod port;
mod receive;
mod receive_path;
mod requester;
mod responder;
mod segments;
mod share;
mod siphash;
mod stream;
mod streams;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "toy memory is small")]
mod tests;
mod transmit;

pub use config::{EndpointConfig, WindowRule};
pub use counters::EndpointCounters;
pub use endpoint::{Endpoint, Handle};
pub use event::{ConnectError, Event, PathStatus};
pub use path::PathCounters;
pub use port::{Port, Route};
pub use stream::StreamTarget;
