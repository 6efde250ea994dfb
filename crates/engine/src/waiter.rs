//! A program thread that waits for a completion event looks after the packets itself: the packet
//! that ends its sleep then wakes one thread, not two.
//!
//! One thread of a device does so at a time; the service thread stays out meanwhile, and for a
//! moment after, since such a program will wait again. Not here: what the service thread does.

use crate::clock;
use crate::cq::Channel;
use crate::device::Device;
use feroce_netio::interrupted_calls_restart;
use feroce_proto::{CqId, Instant};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A thread that waited this recently will wait again.
const HABIT: Duration = Duration::from_millis(1);

/// How long a thread waits before it looks up.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Name of the wake-up among the sockets; no socket has it.
const WAKE: u64 = u64::MAX;

/// Who waits for events of a device.
pub(crate) struct Waiting {
    /// The epoll instance of the sockets, and of `wake`.
    packets: OwnedFd,
    /// Wakes the thread when another one raised an event.
    wake: OwnedFd,
    /// A thread waits and looks after packets. Changes, and `wake` with it, under `door`.
    inside: AtomicBool,
    door: Mutex<()>,
    /// `wake` is readable.
    woken: AtomicBool,
    /// When the last one stopped, in nanoseconds of the monotonic clock.
    left_at: AtomicU64,
    /// How often one started.
    visits: AtomicU64,
}

impl Waiting {
    /// `packets`: the epoll instance of the device's sockets, which sleeping threads watch.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub(crate) fn new(packets: OwnedFd) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let name = epoll::EventData::new_u64(WAKE);
        epoll::add(&packets, &wake, name, epoll::EventFlags::IN)?;
        Ok(Self {
            packets,
            wake,
            inside: AtomicBool::new(false),
            door: Mutex::new(()),
            woken: AtomicBool::new(false),
            left_at: AtomicU64::new(0),
            visits: AtomicU64::new(0),
        })
    }

    /// Another thread raised an event, which may be what the waiting one is there for.
    pub(crate) fn wake(&self) {
        if !self.inside.load(Ordering::SeqCst) {
            return;
        }
        let _door = self.door();
        // Not any more: nobody would read it, and the descriptor would stay readable.
        if self.inside.load(Ordering::SeqCst) {
            self.woken.store(true, Ordering::SeqCst);
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Which visit a thread is on that looks after the packets now.
    pub(crate) fn visit(&self) -> Option<u64> {
        self.inside
            .load(Ordering::SeqCst)
            .then(|| self.visits.load(Ordering::SeqCst))
    }

    /// Whether a thread looks after the packets, or did just now and will again.
    pub(crate) fn attends(&self, now: Instant) -> bool {
        let left_at = Instant::from_nanos(self.left_at.load(Ordering::SeqCst));
        self.inside.load(Ordering::SeqCst) || now.since(left_at) < HABIT && left_at != Instant::ZERO
    }

    fn enter(&self) -> bool {
        let entered = !self.inside.swap(true, Ordering::SeqCst);
        if entered {
            self.visits.fetch_add(1, Ordering::SeqCst);
        }
        entered
    }

    fn leave(&self) {
        self.left_at.store(clock::now().nanos(), Ordering::SeqCst);
        let _door = self.door();
        self.inside.store(false, Ordering::SeqCst);
        if self.woken.swap(false, Ordering::SeqCst) {
            self.clear_wake();
        }
    }

    fn clear_wake(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }

    fn door(&self) -> MutexGuard<'_, ()> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device {
    /// Takes the oldest event of a channel. Waits for one unless the program made the descriptor
    /// non-blocking, and makes progress meanwhile.
    ///
    /// # Errors
    /// `EAGAIN` when there is none and the descriptor is non-blocking; `EINTR` on a signal.
    pub fn wait_event(&self, channel: &Channel) -> Result<CqId, Errno> {
        loop {
            if let Some(event) = self.wait_event_for(channel, WAIT_MAX)? {
                return Ok(event);
            }
        }
    }

    /// As [`Self::wait_event`], for at most `span`: then `None`.
    ///
    /// # Errors
    /// As for [`Self::wait_event`].
    pub fn wait_event_for(&self, channel: &Channel, span: Duration) -> Result<Option<CqId>, Errno> {
        if !channel.waits()? {
            return channel.take().map(Some);
        }
        if !self.waiting_threads().enter() {
            return channel.take_within(span);
        }
        let event = self.attend(channel, clock::now() + span);
        self.waiting_threads().leave();
        self.waiter_left();
        event
    }

    /// Makes progress until there is an event, or until `end`.
    fn attend(&self, channel: &Channel, end: Instant) -> Result<Option<CqId>, Errno> {
        let waiting = self.waiting_threads();
        let mut ready = Vec::with_capacity(2);
        loop {
            if let Some(event) = channel.take_ready() {
                return Ok(Some(event));
            }
            if clock::now() >= end {
                return Ok(None);
            }
            let core = self.lock();
            let due = [core.due(), core.acknowledges_wait_until(), Some(end)];
            drop(core);
            let due = due.into_iter().flatten().min();
            let timeout = due.map(|due| clock::timespec(due.since(clock::now())));
            // Not `poll`: a packet wakes a thread that waits in epoll itself on the processor that
            // has the packet at hand.
            ready.clear();
            let waited = epoll::wait(
                &waiting.packets,
                spare_capacity(&mut ready),
                timeout.as_ref(),
            );
            // It is never started again by the kernel; the `read` that programs expect would be.
            if waited == Err(Errno::INTR) && !interrupted_calls_restart() {
                return channel.take_ready().map(Some).ok_or(Errno::INTR);
            }
            if ready.iter().any(|event| event.data.u64() == WAKE) {
                let _door = waiting.door();
                waiting.woken.store(false, Ordering::SeqCst);
                waiting.clear_wake();
            }
            let mut core = self.lock();
            core.round(clock::now(), true);
            self.hand_on(core);
        }
    }
}
