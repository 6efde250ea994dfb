//! Many to one, and everyone to another: completion, shares, queues, and a flow that only passes
//! by.

use super::{
    LINE, Outcome, PACKET_BYTES, PerMille, ROUND_TRIP, START, Table, Transport, longest_queue,
    placed_between, rate_of,
};
use crate::{
    Fabric, Flow, FlowId, HostId, LeafSpine, Operation, Random, Samples, Span, Time, World,
};

/// Bytes of each sender's message.
const MESSAGE_BYTES: u32 = 2_000_000;

/// Packets of each sender by which shares are judged: fewer say nothing.
const SHARE_PACKETS: u64 = 20;

/// Ten times what the largest incast takes.
const LIMIT: Time = Time::from_micros(230_000);

/// An incast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IncastCase {
    /// Senders, or servers that are read from.
    pub senders: u32,
    /// WRITE: all send to one. READ: one reads from all.
    pub operation: Operation,
    /// A flow to the neighbour of the receiver runs all the time.
    pub has_victim: bool,
}

/// What became of an incast.
#[derive(Clone, Debug)]
pub struct Incast {
    /// What it was.
    pub case: IncastCase,
    /// Time until the last message completed.
    pub completion: Option<Span>,
    /// The least and the largest share of a sender, of its fair share, in any window after
    /// two round trips.
    pub shares: (PerMille, PerMille),
    /// Bytes that waited for the receiver's link, at most.
    pub queue_max: u64,
    /// Packets dropped by full queues.
    pub dropped: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// What the victim got during the incast, of what it gets alone.
    pub victim: Option<PerMille>,
    /// The first error.
    pub error: Option<&'static str>,
    /// For pictures: bytes placed per sender, and bytes that waited for the receiver's link.
    pub samples: Samples,
}

/// 2 MB from each of many senders to one receiver, all at once, in a leaf-spine network of
/// 100 Gb/s and 12 µs.
///
/// # Errors
/// A broken promise of the transport.
pub fn incast(transport: &Transport, case: IncastCase, seed: u64) -> Outcome<Incast> {
    let fabric = incast_fabric(case.senders);
    let receiver = HostId(0);
    let watched = fabric.edges[0][0].backward();
    let mut world = transport.world(&fabric, "incast", seed);
    let hosts = fabric.topology.host_count();
    let flows: Vec<FlowId> = (hosts - case.senders..hosts)
        .map(|sender| {
            let (requester, responder) = match case.operation {
                Operation::Read => (receiver, HostId(sender)),
                Operation::Write | Operation::Send => (HostId(sender), receiver),
            };
            world.add_flow(&Flow {
                operation: case.operation,
                start: START,
                ..Flow::write(requester, responder, MESSAGE_BYTES)
            })
        })
        .collect();
    let victim = case
        .has_victim
        .then(|| world.add_flow(&victim_flow(&fabric)));
    world.sample_every(ROUND_TRIP, &[watched]);
    while flows.iter().any(|&flow| !world.result(flow).is_over()) && world.now() < LIMIT {
        let until = world.now() + ROUND_TRIP;
        world.run_until(until)?;
    }
    let finished = flows.iter().map(|&flow| world.result(flow).finished);
    let completion = finished.collect::<Option<Vec<Time>>>();
    let completion = completion.and_then(|times| times.into_iter().max());
    let completion = completion.map(|end| end.since(START));
    let victim = match victim {
        Some(flow) => Some(victim_share(transport, &fabric, &world, flow, seed)?),
        None => None,
    };
    Ok(Incast {
        case,
        completion,
        shares: shares(&world, &flows),
        queue_max: longest_queue(&world, [watched]),
        dropped: world.network().total().dropped_full,
        retransmitted: world.total_statistics().retransmitted,
        victim,
        error: world.results().find_map(|result| result.error),
        samples: world.samples().clone(),
    })
}

/// Room for all senders, the receiver, and the two ends of a victim: host 0 receives, its
/// neighbour host 1 is the victim's receiver, and the first host of the second leaf its sender.
fn incast_fabric(senders: u32) -> Fabric {
    let per_leaf = if senders < 32 { 6 } else { 20 };
    let leaves = (senders + 3).div_ceil(per_leaf) + 1;
    LeafSpine::new(leaves, per_leaf, LINE, ROUND_TRIP).build()
}

/// A flow without an end between hosts that have no part in the incast.
fn victim_flow(fabric: &Fabric) -> Flow {
    let first_leaf = fabric.uplinks[0][0].len() as u32;
    Flow {
        messages: 1 << 20,
        depth: 8,
        ..Flow::write(HostId(first_leaf), HostId(1), 1 << 20)
    }
}

/// The victim's goodput, of what it is when it is alone for as long.
fn victim_share(
    transport: &Transport,
    fabric: &Fabric,
    world: &World,
    flow: FlowId,
    seed: u64,
) -> Outcome<PerMille> {
    let mut alone = transport.world(fabric, "incast", seed);
    let twin = alone.add_flow(&victim_flow(fabric));
    alone.run_until(world.now())?;
    Ok(PerMille::of(
        world.result(flow).placed,
        alone.result(twin).placed,
    ))
}

