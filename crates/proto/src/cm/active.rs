//! The active side: REQ, and the answers to it (IBTA 12.9.6).

use super::connection::{Connection, Next, State, Step, with_header};
use super::types::{CmError, CmEvent, Connect, ConnectionId, Disconnect, Reject, gid_of, time_of};
use super::{Cm, refuse};
use crate::Instant;
use alloc::boxed::Box;
use core::time::Duration;
use feroce_wire::cm::{
    AttributeId, CmMad, Message, Mra, PathFields, Rej, RejectReason, RejectedMessage, Rep, Req,
};
use feroce_wire::mad::Mad;

/// The LID of a path on Ethernet: there is none (annex A16.3.2).
const NO_LID: u16 = 0xffff;

/// Whether a request that is refused may be granted soon: how long to wait before it is repeated,
/// after so many earlier chances. What is repeated costs one of the request's repetitions.
pub(super) fn second_chance(reason: RejectReason, chances: u8) -> Option<Duration> {
    let pauses: &[u64] = match reason {
        // The peer has ended what was in the way. Soft-RoCE holds a connection for stale while
        // its own TIMEWAIT lasts, about a second.
        RejectReason::STALE_CONNECTION => &[500; 14],
        // Programs that meet a second time (perftest -R) ask before the slower one listens.
        RejectReason::INVALID_SERVICE_ID => &[50, 250],
        _ => &[],
    };
    let millis = *pauses.get(usize::from(chances))?;
    Some(Duration::from_millis(millis))
}

impl Cm {
    /// Asks for a connection. `Reply`, `Rejected` or `Unreachable` follows.
    ///
    /// # Errors
    /// If the private data is too long or the table is full.
    pub fn connect(
        &mut self,
        now: Instant,
        connect: &Connect<'_>,
    ) -> Result<ConnectionId, CmError> {
        let header = connect.ip.map(|header| header.to_bytes());
        let header = header.as_ref().map(|bytes| &bytes[..]);
        let private_data = with_header(AttributeId::Req, header, connect.private_data)?;
        let id = self.new_id()?;
        let transaction = self.new_transaction();
        let mad = CmMad {
            transaction_id: transaction,
            message: Message::Req(req(connect, id, self.config.ca_guid, private_data)),
        };
        let mut connection = Connection {
            id,
            remote_id: None,
            route: connect.route,
            transaction,
            transport: connect.transport,
            local_qpn: connect.qpn,
            peer: None,
            request: None,
            pending_at: None,
            response_time: time_of(connect.remote_cm_response_timeout),
            max_retries: connect.max_cm_retries.min(15),
            timewait: self.timewait(
                connect.local_ack_timeout,
                connect.remote_cm_response_timeout,
            ),
            confirmed: true,
            chances: 0,
            told: false,
            silent: false,
            state: State::ReqReceived,
            deadline: None,
            closed: None,
        };
        let mad = mad.encode();
        connection.state = State::ReqSent(connection.waiting(mad));
        let route = connection.route;
        self.add(now, connection);
        self.send(&route, mad);
        Ok(ConnectionId(id))
    }

    /// Active side: this side is ready (RTU). The connection is established; no event follows.
    ///
    /// # Errors
    /// If the connection is not `RepReceived`, or the private data is too long.
    pub fn establish(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let known = self.connection(connection)?;
        if !matches!(known.state, State::RepReceived) {
            return Err(known.wrong_state("establish"));
        }
        let rtu = known.rtu(private_data)?;
        let ready = Some(Box::new(rtu));
        let step = Step::enter(State::Established { ready }).and_send(rtu);
        self.apply(now, connection.0, step);
        Ok(())
    }

    /// How long a connection answers late messages: as long as packets of it may be under way,
    /// and until a repetition of the peer has had its answer.
    pub(super) fn timewait(&self, local_ack_timeout: u8, response_timeout: u8) -> Duration {
        let code = local_ack_timeout.max(response_timeout);
        (time_of(code) * 2).min(self.config.timewait_max)
    }

    pub(super) fn on_rep(&mut self, now: Instant, mad: &CmMad, rep: &Rep, route: &super::Route) {
        let known = self
            .connections
            .get_mut(&rep.remote_comm_id)
            .filter(|connection| connection.is_from(rep.local_comm_id));
        let Some(connection) = known else {
            if let Some(message) = refuse::unknown_connection(&mad.message) {
                self.send(route, refuse::answer(mad.transaction_id, message));
            }
            return;
        };
        let id = connection.id;
        connection.remote_id = Some(rep.local_comm_id);
        if !matches!(connection.state, State::ReqSent(_)) {
            let step = connection.on_repeated_rep(self.config.mra_service_timeout);
            return self.apply(now, id, step);
        }
        let peer = (rep.local_ca_guid, rep.queue_pair(connection.transport));
        // The peer has just chosen this queue pair: what held it before is gone.
        self.end_holder(now, peer);
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.peer = Some(peer);
        let event = CmEvent::Reply {
            connection: connection.name(),
            reply: Box::new(*rep),
        };
        self.apply(now, id, Step::enter(State::RepReceived).and_tell(event));
    }

    pub(super) fn on_rej(&mut self, now: Instant, rej: &Rej) {
        let known = self.rejected_connection(rej).map(|known| known.id);
        if let Some(id) = known
            && let Some(connection) = self.connections.get_mut(&id)
        {
            let step = connection.on_rej(rej);
            self.apply(now, id, step);
        }
    }

