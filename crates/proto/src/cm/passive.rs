//! The passive side: a REQ and what becomes of it (IBTA 12.9.7).

use super::connection::{Connection, Peer, State, Step, private};
use super::types::{Accept, CmError, CmEvent, ConnectionId, Disconnect, Reject, Route, time_of};
use super::{Cm, refuse};
use crate::{Instant, Mtu};
use alloc::boxed::Box;
use feroce_wire::Qpn;
use feroce_wire::cm::{
    AttributeId, CmMad, Message, RejectReason, RejectedMessage, Rep, Req, Rtu, Transport,
};
use feroce_wire::mad::Mad;

/// The least time-out that is taken from a peer, as a code (67 ms): a REP is not repeated faster
/// than a machine that is busy can answer it.
const PEER_TIMEOUT_MIN: u8 = 14;

impl Cm {
    /// Passive side: accepts a request. `Established`, `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    /// If the connection is not `ReqReceived`, or the private data is too long.
    pub fn accept(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        accept: &Accept<'_>,
    ) -> Result<(), CmError> {
        let known = self.connection(connection)?;
        if !matches!(known.state, State::ReqReceived) {
            return Err(known.wrong_state("accept"));
        }
        let mad = known.rep(accept, self.config.ca_guid)?;
        let step = Step::enter(State::RepSent(known.waiting(mad))).and_send(mad);
        if let Some(known) = self.connections.get_mut(&connection.0) {
            known.local_qpn = accept.qpn;
        }
        self.apply(now, connection.0, step);
        Ok(())
    }

    /// Rejects a request (passive side) or a reply (active side). The connection is over; no
    /// event follows.
    ///
    /// # Errors
    /// If the connection is neither `ReqReceived` nor `RepReceived`, or something is too long.
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        reject: &Reject<'_>,
    ) -> Result<(), CmError> {
        let rej = self.connection(connection)?.refusal(reject)?;
        self.apply(now, connection.0, Step::close(Some(rej)));
        Ok(())
    }

    /// Passive side: something has arrived on the queue pair, so the peer is ready although its
    /// RTU has not come (IBTA 12.9.7.2). `Established` follows, unless it has been told before.
    ///
    /// # Errors
    /// If the connection is unknown, or not as far as `RepSent`.
    pub fn traffic_arrived(
        &mut self,
        now: Instant,
        connection: ConnectionId,
    ) -> Result<(), CmError> {
        let known = self.connection(connection)?;
        match known.state {
            State::RepSent(_) => self.established(now, connection.0, None),
            State::ReqSent(_) | State::ReqReceived | State::RepReceived => {
                return Err(known.wrong_state("take traffic as a sign of readiness"));
            }
            State::Established { .. } | State::DreqSent(_) | State::Timewait { .. } => {}
        }
        Ok(())
    }

    /// Asks the peer for more time to answer its REQ or REP (MRA), `service_timeout` as a code.
    /// When the peer repeats itself, that is done without being asked for.
    ///
    /// # Errors
    /// If the connection is neither `ReqReceived` nor `RepReceived`.
    pub fn ask_for_time(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        service_timeout: u8,
    ) -> Result<(), CmError> {
        let known = self.connection(connection)?;
        let message = match known.state {
            State::ReqReceived => RejectedMessage::Req,
            State::RepReceived => RejectedMessage::Rep,
            _ => return Err(known.wrong_state("ask for time")),
        };
        let step = Step::send(known.mra(message, service_timeout));
        self.apply(now, connection.0, step);
        Ok(())
    }

    pub(super) fn on_req(&mut self, now: Instant, transaction: u64, req: &Req, route: &Route) {
        let request = (req.local_ca_guid, req.local_comm_id);
        if let Some(connection) = self.by_request.get(&request)
            && let Some(connection) = self.connections.get(connection)
            && connection.transaction == transaction
        {
            let step = connection.on_repeated_req(self.config.mra_service_timeout);
            return self.apply(now, connection.id, step);
        }
        let peer = (req.local_ca_guid, req.local_qpn);
        // Both must be looked at: the peer may have begun anew in either way.
        let stale_id = self.end_reused_id(now, request);
        let stale_peer = self.end_holder(now, peer);
        let verdict = if stale_id || stale_peer {
            Err(RejectReason::STALE_CONNECTION)
        } else {
            self.admit(req, route)
        };
        let (id, listener) = match verdict {
            Ok(admitted) => admitted,
            Err(reason) => {
                let rej = Message::Rej(refuse::rej_of_req(req, reason));
                return self.send(route, refuse::answer(transaction, rej));
            }
        };
        let patience = req
            .local_cm_response_timeout
            .clamp(PEER_TIMEOUT_MIN, self.config.peer_timeout_max);
        let connection = Connection {
            id,
            remote_id: Some(req.local_comm_id),
            route: *route,
            transaction,
            transport: req.transport,
            local_qpn: Qpn::new(0),
            peer: Some(peer),
            request: Some(request),
            pending_at: Some(listener),
            response_time: time_of(patience),
            max_retries: req.max_cm_retries,
            timewait: self.timewait(req.primary.local_ack_timeout, patience),
            confirmed: false,
            chances: 0,
            told: false,
            silent: false,
            state: State::ReqReceived,
            deadline: None,
            closed: None,
        };
        self.add(now, connection);
        self.events.push_back(CmEvent::Request {
            connection: ConnectionId(id),
            listener,
            route: *route,
            request: Box::new(*req),
        });
    }

    /// Whether a request can become a connection, and which.
    fn admit(
        &mut self,
        req: &Req,
        route: &Route,
    ) -> Result<(u32, super::ListenerId), RejectReason> {
        if !matches!(
            req.transport,
            Transport::Rc | Transport::Uc | Transport::Xrc
        ) {
            return Err(RejectReason::INVALID_TRANSPORT_TYPE);
        }
        if Mtu::from_code(req.path_mtu).is_none() {
            return Err(RejectReason::INVALID_MTU);
        }
        let asked_for = req.ip_header().map_or(route.local, |ip| ip.destination);
        let listener = self
            .listeners
            .find(req.service_id, asked_for)
            .ok_or(RejectReason::INVALID_SERVICE_ID)?;
        let id = self.new_id().map_err(|_| RejectReason::NO_RESOURCES)?;
        if !self.listeners.admit(listener) {
            return Err(RejectReason::NO_RESOURCES);
        }
        Ok((id, listener))
    }

    /// Ends the connection that holds `peer`, if one does: the peer has begun anew with the same
    /// queue pair, so it cannot know of that connection any more (IBTA 12.9.8.3.1). True if it
    /// was established.
    pub(super) fn end_holder(&mut self, now: Instant, peer: Peer) -> bool {
        // Queue pair 0 stands for none: the program brings its own way to tell.
        if peer.1 == Qpn::new(0) {
            return false;
        }
        match self.by_peer.get(&peer) {
            Some(&id) => self.end_as_stale(now, id),
            None => false,
        }
    }

    /// As [`Self::end_holder`], for a peer that has begun anew with the same communication id.
    fn end_reused_id(&mut self, now: Instant, request: (u64, u32)) -> bool {
        match self.by_request.remove(&request) {
            Some(id) => self.end_as_stale(now, id),
            None => false,
        }
    }

    fn end_as_stale(&mut self, now: Instant, id: u32) -> bool {
        let transaction = self.new_transaction();
        let Some(connection) = self.connections.get(&id) else {
            return false;
        };
        let established = matches!(connection.state, State::Established { .. });
        let step = if established {
            let over = CmEvent::Disconnected {
                connection: connection.name(),
                how: Disconnect::Stale,
            };
            match connection.dreq(transaction, &[]) {
                Ok(dreq) => Step::enter(State::DreqSent(connection.waiting(dreq))).and_send(dreq),
                Err(_) => Step::close(None),
            }
            .and_tell(over)
        } else if connection.state.holds_peer() {
            let reason = RejectReason::STALE_CONNECTION;
            Step::close(None).and_tell(connection.rejected_because(reason))
        } else {
            return false;
        };
        self.apply(now, id, step);
        established
    }

    pub(super) fn on_rtu(&mut self, now: Instant, rtu: &Rtu) {
        let waits = self
            .connections
            .get(&rtu.remote_comm_id)
            .is_some_and(|connection| {
                connection.is_from(rtu.local_comm_id)
                    && matches!(connection.state, State::RepSent(_))
            });
        if waits {
            self.established(now, rtu.remote_comm_id, Some(Box::new(*rtu)));
        }
    }

    fn established(&mut self, now: Instant, id: u32, ready: Option<Box<Rtu>>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.confirmed = true;
        }
        let event = CmEvent::Established {
            connection: ConnectionId(id),
            ready,
        };
        let step = Step::enter(State::Established { ready: None }).and_tell(event);
        self.apply(now, id, step);
    }
}

