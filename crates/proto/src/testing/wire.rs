//! What lies between two devices: delay, and seeded or scripted loss, duplication, reordering.

use super::Random;
use feroce_wire::aeth::{NakCode, Syndrome};
use feroce_wire::{Operation, Packet, Position};
use std::format;
use std::string::{String, ToString};

/// Seeded impairment, as chances in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Impairment {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) reordering: u64,
    /// A corrupt packet fails its ICRC and is gone.
    pub(crate) corruption: u64,
    /// Up to this many nanoseconds are added.
    pub(crate) jitter: u64,
}

/// What becomes of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Pass,
    Drop,
    Duplicate,
    /// Delivered this many nanoseconds late.
    Late(u64),
}

impl Impairment {
    pub(crate) fn fate(&self, random: &mut Random) -> Fate {
        if random.chance(self.loss + self.corruption, 1000) {
            Fate::Drop
        } else if random.chance(self.duplication, 1000) {
            Fate::Duplicate
        } else if random.chance(self.reordering, 1000) {
            Fate::Late(1_000 + random.below(30_000))
        } else if self.jitter > 0 && random.chance(1, 20) {
            Fate::Late(random.below(self.jitter))
        } else {
            Fate::Pass
        }
    }
}

/// A packet in a few words: `write first 7`, `ack 9`, `nak sequence 3`; `+a` asks for an
/// acknowledge.
pub(crate) fn short(packet: &Packet<'_>) -> String {
    let psn = packet.psn.value();
    let position = match packet.info.position {
        Position::First => "first",
        Position::Middle => "middle",
        Position::Last => "last",
        Position::Only => "only",
    };
    let name = match packet.info.operation {
        Operation::Send => "send",
        Operation::Write => "write",
        Operation::ReadResponse => "response",
        Operation::ReadRequest => return format!("read {psn}"),
        Operation::CompareSwap => return format!("compare-swap {psn}"),
        Operation::FetchAdd => return format!("fetch-add {psn}"),
        Operation::AtomicAcknowledge => return format!("atomic-ack {psn}"),
        Operation::Flush => return format!("flush {psn}"),
        Operation::AtomicWrite => return format!("atomic-write {psn}"),
        Operation::CongestionNotification => return "cnp".to_string(),
        Operation::Resync => return "resync".to_string(),
        Operation::Acknowledge => {
            let (byte, _) = packet.extensions.aeth.unwrap();
            let name = match Syndrome::from_byte(byte).unwrap() {
                Syndrome::Ack { .. } => "ack",
                Syndrome::RnrNak { .. } => "rnr",
                Syndrome::Nak(NakCode::SequenceError) => "nak sequence",
                Syndrome::Nak(NakCode::InvalidRequest) => "nak invalid",
                Syndrome::Nak(NakCode::RemoteAccess) => "nak access",
                Syndrome::Nak(NakCode::RemoteOperational) => "nak operational",
                Syndrome::Nak(NakCode::InvalidRdRequest) => "nak rd",
            };
            return format!("{name} {psn}");
        }
    };
    let ack = if packet.ack_request { " +a" } else { "" };
    format!("{name} {position} {psn}{ack}")
}
