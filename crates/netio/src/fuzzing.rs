//! Parsers that programs do not see, for fuzz targets. Only there with `--cfg fuzzing`.

use crate::slot::message::{Incoming, Run, header, runs_that_fit};
use crate::slot::message::{KIND_PACKETS, RUNS_MAX};

/// What a message between slots is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotMessageKind {
    /// Not one of ours.
    Unknown,
    /// For the layers above.
    Caller,
    /// A question or an answer about ports.
    Port,
    /// Misdirected packets: runs, and datagrams in them.
    Packets(usize, usize),
}

/// Parses a message as a receiver does; what parses must mean the same written again.
///
/// # Panics
/// If it does not.
pub fn slot_message(bytes: &[u8]) -> SlotMessageKind {
    match Incoming::parse(bytes) {
        None => SlotMessageKind::Unknown,
        Some(Incoming::Caller { payload, .. }) => {
            assert!(payload.len() < bytes.len());
            SlotMessageKind::Caller
        }
        Some(Incoming::Query(query)) => {
            assert!(bytes.starts_with(&query.encode()));
            SlotMessageKind::Port
        }
        Some(Incoming::Answer(answer)) => {
            assert!(bytes.starts_with(&answer.encode()));
            SlotMessageKind::Port
        }
        Some(Incoming::Packets(packets)) => {
            let runs: Vec<Run<'_>> = packets.collect();
            let fit = runs_that_fit(&runs).min(runs.len());
            assert!(fit <= RUNS_MAX && written_again(&runs[..fit]) == runs[..fit].len());
            SlotMessageKind::Packets(runs.len(), runs.iter().map(Run::datagrams).sum())
        }
    }
}

/// Writes runs as a sender does and counts those that come back the same.
fn written_again(runs: &[Run<'_>]) -> usize {
    let mut message = header(KIND_PACKETS).to_vec();
    for run in runs {
        message.extend(run.encode());
        message.extend(run.bytes);
    }
    match Incoming::parse(&message) {
        Some(Incoming::Packets(again)) => {
            again.zip(runs).filter(|(again, run)| again == *run).count()
        }
        _ => 0,
    }
}
