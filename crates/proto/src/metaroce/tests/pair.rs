//! Two endpoints joined by a bad network.

use crate::metaroce::{Endpoint, EndpointConfig, Handle, Route, StreamTarget};
use crate::testing::{BASE, KEY, PD, Random, ToyHost};
use crate::{
    Completion, CompletionStatus, CqId, Data, Instant, QpCapabilities, QpInit, QpType, RecvRequest,
    Remote, SendFlags, SendOperation, SendRequest, Sge, SgeList,
};
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use feroce_wire::metaroce::{Body, Frame, MessageNumber};
use feroce_wire::{Address, Qpn};
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::rc::Rc;
use std::string::String;
use std::vec::Vec;

/// One way through the network.
pub(super) const ONE_WAY: Duration = Duration::from_micros(6);

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Pass,
    Drop,
    Twice,
    Mark,
    Late(u64),
}

/// Chances in 1000.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) duplication: u64,
    pub(super) reordering: u64,
    pub(super) marking: u64,
    pub(super) garbling: u64,
}

pub(super) struct End {
    pub(super) endpoint: Endpoint,
    pub(super) host: ToyHost,
    pub(super) qpn: Qpn,
    pub(super) addresses: Vec<IpAddr>,
}

type Script = Box<dyn FnMut(&str, &Frame<'_>) -> Fate>;

#[derive(Clone)]
struct Flight {
    to_b: bool,
    route: Route,
    marked: bool,
    bytes: Vec<u8>,
}

pub(super) struct Pair {
    pub(super) a: End,
    pub(super) b: End,
    pub(super) now: Instant,
    pub(super) faults: Faults,
    pub(super) random: Random,
    pub(super) script: Option<Script>,
    /// Source ports whose packets vanish.
    pub(super) dead_ports: BTreeSet<u16>,
    /// Addresses whose packets vanish.
    pub(super) dead_addresses: BTreeSet<IpAddr>,
    pub(super) trace: Vec<String>,
    /// Every packet that leaves, if somebody wants them.
    pub(super) recorded: Option<Rc<RefCell<Vec<Vec<u8>>>>>,
    flying: BTreeMap<(Instant, u64), Flight>,
    launched: u64,
}

/// How a pair is made.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) config: EndpointConfig,
    pub(super) planes: u8,
    pub(super) memory: usize,
    pub(super) depth: u32,
    pub(super) target: StreamTarget,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: EndpointConfig {
                segment: 1024,
                paths: 4,
                line_rate: 12_500_000_000,
                rtt_initial: Duration::from_micros(50),
                dead_after: Duration::from_millis(200),
                ..EndpointConfig::default()
            },
            planes: 1,
            memory: 1 << 20,
            depth: 512,
            target: StreamTarget {
                send_number: MessageNumber(100),
                receive_number: MessageNumber(u32::MAX - 3),
                access_flags: 0x30e,
                ..StreamTarget::default()
            },
        }
    }
}

impl Setup {
    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn init(&self) -> QpInit {
        QpInit {
            qp_type: QpType::Rc,
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
                max_inline_data: 256,
            },
            signal_all: false,
        }
    }

    fn end(&self, last: u8) -> End {
        let addresses: Vec<IpAddr> = (0..self.planes)
            .map(|plane| IpAddr::V4(Ipv4Addr::new(10, 0, plane, last)))
            .collect();
        let config = EndpointConfig {
            planes: addresses.clone(),
            secret: [u64::from(last), 77],
            ..self.config.clone()
        };
        End {
            endpoint: Endpoint::new(config),
            host: ToyHost::new(self.memory),
            qpn: Qpn::new(0x100 + u32::from(last)),
            addresses,
        }
    }

    /// Two endpoints without streams.
    pub(super) fn bare(&self) -> Pair {
        Pair {
            a: self.end(1),
            b: self.end(2),
            now: Instant::ZERO,
            faults: Faults::default(),
            random: Random::new(1),
            script: None,
            dead_ports: BTreeSet::new(),
            dead_addresses: BTreeSet::new(),
            trace: Vec::new(),
            recorded: None,
            flying: BTreeMap::new(),
            launched: 0,
        }
    }

    /// Two endpoints with a stream each, connected to one another. Only `a` has said hello.
    pub(super) fn connect(&self) -> Pair {
        let mut pair = self.bare();
        pair.a
            .endpoint
            .create_stream(pair.a.qpn, self.init())
            .unwrap();
        pair.b
            .endpoint
            .create_stream(pair.b.qpn, self.init())
            .unwrap();
        pair.connect_streams(self);
        pair.run_until_idle();
        pair
    }
}

