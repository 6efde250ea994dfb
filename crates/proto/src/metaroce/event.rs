//! What an endpoint tells its host of connections and paths.

use super::endpoint::Handle;
use super::path::PathCounters;
use core::time::Duration;

/// Something that happened to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It is open: packets can flow in both directions.
    Open(Handle),
    /// It failed: the peer is gone or refused it. Its streams have failed too.
    Failed(Handle),
    /// The peer ended it. Its streams have failed.
    Closed(Handle),
}

/// Why no connection is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// As many as there may be.
    #[error("all {0} connections of the endpoint are in use")]
    Full(usize),
}

/// What is known of one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathStatus {
    /// Its number.
    pub path: u8,
    /// The plane it is on.
    pub plane: u8,
    /// Changes of its port, modulo 256.
    pub epoch: u8,
    /// Its UDP source port.
    pub source_port: u16,
    /// It does not answer and carries no data.
    pub suspect: bool,
    /// Smoothed round trip; zero: not measured.
    pub rtt: Duration,
    /// Least round trip.
    pub rtt_min: Duration,
    /// Window in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Share of marked packets, in 1/1024.
    pub marked_per_1024: u32,
    /// What it counts.
    pub counters: PathCounters,
}
