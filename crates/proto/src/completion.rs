//! What a queue pair tells its host: completions and asynchronous events.

use crate::SrqId;
use core::net::IpAddr;
use feroce_wire::Qpn;

/// How a work request ended; values and names follow `ibv_wc_status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_poll_cq(3)")]
pub enum CompletionStatus {
    Success = 0,
    LocalLength = 1,
    LocalQpOperation = 2,
    LocalEec = 3,
    LocalProtection = 4,
    WorkRequestFlushed = 5,
    WindowBind = 6,
    BadResponse = 7,
    LocalAccess = 8,
    RemoteInvalidRequest = 9,
    RemoteAccess = 10,
    RemoteOperation = 11,
    RetryExceeded = 12,
    RnrRetryExceeded = 13,
    LocalRddViolation = 14,
    RemoteInvalidRdRequest = 15,
    RemoteAborted = 16,
    InvalidEecn = 17,
    InvalidEecState = 18,
    Fatal = 19,
    ResponseTimeout = 20,
    General = 21,
}

/// What kind of work request ended; values follow `ibv_wc_opcode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "named in the verbs manual, ibv_poll_cq(3)")]
pub enum CompletionOpcode {
    Send = 0,
    RdmaWrite = 1,
    RdmaRead = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    BindWindow = 5,
    LocalInvalidate = 6,
    Flush = 8,
    AtomicWrite = 9,
    Receive = 128,
    ReceiveWithImmediate = 129,
}

/// One completion, before the host stamps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The request's number.
    pub wr_id: u64,
    /// Outcome; when not `Success` only `wr_id`, `status`, `qpn` and `vendor_error` count.
    pub status: CompletionStatus,
    /// Kind.
    pub opcode: CompletionOpcode,
    /// Bytes transferred; for UD receives it counts the 40 bytes of the GRH.
    pub byte_len: u32,
    /// Immediate data of a receive.
    pub immediate: Option<u32>,
    /// Key that the peer's SEND invalidated.
    pub invalidated: Option<u32>,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The sending queue pair (UD).
    pub source_qpn: Qpn,
    /// Address of the sender (UD): a GRH lies in the buffer.
    pub source: Option<IpAddr>,
    /// Completes a message that was sent with the solicited-event bit, or failed.
    pub solicited: bool,
    /// More about an error, for people; 0 without.
    pub vendor_error: u32,
}

impl Completion {
    /// A successful one with nothing special about it.
    pub(crate) const fn success(wr_id: u64, opcode: CompletionOpcode, qpn: Qpn) -> Self {
        Self {
            wr_id,
            status: CompletionStatus::Success,
            opcode,
            byte_len: 0,
            immediate: None,
            invalidated: None,
            qpn,
            source_qpn: Qpn::new(0),
            source: None,
            solicited: false,
            vendor_error: 0,
        }
    }
}

/// An affiliated asynchronous event; names follow `ibv_event_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "named in the verbs manual, ibv_get_async_event(3)"
)]
pub enum AsyncEvent {
    QpFatal(Qpn),
    QpRequestError(Qpn),
    QpAccessError(Qpn),
    CommunicationEstablished(Qpn),
    SqDrained(Qpn),
    PathMigrated(Qpn),
    QpLastWqeReached(Qpn),
    SrqLimitReached(SrqId),
    SrqError(SrqId),
}
