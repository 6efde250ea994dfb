//! The communication manager: how two queue pairs learn of each other, over management datagrams.
//!
//! Sans-IO as the rest of this crate: calls and datagrams go in, datagrams ([`Cm::poll_transmit`])
//! and events ([`Cm::poll_event`]) come out, time is an argument. One [`Cm`] serves one device
//! of one process. It knows neither queue pairs nor addresses: who resolves an address, creates a
//! queue pair and moves it from state to state on an event is `rdma_cm`'s business, not this
//! module's. Every call may change all three polls.
//!
//! Read IBTA volume 1 chapter 12 (12.9 has the state tables) and annex A11 first.

mod types;

pub use types::{
    Accept, CmConfig, CmError, CmEvent, Connect, ConnectionId, ConnectionState, Disconnect, Listen,
    ListenAddress, ListenError, ListenerId, Reject, Route, SidrId, SidrReply, SidrRequest,
    address_of, gid_of,
};

use crate::Instant;
use alloc::collections::VecDeque;
use feroce_wire::mad::Mad;

/// The communication manager of one device of one process.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    transmits: VecDeque<(Route, Mad)>,
    events: VecDeque<CmEvent>,
}

impl Cm {
    /// A communication manager without listeners and connections.
    pub fn new(config: CmConfig) -> Self {
        Self {
            config,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// If somebody has the same service and address, or the table is full.
    pub fn listen(&mut self, listen: Listen) -> Result<ListenerId, ListenError> {
        let _ = listen;
        Err(ListenError::Full(self.config.listeners_max))
    }

    /// Stops to listen. Requests that have been told of stay: accept or reject them.
    pub fn unlisten(&mut self, listener: ListenerId) {
        let _ = listener;
    }

    /// Asks for a connection. `Reply`, `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    /// If the private data is too long or the table is full.
    pub fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
    ) -> Result<ConnectionId, CmError> {
        let _ = (now, connect);
        Err(CmError::Full(self.config.open_max))
    }

    /// Passive side: accepts a request. `Established`, `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    /// If the connection is not `ReqReceived`, or the private data is too long.
    pub fn accept(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        accept: &Accept<'_>,
    ) -> Result<(), CmError> {
        let _ = (now, accept);
        Err(CmError::UnknownConnection(connection))
    }

    /// Rejects a request (passive side) or a reply (active side). The connection is over; no
    /// event follows.
    ///
    /// # Errors
    /// If the connection is neither `ReqReceived` nor `RepReceived`, or something is too long.
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        reject: &Reject<'_>,
    ) -> Result<(), CmError> {
        let _ = (now, reject);
        Err(CmError::UnknownConnection(connection))
    }

    /// Active side: this side is ready (RTU). The connection is established; no event follows.
    ///
    /// # Errors
    /// If the connection is not `RepReceived`, or the private data is too long.
    pub fn establish(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let _ = (now, private_data);
        Err(CmError::UnknownConnection(connection))
    }

    /// Passive side: something has arrived on the queue pair, so the peer is ready although its
    /// RTU has not come (IBTA 12.9.7.2). `Established` follows, unless it has been told before.
    ///
    /// # Errors
    /// If the connection is unknown, or not as far as `RepSent`.
    pub fn traffic_arrived(&mut self, connection: ConnectionId) -> Result<(), CmError> {
        Err(CmError::UnknownConnection(connection))
    }

    /// Asks the peer for more time to answer its REQ or REP (MRA), `service_timeout` as a code.
    /// When the peer repeats itself, that is done without being asked for.
    ///
    /// # Errors
    /// If the connection is neither `ReqReceived` nor `RepReceived`.
    pub fn ask_for_time(
        &mut self,
        connection: ConnectionId,
        service_timeout: u8,
    ) -> Result<(), CmError> {
        let _ = service_timeout;
        Err(CmError::UnknownConnection(connection))
    }

    /// Ends a connection (DREQ); `Disconnected` follows, and `TimewaitExit`. Nothing happens if it
    /// is over, or ending, already: the peer's DREQ is answered as soon as it comes.
    ///
    /// # Errors
    /// If the connection is unknown or not as far as `RepSent`, or the private data is too long.
    pub fn disconnect(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let _ = (now, private_data);
        Err(CmError::UnknownConnection(connection))
    }

    /// Has no more interest in a connection, wherever it stands: the peer is told as its state
    /// demands, and no event of it follows. Unknown connections are no error.
    pub fn abandon(&mut self, now: Instant, connection: ConnectionId) {
        let _ = (now, connection);
    }

    /// Where a connection stands, `None` if it is unknown.
    pub fn state(&self, connection: ConnectionId) -> Option<ConnectionState> {
        let _ = connection;
        None
    }

    /// Asks for a datagram queue pair. `SidrReply` or `SidrUnreachable` follows.
    ///
    /// # Errors
    /// If the private data is too long or the table is full.
    pub fn sidr_request(
        &mut self,
        now: Instant,
        request: &SidrRequest<'_>,
    ) -> Result<SidrId, CmError> {
        let _ = (now, request);
        Err(CmError::Full(self.config.open_max))
    }

    /// Answers a request for a datagram queue pair.
    ///
    /// # Errors
    /// If the request is unknown or answered, or something is too long.
    pub fn sidr_reply(
        &mut self,
        now: Instant,
        request_id: SidrId,
        reply: &SidrReply<'_>,
    ) -> Result<(), CmError> {
        let _ = (now, reply);
        Err(CmError::UnknownSidr(request_id))
    }

    /// Has no more interest in a request, sent or received; a received one is refused.
    pub fn sidr_abandon(&mut self, now: Instant, request_id: SidrId) {
        let _ = (now, request_id);
    }

    /// Takes a datagram that arrived on `route` (`remote` sent it). What is no message of the
    /// communication manager is dropped.
    pub fn handle_mad(&mut self, now: Instant, route: &Route, mad: &[u8]) {
        let _ = (now, route, mad);
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// When `handle_timeout` should be called next, `None`: never, as things stand.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
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

/// The answer of a device without a communication manager: nobody listens, nothing is connected.
/// `None` if the datagram needs no answer.
pub fn refuse(mad: &[u8]) -> Option<Mad> {
    let _ = mad;
    None
}
