//! The requester: the send queue of a queue pair and where it stands (IBTA 9.7.2, 9.7.6, 9.7.7).
//!
//! PSNs are given to a request when its first packet leaves. `una` is the oldest PSN without an
//! answer, `next` the one that leaves next; going back means `next = una`. Requests between them
//! keep their place in the queue until everything before them is answered, so that completions
//! come in order. [`transmit`] sends, [`response`] takes answers in. Unreliable services use
//! the same queue; their requests complete when the last packet has left.

mod post;
mod response;
mod transmit;

use crate::qp::{Context, Qp, inbound};
use crate::timers::Timer;
use crate::window::{Loss, WindowId};
use crate::{
    AsyncEvent, CompletionStatus, Host, Instant, NicConfig, QpState, SendOperation, SendRequest,
};
use alloc::collections::VecDeque;
use core::time::Duration;
use feroce_wire::{Psn, timing};

/// Packets that may be without an answer; IBTA allows 2^23 - 1, and no window needs as many.
const OUTSTANDING_PACKETS_MAX: u32 = 1 << 22;

/// Retry code that means: for ever.
const RNR_RETRY_FOREVER: u8 = 7;

/// A send request and where it stands.
#[derive(Debug)]
pub(crate) struct Wqe {
    request: SendRequest,
    /// Bytes of the message.
    length: u32,
    progress: Progress,
    /// A local fault stopped it; reported when it is the oldest.
    failed: Option<CompletionStatus>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// No packet has left.
    Waiting,
    /// Its packets are `first..first + packets`; some have left.
    Begun { first: Psn, packets: u32 },
    /// A local operation that has been executed. It has no PSN (W6: it never runs again).
    Executed,
}

impl Wqe {
    const fn is_read(&self) -> bool {
        matches!(self.request.operation, SendOperation::Read(_))
    }

    /// Whether it uses one of the peer's responder resources (READ, atomics, annex A19).
    const fn uses_responder_resource(&self) -> bool {
        matches!(
            self.request.operation,
            SendOperation::Read(_)
                | SendOperation::CompareSwap { .. }
                | SendOperation::FetchAdd { .. }
                | SendOperation::AtomicWrite(_)
                | SendOperation::Flush { .. }
        )
    }

    /// Whether its answer carries data, so that an acknowledge of a later PSN cannot stand in.
    const fn needs_data(&self) -> bool {
        matches!(
            self.request.operation,
            SendOperation::Read(_)
                | SendOperation::CompareSwap { .. }
                | SendOperation::FetchAdd { .. }
        )
    }

    /// Whether its packets carry local bytes.
    const fn sends_data(&self) -> bool {
        !self.uses_responder_resource()
            || matches!(self.request.operation, SendOperation::AtomicWrite(_))
    }

    /// Whether it takes a receive of the peer.
    const fn consumes_receive(&self) -> bool {
        matches!(
            self.request.operation,
            SendOperation::Send
                | SendOperation::SendImmediate(_)
                | SendOperation::SendInvalidate(_)
                | SendOperation::WriteImmediate(..)
        )
    }

    /// PSNs it takes.
    fn packets(&self, mtu: u32) -> u32 {
        self.length.div_ceil(mtu).max(1)
    }

    /// Window bytes of its packets `from..to` (for a READ: of the responses).
    fn charge(&self, from: u32, to: u32, mtu: u32, overhead: u64) -> u64 {
        let length = u64::from(self.length);
        let bytes = |packet: u32| (u64::from(packet) * u64::from(mtu)).min(length);
        bytes(to) - bytes(from) + u64::from(to - from) * overhead
    }
}

/// The send side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Requester {
    queue: VecDeque<Wqe>,
    /// The request whose packet leaves next.
    cursor: usize,
    una: Psn,
    next: Psn,
    /// The PSN after the last that ever left.
    high: Psn,
    /// Where the last recovery went back to, until that PSN is answered: everything else that
    /// complains about it is an echo of the same loss.
    rewound_to: Option<Psn>,
    /// READ requests and atomics between `una` and `next`.
    outstanding: u32,
    retries_left: u8,
    rnr_retries_left: u8,
    /// When the oldest packet is given up; none without packets in flight.
    ack_deadline: Option<Instant>,
    /// No request leaves before (RNR NAK).
    wait_until: Option<Instant>,
    /// Window bytes sent since the last request for an acknowledge.
    since_ack_request: u64,
    /// Bytes charged to the peer's window.
    charged: u64,
    /// Bytes charged to the inbound window.
    charged_inbound: u64,
    /// When the peer last answered, or bytes were charged after there were none.
    heard_at: Instant,
    /// Its bytes in flight have been given up by the windows; it waits for an answer or a
    /// timeout before it sends more.
    unheard: bool,
    /// Messages begun, as the responder counts them (IBTA 9.7.7.2, SSN).
    messages: u32,
    /// With credits: the last message the responder has a receive for (LSN).
    credit_limit: Option<u32>,
    /// Messages the responder had completed when it last told its credits.
    credits_at: u32,
    /// The responder has told of new receives without being asked.
    hears_of_credits: bool,
    /// Without credits and with nothing in flight: when to try one message all the same.
    probe_at: Option<Instant>,
}

