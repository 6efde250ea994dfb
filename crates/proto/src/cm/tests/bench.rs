//! Two communication managers on one wire whose messages a test can look at, drop and repeat.

use crate::Instant;
use crate::cm::{
    Accept, Cm, CmConfig, CmEvent, Connect, ConnectionId, Listen, ListenAddress, ListenerId, Route,
};
use core::time::Duration;
use feroce_wire::cm::{CmMad, Message, PortSpace, ServiceId};
use feroce_wire::mad::Mad;
use feroce_wire::{Psn, Qpn};
use std::collections::VecDeque;
use std::format;
use std::string::String;
use std::vec::Vec;

/// The port that tests listen on.
pub(super) const PORT: u16 = 7174;
/// Queue pair numbers of the two sides.
pub(super) const QP_A: Qpn = Qpn::new(0x11);
pub(super) const QP_B: Qpn = Qpn::new(0x22);

/// One side.
pub(super) struct Side {
    pub(super) cm: Cm,
    address: [u8; 4],
}

/// Both sides and the messages under way, first the oldest.
pub(super) struct Bench {
    pub(super) now: Instant,
    /// The active side.
    pub(super) a: Side,
    /// The passive side.
    pub(super) b: Side,
    pub(super) to_a: VecDeque<Mad>,
    pub(super) to_b: VecDeque<Mad>,
    pub(super) listener: ListenerId,
}

pub(super) fn service(port: u16) -> ServiceId {
    ServiceId::from_port(PortSpace::Tcp, port)
}

fn side(index: u8) -> Side {
    let config = CmConfig {
        slot: 0x100 + u16::from(index),
        seed: u64::from(index),
        ca_guid: 0xca00 + u64::from(index),
        ..CmConfig::default()
    };
    Side {
        cm: Cm::new(config),
        address: [10, 0, 0, index],
    }
}

impl Bench {
    /// `b` listens with a backlog of 4.
    pub(super) fn new() -> Self {
        let a = side(1);
        let mut b = side(2);
        let listener =
            b.cm.listen(Listen {
                service_id: service(PORT),
                address: ListenAddress::Any,
                backlog: 4,
            })
            .unwrap();
        Self {
            now: Instant::from_nanos(1_000),
            a,
            b,
            to_a: VecDeque::new(),
            to_b: VecDeque::new(),
            listener,
        }
    }

    pub(super) fn route_of_a(&self) -> Route {
        Route {
            local: self.a.address.into(),
            remote: self.b.address.into(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            scope_id: 0,
        }
    }

    fn route_of_b(&self) -> Route {
        let route = self.route_of_a();
        Route {
            local: route.remote,
            remote: route.local,
            ..route
        }
    }

    /// A request of `a` with a response time of 4.3 s and two retries.
    pub(super) fn request(&self) -> Connect<'static> {
        Connect {
            max_cm_retries: 2,
            ..Connect::new(self.route_of_a(), service(PORT), QP_A, Psn::new(100))
        }
    }

    /// Calls `connect` of `a`.
    pub(super) fn connect(&mut self) -> ConnectionId {
        let request = self.request();
        self.a.cm.connect(self.now, &request).unwrap()
    }

    /// Takes what both sides send onto the wire.
    pub(super) fn collect(&mut self) {
        while let Some((_, mad)) = self.a.cm.poll_transmit() {
            self.to_b.push_back(mad);
        }
        while let Some((_, mad)) = self.b.cm.poll_transmit() {
            self.to_a.push_back(mad);
        }
    }

    /// What is under way, as text: `REQ`, say.
    pub(super) fn under_way(&mut self) -> (Vec<String>, Vec<String>) {
        self.collect();
        let names = |queue: &VecDeque<Mad>| queue.iter().map(name_of).collect();
        (names(&self.to_b), names(&self.to_a))
    }

    /// Asserts what `a` has sent and not yet delivered.
    #[track_caller]
    pub(super) fn a_sends(&mut self, expected: &[&str]) {
        assert_eq!(self.under_way().0, expected, "on the way to b");
    }

    /// Asserts what `b` has sent and not yet delivered.
    #[track_caller]
    pub(super) fn b_sends(&mut self, expected: &[&str]) {
        assert_eq!(self.under_way().1, expected, "on the way to a");
    }

    /// Delivers everything to `b`.
    pub(super) fn deliver_to_b(&mut self) {
        self.collect();
        let route = self.route_of_b();
        for mad in self.to_b.split_off(0) {
            self.b.cm.handle_mad(self.now, &route, &mad);
        }
        self.collect();
    }

    /// Delivers everything to `a`.
    pub(super) fn deliver_to_a(&mut self) {
        self.collect();
        let route = self.route_of_a();
        for mad in self.to_a.split_off(0) {
            self.a.cm.handle_mad(self.now, &route, &mad);
        }
        self.collect();
    }

