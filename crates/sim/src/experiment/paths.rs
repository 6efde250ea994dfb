//! Ways that fail, slow down, reorder or move under a long flow, and several planes.

use super::{
    LINE, Outcome, PerMille, ROUND_TRIP, Table, Transport, gigabits, loss::two_hosts,
    placed_between, rate_of,
};
use crate::{
    Action, Chance, Fabric, Fault, Flow, FlowId, HostId, Impairment, LeafSpine, LinkId, Rate,
    Samples, Span, Time, World,
};

/// What happens to the ways between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathCase {
    /// The busiest of 8 spines is dead, and nobody is told.
    OneDead,
    /// The links of the busiest of 8 spines run at a quarter of their rate.
    OneSlow,
    /// The busiest of 8 spines delays a tenth of its packets by up to 10 µs.
    OneReorders,
    /// Every flow moves to another way, every 50 µs.
    RouteMoves,
    /// All ways of one plane of 4 are dead.
    OnePlaneDead,
}

impl PathCase {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OneDead,
        Self::OneSlow,
        Self::OneReorders,
        Self::RouteMoves,
        Self::OnePlaneDead,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneDead => "one of 8 ways dead",
            Self::OneSlow => "one of 8 ways at a quarter of its rate",
            Self::OneReorders => "one of 8 ways reorders",
            Self::RouteMoves => "routes move every 50 µs",
            Self::OnePlaneDead => "one plane of 4 dead",
        }
    }
}

/// When trouble begins and ends, and the run ends.
const TROUBLE: Time = Time::from_micros(600);
const REPAIR: Time = Time::from_micros(1800);
const END: Time = Time::from_micros(3600);
/// A transport is judged from 20 round trips after each change.
const GRACE: Span = Span::from_micros(240);
/// Time from one sample to the next.
const SAMPLE: Span = ROUND_TRIP;

/// A long flow before, in and after the trouble.
#[derive(Clone, Debug)]
pub struct PathRun {
    /// What happened.
    pub case: PathCase,
    /// Goodput before, in payload bytes per second.
    pub before: u64,
    /// Goodput in the trouble, from 20 round trips after it began.
    pub during: u64,
    /// What the surviving ways could carry then.
    pub capacity: u64,
    /// Goodput after the repair, from 20 round trips on.
    pub after: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// How the flow failed, if it did.
    pub error: Option<&'static str>,
    /// For pictures.
    pub samples: Samples,
}

/// A flow of 1 MiB messages without an end while ways fail and come back.
///
/// # Errors
/// A broken promise of the transport.
pub fn paths(transport: &Transport, case: PathCase, seed: u64) -> Outcome<PathRun> {
    let fabric = match case {
        PathCase::OnePlaneDead => with_planes(4),
        _ => two_hosts(),
    };
    let mut world = transport.world(&fabric, "paths", seed);
    let flow = world.add_flow(&endless(0, 1));
    let lines = fabric.edges.len() as u64;
    let surviving = match case {
        PathCase::OnePlaneDead => lines - 1,
        // The other spines carry all that one host's link can.
        _ => lines,
    };
    world.sample_every(SAMPLE, &[]);
    world.run_until(Time::from_picos(TROUBLE.picos() - 1))?;
    for fault in faults(case, &fabric, busiest(&world, &fabric)) {
        world.add_fault(fault);
    }
    world.run_until(END)?;
    let between = |from, to: Time| {
        let placed = placed_between(world.samples(), flow, from, to);
        rate_of(placed, to.since(from))
    };
    Ok(PathRun {
        case,
        before: between(Time::ZERO + GRACE, TROUBLE),
        during: between(TROUBLE + GRACE, REPAIR),
        capacity: transport.payload_rate(LINE) * surviving,
        after: between(REPAIR + GRACE, END),
        retransmitted: world.total_statistics().retransmitted,
        error: world.result(flow).error,
        samples: world.samples().clone(),
    })
}

fn endless(requester: u32, responder: u32) -> Flow {
    Flow {
        messages: 1 << 30,
        depth: 32,
        ..Flow::write(HostId(requester), HostId(responder), 1 << 20)
    }
}

/// The spine that has carried most: a transport of one path is to be hit, too.
pub(super) fn busiest(world: &World, fabric: &Fabric) -> usize {
    let ways = fabric.uplinks[0][0].iter().enumerate();
    let bytes = |&(_, link): &(usize, &LinkId)| world.network().statistics(link.forward()).bytes;
    ways.max_by_key(bytes).map_or(0, |(spine, _)| spine)
}

