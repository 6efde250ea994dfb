//! Sending requests: which packet leaves next, if any, and what its leaving changes.
//!
//! [`Qp::plan`] only decides; [`Qp::transmit_request`] acts. Nothing changes when the host has no
//! room.

use super::{OUTSTANDING_PACKETS_MAX, Progress, Wqe, offset, read_chunk_packets};
use crate::config::SGE_MAX;
use crate::qp::{Context, Qp, Step, inbound};
use crate::request::pieces;
use crate::timers::Timer;
use crate::window::WindowId;
use crate::{
    CompletionStatus, Data, Host, Payload, QpState, QpType, Remote, SendOperation, Sge,
    TransmitError,
};
use arrayvec::ArrayVec;
use feroce_wire::header::Bth;
use feroce_wire::{
    AtomicOperands, Extensions, Headers, Msn, Opcode, Operation, Position, Psn, Reth, Service,
};

/// What the send queue wants to do next.
enum Plan {
    /// Nothing, until something happens that schedules the queue pair again.
    Nothing,
    /// Wait for room in a window.
    Wait(WindowId),
    /// Step over a local operation that has been executed.
    Skip,
    /// Wait for credits, but not for ever.
    NoCredit,
    /// Execute a local operation.
    Local,
    /// The request at the cursor cannot be sent.
    Fail(CompletionStatus),
    /// Send a packet of the request at the cursor.
    Packet(Cut),
}

/// One packet of a request.
#[derive(Clone, Copy)]
struct Cut {
    /// PSN of the request's first packet.
    first: Psn,
    /// PSNs of the request.
    packets: u32,
    /// Place of this packet among them.
    at: u32,
    /// PSNs it takes: those of its responses, for a READ.
    count: u32,
    /// First byte.
    offset: u32,
    /// Bytes: of payload, or asked for.
    length: u32,
    /// Whether no packet of the request remains after it.
    ends: bool,
    /// The window it is charged to.
    window: Option<WindowId>,
    /// Bytes charged.
    charge: u64,
    /// Bytes that leave, as the rate counts them.
    leaving: u64,
}