    /// Hands `b` a message as if `a` had sent it.
    pub(super) fn inject_to_b(&mut self, mad: &Mad) {
        let route = self.route_of_b();
        self.b.cm.handle_mad(self.now, &route, mad);
    }

    /// Hands `a` a message as if `b` had sent it.
    pub(super) fn inject_to_a(&mut self, mad: &Mad) {
        let route = self.route_of_a();
        self.a.cm.handle_mad(self.now, &route, mad);
    }

    /// Lets time pass and both sides look at the clock.
    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
        self.a.cm.handle_timeout(self.now);
        self.b.cm.handle_timeout(self.now);
        self.collect();
    }

    /// Until everything is delivered.
    pub(super) fn settle(&mut self) {
        self.collect();
        while !(self.to_a.is_empty() && self.to_b.is_empty()) {
            self.deliver_to_b();
            self.deliver_to_a();
        }
    }

    /// Delivers the REQ of `a`: the connection at `b`.
    #[track_caller]
    pub(super) fn requested(&mut self) -> ConnectionId {
        self.deliver_to_b();
        match self.b.cm.poll_event() {
            Some(CmEvent::Request { connection, .. }) => connection,
            other => panic!("no request but {other:?}"),
        }
    }

    /// Accepts at `b`.
    #[track_caller]
    pub(super) fn accept(&mut self, connection: ConnectionId) {
        let accept = Accept::new(QP_B, Psn::new(200));
        self.b.cm.accept(self.now, connection, &accept).unwrap();
        self.collect();
    }

    /// A connection, with all events of its making taken.
    #[track_caller]
    pub(super) fn connected(&mut self) -> (ConnectionId, ConnectionId) {
        let at_a = self.connect();
        let at_b = self.requested();
        self.accept(at_b);
        self.deliver_to_a();
        assert_eq!(events(&mut self.a), ["Reply"]);
        self.a.cm.establish(self.now, at_a, &[]).unwrap();
        self.deliver_to_b();
        assert_eq!(events(&mut self.b), ["Established"]);
        (at_a, at_b)
    }
}

/// The events of a side, as text; takes them.
pub(super) fn events(side: &mut Side) -> Vec<String> {
    core::iter::from_fn(|| side.cm.poll_event())
        .map(|event| match event {
            CmEvent::Request { .. } => "Request".into(),
            CmEvent::Reply { .. } => "Reply".into(),
            CmEvent::Established { ready, .. } => String::from(if ready.is_some() {
                "Established"
            } else {
                "Established by traffic"
            }),
            CmEvent::Rejected { reject, .. } => format!("Rejected {}", reject.reason.0),
            CmEvent::Unreachable { .. } => "Unreachable".into(),
            CmEvent::Disconnected { how, .. } => {
                let how = format!("{how:?}");
                format!("Disconnected {}", how.split('(').next().unwrap_or_default())
            }
            CmEvent::TimewaitExit { .. } => "TimewaitExit".into(),
            CmEvent::SidrRequest { .. } => "SidrRequest".into(),
            CmEvent::SidrReply { reply, .. } => format!("SidrReply {}", reply.status.0),
            CmEvent::SidrUnreachable { .. } => "SidrUnreachable".into(),
        })
        .collect()
}

/// The name of a message, and for a REJ its reason.
pub(super) fn name_of(mad: &Mad) -> String {
    match CmMad::parse(mad).unwrap().message {
        Message::Rej(rej) => format!("REJ {}", rej.reason.0),
        message => format!("{:?}", message.id()).to_uppercase(),
    }
}

/// 4.3 s: the response time of [`Bench::request`].
pub(super) const RESPONSE_TIME: Duration = Duration::from_nanos(4096 << 20);

impl Side {
    /// Records of connections and requests, whatever their state.
    pub(super) fn records(&self) -> usize {
        self.cm.connections.len() + self.cm.sidrs.len()
    }

    pub(super) fn limit_closed(&mut self, max: usize) {
        self.cm.config.closed_max = max;
    }

    pub(super) fn limit_open(&mut self, max: usize) {
        self.cm.config.open_max = max;
    }

    /// Nothing is left in any book.
    #[track_caller]
    pub(super) fn expect_empty(&self) {
        assert_eq!(self.records(), 0, "{:#?}", self.cm.connections);
        assert!(self.cm.by_request.is_empty() && self.cm.by_peer.is_empty());
        assert!(self.cm.by_asker.is_empty() && self.cm.closed.is_empty());
        assert!(self.cm.timers.is_empty());
        assert_eq!(self.cm.listeners.pending(), 0);
    }
}

impl Bench {
    /// Nothing is left in any book of either side.
    #[track_caller]
    pub(super) fn expect_empty(&self) {
        self.a.expect_empty();
        self.b.expect_empty();
    }
}
