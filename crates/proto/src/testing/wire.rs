//! What lies between two devices: delay, and seeded or scripted loss, duplication, reordering.

use super::Random;
use crate::Instant;
use core::time::Duration;
use feroce_wire::aeth::{NakCode, Syndrome};
use feroce_wire::{Address, Operation, Packet, Position};
use std::boxed::Box;
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// One way across the wire, in nanoseconds.
const ONE_WAY_NANOS: u64 = 1_000;

/// Decides over a packet from its words in the trace.
type Script = Box<dyn FnMut(&str, &Packet<'_>) -> Fate>;

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
    /// A switch marks it: congestion experienced.
    Mark,
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

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) to_b: bool,
    pub(crate) address: Address,
    pub(crate) bytes: Vec<u8>,
}

/// The wire in both directions.
pub(crate) struct Wire {
    /// Packets by arrival and order of leaving.
    flying: BTreeMap<(Instant, u64), Flight>,
    flown: u64,
    /// Every packet that left, in a few words: `a write only 0 +a`.
    pub(crate) trace: Vec<String>,
    pub(crate) script: Option<Script>,
    pub(crate) impairment: Impairment,
    pub(crate) random: Random,
}

impl Default for Wire {
    fn default() -> Self {
        Self {
            flying: BTreeMap::new(),
            flown: 0,
            trace: Vec::new(),
            script: None,
            impairment: Impairment::default(),
            random: Random::new(1),
        }
    }
}

impl Wire {
    /// A packet leaves; the script decides, then chance.
    pub(crate) fn launch(&mut self, now: Instant, flight: Flight) {
        let packet = Packet::parse(&flight.bytes).unwrap();
        let from = if flight.to_b { "a" } else { "b" };
        let words = format!("{from} {}", short(&packet));
        let scripted = self.script.as_mut().map(|script| script(&words, &packet));
        let fate = match scripted {
            None | Some(Fate::Pass) => self.impairment.fate(&mut self.random),
            Some(fate) => fate,
        };
        if self.trace.len() < 100_000 {
            self.trace.push(words);
        }
        match fate {
            Fate::Pass => self.put(now, 0, flight),
            Fate::Drop => {}
            Fate::Mark => {
                let mut marked = flight;
                marked.address.traffic_class |= 3;
                self.put(now, 0, marked);
            }
            Fate::Duplicate => {
                self.put(now, 0, flight.clone());
                self.put(now, 2 * ONE_WAY_NANOS, flight);
            }
            Fate::Late(delay) => self.put(now, delay, flight),
        }
    }

    fn put(&mut self, now: Instant, delay: u64, flight: Flight) {
        self.flown += 1;
        let arrival = now + Duration::from_nanos(ONE_WAY_NANOS + delay);
        self.flying.insert((arrival, self.flown), flight);
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.flying.first_key_value().map(|(&(at, _), _)| at)
    }

    /// The next packet that has arrived.
    pub(crate) fn arrive(&mut self, now: Instant) -> Option<Flight> {
        let entry = self.flying.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }
}
