//! The end of a connection: DREQ, DREP, and a program that has lost interest (IBTA 12.9.9).

use super::connection::{Connection, State, Step};
use super::types::{CmError, CmEvent, ConnectionId, Disconnect, Reject, Route};
use super::{Cm, refuse};
use crate::Instant;
use alloc::boxed::Box;
use feroce_wire::cm::{AprStatus, CmMad, Drep, Dreq, Lap, RejectReason, RejectedMessage};

impl Cm {
    /// Ends a connection (DREQ); `Disconnected` follows, and `TimewaitExit`. Nothing happens if it
    /// is over, or ending, already: the peer's DREQ is answered as soon as it comes.
    ///
    /// # Errors
    /// If the connection is unknown or not as far as `RepSent`, or the private data is too long.
    pub fn disconnect(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        let transaction = self.new_transaction();
        let known = self.connection(connection)?;
        match known.state {
            State::RepSent(_) | State::Established { .. } => {}
            State::DreqSent(_) | State::Timewait { .. } => return Ok(()),
            State::ReqSent(_) | State::ReqReceived | State::RepReceived => {
                return Err(known.wrong_state("disconnect"));
            }
        }
        let dreq = known.dreq(transaction, private_data)?;
        let step = Step::enter(State::DreqSent(known.waiting(dreq))).and_send(dreq);
        self.apply(now, connection.0, step);
        Ok(())
    }

    /// Has no more interest in a connection, wherever it stands: the peer is told as its state
    /// demands, and no event of it follows. Unknown connections are no error.
    pub fn abandon(&mut self, now: Instant, connection: ConnectionId) {
        let ca_guid = self.config.ca_guid;
        self.events
            .retain(|event| event.connection() != Some(connection));
        let Some(known) = self.connections.get_mut(&connection.0) else {
            return;
        };
        known.silent = true;
        match known.state {
            State::ReqSent(_) => {
                let rej = known.rej_timeout(RejectedMessage::Req, ca_guid);
                // A REP that is under way gets the program's no.
                let step = Step::close(None).and_send(rej);
                self.apply(now, connection.0, step);
            }
            State::ReqReceived | State::RepReceived => {
                if let Ok(rej) = known.refusal(&Reject::by_program(&[])) {
                    self.apply(now, connection.0, Step::close(Some(rej)));
                }
            }
            // A REJ would do for a REP, but only a DREQ is repeated until it is heard.
            State::RepSent(_) | State::Established { .. } => {
                // Without private data, and in these states, it cannot fail.
                let _ = self.disconnect(now, connection, &[]);
            }
            State::DreqSent(_) | State::Timewait { .. } => {}
        }
    }

    pub(super) fn on_dreq(&mut self, now: Instant, mad: &CmMad, dreq: &Dreq, route: &Route) {
        let known = self
            .connections
            .get_mut(&dreq.remote_comm_id)
            .filter(|connection| connection.is_from(dreq.local_comm_id));
        let Some(connection) = known else {
            if let Some(message) = refuse::unknown_connection(&mad.message) {
                self.send(route, refuse::answer(mad.transaction_id, message));
            }
            return;
        };
        if dreq.remote_qpn != connection.local_qpn {
            return;
        }
        let id = connection.id;
        let step = connection.on_dreq(mad.transaction_id, dreq);
        self.apply(now, id, step);
    }

    pub(super) fn on_drep(&mut self, now: Instant, drep: &Drep) {
        let Some(connection) = self.connections.get(&drep.remote_comm_id) else {
            return;
        };
        if connection.is_from(drep.local_comm_id) && matches!(connection.state, State::DreqSent(_))
        {
            let step = Step::close(None).and_tell(CmEvent::Disconnected {
                connection: connection.name(),
                how: Disconnect::Answered(Box::new(*drep)),
            });
            self.apply(now, connection.id, step);
        }
    }

    /// Alternate paths are not supported, and the answer says so.
    pub(super) fn on_lap(&mut self, transaction: u64, lap: &Lap, route: &Route) {
        let known = self
            .connections
            .get(&lap.remote_comm_id)
            .is_some_and(|connection| connection.is_from(lap.local_comm_id));
        let status = if known {
            AprStatus::UNSUPPORTED
        } else {
            AprStatus::INVALID_COMM_ID
        };
        let apr = refuse::apr(lap.remote_comm_id, lap.local_comm_id, status);
        self.send(route, refuse::answer(transaction, apr));
    }
}

impl Connection {
    fn on_dreq(&mut self, transaction: u64, dreq: &Dreq) -> Step {
        let drep = self.drep(transaction, dreq.local_comm_id);
        let over = CmEvent::Disconnected {
            connection: self.name(),
            how: Disconnect::Asked(Box::new(*dreq)),
        };
        match self.state {
            // It was accepted and at once disconnected; the REP got lost or comes later.
            State::ReqSent(_) => {
                self.remote_id = Some(dreq.local_comm_id);
                let reason = RejectReason::CONSUMER_DEFINED;
                Step::close(None)
                    .and_send(drep)
                    .and_tell(self.rejected_because(reason))
            }
            State::ReqReceived => Step::ignore(),
            // The RTU was lost, but a peer that disconnects was connected.
            State::RepSent(_) => {
                self.confirmed = true;
                Step::close(None)
                    .and_send(drep)
                    .and_tell(CmEvent::Established {
                        connection: self.name(),
                        ready: None,
                    })
                    .and_tell(over)
            }
            State::RepReceived | State::Established { .. } | State::DreqSent(_) => {
                Step::close(None).and_send(drep).and_tell(over)
            }
            State::Timewait { .. } => Step::send(drep),
        }
    }
}
