//! The thread that makes progress for programs that sleep.
//!
//! It waits for packets, for the next timer and for the program. While the program polls, it stays
//! out of the way.

use crate::clock;
use crate::device::Device;
use crate::events::is_readable;
use feroce_netio::{Monitor, interfaces};
use feroce_proto::Instant;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// While polls are no older than this the thread leaves progress to the program.
const POLL_FRESH: Duration = Duration::from_millis(1);

/// Packets that a polling program would have taken within this time, it does not poll for.
const NEGLECTED: Duration = Duration::from_micros(50);

/// How long the thread watches for the packets of a program that left some lying.
const WATCH_MIN: Duration = Duration::from_millis(100);
const WATCH_MAX: Duration = Duration::from_secs(10);

/// How often the thread steps aside for a program that has just polled and may take what arrived.
const COURTESIES: u32 = 3;

/// After work the thread looks again within this time: timers later than that, which most posts
/// set and the answer clears, need not wake it.
const AFTER_WORK: Duration = Duration::from_millis(8);

/// Looks in vain after which the thread no longer watches while the program polls.
const IN_VAIN_MAX: u32 = 4;

/// Packets that follow one another this closely are a stream ...
const STREAM_GAP: Duration = Duration::from_micros(100);

/// ... for the next part of which the thread stays awake this long, giving the processor to
/// whoever wants it. Going to sleep and being woken costs both sides some microseconds each time:
/// a quarter of the sender's in 8-byte WRITEs.
const LINGER: Duration = Duration::from_micros(30);

/// Rounds in a row before the thread lets others have the lock.
const ROUNDS_MAX: u32 = 16;

/// The thread's handle; dropping it ends the thread.
pub(crate) struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    wake: OwnedFd,
    stop: AtomicBool,
    /// When the thread will wake by itself, in nanoseconds; 0 while it works.
    wakes_at: AtomicU64,
    /// The thread leaves packets to a polling program.
    staying_out: AtomicBool,
    /// The thread sleeps until the next timer because a thread of the program waits.
    relieved: AtomicBool,
}

