//! Slots: which process of this host a queue pair number belongs to.
//!
//! Processes that share an address share its UDP port, so a packet may land in the wrong one. The
//! upper bits of a queue pair number name a *slot*, and a slot is claimed by binding an abstract
//! Unix socket named after it: one namespace of slots per network namespace, no file, freed by the
//! kernel however the process ends. Over that socket a misdirected packet is handed on, a peer's
//! private UDP port is asked for, and the layers above may send messages of their own.
//!
//! Nothing waits here: what a full queue does not take is dropped, as a switch would, and counted.
//! Abstract names have no permissions, so every message carries its sender's credentials and
//! those of another user are dropped. The message layout is in [`message`].

pub(crate) mod message;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;
use message::{Answer, Query, Run};

/// Bits of a queue pair number that name the slot.
pub const SLOT_BITS: u32 = 10;

/// Bits of a queue pair number that the owner of the slot hands out.
pub const INDEX_BITS: u32 = 14;

/// Slots of one network namespace. Two of them are never claimed: 0, because queue pair numbers 0
/// and 1 are the management ones, and the last, because 0xFFFFFF is the multicast one.
pub const SLOTS: u16 = 1 << SLOT_BITS;

/// First slot that can be claimed.
const FIRST: u16 = 1;

/// How many slots can be claimed.
const CLAIMABLE: u16 = SLOTS - 2;

/// Longest payload of [`Slot::send`], in bytes.
pub const MESSAGE_MAX: usize = 16 * 1024;

/// Send buffer asked for: room for some full messages on their way to slow processes.
const SEND_BUFFER: i32 = 4 << 20;

/// The slot that owns queue pair number `qpn` (its lower 24 bits).
#[must_use]
pub const fn slot_of(qpn: u32) -> u16 {
    ((qpn >> INDEX_BITS) & (SLOTS as u32 - 1)) as u16
}

/// A slot this process owns until the value is dropped or the process ends.
#[derive(Debug)]
pub struct Slot {
    number: u16,
    socket: OwnedFd,
}

/// Why no slot could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// Other processes hold all of them.
    #[error(
        "all {CLAIMABLE} slots of this network namespace are taken: each process that opens a \
         device holds one until it ends; close some, or use another network namespace"
    )]
    Exhausted,
    /// The kernel refused a Unix socket.
    #[error("a Unix socket for a slot cannot be made: {0}")]
    Io(#[from] io::Error),
}

/// Why a message did not go to another slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotSendError {
    /// No process holds the slot: what was known about it is out of date.
    #[error("no process of this network namespace holds the slot")]
    Absent,
    /// The owner's queue, or ours, is full.
    #[error("the queue of the slot's owner is full")]
    Full,
    /// Our own fault: the payload exceeds [`MESSAGE_MAX`].
    #[error("a message to a slot holds at most {MESSAGE_MAX} bytes")]
    TooLong,
    /// Anything else, by errno.
    #[error("the kernel refused the message (errno {0})")]
    Refused(i32),
}

impl SlotSendError {
    fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED | libc::ENOENT) => Self::Absent,
            Some(libc::EAGAIN | libc::ENOBUFS) => Self::Full,
            code => Self::Refused(code.unwrap_or(0)),
        }
    }
}

