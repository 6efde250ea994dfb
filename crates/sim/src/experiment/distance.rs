//! Long distance: one flow over a millisecond and more, and two flows of different length that
//! end in the same receiver.

use super::{
    LINE, Outcome, PerMille, Table, Transport, gigabits, paths::busiest, placed_between, rate_of,
};
use crate::{
    Action, Chance, EcnRamp, Fabric, Fault, Flow, FlowId, HostId, Impairment, LeafSpine,
    LinkConfig, Node, Span, SwitchConfig, Time, Topology,
};

/// Round trips before measuring begins, and until it ends.
const WARM_UP: u64 = 10;
const MEASURED: u64 = 20;

/// One flow over a long distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongDistance {
    /// Round trip.
    pub round_trip: Span,
    /// On one of 8 ways, in both directions.
    pub loss: Chance,
    /// Payload bytes per second, after ten round trips.
    pub goodput: u64,
    /// Of what the line carries of payload.
    pub of_line: PerMille,
    /// Packets sent again.
    pub retransmitted: u64,
    /// How it failed, if it did.
    pub error: Option<&'static str>,
}

/// Switch queues at long distance: those of a data centre, not of the distance.
const SWITCH: SwitchConfig = SwitchConfig {
    buffer: 64 << 20,
    queue_max: 4 << 20,
    threshold: (8, 1),
    ecn: Some(EcnRamp {
        min: 100_000,
        max: 400_000,
        chance_max: Chance::percent(100),
    }),
    ecmp: crate::EcmpRule::Hash,
};

/// A flow without an end over eight spines, one of which loses packets.
///
/// # Errors
/// A broken promise of the transport.
pub fn long_distance(
    transport: &Transport,
    round_trip: Span,
    loss: Chance,
    seed: u64,
) -> Outcome<LongDistance> {
    let shape = LeafSpine::new(2, 1, LINE, round_trip);
    let fabric = shape
        .with(|shape| (shape.spines, shape.switch) = (8, SWITCH))
        .build();
    let mut world = transport.world(&fabric, "distance", seed);
    let flow = world.add_flow(&endless(0, 1));
    world.sample_every(round_trip, &[]);
    // A transport of one path is to be hit, too: the spine that carries most loses packets.
    world.run_until(Time::ZERO + round_trip * (WARM_UP / 2))?;
    let spine = busiest(&world, &fabric);
    for leaf in &fabric.uplinks[0] {
        let action = Action::Impair(leaf[spine].forward(), Impairment::loss(loss));
        let at = world.now();
        world.add_fault(Fault { at, action });
    }
    let begin = Time::ZERO + round_trip * WARM_UP;
    let end = begin + round_trip * MEASURED;
    world.run_until(end)?;
    let placed = placed_between(world.samples(), flow, begin, end);
    let goodput = rate_of(placed, end.since(begin));
    Ok(LongDistance {
        round_trip,
        loss,
        goodput,
        of_line: PerMille::of(goodput, transport.payload_rate(LINE)),
        retransmitted: world.total_statistics().retransmitted,
        error: world.result(flow).error,
    })
}

/// Enough messages under way to fill the longest line.
fn endless(requester: u32, responder: u32) -> Flow {
    Flow {
        messages: 1 << 30,
        depth: 256,
        ..Flow::write(HostId(requester), HostId(responder), 4 << 20)
    }
}

/// How two flows of different length share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharing {
    /// Payload bytes per second of the flow with the long round trip.
    pub long: u64,
    /// And of the one with the short round trip.
    pub short: u64,
    /// The part of the long one.
    pub part_of_long: PerMille,
    /// Both, of what the line carries of payload.
    pub of_line: PerMille,
    /// Packets dropped by full queues.
    pub dropped: u64,
    /// Whether they meet in a link of the core, and not only at the receiver's port.
    pub in_core: bool,
}

