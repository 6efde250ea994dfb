//! Queues that a program waits on by file descriptor: asynchronous events and completion channels.

use crate::clock;
use feroce_netio::interrupted_calls_restart;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue of events with a descriptor that is readable while the queue is not empty.
///
/// The descriptor is the program's to poll and to set non-blocking, as the verbs manual
/// promises of `ibv_context.async_fd` and `ibv_comp_channel.fd`.
#[derive(Debug)]
pub struct EventQueue<T> {
    queue: Mutex<VecDeque<T>>,
    ready: OwnedFd,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> std::io::Result<Self> {
        // One read takes one event: semaphore mode.
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Self {
            queue: Mutex::new(VecDeque::new()),
            ready,
        })
    }

    /// The descriptor to wait on.
    pub fn raw_fd(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// Appends an event and wakes a waiter. Beyond [`EVENTS_MAX`] waiting events it is dropped.
    pub fn push(&self, event: T) {
        let mut queue = self.queue();
        if queue.len() >= EVENTS_MAX {
            log::error!("event queue full: the program does not fetch its events");
            return;
        }
        queue.push_back(event);
        drop(queue);
        // The counter cannot overflow: it is at most EVENTS_MAX.
        let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
    }

    /// Takes the oldest event. Waits for one unless the program made the descriptor non-blocking.
    ///
    /// # Errors
    /// `EAGAIN` when there is none and the descriptor is non-blocking; `EINTR` on a signal.
    pub fn take(&self) -> Result<T, Errno> {
        loop {
            let mut count = [0; 8];
            rustix::io::read(&self.ready, &mut count)?;
            // An event may have been withdrawn after its count was written.
            if let Some(event) = self.queue().pop_front() {
                return Ok(event);
            }
        }
    }

    /// Takes the oldest event if there is one, whatever the descriptor's mode.
    pub(crate) fn take_ready(&self) -> Option<T> {
        loop {
            if self.queue().is_empty() {
                return None;
            }
            let mut count = [0; 8];
            let buffers = &mut [IoSliceMut::new(&mut count)];
            // Descriptors without positions take this one.
            let anywhere = u64::MAX;
            rustix::io::preadv2(&self.ready, buffers, anywhere, ReadWriteFlags::NOWAIT).ok()?;
            if let Some(event) = self.queue().pop_front() {
                return Some(event);
            }
        }
    }

    /// Takes the oldest event, for which it waits at most `span`.
    ///
    /// # Errors
    /// `EINTR` on a signal.
    pub(crate) fn take_within(&self, span: Duration) -> Result<Option<T>, Errno> {
        let mut fds = [PollFd::new(&self.ready, PollFlags::IN)];
        match poll(&mut fds, Some(&clock::timespec(span))) {
            Err(Errno::INTR) if interrupted_calls_restart() => {}
            result => drop(result?),
        }
        Ok(self.take_ready())
    }

    /// Whether [`Self::take`] waits: the program did not make the descriptor non-blocking.
    ///
    /// # Errors
    /// `EBADF` if the program closed it.
    pub(crate) fn waits(&self) -> Result<bool, Errno> {
        let flags = rustix::fs::fcntl_getfl(&self.ready)?;
        Ok(!flags.contains(rustix::fs::OFlags::NONBLOCK))
    }

    /// Withdraws events, of an object that is being destroyed. Returns how many.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) -> usize {
        let mut queue = self.queue();
        let before = queue.len();
        queue.retain(keep);
        let withdrawn = before - queue.len();
        // Take their counts back, so that the descriptor does not claim events that are gone.
        for _ in 0..withdrawn {
            if !self.is_ready() {
                break;
            }
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.ready, &mut count);
        }
        withdrawn
    }

    fn is_ready(&self) -> bool {
        is_readable(self.ready.as_fd())
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Events that may wait in one queue; a program that does not read them loses later ones.
pub const EVENTS_MAX: usize = 65_536;

/// Whether a read of the descriptor would not wait.
pub(crate) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = clock::timespec(Duration::ZERO);
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_is_readable_exactly_while_events_wait() {
        let queue = EventQueue::new().unwrap();
        assert!(!queue.is_ready());
        queue.push(1);
        queue.push(2);
        queue.push(3);
        assert!(queue.is_ready());
        assert_eq!(queue.take(), Ok(1));
        assert_eq!(queue.retain(|&event| event != 2), 1);
        assert_eq!(queue.take(), Ok(3));
        assert!(!queue.is_ready());
    }

    #[test]
    fn taking_what_is_ready_never_waits() {
        let queue = EventQueue::new().unwrap();
        assert_eq!(queue.waits(), Ok(true));
        assert_eq!(queue.take_ready(), None);
        queue.push(1);
        queue.push(2);
        assert_eq!(queue.take_ready(), Some(1));
        assert!(queue.is_ready());
        assert_eq!(queue.take_ready(), Some(2));
        assert_eq!(queue.take_ready(), None);
        assert!(!queue.is_ready());
    }
}
