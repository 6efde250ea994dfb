//! Work requests: what a program asks a queue pair to do.

use crate::{CompletionOpcode, Path};
use feroce_wire::Qpn;
use smallvec::SmallVec;

/// One piece of local memory, as a claim: the host checks it on every use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// Address in the region's own terms (iova).
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// A scatter/gather list; up to two entries live in place.
pub type SgeList = SmallVec<[Sge; 2]>;

/// Where the bytes of a send request come from or (READ, atomics) go to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Data {
    /// Registered memory.
    Gather(SgeList),
    /// Bytes copied from the caller when the request was posted.
    Inline(SmallVec<[u8; 64]>),
}

impl Data {
    /// No bytes.
    pub fn empty() -> Self {
        Self::Gather(SgeList::new())
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        match self {
            Self::Gather(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A place in the peer's memory, as a claim that the peer's host checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Virtual address.
    pub address: u64,
    /// Remote key.
    pub rkey: u32,
}

/// What a memory window is to be bound to. The host owns the rules; see [`crate::Host::bind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindRequest {
    /// The window's current key; for type 2 its low byte is the new tag.
    pub window: u32,
    /// Key of the region below the window.
    pub region: u32,
    /// First byte, in the region's terms.
    pub address: u64,
    /// Bytes; 0 unbinds a type 1 window.
    pub length: u64,
    /// `ibv_access_flags` bits.
    pub access: u32,
    /// Posted as `IBV_WR_BIND_MW` (type 2) or by `ibv_bind_mw` (type 1).
    pub type_2: bool,
}

/// The pieces of a scatter/gather list that hold bytes `offset..offset + length`.
pub(crate) fn pieces(sges: &[Sge], offset: u32, length: u32) -> impl Iterator<Item = Sge> {
    let (mut skip, mut left) = (offset, length);
    sges.iter().filter_map(move |sge| {
        if left == 0 {
            return None;
        }
        if skip >= sge.length {
            skip -= sge.length;
            return None;
        }
        let taken = (sge.length - skip).min(left);
        let address = sge.address.wrapping_add(u64::from(skip));
        (skip, left) = (0, left - taken);
        Some(Sge {
            address,
            length: taken,
            lkey: sge.lkey,
        })
    })
}

/// The operation of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOperation {
    /// SEND.
    Send,
    /// SEND with immediate data (a number; the wire carries it in network order).
    SendImmediate(u32),
    /// SEND that invalidates a key of the peer.
    SendInvalidate(u32),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate data.
    WriteImmediate(Remote, u32),
    /// RDMA READ.
    Read(Remote),
    /// Compare-and-swap on eight bytes.
    CompareSwap {
        /// Where.
        remote: Remote,
        /// Value compared with.
        compare: u64,
        /// Value stored when equal.
        swap: u64,
    },
    /// Fetch-and-add on eight bytes.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// Value added.
        add: u64,
    },
    /// ATOMIC WRITE of exactly eight bytes (annex A19).
    AtomicWrite(Remote),
    /// FLUSH (annex A19).
    Flush {
        /// Where; ignored when the level is "memory region".
        remote: Remote,
        /// Bytes.
        length: u32,
        /// `ibv_placement_type` bits: 1 global visibility, 2 persistence.
        placement: u8,
        /// `ibv_selectivity_level`: 0 range, 1 memory region.
        level: u8,
    },
    /// Local invalidate of a key.
    LocalInvalidate(u32),
    /// Binds a memory window.
    Bind(BindRequest),
}

impl SendOperation {
    /// What its completion says it was.
    pub(crate) const fn completion_opcode(&self) -> CompletionOpcode {
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) => CompletionOpcode::Send,
            Self::Write(_) | Self::WriteImmediate(..) => CompletionOpcode::RdmaWrite,
            Self::Read(_) => CompletionOpcode::RdmaRead,
            Self::CompareSwap { .. } => CompletionOpcode::CompareSwap,
            Self::FetchAdd { .. } => CompletionOpcode::FetchAdd,
            Self::AtomicWrite(_) => CompletionOpcode::AtomicWrite,
            Self::Flush { .. } => CompletionOpcode::Flush,
            Self::LocalInvalidate(_) => CompletionOpcode::LocalInvalidate,
            Self::Bind(_) => CompletionOpcode::BindWindow,
        }
    }
}

/// Flags of a send request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendFlags {
    /// A successful completion is reported.
    pub signaled: bool,
    /// The peer's completion is a solicited event.
    pub solicited: bool,
    /// Starts only after earlier READs and atomics of this queue pair are done.
    pub fence: bool,
}

/// Where a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramTarget {
    /// The resolved address handle.
    pub path: Path,
    /// Destination queue pair.
    pub qpn: Qpn,
    /// Queue key; with the top bit set the sending queue pair's own is used (IBTA 10.2.5).
    pub qkey: u32,
}

/// A send work request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendRequest {
    /// The program's own number, returned in the completion.
    pub wr_id: u64,
    /// What to do.
    pub operation: SendOperation,
    /// Local bytes.
    pub data: Data,
    /// Flags.
    pub flags: SendFlags,
    /// Target of a UD request; ignored by connected services.
    pub target: Option<DatagramTarget>,
    /// The peer's SRQ number (XRC); ignored by other services.
    pub xrc_srqn: u32,
}

/// A receive work request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecvRequest {
    /// The program's own number, returned in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sges: SgeList,
}
