//! The responder of UC: nothing is acknowledged, nothing is asked for again (IBTA 9.8.2).
//!
//! A gap or an error drops the message it happens in; the next message that begins is taken. The
//! receive of a dropped SEND stays first in line.

use super::{Receiving, Refusal, execute::check_place};
use crate::qp::{Context, Qp};
use crate::{CompletionStatus, Host};
use feroce_wire::{Operation, Packet};

impl Qp {
    /// A packet for a UC queue pair.
    pub(crate) fn handle_unreliable<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) {
        if !packet.info.is_request() {
            return;
        }
        let ahead = packet.psn.distance_from(self.responder.expected);
        if ahead < 0 {
            cx.counters().duplicate_request += 1;
            return;
        }
        if ahead > 0 {
            cx.counters().out_of_sequence += 1;
            self.drop_message(cx);
        }
        self.responder.expected = packet.psn.next();
        if packet.info.position.starts() && self.is_receiving() {
            self.drop_message(cx);
        }
        let result =
            match packet.info.operation {
                _ if self.check_sequence(packet).is_err() => Err(Refusal::OpcodeSequence),
                Operation::Send => check_place(packet, self.mtu_bytes())
                    .and_then(|()| self.execute_send(cx, packet)),
                Operation::Write => check_place(packet, self.mtu_bytes())
                    .and_then(|()| self.execute_write(cx, packet)),
                _ => Err(Refusal::NotAllowed),
            };
        match result {
            Ok(()) => {}
            Err(Refusal::LocalFault) => {
                if let Some(taken) = self.responder.abandon_message() {
                    let status = CompletionStatus::LocalProtection;
                    self.complete_receive_error(cx, &taken, status);
                }
                self.enter_error(cx);
            }
            Err(refusal) => {
                if refusal == Refusal::NotReady {
                    cx.counters().out_of_buffer += 1;
                }
                if packet.info.position.starts() || self.is_receiving() {
                    cx.counters().unreliable_dropped += 1;
                }
                self.responder.kept = self.responder.abandon_message();
            }
        }
    }

    /// Forgets the message that is coming in, if any; its receive is used again.
    fn drop_message<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        if !matches!(self.responder.receiving, Receiving::Nothing) {
            cx.counters().unreliable_dropped += 1;
        }
        self.responder.kept = self.responder.abandon_message();
    }
}
