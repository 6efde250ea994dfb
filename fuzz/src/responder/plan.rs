//! Packets and requests out of a few bytes, more often nearly right than not.

use super::host::{BASE, HIGH_BASE, HIGH_KEY, KEY, READ_KEY, sges};
use super::pairs::{FOREIGN, HERE, PEER, PairOf, QKEY, path};
use super::{ICRC, XRC_SRQ};
use crate::choice::choice;
use arbitrary::Arbitrary;
use feroce_proto::{
    BindRequest, Data, DatagramTarget, Mtu, QpAttributes, QpType, Remote, SendFlags, SendOperation,
    SendRequest,
};
use feroce_wire::header::Bth;
use feroce_wire::{
    Address, AtomicOperands, Extensions, Headers, Msn, Opcode, Psn, Qpn, Reth, Service,
};
use std::net::IpAddr;

/// A packet for one of the queue pairs.
#[derive(Arbitrary, Debug)]
pub(super) struct PacketPlan {
    pub(super) qp: u8,
    opcode: u8,
    psn: i8,
    /// Solicited, ACK request, congestion bits, another service, a stranger.
    flags: u8,
    place: Place,
    length: Length,
    payload: Length,
    /// Syndrome, operands, immediate.
    value: u8,
    msn: u8,
}

/// A range that a peer names.
#[derive(Debug)]
enum Place {
    Inside(u8),
    Edge(u8),
    ReadOnly(u8),
    High(u8),
    Any(u64, u32),
}

choice! { Place:
    |u| Ok(Place::Inside(u.arbitrary()?)),
    |u| Ok(Place::Edge(u.arbitrary()?)),
    |u| Ok(Place::ReadOnly(u.arbitrary()?)),
    |u| Ok(Place::High(u.arbitrary()?)),
    |u| Ok(Place::Any(u.arbitrary()?, u.arbitrary()?)),
}

impl Place {
    fn remote(&self) -> Remote {
        let (address, rkey) = match *self {
            Self::Inside(words) => (BASE + u64::from(words) * 8, KEY),
            Self::Edge(bytes) => (BASE + 4096 - u64::from(bytes), KEY),
            Self::ReadOnly(words) => (BASE + u64::from(words) * 8, READ_KEY),
            Self::High(bytes) => (HIGH_BASE + 4096 - u64::from(bytes), HIGH_KEY),
            Self::Any(address, rkey) => (address, rkey),
        };
        Remote { address, rkey }
    }
}

/// A number of bytes.
#[derive(Debug)]
enum Length {
    None,
    Few(u8),
    Packets(u8),
    NearPackets(u8, i8),
    Any(u32),
}