impl Slot {
    /// Claims a free slot. A process may claim several.
    ///
    /// # Errors
    /// When all are taken, or the kernel refuses a socket.
    pub fn claim() -> Result<Self, SlotError> {
        let socket = sys::unix_socket()?;
        // Before the name exists, so that no message arrives without credentials.
        sys::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
        sys::set_int(
            socket.as_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            SEND_BUFFER,
        )?;
        // Process ids ascend, so neighbours in time start apart and a slot rests before reuse.
        let start = (std::process::id() % u32::from(CLAIMABLE)) as u16;
        for probe in 0..CLAIMABLE {
            let number = FIRST + (start + probe) % CLAIMABLE;
            match sys::bind_abstract(socket.as_fd(), &name_of(number)) {
                Ok(()) => return Ok(Self { number, socket }),
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(SlotError::Exhausted)
    }

    /// Its number, between 1 and `SLOTS - 2`.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// The queue pair number of `index` (its lower [`INDEX_BITS`] bits) in this slot.
    #[must_use]
    pub const fn qpn(&self, index: u32) -> u32 {
        ((self.number as u32) << INDEX_BITS) | (index & ((1 << INDEX_BITS) - 1))
    }

    /// Sends `payload`, marked with `kind`, to the owner of slot `to`; what they mean is the
    /// caller's business. It comes out of the owner's `Net::take_messages`.
    ///
    /// # Errors
    /// The message was not sent. It is never retried here.
    pub fn send(&self, to: u16, kind: u8, payload: &[u8]) -> Result<(), SlotSendError> {
        if payload.len() > MESSAGE_MAX {
            return Err(SlotSendError::TooLong);
        }
        let header = message::header(message::KIND_CALLER);
        self.transmit(
            to,
            &[
                IoSlice::new(&header),
                IoSlice::new(&[kind]),
                IoSlice::new(payload),
            ],
        )
    }

    /// Asks the owner of slot `to` for its private port.
    pub(crate) fn ask(&self, to: u16, query: &Query) -> Result<(), SlotSendError> {
        self.transmit(to, &[IoSlice::new(&query.encode())])
    }

    /// Answers a [`Self::ask`].
    pub(crate) fn answer(&self, to: u16, answer: &Answer) -> Result<(), SlotSendError> {
        self.transmit(to, &[IoSlice::new(&answer.encode())])
    }

    /// Hands packets on to their owner; returns how many datagrams did not get there.
    pub(crate) fn forward(&self, to: u16, mut runs: &[Run<'_>]) -> Forwarded {
        let mut outcome = Forwarded::default();
        while !runs.is_empty() {
            let count = message::runs_that_fit(runs);
            let (now, later) = runs.split_at(count);
            runs = later;
            let datagrams = now.iter().map(Run::datagrams).sum::<usize>() as u64;
            match self.transmit_runs(to, now) {
                Ok(()) => outcome.sent += datagrams,
                Err(error) => {
                    log::debug!("{datagrams} packets for slot {to} dropped: {error}");
                    outcome.dropped += datagrams;
                }
            }
        }
        outcome
    }

    fn transmit_runs(&self, to: u16, runs: &[Run<'_>]) -> Result<(), SlotSendError> {
        let header = message::header(message::KIND_PACKETS);
        let mut records = [[0; message::RECORD_BYTES]; message::RUNS_MAX];
        for (record, run) in records.iter_mut().zip(runs) {
            *record = run.encode();
        }
        let mut pieces = [IoSlice::new(&[]); 1 + 2 * message::RUNS_MAX];
        pieces[0] = IoSlice::new(&header);
        for (index, (record, run)) in records.iter().zip(runs).enumerate() {
            pieces[1 + 2 * index] = IoSlice::new(record);
            pieces[2 + 2 * index] = IoSlice::new(run.bytes);
        }
        self.transmit(to, &pieces[..1 + 2 * runs.len()])
    }

    fn transmit(&self, to: u16, pieces: &[IoSlice<'_>]) -> Result<(), SlotSendError> {
        sys::send_plain(self.socket.as_fd(), Some(&name_of(to)), pieces)
            .map_err(|error| SlotSendError::from_io(&error))
    }
}

impl AsFd for Slot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What became of forwarded datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
}

/// A message another process sent by [`Slot::send`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMessage {
    /// The sender's slot.
    pub from: u16,
    /// Our slot it was sent to.
    pub to: u16,
    /// The sender's mark.
    pub kind: u8,
    /// The sender's bytes.
    pub payload: Vec<u8>,
}

const PREFIX: &str = "feroce/slot/";

/// Abstract name of a slot's socket, without its leading zero byte.
fn name_of(number: u16) -> Vec<u8> {
    format!("{PREFIX}{number}").into_bytes()
}

/// The slot whose socket has this name, if it is one.
pub(crate) fn number_of(name: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(name).ok()?;
    let number = text.strip_prefix(PREFIX)?.parse().ok()?;
    (FIRST..FIRST + CLAIMABLE)
        .contains(&number)
        .then_some(number)
}

#[cfg(test)]
mod tests;
