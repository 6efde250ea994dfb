//! Bytes to packets.
//!
//! [`Frame::parse`] checks what holds for a packet by itself. Whether a connection, stream or key
//! exists is for protocol code to judge.

use super::header::{
    AckView, AtomicView, CloseView, Common, CountView, DatagramView, HandshakeView, OriginalView,
    RefuseView, RemoteView, RequestView, ResponseView, RetryView, WordView,
};
use super::{
    ACK_UPDATES_MAX, Ack, Atomic, Body, Close, CloseCode, ConnectionId, Datagram, Epoch, Flags,
    Frame, Handshake, Kind, MESSAGE_BYTES_MAX, MessageNumber, PLANES_MAX, PROBE_STREAMS_MAX,
    PacketNumber, Planes, ReceiveNumber, Refusal, RefusalCode, Refuse, RefuseCode, Remote, Request,
    RequestOpcode, Response, ResponseOpcode, Retry, Streams, UPDATES_MAX, Updates, VERSION, Vector,
};
use core::net::{IpAddr, Ipv6Addr};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Why bytes are no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseError {
    /// Fewer bytes than the headers need.
    #[error("{len} bytes are too short for their headers")]
    TooShort {
        /// Bytes there are.
        len: usize,
    },
    /// A version that does not exist.
    #[error("version {0}, but only version 0 exists")]
    Version(u8),
    /// A type, opcode or code that does not exist.
    #[error("no {what} {value}")]
    Unknown {
        /// What it should be.
        what: &'static str,
        /// What it is.
        value: u32,
    },
    /// Offset, length and payload contradict one another.
    #[error("{payload} bytes at {offset} of a message of {length}")]
    Extent {
        /// Offset.
        offset: u32,
        /// Length of the message.
        length: u32,
        /// Bytes of payload.
        payload: usize,
    },
    /// A count that is not possible.
    #[error("{what} is {value}")]
    OutOfRange {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u32,
    },
}

impl<'a> Frame<'a> {
    /// Reads a packet without its trailer.
    ///
    /// # Errors
    /// [`ParseError`] when the form is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader {
            rest: bytes,
            len: bytes.len(),
        };
        let common: &Common = reader.take()?;
        let version = common.version_type >> 4;
        //= MR-PKT-009
        if version != VERSION {
            return Err(ParseError::Version(version));
        }
        let kind = find(&Kind::ALL, "packet type", common.version_type & 0xf, |&k| {
            k as u8
        })?;
        Ok(Self {
            flags: Flags(common.flags),
            path: common.path,
            epoch: Epoch(common.epoch),
            connection: ConnectionId(common.connection.get()),
            number: PacketNumber(common.number.get()),
            body: reader.body(kind)?,
        })
    }
}

fn find<T: Copy>(
    all: &[T],
    what: &'static str,
    value: u8,
    code: impl Fn(&T) -> u8,
) -> Result<T, ParseError> {
    let found = all.iter().find(|item| code(item) == value).copied();
    found.ok_or_else(|| ParseError::Unknown {
        what,
        value: u32::from(value),
    })
}

struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
    ) -> Result<&'a T, ParseError> {
        let too_short = ParseError::TooShort { len: self.len };
        let (view, rest) = T::ref_from_prefix(self.rest).map_err(|_| too_short)?;
        self.rest = rest;
        Ok(view)
    }

    fn take_list<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        count: u8,
    ) -> Result<&'a [T], ParseError> {
        let too_short = ParseError::TooShort { len: self.len };
        let list = <[T]>::ref_from_prefix_with_elems(self.rest, usize::from(count));
        let (list, rest) = list.map_err(|_| too_short)?;
        self.rest = rest;
        Ok(list)
    }

    /// As [`take_list`](Self::take_list), of `max` entries at most.
    //= MR-PKT-007
    //= MR-PKT-011
    fn take_bounded<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        what: &'static str,
        count: u8,
        max: usize,
    ) -> Result<&'a [T], ParseError> {
        if usize::from(count) > max {
            let value = u32::from(count);
            return Err(ParseError::OutOfRange { what, value });
        }
        self.take_list(count)
    }

    fn body(&mut self, kind: Kind) -> Result<Body<'a>, ParseError> {
        Ok(match kind {
            Kind::Hello => Body::Hello(self.handshake()?),
            Kind::Retry => {
                let view: &RetryView = self.take()?;
                Body::Retry(Retry {
                    nonce: view.nonce.get(),
                    cookie: view.cookie.get(),
                    versions: (view.version_min, view.version_max),
                })
            }
            Kind::Accept => Body::Accept(self.handshake()?),
            Kind::Refuse => {
                let view: &RefuseView = self.take()?;
                let code = u8::try_from(view.code.get()).unwrap_or(u8::MAX);
                Body::Refuse(Refuse {
                    nonce: view.nonce.get(),
                    code: find(&RefuseCode::ALL, "refuse code", code, |&c| c as u8)?,
                })
            }
            Kind::Request => Body::Request(self.request()?),
            Kind::Response => Body::Response(self.response()?),
            Kind::Ack => Body::Ack(self.ack()?),
            Kind::Probe => {
                let view: &CountView = self.take()?;
                let list = self.take_bounded("streams", view.count, PROBE_STREAMS_MAX)?;
                Body::Probe(Streams(list))
            }
            Kind::Update => {
                let view: &CountView = self.take()?;
                let list = self.take_bounded("updates", view.count, UPDATES_MAX)?;
                Body::Update(Updates(list))
            }
            Kind::Close => {
                let view: &CloseView = self.take()?;
                let code = u8::try_from(view.code.get()).unwrap_or(u8::MAX);
                Body::Close(Close {
                    source: ConnectionId(view.source.get()),
                    code: find(&CloseCode::ALL, "close code", code, |&c| c as u8)?,
                    answer: view.flags.get() & super::encode::CLOSE_ANSWER != 0,
                })
            }
        })
    }

    fn handshake(&mut self) -> Result<Handshake, ParseError> {
        let view: &HandshakeView = self.take()?;
        for (what, value, good) in [
            ("planes", view.planes, 1..=PLANES_MAX),
            ("paths", view.paths, 1..=usize::from(u8::MAX)),
        ] {
            if !good.contains(&usize::from(value)) {
                let value = u32::from(value);
                return Err(ParseError::OutOfRange { what, value });
            }
        }
        let addresses: &[[u8; 16]] = self.take_list(view.planes)?;
        let mut list = [IpAddr::V6(Ipv6Addr::UNSPECIFIED); PLANES_MAX];
        for (to, from) in list.iter_mut().zip(addresses) {
            *to = Ipv6Addr::from(*from).to_canonical();
        }
        Ok(Handshake {
            source: ConnectionId(view.source.get()),
            nonce: view.nonce.get(),
            cookie: view.cookie.get(),
            target: view.target.get(),
            origin: view.origin.get(),
            versions: (view.version_min, view.version_max),
            segment: view.segment.get(),
            features: view.features.get(),
            line_rate: view.line_rate.get(),
            message_window: view.message_window.get(),
            paths: view.paths,
            planes: Planes::new(&list[..addresses.len()]),
        })
    }

    fn request(&mut self) -> Result<Request<'a>, ParseError> {
        let view: &RequestView = self.take()?;
        let opcode = find(&RequestOpcode::ALL, "request opcode", view.opcode, |&o| {
            o as u8
        })?;
        let mut request = Request {
            opcode,
            solicited: view.flags & super::encode::SOLICITED != 0,
            stream: view.stream.get(),
            message: MessageNumber(view.message.get()),
            offset: view.offset.get(),
            length: view.length.get(),
            receive: ReceiveNumber(view.receive.get()),
            remote: Remote::default(),
            atomic: Atomic::default(),
            datagram: Datagram::default(),
            word: 0,
            payload: &[],
        };
        if opcode.has_remote() {
            let remote: &RemoteView = self.take()?;
            request.remote.address = remote.address.get();
            request.remote.key = remote.key.get();
        }
        if opcode.is_atomic() {
            let atomic: &AtomicView = self.take()?;
            request.atomic.operand = atomic.operand.get();
            request.atomic.compare = atomic.compare.get();
        }
        if opcode.is_datagram() {
            let datagram: &DatagramView = self.take()?;
            request.datagram.key = datagram.key.get();
            request.datagram.source = datagram.source.get();
        }
        if opcode.has_word() {
            request.word = self.take::<WordView>()?.word.get();
        }
        request.payload = self.rest;
        let expected = if opcode.has_payload() {
            request.length
        } else {
            0
        };
        check_extent(request.offset, expected, request.payload)?;
        if request.length > MESSAGE_BYTES_MAX {
            return Err(ParseError::OutOfRange {
                what: "length",
                value: request.length,
            });
        }
        Ok(request)
    }

    fn response(&mut self) -> Result<Response<'a>, ParseError> {
        let view: &ResponseView = self.take()?;
        let opcodes = [
            ResponseOpcode::ReadData,
            ResponseOpcode::Original,
            ResponseOpcode::Refused,
        ];
        let opcode = find(&opcodes, "response opcode", view.opcode, |&o| o as u8)?;
        let mut response = Response {
            opcode,
            stream: view.stream.get(),
            message: MessageNumber(view.message.get()),
            offset: view.offset.get(),
            length: view.length.get(),
            original: 0,
            refusal: None,
            payload: &[],
        };
        match opcode {
            ResponseOpcode::ReadData => {
                response.payload = self.rest;
                check_extent(response.offset, response.length, response.payload)?;
            }
            ResponseOpcode::Original => {
                response.original = self.take::<OriginalView>()?.original.get();
            }
            ResponseOpcode::Refused => {
                let code = find(&RefusalCode::ALL, "refusal code", view.code, |&c| c as u8)?;
                response.refusal = Some(Refusal {
                    code,
                    delay_nanos: response.length,
                });
                response.length = 0;
            }
        }
        Ok(response)
    }

    fn ack(&mut self) -> Result<Ack<'a>, ParseError> {
        let view: &AckView = self.take()?;
        Ok(Ack {
            vector: Vector(view.vector),
            delay_nanos: view.delay.get(),
            received: view.received.get(),
            marked: view.marked.get(),
            share: view.share.get(),
            updates: Updates(self.take_bounded("updates", view.updates, ACK_UPDATES_MAX)?),
        })
    }
}

/// A piece lies in its message, and is empty only if the message is.
//= MR-PKT-008
const fn check_extent(offset: u32, length: u32, payload: &[u8]) -> Result<(), ParseError> {
    let end = offset as u64 + payload.len() as u64;
    let right = if length == 0 {
        offset == 0 && payload.is_empty()
    } else {
        !payload.is_empty() && end <= length as u64
    };
    if right {
        Ok(())
    } else {
        Err(ParseError::Extent {
            offset,
            length,
            payload: payload.len(),
        })
    }
}
