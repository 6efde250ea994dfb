//! The questions that transports are judged by, each as a function of transport and seed.
//!
//! All of them use links of 100 Gb/s and packets of 4 KiB; figures are in simulated time, so they
//! are exact for a seed. `cargo run --release -p feroce-sim --example experiments` prints them as
//! tables; the tests hold them against their bounds.

mod distance;
mod incast;
mod loss;
mod paths;
mod table;

pub use distance::{LongDistance, Sharing, long_distance, sharing};
pub use incast::{Incast, IncastCase, Permutation, incast, permutation};
pub use loss::{LossPoint, loss};
pub use paths::{PathCase, PathRun, Planes, paths, planes};
pub use table::Table;

use crate::{
    ChannelId, Endpoint, FRAMING_BYTES, Fabric, FlowId, HostId, MetaroceHost, MetaroceSettings,
    Rate, Roce, RoceSettings, Samples, Span, Time, Topology, Violation, World,
};

/// The rate of every host's link.
pub const LINE: Rate = Rate::gigabits(100);

/// The round trip of an empty network, without the time packets take.
pub const ROUND_TRIP: Span = Span::from_micros(12);

/// Payload bytes of a full packet.
pub const PACKET_BYTES: u64 = 4096;

/// When messages are posted: by then connections are open, as they are when a program runs.
pub const START: Time = Time::from_micros(240);

/// A transport to be judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    /// MetaRoCE as published by Meta, Feroce wire format v0.
    Metaroce(Box<MetaroceSettings>),
    /// RoCEv2: go-back-N, one path.
    Roce(RoceSettings),
}

impl Transport {
    /// MetaRoCE with the usual settings for [`LINE`].
    pub fn metaroce() -> Self {
        Self::Metaroce(Box::new(MetaroceSettings::new(LINE)))
    }

    /// RoCEv2 with the usual settings for [`LINE`].
    pub fn roce() -> Self {
        Self::Roce(RoceSettings::new(LINE))
    }

    /// Its name in tables.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Metaroce(_) => "MetaRoCE",
            Self::Roce(_) => "RoCEv2",
        }
    }

    /// How a command line names it.
    pub const fn argument(&self) -> &'static str {
        match self {
            Self::Metaroce(_) => "mroce",
            Self::Roce(_) => "roce",
        }
    }

    fn endpoint(&self, topology: &Topology, host: HostId, seed: u64) -> Box<dyn Endpoint> {
        match self {
            Self::Metaroce(settings) => Box::new(MetaroceHost::new(settings, topology, host, seed)),
            Self::Roce(settings) => Box::new(Roce::new(*settings)),
        }
    }

    /// Bytes that a full packet takes on a link beyond its payload.
    pub const fn overhead_bytes(&self) -> u64 {
        FRAMING_BYTES as u64
            + match self {
                // Common header, request header of a WRITE, check sum.
                Self::Metaroce(_) => 16 + METAROCE_WRITE_BYTES + 4,
                // BTH and ICRC.
                Self::Roce(_) => 12 + 4,
            }
    }

    /// What a link of `rate` carries of payload, in bytes per second.
    pub const fn payload_rate(&self, rate: Rate) -> u64 {
        let bytes = (rate.bits_per_second() / 8) as u128 * PACKET_BYTES as u128;
        (bytes / (PACKET_BYTES + self.overhead_bytes()) as u128) as u64
    }

    fn world(&self, fabric: &Fabric, experiment: &str, seed: u64) -> World {
        let replay = format!(
            "cargo run --release -p feroce-sim --example experiments -- {experiment} \
             --transport {} --seed {seed}",
            self.argument()
        );
        let topology = fabric.topology.clone();
        let mut world = World::new(topology, seed, &replay, |host| {
            self.endpoint(&fabric.topology, host, seed)
        });
        if fabric.edges.len() > 1 {
            world.set_port_depth(PORT_DEPTH);
        }
        world
    }
}

/// Bytes of the request header of a WRITE (docs/spec/metaroce/packets.md, 3.4).
const METAROCE_WRITE_BYTES: u64 = 24 + 12;

/// With several ports, each holds a few packets, so that a protocol that serves them in turn
/// keeps them busy.
const PORT_DEPTH: u32 = 2;

/// A ratio in parts of a thousand, as tables and bounds use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PerMille(pub u64);

impl PerMille {
    /// `part` of `whole`; of nothing, nothing.
    pub const fn of(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self(0);
        }
        Self((part as u128 * 1000 / whole as u128) as u64)
    }
}

impl core::fmt::Display for PerMille {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Bytes per second, if `bytes` took `span`.
const fn rate_of(bytes: u64, span: Span) -> u64 {
    if span.picos() == 0 {
        return 0;
    }
    (bytes as u128 * 1_000_000_000_000 / span.picos() as u128) as u64
}

/// Bytes per second as gigabits, for tables.
fn gigabits(bytes_per_second: u64) -> String {
    let megabits = bytes_per_second * 8 / 1_000_000;
    format!("{}.{:01}", megabits / 1000, megabits % 1000 / 100)
}

/// Payload bytes that a flow placed between two times, from the samples.
fn placed_between(samples: &Samples, flow: FlowId, from: Time, to: Time) -> u64 {
    let Some(series) = samples.placed.get(flow.0 as usize) else {
        return 0;
    };
    // Sample k was taken after k + 1 intervals.
    let at = |time: Time| {
        let whole = time.picos() / samples.interval.picos();
        match whole.checked_sub(1) {
            Some(index) => series
                .get(index as usize)
                .or_else(|| series.last())
                .copied(),
            None => Some(0),
        }
    };
    at(to).unwrap_or(0) - at(from).unwrap_or(0)
}

/// The longest of some channels' queues, in bytes.
fn longest_queue(world: &World, channels: impl IntoIterator<Item = ChannelId>) -> u64 {
    let queues = channels
        .into_iter()
        .map(|channel| world.network().statistics(channel).queue_max);
    queues.max().unwrap_or(0)
}

/// The result of an experiment, or the promise that broke.
pub type Outcome<T> = Result<T, Violation>;
