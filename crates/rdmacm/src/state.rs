//! What the library knows of an identifier, an event, a channel. Not here: what changes it
//! (`world`, and the entry points).

use std::collections::VecDeque;
use std::ptr;

use feroce_proto::cm::{ConnectionId, ListenerId, Route, SidrId};
use feroce_verbs_abi as abi;
use feroce_verbs_abi::gsi::{feroce_gsi_claim_handle, feroce_gsi_claim_release};
use feroce_wire::cm::{Ece, Transport};

use crate::address::SocketAddress;
use crate::addrinfo::Found;
use crate::again::Again;
use crate::device::{DeviceKey, IdKey, Shared};
use crate::sys::{self, Counter};

/// Name of a channel: its address in C.
pub(crate) type ChannelKey = usize;

/// The queue pair number that means "all of a group".
const GROUP_QPN: u32 = 0x00ff_ffff;

/// How far an identifier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Fresh.
    Idle,
    /// Has a local address.
    Bound,
    /// Knows its peer's address and its own.
    AddressResolved,
    /// May connect.
    RouteResolved,
    /// Listens.
    Listening,
    /// Came out of a connection request that waits for an answer.
    Requested,
    /// A request, or an answer, is under way.
    Connecting,
    /// Connected.
    Connected,
    /// Was connected, or could not be.
    Over,
}

/// A port that is bound; given back when dropped.
#[derive(Debug)]
pub(crate) struct Claim(pub(crate) Shared<feroce_gsi_claim_handle>);

impl Drop for Claim {
    fn drop(&mut self) {
        // SAFETY: granted, and released once.
        unsafe { feroce_gsi_claim_release(self.0.0) };
    }
}

/// What the peer has told of its queue pair.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Peer {
    pub(crate) qpn: u32,
    /// With which PSN it expects this side to begin.
    pub(crate) psn: u32,
    /// How often this side shall retry when the peer is not ready.
    pub(crate) rnr_retry_count: u8,
}

/// The limits of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Limits {
    /// READs and atomics this side takes at once.
    pub(crate) responder_resources: u8,
    /// READs and atomics this side has under way.
    pub(crate) initiator_depth: u8,
    pub(crate) retry_count: u8,
}

/// The way of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) route: Route,
    pub(crate) gid_index: u8,
    /// Code, as `ibv_mtu`.
    pub(crate) mtu: u8,
    /// Code of the local ACK timeout.
    pub(crate) ack_timeout: u8,
}

/// What a listening endpoint gives to the identifiers that it accepts.
#[derive(Clone, Copy)]
pub(crate) struct Template {
    pub(crate) pd: Shared<abi::ibv_pd>,
    pub(crate) attributes: abi::ibv_qp_init_attr,
}

// SAFETY: the pointers in the attributes belong to the program, which may be called from any
// thread; they are only passed on.
unsafe impl Send for Template {}

/// A group that was joined.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) group: SocketAddress,
    pub(crate) attached: bool,
}

/// What `rdma_set_option` sets.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) traffic_class: u8,
    pub(crate) reuse_address: bool,
    pub(crate) one_family: bool,
    pub(crate) ack_timeout: Option<u8>,
}

/// An identifier.
pub(crate) struct Id {
    pub(crate) c: Shared<abi::rdma_cm_id>,
    pub(crate) channel: ChannelKey,
    /// Calls wait for their events; the channel is the identifier's own.
    pub(crate) sync: bool,
    pub(crate) phase: Phase,
    pub(crate) port_space: u16,
    pub(crate) transport: Transport,
    pub(crate) datagram: bool,
    pub(crate) local: Option<SocketAddress>,
    pub(crate) remote: Option<SocketAddress>,
    pub(crate) device: Option<DeviceKey>,
    pub(crate) claim: Option<Claim>,
    pub(crate) listeners: Vec<(DeviceKey, ListenerId)>,
    pub(crate) backlog: usize,
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) request: Option<SidrId>,
    /// The request came from the peer.
    pub(crate) passive: bool,
    pub(crate) path: Option<Path>,
    /// With which PSN the peer begins.
    pub(crate) psn: u32,
    pub(crate) peer: Option<Peer>,
    pub(crate) limits: Limits,
    pub(crate) options: Options,
    pub(crate) ece: Ece,
    pub(crate) remote_ece: Ece,
    pub(crate) template: Option<Template>,
    pub(crate) memberships: Vec<Membership>,
    /// What `rdma_resolve_addrinfo` found.
    pub(crate) found: Option<Found>,
    /// Events that were delivered and are not acknowledged.
    pub(crate) unacknowledged: usize,
    /// The loss of its address has been told.
    pub(crate) address_lost: bool,
    pub(crate) again: Again,
}