impl Qp {
    /// Sends the next packet of the send queue. `last`: another queue pair has its turn next.
    pub(crate) fn transmit_request<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        last: bool,
    ) -> Step {
        match self.plan(cx) {
            Plan::Nothing => Step::Idle,
            Plan::Wait(window) => {
                cx.shared.windows.wait(window, self.index);
                Step::Idle
            }
            Plan::Skip => {
                self.requester.cursor += 1;
                Step::Again
            }
            Plan::NoCredit => {
                let config = &cx.shared.config;
                let wait = if self.requester.hears_of_credits {
                    config.credit_probe_told
                } else {
                    config.credit_probe
                };
                let at = cx.now + wait;
                let at = *self.requester.probe_at.get_or_insert(at);
                cx.shared.timers.arm(self.index, Timer::Pace, at);
                Step::Idle
            }
            Plan::Local => {
                self.execute_local(cx);
                Step::Again
            }
            Plan::Fail(status) => self.stop_at_cursor(cx, status),
            Plan::Packet(_) if self.is_paced(cx) => Step::Idle,
            Plan::Packet(cut) => self.send(cx, &cut, last),
        }
    }

    fn plan<H: Host>(&self, cx: &Context<'_, H>) -> Plan {
        let requester = &self.requester;
        if !matches!(self.state(), QpState::ReadyToSend | QpState::SqDrained)
            || requester.wait_until.is_some()
            || requester.unheard
        {
            return Plan::Nothing;
        }
        let Some(wqe) = requester.queue.get(requester.cursor) else {
            return Plan::Nothing;
        };
        if wqe.failed.is_some() {
            return Plan::Nothing;
        }
        match wqe.progress {
            Progress::Executed => Plan::Skip,
            Progress::Begun { first, packets } => {
                if offset(requester.next, first) >= packets {
                    return Plan::Skip;
                }
                self.plan_packet(cx, wqe, first, packets)
            }
            Progress::Waiting => self.plan_begin(cx, wqe),
        }
    }

    /// Whether a request may begin.
    fn plan_begin<H: Host>(&self, cx: &Context<'_, H>, wqe: &Wqe) -> Plan {
        let requester = &self.requester;
        if self.state() == QpState::SqDrained {
            return Plan::Nothing;
        }
        if wqe.request.flags.fence && requester.outstanding > 0 {
            return Plan::Nothing;
        }
        match wqe.request.operation {
            // A key goes only when nothing that is sent again could still need it.
            SendOperation::LocalInvalidate(_) if requester.cursor > 0 => return Plan::Nothing,
            SendOperation::LocalInvalidate(_) | SendOperation::Bind(_) => return Plan::Local,
            _ => {}
        }
        if wqe.uses_responder_resource() && self.attributes.max_rd_atomic == 0 {
            return Plan::Fail(CompletionStatus::LocalQpOperation);
        }
        if wqe.consumes_receive() && !self.has_credit() {
            // Answers to what is in flight bring new credits, or lead here again.
            if requester.una != requester.next {
                return Plan::Nothing;
            }
            if requester.probe_at.is_none_or(|at| cx.now < at) {
                return Plan::NoCredit;
            }
        }
        let packets = wqe.packets(self.packet_bytes(cx));
        self.plan_packet(cx, wqe, requester.next, packets)
    }

    /// Whether a packet of a request that has begun may leave.
    fn plan_packet<H: Host>(
        &self,
        cx: &Context<'_, H>,
        wqe: &Wqe,
        first: Psn,
        packets: u32,
    ) -> Plan {
        let requester = &self.requester;
        let cut = self.cut(cx, wqe, first, packets);
        if wqe.uses_responder_resource()
            && requester.outstanding >= u32::from(self.attributes.max_rd_atomic)
        {
            return Plan::Nothing;
        }
        if self.is_reliable() {
            let in_flight = offset(requester.next, requester.una);
            if in_flight.saturating_add(cut.count) > OUTSTANDING_PACKETS_MAX && in_flight > 0 {
                return Plan::Nothing;
            }
        }
        if let Some(window) = cut.window
            && !cx.shared.windows.has_room(window)
        {
            return Plan::Wait(window);
        }
        Plan::Packet(cut)
    }

    /// Payload bytes per packet; a datagram is never cut.
    fn packet_bytes<H: Host>(&self, cx: &Context<'_, H>) -> u32 {
        if self.init.qp_type == QpType::Ud {
            cx.shared.config.path_mtu_max.bytes()
        } else {
            self.mtu_bytes()
        }
    }

    fn cut<H: Host>(&self, cx: &Context<'_, H>, wqe: &Wqe, first: Psn, packets: u32) -> Cut {
        let mtu = self.packet_bytes(cx);
        let at = offset(self.requester.next, first);
        let count = if wqe.is_read() {
            let chunk = read_chunk_packets(&cx.shared.config, mtu);
            (chunk - at % chunk).min(packets - at)
        } else {
            1
        };
        // `at` counts whole packets of a message that is 2^31 bytes at most.
        let offset = at * mtu;
        let length = (wqe.length - offset).min(count * mtu);
        let overhead = cx.shared.config.packet_overhead;
        let charge = wqe.charge(at, at + count, mtu, overhead);
        let window = match self.window {
            Some(_) if wqe.is_read() => Some(inbound()),
            window => window,
        };
        Cut {
            first,
            packets,
            at,
            count,
            offset,
            length,
            ends: at + count == packets,
            window,
            charge,
            leaving: if wqe.is_read() { overhead } else { charge },
        }
    }

    /// Whether the responder has told of a receive for one more message (IBTA 9.7.7.2).
    fn has_credit(&self) -> bool {
        let message = Msn::new(self.requester.messages.wrapping_add(1));
        self.requester
            .credit_limit
            .is_none_or(|limit| message.distance_from(Msn::new(limit)) <= 0)
    }

    /// Hands one packet to the host and, if taken, moves on.
    fn send<H: Host>(&mut self, cx: &mut Context<'_, H>, cut: &Cut, last: bool) -> Step {
        let ack_request = self.wants_ack(cx, cut, last);
        let Some(wqe) = self.requester.queue.get(self.requester.cursor) else {
            return Step::Idle;
        };
        let psn = self.requester.next;
        let headers = self.request_headers(cx, wqe, cut, psn, ack_request);
        let envelope = match (&wqe.request.target, self.init.qp_type) {
            (Some(target), QpType::Ud) => self.envelope_to(&target.path, target.qpn),
            _ => self.envelope,
        };
        let gathered: ArrayVec<Sge, { SGE_MAX as usize }>;
        let payload = match &wqe.request.data {
            _ if !wqe.sends_data() => Payload::Bytes(&[]),
            Data::Inline(bytes) => {
                let start = cut.offset as usize;
                Payload::Bytes(bytes.get(start..start + cut.length as usize).unwrap_or(&[]))
            }
            Data::Gather(_) if cut.length == 0 => Payload::Bytes(&[]),
            Data::Gather(sges) => {
                gathered = pieces(sges, cut.offset, cut.length)
                    .take(SGE_MAX as usize)
                    .collect();
                Payload::Gather(self.init.pd, &gathered)
            }
        };
        match cx.host.transmit(&envelope, &headers, payload) {
            Ok(()) => {
                self.sent(cx, cut, ack_request);
                Step::Sent
            }
            Err(TransmitError::Busy) => Step::Busy,
            Err(TransmitError::Local(_) | TransmitError::Remote(_)) => {
                self.stop_at_cursor(cx, CompletionStatus::LocalProtection)
            }
        }
    }

    /// Whether the packet asks for an acknowledge: at the end of a message, at least four times
    /// per window, and whenever this queue pair may not get to send another one soon.
    fn wants_ack<H: Host>(&self, cx: &Context<'_, H>, cut: &Cut, last: bool) -> bool {
        // W13: unreliable services never ask.
        let Some(window) = self.window.filter(|_| self.is_reliable()) else {
            return false;
        };
        let since = self.requester.since_ack_request + cut.charge;
        cut.ends
            || last
            || since >= cx.shared.windows.size(window) / 4
            || self
                .pacer
                .as_ref()
                .is_some_and(|pacer| !pacer.allows_after(cx.now, cut.leaving))
            || cut
                .window
                .is_some_and(|window| !cx.shared.windows.has_room_after(window, cut.charge))
    }

    fn request_headers<H: Host>(
        &self,
        cx: &Context<'_, H>,
        wqe: &Wqe,
        cut: &Cut,
        psn: Psn,
        ack_request: bool,
    ) -> Headers {
        let position = match (cut.at == 0, cut.ends) {
            _ if wqe.is_read() => Position::Only,
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, false) => Position::Middle,
            (false, true) => Position::Last,
        };
        let (opcode, mut extensions) = describe(self.service(), wqe, cut, position);
        extensions.xrc_srqn = Some(wqe.request.xrc_srqn);
        let dest_qp = match (&wqe.request.target, self.init.qp_type) {
            (Some(target), QpType::Ud) => {
                // The top bit asks for the queue pair's own key (IBTA 10.2.5).
                let qkey = if target.qkey & 1 << 31 != 0 {
                    self.attributes.qkey
                } else {
                    target.qkey
                };
                extensions.datagram = Some((qkey, self.qpn));
                target.qpn
            }
            _ => self.attributes.dest_qpn,
        };
        let mut bth = Bth::new(opcode, dest_qp, psn);
        bth.set_pkey(cx.shared.config.pkey);
        bth.set_ack_request(ack_request);
        bth.set_solicited(wqe.request.flags.solicited && position.ends());
        let payload = if wqe.sends_data() {
            cut.length as usize
        } else {
            0
        };
        Headers::new(bth, &extensions, payload)
    }

    /// A packet has left.
    fn sent<H: Host>(&mut self, cx: &mut Context<'_, H>, cut: &Cut, ack_request: bool) {
        let reliable = self.is_reliable();
        let asked = cut.window == Some(inbound());
        if let Some(pacer) = &mut self.pacer {
            pacer.sent(cx.now, cut.leaving);
        }
        if !reliable {
            cx.shared.unreliable.sent(cx.now, cut.leaving);
        }
        cx.counters().tx_packets += 1;
        let chunk = read_chunk_packets(&cx.shared.config, self.mtu_bytes());
        let requester = &mut self.requester;
        let Some(wqe) = requester.queue.get_mut(requester.cursor) else {
            return;
        };
        if wqe.progress == Progress::Waiting {
            wqe.progress = Progress::Begun {
                first: cut.first,
                packets: cut.packets,
            };
            let requests = if asked {
                cut.packets.div_ceil(chunk)
            } else {
                1
            };
            requester.messages = requester.messages.wrapping_add(requests);
            requester.probe_at = None;
        }
        let uses_resource = wqe.uses_responder_resource();
        if wqe.sends_data() {
            cx.shared.counters.tx_bytes += u64::from(cut.length);
        }
        if cut.ends {
            requester.cursor += 1;
        }
        if requester.next != requester.high {
            cx.shared.counters.retransmissions += 1;
        }
        requester.next = requester.next.plus(cut.count);
        if requester.high.is_before(requester.next) {
            requester.high = requester.next;
        }
        if !reliable {
            requester.una = requester.next;
            if cut.ends {
                self.complete_oldest(cx);
                self.retire(cx);
            }
            return;
        }
        requester.outstanding += u32::from(uses_resource);
        self.charge(cx, cut, ack_request);
        if self.requester.ack_deadline.is_none() {
            self.restart_ack_timer(cx);
        }
    }

    /// The bytes of a packet that has left are in flight.
    fn charge<H: Host>(&mut self, cx: &mut Context<'_, H>, cut: &Cut, ack_request: bool) {
        let requester = &mut self.requester;
        let hold = cx.shared.config.window_hold;
        if !hold.is_zero() && requester.charged + requester.charged_inbound == 0 {
            requester.heard_at = cx.now;
            let at = cx.now + hold;
            cx.shared.timers.arm(self.index, Timer::Hold, at);
        }
        if cut.window == Some(inbound()) {
            requester.charged_inbound += cut.charge;
        } else {
            requester.charged += cut.charge;
            requester.since_ack_request += cut.charge;
        }
        if ack_request {
            requester.since_ack_request = 0;
        }
        if let Some(window) = cut.window {
            cx.shared.windows.charge(window, cut.charge);
        }
    }

    /// Executes the local operation at the cursor; it completes in its turn.
    fn execute_local<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let (pd, qpn) = (self.init.pd, self.qpn);
        let requester = &mut self.requester;
        let Some(wqe) = requester.queue.get_mut(requester.cursor) else {
            return;
        };
        let (result, status) = match &wqe.request.operation {
            SendOperation::LocalInvalidate(key) => (
                cx.host.local_invalidate(pd, qpn, *key),
                CompletionStatus::WindowBind,
            ),
            SendOperation::Bind(request) => {
                (cx.host.bind(pd, qpn, request), CompletionStatus::WindowBind)
            }
            _ => return,
        };
        match result {
            Ok(()) => {
                wqe.progress = Progress::Executed;
                requester.cursor += 1;
            }
            Err(_) => wqe.failed = Some(status),
        }
        self.retire(cx);
    }

    /// The request at the cursor cannot be sent; it fails when those before it are done.
    fn stop_at_cursor<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        status: CompletionStatus,
    ) -> Step {
        if let Some(wqe) = self.requester.queue.get_mut(self.requester.cursor) {
            wqe.failed = Some(status);
        }
        self.retire(cx);
        Step::Idle
    }
}

