//! A whole packet as meaning. [`Frame::parse`] makes one of bytes, [`super::Headers`] bytes of one.

use super::header::{AtomicView, DatagramView, RemoteView, RequestView, UpdateView, WordView};
use super::{ConnectionId, Epoch, MessageNumber, PLANES_MAX, PacketNumber, ReceiveNumber};
use core::net::{IpAddr, Ipv6Addr};
use zerocopy::byteorder::network_endian::U32;

/// Type of a packet: the low four bits of its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is a variant of `Body`, which says it")]
pub enum Kind {
    Hello = 0,
    Retry = 1,
    Accept = 2,
    Refuse = 3,
    Request = 4,
    Response = 5,
    Ack = 6,
    Probe = 7,
    Update = 8,
    Close = 9,
}

impl Kind {
    pub(super) const ALL: [Self; 10] = [
        Self::Hello,
        Self::Retry,
        Self::Accept,
        Self::Refuse,
        Self::Request,
        Self::Response,
        Self::Ack,
        Self::Probe,
        Self::Update,
        Self::Close,
    ];

    /// Whether packets have a number of their own, are acknowledged and count against windows.
    //= MR-PKT-012
    pub const fn is_numbered(self) -> bool {
        matches!(
            self,
            Self::Request | Self::Response | Self::Probe | Self::Update
        )
    }
}

/// Flags of the common header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// An acknowledgement is to be sent at once.
    pub const ACK_REQUEST: Self = Self(0x80);
    /// The sender has nothing more to send on this connection for now.
    pub const DRAINED: Self = Self(0x40);
    /// The content has been sent before. For people who look at captures; receivers ignore it.
    pub const AGAIN: Self = Self(0x20);

    /// Whether all bits of `other` are in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "named as in verbs")]
pub enum RequestOpcode {
    Write = 0,
    WriteImmediate = 1,
    Send = 2,
    SendImmediate = 3,
    SendInvalidate = 4,
    Read = 5,
    CompareSwap = 6,
    FetchAdd = 7,
    AtomicWrite = 8,
    Flush = 9,
    Datagram = 10,
    DatagramImmediate = 11,
}

impl RequestOpcode {
    pub(super) const ALL: [Self; 12] = [
        Self::Write,
        Self::WriteImmediate,
        Self::Send,
        Self::SendImmediate,
        Self::SendInvalidate,
        Self::Read,
        Self::CompareSwap,
        Self::FetchAdd,
        Self::AtomicWrite,
        Self::Flush,
        Self::Datagram,
        Self::DatagramImmediate,
    ];

    /// Whether packets carry the message's bytes.
    pub const fn has_payload(self) -> bool {
        !matches!(
            self,
            Self::Read | Self::CompareSwap | Self::FetchAdd | Self::Flush
        )
    }

    /// Whether it names memory of the receiver.
    pub const fn has_remote(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::WriteImmediate
                | Self::Read
                | Self::CompareSwap
                | Self::FetchAdd
                | Self::AtomicWrite
                | Self::Flush
        )
    }

    /// Whether it carries a word: immediate data, a key, what to flush.
    pub const fn has_word(self) -> bool {
        matches!(
            self,
            Self::WriteImmediate
                | Self::SendImmediate
                | Self::SendInvalidate
                | Self::Flush
                | Self::DatagramImmediate
        )
    }

    /// Whether it uses a receive request of the receiver.
    pub const fn uses_receive(self) -> bool {
        matches!(
            self,
            Self::WriteImmediate | Self::Send | Self::SendImmediate | Self::SendInvalidate
        )
    }

    /// Whether it is answered by a response, and not by an update alone.
    pub const fn is_answered(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it is a datagram: sent once, to a stream that need not be connected.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Datagram | Self::DatagramImmediate)
    }

    pub(super) const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Bytes of the headers behind the common one.
    pub const fn header_len(self) -> usize {
        let mut len = RequestView::LEN;
        if self.has_remote() {
            len += RemoteView::LEN;
        }
        if self.is_atomic() {
            len += AtomicView::LEN;
        }
        if self.is_datagram() {
            len += DatagramView::LEN;
        }
        if self.has_word() {
            len += WordView::LEN;
        }
        len
    }
}

/// Memory of the receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Address of the first byte of the message (not of the piece).
    pub address: u64,
    /// Key.
    pub key: u32,
}

/// Operands of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Atomic {
    /// Value to swap in or to add.
    pub operand: u64,
    /// Value compared with.
    pub compare: u64,
}

/// Addressing of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Datagram {
    /// Queue key.
    pub key: u32,
    /// The sender's stream.
    pub source: u32,
}

