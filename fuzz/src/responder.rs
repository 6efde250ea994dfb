//! Random packets into live queue pairs of every type, among everything else that happens to them:
//! requests posted, time, a wire without room, keys that vanish, errors, destruction.
//!
//! What must hold is told by [`host`]; here in addition: a packet that is not from the peer has no
//! effect at all, every work request completes exactly once, and in the end nothing is held.

use crate::Features;
use crate::choice::choice;
use arbitrary::{Arbitrary, Unstructured};
use feroce_proto::{
    AttributeMask, CongestionControl, DcqcnParameters, Instant, Mtu, Nic, NicConfig, QpAttributes,
    QpState, SrqAttributes, SrqId, SrqInit, XrcdId,
};
use feroce_wire::{Address, Packet, Qpn, icrc};
use std::time::Duration;

mod host;
mod pairs;
mod plan;

use host::FuzzHost;
use pairs::{FOREIGN, PEER, QPS};
use plan::{PacketPlan, SendPlan};

/// One thing that happens.
#[derive(Debug)]
enum Operation {
    Packet(PacketPlan),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    Receive(ReceivePlan),
    Send(SendPlan),
    /// Two to this power in nanoseconds.
    Time(u8),
    /// Packets that the wire takes before it is full.
    Room(u8),
    /// The peer's keys name nothing, or something again.
    Revoke(bool),
    Error(u8),
    Destroy(u8),
}

choice! { Operation:
    |u| Ok(Operation::Packet(u.arbitrary()?)),
    |u| Ok(Operation::Packet(u.arbitrary()?)),
    |u| Ok(Operation::Packet(u.arbitrary()?)),
    |u| Ok(Operation::Receive(u.arbitrary()?)),
    |u| Ok(Operation::Send(u.arbitrary()?)),
    |u| Ok(Operation::Time(u.arbitrary()?)),
    |u| {
        let len = usize::from(u.arbitrary::<u8>()?).min(u.len());
        Ok(Operation::Bytes(u.bytes(len)?.to_vec()))
    },
    |u| Ok(Operation::Room(u.arbitrary()?)),
    |u| Ok(Operation::Revoke(u.arbitrary()?)),
    |u| Ok(Operation::Error(u.arbitrary()?)),
    |u| Ok(Operation::Destroy(u.arbitrary()?)),
}

#[derive(Arbitrary, Debug)]
struct ReceivePlan {
    queue: u8,
    len: u16,
    pieces: u8,
    faulty: u8,
}

/// The device and everything around it.
struct World {
    nic: Nic,
    host: FuzzHost,
    now: Instant,
    mtu: Mtu,
    features: Features,
}

/// The shared receive queue of a queue pair of service RC, and that of XRC.
const SRQ: SrqId = SrqId(7);
const XRC_SRQ: SrqId = SrqId(8);
const XRCD: XrcdId = XrcdId(3);

/// Longest receive, in bytes: some packets.
const RECEIVE_BYTES_MAX: u16 = 3000;

/// Does what `input` stands for.
pub fn run(input: &[u8]) -> Features {
    let mut unstructured = Unstructured::new(input);
    let mut world = World::new(unstructured.arbitrary().unwrap_or_default());
    while !unstructured.is_empty() {
        let Ok(operation) = Operation::arbitrary(&mut unstructured) else {
            break;
        };
        world.execute(operation);
        world.settle();
    }
    world.note_counters();
    world.end();
    world.features
}