/// The opcode and extension headers of a packet.
fn describe(service: Service, wqe: &Wqe, cut: &Cut, position: Position) -> (Opcode, Extensions) {
    let mut e = Extensions::default();
    let reth = |remote: Remote, from: u32, length: u32| {
        Some(Reth {
            virtual_address: remote.address.wrapping_add(u64::from(from)),
            rkey: remote.rkey,
            length,
        })
    };
    let ends = position.ends();
    let (mut immediate, mut invalidate) = (false, false);
    let operation = match wqe.request.operation {
        SendOperation::Send => Operation::Send,
        SendOperation::SendImmediate(word) => {
            immediate = ends;
            e.immediate = Some(word);
            Operation::Send
        }
        SendOperation::SendInvalidate(key) => {
            invalidate = ends;
            e.invalidate = Some(key);
            Operation::Send
        }
        SendOperation::Write(remote) => {
            e.reth = reth(remote, 0, wqe.length);
            Operation::Write
        }
        SendOperation::WriteImmediate(remote, word) => {
            immediate = ends;
            e.immediate = Some(word);
            e.reth = reth(remote, 0, wqe.length);
            Operation::Write
        }
        SendOperation::Read(remote) => {
            e.reth = reth(remote, cut.offset, cut.length);
            Operation::ReadRequest
        }
        SendOperation::CompareSwap {
            remote,
            compare,
            swap,
        } => {
            e.atomic = operands(remote, swap, compare);
            Operation::CompareSwap
        }
        SendOperation::FetchAdd { remote, add } => {
            e.atomic = operands(remote, add, 0);
            Operation::FetchAdd
        }
        SendOperation::AtomicWrite(remote) => {
            e.reth = reth(remote, 0, wqe.length);
            Operation::AtomicWrite
        }
        SendOperation::Flush {
            remote,
            length,
            placement,
            level,
        } => {
            e.reth = reth(remote, 0, length);
            e.flush = Some(u32::from(level & 3) << 4 | u32::from(placement & 0xf));
            Operation::Flush
        }
        // Local operations are never sent.
        SendOperation::LocalInvalidate(_) | SendOperation::Bind(_) => Operation::Send,
    };
    let opcode = Opcode::new(service, operation, position, immediate, invalidate);
    // `is_supported` has kept out what the service lacks.
    (opcode.unwrap_or(Opcode(0)), e)
}

const fn operands(remote: Remote, swap_or_add: u64, compare: u64) -> Option<AtomicOperands> {
    Some(AtomicOperands {
        virtual_address: remote.address,
        rkey: remote.rkey,
        swap_or_add,
        compare,
    })
}
