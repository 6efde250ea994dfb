//! What a program asks of the connection manager, and what it is told.

use crate::Mtu;
use alloc::boxed::Box;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;
use feroce_wire::cm::{
    AttributeId, Drep, Dreq, Ece, IpCmHeader, Rej, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep,
    SidrReq, SidrStatus, Transport,
};
use feroce_wire::{DEFAULT_PKEY, Psn, Qpn};

/// Limits and names of one [`Cm`](super::Cm).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmConfig {
    /// The process slot: the top ten bits of every local communication id. Below 1024.
    pub slot: u16,
    /// Where local communication ids and transaction ids start. Two processes that follow one
    /// another in a slot must differ in it.
    pub seed: u64,
    /// GUID of the device, which every REQ and REP carries.
    pub ca_guid: u64,
    /// Connections and requests that are not over, at most.
    pub open_max: usize,
    /// Connections and requests that are over but may still have to answer late messages, at
    /// most; the oldest are forgotten first.
    pub closed_max: usize,
    /// Listeners, at most.
    pub listeners_max: usize,
    /// Code of the time that a MRA of ours asks for, when the program is slower to answer than
    /// the peer expects.
    pub mra_service_timeout: u8,
    /// The largest code of a time-out that is taken from a peer; larger ones count as this one.
    pub peer_timeout_max: u8,
    /// How long a connection that is over answers late messages, at most.
    pub timewait_max: Duration,
}

impl Default for CmConfig {
    fn default() -> Self {
        Self {
            slot: 0,
            seed: 0,
            ca_guid: 0,
            open_max: 65_536,
            closed_max: 4096,
            listeners_max: 65_536,
            mra_service_timeout: 24,
            peer_timeout_max: 24,
            timewait_max: Duration::from_secs(20),
        }
    }
}

/// A connection, by its local communication id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u32);

/// A listener.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// A request for a datagram queue pair, sent or received.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SidrId(pub u32);

/// The way of a datagram: addresses as they are on this host, IPv4 as IPv4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Route {
    /// This host's address.
    pub local: IpAddr,
    /// The peer's address.
    pub remote: IpAddr,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Interface of link-local addresses, else 0.
    pub scope_id: u32,
}

/// The GID of an address: IPv4 addresses are mapped (annex A17.4.5).
pub fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address of a GID; mapped ones are IPv4.
pub fn address_of(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// Which destination addresses a listener answers for. More specific ones win.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ListenAddress {
    /// One address.
    Exactly(IpAddr),
    /// Every IPv4 address.
    AnyV4,
    /// Every IPv6 address.
    AnyV6,
    /// Every address, and requests that name none.
    Any,
}

impl ListenAddress {
    /// Mapped addresses as IPv4, so that equal addresses compare equal.
    pub(crate) const fn canonical(self) -> Self {
        match self {
            Self::Exactly(address) => Self::Exactly(address.to_canonical()),
            other => other,
        }
    }
}

/// A listener to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// What it listens on.
    pub service_id: ServiceId,
    /// For which addresses.
    pub address: ListenAddress,
    /// Requests that the program has not answered, at most; 0 counts as 1.
    pub backlog: usize,
}

/// A request for a connection, as the active side makes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// Where the datagrams go; its addresses are also the GIDs of the connection's path.
    pub route: Route,
    /// What is asked for.
    pub service_id: ServiceId,
    /// The header of annex A11, which goes before `private_data`.
    pub ip: Option<IpCmHeader>,
    /// Kind of connection.
    pub transport: Transport,
    /// This side's queue pair.
    pub qpn: Qpn,
    /// The first PSN it uses.
    pub starting_psn: Psn,
    /// It has a shared receive queue.
    pub srq: bool,
    /// READs and atomics it takes at once.
    pub responder_resources: u8,
    /// READs and atomics it wants to have under way.
    pub initiator_depth: u8,
    /// It gives end-to-end credits.
    pub flow_control: bool,
    /// Transport retries, 0 to 7.
    pub retry_count: u8,
    /// RNR retries, 7: without end.
    pub rnr_retry_count: u8,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Partition key.
    pub pkey: u16,
    /// Service level.
    pub service_level: u8,
    /// Static rate, as `ibv_rate`.
    pub packet_rate: u8,
    /// Code of the local ACK timeout; see [`feroce_wire::timing::ack_timeout`].
    pub local_ack_timeout: u8,
    /// Code of the time in which the peer should answer: after it, the REQ is repeated.
    pub remote_cm_response_timeout: u8,
    /// Code of the time in which this side answers.
    pub local_cm_response_timeout: u8,
    /// Repetitions of an unanswered message, 0 to 15.
    pub max_cm_retries: u8,
    /// Enhanced connection establishment.
    pub ece: Ece,
    /// The program's: 92 bytes at most, 56 with an `ip` header.
    pub private_data: &'a [u8],
}