/// The least and the largest share over all windows from two round trips after the start until
/// the first sender has finished. A window is a round trip, or long enough for some packets of
/// each sender.
fn shares(world: &World, flows: &[FlowId]) -> (PerMille, PerMille) {
    let finished = flows.iter().filter_map(|&flow| world.result(flow).finished);
    let end = finished.min().unwrap_or_else(|| world.now());
    let all = LINE.span_of(PACKET_BYTES * SHARE_PACKETS) * flows.len() as u64;
    let round_trips = all.picos().div_ceil(ROUND_TRIP.picos());
    let window = ROUND_TRIP * round_trips;
    let mut from = START + ROUND_TRIP * 2;
    let (mut least, mut largest) = (u64::MAX, 0);
    while from + window <= end {
        let to = from + window;
        let placed = |&flow: &FlowId| placed_between(world.samples(), flow, from, to);
        let placed: Vec<u64> = flows.iter().map(placed).collect();
        let total: u64 = placed.iter().sum();
        for bytes in placed {
            let share = PerMille::of(bytes * flows.len() as u64, total).0;
            (least, largest) = (least.min(share), largest.max(share));
        }
        from = to;
    }
    (PerMille(least.min(largest)), PerMille(largest))
}

/// What became of a permutation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permutation {
    /// Hosts.
    pub hosts: u32,
    /// Time until the last message completed.
    pub completion: Option<Span>,
    /// Time until the first one did.
    pub first: Option<Span>,
    /// Packets dropped by full queues.
    pub dropped: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

/// 16 hosts under four leaves, each sends 2 MB to another one, all at once.
///
/// # Errors
/// A broken promise of the transport.
pub fn permutation(transport: &Transport, seed: u64) -> Outcome<Permutation> {
    let fabric = LeafSpine::new(4, 4, LINE, ROUND_TRIP).build();
    let mut world = transport.world(&fabric, "permutation", seed);
    // One ring through all hosts in random order: no host sends to itself.
    let mut order: Vec<HostId> = fabric.hosts().collect();
    Random::new(seed, 0).shuffle(&mut order);
    for (index, &host) in order.iter().enumerate() {
        let next = order[(index + 1) % order.len()];
        world.add_flow(&Flow {
            start: START,
            ..Flow::write(host, next, MESSAGE_BYTES)
        });
    }
    let is_over = world.run(LIMIT)?;
    let finished = || {
        let ends = world.results().filter_map(|result| result.finished);
        ends.map(|end| end.since(START))
    };
    Ok(Permutation {
        hosts: fabric.topology.host_count(),
        completion: finished().max().filter(|_| is_over),
        first: finished().min(),
        dropped: world.network().total().dropped_full,
        retransmitted: world.total_statistics().retransmitted,
    })
}

/// The least time in which `senders` messages pass the receiver's link, payload alone.
const fn ideal(senders: u32) -> Span {
    LINE.span_of(MESSAGE_BYTES as u64).times(senders as u64)
}

impl Incast {
    /// An empty table.
    pub fn table() -> Table {
        Table::new(
            "Incast: 2 MB from each to one, 100 Gb/s, 12 µs (shares: least and largest of a \
             sender's fair share after 2 round trips)",
            &[
                "transport",
                "incast",
                "µs",
                "ideal µs",
                "shares",
                "queue KiB",
                "dropped",
                "sent again",
                "victim",
                "payload of line",
            ],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        let kind = match self.case.operation {
            Operation::Read => "READ",
            Operation::Write => "WRITE",
            Operation::Send => "SEND",
        };
        let bytes = u64::from(MESSAGE_BYTES) * u64::from(self.case.senders);
        let of_line = self.completion.map(|span| {
            let rate = rate_of(bytes, span);
            PerMille::of(rate, transport.payload_rate(LINE))
        });
        vec![
            transport.name().to_owned(),
            format!("{}:1 {kind}", self.case.senders),
            micros(self.completion, self.error),
            format!("{:.0}", ideal(self.case.senders).as_micros()),
            format!("{} to {}", self.shares.0, self.shares.1),
            (self.queue_max >> 10).to_string(),
            self.dropped.to_string(),
            self.retransmitted.to_string(),
            self.victim
                .map_or_else(|| "none".to_owned(), |share| share.to_string()),
            of_line.map_or_else(String::new, |part| part.to_string()),
        ]
    }
}

impl Permutation {
    /// An empty table.
    pub fn table() -> Table {
        Table::new(
            "Permutation: 2 MB from each of 16 hosts to another, 100 Gb/s, 12 µs, 4 leaves, 4 \
             spines",
            &["transport", "µs", "first µs", "dropped", "sent again"],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        vec![
            transport.name().to_owned(),
            micros(self.completion, None),
            micros(self.first, None),
            self.dropped.to_string(),
            self.retransmitted.to_string(),
        ]
    }
}

fn micros(time: Option<Span>, error: Option<&str>) -> String {
    match time {
        Some(time) => format!("{:.1}", time.as_micros()),
        None => error.unwrap_or("not finished").to_owned(),
    }
}