impl Service {
    pub(crate) fn start(device: &Arc<Device>) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            wake,
            stop: AtomicBool::new(false),
            wakes_at: AtomicU64::new(0),
            staying_out: AtomicBool::new(false),
            relieved: AtomicBool::new(false),
        });
        let poll_fd = device.lock().net.poll_fd().try_clone_to_owned()?;
        let worker = Worker {
            shared: Arc::clone(&shared),
            device: Arc::downgrade(device),
            packets: poll_fd,
            monitor: Monitor::open()?,
            interface: device.interface().index,
            watch_until: Instant::ZERO,
            watch_span: WATCH_MIN,
            in_vain: 0,
            signalled: false,
            worked_at: Instant::ZERO,
            busy_at: Instant::ZERO,
            streams: false,
            visit: None,
        };
        let thread = std::thread::Builder::new()
            .name("feroce".into())
            .stack_size(256 * 1024)
            .spawn(move || worker.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Makes the thread look again.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }

    /// A program waits for an event from now on: the thread must watch for packets.
    pub(crate) fn attend(&self) {
        if self.shared.staying_out.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// A thread of the program that looked after packets waits no longer.
    pub(crate) fn waiter_left(&self) {
        if self.shared.relieved.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Makes sure the thread is awake at `due`.
    pub(crate) fn watch(&self, due: Instant) {
        if due.nanos() < self.shared.wakes_at.load(Ordering::SeqCst) {
            self.wake();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.wake();
        if let Some(thread) = self.thread.take()
            // The last reference may fall in the thread itself.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    device: Weak<Device>,
    packets: OwnedFd,
    monitor: Monitor,
    interface: u32,
    /// Until then the thread watches for packets although the program polls.
    watch_until: Instant,
    watch_span: Duration,
    /// Times in a row that packets woke the thread and were gone when it looked.
    in_vain: u32,
    /// Packets woke it.
    signalled: bool,
    worked_at: Instant,
    /// The last round in which there was something to do, and whether the one before was close.
    busy_at: Instant,
    streams: bool,
    /// Which thread of the program waited when this one looked last.
    visit: Option<u64>,
}

impl Worker {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::SeqCst) {
            let Some(device) = self.device.upgrade() else {
                return;
            };
            let attended = device.waiting_threads().attends(clock::now());
            let polled = device.was_polled() && (attended || !self.neglects(&device));
            if attended && !device.is_late(POLL_FRESH) {
                let plan = self.plan_attended(&device);
                drop(device);
                self.wait(&plan);
                continue;
            }
            if !polled || device.lives_by_events(clock::now()) || device.owes_acknowledges() {
                self.work(&device);
            }
            let plan = self.plan(&device, polled);
            drop(device);
            self.wait(&plan);
        }
    }

    /// Whether the program, though it polls now and then, leaves packets lying: it may spin on
    /// its memory for what a peer writes there. Then the thread watches for packets for a
    /// while, and for longer each time that this turns out to be right.
    fn neglects(&mut self, device: &Device) -> bool {
        let now = clock::now();
        if now < self.watch_until {
            return true;
        }
        if now.since(device.last_poll()) < NEGLECTED
            || device.is_attended()
            || !is_readable(self.packets.as_fd())
        {
            return false;
        }
        let soon = now.since(self.watch_until) < self.watch_span;
        self.watch_span = if soon {
            (self.watch_span * 2).min(WATCH_MAX)
        } else {
            WATCH_MIN
        };
        self.watch_until = now + self.watch_span;
        true
    }

    /// Makes rounds until nothing is left to do at once.
    fn work(&mut self, device: &Device) {
        let polls = clock::now().since(device.last_poll()) < NEGLECTED;
        if self.signalled && polls && self.is_taken_by_program() {
            self.note_work(false);
            return;
        }
        let mut rounds = 0;
        while rounds < ROUNDS_MAX {
            let now = clock::now();
            let mut core = device.lock();
            let busy = core.round(now, true);
            device.finish(core);
            if rounds == 0 && self.signalled {
                self.note_work(busy);
            }
            if busy {
                let since_last = now.since(self.busy_at);
                self.streams = since_last < STREAM_GAP;
                self.busy_at = now;
                rounds += 1;
            } else if polls || !self.streams || now.since(self.busy_at) >= LINGER {
                return;
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Lets a program that polls take what arrived; whether it did.
    fn is_taken_by_program(&self) -> bool {
        (0..COURTESIES).any(|_| {
            std::thread::yield_now();
            !is_readable(self.packets.as_fd())
        })
    }

    /// A program that takes its packets before the thread gets to them needs no thread.
    fn note_work(&mut self, fruitful: bool) {
        if fruitful {
            self.worked_at = clock::now();
            self.in_vain = 0;
            return;
        }
        self.in_vain += 1;
        if self.in_vain == IN_VAIN_MAX {
            self.in_vain = 0;
            self.watch_until = Instant::ZERO;
        }
    }

    /// Decides how to wait. What it decides on is published first and looked at afterwards, so
    /// that a change between the two is seen here or wakes the thread.
    fn plan(&self, device: &Device, polled: bool) -> Plan {
        let now = clock::now();
        self.shared.staying_out.store(polled, Ordering::SeqCst);
        if polled && !device.lives_by_events(now) {
            let until = now + POLL_FRESH;
            self.shared.wakes_at.store(until.nanos(), Ordering::SeqCst);
            return Plan {
                packets: false,
                until: Some(until),
            };
        }
        self.shared.staying_out.store(false, Ordering::SeqCst);
        self.shared.wakes_at.store(u64::MAX, Ordering::SeqCst);
        let core = device.lock();
        let due = [core.due(), core.acknowledges_wait_until()];
        drop(core);
        let soon = (now.since(self.worked_at) < AFTER_WORK).then(|| now + AFTER_WORK);
        let due = due.into_iter().chain([soon]).flatten().min();
        self.shared
            .wakes_at
            .store(due.map_or(u64::MAX, Instant::nanos), Ordering::SeqCst);
        Plan {
            packets: true,
            until: due,
        }
    }

    /// How to wait while a thread of the program looks after packets. When it has slept for a
    /// while this one does, too, but for the timers.
    fn plan_attended(&mut self, device: &Device) -> Plan {
        let waiting = device.waiting_threads();
        let visit = waiting.visit();
        let sleeps = visit.is_some() && visit == self.visit;
        self.visit = visit;
        self.shared.staying_out.store(true, Ordering::SeqCst);
        self.shared.relieved.store(sleeps, Ordering::SeqCst);
        let soon = clock::now() + POLL_FRESH;
        // The thread may have left before it could see that this one relies on it.
        let until = if sleeps && waiting.visit() == visit {
            let due = device.lock().due();
            // It has the same timers in view.
            due.map(|due| due.max(soon) + POLL_FRESH)
        } else {
            Some(soon)
        };
        let wakes_at = until.map_or(u64::MAX, Instant::nanos);
        self.shared.wakes_at.store(wakes_at, Ordering::SeqCst);
        Plan {
            packets: false,
            until,
        }
    }

    fn wait(&mut self, plan: &Plan) {
        let timeout = plan
            .until
            .map(|until| clock::timespec(until.since(clock::now())));
        let mut fds = [
            PollFd::new(&self.shared.wake, PollFlags::IN),
            PollFd::from_borrowed_fd(self.monitor.fd(), PollFlags::IN),
            PollFd::new(&self.packets, PollFlags::IN),
        ];
        let watched = if plan.packets { 3 } else { 2 };
        let _ = poll(&mut fds[..watched], timeout.as_ref());
        let (woken, changed) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        self.signalled = watched == 3 && !fds[2].revents().is_empty();
        self.shared.wakes_at.store(0, Ordering::SeqCst);
        self.shared.staying_out.store(false, Ordering::SeqCst);
        self.shared.relieved.store(false, Ordering::SeqCst);
        if woken {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.shared.wake, &mut count);
        }
        if changed {
            self.changes();
        }
    }

    /// Something about the interfaces changed: look at ours again.
    fn changes(&mut self) {
        if self.monitor.changes().is_empty() {
            return;
        }
        let Some(device) = self.device.upgrade() else {
            return;
        };
        match interfaces() {
            Ok(all) => {
                let ours = all.into_iter().find(|other| other.index == self.interface);
                device.interface_changed(ours);
            }
            Err(error) => log::error!("the interfaces cannot be read: {error}"),
        }
    }
}

/// How the thread waits.
struct Plan {
    /// For packets, too.
    packets: bool,
    /// At most until then.
    until: Option<Instant>,
}
