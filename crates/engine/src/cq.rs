//! Completion queues: rings that the engine fills and programs poll without the engine's lock.

use crate::EventQueue;
use feroce_proto::{Completion, CqId};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A completion with the time it was shown.
#[derive(Clone, Copy, Debug)]
pub struct Stamped {
    /// The completion.
    pub completion: Completion,
    /// Nanoseconds of `CLOCK_REALTIME`.
    pub realtime_nanos: u64,
}

/// What a program wants to be woken by (`ibv_req_notify_cq`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notify {
    /// Nothing.
    Nothing,
    /// Completions of solicited messages and errors.
    Solicited,
    /// The next completion.
    Any,
}

/// A completion channel: the queue of ids of completion queues that have news.
pub type Channel = EventQueue<CqId>;

/// One completion queue.
#[derive(Debug)]
pub struct Cq {
    id: CqId,
    ring: Mutex<Ring>,
    channel: Option<Arc<Channel>>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Stamped>,
    capacity: usize,
    notify: Notify,
    overrun: bool,
    /// No event is raised any more.
    silent: bool,
}

/// What happened when a completion was shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    Quiet,
    /// The ring had no room: the completion is lost and the queue is in error, for the first time.
    Overrun,
}

impl Cq {
    pub(crate) fn new(id: CqId, capacity: usize, channel: Option<Arc<Channel>>) -> Self {
        let ring = Ring {
            // Grows on demand: programs ask for far more than they use.
            entries: VecDeque::new(),
            capacity,
            notify: Notify::Nothing,
            overrun: false,
            silent: false,
        };
        Self {
            id,
            ring: Mutex::new(ring),
            channel,
        }
    }

    /// Its name towards the protocol.
    pub const fn id(&self) -> CqId {
        self.id
    }

    /// The channel that its events go to.
    pub const fn channel(&self) -> Option<&Arc<Channel>> {
        self.channel.as_ref()
    }

    /// Completions it can hold.
    pub fn capacity(&self) -> usize {
        self.ring().capacity
    }

    /// Changes the capacity; `false` when more completions wait than would fit.
    pub fn resize(&self, capacity: usize) -> bool {
        let mut ring = self.ring();
        if ring.entries.len() > capacity {
            return false;
        }
        ring.capacity = capacity;
        true
    }

    /// Takes the oldest completions, handing each to `sink`, at most `count`. Returns how many.
    pub(crate) fn drain(&self, count: usize, mut sink: impl FnMut(Stamped)) -> usize {
        let mut ring = self.ring();
        let taken = count.min(ring.entries.len());
        for entry in ring.entries.drain(..taken) {
            sink(entry);
        }
        taken
    }

    /// Asks for an event; returns the former wish. The stronger of two wishes counts.
    pub(crate) fn arm(&self, notify: Notify) -> Notify {
        let mut ring = self.ring();
        let former = ring.notify;
        if former != Notify::Any && !ring.silent {
            ring.notify = notify;
        }
        former
    }

    /// Takes the wish for an event back, for good; returns whether there was one.
    pub(crate) fn disarm(&self) -> bool {
        let mut ring = self.ring();
        ring.silent = true;
        std::mem::replace(&mut ring.notify, Notify::Nothing) != Notify::Nothing
    }

    /// Shows a completion; returns whether the queue overran, and whether an event was raised.
    pub(crate) fn push(&self, entry: Stamped) -> (Shown, bool) {
        let mut ring = self.ring();
        if ring.entries.len() >= ring.capacity {
            let first = !ring.overrun;
            ring.overrun = true;
            return (if first { Shown::Overrun } else { Shown::Quiet }, false);
        }
        ring.entries.push_back(entry);
        let fires = match ring.notify {
            Notify::Nothing => false,
            Notify::Solicited => entry.completion.solicited,
            Notify::Any => true,
        };
        if fires {
            ring.notify = Notify::Nothing;
        }
        drop(ring);
        if fires && let Some(channel) = &self.channel {
            channel.push(self.id);
        }
        (Shown::Quiet, fires)
    }

    /// Removes completions of a queue pair that is destroyed or reset.
    pub(crate) fn forget(&self, qpn: feroce_wire::Qpn) {
        self.ring()
            .entries
            .retain(|entry| entry.completion.qpn != qpn);
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
