//! Two communication managers and a channel that does with their messages whatever the input says:
//! any order, repetitions, changed bytes, messages out of nothing. In the end nothing is left,
//! no call hangs, and no connection is told of that is over.

use crate::choice::choice;
use crate::{Features, cm_mad};
use arbitrary::{Arbitrary, Unstructured};
use feroce_proto::Instant;
use feroce_proto::cm::{
    Accept, Cm, CmConfig, CmEvent, Connect, ConnectionId, Disconnect, Listen, ListenAddress,
    ListenerId, Reject, Route, SidrId, SidrReply, SidrRequest,
};
use feroce_wire::cm::{
    CmMad, Ece, Message, PortSpace, RejectReason, RejectedMessage, ServiceId, SidrStatus, Transport,
};
use feroce_wire::{DEFAULT_PKEY, Psn, Qpn};
use std::collections::BTreeSet;
use std::time::Duration;

/// A call of a program or a deed of the channel. The first field is the side; numbers choose
/// among what is there.
#[derive(Debug)]
enum Operation {
    Connect(bool, u8, u8),
    Accept(bool, u8, u8),
    Refuse(bool, u8, u8),
    Establish(bool, u8),
    Traffic(bool, u8),
    AskForTime(bool, u8, u8),
    Disconnect(bool, u8),
    Abandon(bool, u8),
    SidrRequest(bool, u8),
    SidrReply(bool, u8, u8),
    SidrAbandon(bool, u8),
    Listen(bool, u8),
    Unlisten(bool, u8),
    Deliver(bool, u8),
    DeliverAll(bool),
    Drop(bool, u8),
    Repeat(bool, u8),
    Change(bool, u8, u8, u8),
    Kind(bool, u8, u8),
    Invent(bool, u8),
    Wait(u8),
}

