//! Two devices joined by a wire, and the vocabulary of the trace tests.

use super::Random;
use super::host::{BASE, KEY, PD, ToyHost};
use super::wire::{Fate, Flight, Wire};
use crate::{
    AttributeMask as M, Completion, CompletionStatus, CqId, Data, DatagramTarget, Instant, Mtu,
    Nic, NicConfig, Path, PostError, QpAttributes, QpCapabilities, QpInit, QpState, QpType,
    RecvRequest, Remote, SendFlags, SendOperation, SendRequest, Sge,
};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use feroce_wire::header::Bth;
use feroce_wire::{
    Address, AtomicOperands, Extensions, Headers, Msn, Opcode, Operation, Packet, Position, Psn,
    Qpn, Reth, Service, icrc, pad_len,
};
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

/// Everything a peer may do.
pub(crate) const ALL_ACCESS: u32 = 0x30e;

/// One end of the wire.
pub(crate) struct End {
    pub(crate) nic: Nic,
    pub(crate) host: ToyHost,
    pub(crate) address: IpAddr,
    pub(crate) qpn: Qpn,
    pub(crate) now: Instant,
}

impl End {
    fn new(config: NicConfig, last_octet: u8, memory: usize) -> Self {
        Self {
            nic: Nic::new(config),
            host: ToyHost::new(memory),
            address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, last_octet)),
            qpn: Qpn::new(0x100 + u32::from(last_octet)),
            now: Instant::ZERO,
        }
    }

    pub(crate) fn post(&mut self, request: impl Into<SendRequest>) {
        self.try_post(request).unwrap();
    }

    pub(crate) fn try_post(&mut self, request: impl Into<SendRequest>) -> Result<(), PostError> {
        let (now, qpn) = (self.now, self.qpn);
        self.nic.post_send(now, qpn, request.into(), &mut self.host)
    }

    /// Posts a receive of `length` bytes at `address`.
    pub(crate) fn post_recv(&mut self, wr_id: u64, address: u64, length: u32) {
        let (now, qpn) = (self.now, self.qpn);
        self.nic
            .post_recv(now, qpn, recv(wr_id, address, length), &mut self.host)
            .unwrap();
    }

    pub(crate) fn modify(
        &mut self,
        attributes: &QpAttributes,
        mask: M,
    ) -> Result<(), crate::ModifyError> {
        let (now, qpn) = (self.now, self.qpn);
        self.nic
            .modify_qp(now, qpn, attributes, mask, &mut self.host)
    }

    pub(crate) fn move_to(&mut self, state: QpState) {
        let attributes = QpAttributes {
            state,
            ..QpAttributes::default()
        };
        self.modify(&attributes, M::STATE).unwrap();
    }

    pub(crate) fn state(&self) -> QpState {
        self.nic.query_qp(self.qpn).unwrap().0.state
    }

    /// Completions since the last call as (request, status).
    pub(crate) fn completions(&mut self) -> Vec<(u64, CompletionStatus)> {
        let completions = self.host.take_completions();
        completions.iter().map(|c| (c.wr_id, c.status)).collect()
    }

    /// The only completion since the last call.
    #[track_caller]
    pub(crate) fn completion(&mut self) -> Completion {
        let completions = self.host.take_completions();
        assert_eq!(completions.len(), 1, "{completions:?}");
        completions[0]
    }

    pub(crate) fn fill(&mut self, address: u64, length: usize, seed: u64) {
        let mut random = Random::new(seed);
        for byte in self.host.bytes_mut(address, length) {
            *byte = random.next() as u8;
        }
    }
}

/// How a [`Pair`] is set up.
pub(crate) struct Setup {
    pub(crate) qp_type: QpType,
    pub(crate) config: NicConfig,
    pub(crate) mtu: Mtu,
    pub(crate) psn: (u32, u32),
    pub(crate) rd_atomic: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) access: u32,
    pub(crate) memory: usize,
    pub(crate) depth: u32,
    pub(crate) max_inline_data: u32,
}

