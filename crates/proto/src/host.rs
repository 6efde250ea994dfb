//! The host of a [`Nic`](crate::Nic): memory, wire and completion queues, passed into every call.
//!
//! What must happen in order with memory (a payload lands, then its completion shows) goes
//! through these methods in that order; no effect is queued inside the protocol.

use crate::{AsyncEvent, BindRequest, Completion, CqId, PdId, Sge};
use core::net::IpAddr;
use feroce_wire::{Address, Headers, Qpn};

/// Bytes of a management datagram (IBTA 13.4.2).
pub const MAD_LEN: usize = 256;

/// The Q_Key of the general service interface (IBTA 3.5.3).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Where one packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Local address.
    pub source: IpAddr,
    /// Peer or group address.
    pub destination: IpAddr,
    /// DSCP in the top six bits, ECN in the low two.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Constant per flow: picks the UDP source port, so that ECMP keeps the flow on one path.
    pub entropy: u16,
    /// The queue pair the packet is for; tells same-host hosts which process owns it.
    pub dest_qp: Qpn,
}

/// A range of this host's memory that a peer names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteRange {
    /// Protection domain of the queue pair that was addressed.
    pub pd: PdId,
    /// The queue pair itself (type 2 windows are bound to one).
    pub qpn: Qpn,
    /// The key the peer gave.
    pub rkey: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// What a peer wants to do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum RemoteAccess {
    Write,
    Read,
    Atomic,
    FlushGlobal,
    FlushPersistent,
}

/// The payload of a packet that is sent, as claims the host resolves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// Bytes held by the protocol: inline data, atomic operands, nothing.
    Bytes(&'a [u8]),
    /// Local memory; exactly the bytes of this packet.
    Gather(PdId, &'a [Sge]),
    /// Local memory that a peer reads.
    Remote(RemoteRange),
}

/// Why a packet was not sent. The protocol changes no state then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransmitError {
    /// No room now; the host calls `poll_transmit` again when there is.
    Busy,
    /// A local key does not cover the claimed range.
    Local(LocalFault),
    /// A remote key does not cover the claimed range any more.
    Remote(RemoteFault),
}

/// A local access that is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("local access not granted")]
pub struct LocalFault;

/// A remote access that is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("remote access not granted")]
pub struct RemoteFault;

/// An atomic to execute on eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicOperation {
    /// Stores `swap` if the value equals `compare`.
    CompareSwap {
        /// Compared with.
        compare: u64,
        /// Stored when equal.
        swap: u64,
    },
    /// Adds, wrapping.
    FetchAdd(u64),
}

/// Memory, wire and completion queues of one device.
pub trait Host {
    /// Takes one packet for sending; the host adds pad and ICRC.
    ///
    /// # Errors
    /// See [`TransmitError`]; then nothing was taken.
    fn transmit(
        &mut self,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError>;

    /// Copies `data` to `offset` bytes into the local scatter list.
    ///
    /// # Errors
    /// If a key does not grant local writing of that range; nothing of `data` past it is written.
    fn scatter(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), LocalFault>;

    /// Whether a peer may do `access` to the whole range. Length 0 is always granted.
    ///
    /// # Errors
    /// If not.
    fn check(&mut self, range: &RemoteRange, access: RemoteAccess) -> Result<(), RemoteFault>;

    /// Copies `data` into the range, whose length is that of `data`.
    ///
    /// # Errors
    /// If the key does not grant it.
    fn write(&mut self, range: &RemoteRange, data: &[u8]) -> Result<(), RemoteFault>;

    /// Executes an atomic on the eight bytes of the range; returns the value before.
    ///
    /// # Errors
    /// If the key does not grant it.
    fn atomic(
        &mut self,
        range: &RemoteRange,
        operation: AtomicOperation,
    ) -> Result<u64, RemoteFault>;

    /// Writes eight bytes so that no reader sees a part of them (ATOMIC WRITE).
    ///
    /// # Errors
    /// If the key does not grant it.
    fn atomic_write(&mut self, range: &RemoteRange, value: [u8; 8]) -> Result<(), RemoteFault>;

    /// Makes earlier writes to the range visible (and persistent, if asked). With
    /// `whole_region` the range's address and length do not count.
    ///
    /// # Errors
    /// If the key does not grant it.
    fn flush(
        &mut self,
        range: &RemoteRange,
        access: RemoteAccess,
        whole_region: bool,
    ) -> Result<(), RemoteFault>;

    /// Invalidates a key, for a SEND with invalidate of the peer of `qpn`.
    ///
    /// # Errors
    /// If that queue pair may not invalidate it.
    fn remote_invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), RemoteFault>;

    /// Invalidates a key, for a local invalidate request.
    ///
    /// # Errors
    /// If that queue pair may not invalidate it.
    fn local_invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), LocalFault>;

    /// Binds a memory window for a work request of `qpn`.
    ///
    /// # Errors
    /// If the rules of binding forbid it.
    fn bind(&mut self, pd: PdId, qpn: Qpn, request: &BindRequest) -> Result<(), LocalFault>;

    /// Shows a completion. Everything it stands for is in memory.
    fn complete(&mut self, cq: CqId, completion: Completion);

    /// Raises an asynchronous event.
    fn event(&mut self, event: AsyncEvent);

    /// Takes a management datagram to the general service interface (queue pair 1) whose form is
    /// right. A host that has no such interface ignores it.
    fn management(&mut self, from: &Address, mad: &[u8; MAD_LEN]) {
        let _ = (from, mad);
    }
}