choice! { Length:
    |_| Ok(Length::None),
    |u| Ok(Length::Few(u.arbitrary()?)),
    |u| Ok(Length::Packets(u.arbitrary()?)),
    |u| Ok(Length::NearPackets(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Length::Any(u.arbitrary()?)),
}

impl Length {
    fn bytes(&self, mtu: u32) -> u32 {
        match *self {
            Self::None => 0,
            Self::Few(bytes) => bytes.into(),
            Self::Packets(packets) => u32::from(packets % 4 + 1) * mtu,
            Self::NearPackets(packets, more) => {
                (u32::from(packets % 4 + 1) * mtu).saturating_add_signed(more.into())
            }
            Self::Any(bytes) => bytes,
        }
    }

    /// As a payload: no longer than a datagram.
    fn payload(&self, mtu: u32) -> usize {
        (self.bytes(mtu) % 8192) as usize
    }
}

impl PacketPlan {
    const OTHER_SERVICE: u8 = 0x40;
    const STRANGER: u8 = 0x80;

    pub(super) fn from(&self) -> Address {
        let source = if self.flags & Self::STRANGER != 0 {
            FOREIGN
        } else {
            PEER
        };
        address(source, self.flags & 4 != 0)
    }

    /// BTH to ICRC.
    pub(super) fn bytes(&self, qp: &PairOf, attributes: &QpAttributes, mtu: Mtu) -> Vec<u8> {
        let service = match qp.service() {
            _ if self.flags & Self::OTHER_SERVICE != 0 => self.opcode & 0xe0,
            service => (service as u8) << 5,
        };
        let opcode = match Opcode(service | self.opcode & 0x1f) {
            known if known.info().is_some() => known,
            _ if qp.service() == Service::Ud => Opcode(0x64),
            _ => Opcode::CNP,
        };
        let info = opcode.info().expect("known");
        let near = if info.is_request() {
            attributes.rq_psn
        } else {
            attributes.sq_psn
        };
        let psn = Psn::new(near.value().wrapping_add_signed(self.psn.into()));
        let mut bth = Bth::new(opcode, qp.qpn, psn);
        bth.set_solicited(self.flags & 1 != 0);
        bth.set_ack_request(self.flags & 2 != 0);
        bth.set_becn(self.flags & 8 != 0);
        let len = if info.payload {
            self.payload.payload(mtu.bytes())
        } else {
            0
        };
        let headers = Headers::new(bth, &self.extensions(mtu), len);
        let mut bytes = headers.as_bytes().to_vec();
        bytes.resize(bytes.len() + len.next_multiple_of(4), self.value);
        bytes.extend(ICRC);
        bytes
    }

    fn extensions(&self, mtu: Mtu) -> Extensions {
        let Remote { address, rkey } = self.place.remote();
        let value = u64::from(self.value);
        Extensions {
            datagram: Some((QKEY ^ u32::from(self.value >> 7), Qpn::new(119))),
            xrc_srqn: Some(XRC_SRQ.0 ^ u32::from(self.value >> 7)),
            flush: Some(self.value.into()),
            reth: Some(Reth {
                virtual_address: address,
                rkey,
                length: self.length.bytes(mtu.bytes()),
            }),
            atomic: Some(AtomicOperands {
                virtual_address: address,
                rkey,
                swap_or_add: value,
                compare: value << 8,
            }),
            aeth: Some((self.value, Msn::new(self.msn.into()))),
            atomic_ack: Some(value),
            immediate: Some(self.value.into()),
            invalidate: Some(rkey),
        }
    }
}

/// What the IP layer says of a packet from `source`.
pub(super) const fn address(source: IpAddr, congestion: bool) -> Address {
    Address {
        source,
        destination: HERE,
        source_port: 50_000,
        traffic_class: if congestion { 3 } else { 2 },
        hop_limit: 64,
    }
}

/// A send request for one of the queue pairs.
#[derive(Arbitrary, Debug)]
pub(super) struct SendPlan {
    pub(super) qp: u8,
    operation: u8,
    place: Place,
    len: Length,
    /// Inline, fence, solicited, a fault of the local key.
    flags: u8,
    pieces: u8,
}

/// Longest send request, in bytes: some packets.
const SEND_BYTES_MAX: u32 = 3000;

impl SendPlan {
    pub(super) const fn is_faulty(&self) -> bool {
        self.flags & 0x38 == 0x38
    }

    /// The request and the bytes of its buffer.
    pub(super) fn request(&self, wr_id: u64, qp: &PairOf) -> (SendRequest, Vec<u8>) {
        let len = self.len.bytes(256) % SEND_BYTES_MAX;
        let (operation, len) = self.operation(len);
        let bytes = vec![0xa5; len as usize];
        let inline = self.flags & 1 != 0 && len <= 64;
        let data = if inline {
            Data::Inline(bytes.as_slice().into())
        } else {
            Data::Gather(sges(wr_id, len as usize, self.pieces))
        };
        let request = SendRequest {
            wr_id,
            operation,
            data,
            flags: SendFlags {
                signaled: true,
                solicited: self.flags & 2 != 0,
                fence: self.flags & 4 != 0,
            },
            target: (qp.qp_type == QpType::Ud).then(|| DatagramTarget {
                path: path(PEER),
                qpn: Qpn::new(119),
                qkey: QKEY,
            }),
            xrc_srqn: XRC_SRQ.0,
        };
        (request, bytes)
    }

    fn operation(&self, len: u32) -> (SendOperation, u32) {
        type S = SendOperation;
        let remote = self.place.remote();
        let Remote { address, rkey } = remote;
        match self.operation % 13 {
            0 => (S::Send, len),
            1 => (S::SendImmediate(7), len),
            2 => (S::SendInvalidate(rkey), len),
            3 => (S::Write(remote), len),
            4 => (S::WriteImmediate(remote, 7), len),
            5 | 6 => (S::Read(remote), len),
            7 => {
                let (compare, swap) = (1, 2);
                (
                    S::CompareSwap {
                        remote,
                        compare,
                        swap,
                    },
                    8,
                )
            }
            8 => (S::FetchAdd { remote, add: 1 }, 8),
            9 => (S::AtomicWrite(remote), 8),
            10 => {
                let (placement, level) = (self.pieces & 3, self.pieces >> 2 & 3);
                (
                    S::Flush {
                        remote,
                        length: len,
                        placement,
                        level,
                    },
                    0,
                )
            }
            11 => (S::LocalInvalidate(rkey), 0),
            _ => {
                let request = BindRequest {
                    window: KEY,
                    region: rkey,
                    address,
                    length: len.into(),
                    access: 2,
                    type_2: self.pieces & 1 != 0,
                };
                (S::Bind(request), 0)
            }
        }
    }
}

/// Histories in the form that `run` reads: knobs, then operations.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for qp in 0..7 {
        for opcode in 0..0x1e {
            seeds.push(script(&[
                receives(qp),
                whole(qp, opcode, 0),
                whole(qp, opcode, 0xff),
            ]));
        }
        for (first, last) in [(0x00, 0x02), (0x00, 0x03), (0x06, 0x08), (0x06, 0x09)] {
            let message = [part(qp, first), part(qp, last)].concat();
            seeds.push(script(&[receives(qp), message.clone()]));
            // Nothing to receive into, and a packet ahead of what is expected.
            seeds.push(script(&[message, whole(qp, last, 5)]));
        }
        for operation in 0..13 {
            for answer in 0x0d..=0x12 {
                let answers = [whole(qp, answer, 0xff), whole(qp, answer, 0xff)].concat();
                seeds.push(script(&[send(qp, operation), answers, TIME.to_vec()]));
            }
            // An RNR NAK, each NAK, then silence.
            for syndrome in [0x21, 0x60, 0x61, 0x62, 0x63] {
                let nak = packet(qp, 0x11, 0xff, 0, [1, 0], [1, 0], [syndrome, 0]);
                let history = [send(qp, operation), nak, TIME.repeat(6)];
                seeds.push(script(&history));
            }
        }
    }
    let odd = [PacketPlan::STRANGER, PacketPlan::OTHER_SERVICE | 4, 4, 8];
    seeds.extend(odd.map(|flags| {
        let packets = (0..7).map(|qp| packet(qp, 0x04, 0, flags, [1, 9], [1, 9], [0x80, 0]));
        script(&[
            receives(0),
            receives(1),
            receives(2),
            packets.collect::<Vec<_>>().concat(),
        ])
    }));
    seeds
}