impl Pair {
    pub(super) fn connect_streams(&mut self, setup: &Setup) {
        let (to_a, to_b) = (self.a.addresses[0], self.b.addresses[0]);
        let (a, b) = (self.a.qpn, self.b.qpn);
        let target = StreamTarget {
            peer: to_b,
            qpn: b,
            ..setup.target
        };
        self.a.endpoint.connect_stream(self.now, a, target).unwrap();
        self.run_until_idle();
        let target = StreamTarget {
            peer: to_a,
            qpn: a,
            send_number: setup.target.receive_number,
            receive_number: setup.target.send_number,
            ..setup.target
        };
        self.b.endpoint.connect_stream(self.now, b, target).unwrap();
    }

    pub(super) fn handle_a(&self) -> Handle {
        self.a.endpoint.connection_of(self.a.qpn).unwrap()
    }

    /// Lets packets leave, arrive and timers fire until nothing happens any more, or for
    /// `limit` of simulated time.
    pub(super) fn run_for(&mut self, limit: Duration) {
        let end = self.now + limit;
        for _ in 0..4_000_000 {
            self.launch_all();
            let arrival = self.flying.first_key_value().map(|(&(at, _), _)| at);
            let timers = [&self.a, &self.b].map(|end| end.endpoint.poll_timeout());
            let next = timers.into_iter().flatten().chain(arrival).min();
            let Some(next) = next else { return };
            if next > end {
                self.now = end;
                return;
            }
            self.now = next.max(self.now);
            while let Some(entry) = self.flying.first_entry()
                && entry.key().0 <= self.now
            {
                let flight = entry.remove();
                self.land(&flight);
            }
            let now = self.now;
            for end in [&mut self.a, &mut self.b] {
                end.endpoint.handle_timeout(now, &mut end.host);
            }
        }
        panic!("it never ends: {:?}", &self.trace[self.trace.len() - 40..]);
    }

    pub(super) fn run_until_idle(&mut self) {
        self.run_for(Duration::from_secs(30));
    }

    fn launch_all(&mut self) {
        let now = self.now;
        for to_b in [true, false] {
            let end = if to_b { &mut self.a } else { &mut self.b };
            for _ in 0..10_000 {
                let progress = end.endpoint.poll_transmit(now, 64, &mut end.host);
                if !progress.more {
                    break;
                }
            }
            let datagrams: Vec<_> = end.host.datagrams.drain(..).collect();
            for (route, bytes) in datagrams {
                self.launch(to_b, route, bytes);
            }
        }
    }

    fn launch(&mut self, to_b: bool, route: Route, mut bytes: Vec<u8>) {
        let frame = Frame::parse(&bytes).expect("what is sent can be parsed");
        let words = short(to_b, &frame);
        let scripted = self.script.as_mut().map(|script| script(&words, &frame));
        if self.trace.len() < 200_000 {
            self.trace
                .push(format!("{} {words}", self.now.nanos() / 1000));
        }
        if let Some(recorded) = &self.recorded
            && to_b
        {
            recorded.borrow_mut().push(bytes.clone());
        }
        let gone = self.dead_ports.contains(&route.source_port)
            || self.dead_addresses.contains(&route.source)
            || self.dead_addresses.contains(&route.destination);
        if gone {
            return;
        }
        let faults = self.faults;
        let fate = match scripted {
            Some(fate) if fate != Fate::Pass => fate,
            _ if self.random.chance(faults.loss, 1000) => Fate::Drop,
            _ if self.random.chance(faults.duplication, 1000) => Fate::Twice,
            _ if self.random.chance(faults.marking, 1000) => Fate::Mark,
            _ if self.random.chance(faults.reordering, 1000) => {
                Fate::Late(1000 + self.random.below(30_000))
            }
            _ => Fate::Pass,
        };
        if self.random.chance(faults.garbling, 1000) {
            // The check sum would show it: the host drops it.
            let place = self.random.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1;
            return;
        }
        let mut flight = Flight {
            to_b,
            route,
            marked: false,
            bytes,
        };
        match fate {
            Fate::Drop => {}
            Fate::Pass => self.put(flight, 0),
            Fate::Late(nanos) => self.put(flight, nanos),
            Fate::Mark => {
                flight.marked = true;
                self.put(flight, 0);
            }
            Fate::Twice => {
                let late = self.random.below(400_000);
                self.put(flight.clone(), 0);
                self.put(flight, late);
            }
        }
    }