/// A piece of a request. Which of the extensions are on the wire follows from the opcode.
//= MR-PKT-003
//= MR-PKT-004
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// Operation.
    pub opcode: RequestOpcode,
    /// The peer's completion is a solicited event.
    pub solicited: bool,
    /// The receiver's stream.
    pub stream: u32,
    /// The message.
    pub message: MessageNumber,
    /// First byte of this piece within the message.
    pub offset: u32,
    /// Bytes of the whole message.
    pub length: u32,
    /// The receive that the message uses.
    pub receive: ReceiveNumber,
    /// Memory of the receiver.
    pub remote: Remote,
    /// Operands.
    pub atomic: Atomic,
    /// Addressing of a datagram.
    pub datagram: Datagram,
    /// Immediate data, key to invalidate, or what to flush.
    pub word: u32,
    /// The bytes of this piece.
    pub payload: &'a [u8],
}

/// Operation of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum ResponseOpcode {
    /// A piece of what a READ asked for.
    ReadData = 0,
    /// The value before an atomic.
    Original = 1,
    /// The request was refused; see [`Refusal`].
    Refused = 2,
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum RefusalCode {
    /// No receive is posted: the message is to be sent again after a while.
    NotReady = 1,
    /// The stream does not exist or is not ready: as above.
    UnknownStream = 2,
    /// The request is malformed, not allowed, or does not fit the receive.
    InvalidRequest = 3,
    /// The key does not grant it.
    RemoteAccess = 4,
    /// The receiver's own memory or queue failed it.
    RemoteOperation = 5,
}

impl RefusalCode {
    pub(super) const ALL: [Self; 5] = [
        Self::NotReady,
        Self::UnknownStream,
        Self::InvalidRequest,
        Self::RemoteAccess,
        Self::RemoteOperation,
    ];

    /// Whether the message may succeed when it is sent again.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::NotReady | Self::UnknownStream)
    }
}

/// A refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// Of a temporary one: nanoseconds to wait.
    pub delay_nanos: u32,
}

/// A piece of a response.
//= MR-PKT-005
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// Operation.
    pub opcode: ResponseOpcode,
    /// The requester's stream.
    pub stream: u32,
    /// The message that is answered.
    pub message: MessageNumber,
    /// First byte of this piece within the answer.
    pub offset: u32,
    /// Bytes of the whole answer.
    pub length: u32,
    /// Value before an atomic.
    pub original: u64,
    /// Of a refusal.
    pub refusal: Option<Refusal>,
    /// The bytes of this piece.
    pub payload: &'a [u8],
}

/// Which of the 256 packets before the highest have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Vector(pub [u8; 32]);

impl Vector {
    /// Packets it tells of.
    pub const BITS: u32 = 256;

    /// Whether the packet `back` before the highest has arrived; `back` counts from 1.
    pub fn has(&self, back: u32) -> bool {
        let Some(bit) = back.checked_sub(1) else {
            return true;
        };
        let byte = self.0.get((bit / 8) as usize);
        byte.is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    }

    /// Notes that the packet `back` before the highest has arrived; `back` counts from 1.
    pub fn set(&mut self, back: u32) {
        let Some(bit) = back.checked_sub(1) else {
            return;
        };
        if let Some(byte) = self.0.get_mut((bit / 8) as usize) {
            *byte |= 1 << (bit % 8);
        }
    }
}

/// How far a stream has come at its responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// The requester's stream.
    pub stream: u32,
    /// Every message before this one is complete.
    pub completed: MessageNumber,
    /// Receives before this one are posted; none: receives are shared and nothing is promised.
    pub limit: Option<ReceiveNumber>,
    /// Five-bit code of the time a requester without a receive waits ([`crate::timing`]).
    pub delay_code: u8,
}

const UPDATE_SHARED: u8 = 0x80;

impl From<UpdateView> for Update {
    fn from(view: UpdateView) -> Self {
        let shared = view.flags & UPDATE_SHARED != 0;
        Self {
            stream: view.stream.get(),
            completed: MessageNumber(view.completed.get()),
            limit: (!shared).then(|| ReceiveNumber(view.limit.get())),
            delay_code: view.delay & 0x1f,
        }
    }
}

impl From<Update> for UpdateView {
    fn from(update: Update) -> Self {
        Self {
            stream: U32::new(update.stream),
            completed: U32::new(update.completed.0),
            limit: U32::new(update.limit.unwrap_or_default().0),
            delay: update.delay_code & 0x1f,
            flags: if update.limit.is_none() {
                UPDATE_SHARED
            } else {
                0
            },
            ..Self::default()
        }
    }
}

/// Updates, as they lie in a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Updates<'a>(pub &'a [UpdateView]);

impl Updates<'_> {
    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = Update> {
        self.0.iter().map(|&view| view.into())
    }
}

/// Streams, as they lie in a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Streams<'a>(pub &'a [U32]);

impl Streams<'_> {
    /// One by one.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|stream| stream.get())
    }
}

/// An acknowledgement of packets on one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// Which packets before the one in [`Frame::number`] have arrived.
    pub vector: Vector,
    /// From the arrival of that one to the sending of this, in nanoseconds.
    pub delay_nanos: u32,
    /// Packets of the path and epoch received so far, modulo 2^32.
    pub received: u32,
    /// How many of those carried a congestion mark, modulo 2^32.
    pub marked: u32,
    /// Granted share of the receiver's inbound bandwidth, in units of 1000 bytes per second.
    pub share: u32,
    /// How far streams have come.
    pub updates: Updates<'a>,
}