impl Id {
    pub(crate) fn new(c: Shared<abi::rdma_cm_id>, channel: ChannelKey, port_space: u16) -> Self {
        Self {
            c,
            channel,
            sync: false,
            phase: Phase::Idle,
            port_space,
            transport: Transport::Rc,
            datagram: false,
            local: None,
            remote: None,
            device: None,
            claim: None,
            listeners: Vec::new(),
            backlog: 0,
            connection: None,
            request: None,
            passive: false,
            path: None,
            psn: sys::random() as u32 & 0x00ff_ffff,
            peer: None,
            limits: Limits::default(),
            options: Options::default(),
            ece: Ece::default(),
            remote_ece: Ece::default(),
            template: None,
            memberships: Vec::new(),
            found: None,
            unacknowledged: 0,
            address_lost: false,
            again: Again::default(),
        }
    }

    /// The queue pair that the program, or a call of ours, has put on the identifier.
    pub(crate) fn qp(&self) -> *mut abi::ibv_qp {
        // SAFETY: the struct lives as long as the identifier; the field is one word.
        unsafe { (&raw const (*self.c.0).qp).read_volatile() }
    }
}

/// What an address handle is made from.
pub(crate) struct AddressHandle(pub(crate) abi::ibv_ah_attr);

/// Details of an event.
#[derive(Default)]
pub(crate) enum Param {
    #[default]
    None,
    Connection(Connection),
    Datagram {
        address: Box<AddressHandle>,
        qpn: u32,
        qkey: u32,
        private_data: Vec<u8>,
    },
    /// A group was joined: how to send to it, and what the program gave when it asked.
    Group {
        address: Box<AddressHandle>,
        context: usize,
    },
    Argument(u64),
}

/// Details of an event of a connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connection {
    pub(crate) private_data: Vec<u8>,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qpn: u32,
}

/// What is left to do when the program takes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    /// The peer has accepted: make the queue pair ready, and say so.
    Establish,
    /// The connection is over, or was refused: the queue pair must not go on.
    Fail,
    /// A group was joined: attach the queue pair.
    Attach,
}

/// An event as the program gets it.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) c: abi::rdma_cm_event,
    private_data: Vec<u8>,
}

// SAFETY: the pointers lead to identifiers and to the event's own data.
unsafe impl Send for Event {}

impl Event {
    pub(crate) fn new(
        id: Shared<abi::rdma_cm_id>,
        kind: abi::rdma_cm_event_type,
        status: i32,
        param: Param,
    ) -> Box<Self> {
        let mut event = Box::new(Self {
            c: abi::rdma_cm_event::default(),
            private_data: Vec::new(),
        });
        event.c.id = id.0;
        event.c.event = kind;
        event.c.status = status;
        event.fill(param);
        event
    }

    fn fill(&mut self, param: Param) {
        match param {
            Param::None => {}
            Param::Argument(argument) => self.c.param.arg = argument,
            Param::Group { address, context } => {
                self.c.param.ud = abi::rdma_ud_param {
                    private_data: ptr::with_exposed_provenance(context),
                    private_data_len: 0,
                    ah_attr: address.0,
                    qp_num: GROUP_QPN,
                    qkey: abi::RDMA_UDP_QKEY,
                };
            }
            Param::Connection(connection) => {
                self.private_data = connection.private_data;
                let (data, length) = self.data();
                self.c.param.conn = abi::rdma_conn_param {
                    private_data: data,
                    private_data_len: length,
                    responder_resources: connection.responder_resources,
                    initiator_depth: connection.initiator_depth,
                    flow_control: connection.flow_control,
                    retry_count: connection.retry_count,
                    rnr_retry_count: connection.rnr_retry_count,
                    srq: connection.srq,
                    qp_num: connection.qpn,
                };
            }
            Param::Datagram {
                address,
                qpn,
                qkey,
                private_data,
            } => {
                self.private_data = private_data;
                let (data, length) = self.data();
                self.c.param.ud = abi::rdma_ud_param {
                    private_data: data,
                    private_data_len: length,
                    ah_attr: address.0,
                    qp_num: qpn,
                    qkey,
                };
            }
        }
    }

    fn data(&self) -> (*const std::ffi::c_void, u8) {
        if self.private_data.is_empty() {
            return (ptr::null(), 0);
        }
        let length = u8::try_from(self.private_data.len()).unwrap_or(u8::MAX);
        (self.private_data.as_ptr().cast(), length)
    }
}

/// An event that waits for the program.
pub(crate) struct Pending {
    pub(crate) event: Box<Event>,
    /// Whose it is; for a connection request, that of the listener.
    pub(crate) owner: IdKey,
    pub(crate) action: Action,
}

/// A channel.
pub(crate) struct Channel {
    pub(crate) c: Shared<abi::rdma_event_channel>,
    pub(crate) counter: Counter,
    pub(crate) queue: VecDeque<Pending>,
}