impl Connect<'_> {
    /// A request over `route` with the defaults of rdma_cm: an RC queue pair, 15 retries of
    /// 4.3 seconds.
    pub const fn new(route: Route, service_id: ServiceId, qpn: Qpn, starting_psn: Psn) -> Self {
        Self {
            route,
            service_id,
            ip: None,
            transport: Transport::Rc,
            qpn,
            starting_psn,
            srq: false,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            path_mtu: Mtu::Mtu1024,
            pkey: DEFAULT_PKEY,
            service_level: 0,
            packet_rate: 0,
            local_ack_timeout: 17,
            remote_cm_response_timeout: 20,
            local_cm_response_timeout: 20,
            max_cm_retries: 15,
            ece: Ece {
                vendor_id: 0,
                options: 0,
            },
            private_data: &[],
        }
    }
}

/// The passive side's yes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept<'a> {
    /// This side's queue pair.
    pub qpn: Qpn,
    /// The first PSN it uses.
    pub starting_psn: Psn,
    /// It has a shared receive queue.
    pub srq: bool,
    /// READs and atomics it takes at once.
    pub responder_resources: u8,
    /// READs and atomics it wants to have under way.
    pub initiator_depth: u8,
    /// It gives end-to-end credits.
    pub flow_control: bool,
    /// RNR retries, 7: without end.
    pub rnr_retry_count: u8,
    /// Code of the longest time between a request and its acknowledge.
    pub target_ack_delay: u8,
    /// Enhanced connection establishment.
    pub ece: Ece,
    /// The program's: 196 bytes at most.
    pub private_data: &'a [u8],
}

impl Accept<'_> {
    /// An answer without READs, atomics and private data.
    pub const fn new(qpn: Qpn, starting_psn: Psn) -> Self {
        Self {
            qpn,
            starting_psn,
            srq: false,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: false,
            rnr_retry_count: 7,
            target_ack_delay: 15,
            ece: Ece {
                vendor_id: 0,
                options: 0,
            },
            private_data: &[],
        }
    }
}

/// Either side's no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reject<'a> {
    /// Why.
    pub reason: RejectReason,
    /// More about the reason: 72 bytes at most.
    pub information: &'a [u8],
    /// The program's: 148 bytes at most.
    pub private_data: &'a [u8],
}

impl<'a> Reject<'a> {
    /// The program's own no (reason 28).
    pub const fn by_program(private_data: &'a [u8]) -> Self {
        Self {
            reason: RejectReason::CONSUMER_DEFINED,
            information: &[],
            private_data,
        }
    }
}

/// A request for the queue pair behind a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRequest<'a> {
    /// Where the datagrams go.
    pub route: Route,
    /// What is asked for.
    pub service_id: ServiceId,
    /// The header of annex A11, which goes before `private_data`.
    pub ip: Option<IpCmHeader>,
    /// Partition key.
    pub pkey: u16,
    /// Code of the time in which the peer should answer.
    pub response_timeout: u8,
    /// Repetitions, 0 to 15.
    pub max_cm_retries: u8,
    /// The program's: 216 bytes at most, 180 with an `ip` header.
    pub private_data: &'a [u8],
}

/// The answer to a request for a datagram queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReply<'a> {
    /// Success, or why not.
    pub status: SidrStatus,
    /// The queue pair.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: u32,
    /// Enhanced connection establishment.
    pub ece: Ece,
    /// More about the status: 72 bytes at most.
    pub information: &'a [u8],
    /// The program's: 136 bytes at most.
    pub private_data: &'a [u8],
}

impl<'a> SidrReply<'a> {
    /// A refusal, without a reason of its own.
    #[must_use]
    pub const fn rejected(private_data: &'a [u8]) -> Self {
        Self {
            status: SidrStatus::REJECTED,
            qpn: Qpn::new(0),
            qkey: 0,
            ece: Ece {
                vendor_id: 0,
                options: 0,
            },
            information: &[],
            private_data,
        }
    }
}

