//! Our own driver of connections, `tests/programs/connections.c`: what it does, and how it is run.

use super::super::pair::next_port;
use super::super::programs::{Stage, compile};
use super::super::{Outcome, Tally};
use super::{Namespace, command, run as run_command, start};
use anyhow::Result;
use std::path::Path;
use std::time::{Duration, Instant};

/// What our own driver does: (arguments, with an address that goes away).
const DRIVES: &[(&str, bool)] = &[
    ("reconnect 1000", false),
    ("many 500", false),
    ("refused", false),
    ("backlog", false),
    ("killed", false),
    ("silent", false),
    ("cut", true),
];

/// Those that wait out all repetitions, more than a minute each.
const LONG: [&str; 2] = ["silent", "cut"];

/// Runs what `filter` names, without the long ones if it is to be quick.
pub(super) fn run(
    stage: &Stage,
    filter: &str,
    quick: bool,
    namespace: Option<&Namespace>,
) -> Tally {
    let mut tally = Tally::default();
    let wanted = DRIVES
        .iter()
        .map(|&(words, apart)| (format!("driver: {words}"), words, apart))
        .filter(|(name, words, _)| name.contains(filter) && !(quick && LONG.contains(words)));
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return tally;
    }
    let program = match compile(stage, "connections") {
        Ok(program) => program,
        Err(error) => {
            tally.note("driver", &Outcome::Failed(format!("{error:#}")));
            return tally;
        }
    };
    for (name, words, apart) in wanted {
        let outcome = if apart && namespace.is_none() {
            Outcome::Skipped("needs two namespaces, and so root".to_owned())
        } else {
            drive(stage, &program, words, apart)
                .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
        };
        tally.note(&name, &outcome);
    }
    tally
}

fn drive(stage: &Stage, program: &Path, words: &str, apart: bool) -> Result<Outcome> {
    let address = if apart { "10.77.4.1" } else { "127.0.0.1" };
    let device = if apart { "roce_cm0" } else { "roce_lo" };
    let port = next_port();
    let words = format!("{} {address} {port} {words}", program.display());
    let mut running = start(
        stage,
        command(stage, &words, device, "statistics", None),
        "driver",
        false,
    )?;
    if apart {
        // The path goes down while the driver transfers.
        std::thread::sleep(Duration::from_secs(2));
        if !running.has_ended() {
            run_command("ip addr del 10.77.4.1/24 dev cm0")?;
        }
    }
    let ended = running.finish(Instant::now() + Duration::from_secs(180));
    if apart {
        run_command("ip addr add 10.77.4.1/24 dev cm0")?;
    }
    if ended.is_good() {
        Ok(Outcome::Passed)
    } else {
        Ok(Outcome::Failed(ended.describe()))
    }
}
