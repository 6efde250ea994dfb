//! One stream: a queue pair of verbs. The halves live in [`super::requester`] and
//! [`super::responder`].

use super::requester::Requester;
use super::responder::Responder;
use crate::srq::Srqs;
use crate::{
    Completion, CompletionOpcode, CompletionStatus, CqId, Host, Instant, PostError, QpInit,
    QpState, RecvRequest,
};
use alloc::collections::VecDeque;
use core::net::IpAddr;
use feroce_wire::Qpn;
use feroce_wire::metaroce::{MessageNumber, ReceiveNumber};

use super::config::EndpointConfig;
use super::counters::EndpointCounters;

/// Names a stream of an endpoint; a name is never used for two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StreamRef {
    pub(super) index: u32,
    pub(super) incarnation: u32,
}

/// What a stream is connected to, and how; names as in `ibv_modify_qp(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamTarget {
    /// An address of the peer.
    pub peer: IpAddr,
    /// The peer's stream.
    pub qpn: Qpn,
    /// First message number that is sent (`sq_psn`).
    pub send_number: MessageNumber,
    /// First message number that is expected (`rq_psn`).
    pub receive_number: MessageNumber,
    /// `ibv_access_flags` bits: which remote operations are allowed at all.
    pub access_flags: u32,
    /// READs and atomics in progress as a requester.
    pub max_rd_atomic: u8,
    /// READs and atomics in progress as a responder.
    pub max_dest_rd_atomic: u8,
    /// Five-bit code of the time a peer without a receive waits.
    pub min_rnr_timer: u8,
    /// How often to wait for a receive; 7: for ever.
    pub rnr_retry: u8,
    /// How often to wait for a peer that does not know the stream.
    pub retry_count: u8,
}

impl Default for StreamTarget {
    fn default() -> Self {
        Self {
            peer: IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            qpn: Qpn::new(0),
            send_number: MessageNumber(0),
            receive_number: MessageNumber(0),
            access_flags: 0xf,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            rnr_retry: 7,
            retry_count: 7,
        }
    }
}

/// What one call into a stream works with, besides its connection.
pub(super) struct Context<'a, H> {
    pub(super) now: Instant,
    pub(super) config: &'a EndpointConfig,
    pub(super) counters: &'a mut EndpointCounters,
    pub(super) srqs: &'a mut Srqs,
    pub(super) host: &'a mut H,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) reference: StreamRef,
    pub(super) qpn: Qpn,
    pub(super) init: QpInit,
    pub(super) state: QpState,
    pub(super) target: StreamTarget,
    /// Index of its connection.
    pub(super) connection: Option<u32>,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// Its own receive queue; the first has the number `receive_base`.
    pub(super) receives: VecDeque<RecvRequest>,
    pub(super) receive_base: ReceiveNumber,
    /// It is in its connection's list of those that may send.
    pub(super) ready: bool,
    /// It is in its connection's list of those the peer is to hear of.
    pub(super) dirty: bool,
    /// Words for segments out of order that its connection still counts, though they are gone.
    leftover: usize,
}

impl Stream {
    pub(super) fn new(reference: StreamRef, qpn: Qpn, init: QpInit) -> Self {
        Self {
            reference,
            qpn,
            init,
            state: QpState::Init,
            target: StreamTarget::default(),
            connection: None,
            requester: Requester::default(),
            responder: Responder::default(),
            receives: VecDeque::new(),
            receive_base: ReceiveNumber(0),
            ready: false,
            dirty: false,
            leftover: 0,
        }
    }

    /// Words for segments out of order that its connection counts for it.
    pub(super) fn words(&self) -> usize {
        self.leftover + self.responder.words() + self.requester.words()
    }

    /// A completion with what all have in common.
    pub(super) const fn completion(&self, wr_id: u64, opcode: CompletionOpcode) -> Completion {
        Completion::success(wr_id, opcode, self.qpn)
    }

    pub(super) fn complete_error<H: Host>(
        &self,
        host: &mut H,
        cq: CqId,
        (wr_id, opcode): (u64, CompletionOpcode),
        status: CompletionStatus,
    ) {
        let mut completion = self.completion(wr_id, opcode);
        completion.status = status;
        completion.solicited = true;
        host.complete(cq, completion);
    }

    /// The error state: every request completes, the oldest send request with `status`, the rest
    /// as flushed (IBTA 10.3.1).
    pub(super) fn enter_error<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        status: CompletionStatus,
    ) {
        if self.state == QpState::Error {
            return;
        }
        self.state = QpState::Error;
        self.leftover = self.words();
        let mut status = status;
        while let Some((wr_id, opcode)) = self.requester.pop_any() {
            if status == CompletionStatus::WorkRequestFlushed {
                cx.counters.flushed += 1;
            } else {
                cx.counters.request_errors += 1;
            }
            self.complete_error(cx.host, self.init.send_cq, (wr_id, opcode), status);
            status = CompletionStatus::WorkRequestFlushed;
        }
        self.flush_receives(cx);
    }

    fn flush_receives<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let taken = self.responder.take_all();
        let queued = self.receives.drain(..).map(|request| request.wr_id);
        let ids: alloc::vec::Vec<u64> = taken.into_iter().chain(queued).collect();
        for wr_id in ids {
            cx.counters.flushed += 1;
            let what = (wr_id, CompletionOpcode::Receive);
            let status = CompletionStatus::WorkRequestFlushed;
            self.complete_error(cx.host, self.init.recv_cq, what, status);
        }
    }

    /// Queues a receive.
    pub(super) fn post_recv<H: Host>(
        &mut self,
        request: RecvRequest,
        host: &mut H,
    ) -> Result<(), PostError> {
        let capabilities = &self.init.capabilities;
        if self.init.srq.is_some() {
            return Err(PostError::NoReceiveQueue);
        }
        if request.sges.len() > capabilities.max_recv_sge as usize {
            return Err(PostError::TooManySge {
                asked: request.sges.len(),
                max: capabilities.max_recv_sge,
            });
        }
        if self.receives.len() >= capabilities.max_recv_wr as usize {
            return Err(PostError::QueueFull(capabilities.max_recv_wr));
        }
        if self.state == QpState::Error {
            let what = (request.wr_id, CompletionOpcode::Receive);
            let status = CompletionStatus::WorkRequestFlushed;
            self.complete_error(host, self.init.recv_cq, what, status);
            return Ok(());
        }
        self.receives.push_back(request);
        Ok(())
    }

    /// Whether the peer has used, or is about to use, all receives that it knows of.
    //= MR-STR-008
    pub(super) fn has_news_of_receives(&self) -> bool {
        let Some(told) = self.responder.told_limit else {
            return true;
        };
        let left = told.distance_from(self.receive_base).max(0);
        let posted = i32::try_from(self.receives.len()).unwrap_or(i32::MAX);
        left == 0 || left < posted / 2
    }

    /// Receives before this number are posted; none: they are shared.
    pub(super) fn receive_limit(&self) -> Option<ReceiveNumber> {
        if self.init.srq.is_some() {
            return None;
        }
        let posted = u32::try_from(self.receives.len()).unwrap_or(u32::MAX);
        Some(self.receive_base.plus(posted))
    }
}