    /// The connection that a REJ is about. A peer that gave up before it knew this side's id names
    /// the connection by its own id and its device.
    fn rejected_connection(&self, rej: &Rej) -> Option<&Connection> {
        let connection = if rej.remote_comm_id == 0 && rej.reason == RejectReason::TIMEOUT {
            let guid = rej.additional_information().first_chunk::<8>()?;
            let request = (u64::from_be_bytes(*guid), rej.local_comm_id);
            self.connections.get(self.by_request.get(&request)?)?
        } else {
            self.connections.get(&rej.remote_comm_id)?
        };
        connection
            .is_from(rej.local_comm_id)
            .then_some(&**connection)
    }

    pub(super) fn on_mra(&mut self, now: Instant, mra: &Mra) {
        let Some(connection) = self.connections.get(&mra.remote_comm_id) else {
            return;
        };
        let about = match connection.state {
            State::ReqSent(_) => RejectedMessage::Req,
            State::RepSent(_) => RejectedMessage::Rep,
            _ => return,
        };
        if mra.message != about || !connection.is_from(mra.local_comm_id) {
            return;
        }
        let asked = time_of(mra.service_timeout.min(self.config.peer_timeout_max));
        let step = Step {
            next: Next::Prolong(asked + connection.response_time),
            ..Step::default()
        };
        self.apply(now, connection.id, step);
    }
}

impl Connection {
    /// A REP that is not the first: the RTU was lost, or the program is slow, or all is over.
    fn on_repeated_rep(&self, mra_service_timeout: u8) -> Step {
        match &self.state {
            State::RepReceived => Step::send(self.mra(RejectedMessage::Rep, mra_service_timeout)),
            State::Established { ready: Some(rtu) } => Step::send(**rtu),
            State::Timewait { last: Some(rej) } => Step::send(**rej),
            // The peer still waits for an RTU that will not come.
            State::Timewait { last: None } => {
                Step::send(self.rej_because(RejectedMessage::Rep, RejectReason::CONSUMER_DEFINED))
            }
            _ => Step::ignore(),
        }
    }

    fn on_rej(&mut self, rej: &Rej) -> Step {
        let reject = Box::new(*rej);
        match &self.state {
            State::ReqSent(waiting)
                if waiting.retries > 0
                    && let Some(pause) = second_chance(rej.reason, self.chances) =>
            {
                self.chances += 1;
                Step {
                    next: Next::Prolong(pause),
                    ..Step::default()
                }
            }
            State::ReqSent(_) | State::ReqReceived | State::RepReceived | State::RepSent(_) => {
                Step::close(None).and_tell(CmEvent::Rejected {
                    connection: self.name(),
                    reject,
                })
            }
            State::Established { .. } | State::DreqSent(_) => {
                Step::close(None).and_tell(CmEvent::Disconnected {
                    connection: self.name(),
                    how: Disconnect::Rejected(reject),
                })
            }
            State::Timewait { .. } => Step::ignore(),
        }
    }

    /// Nothing came in time: the message is repeated, or the peer given up.
    pub(super) fn time_is_up(&mut self, ca_guid: u64) -> Step {
        let (State::ReqSent(waiting) | State::RepSent(waiting) | State::DreqSent(waiting)) =
            &mut self.state
        else {
            return Step::ignore();
        };
        if waiting.retries > 0 {
            waiting.retries -= 1;
            return Step::send(*waiting.mad);
        }
        let message = match self.state {
            State::ReqSent(_) => RejectedMessage::Req,
            State::RepSent(_) => RejectedMessage::Rep,
            _ => {
                return Step::close(None).and_tell(CmEvent::Disconnected {
                    connection: self.name(),
                    how: Disconnect::Unanswered,
                });
            }
        };
        Step::close(Some(self.rej_timeout(message, ca_guid))).and_tell(CmEvent::Unreachable {
            connection: self.name(),
        })
    }

    /// The REJ of the program for the message it has not answered.
    pub(super) fn refusal(&self, reject: &Reject<'_>) -> Result<Mad, CmError> {
        match self.state {
            State::ReqReceived => self.rej(RejectedMessage::Req, reject),
            State::RepReceived => self.rej(RejectedMessage::Rep, reject),
            _ => Err(self.wrong_state("reject")),
        }
    }
}

fn req(connect: &Connect<'_>, id: u32, ca_guid: u64, private_data: [u8; 92]) -> Req {
    Req {
        local_comm_id: id,
        ece: connect.ece,
        service_id: connect.service_id,
        local_ca_guid: ca_guid,
        local_qkey: 0,
        local_qpn: connect.qpn,
        responder_resources: connect.responder_resources,
        local_eecn: 0,
        initiator_depth: connect.initiator_depth,
        remote_eecn: 0,
        remote_cm_response_timeout: connect.remote_cm_response_timeout,
        transport: connect.transport,
        flow_control: connect.flow_control,
        starting_psn: connect.starting_psn,
        local_cm_response_timeout: connect.local_cm_response_timeout,
        retry_count: connect.retry_count,
        pkey: connect.pkey,
        path_mtu: connect.path_mtu as u8,
        rdc_exists: false,
        rnr_retry_count: connect.rnr_retry_count,
        max_cm_retries: connect.max_cm_retries.min(15),
        srq: connect.srq,
        primary: PathFields {
            local_lid: NO_LID,
            remote_lid: NO_LID,
            local_gid: gid_of(connect.route.local),
            remote_gid: gid_of(connect.route.remote),
            flow_label: connect.route.flow_label & 0xf_ffff,
            packet_rate: connect.packet_rate,
            traffic_class: connect.route.traffic_class,
            hop_limit: connect.route.hop_limit,
            service_level: connect.service_level,
            subnet_local: false,
            local_ack_timeout: connect.local_ack_timeout,
        },
        alternate: PathFields::default(),
        private_data,
    }
}
