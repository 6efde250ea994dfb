//! One device: all its queue pairs and shared receive queues, behind one set of verbs.
//!
//! It is not thread-safe and holds no lock: everything runs under the owner's.

mod multicast;

use crate::config::SGE_MAX;
use crate::dcqcn::Pacer;
use crate::host::GSI_QKEY;
use crate::lists::Index;
use crate::qp::{Context, Qp, Ready, Shared, Step};
use crate::srq::Srqs;
use crate::table::QpTable;
use crate::timers::{Timer, Timers};
use crate::window::{INBOUND, Windows};
use crate::{
    AttributeMask, Counters, CreateError, DestroyError, Host, Instant, ModifyError, NicConfig,
    PdId, PostError, QpAttributes, QpInit, QpState, QpType, RecvRequest, SendRequest, Sge,
    SrqAttributes, SrqError, SrqId, SrqInit,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;
use feroce_wire::{Address, MULTICAST_QPN, Operation, Packet, Qpn};

/// The queue pair number of the general service interface (IBTA 3.9.3).
pub const GSI_QPN: Qpn = Qpn::new(1);

/// Membership bit of a partition key.
const PKEY_FULL: u16 = 0x8000;

/// Queue pairs in a row that a call to [`Nic::poll_transmit`] tries in vain; the others come first
/// in the next call. One try takes some tens of nanoseconds.
const REFUSALS_MAX: u32 = 64;

/// What a call to [`Nic::poll_transmit`] came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Packets handed to the host.
    pub sent: usize,
    /// The budget ran out and there is more to send: call again.
    pub more: bool,
    /// The host had no room for some packet: call again when it has.
    pub busy: bool,
}

/// A device.
///
/// Every verb and every `handle_*` may make [`poll_transmit`](Self::poll_transmit) have something
/// to send and change [`poll_timeout`](Self::poll_timeout); call both after them.
#[derive(Debug)]
pub struct Nic {
    shared: Shared,
    qps: QpTable,
    groups: BTreeMap<IpAddr, Vec<Index>>,
    attachments: u32,
}

impl Nic {
    /// A device without queue pairs.
    pub fn new(config: NicConfig) -> Self {
        let config = NicConfig {
            max_sge: config.max_sge.min(SGE_MAX),
            quantum: config.quantum.max(1),
            ..config
        };
        Self {
            shared: Shared {
                config,
                counters: Counters::default(),
                windows: Windows::new(&config),
                timers: Timers::default(),
                srqs: Srqs::default(),
                ready: Ready::default(),
                held: Ready::default(),
                holding: false,
                unreliable: Pacer::new(config.unreliable_rate, None),
                datagrams_posted: 0,
            },
            qps: QpTable::default(),
            groups: BTreeMap::new(),
            attachments: 0,
        }
    }

    /// What the device was made with; limits are the effective ones.
    pub const fn config(&self) -> &NicConfig {
        &self.shared.config
    }

    /// What the device counts.
    pub const fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Queue pairs that exist.
    pub fn qp_count(&self) -> usize {
        self.qps.len()
    }

    /// Creates a queue pair under a number of the host's choice.
    ///
    /// # Errors
    /// [`CreateError`]: the number is taken, a capacity is above the device's, the SRQ or XRC
    /// domain does not fit the type.
    pub fn create_qp(&mut self, qpn: Qpn, init: QpInit) -> Result<(), CreateError> {
        self.check_create(qpn, &init)?;
        if let Some(id) = init.srq {
            self.shared.srqs.add_user(id);
        }
        self.qps.insert(qpn, |index| Qp::new(index, qpn, init));
        Ok(())
    }