impl World {
    /// A device with connected queue pairs; the bits of `knobs` are its settings.
    fn new(knobs: u8) -> Self {
        let mtu = if knobs & 1 == 0 {
            Mtu::Mtu256
        } else {
            Mtu::Mtu1024
        };
        let mut config = NicConfig {
            path_mtu_max: mtu,
            max_rd_atomic: 4,
            ..NicConfig::default()
        };
        if knobs & 2 != 0 {
            config.congestion = CongestionControl::Dcqcn(DcqcnParameters::default());
        }
        if knobs & 4 != 0 {
            (config.window_initial, config.read_window) = (4096, 4096);
        }
        let mut world = Self {
            nic: Nic::new(config),
            host: FuzzHost::new(mtu),
            now: Instant::from_nanos(1_000_000),
            mtu,
            features: Features::default(),
        };
        for (id, xrc) in [(SRQ, None), (XRC_SRQ, Some((XRCD, pairs::RECEIVES)))] {
            let attributes = SrqAttributes {
                max_wr: 8,
                max_sge: 4,
                limit: 2,
            };
            let pd = pairs::PD;
            world
                .nic
                .create_srq(
                    id,
                    SrqInit {
                        pd,
                        attributes,
                        xrc,
                    },
                )
                .expect("a free number");
        }
        for qp in &QPS {
            qp.connect(&mut world.nic, &mut world.host, world.now, mtu);
        }
        world
    }

    fn execute(&mut self, operation: Operation) {
        match operation {
            Operation::Packet(plan) => {
                let qp = pairs::pick(plan.qp);
                let attributes = self.nic.query_qp(qp.qpn).map(|(attributes, _)| attributes);
                let bytes = plan.bytes(qp, &attributes.unwrap_or_default(), self.mtu);
                self.receive(&bytes, &plan.from());
            }
            Operation::Bytes(bytes) => self.receive(&bytes, &plan::address(PEER, false)),
            Operation::Receive(plan) => self.post_receive(&plan),
            Operation::Send(plan) => {
                let qp = pairs::pick(plan.qp);
                let wr_id = self.host.next_id();
                let (request, bytes) = plan.request(wr_id, qp);
                self.host
                    .open(wr_id, Some(qp.qpn), false, bytes, plan.is_faulty());
                if self
                    .nic
                    .post_send(self.now, qp.qpn, request, &mut self.host)
                    .is_err()
                {
                    self.host.forget(wr_id);
                }
            }
            Operation::Time(power) => {
                self.now = self.now + Duration::from_nanos(1 << (power % 36));
            }
            Operation::Room(packets) => self.host.room = packets.into(),
            Operation::Revoke(revoked) => self.host.revoked = revoked,
            Operation::Error(qp) => self.fail(pairs::pick(qp).qpn),
            Operation::Destroy(qp) => {
                let qpn = pairs::pick(qp).qpn;
                if self.nic.destroy_qp(qpn).is_ok() {
                    self.host.forget_all_of(qpn);
                }
            }
        }
    }

    /// Hands a packet in, if it is one.
    fn receive(&mut self, bytes: &[u8], from: &Address) {
        let Ok(packet) = Packet::parse(bytes) else {
            return;
        };
        let effects = self.host.effects;
        self.nic
            .handle_packet(self.now, from, &packet, &mut self.host);
        let for_everyone = pairs::is_datagram(packet.dest_qp);
        if from.source == FOREIGN && !for_everyone {
            assert_eq!(self.host.effects, effects, "a stranger's packet: {packet}");
        }
        if self.host.effects != effects {
            self.features.add(0x1000 | u32::from(packet.opcode.0));
        }
    }

    fn post_receive(&mut self, plan: &ReceivePlan) {
        let wr_id = self.host.next_id();
        let len = usize::from(plan.len % RECEIVE_BYTES_MAX);
        let sges = host::sges(wr_id, len, plan.pieces);
        let request = feroce_proto::RecvRequest { wr_id, sges };
        let queues = QPS.len() + 2;
        let queue = usize::from(plan.queue) % queues;
        let owner = QPS.get(queue).map(|qp| qp.qpn);
        self.host
            .open(wr_id, owner, true, vec![0; len], plan.faulty % 16 == 1);
        let posted = match owner {
            Some(qpn) => self.nic.post_recv(self.now, qpn, request, &mut self.host),
            None if queue == QPS.len() => self.nic.post_srq_recv(SRQ, request),
            None => self.nic.post_srq_recv(XRC_SRQ, request),
        };
        if posted.is_err() {
            self.host.forget(wr_id);
        }
    }

