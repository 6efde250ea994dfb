//! What is owed to the peer leaves here: READ responses and atomic results in PSN order, then
//! the acknowledge or NAK.

use super::{Answer, Owed, Replay};
use crate::qp::{Context, Qp, Step};
use crate::responder::Refusal;
use crate::{CongestionControl, Host, Payload, QpType, RemoteRange, TransmitError};
use feroce_wire::aeth::{Syndrome, credits_of_code};
use feroce_wire::header::Bth;
use feroce_wire::{Extensions, Headers, Msn, Opcode, Operation, Position, Psn};

/// A response that could leave.
struct Response {
    operation: Operation,
    position: Position,
    psn: Psn,
    syndrome: Syndrome,
    original: Option<u64>,
    /// Memory that is read.
    payload: Option<RemoteRange>,
}

impl Qp {
    /// Whether a response waits to be sent.
    pub(crate) fn owes_response(&self) -> bool {
        self.cnp_owed || self.responder.owed != Owed::Nothing || self.responder.pending > 0
    }

    /// Whether nothing waits to be sent but an acknowledge.
    pub(crate) fn owes_only_acknowledge(&self) -> bool {
        !self.cnp_owed && self.responder.pending == 0 && self.responder.owed == Owed::Acknowledge
    }

    /// A packet met congestion: the peer is to know, if it has not been told just now (the
    /// notification point of DCQCN). A datagram has no peer to tell.
    pub(crate) fn notify_congestion<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let CongestionControl::Dcqcn(parameters) = cx.shared.config.congestion else {
            return;
        };
        let told = self
            .cnp_sent_at
            .is_some_and(|at| cx.now.since(at) < parameters.cnp_interval);
        if self.init.qp_type != QpType::Ud && !told {
            self.cnp_owed = true;
            cx.schedule();
        }
    }

    /// Sends the next response.
    pub(crate) fn transmit_response<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Step {
        if self.cnp_owed {
            return self.transmit_cnp(cx);
        }
        let next = self.responder.next_pending();
        let response = match next {
            Some(place) => self.answer(&self.responder.replays[place]),
            None => match self.verdict() {
                Some(response) => response,
                None => return Step::Idle,
            },
        };
        if response.payload.is_some() && self.is_paced(cx) {
            return Step::Idle;
        }
        match self.send_response(cx, &response) {
            Ok(()) => match next {
                Some(place) => self.answered(place),
                None => self.responder.owed = Owed::Nothing,
            },
            Err(TransmitError::Busy) => return Step::Busy,
            Err(TransmitError::Local(_) | TransmitError::Remote(_)) => {
                // The region went away below a READ: refuse it, do not try for ever.
                self.responder.replays.retain(|replay| !replay.pending);
                self.responder.pending = 0;
                self.refuse_read(cx, response.psn);
                return Step::Again;
            }
        }
        Step::Sent
    }

    fn refuse_read<H: Host>(&mut self, cx: &mut Context<'_, H>, psn: Psn) {
        if self.receives_packets() {
            self.refuse(cx, psn, None, Refusal::RemoteAccess);
        }
    }

    /// The response that is next for an answer.
    fn answer(&self, replay: &Replay) -> Response {
        let mut response = Response {
            operation: Operation::ReadResponse,
            position: Position::Only,
            psn: replay.first,
            syndrome: Syndrome::Ack {
                credits: self.credits(),
            },
            original: None,
            payload: None,
        };
        match &replay.answer {
            Answer::Atomic { original } => {
                response.operation = Operation::AtomicAcknowledge;
                response.original = Some(*original);
            }
            Answer::Empty => {}
            Answer::Read {
                pd,
                part,
                part_first,
                part_packets,
                sent,
                ..
            } => {
                let mtu = self.mtu_bytes();
                response.position = match (*sent == 0, *sent + 1 == *part_packets) {
                    (true, true) => Position::Only,
                    (true, false) => Position::First,
                    (false, false) => Position::Middle,
                    (false, true) => Position::Last,
                };
                response.psn = part_first.plus(*sent);
                // `sent` counts whole packets of a READ that is 2^31 bytes at most.
                let offset = *sent * mtu;
                let length = (part.length - offset).min(mtu);
                response.payload = (length > 0).then(|| RemoteRange {
                    pd: *pd,
                    qpn: self.qpn,
                    rkey: part.rkey,
                    address: part.virtual_address.wrapping_add(u64::from(offset)),
                    length: u64::from(length),
                });
            }
        }
        response
    }

    /// One response of an answer has left.
    fn answered(&mut self, place: usize) {
        let replay = &mut self.responder.replays[place];
        if let Answer::Read {
            part_packets, sent, ..
        } = &mut replay.answer
        {
            *sent += 1;
            replay.pending = *sent < *part_packets;
        } else {
            replay.pending = false;
        }
        if !replay.pending {
            replay.answered = true;
            let last = replay.first.plus(replay.packets);
            self.responder.pending -= 1;
            // The answer of the newest request acknowledges everything by itself.
            if self.responder.owed == Owed::Acknowledge && last == self.responder.expected {
                self.responder.owed = Owed::Nothing;
            }
        }
    }

    /// The acknowledge or NAK that is owed.
    fn verdict(&self) -> Option<Response> {
        let (psn, syndrome) = match self.responder.owed {
            Owed::Nothing => return None,
            Owed::Acknowledge => (
                self.responder.expected.minus(1),
                Syndrome::Ack {
                    credits: self.credits(),
                },
            ),
            Owed::Nak(code, psn) => (psn, Syndrome::Nak(code)),
            Owed::NotReady => (
                self.responder.expected,
                Syndrome::RnrNak {
                    timer: self.attributes.min_rnr_timer,
                },
            ),
        };
        Some(Response {
            operation: Operation::Acknowledge,
            position: Position::Only,
            psn,
            syndrome,
            original: None,
            payload: None,
        })
    }

    fn send_response<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        response: &Response,
    ) -> Result<(), TransmitError> {
        let service = self.service();
        let opcode = Opcode::new(service, response.operation, response.position, false, false);
        // Reliable services have every response.
        let opcode = opcode.unwrap_or(Opcode(0));
        let mut bth = Bth::new(opcode, self.attributes.dest_qpn, response.psn);
        bth.set_pkey(cx.shared.config.pkey);
        let extensions = Extensions {
            aeth: Some((response.syndrome.to_byte(), self.responder.msn)),
            atomic_ack: response.original,
            ..Extensions::default()
        };
        let length = response.payload.map_or(0, |range| range.length);
        let headers = Headers::new(bth, &extensions, usize::try_from(length).unwrap_or(0));
        let payload = match response.payload {
            Some(range) => Payload::Remote(range),
            None => Payload::Bytes(&[]),
        };
        cx.host.transmit(&self.envelope, &headers, payload)?;
        cx.counters().tx_packets += 1;
        cx.counters().tx_bytes += length;
        if let Syndrome::Ack { credits } = response.syndrome {
            let msn = self.responder.msn.value();
            self.responder.credit_limit =
                credits_of_code(credits).map(|credits| Msn::new(msn + credits).value());
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.sent(cx.now, length + cx.shared.config.packet_overhead);
        }
        Ok(())
    }

    /// Tells the peer that its packets met congestion (annex A17.9).
    fn transmit_cnp<H: Host>(&mut self, cx: &mut Context<'_, H>) -> Step {
        let mut bth = Bth::new(Opcode::CNP, self.attributes.dest_qpn, Psn::new(0));
        bth.set_pkey(cx.shared.config.pkey);
        bth.set_becn(true);
        let headers = Headers::new(bth, &Extensions::default(), CNP_PAYLOAD.len());
        match cx
            .host
            .transmit(&self.envelope, &headers, Payload::Bytes(&CNP_PAYLOAD))
        {
            Ok(()) => {
                self.cnp_owed = false;
                self.cnp_sent_at = Some(cx.now);
                cx.counters().np_cnp_sent += 1;
                cx.counters().tx_packets += 1;
                Step::Sent
            }
            Err(_) => Step::Busy,
        }
    }
}

/// A CNP carries reserved zeros.
const CNP_PAYLOAD: [u8; 16] = [0; 16];
