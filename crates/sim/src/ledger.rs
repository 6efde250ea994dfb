//! The oracles: what must hold in every run, whatever the protocol.
//!
//! - Every byte of a message is put into memory exactly once, and all of them before the message
//!   completes.
//! - Every message completes exactly once at the requester, in the order of posting; every
//!   receive exactly once, in order, with the right length.
//! - Nothing happens to a message after it has completed: late duplicates touch no memory.
//!
//! The first violation ends the run and names the seed and the command that replays it.

use crate::{FlowId, FlowSetup, Operation, Report, Time};
use std::collections::VecDeque;

/// Placement is watched in pieces of this many bytes; every path MTU is a multiple of it.
const PIECE_BYTES: u64 = 256;

/// One message between its first placement and its completion.
#[derive(Debug, Default)]
struct Message {
    /// One bit per piece that is in memory.
    pieces: Vec<u64>,
    placed: u64,
}

/// What a flow has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowResult {
    /// Messages posted.
    pub posted: u64,
    /// Messages completed well at the requester.
    pub completed: u64,
    /// Receives completed well at the responder.
    pub received: u64,
    /// Payload bytes in place.
    pub placed: u64,
    /// When it began.
    pub began: Time,
    /// When its last message completed.
    pub finished: Option<Time>,
    /// What it failed of.
    pub error: Option<&'static str>,
}

impl FlowResult {
    /// It came to an end, good or bad.
    pub const fn is_over(&self) -> bool {
        self.finished.is_some() || self.error.is_some()
    }
}

#[derive(Debug)]
pub(crate) struct FlowRecord {
    pub(crate) setup: FlowSetup,
    pub(crate) result: FlowResult,
    /// Messages from `result.completed` on.
    messages: VecDeque<Message>,
}

impl FlowRecord {
    pub(crate) const fn new(setup: FlowSetup) -> Self {
        Self {
            setup,
            result: FlowResult {
                posted: 0,
                completed: 0,
                received: 0,
                placed: 0,
                began: Time::ZERO,
                finished: None,
                error: None,
            },
            messages: VecDeque::new(),
        }
    }

    /// Checks and counts what an endpoint saw.
    pub(crate) fn note(&mut self, now: Time, report: &Report) -> Result<(), String> {
        // After a failure both ends flush; only memory is watched no more either, because the
        // requester does not know what arrived.
        if self.result.error.is_some() {
            return Ok(());
        }
        match *report {
            Report::Placed {
                address, length, ..
            } => self.place(address, u64::from(length)),
            Report::Completed { message, error, .. } => self.complete(now, message, error),
            Report::Received {
                message,
                length,
                error,
                ..
            } => self.receive(message, length, error),
            Report::Wrong { address, .. } => Err(format!("wrong bytes in memory at {address:#x}")),
        }
    }

    fn place(&mut self, address: u64, length: u64) -> Result<(), String> {
        let size = u64::from(self.setup.message_bytes);
        let (number, offset) = (address / self.setup.stride(), address % self.setup.stride());
        if number >= self.result.posted || offset + length > size {
            return Err(format!(
                "{length} bytes placed at {address:#x}, where no message is"
            ));
        }
        let Some(ahead) = number.checked_sub(self.result.completed) else {
            return Err(format!(
                "{length} bytes placed in message {number} after it completed"
            ));
        };
        if offset % PIECE_BYTES != 0 {
            return Err(format!(
                "a packet of message {number} was placed at offset {offset}"
            ));
        }
        while self.messages.len() as u64 <= ahead {
            self.messages.push_back(Message::default());
        }
        let message = &mut self.messages[ahead as usize];
        let pieces = size.div_ceil(PIECE_BYTES);
        message.pieces.resize(pieces.div_ceil(64) as usize, 0);
        for piece in offset / PIECE_BYTES..(offset + length).div_ceil(PIECE_BYTES) {
            let (word, bit) = (&mut message.pieces[piece as usize / 64], 1 << (piece % 64));
            if *word & bit != 0 {
                let at = piece * PIECE_BYTES;
                return Err(format!("offset {at} of message {number} was placed twice"));
            }
            *word |= bit;
        }
        message.placed += length;
        self.result.placed += length;
        Ok(())
    }

    /// Bytes of a message in place, if it has not completed.
    fn placed(&self, number: u64) -> Option<u64> {
        let ahead = number.checked_sub(self.result.completed)?;
        Some(
            self.messages
                .get(ahead as usize)
                .map_or(0, |message| message.placed),
        )
    }

