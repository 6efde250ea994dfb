//! Requests that were executed before: the answer, or our acknowledge of it, was lost.
//!
//! SEND and WRITE are acknowledged again, READs are read again from memory, atomics
//! answer with the saved value (W5). What is not remembered is dropped. The message that is
//! coming in is not disturbed.

use super::{Answer, Owed, Refusal};
use crate::Host;
use crate::qp::{Context, Qp};
use feroce_wire::{Operation, Packet, Reth};

impl Qp {
    pub(super) fn replay<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        match packet.info.operation {
            Operation::ReadRequest => self.replay_read(cx, packet),
            Operation::CompareSwap | Operation::FetchAdd => {
                self.replay_atomic(packet);
                Ok(())
            }
            Operation::AtomicWrite | Operation::Flush => {
                if !self.replay_atomic(packet) {
                    self.acknowledge_again();
                }
                Ok(())
            }
            _ => {
                self.acknowledge_again();
                Ok(())
            }
        }
    }

    /// The newest acknowledge says it all.
    pub(super) fn acknowledge_again(&mut self) {
        if self.responder.owed == Owed::Nothing {
            self.responder.owed = Owed::Acknowledge;
        }
    }

    /// Makes a saved answer pending again; whether there is one.
    fn replay_atomic(&mut self, packet: &Packet<'_>) -> bool {
        let place = self.responder.replays.iter().position(|replay| {
            replay.first == packet.psn && !matches!(replay.answer, Answer::Read { .. })
        });
        match place {
            Some(place) => {
                self.responder.mark_pending(place);
                true
            }
            None => false,
        }
    }

    /// A READ again, perhaps only its rest.
    fn replay_read<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        let asked = packet.extensions.reth.unwrap_or_default();
        // W12: a range that wraps is refused, whatever it is compared with.
        asked
            .virtual_address
            .checked_add(u64::from(asked.length))
            .ok_or(Refusal::RemoteAccess)?;
        let mtu = self.mtu_bytes();
        let found = self.responder.replays.iter().position(|replay| {
            replay
                .first
                .plus(replay.packets - 1)
                .distance_from(packet.psn)
                >= 0
                && packet.psn.distance_from(replay.first) >= 0
        });
        let Some(place) = found else { return Ok(()) };
        let replay = &self.responder.replays[place];
        let skipped = packet.psn.distance_from(replay.first).unsigned_abs();
        let Answer::Read { whole, .. } = &replay.answer else {
            return Ok(());
        };
        if !is_part(whole, &asked, skipped, mtu) {
            return Ok(());
        }
        self.check_read(cx, packet, &asked)?;
        let packets = asked.length.div_ceil(mtu).max(1);
        let replay = self.responder.mark_pending(place);
        if let Answer::Read {
            part,
            part_first,
            part_packets,
            sent,
            ..
        } = &mut replay.answer
        {
            *part = asked;
            *part_first = packet.psn;
            *part_packets = packets;
            *sent = 0;
        }
        Ok(())
    }
}

/// Whether `asked`, `skipped` packets into a READ, lies within it.
fn is_part(whole: &Reth, asked: &Reth, skipped: u32, mtu: u32) -> bool {
    let start = u64::from(skipped) * u64::from(mtu);
    let end = start + u64::from(asked.length);
    asked.rkey == whole.rkey
        && whole.virtual_address.checked_add(start) == Some(asked.virtual_address)
        && end <= u64::from(whole.length)
}