impl Setup {
    pub(crate) fn new(qp_type: QpType) -> Self {
        Self {
            qp_type,
            config: NicConfig::default(),
            mtu: Mtu::Mtu1024,
            psn: (0, 100),
            rd_atomic: 4,
            timeout: 8, // 1.05 ms
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12, // 640 µs
            access: ALL_ACCESS,
            memory: 1 << 20,
            depth: 256,
            max_inline_data: 256,
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn attributes(&self, from: &End, to: &End, psn: (u32, u32)) -> QpAttributes {
        QpAttributes {
            access_flags: self.access,
            qkey: 0x1111,
            path: Some(path(from.address, to.address)),
            path_mtu: self.mtu,
            timeout: self.timeout,
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
            sq_psn: Psn::new(psn.0),
            rq_psn: Psn::new(psn.1),
            max_rd_atomic: self.rd_atomic,
            max_dest_rd_atomic: self.rd_atomic,
            min_rnr_timer: self.min_rnr_timer,
            dest_qpn: to.qpn,
            ..QpAttributes::default()
        }
    }

    /// Two devices without queue pairs.
    pub(crate) fn bare(&self) -> Pair {
        Pair {
            a: End::new(self.config, 1, self.memory),
            b: End::new(self.config, 2, self.memory),
            now: Instant::ZERO,
            wire: Wire::default(),
            budget: 64,
        }
    }

    /// Two devices with a queue pair each, connected and ready to send.
    pub(crate) fn connect(&self) -> Pair {
        let mut pair = self.bare();
        let init = self.init();
        pair.a.nic.create_qp(pair.a.qpn, init).unwrap();
        pair.b.nic.create_qp(pair.b.qpn, init).unwrap();
        let attributes_a = self.attributes(&pair.a, &pair.b, self.psn);
        let attributes_b = self.attributes(&pair.b, &pair.a, (self.psn.1, self.psn.0));
        bring_up(
            &mut pair.a,
            self.qp_type,
            attributes_a,
            QpState::ReadyToSend,
        );
        bring_up(
            &mut pair.b,
            self.qp_type,
            attributes_b,
            QpState::ReadyToSend,
        );
        pair
    }

    pub(crate) fn init(&self) -> QpInit {
        QpInit {
            qp_type: self.qp_type,
            pd: PD,
            send_cq: CqId(1),
            recv_cq: CqId(2),
            srq: None,
            xrcd: None,
            capabilities: QpCapabilities {
                max_send_wr: self.depth,
                max_recv_wr: self.depth,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: self.max_inline_data,
            },
            signal_all: false,
        }
    }
}

pub(crate) const fn path(source: IpAddr, destination: IpAddr) -> Path {
    Path {
        source,
        destination,
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        source_gid_index: 0,
    }
}

/// The masks that programs use for each step up (CLIENTS.md 1.4).
pub(crate) fn bring_up(end: &mut End, qp_type: QpType, attributes: QpAttributes, to: QpState) {
    let (init, receive, send) = match qp_type {
        QpType::Rc => (0x39, 0x12_9181, 0x1_2e01),
        QpType::Uc => (0x39, 0x10_1181, 0x1_0001),
        QpType::Ud => (0x71, 0x1, 0x1_0001),
        QpType::XrcSend => (0x39, 0x10_1181, 0x1_2e01),
        QpType::XrcRecv => (0x39, 0x12_9181, 0x1_0201),
    };
    for (state, mask) in [
        (QpState::Init, init),
        (QpState::ReadyToReceive, receive),
        (QpState::ReadyToSend, send),
    ] {
        end.modify(
            &QpAttributes {
                state,
                ..attributes
            },
            M(mask),
        )
        .unwrap();
        if state == to {
            break;
        }
    }
}

/// Two ends and the wire between them.
pub(crate) struct Pair {
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) now: Instant,
    pub(crate) wire: Wire,
    /// Packets per call of `poll_transmit`.
    pub(crate) budget: usize,
}

impl Pair {
    /// Decides the fate of each packet from its words in the trace (`a write only 0 +a`).
    pub(crate) fn script(&mut self, script: impl FnMut(&str, &Packet<'_>) -> Fate + 'static) {
        self.wire.script = Some(Box::new(script));
    }

    /// Drops the first packet whose words in the trace are `words`.
    pub(crate) fn drop_once(&mut self, words: &'static str) {
        let mut armed = true;
        self.script(move |seen, _| {
            if armed && seen == words {
                armed = false;
                Fate::Drop
            } else {
                Fate::Pass
            }
        });
    }

    /// What left since the last call.
    pub(crate) fn trace(&mut self) -> Vec<String> {
        core::mem::take(&mut self.wire.trace)
    }

    /// Everything both ends can send now goes on the wire.
    pub(crate) fn transmit(&mut self) {
        loop {
            let mut sent = 0;
            for to_b in [true, false] {
                let end = if to_b { &mut self.a } else { &mut self.b };
                sent += end
                    .nic
                    .poll_transmit(self.now, self.budget, &mut end.host)
                    .sent;
                while let Some(frame) = end.host.sent.pop_front() {
                    let address = Address {
                        source: frame.to.source,
                        destination: frame.to.destination,
                        source_port: frame.to.entropy | 0xc000,
                        traffic_class: frame.to.traffic_class,
                        hop_limit: frame.to.hop_limit,
                    };
                    let flight = Flight {
                        to_b,
                        address,
                        bytes: frame.bytes,
                    };
                    self.wire.launch(self.now, flight);
                }
            }
            if sent == 0 {
                return;
            }
        }
    }

    /// When something happens next.
    fn next_event(&self) -> Option<Instant> {
        let arrival = self.wire.next_arrival();
        let timers = [self.a.nic.poll_timeout(), self.b.nic.poll_timeout()];
        arrival
            .into_iter()
            .chain(timers.into_iter().flatten())
            .min()
    }

    /// Sends, then moves to the next event and lets it happen. False when nothing is left.
    pub(crate) fn step(&mut self) -> bool {
        self.transmit();
        let Some(next) = self.next_event() else {
            return false;
        };
        self.now = self.now.max(next);
        self.a.now = self.now;
        self.b.now = self.now;
        while let Some(flight) = self.wire.arrive(self.now) {
            let end = if flight.to_b {
                &mut self.b
            } else {
                &mut self.a
            };
            let packet = Packet::parse(&flight.bytes).unwrap();
            end.nic
                .handle_packet(self.now, &flight.address, &packet, &mut end.host);
        }
        for end in [&mut self.a, &mut self.b] {
            end.nic.handle_timeout(self.now, &mut end.host);
        }
        true
    }

    /// Runs until nothing is on the wire and no timer is armed.
    #[track_caller]
    pub(crate) fn run_until_idle(&mut self) {
        for _ in 0..2_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("still busy after two million events");
    }

    /// Lets `duration` pass.
    pub(crate) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            self.transmit();
            if self.next_event().is_none_or(|at| at > end) {
                break;
            }
            self.step();
        }
        self.now = end;
        self.a.now = end;
        self.b.now = end;
    }