choice! { Operation:
    |u| Ok(Operation::Connect(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Accept(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Refuse(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Establish(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Traffic(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::AskForTime(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Disconnect(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Abandon(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::SidrRequest(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::SidrReply(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::SidrAbandon(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Listen(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Unlisten(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Deliver(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::DeliverAll(u.arbitrary()?)),
    |u| Ok(Operation::Drop(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Repeat(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Change(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Kind(u.arbitrary()?, u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Invent(u.arbitrary()?, u.arbitrary()?)),
    |u| Ok(Operation::Wait(u.arbitrary()?)),
}

struct Side {
    cm: Cm,
    /// Messages for the other side.
    out: Vec<Vec<u8>>,
    /// All names the program has had.
    connections: Vec<ConnectionId>,
    requests: Vec<SidrId>,
    listeners: Vec<ListenerId>,
    /// What the program must hear of no more.
    over: BTreeSet<ConnectionId>,
}

struct World {
    now: Instant,
    sides: [Side; 2],
    features: Features,
}

/// Records that a side may hold.
const OPEN_MAX: usize = 16;
const CLOSED_MAX: usize = 4;
/// Messages under way in one direction.
const CHANNEL_MAX: usize = 64;

/// Runs the operations that `input` stands for.
pub fn run(input: &[u8]) -> Features {
    let mut world = World::new();
    let mut u = Unstructured::new(input);
    while !u.is_empty() {
        let Ok(operation) = Operation::arbitrary(&mut u) else {
            break;
        };
        world.apply(&operation);
        world.collect();
    }
    world.finish();
    world.features
}

impl World {
    fn new() -> Self {
        let side = |slot: u16| {
            let mut cm = Cm::new(CmConfig {
                slot,
                seed: u64::from(slot),
                ca_guid: u64::from(slot),
                open_max: OPEN_MAX,
                closed_max: CLOSED_MAX,
                listeners_max: 4,
                ..CmConfig::default()
            });
            let listener = cm.listen(listen(0)).expect("the first listener");
            Side {
                cm,
                out: Vec::new(),
                connections: Vec::new(),
                requests: Vec::new(),
                listeners: vec![listener],
                over: BTreeSet::new(),
            }
        };
        Self {
            now: Instant::ZERO,
            sides: [side(1), side(2)],
            features: Features::default(),
        }
    }

    fn apply(&mut self, operation: &Operation) {
        let now = self.now;
        match *operation {
            Operation::Connect(side, kind, qpn) => {
                let request = request(route(side), kind, qpn);
                let it = &mut self.sides[usize::from(side)];
                if let Ok(id) = it.cm.connect(now, &request) {
                    it.over.remove(&id);
                    it.connections.push(id);
                }
            }
            Operation::Accept(side, which, qpn) => self.on(side, which, |cm, id| {
                let accept = Accept::new(Qpn::new(u32::from(qpn & 7)), Psn::new(0));
                cm.accept(now, id, &accept).is_ok()
            }),
            Operation::Refuse(side, which, reason) => self.on(side, which, |cm, id| {
                let reject = Reject {
                    reason: RejectReason(u16::from(reason)),
                    information: &[1; 72],
                    private_data: &[2; 148],
                };
                cm.reject(now, id, &reject).is_ok()
            }),
            Operation::Establish(side, which) => {
                self.on(side, which, |cm, id| cm.establish(now, id, &[]).is_ok());
            }
            Operation::Traffic(side, which) => {
                self.on(side, which, |cm, id| cm.traffic_arrived(now, id).is_ok());
            }
            Operation::AskForTime(side, which, code) => {
                self.on(side, which, |cm, id| cm.ask_for_time(now, id, code).is_ok());
            }
            Operation::Disconnect(side, which) => {
                self.on(side, which, |cm, id| cm.disconnect(now, id, &[]).is_ok());
            }
            Operation::Abandon(side, which) => {
                let it = &mut self.sides[usize::from(side)];
                if let Some(&id) = pick(&it.connections, which) {
                    it.cm.abandon(now, id);
                    it.over.insert(id);
                }
            }
            Operation::SidrRequest(..)
            | Operation::SidrReply(..)
            | Operation::SidrAbandon(..)
            | Operation::Listen(..)
            | Operation::Unlisten(..) => self.apply_services(operation),
            Operation::Wait(code) => {
                // Up to 9 minutes, in powers of two.
                self.now = now + Duration::from_nanos(4096 << (code % 28));
                for side in &mut self.sides {
                    side.cm.handle_timeout(self.now);
                }
            }
            _ => self.apply_channel(operation),
        }
    }

    fn apply_services(&mut self, operation: &Operation) {
        let now = self.now;
        match *operation {
            Operation::SidrRequest(side, port) => {
                let it = &mut self.sides[usize::from(side)];
                let request = SidrRequest {
                    route: route(side),
                    service_id: service(port),
                    ip: None,
                    pkey: DEFAULT_PKEY,
                    response_timeout: 16,
                    max_cm_retries: 3,
                    private_data: &[],
                };
                it.requests.extend(it.cm.sidr_request(now, &request));
            }
            Operation::SidrReply(side, which, status) => {
                let it = &mut self.sides[usize::from(side)];
                if let Some(&id) = pick(&it.requests, which) {
                    let reply = SidrReply {
                        status: SidrStatus(status),
                        qpn: Qpn::new(3),
                        qkey: 7,
                        ece: Ece::default(),
                        information: &[],
                        private_data: &[3; 136],
                    };
                    let done = it.cm.sidr_reply(now, id, &reply).is_ok();
                    self.features.add(0x300 | u32::from(done));
                }
            }
            Operation::SidrAbandon(side, which) => {
                let it = &mut self.sides[usize::from(side)];
                if let Some(&id) = pick(&it.requests, which) {
                    it.cm.sidr_abandon(now, id);
                }
            }
            Operation::Listen(side, kind) => {
                let it = &mut self.sides[usize::from(side)];
                it.listeners.extend(it.cm.listen(listen(kind)));
            }
            Operation::Unlisten(side, which) => {
                let it = &mut self.sides[usize::from(side)];
                if let Some(&id) = pick(&it.listeners, which) {
                    it.cm.unlisten(id);
                }
            }
            _ => {}
        }
    }

    fn apply_channel(&mut self, operation: &Operation) {
        match *operation {
            Operation::Deliver(from, which) => {
                if let Some(mad) = take(&mut self.sides[usize::from(from)].out, which) {
                    self.deliver(from, &mad);
                }
            }
            Operation::DeliverAll(from) => {
                for mad in std::mem::take(&mut self.sides[usize::from(from)].out) {
                    self.deliver(from, &mad);
                }
            }
            Operation::Drop(from, which) => {
                take(&mut self.sides[usize::from(from)].out, which);
            }
            Operation::Repeat(from, which) => {
                let out = &mut self.sides[usize::from(from)].out;
                if let Some(mad) = pick(out, which).cloned() {
                    out.push(mad);
                }
            }
            Operation::Change(from, which, at, value) => {
                if let Some(mad) = pick_mut(&mut self.sides[usize::from(from)].out, which) {
                    mad[usize::from(at)] = value;
                }
            }
            Operation::Kind(from, which, kind) => {
                if let Some(mad) = pick_mut(&mut self.sides[usize::from(from)].out, which) {
                    mad[17] = 0x10 + kind % 12;
                }
            }
            Operation::Invent(from, kind) => {
                if let Some(mad) = pick(&cm_mad::seeds(), kind) {
                    self.deliver(from, mad);
                }
            }
            _ => {}
        }
    }

    /// Calls something with one of the names that the program has had, also with old ones.
    fn on(&mut self, side: bool, which: u8, call: impl FnOnce(&mut Cm, ConnectionId) -> bool) {
        let it = &mut self.sides[usize::from(side)];
        if let Some(&id) = pick(&it.connections, which) {
            let state = it.cm.state(id).map_or(0, |state| state as u32 + 1);
            let done = call(&mut it.cm, id);
            self.features.add(0x100 | state << 1 | u32::from(done));
        }
    }

    fn deliver(&mut self, from: bool, mad: &[u8]) {
        let to = !from;
        if let Ok(parsed) = CmMad::parse(mad) {
            // Which message meets which state: the second word is the receiver's name.
            let name = mad.get(28..32).and_then(|word| word.try_into().ok());
            let name = ConnectionId(name.map_or(0, u32::from_be_bytes));
            let state = self.sides[usize::from(to)].cm.state(name);
            let state = state.map_or(0, |state| state as u32 + 1);
            self.features
                .add(0x400 | (parsed.message.id() as u32 & 0xf) << 4 | state);
        }
        self.sides[usize::from(to)]
            .cm
            .handle_mad(self.now, &route(to), mad);
    }

    /// Takes what both sides send and tell.
    fn collect(&mut self) {
        for side in &mut self.sides {
            while let Some((_, mad)) = side.cm.poll_transmit() {
                let parsed = CmMad::parse(&mad).expect("our own message");
                self.features.add(0x200 | parsed.message.id() as u32);
                if let Message::Rej(rej) = parsed.message {
                    assert_ne!(rej.message, RejectedMessage::Reserved);
                }
                if side.out.len() < CHANNEL_MAX {
                    side.out.push(mad.to_vec());
                }
            }
            while let Some(event) = side.cm.poll_event() {
                self.features.add(0x600 | kind(&event));
                side.hear(event);
            }
            assert!(side.cm.records() <= OPEN_MAX + CLOSED_MAX);
        }
    }

    /// Both programs lose interest; after a while nobody remembers anything.
    fn finish(&mut self) {
        for side in &mut self.sides {
            for &id in &side.connections {
                side.cm.abandon(self.now, id);
                side.over.insert(id);
            }
            for &id in &side.requests {
                side.cm.sidr_abandon(self.now, id);
            }
        }
        self.collect();
        for _ in 0..10_000 {
            let due = self.sides.iter().filter_map(|side| side.cm.poll_timeout());
            let Some(next) = due.min() else {
                break;
            };
            assert!(next >= self.now, "a deadline in the past");
            self.now = next;
            for side in &mut self.sides {
                side.cm.handle_timeout(next);
            }
            self.collect();
        }
        for side in &self.sides {
            assert_eq!(side.cm.poll_timeout(), None, "it never ends");
            assert_eq!(side.cm.records(), 0, "a leak");
        }
    }
}

impl Side {
    fn hear(&mut self, event: CmEvent) {
        let last = matches!(
            event,
            CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::TimewaitExit { .. }
        );
        match event {
            CmEvent::Request { connection, .. } => {
                self.over.remove(&connection);
                self.connections.push(connection);
            }
            CmEvent::SidrRequest { request_id, .. } => self.requests.push(request_id),
            CmEvent::SidrReply { .. } | CmEvent::SidrUnreachable { .. } => {}
            CmEvent::Reply { connection, .. }
            | CmEvent::Established { connection, .. }
            | CmEvent::Rejected { connection, .. }
            | CmEvent::Unreachable { connection }
            | CmEvent::Disconnected { connection, .. }
            | CmEvent::TimewaitExit { connection } => {
                assert!(!self.over.contains(&connection), "{connection:?} is over");
                if last {
                    self.over.insert(connection);
                }
            }
        }
    }
}

fn kind(event: &CmEvent) -> u32 {
    match event {
        CmEvent::Request { .. } => 0,
        CmEvent::Reply { .. } => 1,
        CmEvent::Established { ready, .. } => 2 + u32::from(ready.is_some()),
        CmEvent::Rejected { .. } => 4,
        CmEvent::Unreachable { .. } => 5,
        CmEvent::Disconnected { how, .. } => match how {
            Disconnect::Asked(_) => 6,
            Disconnect::Answered(_) => 7,
            Disconnect::Unanswered => 8,
            Disconnect::Rejected(_) => 9,
            Disconnect::Stale => 10,
        },
        CmEvent::TimewaitExit { .. } => 11,
        CmEvent::SidrRequest { .. } => 12,
        CmEvent::SidrReply { .. } => 13,
        CmEvent::SidrUnreachable { .. } => 14,
    }
}

fn pick<T>(items: &[T], which: u8) -> Option<&T> {
    items.get(usize::from(which).checked_rem(items.len())?)
}

fn pick_mut<T>(items: &mut [T], which: u8) -> Option<&mut T> {
    let index = usize::from(which).checked_rem(items.len())?;
    items.get_mut(index)
}

fn take<T>(items: &mut Vec<T>, which: u8) -> Option<T> {
    let index = usize::from(which).checked_rem(items.len())?;
    Some(items.remove(index))
}

fn route(side: bool) -> Route {
    let (local, remote) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (local, remote) = if side {
        (remote, local)
    } else {
        (local, remote)
    };
    Route {
        local: local.into(),
        remote: remote.into(),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        scope_id: 0,
    }
}

fn service(port: u8) -> ServiceId {
    ServiceId::from_port(PortSpace::Tcp, u16::from(port % 4))
}

fn listen(kind: u8) -> Listen {
    Listen {
        service_id: service(kind >> 2),
        address: match kind % 4 {
            0 => ListenAddress::Any,
            1 => ListenAddress::AnyV4,
            2 => ListenAddress::AnyV6,
            _ => ListenAddress::Exactly([10, 0, 0, 2].into()),
        },
        backlog: 3,
    }
}

fn request(route: Route, kind: u8, qpn: u8) -> Connect<'static> {
    let number = Qpn::new(u32::from(qpn & 7));
    Connect {
        transport: match kind >> 6 {
            0 | 1 => Transport::Rc,
            2 => Transport::Xrc,
            _ => Transport::Reserved(kind & 7),
        },
        remote_cm_response_timeout: kind & 31,
        local_cm_response_timeout: kind & 31,
        max_cm_retries: qpn >> 4,
        ..Connect::new(route, service(kind >> 4), number, Psn::new(0))
    }
}

/// A connection that lives and ends, one that is refused, and a datagram's queue pair.
pub fn seeds() -> Vec<Vec<u8>> {
    let (connect, accept, refuse, establish, disconnect) = (0, 1, 2, 3, 6);
    let (sidr_request, sidr_reply, all, wait) = (8, 9, 14, 20);
    let life: [&[u8]; 10] = [
        &[connect, 0, 18, 0x11],
        &[all, 0],
        &[accept, 1, 0, 2],
        &[all, 1],
        &[establish, 0, 0],
        &[all, 0],
        &[disconnect, 1, 0],
        &[all, 1],
        &[all, 0],
        &[wait, 27],
    ];
    let refused: [&[u8]; 5] = [
        &[connect, 0, 18, 0x11],
        &[all, 0],
        &[refuse, 1, 0, 28],
        &[all, 1],
        &[wait, 20],
    ];
    let datagram: [&[u8]; 4] = [
        &[sidr_request, 0, 0],
        &[all, 0],
        &[sidr_reply, 1, 0, 0],
        &[all, 1],
    ];
    vec![life.concat(), refused.concat(), datagram.concat()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_what_they_are_for() {
        let seen: Vec<Vec<u32>> = seeds().iter().map(|s| run(s).iter().collect()).collect();
        // REQ, REP, RTU, DREQ, DREP.
        for id in [0x210, 0x213, 0x214, 0x215, 0x216] {
            assert!(seen[0].contains(&id), "{id:#x} in {:x?}", seen[0]);
        }
        assert!(seen[1].contains(&0x212), "{:x?}", seen[1]);
        assert!(seen[2].contains(&0x218), "{:x?}", seen[2]);
    }
}