    fn complete(
        &mut self,
        now: Time,
        number: u64,
        error: Option<&'static str>,
    ) -> Result<(), String> {
        if number != self.result.completed || number >= self.result.posted {
            return Err(format!(
                "message {number} completed when message {} was to",
                self.result.completed
            ));
        }
        if error.is_some() {
            self.result.error = error;
            return Ok(());
        }
        let (placed, size) = (self.placed(number), u64::from(self.setup.message_bytes));
        if placed != Some(size) {
            return Err(format!(
                "message {number} completed with {} of {size} bytes in place",
                placed.unwrap_or(0)
            ));
        }
        self.messages.pop_front();
        self.result.completed += 1;
        if self.result.completed == self.setup.messages {
            self.result.finished = Some(now);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        number: u64,
        length: u32,
        error: Option<&'static str>,
    ) -> Result<(), String> {
        if error.is_some() {
            self.result.error = error;
            return Ok(());
        }
        if number != self.result.received || number >= self.result.posted {
            return Err(format!(
                "receive {number} completed when receive {} was to",
                self.result.received
            ));
        }
        let size = self.setup.message_bytes;
        // The requester may know before us that all is in place only if it was told so.
        let placed = self.placed(number).unwrap_or_else(|| u64::from(size));
        if length != size || placed != u64::from(size) {
            return Err(format!(
                "receive {number} completed with length {length} and {placed} of {size} bytes"
            ));
        }
        self.result.received += 1;
        Ok(())
    }

    /// What must hold when nothing is left to happen.
    pub(crate) fn check_end(&self) -> Result<(), String> {
        let FlowResult {
            completed,
            received,
            error,
            ..
        } = self.result;
        if error.is_some() {
            return Ok(());
        }
        if completed < self.setup.messages {
            return Err(format!(
                "{completed} of {} messages completed, and nothing more is to happen",
                self.setup.messages
            ));
        }
        if self.setup.operation == Operation::Send && received != completed {
            return Err(format!(
                "{completed} messages completed, but {received} receives"
            ));
        }
        Ok(())
    }
}

/// A broken promise, and how to see it again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("at {time}: {what}\nreplay: {replay}")]
pub struct Violation {
    /// When.
    pub time: Time,
    /// What, and of whom.
    pub what: String,
    /// The command that replays it, with its seed.
    pub replay: String,
}

impl Violation {
    pub(crate) fn of_flow(time: Time, flow: FlowId, what: &str, replay: &str) -> Self {
        Self {
            time,
            what: format!("flow {}: {what}", flow.0),
            replay: replay.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostId, Role};

    fn record(operation: Operation) -> FlowRecord {
        let mut record = FlowRecord::new(FlowSetup {
            flow: FlowId(0),
            role: Role::Requester,
            local: HostId(0),
            peer: HostId(1),
            ports: 1,
            operation,
            message_bytes: 3000,
            messages: 2,
            depth: 2,
        });
        record.result.posted = 2;
        record
    }

    fn place(
        record: &mut FlowRecord,
        message: u64,
        offset: u64,
        length: u32,
    ) -> Result<(), String> {
        let address = message * record.setup.stride() + offset;
        let flow = FlowId(0);
        record.note(
            Time::ZERO,
            &Report::Placed {
                flow,
                address,
                length,
            },
        )
    }

    fn complete(record: &mut FlowRecord, message: u64) -> Result<(), String> {
        let (flow, error) = (FlowId(0), None);
        let report = Report::Completed {
            flow,
            message,
            error,
        };
        record.note(Time::ZERO, &report)
    }

    #[test]
    fn messages_in_any_order_of_placement() {
        let mut record = record(Operation::Write);
        place(&mut record, 1, 0, 1024).unwrap();
        place(&mut record, 0, 2048, 952).unwrap();
        place(&mut record, 0, 0, 2048).unwrap();
        complete(&mut record, 0).unwrap();
        place(&mut record, 1, 1024, 1976).unwrap();
        complete(&mut record, 1).unwrap();
        assert_eq!(record.result.finished, Some(Time::ZERO));
        record.check_end().unwrap();
    }

    #[test]
    fn bytes_placed_twice() {
        let mut record = record(Operation::Write);
        place(&mut record, 0, 0, 1024).unwrap();
        let error = place(&mut record, 0, 0, 1024).unwrap_err();
        assert_eq!(error, "offset 0 of message 0 was placed twice");
    }

    #[test]
    fn bytes_placed_after_completion() {
        let mut record = record(Operation::Write);
        place(&mut record, 0, 0, 3000).unwrap();
        complete(&mut record, 0).unwrap();
        let error = place(&mut record, 0, 0, 1024).unwrap_err();
        assert!(error.contains("after it completed"), "{error}");
    }

    #[test]
    fn a_completion_too_early_twice_or_out_of_order() {
        let mut early = record(Operation::Write);
        place(&mut early, 0, 0, 1024).unwrap();
        let error = complete(&mut early, 0).unwrap_err();
        assert!(error.contains("1024 of 3000"), "{error}");
        let mut other = record(Operation::Write);
        place(&mut other, 1, 0, 3000).unwrap();
        assert!(complete(&mut other, 1).is_err());
        place(&mut other, 0, 0, 3000).unwrap();
        complete(&mut other, 0).unwrap();
        assert!(complete(&mut other, 0).is_err());
    }

    #[test]
    fn bytes_outside_of_any_message() {
        assert!(place(&mut record(Operation::Write), 0, 2816, 1024).is_err());
        assert!(place(&mut record(Operation::Write), 2, 0, 1024).is_err());
    }

    #[test]
    fn an_end_without_receives_or_completions() {
        let mut record = record(Operation::Send);
        assert!(record.check_end().is_err());
        for message in 0..2 {
            place(&mut record, message, 0, 3000).unwrap();
            complete(&mut record, message).unwrap();
        }
        let error = record.check_end().unwrap_err();
        assert_eq!(error, "2 messages completed, but 0 receives");
    }
}