impl Requester {
    /// Requests posted and not completed.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) const fn next_psn(&self) -> Psn {
        self.next
    }

    /// Starts at `psn`, on the way to RTS.
    pub(crate) const fn begin(&mut self, psn: Psn, retry_count: u8, rnr_retry: u8) {
        self.una = psn;
        self.next = psn;
        self.high = psn;
        self.retries_left = retry_count;
        self.rnr_retries_left = rnr_retry;
    }

    /// Takes new retry counts over.
    pub(crate) const fn set_retries(&mut self, retry_count: u8, rnr_retry: u8) {
        self.retries_left = retry_count;
        self.rnr_retries_left = rnr_retry;
    }

    /// Whether no request has begun without being completed.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue
            .front()
            .is_none_or(|wqe| wqe.progress == Progress::Waiting)
    }

    /// What it has charged to the windows; forgets it.
    pub(crate) fn take_charges(
        &mut self,
        peer: Option<WindowId>,
    ) -> impl Iterator<Item = (WindowId, u64)> + use<> {
        let charged = core::mem::take(&mut self.charged);
        let inbound_bytes = core::mem::take(&mut self.charged_inbound);
        peer.map(|id| (id, charged))
            .into_iter()
            .chain([(inbound(), inbound_bytes)])
            .filter(|&(_, bytes)| bytes > 0)
    }
}

/// The packets of a request that has begun, from `una` on.
struct Span<'a> {
    wqe: &'a Wqe,
    /// Its first packet that is not answered.
    from: u32,
    /// All its packets.
    packets: u32,
    /// Packets from `una` to its packet `from`.
    start: u32,
}

impl Requester {
    /// The requests that have begun, oldest first; their PSNs follow one another without a gap.
    fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        let una = self.una;
        let mut start = 0_u32;
        self.queue
            .iter()
            .take_while(|wqe| wqe.progress != Progress::Waiting)
            .filter_map(move |wqe| {
                let Progress::Begun { first, packets } = wqe.progress else {
                    return None;
                };
                // Only the oldest has answered packets; the others begin after `una`.
                let from = if start == 0 {
                    offset(una, first).min(packets)
                } else {
                    0
                };
                let span = Span {
                    wqe,
                    from,
                    packets,
                    start,
                };
                start = start.saturating_add(packets - from);
                Some(span)
            })
    }
}

/// Packets of one READ request: the configured piece in whole packets.
fn read_chunk_packets(config: &NicConfig, mtu: u32) -> u32 {
    (config.read_chunk_max / mtu).clamp(1, OUTSTANDING_PACKETS_MAX)
}

/// How many requests end within packets `from..to`, when a new one begins every `chunk` packets.
const fn requests_ending(from: u32, to: u32, packets: u32, chunk: u32) -> u32 {
    let whole = to / chunk - from / chunk;
    if to == packets && !packets.is_multiple_of(chunk) {
        whole + 1
    } else {
        whole
    }
}

/// Packets from `earlier` to `psn` on the way up, modulo 2^24.
const fn offset(psn: Psn, earlier: Psn) -> u32 {
    psn.minus(earlier.value()).value()
}

impl Qp {
    /// How long the oldest packet may stay without an answer.
    fn ack_timeout<H: Host>(&self, cx: &Context<'_, H>) -> Option<Duration> {
        let timeout = timing::ack_timeout(self.attributes.timeout)?;
        Some(timeout.max(cx.shared.config.ack_timeout_min))
    }

