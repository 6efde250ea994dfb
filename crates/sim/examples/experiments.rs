//! Prints the experiments as tables.
//!
//! `cargo run --release -p feroce-sim --example experiments -- [NAME]… [--seed N]
//! [--transport NAME]`; names are `loss`, `paths`, `planes`, `incast`, `permutation`, `distance`,
//! `sharing`; without a name, all of them.

use feroce_sim::experiment::{
    Incast, IncastCase, LongDistance, LossPoint, Outcome, PathCase, PathRun, Permutation, Planes,
    Sharing, Table, Transport, incast, long_distance, loss, paths, permutation, planes, sharing,
};
use feroce_sim::{Chance, Operation, Span};
use lexopt::prelude::{Long, Value, ValueExt};
use std::error::Error;

const NAMES: [&str; 7] = [
    "loss",
    "paths",
    "planes",
    "incast",
    "permutation",
    "distance",
    "sharing",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut names = Vec::new();
    let mut seed = 1;
    let mut transports = vec![Transport::metaroce(), Transport::roce()];
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("seed") => seed = arguments.value()?.parse()?,
            Long("transport") => {
                let name = arguments.value()?.string()?;
                transports.retain(|transport| transport.argument() == name);
                if transports.is_empty() {
                    return Err(format!("no transport is called {name}").into());
                }
            }
            Value(name) => names.push(name.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    if names.is_empty() {
        names = NAMES.iter().map(|&name| name.to_owned()).collect();
    }
    println!("seed {seed}\n");
    for name in names {
        println!("{}", table(&name, &transports, seed)?);
    }
    Ok(())
}

fn table(name: &str, transports: &[Transport], seed: u64) -> Result<Table, Box<dyn Error>> {
    let table = match name {
        "loss" => fill(LossPoint::table(), transports, |transport, add| {
            for loss_in in [0, 1, 10, 100, 1_000, 10_000, 50_000, 100_000] {
                let point = loss(transport, Chance::millionths(loss_in), seed)?;
                add(point.row(transport));
            }
            Ok(())
        }),
        "paths" => fill(PathRun::table(), transports, |transport, add| {
            for case in PathCase::ALL {
                add(paths(transport, case, seed)?.row(transport));
            }
            Ok(())
        }),
        "planes" => fill(Planes::table(), transports, |transport, add| {
            for count in [1, 2, 4, 8] {
                add(planes(transport, count, seed)?.row(transport));
            }
            Ok(())
        }),
        "incast" => fill(Incast::table(), transports, |transport, add| {
            for case in incast_cases() {
                add(incast(transport, case, seed)?.row(transport));
            }
            Ok(())
        }),
        "permutation" => fill(Permutation::table(), transports, |transport, add| {
            add(permutation(transport, seed)?.row(transport));
            Ok(())
        }),
        "distance" => fill(LongDistance::table(), transports, |transport, add| {
            for millis in [1, 10] {
                for percent in [0, 1] {
                    let round_trip = Span::from_micros(millis * 1000);
                    let chance = Chance::percent(percent);
                    add(long_distance(transport, round_trip, chance, seed)?.row(transport));
                }
            }
            Ok(())
        }),
        "sharing" => fill(Sharing::table(), transports, |transport, add| {
            for in_core in [false, true] {
                add(sharing(transport, in_core, seed)?.row(transport));
            }
            Ok(())
        }),
        _ => return Err(format!("no experiment is called {name}: {}", NAMES.join(", ")).into()),
    };
    Ok(table?)
}

fn incast_cases() -> [IncastCase; 4] {
    let case = |senders, operation, has_victim| IncastCase {
        senders,
        operation,
        has_victim,
    };
    [
        case(15, Operation::Write, false),
        case(15, Operation::Write, true),
        case(127, Operation::Write, false),
        case(64, Operation::Read, false),
    ]
}

/// Adds the rows of every transport to a table.
fn fill(
    mut table: Table,
    transports: &[Transport],
    rows: impl Fn(&Transport, &mut dyn FnMut(Vec<String>)) -> Outcome<()>,
) -> Outcome<Table> {
    for transport in transports {
        rows(transport, &mut |row| table.add(row))?;
    }
    Ok(table)
}
