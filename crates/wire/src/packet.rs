//! A whole RoCE packet as validated meaning, and back to bytes.
//!
//! [`Packet::parse`] checks what holds for a packet by itself: a known opcode, version 0, enough
//! bytes for the headers, the pad and the ICRC field. It judges neither the ICRC
//! ([`crate::icrc`]) nor anything that depends on a queue pair.

use crate::header::{
    AethView, AtomicAckEth, AtomicEth, Bth, Deth, FlushEth, RethView, WordEth, XrcEth,
};
use crate::opcode::Info;
use crate::{Msn, Opcode, Operation, Psn, Qpn, Service, icrc};
use core::fmt;
use core::net::IpAddr;
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest run of headers before a payload, in bytes: BTH, XRCETH, AtomicETH and room.
pub const HEADERS_MAX: usize = 48;

/// What the IP layer says of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Where it came from.
    pub source: IpAddr,
    /// The local or group address it was sent to.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// IPv4 TOS or IPv6 traffic class: DSCP and, in the low two bits, ECN.
    pub traffic_class: u8,
    /// IPv4 TTL or IPv6 hop limit.
    pub hop_limit: u8,
}

impl Address {
    /// Whether a switch marked congestion (ECN field CE, RFC 3168).
    pub const fn congestion_experienced(&self) -> bool {
        self.traffic_class & 3 == 3
    }
}

/// Where a WRITE or READ goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Reth {
    /// Virtual address.
    pub virtual_address: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole operation.
    pub length: u32,
}

/// An atomic request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AtomicOperands {
    /// Virtual address.
    pub virtual_address: u64,
    /// Remote key.
    pub rkey: u32,
    /// The value to swap in or to add.
    pub swap_or_add: u64,
    /// The value to compare with.
    pub compare: u64,
}

/// The headers behind a BTH. Which are `Some` follows from the opcode alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extensions {
    /// Queue key and source queue pair (UD).
    pub datagram: Option<(u32, Qpn)>,
    /// The shared receive queue (XRC requests).
    pub xrc_srqn: Option<u32>,
    /// FLUSH placement type and selectivity, as the FETH word.
    pub flush: Option<u32>,
    /// RDMA addresses.
    pub reth: Option<Reth>,
    /// Atomic operands.
    pub atomic: Option<AtomicOperands>,
    /// Syndrome byte and MSN.
    pub aeth: Option<(u8, Msn)>,
    /// The value before an atomic.
    pub atomic_ack: Option<u64>,
    /// Immediate data as a number; the wire carries it in network order.
    pub immediate: Option<u32>,
    /// The key to invalidate.
    pub invalidate: Option<u32>,
}

/// A RoCE packet whose form is right.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The opcode; always one of the table.
    pub opcode: Opcode,
    /// Its row of the table.
    pub info: &'static Info,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Packet sequence number.
    pub psn: Psn,
    /// Partition key.
    pub pkey: u16,
    /// Solicited event.
    pub solicited: bool,
    /// Acknowledge request.
    pub ack_request: bool,
    /// Forward congestion notification.
    pub fecn: bool,
    /// Backward congestion notification.
    pub becn: bool,
    /// The headers behind the BTH.
    pub extensions: Extensions,
    /// Payload without pad.
    pub payload: &'a [u8],
}

/// Why bytes are no RoCE packet. Always the sender's fault, or the network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Shorter than its headers, pad and ICRC.
    #[error("packet of {len} bytes is too short: its headers, pad and ICRC need {needed}")]
    TooShort {
        /// Bytes there are.
        len: usize,
        /// Bytes there should be.
        needed: usize,
    },
    /// No service defines the opcode.
    #[error("unknown opcode {0:#04x}")]
    UnknownOpcode(u8),
    /// A transport version other than 0.
    #[error("transport version {0}, only 0 is defined")]
    Version(u8),
    /// Payload on a packet that has none.
    #[error("{bytes} bytes of payload on a packet that carries none")]
    UnexpectedPayload {
        /// Bytes too many.
        bytes: usize,
    },
}