    /// Hands `b` bytes as if they came from `a`.
    pub(crate) fn inject_to_b(&mut self, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        let address = Address {
            source: self.a.address,
            destination: self.b.address,
            source_port: 0xc000,
            traffic_class: 0,
            hop_limit: 64,
        };
        self.b
            .nic
            .handle_packet(self.now, &address, &packet, &mut self.b.host);
    }

    /// Every byte that was charged has been given back.
    #[track_caller]
    pub(crate) fn assert_nothing_in_flight(&self) {
        assert_eq!(self.a.nic.bytes_in_flight(), 0, "a");
        assert_eq!(self.b.nic.bytes_in_flight(), 0, "b");
    }
}

/// A receive request of one piece.
pub(crate) fn recv(wr_id: u64, address: u64, length: u32) -> RecvRequest {
    RecvRequest {
        wr_id,
        sges: [sge(address, length)].into_iter().collect(),
    }
}

pub(crate) const fn sge(address: u64, length: u32) -> Sge {
    Sge {
        address,
        length,
        lkey: KEY,
    }
}

pub(crate) const fn remote(address: u64) -> Remote {
    Remote { address, rkey: KEY }
}

/// A send request in the making: signaled, from the start of memory.
#[derive(Clone)]
pub(crate) struct Wr(SendRequest);

impl From<Wr> for SendRequest {
    fn from(wr: Wr) -> Self {
        wr.0
    }
}

impl Wr {
    pub(crate) fn new(wr_id: u64, operation: SendOperation) -> Self {
        Self(SendRequest {
            wr_id,
            operation,
            data: Data::empty(),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            target: None,
            xrc_srqn: 0,
        })
    }

    pub(crate) fn len(self, length: u32) -> Self {
        self.at(BASE, length)
    }

    pub(crate) fn at(mut self, address: u64, length: u32) -> Self {
        self.0.data = Data::Gather([sge(address, length)].into_iter().collect());
        self
    }

    pub(crate) fn pieces(mut self, sges: &[Sge]) -> Self {
        self.0.data = Data::Gather(sges.iter().copied().collect());
        self
    }