impl Connection {
    fn rep(&self, accept: &Accept<'_>, ca_guid: u64) -> Result<Mad, CmError> {
        // XRC names its queue pair in the field of the end-to-end context, and always has a
        // shared receive queue (annex A14).
        let xrc = self.transport == Transport::Xrc;
        let rep = Rep {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id.unwrap_or(0),
            local_qkey: 0,
            local_qpn: if xrc { Qpn::new(0) } else { accept.qpn },
            local_eecn: if xrc { accept.qpn.value() } else { 0 },
            ece: accept.ece,
            starting_psn: accept.starting_psn,
            responder_resources: accept.responder_resources,
            initiator_depth: accept.initiator_depth,
            target_ack_delay: accept.target_ack_delay,
            failover_accepted: FAILOVER_NOT_SUPPORTED,
            flow_control: accept.flow_control,
            rnr_retry_count: accept.rnr_retry_count,
            srq: accept.srq || xrc,
            local_ca_guid: ca_guid,
            private_data: private(AttributeId::Rep, accept.private_data)?,
        };
        Ok(CmMad {
            transaction_id: self.transaction,
            message: Message::Rep(rep),
        }
        .encode())
    }

    /// A REQ that is not the first: the answer was lost, or the program is slow, or all is over.
    fn on_repeated_req(&self, mra_service_timeout: u8) -> Step {
        match &self.state {
            State::ReqReceived => Step::send(self.mra(RejectedMessage::Req, mra_service_timeout)),
            State::RepSent(waiting) => Step::send(*waiting.mad),
            State::Timewait { last: Some(rej) } => Step::send(**rej),
            // Disconnected before the peer had a REP: it still waits for one.
            State::DreqSent(_) | State::Timewait { last: None } if !self.confirmed => {
                Step::send(self.rej_because(RejectedMessage::Req, RejectReason::CONSUMER_DEFINED))
            }
            _ => Step::ignore(),
        }
    }
}

/// The REP's answer to an alternate path: 1, not supported (IBTA 12.7.32).
const FAILOVER_NOT_SUPPORTED: u8 = 1;
