//! Thousands of seeds: two communication managers over a channel that loses, repeats, delays and
//! reorders, programs that accept, refuse, disconnect and lose interest at random times.
//!
//! The oracle: each program hears of each connection what its life allows, and each thing once;
//! what both sides hold of one connection agrees; in the end nobody remembers anything.

use super::bench::{PORT, service};
use crate::Instant;
use crate::cm::{
    Accept, Cm, CmConfig, CmEvent, Connect, ConnectionId, Listen, ListenAddress, Reject, Route,
};
use crate::testing::Random;
use crate::tests::random::{SeedNote, seeds};
use core::time::Duration;
use feroce_wire::cm::RejectReason;
use feroce_wire::mad::Mad;
use feroce_wire::{Psn, Qpn};
use std::collections::{BTreeMap, BTreeSet};
use std::format;

/// Queue pairs of each side; one is used again as soon as its connection has ended.
const QPS: u32 = 4;

/// How far a program has got with a connection, by what it was told and what it called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Life {
    /// Asked for, or asked.
    Asking,
    /// Active: told of the reply. Passive: accepted.
    Answered,
    Established,
    /// Told that it ended.
    Ended,
    /// Told that it is forgotten, or that it never came about; or interest was lost.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    life: Life,
    qpn: Qpn,
    active: bool,
    /// The program has called `disconnect`.
    leaving: bool,
}

/// What a program will do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Plan {
    Connect,
    Accept(u32),
    Refuse(u32),
    Establish(u32),
    Disconnect(u32),
    Abandon(u32),
}

struct Side {
    cm: Cm,
    address: [u8; 4],
    known: BTreeMap<u32, Known>,
    plans: BTreeSet<(Instant, Plan)>,
    connects: u32,
}

struct World {
    random: Random,
    now: Instant,
    sides: [Side; 2],
    /// Messages under way: when they arrive, a number to tell them apart, to whom.
    channel: BTreeMap<(Instant, u64), (usize, Mad)>,
    sent: u64,
    loss: u64,
    repeats: u64,
    delay_max: u64,
    ever_established: u32,
}

impl Side {
    fn new(index: usize, seed: u64) -> Self {
        let number = index as u8 + 1;
        let mut cm = Cm::new(CmConfig {
            slot: 7 + index as u16,
            seed,
            ca_guid: 0xfe00 + index as u64,
            ..CmConfig::default()
        });
        cm.listen(Listen {
            service_id: service(PORT),
            address: ListenAddress::Any,
            backlog: 3,
        })
        .unwrap();
        Self {
            cm,
            address: [10, 0, 0, number],
            known: BTreeMap::new(),
            plans: BTreeSet::new(),
            connects: 0,
        }
    }

    /// A queue pair that no living connection has.
    fn free_qp(&self) -> Option<Qpn> {
        (1..=QPS).map(Qpn::new).find(|&qpn| {
            self.known
                .values()
                .all(|known| known.qpn != qpn || known.life >= Life::Ended)
        })
    }
}

impl World {
    fn new(seed: u64) -> (Self, SeedNote) {
        let mut random = Random::new(seed);
        let loss = random.below(30);
        let repeats = random.below(30);
        let delay_max = [1_000, 10_000_000, 3_000_000_000, 9_000_000_000][random.below(4) as usize];
        let note = SeedNote {
            test: "cm::tests::random",
            seed,
            options: format!("loss {loss}/100 repeats {repeats}/100 delay up to {delay_max} ns"),
        };
        let sides = [Side::new(0, seed), Side::new(1, seed)];
        let mut world = Self {
            random,
            now: Instant::ZERO,
            sides,
            channel: BTreeMap::new(),
            sent: 0,
            loss,
            repeats,
            delay_max,
            ever_established: 0,
        };
        for side in 0..2 {
            for _ in 0..world.random.below(6) {
                world.plan(side, 60, Plan::Connect);
            }
        }
        world.plan(0, 1, Plan::Connect);
        (world, note)
    }

    fn plan(&mut self, side: usize, seconds_max: u64, plan: Plan) {
        let wait = Duration::from_nanos(self.random.below(seconds_max * 1_000_000_000));
        self.sides[side].plans.insert((self.now + wait, plan));
    }

