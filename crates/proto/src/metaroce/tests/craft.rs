//! Packets made by hand, and a look into an endpoint.

use super::pair::{End, Fate, Pair};
use crate::Instant;
use crate::metaroce::Route;
use crate::metaroce::connection::Connection;
use crate::metaroce::handshake;
use core::net::IpAddr;
use feroce_wire::Address;
use feroce_wire::metaroce::{
    Ack, Atomic, Body, ConnectionId, Datagram, Epoch, Flags, Frame, Handshake, Headers,
    MessageNumber, PacketNumber, Planes, ReceiveNumber, Remote, Request, RequestOpcode, Updates,
    Vector,
};
use std::boxed::Box;
use std::cell::Cell;
use std::format;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

/// A packet without number for a connection.
pub(super) fn frame(to: ConnectionId, body: Body<'_>) -> Frame<'_> {
    Frame {
        flags: Flags::default(),
        path: 0,
        epoch: Epoch(0),
        connection: to,
        number: PacketNumber(0),
        body,
    }
}

pub(super) fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let payload = match &frame.body {
        Body::Request(request) => request.payload,
        Body::Response(response) => response.payload,
        _ => &[],
    };
    [Headers::new(frame).as_bytes(), payload].concat()
}

/// An offer from `source`, without cookie.
pub(super) fn hello(source: IpAddr, name: u64) -> Handshake {
    Handshake {
        source: ConnectionId(name),
        nonce: name ^ 0x5555,
        cookie: 0,
        target: 0x102,
        origin: 0x101,
        versions: (0, 0),
        segment: 4096,
        features: 0,
        line_rate: 12_500_000,
        message_window: 256,
        paths: 8,
        planes: Planes::new(&[source]),
    }
}

/// A request for message `message`; the rest is 0.
pub(super) const fn request(opcode: RequestOpcode, stream: u32, message: u32) -> Request<'static> {
    Request {
        opcode,
        solicited: false,
        stream,
        message: MessageNumber(message),
        offset: 0,
        length: 0,
        receive: ReceiveNumber(0),
        remote: Remote { address: 0, key: 0 },
        atomic: Atomic {
            operand: 0,
            compare: 0,
        },
        datagram: Datagram { key: 0, source: 0 },
        word: 0,
        payload: &[],
    }
}

/// An acknowledgement that says the packets before it have all arrived.
pub(super) const fn ack(updates: Updates<'_>) -> Ack<'_> {
    Ack {
        vector: Vector([0xff; 32]),
        delay_nanos: 0,
        received: 0,
        marked: 0,
        share: 1_000_000,
        updates,
    }
}

impl End {
    /// The only connection it has.
    pub(super) fn connection(&self) -> &Connection {
        let mut all = self.endpoint.connections.iter();
        let (_, first) = all.next().expect("a connection");
        assert!(all.next().is_none(), "two connections");
        first
    }

    pub(super) fn connection_mut(&mut self) -> &mut Connection {
        let (_, first) = self.endpoint.connections.iter_mut().next().unwrap();
        first
    }

    /// All that an endpoint is and has done, but for what it counts.
    pub(super) fn state(&mut self) -> String {
        let counters = core::mem::take(&mut self.endpoint.counters);
        let memory = crc32(&self.host.memory);
        let mut text = format!("{:?} {memory:x} {:?}", self.endpoint, self.host.completions);
        // The slabs print their length only.
        for (_, connection) in &self.endpoint.connections {
            text += &format!("\n{connection:?} {}", connection.jobs.len());
            for &stream in &connection.streams {
                text += &format!("\n{:?}", self.endpoint.streams.get(stream));
            }
        }
        self.endpoint.counters = counters;
        text
    }

    /// The number of the next packet on a path, as its receiver sees it.
    pub(super) fn next_on(&self, path: u8) -> (Epoch, PacketNumber) {
        let path = &self.connection().receive[usize::from(path)];
        path.report(Instant::ZERO)
            .map_or((Epoch(0), PacketNumber(0)), |report| {
                (report.epoch, report.number.next())
            })
    }

    /// Takes the packets that it wants to send, without sending them.
    pub(super) fn take_packets(&mut self, now: Instant) -> Vec<(Route, Vec<u8>)> {
        while self.endpoint.poll_transmit(now, 64, &mut self.host).more {}
        self.host.datagrams.drain(..).collect()
    }

    /// A cookie that this end would give.
    pub(super) fn cookie(&self, now: Instant, from: IpAddr, hello: &Handshake) -> u64 {
        handshake::cookie(self.endpoint.config().secret, now, from, hello)
    }
}

impl Pair {
    /// Drops packets that `what` describes until the cell is set to false.
    pub(super) fn drop_while(&mut self, what: &'static str) -> Rc<Cell<bool>> {
        let held = Rc::new(Cell::new(true));
        let flag = held.clone();
        self.script = Some(Box::new(move |words, _| {
            if flag.get() && words.contains(what) {
                Fate::Drop
            } else {
                Fate::Pass
            }
        }));
        held
    }

    /// Drops the first `times` packets that `what` describes.
    pub(super) fn drop_first(&mut self, what: &'static str, mut times: u32) {
        self.script = Some(Box::new(move |words, _| {
            if times > 0 && words.contains(what) {
                times -= 1;
                return Fate::Drop;
            }
            Fate::Pass
        }));
    }

    /// A packet made by hand arrives at `b`, or at `a`.
    pub(super) fn deliver(&mut self, to_b: bool, source: IpAddr, frame: &Frame<'_>) {
        let end = if to_b { &mut self.b } else { &mut self.a };
        let address = Address {
            source,
            destination: end.addresses[0],
            source_port: 0xc123,
            traffic_class: 2,
            hop_limit: 64,
        };
        end.endpoint
            .handle_packet(self.now, &address, &bytes(frame), &mut end.host);
    }

    /// A numbered packet from `a` to `b` on a path, with the number that is next there.
    pub(super) fn forge(&mut self, path: u8, body: Body<'_>) {
        let (epoch, number) = self.b.next_on(path);
        let forged = Frame {
            path,
            epoch,
            number,
            ..frame(self.b.connection().local, body)
        };
        self.deliver(true, self.a.addresses[0], &forged);
    }

    /// Packets of the trace that end `from` sent and that contain `what`.
    pub(super) fn lines<'a>(
        &'a self,
        from: &'a str,
        what: &'a str,
    ) -> impl Iterator<Item = &'a String> {
        let of = move |line: &&String| line.split(' ').nth(1) == Some(from);
        self.trace
            .iter()
            .filter(of)
            .filter(move |line| line.contains(what))
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = feroce_wire::metaroce::check::Sum::new();
    sum.update(bytes);
    u32::from_le_bytes(sum.trailer())
}