const TIME: [u8; 2] = [5, 33];

fn script(operations: &[Vec<u8>]) -> Vec<u8> {
    [vec![2], operations.concat()].concat()
}

/// Two receives of 900 bytes on each queue that could be meant.
fn receives(qp: u8) -> Vec<u8> {
    [qp, qp, 7, 7, 8, 8]
        .map(|queue| [3, queue, 0x84, 0x03, 1, 0])
        .concat()
}

/// A packet with 9 bytes, which is the whole message.
fn whole(qp: u8, opcode: u8, psn: u8) -> Vec<u8> {
    packet(qp, opcode, psn, 2, [1, 9], [1, 9], [0x1f, 1])
}

/// A packet full of payload, of a message two packets long.
fn part(qp: u8, opcode: u8) -> Vec<u8> {
    packet(qp, opcode, 0, 2, [2, 1], [2, 0], [0x1f, 1])
}

fn packet(
    qp: u8,
    opcode: u8,
    psn: u8,
    flags: u8,
    length: [u8; 2],
    payload: [u8; 2],
    value_and_msn: [u8; 2],
) -> Vec<u8> {
    let place = [0, 0];
    let start = [0, qp, opcode, psn, flags];
    [&start[..], &place, &length, &payload, &value_and_msn].concat()
}

/// A request for 9 bytes.
fn send(qp: u8, operation: u8) -> Vec<u8> {
    vec![4, qp, operation, 0, 0, 1, 9, 0, 0]
}
