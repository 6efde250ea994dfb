//! Packets back to bytes: everything in front of the payload.

use super::header::{
    AckView, AtomicView, CloseView, Common, CountView, DatagramView, HandshakeView, OriginalView,
    RefuseView, RemoteView, RequestView, ResponseView, RetryView, UpdateView, WordView,
};
use super::{Ack, Body, Close, Frame, Handshake, Request, Response, ResponseOpcode, VERSION};
use core::net::IpAddr;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// Most updates in one acknowledgement: more would make it as long as the data it acknowledges.
pub const ACK_UPDATES_MAX: usize = 16;

/// Most updates in one update packet.
//= MR-PKT-007
pub const UPDATES_MAX: usize = 16;

/// Most streams in one probe.
pub const PROBE_STREAMS_MAX: usize = 16;

/// The longest run of headers before a payload, in bytes: a full acknowledgement.
pub const HEADERS_MAX: usize = Common::LEN + AckView::LEN + ACK_UPDATES_MAX * UpdateView::LEN;

pub(super) const SOLICITED: u8 = 0x80;
pub(super) const CLOSE_ANSWER: u16 = 0x8000;

/// The header bytes of one packet, ready to go in front of its payload.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; HEADERS_MAX],
    len: usize,
}

impl Headers {
    /// Puts the headers of a packet together. A payload in `frame` is not copied. Lists longer
    /// than their limit ([`ACK_UPDATES_MAX`] and its like) are cut.
    //= MR-PKT-001
    //= MR-PKT-010
    pub fn new(frame: &Frame<'_>) -> Self {
        let mut headers = Self {
            bytes: [0; HEADERS_MAX],
            len: 0,
        };
        headers.push(&Common {
            version_type: VERSION << 4 | frame.body.kind() as u8,
            flags: frame.flags.0,
            path: frame.path,
            epoch: frame.epoch.0,
            connection: U64::new(frame.connection.0),
            number: U32::new(frame.number.0),
        });
        headers.push_body(&frame.body);
        headers
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push<T: IntoBytes + Immutable + ?Sized>(&mut self, view: &T) {
        let bytes = view.as_bytes();
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// An entry count and the entries, `max` at most.
    fn push_list<T: IntoBytes + Immutable>(&mut self, list: &[T], max: usize) {
        let list = &list[..list.len().min(max)];
        self.push(&CountView {
            reserved: [0; 3],
            count: count(list.len()),
        });
        self.push(list);
    }

    fn push_body(&mut self, body: &Body<'_>) {
        match body {
            Body::Hello(handshake) | Body::Accept(handshake) => self.push_handshake(handshake),
            Body::Retry(retry) => self.push(&RetryView {
                nonce: U64::new(retry.nonce),
                cookie: U64::new(retry.cookie),
                version_min: retry.versions.0,
                version_max: retry.versions.1,
                reserved: U16::ZERO,
            }),
            Body::Refuse(refuse) => self.push(&RefuseView {
                nonce: U64::new(refuse.nonce),
                code: U32::new(refuse.code as u32),
            }),
            Body::Request(request) => self.push_request(request),
            Body::Response(response) => self.push_response(response),
            Body::Ack(ack) => self.push_ack(ack),
            Body::Probe(streams) => self.push_list(streams.0, PROBE_STREAMS_MAX),
            Body::Update(updates) => self.push_list(updates.0, UPDATES_MAX),
            Body::Close(close) => self.push_close(close),
        }
    }

    fn push_handshake(&mut self, handshake: &Handshake) {
        let planes = handshake.planes.as_slice();
        self.push(&HandshakeView {
            source: U64::new(handshake.source.0),
            nonce: U64::new(handshake.nonce),
            cookie: U64::new(handshake.cookie),
            target: U32::new(handshake.target),
            origin: U32::new(handshake.origin),
            version_min: handshake.versions.0,
            version_max: handshake.versions.1,
            segment: U16::new(handshake.segment),
            features: U32::new(handshake.features),
            line_rate: U32::new(handshake.line_rate),
            message_window: U16::new(handshake.message_window),
            paths: handshake.paths,
            planes: count(planes.len()),
        });
        for address in planes {
            let v6 = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            self.push(&v6.octets());
        }
    }

    fn push_request(&mut self, request: &Request<'_>) {
        let opcode = request.opcode;
        self.push(&RequestView {
            opcode: opcode as u8,
            flags: if request.solicited { SOLICITED } else { 0 },
            reserved: U16::ZERO,
            stream: U32::new(request.stream),
            message: U32::new(request.message.0),
            offset: U32::new(request.offset),
            length: U32::new(request.length),
            receive: U32::new(request.receive.0),
        });
        if opcode.has_remote() {
            self.push(&RemoteView {
                address: U64::new(request.remote.address),
                key: U32::new(request.remote.key),
            });
        }
        if opcode.is_answered() && !matches!(opcode, super::RequestOpcode::Read) {
            self.push(&AtomicView {
                operand: U64::new(request.atomic.operand),
                compare: U64::new(request.atomic.compare),
            });
        }
        if opcode.is_datagram() {
            self.push(&DatagramView {
                key: U32::new(request.datagram.key),
                source: U32::new(request.datagram.source),
            });
        }
        if opcode.has_word() {
            self.push(&WordView {
                word: U32::new(request.word),
            });
        }
    }

    fn push_response(&mut self, response: &Response<'_>) {
        let refusal = response.refusal;
        self.push(&ResponseView {
            opcode: response.opcode as u8,
            code: refusal.map_or(0, |refusal| refusal.code as u8),
            reserved: U16::ZERO,
            stream: U32::new(response.stream),
            message: U32::new(response.message.0),
            offset: U32::new(response.offset),
            length: U32::new(refusal.map_or(response.length, |refusal| refusal.delay_nanos)),
        });
        if response.opcode == ResponseOpcode::Original {
            self.push(&OriginalView {
                original: U64::new(response.original),
            });
        }
    }

    fn push_ack(&mut self, ack: &Ack<'_>) {
        let updates = &ack.updates.0[..ack.updates.0.len().min(ACK_UPDATES_MAX)];
        self.push(&AckView {
            vector: ack.vector.0,
            delay: U32::new(ack.delay_nanos),
            received: U32::new(ack.received),
            marked: U32::new(ack.marked),
            share: U32::new(ack.share),
            reserved: [0; 3],
            updates: count(updates.len()),
        });
        self.push(updates);
    }

    fn push_close(&mut self, close: &Close) {
        self.push(&CloseView {
            source: U64::new(close.source.0),
            code: U16::new(close.code as u16),
            flags: U16::new(if close.answer { CLOSE_ANSWER } else { 0 }),
        });
    }
}

fn count(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}