impl<'a> Packet<'a> {
    /// Reads `roce`: BTH to ICRC, the ICRC not judged.
    ///
    /// # Errors
    /// [`ParseError`], when the form is wrong.
    pub fn parse(roce: &'a [u8]) -> Result<Self, ParseError> {
        let len = roce.len();
        let too_short = |needed| ParseError::TooShort { len, needed };
        let body = len.checked_sub(icrc::LEN).map(|end| &roce[..end]);
        let (bth, rest) = body
            .and_then(|body| Bth::read_from_prefix(body).ok())
            .ok_or_else(|| too_short(Bth::LEN + icrc::LEN))?;
        // W1: the opcode is judged before any length arithmetic.
        let opcode = bth.opcode();
        let info = opcode.info().ok_or(ParseError::UnknownOpcode(opcode.0))?;
        if bth.version() != 0 {
            return Err(ParseError::Version(bth.version()));
        }
        let headers_len = Bth::LEN + Extensions::len(info);
        let needed = headers_len + bth.pad_count() + icrc::LEN;
        if len < needed {
            return Err(too_short(needed));
        }
        let mut reader = Reader(rest);
        let extensions = reader.extensions(info).ok_or_else(|| too_short(needed))?;
        let payload = &reader.0[..reader.0.len() - bth.pad_count()];
        if !info.payload && !reader.0.is_empty() {
            return Err(ParseError::UnexpectedPayload {
                bytes: reader.0.len(),
            });
        }
        Ok(Self {
            opcode,
            info,
            dest_qp: bth.dest_qp(),
            psn: bth.psn(),
            pkey: bth.pkey(),
            solicited: bth.solicited(),
            ack_request: bth.ack_request(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            extensions,
            payload,
        })
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.opcode, self.dest_qp, self.psn)?;
        for (on, name) in [
            (self.solicited, "SE"),
            (self.ack_request, "A"),
            (self.fecn, "FECN"),
            (self.becn, "BECN"),
        ] {
            if on {
                write!(f, " {name}")?;
            }
        }
        let e = &self.extensions;
        if let Some((qkey, source)) = e.datagram {
            write!(f, " qkey {qkey:#010x} from {source:?}")?;
        }
        if let Some(srqn) = e.xrc_srqn {
            write!(f, " srq {srqn:#x}")?;
        }
        if let Some(word) = e.flush {
            write!(f, " flush type {:#x} level {}", word & 0xf, word >> 4 & 3)?;
        }
        if let Some(reth) = e.reth {
            let Reth {
                virtual_address,
                rkey,
                length,
            } = reth;
            write!(f, " va {virtual_address:#x} rkey {rkey:#x} length {length}")?;
        }
        if let Some(a) = e.atomic {
            write!(f, " va {:#x} rkey {:#x}", a.virtual_address, a.rkey)?;
            write!(f, " operand {:#x} compare {:#x}", a.swap_or_add, a.compare)?;
        }
        if let Some((syndrome, msn)) = e.aeth {
            match crate::aeth::Syndrome::from_byte(syndrome) {
                Some(meaning) => write!(f, " {meaning:?}")?,
                None => write!(f, " reserved syndrome {syndrome:#04x}")?,
            }
            write!(f, " msn {}", msn.value())?;
        }
        if let Some(original) = e.atomic_ack {
            write!(f, " original {original:#x}")?;
        }
        if let Some(immediate) = e.immediate {
            write!(f, " imm {immediate:#010x}")?;
        }
        if let Some(key) = e.invalidate {
            write!(f, " invalidates {key:#x}")?;
        }
        if !self.payload.is_empty() {
            write!(f, " payload {}", self.payload.len())?;
        }
        Ok(())
    }
}

impl Extensions {
    /// Length on the wire of the headers that follow the BTH of this opcode, in bytes.
    pub const fn len(info: &Info) -> usize {
        let mut len = 0;
        if matches!(info.service, Service::Ud) {
            len += Deth::LEN;
        }
        if has_xrc(info) {
            len += XrcEth::LEN;
        }
        if matches!(info.operation, Operation::Flush) {
            len += FlushEth::LEN;
        }
        if info.reth {
            len += RethView::LEN;
        }
        if is_atomic(info) {
            len += AtomicEth::LEN;
        }
        if info.aeth {
            len += AethView::LEN;
        }
        if matches!(info.operation, Operation::AtomicAcknowledge) {
            len += AtomicAckEth::LEN;
        }
        if info.immediate || info.invalidate {
            len += WordEth::LEN;
        }
        len
    }
}