    /// Lets timers fire and packets go, within bounds.
    fn settle(&mut self) {
        self.nic.handle_timeout(self.now, &mut self.host);
        if let Some(due) = self.nic.poll_timeout() {
            assert!(due > self.now, "a timer that fired is due again at once");
        }
        // A READ may ask for 2^31 bytes: take some, the rest stays for later.
        for _ in 0..4 {
            let progress = self.nic.poll_transmit(self.now, 16, &mut self.host);
            assert!(progress.sent <= 16);
            if !progress.more {
                break;
            }
        }
    }

    fn fail(&mut self, qpn: Qpn) {
        let attributes = QpAttributes {
            state: QpState::Error,
            ..QpAttributes::default()
        };
        let mask = AttributeMask::STATE;
        let result = self
            .nic
            .modify_qp(self.now, qpn, &attributes, mask, &mut self.host);
        if result.is_ok() {
            let open = self.host.open_of(qpn);
            assert_eq!(
                open, [0; 0],
                "requests of {qpn:?} that an error did not flush"
            );
        }
    }

    /// Everything fails, goes, and leaves nothing behind.
    fn end(&mut self) {
        for qp in &QPS {
            self.fail(qp.qpn);
            if self.nic.destroy_qp(qp.qpn).is_ok() {
                self.host.forget_all_of(qp.qpn);
            }
        }
        assert_eq!((self.nic.qp_count(), self.nic.bytes_in_flight()), (0, 0));
        assert_eq!(self.nic.poll_timeout(), None, "a timer of nobody");
        assert!(!self.nic.wants_transmit(), "something to send of nobody");
        for srq in [SRQ, XRC_SRQ] {
            self.nic.destroy_srq(srq).expect("nobody uses it");
        }
    }

    fn note_counters(&mut self) {
        for (index, (_, count)) in (0..).zip(self.nic.counters().fields()) {
            let bits = u64::BITS - count.leading_zeros();
            self.features.add(index << 4 | bits.min(7));
        }
        self.features.add(0x2000 | self.host.outcomes());
    }
}

/// Histories by hand, one for each service and direction, and every opcode.
pub fn seeds() -> Vec<Vec<u8>> {
    plan::seeds()
}

/// Room for an ICRC, which the device does not look at any more.
const ICRC: [u8; icrc::LEN] = [0; icrc::LEN];

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_proto::Counters;
    use std::collections::BTreeSet;

    /// Names of the counters that are not 0 after some seed.
    fn counted() -> BTreeSet<&'static str> {
        let names = Counters::default().fields().map(|(name, _)| name);
        let features = seeds()
            .into_iter()
            .flat_map(|seed| run(&seed).iter().collect::<Vec<_>>());
        let counts = features.filter(|feature| feature >> 12 == 0 && feature & 15 != 0);
        counts
            .map(|feature| names[(feature >> 4) as usize])
            .collect()
    }

    #[test]
    fn the_seeds_reach_nearly_all_that_is_counted() {
        let counted = counted();
        let names = Counters::default().fields().map(|(name, _)| name);
        let never: Vec<_> = names
            .iter()
            .filter(|name| !counted.contains(*name))
            .collect();
        // The search gets to these.
        let expected = [
            "rnr_nak_retry_err",
            "req_cqe_flush_error",
            "resp_cqe_error",
            "resp_remote_access_errors",
            "dropped_unknown_qp",
            "dropped_pkey",
            "datagram_too_long",
            "gsi_packets",
        ];
        let surprises: Vec<_> = never
            .iter()
            .filter(|name| !expected.contains(name))
            .collect();
        assert!(surprises.is_empty(), "not reached: {surprises:?}");
    }
}
