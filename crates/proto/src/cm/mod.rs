//! The communication manager: how two queue pairs learn of each other, over management datagrams.
//!
//! Sans-IO as the rest of this crate: calls and datagrams go in, datagrams ([`Cm::poll_transmit`])
//! and events ([`Cm::poll_event`]) come out, time is an argument. One [`Cm`] serves one device
//! of one process. It knows neither queue pairs nor addresses: who resolves an address, creates a
//! queue pair and moves it from state to state on an event is `rdma_cm`'s business, not this
//! module's. Every call may change all three polls.
//!
//! Where the state tables leave a choice: a DREQ is answered at once, without asking the program;
//! a MRA goes out only when the peer repeats itself. A connection has a claim on the peer's queue
//! pair while it is established, and none when it is ending or over: only a REQ with the queue
//! pair of an established connection is rejected as stale, and with it that connection ends. In
//! all other cases in which a peer shows that it has begun anew, the old connection just makes
//! room. A request of our own that is rejected as stale is repeated, because the peer has made
//! room; one that finds nobody listening is repeated twice within 0.3 s, because two programs
//! that agree on a port by other means do not always listen first and ask second.
//!
//! Read IBTA volume 1 chapter 12 (12.9 has the state tables) and annex A11 first.

mod active;
mod book;
mod connection;
mod listeners;
mod passive;
mod refuse;
mod release;
mod sidr;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "toy numbers are small")]
mod tests;
mod types;

pub use refuse::refuse;
pub use types::{
    Accept, CmConfig, CmError, CmEvent, Connect, ConnectionId, ConnectionState, Disconnect, Listen,
    ListenAddress, ListenError, ListenerId, Reject, Route, SidrId, SidrReply, SidrRequest,
    address_of, gid_of,
};

use crate::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use connection::{Connection, Peer};
use core::net::IpAddr;
use feroce_wire::cm::{CmMad, Message};
use feroce_wire::mad::Mad;
use listeners::Listeners;
use sidr::Sidr;

/// Bits of a local communication id below the process slot.
const SLOT_SHIFT: u32 = 22;

/// The communication manager of one device of one process.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    listeners: Listeners,
    connections: BTreeMap<u32, Box<Connection>>,
    sidrs: BTreeMap<u32, Box<Sidr>>,
    /// Passive connections by the peer's device and id: a repeated REQ names them.
    by_request: BTreeMap<(u64, u32), u32>,
    /// Connections by the queue pair they hold at the peer.
    by_peer: BTreeMap<Peer, u32>,
    /// Received requests for datagram queue pairs, by who asked.
    by_asker: BTreeMap<(IpAddr, u32), u32>,
    timers: BTreeSet<(Instant, u32)>,
    /// What is over, in the order in which it ended.
    closed: BTreeMap<u64, u32>,
    next_closed: u64,
    next_index: u32,
    next_transaction: u64,
    transmits: VecDeque<(Route, Mad)>,
    events: VecDeque<CmEvent>,
}

impl Cm {
    /// A communication manager without listeners and connections.
    pub fn new(config: CmConfig) -> Self {
        // Spreads the seed: processes that follow one another in a slot differ in all of it.
        let spread = (config.seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let [.., a, b, c] = (spread >> 40).to_be_bytes();
        Self {
            config,
            listeners: Listeners::default(),
            connections: BTreeMap::new(),
            sidrs: BTreeMap::new(),
            by_request: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            by_asker: BTreeMap::new(),
            timers: BTreeSet::new(),
            closed: BTreeMap::new(),
            next_closed: 0,
            next_index: u32::from_be_bytes([0, a, b, c]) >> 2,
            next_transaction: spread << 16,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// If somebody has the same service and address, or the table is full.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, ListenError> {
        self.listeners.add(listen, self.config.listeners_max)
    }

    /// Stops to listen. Requests that have been told of stay: accept or reject them.
    pub fn unlisten(&mut self, listener: ListenerId) {
        self.listeners.remove(listener);
    }

    /// Where a connection stands, `None` if it is unknown.
    pub fn state(&self, connection: ConnectionId) -> Option<ConnectionState> {
        let connection = self.connections.get(&connection.0)?;
        Some(connection.state.public())
    }

    /// Takes a datagram that arrived on `route` (`remote` sent it). What is no message of the
    /// communication manager is dropped.
    pub fn handle_mad(&mut self, now: Instant, route: &Route, mad: &[u8]) {
        let Ok(mad) = CmMad::parse(mad) else {
            return;
        };
        match &mad.message {
            Message::Req(req) => self.on_req(now, mad.transaction_id, req, route),
            Message::Mra(mra) => self.on_mra(now, mra),
            Message::Rej(rej) => self.on_rej(now, rej),
            Message::Rep(rep) => self.on_rep(now, &mad, rep, route),
            Message::Rtu(rtu) => self.on_rtu(now, rtu),
            Message::Dreq(dreq) => self.on_dreq(now, &mad, dreq, route),
            Message::Drep(drep) => self.on_drep(now, drep),
            Message::SidrReq(request) => self.on_sidr_req(mad.transaction_id, request, route),
            Message::SidrRep(rep) => self.on_sidr_rep(now, rep),
            Message::Lap(lap) => self.on_lap(mad.transaction_id, lap, route),
            // No LAP was sent.
            Message::Apr(_) => {}
        }
    }

    /// Connections and requests that are remembered, those included that are over but may still
    /// have to answer late messages.
    pub fn records(&self) -> usize {
        self.connections.len() + self.sidrs.len()
    }

    /// When `handle_timeout` should be called next, `None`: never, as things stand.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// The next datagram to send from queue pair 1 to queue pair 1.
    #[must_use]
    pub fn poll_transmit(&mut self) -> Option<(Route, Mad)> {
        self.transmits.pop_front()
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }
}