    fn route(&self, side: usize) -> Route {
        Route {
            local: self.sides[side].address.into(),
            remote: self.sides[1 - side].address.into(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            scope_id: 0,
        }
    }

    fn transmit(&mut self, side: usize) {
        while let Some((_, mad)) = self.sides[side].cm.poll_transmit() {
            let copies = if self.random.chance(self.loss, 100) {
                0
            } else {
                1 + u64::from(self.random.chance(self.repeats, 100))
            };
            for _ in 0..copies {
                let delay = Duration::from_nanos(1 + self.random.below(self.delay_max));
                self.sent += 1;
                self.channel
                    .insert((self.now + delay, self.sent), (1 - side, mad));
            }
        }
    }

    /// The next thing that happens anywhere, until nothing does.
    fn run(&mut self) {
        for _ in 0..100_000 {
            for side in 0..2 {
                self.hear_all(side);
                self.transmit(side);
            }
            let arrival = self.channel.keys().next().map(|&(at, _)| at);
            let due = |side: &Side| {
                let plan = side.plans.first().map(|&(at, _)| at);
                [plan, side.cm.poll_timeout()].into_iter().flatten().min()
            };
            let next = [arrival, due(&self.sides[0]), due(&self.sides[1])];
            let Some(next) = next.into_iter().flatten().min() else {
                return;
            };
            assert!(next >= self.now, "a deadline in the past");
            self.now = next;
            self.step();
        }
        panic!("it never ends");
    }

    fn step(&mut self) {
        if let Some(entry) = self.channel.first_entry()
            && entry.key().0 <= self.now
        {
            let (side, mad) = entry.remove();
            let route = self.route(side);
            self.sides[side].cm.handle_mad(self.now, &route, &mad);
            return;
        }
        for side in 0..2 {
            self.sides[side].cm.handle_timeout(self.now);
            self.hear_all(side);
            while let Some(&(at, plan)) = self.sides[side].plans.first()
                && at <= self.now
            {
                self.sides[side].plans.pop_first();
                self.act(side, plan);
                self.hear_all(side);
            }
        }
    }

    fn act(&mut self, side: usize, plan: Plan) {
        let (now, route) = (self.now, self.route(side));
        let psn = Psn::new(self.random.next() as u32);
        let it = &mut self.sides[side];
        let life = |id: u32, it: &Side| it.known.get(&id).map(|known| known.life);
        match plan {
            Plan::Connect => {
                let Some(qpn) = it.free_qp() else {
                    return;
                };
                let request = Connect {
                    max_cm_retries: 8 + (it.connects % 8) as u8,
                    remote_cm_response_timeout: 18,
                    local_cm_response_timeout: 18,
                    ..Connect::new(route, service(PORT), qpn, psn)
                };
                it.connects += 1;
                let id = it.cm.connect(now, &request).unwrap().0;
                let known = Known {
                    life: Life::Asking,
                    qpn,
                    active: true,
                    leaving: false,
                };
                assert!(it.known.insert(id, known).is_none(), "a name used again");
                if self.random.chance(1, 8) {
                    self.plan(side, 10, Plan::Abandon(id));
                }
            }
            Plan::Accept(id) if life(id, it) == Some(Life::Asking) => {
                let Some(qpn) = it.free_qp() else {
                    return self.act(side, Plan::Refuse(id));
                };
                let accept = Accept::new(qpn, psn);
                it.cm.accept(now, ConnectionId(id), &accept).unwrap();
                let known = it.known.get_mut(&id).unwrap();
                (known.life, known.qpn) = (Life::Answered, qpn);
                if self.random.chance(1, 8) {
                    self.plan(side, 3, Plan::Disconnect(id));
                }
            }
            Plan::Refuse(id) if matches!(life(id, it), Some(Life::Asking | Life::Answered)) => {
                let reject = Reject::by_program(b"no");
                it.cm.reject(now, ConnectionId(id), &reject).unwrap();
                it.known.get_mut(&id).unwrap().life = Life::Over;
            }
            Plan::Establish(id) if life(id, it) == Some(Life::Answered) => {
                it.cm.establish(now, ConnectionId(id), &[]).unwrap();
                self.established(side, id);
            }
            Plan::Disconnect(id)
                if matches!(life(id, it), Some(Life::Answered | Life::Established)) =>
            {
                it.cm.disconnect(now, ConnectionId(id), &[]).unwrap();
                it.known.get_mut(&id).unwrap().leaving = true;
            }
            Plan::Abandon(id) => {
                it.cm.abandon(now, ConnectionId(id));
                it.known.get_mut(&id).unwrap().life = Life::Over;
            }
            // What was planned has been overtaken.
            _ => {}
        }
    }

    fn established(&mut self, side: usize, id: u32) {
        self.ever_established += 1;
        self.sides[side].known.get_mut(&id).unwrap().life = Life::Established;
        let plan = if self.random.chance(1, 6) {
            Plan::Abandon(id)
        } else {
            Plan::Disconnect(id)
        };
        // Both sides do so; who is first, and whether they cross, is chance.
        self.plan(side, 8, plan);
    }

    fn hear_all(&mut self, side: usize) {
        while let Some(event) = self.sides[side].cm.poll_event() {
            self.hear(side, event);
        }
    }

    /// What the program of `side` is told must fit what it knows.
    fn hear(&mut self, side: usize, event: CmEvent) {
        let it = &mut self.sides[side];
        let (id, from, to): (u32, &[Life], Life) = match &event {
            CmEvent::Request { connection, .. } => {
                let known = Known {
                    life: Life::Asking,
                    qpn: Qpn::new(0),
                    active: false,
                    leaving: false,
                };
                let before = it.known.insert(connection.0, known);
                assert!(before.is_none(), "a name used again");
                let answer = match self.random.below(8) {
                    0 => Plan::Refuse(connection.0),
                    1 => Plan::Abandon(connection.0),
                    _ => Plan::Accept(connection.0),
                };
                return self.plan(side, 6, answer);
            }
            CmEvent::Reply { connection, .. } => (connection.0, &[Life::Asking], Life::Answered),
            CmEvent::Established { connection, .. } => {
                (connection.0, &[Life::Answered], Life::Established)
            }
            CmEvent::Rejected { connection, reject } => {
                // A request that is refused as stale is repeated until it is not, unless the
                // channel takes most repetitions.
                let stale = reject.reason == RejectReason::STALE_CONNECTION;
                let refused = stale && it.known[&connection.0].active;
                assert!(!refused || self.loss > 8 || self.delay_max > 1_000_000_000);
                (connection.0, &[Life::Asking, Life::Answered], Life::Over)
            }
            CmEvent::Unreachable { connection } => {
                (connection.0, &[Life::Asking, Life::Answered], Life::Over)
            }
            CmEvent::Disconnected { connection, .. } => {
                let from: &[Life] = match it.known[&connection.0] {
                    // A passive side may leave before it hears that the peer is ready, an active
                    // one hear of the end before it is.
                    known if known.leaving || known.active => &[Life::Answered, Life::Established],
                    _ => &[Life::Established],
                };
                (connection.0, from, Life::Ended)
            }
            CmEvent::TimewaitExit { connection } => (connection.0, &[Life::Ended], Life::Over),
            other => panic!("{other:?}"),
        };
        let known = it.known.get_mut(&id).expect("a known connection");
        assert!(
            from.contains(&known.life),
            "side {side} hears {event:?} of a connection that is {:?}",
            known.life
        );
        let was_active = known.active;
        known.life = to;
        match to {
            Life::Answered => {
                let plan = match self.random.below(12) {
                    0 => Plan::Refuse(id),
                    1 => Plan::Abandon(id),
                    _ => Plan::Establish(id),
                };
                self.plan(side, 6, plan);
            }
            Life::Established => {
                assert!(!was_active);
                self.established(side, id);
            }
            _ => {}
        }
    }

    fn judge(&self) {
        for (index, side) in self.sides.iter().enumerate() {
            for (id, known) in &side.known {
                assert_eq!(
                    known.life,
                    Life::Over,
                    "side {index} connection {id:#x} {known:?}"
                );
            }
            side.expect_empty();
        }
    }
}

impl Side {
    fn expect_empty(&self) {
        assert!(self.cm.connections.is_empty(), "{:#?}", self.cm.connections);
        assert!(self.cm.by_request.is_empty() && self.cm.by_peer.is_empty());
        assert!(self.cm.closed.is_empty() && self.cm.timers.is_empty());
        assert_eq!(self.cm.listeners.pending(), 0);
    }
}

#[test]
fn programs_agree_over_a_bad_channel() {
    let mut established = 0;
    let mut runs = 0;
    for seed in seeds(3000) {
        let (mut world, _note) = World::new(seed);
        world.run();
        world.judge();
        established += world.ever_established;
        runs += 1;
    }
    // The channel must not be so bad that nothing is tested.
    assert!(runs < 100 || established > runs, "{established} of {runs}");
}