    pub(crate) fn inline(mut self, bytes: &[u8]) -> Self {
        self.0.data = Data::Inline(bytes.iter().copied().collect());
        self
    }

    pub(crate) const fn unsignaled(mut self) -> Self {
        self.0.flags.signaled = false;
        self
    }

    pub(crate) const fn fenced(mut self) -> Self {
        self.0.flags.fence = true;
        self
    }

    pub(crate) const fn solicited(mut self) -> Self {
        self.0.flags.solicited = true;
        self
    }

    pub(crate) const fn srqn(mut self, srqn: u32) -> Self {
        self.0.xrc_srqn = srqn;
        self
    }

    pub(crate) const fn to(mut self, target: DatagramTarget) -> Self {
        self.0.target = Some(target);
        self
    }
}

pub(crate) fn send(wr_id: u64) -> Wr {
    Wr::new(wr_id, SendOperation::Send)
}

pub(crate) fn write(wr_id: u64) -> Wr {
    write_to(wr_id, BASE)
}

pub(crate) fn write_to(wr_id: u64, address: u64) -> Wr {
    Wr::new(wr_id, SendOperation::Write(remote(address)))
}

pub(crate) fn read(wr_id: u64) -> Wr {
    read_from(wr_id, BASE)
}

pub(crate) fn read_from(wr_id: u64, address: u64) -> Wr {
    Wr::new(wr_id, SendOperation::Read(remote(address)))
}

pub(crate) fn fetch_add(wr_id: u64, address: u64, add: u64) -> Wr {
    let remote = remote(address);
    Wr::new(wr_id, SendOperation::FetchAdd { remote, add }).len(8)
}

/// (request, success).
pub(crate) const fn ok(wr_id: u64) -> (u64, CompletionStatus) {
    (wr_id, CompletionStatus::Success)
}

/// (request, flushed).
pub(crate) const fn flushed(wr_id: u64) -> (u64, CompletionStatus) {
    (wr_id, CompletionStatus::WorkRequestFlushed)
}

/// The address that packets from `from` to `to` arrive with.
pub(crate) const fn address_of(from: &End, to: &End) -> Address {
    Address {
        source: from.address,
        destination: to.address,
        source_port: 0xc000,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// A packet as bytes, with an ICRC that nobody judges.
pub(crate) fn frame(bth: Bth, extensions: &Extensions, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Headers::new(bth, extensions, payload.len())
        .as_bytes()
        .to_vec();
    bytes.extend_from_slice(payload);
    let pad = usize::from(pad_len(payload.len()));
    bytes.resize(bytes.len() + pad + icrc::LEN, 0);
    bytes
}

/// A request whose opcode is of the RC family.
pub(crate) fn request_frame(
    dest: Qpn,
    psn: u32,
    (operation, position): (Operation, Position),
    extensions: &Extensions,
    payload: &[u8],
) -> Vec<u8> {
    let opcode = Opcode::new(
        Service::Rc,
        operation,
        position,
        extensions.immediate.is_some(),
        extensions.invalidate.is_some(),
    );
    let mut bth = Bth::new(opcode.unwrap(), dest, Psn::new(psn));
    bth.set_ack_request(position.ends());
    frame(bth, extensions, payload)
}

/// A fetch-and-add of 1.
pub(crate) fn atomic_frame(dest: Qpn, psn: u32, address: u64) -> Vec<u8> {
    let extensions = Extensions {
        atomic: Some(AtomicOperands {
            virtual_address: address,
            rkey: KEY,
            swap_or_add: 1,
            compare: 0,
        }),
        ..Extensions::default()
    };
    request_frame(
        dest,
        psn,
        (Operation::FetchAdd, Position::Only),
        &extensions,
        &[],
    )
}

/// A RETH for the toy key.
pub(crate) fn reth(virtual_address: u64, length: u32) -> Extensions {
    Extensions {
        reth: Some(Reth {
            virtual_address,
            rkey: KEY,
            length,
        }),
        ..Extensions::default()
    }
}

/// An acknowledge with any syndrome byte.
pub(crate) fn ack_frame(dest: Qpn, psn: u32, syndrome: u8) -> Vec<u8> {
    let extensions = Extensions {
        aeth: Some((syndrome, Msn::new(0))),
        ..Extensions::default()
    };
    request_frame(
        dest,
        psn,
        (Operation::Acknowledge, Position::Only),
        &extensions,
        &[],
    )
}