const fn has_xrc(info: &Info) -> bool {
    matches!(info.service, Service::Xrc) && info.is_request()
}

const fn is_atomic(info: &Info) -> bool {
    matches!(info.operation, Operation::CompareSwap | Operation::FetchAdd)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline]
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(&mut self) -> Option<T> {
        let (view, rest) = T::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(view)
    }

    #[inline]
    fn extensions(&mut self, info: &Info) -> Option<Extensions> {
        let mut e = Extensions::default();
        if matches!(info.service, Service::Ud) {
            let deth: Deth = self.take()?;
            e.datagram = Some((deth.qkey.get(), deth.source_qp()));
        }
        if has_xrc(info) {
            e.xrc_srqn = Some(self.take::<XrcEth>()?.srqn.get() & 0x00ff_ffff);
        }
        if matches!(info.operation, Operation::Flush) {
            e.flush = Some(self.take::<FlushEth>()?.word.get());
        }
        if info.reth {
            let reth: RethView = self.take()?;
            e.reth = Some(Reth {
                virtual_address: reth.virtual_address.get(),
                rkey: reth.rkey.get(),
                length: reth.length.get(),
            });
        }
        if is_atomic(info) {
            let atomic: AtomicEth = self.take()?;
            e.atomic = Some(AtomicOperands {
                virtual_address: atomic.virtual_address.get(),
                rkey: atomic.rkey.get(),
                swap_or_add: atomic.swap_or_add.get(),
                compare: atomic.compare.get(),
            });
        }
        if info.aeth {
            let aeth: AethView = self.take()?;
            e.aeth = Some((aeth.syndrome(), aeth.msn()));
        }
        if matches!(info.operation, Operation::AtomicAcknowledge) {
            e.atomic_ack = Some(self.take::<AtomicAckEth>()?.original.get());
        }
        if info.immediate {
            e.immediate = Some(self.take::<WordEth>()?.word.get());
        } else if info.invalidate {
            e.invalidate = Some(self.take::<WordEth>()?.word.get());
        }
        Some(e)
    }
}

/// The header bytes of one packet, ready to go in front of its payload.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; HEADERS_MAX],
    len: usize,
}

impl Headers {
    /// Puts the headers of a packet with `payload_len` bytes of payload together; sets the pad
    /// count. Which extensions are written follows from the opcode; one that the opcode
    /// needs and `extensions` lacks is written as zeros.
    ///
    /// # Panics
    /// If the opcode of `bth` is not in the table: it was made by [`Opcode::new`].
    pub fn new(mut bth: Bth, extensions: &Extensions, payload_len: usize) -> Self {
        let info = bth.opcode().info().expect("an opcode of the table");
        bth.set_pad_count(pad_len(payload_len));
        let mut headers = Self {
            bytes: [0; HEADERS_MAX],
            len: 0,
        };
        headers.push(&bth);
        headers.push_extensions(info, extensions);
        headers
    }

    /// The bytes, BTH first.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    fn push<T: IntoBytes + Immutable>(&mut self, view: &T) {
        let bytes = view.as_bytes();
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn push_extensions(&mut self, info: &Info, e: &Extensions) {
        if matches!(info.service, Service::Ud) {
            let (qkey, source) = e.datagram.unwrap_or_default();
            self.push(&Deth::new(qkey, source));
        }
        if has_xrc(info) {
            self.push(&XrcEth {
                srqn: U32::new(e.xrc_srqn.unwrap_or_default()),
            });
        }
        if matches!(info.operation, Operation::Flush) {
            self.push(&FlushEth {
                word: U32::new(e.flush.unwrap_or_default()),
            });
        }
        if info.reth {
            let Reth {
                virtual_address,
                rkey,
                length,
            } = e.reth.unwrap_or_default();
            self.push(&RethView {
                virtual_address: U64::new(virtual_address),
                rkey: U32::new(rkey),
                length: U32::new(length),
            });
        }
        if is_atomic(info) {
            let a = e.atomic.unwrap_or_default();
            self.push(&AtomicEth {
                virtual_address: U64::new(a.virtual_address),
                rkey: U32::new(a.rkey),
                swap_or_add: U64::new(a.swap_or_add),
                compare: U64::new(a.compare),
            });
        }
        if info.aeth {
            let (syndrome, msn) = e.aeth.unwrap_or_default();
            self.push(&AethView::new(syndrome, msn));
        }
        if matches!(info.operation, Operation::AtomicAcknowledge) {
            let original = U64::new(e.atomic_ack.unwrap_or_default());
            self.push(&AtomicAckEth { original });
        }
        if info.immediate {
            self.push(&WordEth {
                word: U32::new(e.immediate.unwrap_or_default()),
            });
        } else if info.invalidate {
            self.push(&WordEth {
                word: U32::new(e.invalidate.unwrap_or_default()),
            });
        }
    }
}