/// Two flows, one of 10 ms and one of 1 ms, that end in the same receiver, or that only share a
/// link of the core.
///
/// # Errors
/// A broken promise of the transport.
pub fn sharing(transport: &Transport, in_core: bool, seed: u64) -> Outcome<Sharing> {
    let (long, short) = (Span::from_micros(10_000), Span::from_micros(1_000));
    let fabric = sharing_fabric(long, short, in_core);
    let mut world = transport.world(&fabric, "sharing", seed);
    let receivers = if in_core { [2, 3] } else { [2, 2] };
    let flows: Vec<FlowId> = [0, 1]
        .into_iter()
        .zip(receivers)
        .map(|(sender, receiver)| world.add_flow(&endless(sender, receiver)))
        .collect();
    world.sample_every(short, &[]);
    let begin = Time::ZERO + long * WARM_UP;
    let end = begin + long * MEASURED;
    world.run_until(end)?;
    let goodput = |flow| {
        let placed = placed_between(world.samples(), flow, begin, end);
        rate_of(placed, end.since(begin))
    };
    let (long, short) = (goodput(flows[0]), goodput(flows[1]));
    Ok(Sharing {
        long,
        short,
        part_of_long: PerMille::of(long, long + short),
        of_line: PerMille::of(long + short, transport.payload_rate(LINE)),
        dropped: world.network().total().dropped_full,
        in_core,
    })
}

/// Two senders, two receivers, two switches. A sender's own link makes its distance. Eight links
/// join the switches when the receiver is where flows meet, one when the core is.
fn sharing_fabric(long: Span, short: Span, in_core: bool) -> Fabric {
    let near = Span::from_micros(1);
    let mut topology = Topology::new();
    let [left, right] = [(); 2].map(|()| topology.add_switch(SWITCH));
    let mut edges = Vec::new();
    let rest = near.picos() * 4;
    let delays = [long, short].map(|whole| Span::from_picos((whole.picos() - rest) / 2));
    let [long, short] = delays;
    for (delay, switch) in [(long, left), (short, left), (near, right), (near, right)] {
        let host = topology.add_host();
        let config = LinkConfig { rate: LINE, delay };
        edges.push(topology.connect(Node::Host(host), Node::Switch(switch), config));
    }
    let config = LinkConfig {
        rate: LINE,
        delay: near,
    };
    let links = if in_core { 1 } else { 8 };
    let core = (0..links)
        .map(|_| topology.connect(Node::Switch(left), Node::Switch(right), config))
        .collect();
    Fabric {
        topology,
        edges: vec![edges],
        uplinks: vec![vec![core]],
    }
}

impl LongDistance {
    /// An empty table.
    pub fn table() -> Table {
        Table::new(
            "Long distance: a long flow, 100 Gb/s, 8 spines, loss on one of them; goodput after 10 \
             round trips",
            &[
                "transport",
                "round trip",
                "loss",
                "Gb/s",
                "of the line",
                "sent again",
                "end",
            ],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        vec![
            transport.name().to_owned(),
            format!("{:.0} µs", self.round_trip.as_micros()),
            self.loss.to_string(),
            gigabits(self.goodput),
            self.of_line.to_string(),
            self.retransmitted.to_string(),
            self.error.unwrap_or("well").to_owned(),
        ]
    }
}

impl Sharing {
    /// An empty table.
    pub fn table() -> Table {
        Table::new(
            "Sharing: flows of 10 ms and 1 ms, 100 Gb/s, after 100 ms",
            &[
                "transport",
                "they share",
                "10 ms Gb/s",
                "1 ms Gb/s",
                "part of 10 ms",
                "of the line",
                "dropped",
            ],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        let place = if self.in_core {
            "a core link"
        } else {
            "the receiver's port"
        };
        vec![
            transport.name().to_owned(),
            place.to_owned(),
            gigabits(self.long),
            gigabits(self.short),
            self.part_of_long.to_string(),
            self.of_line.to_string(),
            self.dropped.to_string(),
        ]
    }
}
