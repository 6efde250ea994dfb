//! MetaRoCE, held against its bounds in the experiments. A failure names the seed that replays it:
//! `cargo run --release -p feroce-sim --example experiments -- NAME --transport mroce --seed N`.

use crate::experiment::{
    IncastCase, PathCase, PerMille, Transport, incast, long_distance, loss, paths, permutation,
    planes,
};
use crate::{Chance, Operation, Span};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// The median counts: where hellos are lost, setting the connection up takes part of a millisecond
/// of the six that the transfer takes.
#[test]
fn loss_costs_little_more_than_what_is_lost() {
    let transport = Transport::metaroce();
    let goodput = |chance, seed| {
        let run = loss(&transport, chance, seed).unwrap();
        assert_eq!(run.error, None, "seed {seed}");
        run.goodput
    };
    let clean = loss(&transport, Chance::NEVER, 1).unwrap();
    assert!(clean.of_line >= PerMille(970), "{clean:?}");
    assert_eq!(clean.retransmitted, 0, "{clean:?}");
    for (percent, least) in [(1, 960), (10, 790)] {
        let chance = Chance::percent(percent);
        let mut runs: Vec<u64> = SEEDS.map(|seed| goodput(chance, seed)).collect();
        runs.sort_unstable();
        let of_clean = PerMille::of(runs[runs.len() / 2], clean.goodput);
        assert!(of_clean >= PerMille(least), "{percent} %: {runs:?}");
    }
}

#[test]
fn every_plane_is_filled() {
    let transport = Transport::metaroce();
    for seed in SEEDS {
        for count in [1, 2, 4, 8] {
            let run = planes(&transport, count, seed).unwrap();
            assert!(run.of_lines >= PerMille(970), "seed {seed}: {run:?}");
        }
    }
}

#[test]
fn what_survives_of_the_fabric_is_used_within_20_round_trips() {
    let transport = Transport::metaroce();
    for seed in SEEDS {
        for case in PathCase::ALL {
            let run = paths(&transport, case, seed).unwrap();
            let of_capacity = PerMille::of(run.during, run.capacity);
            assert!(of_capacity >= PerMille(950), "seed {seed}: {run:?}");
            assert_eq!(run.error, None, "seed {seed}: {run:?}");
            assert!(run.after > run.during * 98 / 100, "seed {seed}: {run:?}");
        }
    }
}

/// The ideal times are 2,400, 20,320 and 10,240 µs.
#[test]
fn an_incast_ends_nearly_when_it_could() {
    let transport = Transport::metaroce();
    let cases = [
        (15, Operation::Write, 2_550),
        (127, Operation::Write, 23_000),
        (64, Operation::Read, 11_500),
    ];
    for seed in SEEDS {
        for (senders, operation, limit) in cases {
            let case = IncastCase {
                senders,
                operation,
                has_victim: senders == 15,
            };
            let run = incast(&transport, case, seed).unwrap();
            let (completion, victim) = (run.completion.expect("it ends"), run.victim);
            let is_soon = completion <= Span::from_micros(limit);
            assert!(is_soon, "seed {seed}: {case:?}: {completion:?}");
            let is_unharmed = victim.is_none_or(|part| part >= PerMille(950));
            assert!(is_unharmed, "seed {seed}: {case:?}: {victim:?}");
        }
    }
}

#[test]
fn a_permutation_ends_and_loses_nothing() {
    for seed in SEEDS {
        let run = permutation(&Transport::metaroce(), seed).unwrap();
        assert!(run.completion.is_some(), "seed {seed}: {run:?}");
        assert_eq!(run.dropped, 0, "seed {seed}: {run:?}");
    }
}

#[test]
fn a_long_way_is_filled() {
    let transport = Transport::metaroce();
    let run = long_distance(&transport, Span::from_micros(1_000), Chance::percent(1), 1).unwrap();
    assert!(run.of_line >= PerMille(900), "{run:?}");
}