/// Where a connection stands (IBTA 12.9.5 to 12.9.7, MRA folded into the state it prolongs).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConnectionState {
    /// Active: the REQ is sent.
    ReqSent,
    /// Passive: the program has to accept or reject.
    ReqReceived,
    /// Active: the program has to establish or reject.
    RepReceived,
    /// Passive: the REP is sent.
    RepSent,
    /// Both sides may send.
    Established,
    /// The DREQ is sent.
    DreqSent,
    /// Over; late messages are answered.
    Timewait,
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReqSent => "waiting for the peer's reply",
            Self::ReqReceived => "waiting to be accepted or rejected here",
            Self::RepReceived => "waiting to be established or rejected here",
            Self::RepSent => "waiting for the peer to be ready",
            Self::Established => "established",
            Self::DreqSent => "disconnecting",
            Self::Timewait => "over",
        })
    }
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Disconnect {
    /// The peer asked for it, and has been answered.
    Asked(Box<Dreq>),
    /// The peer answered this side's DREQ.
    Answered(Box<Drep>),
    /// The peer did not answer this side's DREQ, however often it was repeated.
    Unanswered,
    /// The peer rejected a connection that this side held for established: its own wait
    /// ran out, say.
    Rejected(Box<Rej>),
    /// The peer uses its queue pair for another connection: this one is gone.
    Stale,
}

/// What happened. Each is told once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmEvent {
    /// Passive: somebody wants a connection. Answer with `accept` or `reject`.
    Request {
        /// The new connection.
        connection: ConnectionId,
        /// Who listened.
        listener: ListenerId,
        /// The way back.
        route: Route,
        /// What is wanted; `consumer_data` is the program's part of it.
        request: Box<Req>,
    },
    /// Active: the peer accepted. Answer with `establish` or `reject`.
    Reply {
        /// The connection.
        connection: ConnectionId,
        /// The peer's part; `queue_pair` is where its queue pair is.
        reply: Box<Rep>,
    },
    /// Passive: the peer is ready, or its traffic has shown that it is.
    Established {
        /// The connection.
        connection: ConnectionId,
        /// The peer's RTU; `None` if it was lost.
        ready: Option<Box<Rtu>>,
    },
    /// Either side, before the connection is established: the peer says no.
    Rejected {
        /// The connection, which is over.
        connection: ConnectionId,
        /// Why.
        reject: Box<Rej>,
    },
    /// Either side, before the connection is established: the peer does not answer.
    Unreachable {
        /// The connection, which is over.
        connection: ConnectionId,
    },
    /// An established connection has ended: move the queue pair to the error state.
    Disconnected {
        /// The connection.
        connection: ConnectionId,
        /// How.
        how: Disconnect,
    },
    /// The connection is forgotten; nothing of it can arrive any more.
    TimewaitExit {
        /// The connection, whose name means nothing from now on.
        connection: ConnectionId,
    },
    /// Somebody asks for a datagram queue pair. Answer with `sidr_reply`.
    SidrRequest {
        /// The request.
        request_id: SidrId,
        /// Who listened.
        listener: ListenerId,
        /// The way back.
        route: Route,
        /// What is wanted.
        request: Box<SidrReq>,
    },
    /// The answer to a request for a datagram queue pair: success or not, the request is over.
    SidrReply {
        /// The request.
        request_id: SidrId,
        /// The answer.
        reply: Box<SidrRep>,
    },
    /// No answer to a request for a datagram queue pair; the request is over.
    SidrUnreachable {
        /// The request.
        request_id: SidrId,
    },
}

impl CmEvent {
    /// The connection that it is about, `None` for requests for datagram queue pairs.
    pub const fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Request { connection, .. }
            | Self::Reply { connection, .. }
            | Self::Established { connection, .. }
            | Self::Rejected { connection, .. }
            | Self::Unreachable { connection }
            | Self::Disconnected { connection, .. }
            | Self::TimewaitExit { connection } => Some(*connection),
            Self::SidrRequest { .. } | Self::SidrReply { .. } | Self::SidrUnreachable { .. } => {
                None
            }
        }
    }
}

/// Why a call changes nothing. The caller's fault, or a full table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// A name of nothing: never given out, or its connection is forgotten.
    #[error("connection {:#010x} does not exist", .0.0)]
    UnknownConnection(ConnectionId),
    /// A name of nothing.
    #[error("SIDR request {:#010x} does not exist or is answered", .0.0)]
    UnknownSidr(SidrId),
    /// The state table has no such edge.
    #[error("cannot {operation}: the connection is {state}")]
    WrongState {
        /// What was asked for.
        operation: &'static str,
        /// Where the connection stands.
        state: ConnectionState,
    },
    /// The message has less room.
    #[error("{len} bytes of {what}, but a {message:?} has room for {max}")]
    TooLong {
        /// Private data or additional information.
        what: &'static str,
        /// The message.
        message: AttributeId,
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// All connections are in use.
    #[error("all {0} connections of the device are in use")]
    Full(usize),
}

/// Why there is no new listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has the same service id and address.
    #[error("another listener has {0} on the same address")]
    InUse(ServiceId),
    /// All listeners are in use.
    #[error("all {0} listeners of the device are in use")]
    Full(usize),
}

/// The code of a time-out as a time: 4.096 µs · 2^code (IBTA 12.6.5).
pub(crate) const fn time_of(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}