    fn check_create(&self, qpn: Qpn, init: &QpInit) -> Result<(), CreateError> {
        if qpn.value() == 0 || qpn == GSI_QPN || qpn == MULTICAST_QPN {
            return Err(CreateError::QpnReserved(qpn));
        }
        if self.qps.index_of(qpn).is_some() {
            return Err(CreateError::QpnInUse(qpn));
        }
        let config = &self.shared.config;
        config.check_create(self.qps.len(), &init.capabilities)?;
        if let Some(id) = init.srq {
            let srq = self.shared.srqs.query(id);
            let srq = srq.ok_or(CreateError::UnknownSrq(id))?;
            let xrc = matches!(init.qp_type, QpType::XrcSend | QpType::XrcRecv);
            if xrc || srq.xrc.is_some() {
                return Err(CreateError::SrqNotUsable(init.qp_type));
            }
        }
        if init.qp_type == QpType::XrcRecv && init.xrcd.is_none() {
            return Err(CreateError::XrcdMissing);
        }
        Ok(())
    }

    /// Destroys a queue pair; what was posted vanishes without completions.
    ///
    /// # Errors
    /// [`DestroyError`]: unknown, or attached to a multicast group.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DestroyError> {
        let index = self.qps.index_of(qpn);
        let qp = index.and_then(|index| self.qps.get(index));
        let qp = qp.ok_or(DestroyError::UnknownQp(qpn))?;
        if qp.groups > 0 {
            return Err(DestroyError::AttachedToMulticast(qpn));
        }
        let Some(mut qp) = self.qps.remove(qpn) else {
            return Err(DestroyError::UnknownQp(qpn));
        };
        qp.detach_window(&mut self.shared);
        self.shared.ready.remove(qp.index);
        self.shared.held.remove(qp.index);
        self.shared.timers.forget(qp.index);
        if let Some(id) = qp.init.srq {
            self.shared.srqs.remove_user(id);
        }
        Ok(())
    }

    /// Changes attributes and state; rules as in `ibv_modify_qp(3)`.
    ///
    /// # Errors
    /// [`ModifyError`] names the transition or attribute at fault; then nothing has changed.
    pub fn modify_qp<H: Host>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
        host: &mut H,
    ) -> Result<(), ModifyError> {
        let (qp, mut cx) = self
            .enter(now, qpn, host)
            .ok_or(ModifyError::UnknownQp(qpn))?;
        qp.modify(&mut cx, attributes, mask)
    }

    /// The attributes as they are now, and how the queue pair was created.
    pub fn query_qp(&self, qpn: Qpn) -> Option<(QpAttributes, QpInit)> {
        let qp = self.qp(qpn)?;
        let mut attributes = qp.attributes;
        attributes.current_state = attributes.state;
        match qp.state() {
            QpState::Reset | QpState::Init => {}
            QpState::ReadyToReceive => attributes.rq_psn = qp.responder.expected_psn(),
            _ => {
                attributes.rq_psn = qp.responder.expected_psn();
                attributes.sq_psn = qp.requester.next_psn();
            }
        }
        Some((attributes, qp.init))
    }

    /// Queues a send request; nothing is sent yet. In an error state it is flushed at once.
    ///
    /// # Errors
    /// [`PostError`] says what is wrong with it; then nothing was queued.
    pub fn post_send<H: Host>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: SendRequest,
        host: &mut H,
    ) -> Result<(), PostError> {
        let (qp, mut cx) = self
            .enter(now, qpn, host)
            .ok_or(PostError::UnknownQp(qpn))?;
        qp.post_send(&mut cx, request)
    }

    /// Copies the bytes of the datagrams that were posted to a queue pair since the last call and
    /// have not left, so that they leave as they were when they were posted. `gather` copies what
    /// the list names. To be called after the posts to each queue pair.
    ///
    /// Programs may not touch memory before its completion, but a sender of datagrams that gets an
    /// answer may take that for one (UCX does). While a datagram waits for long, here for the port
    /// of a peer on this host, the difference shows.
    pub fn keep_datagrams(
        &mut self,
        qpn: Qpn,
        gather: impl FnMut(PdId, &[Sge]) -> Option<Vec<u8>>,
    ) {
        let posted = core::mem::take(&mut self.shared.datagrams_posted);
        if posted == 0 {
            return;
        }
        let index = self.qps.index_of(qpn);
        if let Some(qp) = index.and_then(|index| self.qps.get_mut(index)) {
            qp.keep_datagrams(posted, gather);
        }
    }

    /// Queues a receive request, from INIT on. In the error state it is flushed at once.
    ///
    /// # Errors
    /// [`PostError`] says what is wrong with it; then nothing was queued.
    pub fn post_recv<H: Host>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: RecvRequest,
        host: &mut H,
    ) -> Result<(), PostError> {
        let (qp, mut cx) = self
            .enter(now, qpn, host)
            .ok_or(PostError::UnknownQp(qpn))?;
        qp.post_recv(&mut cx, request)
    }

    /// Creates a shared receive queue under a number of the host's choice.
    ///
    /// # Errors
    /// [`CreateError`]: the number is taken, or a size is above the device's.
    pub fn create_srq(&mut self, id: SrqId, init: SrqInit) -> Result<(), CreateError> {
        self.shared.srqs.create(&self.shared.config, id, init)
    }

    /// Destroys a shared receive queue; what was posted vanishes without completions.
    ///
    /// # Errors
    /// [`DestroyError`]: unknown, or queue pairs use it.
    pub fn destroy_srq(&mut self, id: SrqId) -> Result<(), DestroyError> {
        self.shared.srqs.destroy(id)
    }

    /// Sets the size, the limit that raises an event, or both.
    ///
    /// # Errors
    /// [`SrqError`] says which value is wrong; then nothing has changed.
    pub fn modify_srq(
        &mut self,
        id: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), SrqError> {
        let config = &self.shared.config;
        self.shared.srqs.modify(config, id, max_wr, limit)
    }

    /// The attributes of a shared receive queue; the limit is 0 after its event.
    pub fn query_srq(&self, id: SrqId) -> Option<SrqAttributes> {
        self.shared.srqs.query(id).map(|init| init.attributes)
    }

    /// Receives posted to a shared receive queue and not taken.
    pub fn srq_len(&self, id: SrqId) -> Option<usize> {
        self.shared.srqs.len(id)
    }

    /// Queues a receive request on a shared receive queue.
    ///
    /// # Errors
    /// [`PostError`] says what is wrong with it; then nothing was queued.
    pub fn post_srq_recv(&mut self, id: SrqId, request: RecvRequest) -> Result<(), PostError> {
        self.shared.srqs.post(id, request)
    }

    /// Takes in a packet whose form and ICRC are right.
    pub fn handle_packet<H: Host>(
        &mut self,
        now: Instant,
        from: &Address,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let counters = &mut self.shared.counters;
        counters.rx_packets += 1;
        counters.rx_bytes += packet.payload.len() as u64;
        if from.congestion_experienced() {
            counters.np_ecn_marked_roce_packets += 1;
        }
        if (packet.pkey ^ self.shared.config.pkey) & !PKEY_FULL != 0
            || (packet.pkey | self.shared.config.pkey) & PKEY_FULL == 0
        {
            self.shared.counters.dropped_pkey += 1;
            return;
        }
        if packet.dest_qp == GSI_QPN {
            return self.handle_gsi(from, packet, host);
        }
        if packet.dest_qp == MULTICAST_QPN {
            return self.handle_multicast(now, from, packet, host);
        }
        let Some(index) = self.qps.index_of(packet.dest_qp) else {
            self.shared.counters.dropped_unknown_qp += 1;
            return;
        };
        if let Some(qp) = self.qps.get_mut(index) {
            let mut cx = Context {
                now,
                index,
                shared: &mut self.shared,
                host,
            };
            deliver(qp, &mut cx, from, packet);
        }
    }

    /// A packet for the general service interface, which the host serves: here only its form is
    /// judged. It must be one datagram with the interface's Q_Key, from a peer's own such
    /// interface, with a whole management datagram in it (IBTA 9.2.3, 13.4.2).
    fn handle_gsi<H: Host>(&mut self, from: &Address, packet: &Packet<'_>, host: &mut H) {
        let counters = &mut self.shared.counters;
        let is_send = packet.info.operation == Operation::Send && !packet.info.immediate;
        match (packet.extensions.datagram, packet.payload.try_into()) {
            (Some((qkey, _)), _) if qkey != GSI_QKEY => counters.qkey_violations += 1,
            (Some((_, source)), Ok(mad)) if is_send && source == GSI_QPN => {
                counters.gsi_packets += 1;
                host.management(from, mad);
            }
            _ => counters.gsi_malformed += 1,
        }
    }

    fn handle_multicast<H: Host>(
        &mut self,
        now: Instant,
        from: &Address,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        // A group no one is attached to is no error.
        for &index in self.groups.get(&from.destination).into_iter().flatten() {
            if let Some(qp) = self.qps.get_mut(index) {
                let mut cx = Context {
                    now,
                    index,
                    shared: &mut self.shared,
                    host,
                };
                deliver(qp, &mut cx, from, packet);
            }
        }
    }

    /// Lets every timer fire that is due.
    pub fn handle_timeout<H: Host>(&mut self, now: Instant, host: &mut H) {
        while let Some((index, timer)) = self.shared.timers.pop_due(now) {
            let Some(qp) = self.qps.get_mut(index) else {
                continue;
            };
            let mut cx = Context {
                now,
                index,
                shared: &mut self.shared,
                host,
            };
            match timer {
                Timer::Retry => qp.handle_retry_timer(&mut cx),
                Timer::Pace => cx.schedule(),
                Timer::Hold => qp.handle_hold_timer(&mut cx),
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; perhaps earlier than anything is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.shared.timers.first()
    }

    /// Sends what may be sent now, at most `budget` packets, through [`Host::transmit`]. Queue
    /// pairs take turns of [`NicConfig::quantum`] packets, so that packets of one flow
    /// follow one another. One that the host has no room for does not keep others from sending
    /// elsewhere.
    #[must_use]
    pub fn poll_transmit<H: Host>(
        &mut self,
        now: Instant,
        budget: usize,
        host: &mut H,
    ) -> Progress {
        let mut progress = Progress::default();
        // Those in a row that the host had no room for, and the first of them.
        let (mut refused, mut first_refused) = (0, None);
        while progress.sent < budget {
            let Some(index) = self.shared.ready.pop_front() else {
                return progress;
            };
            if first_refused == Some(index) || refused == REFUSALS_MAX {
                self.shared.ready.push_front(index);
                return progress;
            }
            let left = budget - progress.sent;
            let (sent, step) = self.take_turn(now, index, left, host);
            progress.sent += sent;
            if sent > 0 {
                (refused, first_refused) = (0, None);
            }
            match step {
                Step::Busy => {
                    self.shared.ready.push_back(index);
                    progress.busy = true;
                    refused += 1;
                    first_refused.get_or_insert(index);
                }
                Step::Idle => {}
                Step::Sent | Step::Again => self.shared.ready.push_back(index),
            }
        }
        progress.more = !self.shared.ready.is_empty();
        progress
    }

    /// Lets acknowledges wait, from now on, until their queue pair has a request to send with
    /// them, or no longer. A program that answers what it receives saves a packet of its own that
    /// way. The caller sees to it that they do not wait long: a peer may be stuck without.
    pub fn hold_acknowledges(&mut self, hold: bool) {
        self.shared.holding = hold;
        if !hold {
            while let Some(index) = self.shared.held.pop_front() {
                self.shared.ready.push_back(index);
            }
        }
    }

    /// Whether an acknowledge waits.
    pub const fn holds_acknowledges(&self) -> bool {
        !self.shared.held.is_empty()
    }

    /// One queue pair's turn: packets sent, and how it ended.
    fn take_turn<H: Host>(
        &mut self,
        now: Instant,
        index: Index,
        budget: usize,
        host: &mut H,
    ) -> (usize, Step) {
        let quantum = (self.shared.config.quantum as usize).min(budget);
        let Some(qp) = self.qps.get_mut(index) else {
            return (0, Step::Idle);
        };
        let mut cx = Context {
            now,
            index,
            shared: &mut self.shared,
            host,
        };
        let (mut sent, mut end) = (0, Step::Sent);
        while sent < quantum {
            match qp.transmit(&mut cx, quantum - sent) {
                Step::Sent => sent += 1,
                Step::Again => {}
                step @ (Step::Busy | Step::Idle) => {
                    end = step;
                    break;
                }
            }
        }
        qp.pass_room_on(&mut self.shared);
        (sent, end)
    }

    /// Limits the bytes in flight to a peer address: what its socket buffer holds. The window
    /// never falls below two packets.
    pub fn set_peer_window(&mut self, peer: IpAddr, bytes: u64) {
        if let Some(id) = self.shared.windows.set_limit(peer, bytes) {
            self.shared.wake_waiting(id);
        }
    }

    /// Limits the bytes of READ responses on their way here: what our socket buffer holds.
    pub fn set_read_window(&mut self, bytes: u64) {
        self.shared.windows.set_limit_of(INBOUND, bytes);
        self.shared.wake_waiting(INBOUND);
    }

    /// Bytes charged to all windows; 0 when everything sent is answered.
    pub fn bytes_in_flight(&self) -> u64 {
        self.shared.windows.in_flight()
    }

    /// Bytes in flight to the peer address of a queue pair, over all queue pairs that send there.
    pub fn peer_bytes_in_flight(&self, qpn: Qpn) -> u64 {
        let window = self.qp(qpn).and_then(|qp| qp.window);
        window.map_or(0, |id| self.shared.windows.in_flight_of(id))
    }

    /// Whether some queue pair may have something to send.
    pub const fn wants_transmit(&self) -> bool {
        !self.shared.ready.is_empty()
    }

    /// Send requests of a queue pair that are not completed.
    pub fn send_queue_len(&self, qpn: Qpn) -> Option<usize> {
        Some(self.qp(qpn)?.requester.len())
    }

    /// Receive requests of a queue pair that no message has taken.
    pub fn recv_queue_len(&self, qpn: Qpn) -> Option<usize> {
        Some(self.qp(qpn)?.receives.len())
    }

    /// Puts a queue pair into a state that otherwise needs an accident.
    #[cfg(test)]
    pub(crate) fn force_state(&mut self, qpn: Qpn, state: QpState) {
        let index = self.qps.index_of(qpn).unwrap();
        self.qps.get_mut(index).unwrap().attributes.state = state;
    }

    fn qp(&self, qpn: Qpn) -> Option<&Qp> {
        self.qps.get(self.qps.index_of(qpn)?)
    }

    fn enter<'a, H: Host>(
        &'a mut self,
        now: Instant,
        qpn: Qpn,
        host: &'a mut H,
    ) -> Option<(&'a mut Qp, Context<'a, H>)> {
        let index = self.qps.index_of(qpn)?;
        let qp = self.qps.get_mut(index)?;
        let cx = Context {
            now,
            index,
            shared: &mut self.shared,
            host,
        };
        Some((qp, cx))
    }
}

/// Checks that hold for every service, then the queue pair's own.
fn deliver<H: Host>(qp: &mut Qp, cx: &mut Context<'_, H>, from: &Address, packet: &Packet<'_>) {
    if !qp.receives_packets() {
        cx.counters().dropped_state += 1;
        return;
    }
    let is_cnp = packet.info.operation == Operation::CongestionNotification;
    if packet.info.service != qp.service() && !is_cnp {
        cx.counters().dropped_service += 1;
        return;
    }
    if qp.init.qp_type != QpType::Ud && !qp.is_from_peer(from) {
        cx.counters().dropped_address += 1;
        return;
    }
    if is_cnp {
        cx.counters().rp_cnp_handled += 1;
        if let Some(pacer) = &mut qp.pacer {
            pacer.congestion_notified(cx.now);
        }
        return;
    }
    if from.congestion_experienced() {
        qp.notify_congestion(cx);
    }
    qp.handle_packet(cx, from, packet);
}