/// Addresses of planes; [`PLANES_MAX`] at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planes {
    addresses: [IpAddr; PLANES_MAX],
    count: usize,
}

impl Planes {
    /// The first [`PLANES_MAX`] of the addresses.
    pub fn new(list: &[IpAddr]) -> Self {
        let mut addresses = [IpAddr::V6(Ipv6Addr::UNSPECIFIED); PLANES_MAX];
        let count = list.len().min(PLANES_MAX);
        addresses[..count].copy_from_slice(&list[..count]);
        Self { addresses, count }
    }

    /// The addresses.
    pub fn as_slice(&self) -> &[IpAddr] {
        &self.addresses[..self.count]
    }
}

/// Offer or acceptance of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handshake {
    /// The name under which the sender wants to be addressed.
    pub source: ConnectionId,
    /// Chosen by the initiator, repeated by the acceptor.
    pub nonce: u64,
    /// From a retry; 0 in a first offer and in an acceptance.
    pub cookie: u64,
    /// A stream of the receiver: tells which process of an address is meant.
    pub target: u32,
    /// A stream of the sender.
    pub origin: u32,
    /// Lowest and highest version the sender speaks.
    pub versions: (u8, u8),
    /// Longest payload of a packet that the sender takes, in bytes.
    pub segment: u16,
    /// Feature bits.
    pub features: u32,
    /// Inbound bandwidth of one plane of the sender, in units of 1000 bytes per second.
    pub line_rate: u32,
    /// Unconfirmed messages per stream that the sender keeps track of.
    pub message_window: u16,
    /// Paths on which the sender is ready to receive.
    pub paths: u8,
    /// Addresses of its planes.
    pub planes: Planes,
}

/// Asks for the offer again, with a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retry {
    /// The nonce of the offer.
    pub nonce: u64,
    /// To be put into the next offer.
    pub cookie: u64,
    /// Lowest and highest version of the sender.
    pub versions: (u8, u8),
}

/// Why an offer is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum RefuseCode {
    /// No version in common.
    Version = 1,
    /// No process serves the stream.
    NoTarget = 2,
    /// No more connections are possible.
    Full = 3,
    /// A value of the offer is out of range.
    Invalid = 4,
}

impl RefuseCode {
    pub(super) const ALL: [Self; 4] = [Self::Version, Self::NoTarget, Self::Full, Self::Invalid];
}

/// Refuses an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refuse {
    /// The nonce of the offer.
    pub nonce: u64,
    /// Why.
    pub code: RefuseCode,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum CloseCode {
    /// Its user is done.
    Done = 0,
    /// The peer broke the protocol.
    Violation = 1,
    /// The endpoint lacks resources.
    Resources = 2,
}

impl CloseCode {
    pub(super) const ALL: [Self; 3] = [Self::Done, Self::Violation, Self::Resources];
}

/// Ends a connection, or answers that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Close {
    /// The name under which the sender of this packet is addressed.
    pub source: ConnectionId,
    /// Why.
    pub code: CloseCode,
    /// It answers a close.
    pub answer: bool,
}

/// What a packet is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// Offers a connection.
    Hello(Handshake),
    /// Asks for the offer again, with a cookie.
    Retry(Retry),
    /// Accepts an offer.
    Accept(Handshake),
    /// Refuses an offer.
    Refuse(Refuse),
    /// A piece of a request.
    Request(Request<'a>),
    /// A piece of a response.
    Response(Response<'a>),
    /// Acknowledges packets of a path.
    Ack(Ack<'a>),
    /// Asks for an acknowledgement with updates of these streams.
    Probe(Streams<'a>),
    /// Tells, reliably, how far streams have come.
    Update(Updates<'a>),
    /// Ends the connection.
    Close(Close),
}

impl Body<'_> {
    /// The packet type.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Retry(_) => Kind::Retry,
            Self::Accept(_) => Kind::Accept,
            Self::Refuse(_) => Kind::Refuse,
            Self::Request(_) => Kind::Request,
            Self::Response(_) => Kind::Response,
            Self::Ack(_) => Kind::Ack,
            Self::Probe(_) => Kind::Probe,
            Self::Update(_) => Kind::Update,
            Self::Close(_) => Kind::Close,
        }
    }
}

/// A packet whose form is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Flags.
    pub flags: Flags,
    /// Path of the sender; of an acknowledgement, the path that it acknowledges.
    pub path: u8,
    /// Epoch of that path.
    pub epoch: Epoch,
    /// The connection, by the name its receiver chose; 0 in a hello.
    pub connection: ConnectionId,
    /// Number of the transmission; of an acknowledgement, the highest that has arrived.
    pub number: PacketNumber,
    /// The rest.
    pub body: Body<'a>,
}