fn faults(case: PathCase, fabric: &Fabric, spine: usize) -> Vec<Fault> {
    let spine: Vec<_> = fabric.uplinks[0].iter().map(|leaf| leaf[spine]).collect();
    let both = |begin: Action, end: Action| {
        [(TROUBLE, begin), (REPAIR, end)].map(|(at, action)| Fault { at, action })
    };
    match case {
        PathCase::OneDead => {
            let links = spine.into_iter();
            links
                .flat_map(|link| both(Action::Down(link), Action::Up(link)))
                .collect()
        }
        PathCase::OneSlow => spine
            .into_iter()
            .flat_map(|link| {
                let slow = Action::Rate(link, LINE.divided_by(4));
                both(slow, Action::Rate(link, LINE))
            })
            .collect(),
        PathCase::OneReorders => {
            let impairment = Impairment {
                reordering: Chance::percent(10),
                reordering_max: Span::from_micros(10),
                ..Impairment::default()
            };
            let channels = spine.into_iter().flat_map(|link| link.channels());
            channels
                .flat_map(|channel| {
                    let begin = Action::Impair(channel, impairment);
                    both(begin, Action::Impair(channel, Impairment::default()))
                })
                .collect()
        }
        PathCase::RouteMoves => {
            let count = REPAIR.since(TROUBLE).picos() / Span::from_micros(50).picos();
            let at = |round| TROUBLE + Span::from_micros(50) * round;
            let action = Action::Rehash;
            (0..count)
                .map(|round| Fault {
                    at: at(round),
                    action,
                })
                .collect()
        }
        PathCase::OnePlaneDead => {
            let links = fabric.uplinks[0].iter().flatten();
            links
                .flat_map(|&link| both(Action::Down(link), Action::Up(link)))
                .collect()
        }
    }
}

/// Two hosts with a port in every plane, a leaf each, and four spines per plane.
fn with_planes(planes: u32) -> Fabric {
    let shape = LeafSpine::new(2, 1, LINE, ROUND_TRIP);
    shape
        .with(|shape| (shape.planes, shape.spines) = (planes, 4))
        .build()
}

/// Throughput over several planes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planes {
    /// Planes.
    pub planes: u32,
    /// Goodput, payload bytes per second.
    pub goodput: u64,
    /// Of what the lines of all planes carry of payload.
    pub of_lines: PerMille,
}

/// A flow without an end between two hosts with a link of 100 Gb/s in each plane.
///
/// # Errors
/// A broken promise of the transport.
pub fn planes(transport: &Transport, planes: u32, seed: u64) -> Outcome<Planes> {
    const BEGIN: Time = Time::from_micros(240);
    const END: Time = Time::from_micros(720);
    let fabric = with_planes(planes);
    let mut world: World = transport.world(&fabric, "planes", seed);
    let flow: FlowId = world.add_flow(&endless(0, 1));
    world.sample_every(SAMPLE, &[]);
    world.run_until(END)?;
    let placed = placed_between(world.samples(), flow, BEGIN, END);
    let goodput = rate_of(placed, END.since(BEGIN));
    let line: Rate = LINE;
    let lines = transport.payload_rate(line) * u64::from(planes);
    Ok(Planes {
        planes,
        goodput,
        of_lines: PerMille::of(goodput, lines),
    })
}

impl PathRun {
    /// An empty table.
    pub fn table() -> Table {
        Table::new(
            "Paths: a long flow, 100 Gb/s per plane, 12 µs (goodput as Gb/s; in trouble and after \
             it: from 20 round trips on)",
            &[
                "transport",
                "trouble",
                "before",
                "in trouble",
                "of capacity",
                "after",
                "sent again",
                "end",
            ],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        vec![
            transport.name().to_owned(),
            self.case.name().to_owned(),
            gigabits(self.before),
            gigabits(self.during),
            PerMille::of(self.during, self.capacity).to_string(),
            gigabits(self.after),
            self.retransmitted.to_string(),
            self.error.unwrap_or("well").to_owned(),
        ]
    }
}

impl Planes {
    /// An empty table.
    pub fn table() -> Table {
        Table::new(
            "Planes: a long flow over planes of 100 Gb/s each, 12 µs",
            &["transport", "planes", "Gb/s", "of all lines"],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        vec![
            transport.name().to_owned(),
            self.planes.to_string(),
            gigabits(self.goodput),
            self.of_lines.to_string(),
        ]
    }
}
