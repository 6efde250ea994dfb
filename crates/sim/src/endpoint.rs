//! What a host runs: a protocol behind one interface, whatever the protocol.
//!
//! An endpoint is an adapter. It opens flows, turns messages into the protocol's work requests,
//! stands in for memory, and reports what it sees there. It holds no protocol logic.

use crate::{Frame, HostId, Operation};
use feroce_proto::Instant;
use feroce_wire::Address;

/// A flow: messages from one program to another, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// Which end of a flow a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It posts the requests.
    Requester,
    /// It does not.
    Responder,
}

/// What an endpoint is told of a flow when it opens one.
#[derive(Clone, Copy, Debug)]
pub struct FlowSetup {
    /// Its number.
    pub flow: FlowId,
    /// Which end we are.
    pub role: Role,
    /// This host.
    pub local: HostId,
    /// The other one.
    pub peer: HostId,
    /// Ports that the flow may use, from 0.
    pub ports: u32,
    /// What its messages are.
    pub operation: Operation,
    /// Bytes of each message.
    pub message_bytes: u32,
    /// Messages in all.
    pub messages: u64,
    /// Most messages posted and not completed.
    pub depth: u32,
}

impl FlowSetup {
    /// From one message's first byte to the next one's. The bytes of message *k* live at *k*
    /// strides at both ends, so that an address tells message and offset.
    pub const fn stride(&self) -> u64 {
        (self.message_bytes as u64).next_multiple_of(4096) + 4096
    }
}

/// Something an endpoint saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// Payload was put into memory.
    Placed {
        /// Of this flow.
        flow: FlowId,
        /// Where.
        address: u64,
        /// Bytes.
        length: u32,
    },
    /// A posted message completed at the requester.
    Completed {
        /// Of this flow.
        flow: FlowId,
        /// Which one.
        message: u64,
        /// `None` if well, else the name of what went wrong.
        error: Option<&'static str>,
    },
    /// A receive completed at the responder.
    Received {
        /// Of this flow.
        flow: FlowId,
        /// The receive.
        message: u64,
        /// Bytes of it.
        length: u32,
        /// `None` if well, else the name of what went wrong.
        error: Option<&'static str>,
    },
    /// Bytes came out different from what was sent (only with checked payloads).
    Wrong {
        /// Of this flow.
        flow: FlowId,
        /// Where the first one is.
        address: u64,
    },
}

/// Counters every protocol has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndpointStatistics {
    /// Packets sent.
    pub sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Times that nothing came back in time.
    pub timeouts: u64,
    /// Packets received that had been received before.
    pub duplicates: u64,
    /// Packets received with a congestion mark.
    pub marked: u64,
    /// Packets received with a wrong checksum, and dropped.
    pub corrupt: u64,
}

/// Where an endpoint puts the packets it sends: the ports of its host.
#[derive(Debug)]
pub struct Uplink {
    room: Vec<u32>,
    frames: Vec<(u32, Frame)>,
}

impl Uplink {
    pub(crate) const fn new() -> Self {
        Self {
            room: Vec::new(),
            frames: Vec::new(),
        }
    }

    pub(crate) fn offer(&mut self, room: impl Iterator<Item = u32>) {
        self.room.clear();
        self.room.extend(room);
    }

    pub(crate) fn has_any_room(&self) -> bool {
        self.room.iter().any(|&room| room > 0)
    }

    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, (u32, Frame)> {
        self.frames.drain(..)
    }

    /// Packets that a port takes now.
    pub fn room(&self, port: u32) -> u32 {
        self.room.get(port as usize).copied().unwrap_or(0)
    }

    /// Packets that each port takes now.
    pub fn rooms(&self) -> impl Iterator<Item = u32> {
        self.room.iter().copied()
    }

    /// Sends a packet by a port.
    ///
    /// # Panics
    /// If the port has no room: ask first.
    pub fn send(&mut self, port: u32, frame: Frame) {
        let room = &mut self.room[port as usize];
        assert!(*room > 0, "port {port} has no room");
        *room -= 1;
        self.frames.push((port, frame));
    }
}

/// A protocol on a host.
pub trait Endpoint {
    /// Gets ready for a flow; both ends do, before it begins.
    fn open(&mut self, now: Instant, setup: &FlowSetup);

    /// Posts message number `message` of a flow; they come in order.
    fn post(&mut self, now: Instant, flow: FlowId, message: u64);

    /// Takes in the UDP payload of a packet; a corrupt one is to be found out by its checksum if
    /// payloads are checked, else by `is_corrupt`.
    fn handle_packet(
        &mut self,
        now: Instant,
        address: &Address,
        destination_port: u16,
        bytes: &[u8],
        is_corrupt: bool,
    );

    /// Lets timers fire that are due.
    fn handle_timeout(&mut self, now: Instant);

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Sends what may be sent now, as far as ports have room. Called again when one gets room.
    fn poll_transmit(&mut self, now: Instant, uplink: &mut Uplink);

    /// Hands out what was seen since the last call, in order.
    fn take_reports(&mut self, now: Instant, into: &mut Vec<Report>);

    /// Counters.
    fn statistics(&self) -> EndpointStatistics;
}

impl EndpointStatistics {
    pub(crate) const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.retransmitted += other.retransmitted;
        self.timeouts += other.timeouts;
        self.duplicates += other.duplicates;
        self.marked += other.marked;
        self.corrupt += other.corrupt;
    }
}
