//! Attributes of queue pairs and shared receive queues; names follow the verbs manual.

use crate::{CqId, PdId, SrqId, XrcdId};
use core::net::IpAddr;
use core::ops::BitOr;
use feroce_wire::{Psn, Qpn};

/// A resolved address: what an address handle or a connected queue pair sends to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Local address, from the source GID.
    pub source: IpAddr,
    /// Peer or group address, from the destination GID.
    pub destination: IpAddr,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Service level, kept for queries only.
    pub service_level: u8,
    /// Index of the source GID, kept for queries only.
    pub source_gid_index: u8,
}

/// Path MTU: bytes of payload per packet. Values follow `ibv_mtu`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Mtu {
    Mtu256 = 1,
    Mtu512 = 2,
    Mtu1024 = 3,
    Mtu2048 = 4,
    Mtu4096 = 5,
}

impl Mtu {
    /// Payload bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// From the number of `ibv_mtu`.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            _ => return None,
        })
    }
}

/// Type of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_create_qp(3)")]
pub enum QpType {
    Rc,
    Uc,
    Ud,
    XrcSend,
    XrcRecv,
}

/// State of a queue pair (IBTA 10.3); values follow `ibv_qp_state`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_modify_qp(3)")]
pub enum QpState {
    Reset = 0,
    Init = 1,
    ReadyToReceive = 2,
    ReadyToSend = 3,
    SqDrained = 4,
    SqError = 5,
    Error = 6,
}

/// Depths of the queues and limits of their requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_create_qp(3)")]
pub struct QpCapabilities {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// How a queue pair is created.
#[derive(Clone, Copy, Debug)]
pub struct QpInit {
    /// Type.
    pub qp_type: QpType,
    /// Protection domain (for an XRC target: of its domain).
    pub pd: PdId,
    /// Queue for completions of send requests.
    pub send_cq: CqId,
    /// Queue for completions of receive requests.
    pub recv_cq: CqId,
    /// Shared receive queue that replaces the queue pair's own.
    pub srq: Option<SrqId>,
    /// XRC domain of an XRC target.
    pub xrcd: Option<XrcdId>,
    /// Capacities.
    pub capabilities: QpCapabilities,
    /// Every send request completes visibly.
    pub signal_all: bool,
}

/// How a shared receive queue is created.
#[derive(Clone, Copy, Debug)]
pub struct SrqInit {
    /// Protection domain.
    pub pd: PdId,
    /// Depth, entries per request, and the limit that raises an event.
    pub attributes: SrqAttributes,
    /// For XRC: the domain and the completion queue of its receives.
    pub xrc: Option<(XrcdId, CqId)>,
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_create_srq(3)")]
pub struct SrqAttributes {
    pub max_wr: u32,
    pub max_sge: u32,
    pub limit: u32,
}

/// Which attributes a modify names; bit values follow `ibv_qp_attr_mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeMask(pub u32);

#[expect(missing_docs, reason = "named in the verbs manual, ibv_modify_qp(3)")]
impl AttributeMask {
    pub const STATE: Self = Self(1);
    pub const CURRENT_STATE: Self = Self(1 << 1);
    pub const EN_SQD_ASYNC_NOTIFY: Self = Self(1 << 2);
    pub const ACCESS_FLAGS: Self = Self(1 << 3);
    pub const PKEY_INDEX: Self = Self(1 << 4);
    pub const PORT: Self = Self(1 << 5);
    pub const QKEY: Self = Self(1 << 6);
    pub const AV: Self = Self(1 << 7);
    pub const PATH_MTU: Self = Self(1 << 8);
    pub const TIMEOUT: Self = Self(1 << 9);
    pub const RETRY_COUNT: Self = Self(1 << 10);
    pub const RNR_RETRY: Self = Self(1 << 11);
    pub const RQ_PSN: Self = Self(1 << 12);
    pub const MAX_QP_RD_ATOMIC: Self = Self(1 << 13);
    pub const ALT_PATH: Self = Self(1 << 14);
    pub const MIN_RNR_TIMER: Self = Self(1 << 15);
    pub const SQ_PSN: Self = Self(1 << 16);
    pub const MAX_DEST_RD_ATOMIC: Self = Self(1 << 17);
    pub const PATH_MIG_STATE: Self = Self(1 << 18);
    pub const CAP: Self = Self(1 << 19);
    pub const DEST_QPN: Self = Self(1 << 20);
    pub const RATE_LIMIT: Self = Self(1 << 25);

    /// Whether all bits of `other` are in `self`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for AttributeMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Attributes of a queue pair. In a modify only those that the mask names count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_modify_qp(3)")]
pub struct QpAttributes {
    pub state: QpState,
    pub current_state: QpState,
    /// `ibv_access_flags` bits: which remote operations are allowed at all.
    pub access_flags: u32,
    pub pkey_index: u16,
    pub port: u8,
    pub qkey: u32,
    pub path: Option<Path>,
    pub path_mtu: Mtu,
    /// Five-bit code of 4.096 µs · 2^n; 0 waits for ever.
    pub timeout: u8,
    /// 0..=7.
    pub retry_count: u8,
    /// 0..=7; 7 tries for ever.
    pub rnr_retry: u8,
    pub rq_psn: Psn,
    pub sq_psn: Psn,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// Five-bit code of the RNR timer table.
    pub min_rnr_timer: u8,
    pub dest_qpn: Qpn,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    /// kb/s; 0: none.
    pub rate_limit: u32,
    pub capabilities: QpCapabilities,
}

impl Default for QpAttributes {
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            current_state: QpState::Reset,
            access_flags: 0,
            pkey_index: 0,
            port: 1,
            qkey: 0,
            path: None,
            path_mtu: Mtu::Mtu1024,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            dest_qpn: Qpn::new(0),
            en_sqd_async_notify: false,
            sq_draining: false,
            rate_limit: 0,
            capabilities: QpCapabilities::default(),
        }
    }
}
