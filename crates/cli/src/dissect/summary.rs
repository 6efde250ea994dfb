//! What is counted over a capture, and which packets come again.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use feroce_obs::frame::{Frame, Icrc, NotRoce};
use feroce_obs::pcapng::Direction;
use feroce_wire::{Operation, Packet, Psn, Qpn, Service};

/// Counts over a capture.
#[derive(Debug, Default)]
pub(super) struct Summary {
    opcodes: BTreeMap<u8, OpcodeCount>,
    right: u64,
    wrong: u64,
    not_captured: u64,
    malformed: u64,
    cut: u64,
    batches: u64,
    other: u64,
    /// Frames that look like RoCE but cannot be read, by reason.
    unreadable: BTreeMap<String, u64>,
    flows: HashMap<FlowKey, Seen>,
}

#[derive(Debug, Default)]
struct OpcodeCount {
    packets: u64,
    again: u64,
}

impl Summary {
    /// Counts a packet. Returns whether it was seen before: a retransmission.
    pub(super) fn packet(
        &mut self,
        frame: &Frame<'_>,
        direction: Option<Direction>,
        packet: &Packet<'_>,
        icrc: Icrc,
    ) -> bool {
        self.icrc(icrc);
        let again = numbered(packet) && {
            let key = FlowKey {
                source: frame.source,
                destination: frame.destination,
                dest_qp: packet.dest_qp,
                request: packet.info.is_request(),
                received: direction.map(|direction| direction == Direction::In),
            };
            let seen = self
                .flows
                .entry(key)
                .or_insert_with(|| Seen::new(packet.psn));
            // What is broken on the way is no sending of its own.
            icrc != Icrc::Wrong && seen.insert(packet.psn)
        };
        let count = self.opcodes.entry(packet.opcode.0).or_default();
        count.packets += 1;
        count.again += u64::from(again);
        again
    }

    /// Counts a packet that does not parse.
    pub(super) fn malformed(&mut self, icrc: Icrc) {
        self.malformed += 1;
        self.icrc(icrc);
    }

    /// Counts a packet that was cut before its payload.
    pub(super) fn cut(&mut self) {
        self.cut += 1;
        self.not_captured += 1;
    }

    /// Counts a datagram that was captured before it was segmented.
    pub(super) fn batch(&mut self) {
        self.batches += 1;
    }

    /// Counts a frame of another protocol.
    pub(super) fn other(&mut self) {
        self.other += 1;
    }

    /// Counts a frame that cannot be read.
    pub(super) fn unreadable(&mut self, reason: NotRoce) {
        *self.unreadable.entry(reason.to_string()).or_default() += 1;
    }

    /// Whether nothing wrong was seen.
    pub(super) fn is_clean(&self) -> bool {
        self.wrong == 0 && self.malformed == 0
    }

    fn icrc(&mut self, icrc: Icrc) {
        match icrc {
            Icrc::Right => self.right += 1,
            Icrc::RightForId(_) | Icrc::Wrong => self.wrong += 1,
            Icrc::NotCaptured => self.not_captured += 1,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets: u64 = self.opcodes.values().map(|count| count.packets).sum();
        let unreadable: u64 = self.unreadable.values().sum();
        let roce = packets + self.malformed + self.cut + self.batches;
        let frames = roce + self.other + unreadable;
        writeln!(f, "{frames} frames, {roce} of RoCE")?;
        for (code, count) in &self.opcodes {
            let opcode = feroce_wire::Opcode(*code).to_string();
            write!(f, "{:>10} {opcode}", count.packets)?;
            if count.again > 0 {
                write!(f, ", {} of them again", count.again)?;
            }
            writeln!(f)?;
        }
        let (right, wrong, not_captured) = (self.right, self.wrong, self.not_captured);
        writeln!(
            f,
            "ICRC: {right} right, {wrong} wrong, {not_captured} not captured"
        )?;
        let again: u64 = self.opcodes.values().map(|count| count.again).sum();
        writeln!(f, "retransmissions: {again}")?;
        if self.malformed > 0 {
            writeln!(f, "malformed packets: {}", self.malformed)?;
        }
        if self.batches > 0 {
            writeln!(
                f,
                "datagrams of several packets: {}; they were captured before the kernel segmented \
                 them: capture at the receiver, or with FEROCE_PCAP",
                self.batches
            )?;
        }
        for (reason, count) in &self.unreadable {
            writeln!(f, "not read: {count} frames: {reason}")?;
        }
        Ok(())
    }
}

/// Packets that share a sequence of PSNs.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    source: IpAddr,
    destination: IpAddr,
    dest_qp: Qpn,
    /// Responses carry the PSNs of the other direction's requests.
    request: bool,
    /// A file may hold one packet twice: as it was sent and as it was received.
    received: Option<bool>,
}

/// Whether each PSN is sent once unless something was lost: reliable services without
/// acknowledges, which may repeat a PSN as they like.
fn numbered(packet: &Packet<'_>) -> bool {
    matches!(packet.info.service, Service::Rc | Service::Xrc)
        && packet.info.operation != Operation::Acknowledge
}

/// The PSNs seen of late.
#[derive(Debug)]
struct Seen {
    newest: Psn,
    /// A bit for each PSN, in a ring.
    bits: Box<[u64; PSNS_KEPT / 64]>,
}

/// PSNs that are remembered of each flow: more than anyone has in flight. 2 KiB.
const PSNS_KEPT: usize = 1 << 14;

impl Seen {
    fn new(first: Psn) -> Self {
        Self {
            newest: first,
            bits: Box::new([0; PSNS_KEPT / 64]),
        }
    }

    /// Notes a PSN. Returns whether it was seen before.
    fn insert(&mut self, psn: Psn) -> bool {
        let ahead = psn.distance_from(self.newest);
        if usize::try_from(ahead.unsigned_abs()).is_ok_and(|far| far >= PSNS_KEPT) {
            // A new connection on an old number.
            self.bits.fill(0);
            self.newest = psn;
        }
        for _ in 0..psn.distance_from(self.newest) {
            self.newest = self.newest.next();
            let (word, bit) = place(self.newest);
            self.bits[word] &= !bit;
        }
        let (word, bit) = place(psn);
        let seen = self.bits[word] & bit != 0;
        self.bits[word] |= bit;
        seen
    }
}

fn place(psn: Psn) -> (usize, u64) {
    let index = psn.value() as usize % PSNS_KEPT;
    (index / 64, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psn_is_seen_again_across_the_wrap_but_not_on_a_new_connection() {
        let mut seen = Seen::new(Psn::new(0xff_fffe));
        let again: Vec<bool> = [0xff_fffe, 0xff_ffff, 0, 1, 0xff_ffff, 3, 2, 3]
            .map(|psn| seen.insert(Psn::new(psn)))
            .to_vec();
        assert_eq!(
            again,
            [false, false, false, false, true, false, false, true]
        );
        assert!(!seen.insert(Psn::new(0x80_0000)));
        assert!(!seen.insert(Psn::new(2)), "a third connection");
        assert!(!seen.insert(Psn::new(2 + 100)));
        assert!(seen.insert(Psn::new(2)));
    }
}
