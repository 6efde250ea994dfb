//! One queue pair: what its requester, its responder and the verbs share.
//!
//! The halves live in [`crate::requester`] and [`crate::responder`], the state table in
//! [`crate::transition`]. IBTA 10.2.4, 10.3.

use crate::dcqcn::Pacer;
use crate::lists::{Index, Links, List};
use crate::requester::Requester;
use crate::responder::{Receiving, Responder, Taken};
use crate::srq::Srqs;
use crate::timers::{Timer, Timers};
use crate::window::{INBOUND, WindowId, Windows};
use crate::{
    AsyncEvent, Completion, CompletionOpcode, CompletionStatus, Counters, CqId, Envelope, Host,
    Instant, NicConfig, Path, PostError, QpAttributes, QpInit, QpState, QpType, RecvRequest,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::{IpAddr, Ipv4Addr};
use feroce_wire::{Address, Packet, Qpn, Service};

/// `ibv_access_flags` bits that a queue pair looks at.
pub(crate) mod access {
    pub(crate) const REMOTE_WRITE: u32 = 1 << 1;
    pub(crate) const REMOTE_READ: u32 = 1 << 2;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 3;
    pub(crate) const FLUSH_GLOBAL: u32 = 1 << 8;
    pub(crate) const FLUSH_PERSISTENT: u32 = 1 << 9;
}

/// What all queue pairs of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: NicConfig,
    pub(crate) counters: Counters,
    pub(crate) windows: Windows,
    pub(crate) timers: Timers,
    pub(crate) srqs: Srqs,
    pub(crate) ready: Ready,
    /// Those whose acknowledge waits for a request to leave with.
    pub(crate) held: Ready,
    /// Acknowledges wait (see `Nic::hold_acknowledges`).
    pub(crate) holding: bool,
    /// The rate of all unreliable queue pairs together.
    pub(crate) unreliable: Pacer,
    /// Datagrams posted since `Nic::keep_datagrams` was called.
    pub(crate) datagrams_posted: usize,
}

/// The queue pairs that may have something to send, in turn.
#[derive(Default, Debug)]
pub(crate) struct Ready {
    links: Links,
    list: List,
}

impl Ready {
    pub(crate) fn push_back(&mut self, index: Index) {
        self.links.push_back(&mut self.list, 0, index);
    }

    pub(crate) fn push_front(&mut self, index: Index) {
        self.links.push_front(&mut self.list, 0, index);
    }

    pub(crate) fn pop_front(&mut self) -> Option<Index> {
        self.links.pop_front(&mut self.list)
    }

    pub(crate) fn remove(&mut self, index: Index) {
        if self.links.list_of(index).is_some() {
            self.links.remove(&mut self.list, index);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// What one call into a queue pair works with.
pub(crate) struct Context<'a, H: Host> {
    pub(crate) now: Instant,
    pub(crate) index: Index,
    pub(crate) shared: &'a mut Shared,
    pub(crate) host: &'a mut H,
}

impl<H: Host> Context<'_, H> {
    /// Gives the queue pair a turn to send.
    pub(crate) fn schedule(&mut self) {
        self.shared.ready.push_back(self.index);
    }

    /// Gives those a turn that waited for room in a window.
    pub(crate) fn wake_waiting(&mut self, id: WindowId) {
        self.shared.wake_waiting(id);
    }

    pub(crate) const fn counters(&mut self) -> &mut Counters {
        &mut self.shared.counters
    }
}

impl Shared {
    pub(crate) fn wake_waiting(&mut self, id: WindowId) {
        let mut woken = 0;
        while let Some(index) = self.windows.wake(id, woken) {
            self.ready.push_back(index);
            woken += 1;
        }
    }
}

/// Which of the two things a packet of a turn came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// One packet left.
    Sent,
    /// State moved on; ask again.
    Again,
    /// The host has no room.
    Busy,
    /// Nothing to send until something happens.
    Idle,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    /// Its place in the device's table.
    pub(crate) index: Index,
    pub(crate) qpn: Qpn,
    pub(crate) init: QpInit,
    pub(crate) attributes: QpAttributes,
    /// Where its packets go; a dummy until RTR, and for UD.
    pub(crate) envelope: Envelope,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// Its own receive queue.
    pub(crate) receives: VecDeque<RecvRequest>,
    /// The peer's window; reliable services from RTR on.
    pub(crate) window: Option<WindowId>,
    /// A packet has arrived since RTR.
    pub(crate) established: bool,
    /// Multicast groups it is attached to.
    pub(crate) groups: u32,
    /// Rate of sending, when one applies.
    pub(crate) pacer: Option<Box<Pacer>>,
    /// A CNP is to be sent to the peer.
    pub(crate) cnp_owed: bool,
    /// When the last CNP left.
    pub(crate) cnp_sent_at: Option<Instant>,
}