    fn put(&mut self, flight: Flight, late: u64) {
        self.launched += 1;
        let at = self.now + ONE_WAY + Duration::from_nanos(late);
        self.flying.insert((at, self.launched), flight);
    }

    fn land(&mut self, flight: &Flight) {
        let end = if flight.to_b {
            &mut self.b
        } else {
            &mut self.a
        };
        let address = address_of(&flight.route, flight.marked);
        end.endpoint
            .handle_packet(self.now, &address, &flight.bytes, &mut end.host);
    }

    /// A packet from nowhere arrives at `b`.
    pub(super) fn inject(&mut self, route: &Route, bytes: &[u8]) {
        let address = address_of(route, false);
        let b = &mut self.b;
        b.endpoint
            .handle_packet(self.now, &address, bytes, &mut b.host);
    }

    /// Packets of the trace that contain `what`.
    pub(super) fn count(&self, what: &str) -> usize {
        self.trace.iter().filter(|line| line.contains(what)).count()
    }
}

fn address_of(route: &Route, marked: bool) -> Address {
    Address {
        source: route.source,
        destination: route.destination,
        source_port: route.source_port,
        traffic_class: if marked { 3 } else { route.traffic_class },
        hop_limit: 64,
    }
}

/// A packet in a few words.
fn short(to_b: bool, frame: &Frame<'_>) -> String {
    let from = if to_b { "a" } else { "b" };
    let place = format!("p{} e{} n{}", frame.path, frame.epoch.0, frame.number);
    let what = match &frame.body {
        Body::Hello(_) => "hello".into(),
        Body::Retry(_) => "retry".into(),
        Body::Accept(_) => "accept".into(),
        Body::Refuse(_) => "refuse".into(),
        Body::Request(r) => format!("{:?} m{} @{}", r.opcode, r.message, r.offset),
        Body::Response(r) => format!("{:?} m{} @{}", r.opcode, r.message, r.offset),
        Body::Ack(ack) => format!("ack {}", ack.updates.0.len()),
        Body::Probe(_) => "probe".into(),
        Body::Update(_) => "update".into(),
        Body::Close(_) => "close".into(),
    };
    format!("{from} {what} {place}")
}

impl End {
    pub(super) fn post(&mut self, now: Instant, request: SendRequest) {
        self.endpoint
            .post_send(now, self.qpn, request, &mut self.host)
            .unwrap();
    }

    pub(super) fn post_recv(&mut self, now: Instant, wr_id: u64, address: u64, length: u32) {
        let request = RecvRequest {
            wr_id,
            sges: sges(address, length),
        };
        self.endpoint
            .post_recv(now, self.qpn, request, &mut self.host)
            .unwrap();
    }

    /// Completions since the last call as (request, status).
    pub(super) fn completions(&mut self) -> Vec<(u64, CompletionStatus)> {
        let completions = self.host.take_completions();
        completions.iter().map(|c| (c.wr_id, c.status)).collect()
    }

    pub(super) fn full_completions(&mut self) -> Vec<Completion> {
        self.host.take_completions()
    }

    pub(super) fn fill(&mut self, address: u64, length: usize, seed: u64) {
        let mut random = Random::new(seed);
        for byte in self.host.bytes_mut(address, length) {
            *byte = random.next() as u8;
        }
    }
}

pub(super) fn sges(address: u64, length: u32) -> SgeList {
    let mut list = SgeList::new();
    list.push(Sge {
        address,
        length,
        lkey: KEY,
    });
    list
}

/// A signalled request on `length` bytes at `address`.
pub(super) fn request(
    wr_id: u64,
    operation: SendOperation,
    address: u64,
    length: u32,
) -> SendRequest {
    SendRequest {
        wr_id,
        operation,
        data: Data::Gather(sges(address, length)),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        target: None,
        xrc_srqn: 0,
    }
}

pub(super) fn at(offset: u64) -> Remote {
    Remote {
        address: BASE + offset,
        rkey: KEY,
    }
}

pub(super) fn write(wr_id: u64, to: u64, from: u64, length: u32) -> SendRequest {
    request(wr_id, SendOperation::Write(at(to)), BASE + from, length)
}

pub(super) const OK: CompletionStatus = CompletionStatus::Success;
