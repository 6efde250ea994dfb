//! Requests for the queue pair behind a datagram service (IBTA 12.11).

use super::active::second_chance;
use super::connection::{fill, private, with_header};
use super::types::{CmError, CmEvent, ListenerId, Route, SidrId, SidrReply, SidrRequest, time_of};
use super::{Cm, refuse};
use crate::Instant;
use alloc::boxed::Box;
use core::net::IpAddr;
use core::time::Duration;
use feroce_wire::cm::{
    AttributeId, CmMad, Message, RejectReason, ServiceId, SidrRep, SidrReq, SidrStatus,
};
use feroce_wire::mad::Mad;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Sidr {
    pub(crate) route: Route,
    /// Of the SIDR_REQ.
    pub(crate) transaction: u64,
    /// Received: who asked, and by which name.
    pub(crate) asker: Option<(IpAddr, u32)>,
    pub(crate) state: SidrState,
    pub(crate) deadline: Option<Instant>,
    /// Place among those that are over.
    pub(crate) closed: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum SidrState {
    Sent {
        mad: Box<Mad>,
        retries: u8,
        /// How often it was repeated although nobody listened.
        chances: u8,
        response_time: Duration,
    },
    Received {
        listener: ListenerId,
        service_id: ServiceId,
    },
    /// A repetition gets the answer again.
    Answered { mad: Box<Mad> },
}

/// How long an answer is kept for repetitions of its request.
const ANSWER_KEPT: Duration = Duration::from_secs(10);

impl Cm {
    /// Asks for a datagram queue pair. `SidrReply` or `SidrUnreachable` follows.
    ///
    /// # Errors
    /// If the private data is too long or the table is full.
    pub fn sidr_request(
        &mut self,
        now: Instant,
        request: &SidrRequest<'_>,
    ) -> Result<SidrId, CmError> {
        let header = request.ip.map(|header| header.to_bytes());
        let header = header.as_ref().map(|bytes| &bytes[..]);
        let private_data = with_header(AttributeId::SidrReq, header, request.private_data)?;
        let id = self.new_id()?;
        let transaction = self.new_transaction();
        let mad = CmMad {
            transaction_id: transaction,
            message: Message::SidrReq(SidrReq {
                request_id: id,
                pkey: request.pkey,
                service_id: request.service_id,
                private_data,
            }),
        }
        .encode();
        let response_time = time_of(request.response_timeout);
        let sidr = Sidr {
            route: request.route,
            transaction,
            asker: None,
            state: SidrState::Sent {
                mad: Box::new(mad),
                retries: request.max_cm_retries.min(15),
                chances: 0,
                response_time,
            },
            deadline: None,
            closed: None,
        };
        self.add_sidr(id, sidr, Some(now + response_time));
        self.send(&request.route, mad);
        Ok(SidrId(id))
    }

    /// Answers a request for a datagram queue pair.
    ///
    /// # Errors
    /// If the request is unknown or answered, or something is too long.
    pub fn sidr_reply(
        &mut self,
        now: Instant,
        request_id: SidrId,
        reply: &SidrReply<'_>,
    ) -> Result<(), CmError> {
        let unknown = CmError::UnknownSidr(request_id);
        let sidr = self.sidrs.get(&request_id.0).ok_or(unknown)?;
        let (SidrState::Received { service_id, .. }, Some((_, asker))) = (&sidr.state, sidr.asker)
        else {
            return Err(unknown);
        };
        let information = fill(
            "additional information",
            AttributeId::SidrRep,
            reply.information,
        )?;
        let rep = SidrRep {
            request_id: asker,
            status: reply.status,
            information_len: u8::try_from(reply.information.len()).unwrap_or(72),
            ece: reply.ece,
            qpn: reply.qpn,
            service_id: *service_id,
            qkey: reply.qkey,
            information,
            private_data: private(AttributeId::SidrRep, reply.private_data)?,
        };
        self.answer_sidr(now, request_id.0, &rep);
        Ok(())
    }

    /// Has no more interest in a request, sent or received; a received one is refused.
    pub fn sidr_abandon(&mut self, now: Instant, request_id: SidrId) {
        let Some(sidr) = self.sidrs.get(&request_id.0) else {
            return;
        };
        match (&sidr.state, sidr.asker) {
            (SidrState::Sent { .. }, _) => self.forget(request_id.0),
            (SidrState::Received { service_id, .. }, Some((_, asker))) => {
                let request = SidrReq {
                    request_id: asker,
                    pkey: 0,
                    service_id: *service_id,
                    private_data: [0; 216],
                };
                let rep = refuse::sidr_refusal(&request, SidrStatus::REJECTED);
                self.answer_sidr(now, request_id.0, &rep);
            }
            _ => {}
        }
    }

    fn answer_sidr(&mut self, now: Instant, id: u32, rep: &SidrRep) {
        let Some(sidr) = self.sidrs.get_mut(&id) else {
            return;
        };
        let mad = refuse::answer(sidr.transaction, Message::SidrRep(*rep));
        let route = sidr.route;
        if let SidrState::Received { listener, .. } = sidr.state {
            self.listeners.release(listener);
        }
        sidr.state = SidrState::Answered { mad: Box::new(mad) };
        self.send(&route, mad);
        self.arm(id, now + ANSWER_KEPT);
        self.close(id);
    }

    pub(super) fn on_sidr_req(&mut self, transaction: u64, request: &SidrReq, route: &Route) {
        let asker = (route.remote.to_canonical(), request.request_id);
        if let Some(&id) = self.by_asker.get(&asker)
            && let Some(sidr) = self.sidrs.get(&id)
        {
            if sidr.transaction == transaction {
                if let SidrState::Answered { mad } = &sidr.state {
                    let mad = **mad;
                    self.send(route, mad);
                }
                return;
            }
            // The asker has begun anew with the same name.
            self.forget(id);
        }
        match self.admit_sidr(request, route) {
            Ok((id, listener)) => {
                let sidr = Sidr {
                    route: *route,
                    transaction,
                    asker: Some(asker),
                    state: SidrState::Received {
                        listener,
                        service_id: request.service_id,
                    },
                    deadline: None,
                    closed: None,
                };
                self.add_sidr(id, sidr, None);
                self.events.push_back(CmEvent::SidrRequest {
                    request_id: SidrId(id),
                    listener,
                    route: *route,
                    request: Box::new(*request),
                });
            }
            Err(status) => {
                let rep = Message::SidrRep(refuse::sidr_refusal(request, status));
                self.send(route, refuse::answer(transaction, rep));
            }
        }
    }

    fn admit_sidr(
        &mut self,
        request: &SidrReq,
        route: &Route,
    ) -> Result<(u32, ListenerId), SidrStatus> {
        let asked_for = request.ip_header().map_or(route.local, |ip| ip.destination);
        let listener = self
            .listeners
            .find(request.service_id, asked_for)
            .ok_or(SidrStatus::UNSUPPORTED)?;
        let id = self.new_id().map_err(|_| SidrStatus::NO_QP)?;
        if !self.listeners.admit(listener) {
            return Err(SidrStatus::NO_QP);
        }
        Ok((id, listener))
    }

    pub(super) fn on_sidr_rep(&mut self, now: Instant, rep: &SidrRep) {
        let Some(sidr) = self.sidrs.get_mut(&rep.request_id) else {
            return;
        };
        let SidrState::Sent {
            retries, chances, ..
        } = &mut sidr.state
        else {
            return;
        };
        if rep.status == SidrStatus::UNSUPPORTED
            && *retries > 0
            && let Some(pause) = second_chance(RejectReason::INVALID_SERVICE_ID, *chances)
        {
            *chances += 1;
            return self.arm(rep.request_id, now + pause);
        }
        self.forget(rep.request_id);
        self.events.push_back(CmEvent::SidrReply {
            request_id: SidrId(rep.request_id),
            reply: Box::new(*rep),
        });
    }

    pub(super) fn sidr_time_is_up(&mut self, now: Instant, id: u32) {
        let Some(sidr) = self.sidrs.get_mut(&id) else {
            return;
        };
        let route = sidr.route;
        match &mut sidr.state {
            SidrState::Sent {
                mad,
                retries,
                response_time,
                ..
            } if *retries > 0 => {
                *retries -= 1;
                let (mad, deadline) = (**mad, now + *response_time);
                self.send(&route, mad);
                self.arm(id, deadline);
            }
            SidrState::Sent { .. } => {
                self.forget(id);
                self.events.push_back(CmEvent::SidrUnreachable {
                    request_id: SidrId(id),
                });
            }
            SidrState::Received { .. } => {}
            SidrState::Answered { .. } => self.forget(id),
        }
    }
}