/// Pad bytes behind a payload, so that packets are whole words (IBTA 9.2.4).
#[expect(clippy::cast_possible_truncation, reason = "below 4")]
pub const fn pad_len(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;
    use std::string::ToString;
    use std::vec::Vec;

    fn frame(bth: Bth, extensions: &Extensions, payload: &[u8]) -> Vec<u8> {
        let headers = Headers::new(bth, extensions, payload.len());
        let mut bytes = headers.as_bytes().to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(
            bytes.len() + usize::from(pad_len(payload.len())) + icrc::LEN,
            0,
        );
        bytes
    }

    #[test]
    fn every_opcode_round_trips() {
        for code in 0..=255u8 {
            let opcode = Opcode(code);
            let Some(info) = opcode.info() else { continue };
            let payload: &[u8] = if info.payload { b"12345" } else { b"" };
            let bth = Bth::new(opcode, Qpn::new(0x1234), Psn::new(77));
            let bytes = frame(bth, &Extensions::default(), payload);
            assert_eq!(bytes.len() % 4, 0);
            let packet = Packet::parse(&bytes).unwrap();
            assert_eq!(packet.opcode, opcode);
            assert_eq!(packet.payload, payload);
            for cut in 0..bytes.len() - payload.len().next_multiple_of(4) {
                assert!(
                    Packet::parse(&bytes[..cut]).is_err(),
                    "{opcode} cut to {cut}"
                );
            }
        }
    }

    #[test]
    fn extensions_round_trip() {
        let write = Opcode::new(Service::Xrc, Operation::Write, Position::Only, true, false);
        let extensions = Extensions {
            xrc_srqn: Some(5),
            reth: Some(Reth {
                virtual_address: 1 << 60,
                rkey: 7,
                length: 3,
            }),
            immediate: Some(0xdead_beef),
            ..Extensions::default()
        };
        let bth = Bth::new(write.unwrap(), Qpn::new(9), Psn::new(0xff_ffff));
        let bytes = frame(bth, &extensions, b"abc");
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.extensions, extensions);
        assert_eq!(
            packet.to_string(),
            "XRC RDMA WRITE ONLY with IMMEDIATE QP 0x000009 psn 16777215 srq 0x5 \
             va 0x1000000000000000 rkey 0x7 length 3 imm 0xdeadbeef payload 3"
        );
    }

    #[test]
    fn w1_unknown_opcode_is_refused_before_lengths() {
        let mut bytes = [0xff; 40];
        bytes[1] = 0x40;
        assert_eq!(
            Packet::parse(&bytes).unwrap_err(),
            ParseError::UnknownOpcode(0xff)
        );
    }

    #[test]
    fn w2_pad_longer_than_the_payload_is_refused() {
        let send = Opcode::new(Service::Rc, Operation::Send, Position::Only, false, false);
        let mut bytes = frame(
            Bth::new(send.unwrap(), Qpn::new(2), Psn::new(0)),
            &Extensions::default(),
            b"",
        );
        bytes[1] |= 0x30;
        assert_eq!(
            Packet::parse(&bytes).unwrap_err(),
            ParseError::TooShort {
                len: 16,
                needed: 19
            }
        );
    }
}