    /// Restarts the ACK timer, or stops it when nothing is in flight (W3).
    fn restart_ack_timer<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let in_flight = self.requester.next != self.requester.una;
        self.requester.ack_deadline = self
            .ack_timeout(cx)
            .filter(|_| in_flight)
            .map(|timeout| cx.now + timeout);
        if let Some(deadline) = self.requester.ack_deadline {
            cx.shared.timers.arm(self.index, Timer::Retry, deadline);
        }
    }

    /// A retry timer fired; it may be an old one.
    pub(crate) fn handle_retry_timer<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let deadline = self.requester.wait_until.or(self.requester.ack_deadline);
        let Some(deadline) = deadline else { return };
        if deadline > cx.now {
            cx.shared.timers.arm(self.index, Timer::Retry, deadline);
        } else if self.requester.wait_until.take().is_some() {
            self.requester.rewound_to = None;
            cx.schedule();
        } else {
            cx.counters().local_ack_timeout_err += 1;
            self.go_back(cx, Loss::Timeout);
        }
    }

    /// Nothing may have been heard for a while; then the windows are for others. A queue pair
    /// whose peer is gone must not hold up the rest until its retries have run out.
    pub(crate) fn handle_hold_timer<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let requester = &mut self.requester;
        if requester.charged + requester.charged_inbound == 0 {
            return;
        }
        let due = requester.heard_at + cx.shared.config.window_hold;
        if due > cx.now {
            cx.shared.timers.arm(self.index, Timer::Hold, due);
        } else {
            requester.unheard = true;
            self.release_windows(cx.shared);
        }
    }

    /// Sends everything from the oldest unanswered packet again, if retries are left.
    fn go_back<H: Host>(&mut self, cx: &mut Context<'_, H>, loss: Loss) {
        let Some(left) = self.requester.retries_left.checked_sub(1) else {
            cx.counters().req_retries_exceeded += 1;
            self.fail_oldest(cx, CompletionStatus::RetryExceeded);
            return;
        };
        self.requester.retries_left = left;
        if self.requester.charged > 0
            && let Some(id) = self.window
        {
            cx.shared.windows.lost(id, loss);
        }
        if self.requester.charged_inbound > 0 {
            cx.shared.windows.lost(inbound(), loss);
        }
        self.rewind(cx);
        self.requester.rewound_to = Some(self.requester.una);
    }

    /// A response showed that the oldest unanswered packet, or its answer, is missing. One
    /// recovery per round trip: until that packet is answered, more of these say nothing new.
    fn recover<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if self.requester.rewound_to != Some(self.requester.una) {
            self.go_back(cx, Loss::Gap);
        }
    }

    /// The next packet to leave is the oldest unanswered one. Executed local operations
    /// stay executed.
    fn rewind<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        self.release_windows(cx.shared);
        let requester = &mut self.requester;
        requester.next = requester.una;
        requester.cursor = 0;
        requester.outstanding = 0;
        requester.since_ack_request = 0;
        requester.ack_deadline = None;
        requester.unheard = false;
        cx.schedule();
    }

    /// Everything before `to` is answered, as far as no data is missing.
    fn advance<H: Host>(&mut self, cx: &mut Context<'_, H>, to: Psn) {
        let reached = self.answered_up_to(to);
        if reached != self.requester.una {
            self.progress_to(cx, reached);
        }
    }

    /// The first PSN up to `to` that needs an answer with data, or `to`.
    fn answered_up_to(&self, to: Psn) -> Psn {
        let una = self.requester.una;
        let target = offset(to, una);
        for span in self.requester.spans() {
            if target <= span.start {
                break;
            }
            if span.wqe.needs_data() {
                return una.plus(span.start);
            }
        }
        to
    }

    /// Moves `una` up to `reached`, gives window bytes back and completes what is done.
    fn progress_to<H: Host>(&mut self, cx: &mut Context<'_, H>, reached: Psn) {
        self.acknowledge_charges(cx, reached);
        let requester = &mut self.requester;
        requester.una = reached;
        if requester.next.is_before(reached) {
            requester.next = reached;
        }
        requester.rewound_to = None;
        requester.unheard = false;
        requester.heard_at = cx.now;
        requester.retries_left = self.attributes.retry_count;
        requester.rnr_retries_left = self.attributes.rnr_retry;
        self.restart_ack_timer(cx);
        self.retire(cx);
        // Fenced requests, credits and responder resources may be free now.
        if !self.requester.queue.is_empty() {
            cx.schedule();
        }
    }

    /// Gives the bytes of `una..reached` back, as far as they have left since going back.
    fn acknowledge_charges<H: Host>(&mut self, cx: &mut Context<'_, H>, reached: Psn) {
        let (mtu, overhead) = (self.mtu_bytes(), cx.shared.config.packet_overhead);
        let chunk = read_chunk_packets(&cx.shared.config, mtu);
        let requester = &mut self.requester;
        let end = if requester.next.is_before(reached) {
            requester.next
        } else {
            reached
        };
        let target = offset(end, requester.una);
        let (mut sent, mut asked, mut resources) = (0, 0, 0);
        for span in requester.spans() {
            let Some(answered) = target.checked_sub(span.start).filter(|&n| n > 0) else {
                break;
            };
            let to = span.packets.min(span.from.saturating_add(answered));
            let bytes = span.wqe.charge(span.from, to, mtu, overhead);
            if span.wqe.is_read() {
                asked += bytes;
            } else {
                sent += bytes;
            }
            if span.wqe.uses_responder_resource() {
                resources += requests_ending(span.from, to, span.packets, chunk);
            }
        }
        let sent = sent.min(requester.charged);
        let asked = asked.min(requester.charged_inbound);
        requester.charged -= sent;
        requester.charged_inbound -= asked;
        requester.outstanding = requester.outstanding.saturating_sub(resources);
        for (id, bytes) in [(self.window, sent), (Some(inbound()), asked)] {
            if let Some(id) = id.filter(|_| bytes > 0) {
                cx.shared.windows.acknowledge(id, bytes);
                cx.wake_waiting(id);
            }
        }
    }

    /// Completes requests from the front of the queue while they are done.
    fn retire<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        while let Some(wqe) = self.requester.queue.front() {
            if let Some(status) = wqe.failed {
                self.fail_oldest(cx, status);
                return;
            }
            let done = match wqe.progress {
                Progress::Waiting => false,
                Progress::Executed => true,
                Progress::Begun { first, packets } => offset(self.requester.una, first) >= packets,
            };
            if !done {
                break;
            }
            self.complete_oldest(cx);
        }
        self.report_drained(cx);
    }

    /// Completes the oldest request with success.
    fn complete_oldest<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let Some(wqe) = self.requester.queue.pop_front() else {
            return;
        };
        self.requester.cursor = self.requester.cursor.saturating_sub(1);
        if wqe.request.flags.signaled || self.init.signal_all {
            let mut completion =
                self.completion(wqe.request.wr_id, wqe.request.operation.completion_opcode());
            completion.byte_len = wqe.length;
            cx.host.complete(self.init.send_cq, completion);
        }
    }

    /// Completes the oldest request with an error and stops the queue: a reliable queue pair
    /// goes to the error state, an unreliable one to "send queue error" (IBTA 10.3.1).
    fn fail_oldest<H: Host>(&mut self, cx: &mut Context<'_, H>, status: CompletionStatus) {
        if let Some(wqe) = self.requester.queue.pop_front() {
            cx.counters().req_cqe_error += 1;
            let mut completion =
                self.completion(wqe.request.wr_id, wqe.request.operation.completion_opcode());
            completion.status = status;
            completion.solicited = true;
            cx.host.complete(self.init.send_cq, completion);
        }
        if self.is_reliable() {
            self.responder.fall_silent();
            self.enter_error(cx);
        } else {
            self.attributes.state = QpState::SqError;
            self.flush_sends(cx);
        }
    }

    /// Flushes the send queue, oldest first.
    pub(crate) fn flush_sends<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        while let Some(wqe) = self.requester.queue.pop_front() {
            self.flush_send(cx, &wqe);
        }
        let requester = &mut self.requester;
        requester.queue = VecDeque::new();
        requester.cursor = 0;
        requester.outstanding = 0;
        requester.una = requester.next;
        requester.high = requester.next;
        requester.ack_deadline = None;
        requester.wait_until = None;
    }

    fn flush_send<H: Host>(&self, cx: &mut Context<'_, H>, wqe: &Wqe) {
        cx.counters().req_cqe_flush_error += 1;
        let mut completion =
            self.completion(wqe.request.wr_id, wqe.request.operation.completion_opcode());
        completion.status = CompletionStatus::WorkRequestFlushed;
        completion.solicited = true;
        cx.host.complete(self.init.send_cq, completion);
    }

    /// Raises the event when a send queue that is to drain has nothing in progress.
    pub(crate) fn report_drained<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if self.attributes.sq_draining && self.requester.is_drained() {
            self.attributes.sq_draining = false;
            if self.attributes.en_sqd_async_notify {
                cx.host.event(AsyncEvent::SqDrained(self.qpn));
            }
        }
    }
}