impl Qp {
    pub(crate) fn new(index: Index, qpn: Qpn, init: QpInit) -> Self {
        Self {
            index,
            qpn,
            init,
            attributes: QpAttributes {
                capabilities: init.capabilities,
                ..QpAttributes::default()
            },
            envelope: nowhere(),
            requester: Requester::default(),
            responder: Responder::default(),
            receives: VecDeque::new(),
            window: None,
            established: false,
            groups: 0,
            pacer: None,
            cnp_owed: false,
            cnp_sent_at: None,
        }
    }

    pub(crate) const fn state(&self) -> QpState {
        self.attributes.state
    }

    /// The opcode family of its packets.
    pub(crate) const fn service(&self) -> Service {
        match self.init.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
        }
    }

    /// Whether requests are acknowledged.
    pub(crate) const fn is_reliable(&self) -> bool {
        !matches!(self.init.qp_type, QpType::Uc | QpType::Ud)
    }

    pub(crate) const fn mtu_bytes(&self) -> u32 {
        self.attributes.path_mtu.bytes()
    }

    /// Whether the state takes packets from the wire.
    pub(crate) const fn receives_packets(&self) -> bool {
        matches!(
            self.state(),
            QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SqDrained | QpState::SqError
        )
    }

    /// Whether the packet comes from the connected peer and is for this end of the connection.
    pub(crate) fn is_from_peer(&self, from: &Address) -> bool {
        self.attributes
            .path
            .is_some_and(|path| path.destination == from.source && path.source == from.destination)
    }

    /// The envelope of packets along `path`.
    pub(crate) fn envelope_to(&self, path: &Path, dest_qp: Qpn) -> Envelope {
        Envelope {
            source: path.source,
            destination: path.destination,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
            entropy: entropy(self.qpn, dest_qp),
            dest_qp,
        }
    }

    /// One packet of a turn: responses before requests.
    /// `left`: packets that it may send before another queue pair has its turn.
    pub(crate) fn transmit<H: Host>(&mut self, cx: &mut Context<'_, H>, left: usize) -> Step {
        if !self.owes_only_acknowledge() {
            return match self.transmit_response(cx) {
                Step::Idle => self.transmit_request(cx, left == 1),
                step => step,
            };
        }
        // An acknowledge is the end of a turn: the shorter packet behind requests, which may all
        // leave as one batch.
        if left > 1 {
            match self.transmit_request(cx, left == 2) {
                step @ (Step::Sent | Step::Again) => return step,
                Step::Busy if cx.shared.holding => return Step::Busy,
                Step::Busy | Step::Idle => {}
            }
        }
        if cx.shared.holding {
            cx.shared.held.push_back(self.index);
            return Step::Idle;
        }
        self.transmit_response(cx)
    }

    /// A packet of the right service, partition and addresses.
    pub(crate) fn handle_packet<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        from: &Address,
        packet: &Packet<'_>,
    ) {
        if self.state() == QpState::ReadyToReceive && !self.established {
            self.established = true;
            cx.host
                .event(AsyncEvent::CommunicationEstablished(self.qpn));
        }
        let request = packet.info.is_request();
        match self.init.qp_type {
            QpType::Ud => self.handle_datagram(cx, from, packet),
            QpType::Uc => self.handle_unreliable(cx, packet),
            QpType::Rc | QpType::XrcRecv if request => self.handle_request(cx, packet),
            QpType::Rc | QpType::XrcSend if !request => self.handle_response(cx, packet),
            _ => cx.counters().unexpected_response += 1,
        }
    }

    /// Queues a receive; in the error state it is flushed at once.
    pub(crate) fn post_recv<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        request: RecvRequest,
    ) -> Result<(), PostError> {
        if self.init.srq.is_some() || matches!(self.init.qp_type, QpType::XrcSend | QpType::XrcRecv)
        {
            return Err(PostError::NoReceiveQueue);
        }
        let capabilities = &self.attributes.capabilities;
        if request.sges.len() > capabilities.max_recv_sge as usize {
            return Err(PostError::TooManySge {
                asked: request.sges.len(),
                max: capabilities.max_recv_sge,
            });
        }
        if self.receives.len() >= capabilities.max_recv_wr as usize {
            return Err(PostError::QueueFull(capabilities.max_recv_wr));
        }
        match self.state() {
            QpState::Reset => return Err(PostError::BadState(QpState::Reset)),
            QpState::Error => self.flush_receive(cx, request.wr_id),
            _ => {
                self.receives.push_back(request);
                self.offer_credits(cx);
            }
        }
        Ok(())
    }

    /// Goes to the error state: everything posted is flushed, each request once (W8, W9).
    pub(crate) fn enter_error<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if self.state() == QpState::Error {
            return;
        }
        self.attributes.state = QpState::Error;
        self.attributes.sq_draining = false;
        self.release_windows(cx.shared);
        self.flush_sends(cx);
        let in_use = self.responder.abandon_message();
        if let Some(taken) = in_use {
            self.complete_receive_error(cx, &taken, CompletionStatus::WorkRequestFlushed);
        }
        while let Some(request) = self.receives.pop_front() {
            self.flush_receive(cx, request.wr_id);
        }
        self.receives = VecDeque::new();
        if self.init.srq.is_some() {
            cx.host.event(AsyncEvent::QpLastWqeReached(self.qpn));
        }
    }

    pub(crate) fn flush_receive<H: Host>(&self, cx: &mut Context<'_, H>, wr_id: u64) {
        cx.counters().resp_cqe_flush_error += 1;
        let mut completion = self.completion(wr_id, CompletionOpcode::Receive);
        completion.status = CompletionStatus::WorkRequestFlushed;
        completion.solicited = true;
        cx.host.complete(self.init.recv_cq, completion);
    }

    pub(crate) fn complete_receive_error<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        taken: &Taken,
        status: CompletionStatus,
    ) {
        if status == CompletionStatus::WorkRequestFlushed {
            cx.counters().resp_cqe_flush_error += 1;
        } else {
            cx.counters().resp_cqe_error += 1;
        }
        let mut completion = self.completion(taken.request.wr_id, CompletionOpcode::Receive);
        completion.status = status;
        completion.solicited = true;
        cx.host.complete(self.receive_cq(taken), completion);
    }

    pub(crate) fn receive_cq(&self, taken: &Taken) -> CqId {
        taken.cq.unwrap_or(self.init.recv_cq)
    }

    /// A successful completion with nothing special about it.
    pub(crate) fn completion(&self, wr_id: u64, opcode: CompletionOpcode) -> Completion {
        Completion::success(wr_id, opcode, self.qpn)
    }

    /// Whether the rate holds the next packet back; then a timer gives the turn for it.
    pub(crate) fn is_paced<H: Host>(&self, cx: &mut Context<'_, H>) -> bool {
        let all = (!self.is_reliable()).then_some(&cx.shared.unreliable);
        for pacer in self.pacer.as_deref().into_iter().chain(all) {
            if !pacer.allows(cx.now) {
                let at = pacer.next_at(cx.now);
                cx.shared.timers.arm(self.index, Timer::Pace, at);
                return true;
            }
        }
        false
    }

    /// Gives back every byte in flight and waits for room no more.
    pub(crate) fn release_windows(&mut self, shared: &mut Shared) {
        shared.windows.stop_waiting(self.index);
        for (id, bytes) in self.requester.take_charges(self.window) {
            shared.windows.give_back(id, bytes);
        }
        self.pass_room_on(shared);
    }

    /// Room that this queue pair was woken for, or has made, and does not use, is for others.
    pub(crate) fn pass_room_on(&self, shared: &mut Shared) {
        for id in [self.window, Some(inbound())].into_iter().flatten() {
            shared.wake_waiting(id);
        }
    }

    /// Leaves the peer's window for good.
    pub(crate) fn detach_window(&mut self, shared: &mut Shared) {
        self.release_windows(shared);
        if let Some(id) = self.window.take() {
            shared.windows.detach(id);
        }
    }

    /// Whether a receive is in use by a message that has begun.
    pub(crate) const fn is_receiving(&self) -> bool {
        !matches!(self.responder.receiving, Receiving::Nothing)
    }
}

/// The window that the responses of READs are charged to.
pub(crate) const fn inbound() -> WindowId {
    INBOUND
}

/// Constant per flow; any mix of the two numbers will do.
fn entropy(own: Qpn, dest: Qpn) -> u16 {
    let mixed = (own.value() ^ dest.value().rotate_left(12)).wrapping_mul(0x9e37_79b1);
    u16::try_from(mixed >> 16).unwrap_or_default()
}

const fn nowhere() -> Envelope {
    Envelope {
        source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
        entropy: 0,
        dest_qp: Qpn::new(0),
    }
}
