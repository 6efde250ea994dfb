//! The measuring process: posts messages, takes the time, looks at what comes back.

use super::endpoint::Endpoint;
use super::idle::Watch;
use super::lane::succeeded;
use super::pattern::{Wrong, problem_of};
use super::protocol::Test;
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};

/// When a measurement ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit {
    /// After so many messages on each queue pair.
    Iterations(u64),
    /// After this time.
    Time(Duration),
}

/// Samples of one latency measurement at most; 8 bytes each.
const SAMPLES_MAX: usize = 1 << 20;

/// Messages before the samples of a latency measurement.
const WARM_UP: u64 = 16;

/// What a bandwidth measurement gives.
#[derive(Debug)]
pub(super) struct Bandwidth {
    /// Messages that completed, on all queue pairs.
    pub(super) messages: u64,
    /// From before the first was posted until the last completed.
    pub(super) elapsed: Duration,
    /// What is wrong with what came back.
    pub(super) problem: Option<String>,
}

/// What a latency measurement gives.
#[derive(Debug)]
pub(super) struct Latency {
    /// Time of each exchange: there and back.
    pub(super) samples: Vec<Duration>,
    /// What is wrong with what came back.
    pub(super) problem: Option<String>,
}

/// Keeps as many messages under way as there are slots.
pub(super) fn bandwidth(endpoint: &mut Endpoint, limit: Limit) -> Result<Bandwidth> {
    let mut problem = None;
    let mut watch = Watch::default();
    let started = Instant::now();
    loop {
        let last = last_message(limit, started);
        let mut busy = false;
        for lane in &mut endpoint.lanes {
            let list = lane.list_len();
            let left = last.saturating_sub(lane.posted).min(list);
            if left > 0 && lane.room() >= list {
                lane.post(left)?;
            }
            busy |= lane.completed < lane.posted || lane.posted < last;
        }
        if !busy {
            break;
        }
        poll_watched(endpoint, &mut problem, &mut watch)?;
    }
    let elapsed = started.elapsed();
    let messages = endpoint.completed().iter().sum();
    if endpoint.case.test == Test::Read {
        problem = problem.or(problem_of(endpoint.verify_read())?);
    }
    Ok(Bandwidth {
        messages,
        elapsed,
        problem,
    })
}

/// Messages are numbered below this.
fn last_message(limit: Limit, started: Instant) -> u64 {
    match limit {
        Limit::Iterations(count) => count,
        Limit::Time(span) if started.elapsed() < span => u64::MAX,
        // What is posted is waited for, nothing is added.
        Limit::Time(_) => 0,
    }
}

/// One message at a time on the first queue pair; where the other end answers, its answer is
/// waited for.
pub(super) fn latency(endpoint: &mut Endpoint, limit: Limit) -> Result<Latency> {
    let mut samples = Vec::new();
    let mut problem = None;
    let started = Instant::now();
    let mut number = 0;
    loop {
        let enough = match limit {
            Limit::Iterations(count) => samples.len() as u64 >= count,
            Limit::Time(span) => started.elapsed() >= span && !samples.is_empty(),
        };
        if enough || samples.len() == SAMPLES_MAX {
            break;
        }
        let begun = Instant::now();
        exchange(endpoint, number, &mut problem)?;
        if number >= WARM_UP {
            samples.push(begun.elapsed());
        }
        number += 1;
    }
    finish(endpoint, &mut problem)?;
    match endpoint.case.test {
        Test::Read => problem = problem.or(problem_of(endpoint.verify_read())?),
        test if test.is_ping_pong() => {
            problem = problem.or(problem_of(endpoint.verify_target(&[number]))?);
        }
        _ => {}
    }
    Ok(Latency { samples, problem })
}

/// Sends message `number` and waits for what ends the exchange.
fn exchange(endpoint: &mut Endpoint, number: u64, problem: &mut Option<String>) -> Result<()> {
    let mut watch = Watch::default();
    while endpoint.lanes[0].room() == 0 {
        poll_watched(endpoint, problem, &mut watch)?;
    }
    endpoint.lanes[0].post(1)?;
    loop {
        let lane = &mut endpoint.lanes[0];
        let done = match endpoint.case.test {
            Test::Read | Test::Atomic => lane.completed > number,
            Test::Send => lane.received > number,
            Test::Write => lane.has_arrived(number)?,
        };
        if done {
            break;
        }
        poll_watched(endpoint, problem, &mut watch)?;
    }
    let lane = &mut endpoint.lanes[0];
    if endpoint.case.test == Test::Send {
        lane.post_receives(lane.receives_free())?;
    }
    Ok(())
}

/// Waits for all that is under way.
fn finish(endpoint: &mut Endpoint, problem: &mut Option<String>) -> Result<()> {
    let mut watch = Watch::default();
    while endpoint
        .lanes
        .iter()
        .any(|lane| lane.completed < lane.posted)
    {
        poll_watched(endpoint, problem, &mut watch)?;
    }
    Ok(())
}

fn poll_watched(
    endpoint: &mut Endpoint,
    problem: &mut Option<String>,
    watch: &mut Watch,
) -> Result<()> {
    let taken = endpoint.poll(problem)?;
    watch.polled(taken > 0)
}

/// After atomics: swaps the other end's counter for its complement, provided that it is what was
/// added to it.
///
/// # Errors
/// [`Wrong`] if it was something else.
pub(super) fn settle_counter(endpoint: &mut Endpoint, total: u64) -> Result<()> {
    let number = endpoint.lanes[0].posted;
    endpoint.lanes[0].post_compare_swap(total, !total)?;
    let mut watch = Watch::default();
    loop {
        let mut outcome = None;
        endpoint
            .cq
            .poll(1, |entry| outcome = Some(succeeded(&entry.completion)));
        match outcome {
            Some(ticket) => {
                let ticket = ticket?;
                ensure!(
                    ticket.number == number,
                    "completion of {ticket:?} out of turn"
                );
                break;
            }
            None => watch.polled(false)?,
        }
    }
    let found = endpoint.lanes[0].atomic_result(number)?;
    if found != total {
        bail!(Wrong(format!(
            "after {total} additions of 1 the counter was {found}"
        )));
    }
    Ok(())
}
