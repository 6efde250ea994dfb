//! The figures: ratios of measurements, or one of them, and what each must reach.

use super::measure::{Measure, Mover, Pinger, Sender, size_name};

/// What a figure must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing is promised; it is there to explain others.
    None,
}

impl Target {
    /// Whether a value is good enough; `None`: nothing is promised.
    pub(crate) fn judge(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::None => None,
        }
    }
}

/// A ratio of two measurements of one round, or one measurement as it is.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) over: Measure,
    pub(crate) under: Option<Measure>,
    pub(crate) target: Target,
}

impl Figure {
    fn ratio(name: impl Into<String>, over: Measure, under: Measure, target: Target) -> Self {
        Self {
            name: name.into(),
            over,
            under: Some(under),
            target,
        }
    }

    fn plain(name: impl Into<String>, over: Measure, target: Target) -> Self {
        Self {
            name: name.into(),
            over,
            under: None,
            target,
        }
    }

    /// What must be measured for it.
    pub(crate) fn measures(&self) -> impl Iterator<Item = &Measure> {
        std::iter::once(&self.over).chain(&self.under)
    }
}

/// Sizes of messages whose bandwidth has a target.
const SIZES: [u32; 3] = [1 << 16, 1 << 18, 1 << 20];

/// All figures, in the order of the report.
pub(crate) fn all() -> Vec<Figure> {
    let mut figures = Vec::new();
    let moved = |size, what| Measure::Bandwidth { size, what };
    for (what, name, least) in [
        (Mover::Write, "RC WRITE", 0.70),
        (Mover::Read, "RC READ", 0.60),
        (Mover::Send, "RC SEND", 0.60),
    ] {
        for size in SIZES {
            figures.push(Figure::ratio(
                format!("{name} {} ÷ raw limit", size_name(size)),
                moved(size, what),
                moved(size, Mover::Raw),
                Target::AtLeast(least),
            ));
        }
    }
    for size in SIZES {
        figures.push(Figure::ratio(
            format!("RC WRITE {} ÷ TCP", size_name(size)),
            moved(size, Mover::Write),
            moved(size, Mover::Tcp),
            Target::AtLeast(2.0),
        ));
    }
    // Where this is below 2, nothing over UDP reaches it.
    for size in SIZES {
        figures.push(Figure::ratio(
            format!("raw limit {} ÷ TCP", size_name(size)),
            moved(size, Mover::Raw),
            moved(size, Mover::Tcp),
            Target::None,
        ));
    }
    for size in SIZES {
        figures.push(Figure::ratio(
            format!("feroce perf WRITE {} ÷ raw limit", size_name(size)),
            moved(size, Mover::FerocePerf),
            moved(size, Mover::Raw),
            Target::None,
        ));
    }
    figures.extend(latencies());
    figures.extend(rates());
    figures.push(Figure::ratio(
        "1,000 queue pairs 64 KiB ÷ one",
        Measure::QueuePairs { count: 1000 },
        Measure::QueuePairs { count: 1 },
        Target::AtLeast(0.9),
    ));
    figures.push(Figure::ratio(
        "8 pairs of processes ÷ one pair",
        Measure::Pairs { count: 8 },
        Measure::Pairs { count: 1 },
        Target::AtLeast(0.8),
    ));
    figures.push(Figure::plain(
        "retransmissions on loopback",
        Measure::Retransmissions,
        Target::AtMost(0.0),
    ));
    figures.push(Figure::plain(
        "system calls a MiB at 64 KiB, both ends",
        Measure::SystemCalls,
        Target::AtMost(50.0),
    ));
    figures
}

fn latencies() -> [Figure; 3] {
    [
        Figure::ratio(
            "RC WRITE 8 B latency ÷ spinning ping-pong",
            Measure::Awake(Pinger::Write),
            Measure::Awake(Pinger::Raw),
            Target::AtMost(1.5),
        ),
        Figure::ratio(
            "RC SEND 8 B latency ÷ spinning ping-pong",
            Measure::Awake(Pinger::Send),
            Measure::Awake(Pinger::Raw),
            Target::None,
        ),
        Figure::ratio(
            "RC SEND 8 B latency with events ÷ sleeping ping-pong",
            Measure::Asleep(Pinger::Send),
            Measure::Asleep(Pinger::Raw),
            Target::AtMost(1.3),
        ),
    ]
}

fn rates() -> [Figure; 2] {
    [
        Figure::ratio(
            "8 B WRITEs, lists of 32 ÷ raw packets",
            Measure::Rate(Sender::Write),
            Measure::Rate(Sender::Raw),
            Target::AtLeast(3.0),
        ),
        Figure::ratio(
            "8 B SENDs, lists of 32 ÷ raw packets",
            Measure::Rate(Sender::Send),
            Measure::Rate(Sender::Raw),
            Target::AtLeast(3.0),
        ),
    ]
}
