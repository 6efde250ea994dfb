//! Answers to requests: acknowledges, NAKs, READ responses, atomic results (IBTA 9.7.5, 9.9.2).
//!
//! An answer with a PSN acknowledges everything before it, except READs and atomics whose data has
//! not come: such a hole means the data was lost, and is repaired like a sequence NAK.

use super::{Progress, RNR_RETRY_FOREVER, offset, read_chunk_packets};
use crate::qp::{Context, Qp};
use crate::timers::Timer;
use crate::{CompletionStatus, Data, Host, QpState, SendOperation};
use feroce_wire::aeth::{NakCode, Syndrome, credits_of_code};
use feroce_wire::{Msn, Operation, Packet, Psn, timing};

impl Qp {
    /// A packet that answers a request of this queue pair.
    pub(crate) fn handle_response<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) {
        if !matches!(self.state(), QpState::ReadyToSend | QpState::SqDrained) {
            cx.counters().dropped_state += 1;
            return;
        }
        let syndrome = match packet.extensions.aeth {
            Some((byte, msn)) => match Syndrome::from_byte(byte) {
                Some(syndrome) => Some((syndrome, msn)),
                None => {
                    cx.counters().unexpected_response += 1;
                    return;
                }
            },
            None => None,
        };
        if !self.is_outstanding(packet.psn) {
            self.handle_ghost(cx, packet.psn, syndrome);
            return;
        }
        if let Some((Syndrome::Ack { credits }, msn)) = syndrome {
            self.update_credits(credits, msn);
        }
        match (packet.info.operation, syndrome) {
            (Operation::Acknowledge, Some((syndrome, _))) => {
                self.handle_acknowledge(cx, packet.psn, syndrome);
            }
            (Operation::ReadResponse, None | Some((Syndrome::Ack { .. }, _))) => {
                self.handle_read_response(cx, packet);
            }
            (Operation::AtomicAcknowledge, Some((Syndrome::Ack { .. }, _))) => {
                self.handle_atomic_acknowledge(cx, packet);
            }
            // A NAK to an atomic may come under the atomic's opcode.
            (Operation::AtomicAcknowledge, Some((syndrome, _))) => {
                self.handle_acknowledge(cx, packet.psn, syndrome);
            }
            _ => cx.counters().unexpected_response += 1,
        }
    }

    /// Whether the PSN has left and is not answered.
    fn is_outstanding(&self, psn: Psn) -> bool {
        let requester = &self.requester;
        offset(psn, requester.una) < offset(requester.high, requester.una)
    }

    /// Answers to what is answered say nothing, but an acknowledge may bring credits.
    fn handle_ghost<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        psn: Psn,
        syndrome: Option<(Syndrome, Msn)>,
    ) {
        if psn == self.requester.una.minus(1)
            && let Some((Syndrome::Ack { credits }, msn)) = syndrome
        {
            if self.update_credits(credits, msn) {
                self.requester.hears_of_credits = true;
            }
            cx.schedule();
        } else if !psn.is_before(self.requester.una) {
            cx.counters().unexpected_response += 1;
        }
    }

    /// Takes credits over, unless they are older than those known; returns whether they changed.
    fn update_credits(&mut self, code: u8, msn: Msn) -> bool {
        let requester = &mut self.requester;
        if msn.distance_from(Msn::new(requester.credits_at)) < 0 {
            return false;
        }
        requester.credits_at = msn.value();
        let limit = credits_of_code(code).map(|credits| Msn::new(msn.value() + credits).value());
        if limit == requester.credit_limit {
            return false;
        }
        requester.credit_limit = limit;
        requester.probe_at = None;
        true
    }

    fn handle_acknowledge<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        psn: Psn,
        syndrome: Syndrome,
    ) {
        match syndrome {
            Syndrome::Ack { .. } => {
                let answered = psn.next();
                self.advance(cx, answered);
                if self.is_waiting_before(answered) {
                    cx.counters().implied_nak_seq_err += 1;
                    self.recover(cx);
                }
            }
            Syndrome::RnrNak { timer } => {
                cx.counters().rnr_nak_received += 1;
                if self.reach(cx, psn) {
                    self.wait_for_receiver(cx, timer);
                }
            }
            Syndrome::Nak(NakCode::SequenceError) => {
                cx.counters().packet_seq_err += 1;
                if self.reach(cx, psn) {
                    self.recover(cx);
                }
            }
            Syndrome::Nak(code) => {
                if self.reach(cx, psn) {
                    self.refused(cx, code);
                }
            }
        }
    }

    /// Whether the queue is alive and a PSN before `answered` still lacks its data.
    fn is_waiting_before(&self, answered: Psn) -> bool {
        self.is_sending() && self.requester.una.is_before(answered)
    }

    const fn is_sending(&self) -> bool {
        matches!(self.state(), QpState::ReadyToSend | QpState::SqDrained)
    }

    /// Takes everything before `psn` as answered. True if `psn` then is the oldest without an
    /// answer; otherwise data before it is missing, which is repaired first.
    fn reach<H: Host>(&mut self, cx: &mut Context<'_, H>, psn: Psn) -> bool {
        self.advance(cx, psn);
        if !self.is_sending() {
            return false;
        }
        if self.requester.una == psn {
            return true;
        }
        cx.counters().implied_nak_seq_err += 1;
        self.recover(cx);
        false
    }

    /// The responder has no receive: wait as long as it says, then send again (W4).
    fn wait_for_receiver<H: Host>(&mut self, cx: &mut Context<'_, H>, timer: u8) {
        if self.requester.wait_until.is_some() {
            return;
        }
        if self.attributes.rnr_retry != RNR_RETRY_FOREVER {
            let Some(left) = self.requester.rnr_retries_left.checked_sub(1) else {
                cx.counters().rnr_nak_retry_err += 1;
                self.fail_oldest(cx, CompletionStatus::RnrRetryExceeded);
                return;
            };
            self.requester.rnr_retries_left = left;
        }
        self.rewind(cx);
        // Whatever was sent after the refused packet may yet be complained about.
        self.requester.rewound_to = Some(self.requester.una);
        let until = cx.now + timing::rnr_delay(timer);
        self.requester.wait_until = Some(until);
        cx.shared.timers.arm(self.index, Timer::Retry, until);
    }

    /// The responder refuses the oldest request for good.
    fn refused<H: Host>(&mut self, cx: &mut Context<'_, H>, code: NakCode) {
        let counters = cx.counters();
        let status = match code {
            NakCode::InvalidRequest => {
                counters.req_remote_invalid_request += 1;
                CompletionStatus::RemoteInvalidRequest
            }
            NakCode::RemoteAccess => {
                counters.req_remote_access_errors += 1;
                CompletionStatus::RemoteAccess
            }
            NakCode::RemoteOperational => CompletionStatus::RemoteOperation,
            NakCode::SequenceError | NakCode::InvalidRdRequest => {
                CompletionStatus::RemoteInvalidRdRequest
            }
        };
        self.fail_oldest(cx, status);
    }

    fn handle_read_response<H: Host>(&mut self, cx: &mut Context<'_, H>, packet: &Packet<'_>) {
        if !self.reach(cx, packet.psn) {
            return;
        }
        let mtu = self.mtu_bytes();
        let chunk = read_chunk_packets(&cx.shared.config, mtu);
        let Some(wqe) = self.requester.queue.front() else {
            return;
        };
        let Progress::Begun { first, packets } = wqe.progress else {
            return;
        };
        let at = offset(packet.psn, first);
        let (expected, ends) = match wqe.request.operation {
            SendOperation::Read(_) => {
                let rest = wqe.length - at * mtu;
                let ends = at + 1 == packets || (at + 1).is_multiple_of(chunk);
                (rest.min(mtu), ends)
            }
            SendOperation::AtomicWrite(_) | SendOperation::Flush { .. } => (0, true),
            _ => {
                cx.counters().unexpected_response += 1;
                return;
            }
        };
        if packet.payload.len() != expected as usize || packet.info.position.ends() != ends {
            self.fail_oldest(cx, CompletionStatus::BadResponse);
            return;
        }
        if let (Data::Gather(sges), true) = (&wqe.request.data, expected > 0) {
            let place = u64::from(at) * u64::from(mtu);
            let pd = self.init.pd;
            if cx.host.scatter(pd, sges, place, packet.payload).is_err() {
                self.fail_oldest(cx, CompletionStatus::LocalProtection);
                return;
            }
        }
        self.progress_to(cx, packet.psn.next());
    }

    fn handle_atomic_acknowledge<H: Host>(&mut self, cx: &mut Context<'_, H>, packet: &Packet<'_>) {
        if !self.reach(cx, packet.psn) {
            return;
        }
        let Some(wqe) = self.requester.queue.front() else {
            return;
        };
        let is_atomic = matches!(
            wqe.request.operation,
            SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. }
        );
        let (Some(original), true) = (packet.extensions.atomic_ack, is_atomic) else {
            cx.counters().unexpected_response += 1;
            return;
        };
        if let Data::Gather(sges) = &wqe.request.data {
            // The result is a number in the program's memory, in the machine's order.
            let bytes = original.to_ne_bytes();
            if cx.host.scatter(self.init.pd, sges, 0, &bytes).is_err() {
                self.fail_oldest(cx, CompletionStatus::LocalProtection);
                return;
            }
        }
        self.progress_to(cx, packet.psn.next());
    }
}
