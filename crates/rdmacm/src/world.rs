//! Everything the library knows, behind one lock, and the one thread that keeps it going.
//!
//! Connection management is no data path: one lock is simple, and nothing waits while it is held.
//! The thread waits for datagrams, timers and changes of interfaces; it is started when a device's
//! agent is first opened and costs nothing while nothing happens. A forked child begins with a
//! world of its own: what it has of its parent's means nothing to it.
//!
//! Not here: what an event of the communication manager does to an identifier (`happen`).

use std::collections::HashMap;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once};

use feroce_proto::Instant;
use feroce_verbs_abi as abi;

use crate::again::Answered;
use crate::device::{Agent, DeviceKey, Devices, IdKey};
use crate::guard::Failure;
use crate::state::{Action, Channel, ChannelKey, Event, Id, Param, Pending, Phase};
use crate::sys::{self, Counter};

/// The lock, and who waits for what.
pub(crate) struct Hall {
    world: Mutex<World>,
    /// An event was acknowledged.
    pub(crate) acknowledged: Condvar,
}

/// Everything behind the lock.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) devices: Devices,
    pub(crate) ids: HashMap<IdKey, Id>,
    pub(crate) channels: HashMap<ChannelKey, Channel>,
    /// Delivered events that are not acknowledged, and on whom they count.
    pub(crate) outstanding: HashMap<usize, IdKey>,
    pub(crate) answered: Answered,
    thread: Option<Thread>,
}

struct Thread {
    wake: Counter,
    interfaces: Option<OwnedFd>,
    /// Until when it sleeps, `None`: without end.
    until: Option<Instant>,
    awake: bool,
}

static HALL: AtomicPtr<Hall> = AtomicPtr::new(ptr::null_mut());

/// The one world of this process.
pub(crate) fn hall() -> &'static Hall {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        extern "C" fn in_the_child() {
            // The parent's thread is not here, and its lock may be held for ever.
            HALL.store(ptr::null_mut(), Ordering::Release);
        }
        // SAFETY: the function only stores a pointer, which is allowed there.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
    let known = HALL.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: halls are leaked.
        return unsafe { &*known };
    }
    let fresh = Box::leak(Box::new(Hall {
        world: Mutex::new(World::default()),
        acknowledged: Condvar::new(),
    }));
    match HALL.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        // SAFETY: halls are leaked; ours, a few bytes, is too.
        Err(other) => unsafe { &*other },
    }
}

/// Locks the world.
pub(crate) fn lock() -> MutexGuard<'static, World> {
    hall().lock()
}

impl Hall {
    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        // A panic aborts the program: there is no poison.
        self.world
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl World {
    /// The identifier behind a pointer of the program.
    pub(crate) fn id(&mut self, pointer: *mut abi::rdma_cm_id) -> Result<&mut Id, Failure> {
        self.ids.get_mut(&pointer.addr()).ok_or_else(|| {
            Failure::invalid(if pointer.is_null() {
                "id is a null pointer"
            } else {
                "id is none of this process: destroyed, or from before a fork"
            })
        })
    }

    /// The channel behind a pointer of the program.
    pub(crate) fn channel(
        &mut self,
        pointer: *mut abi::rdma_event_channel,
    ) -> Result<&mut Channel, Failure> {
        self.channels.get_mut(&pointer.addr()).ok_or_else(|| {
            Failure::invalid("channel is none of this process: destroyed, or from before a fork")
        })
    }

    /// Puts an event into the channel of `id`.
    pub(crate) fn post(
        &mut self,
        id: IdKey,
        kind: abi::rdma_cm_event_type,
        status: i32,
        param: Param,
        action: Action,
    ) {
        let Some(entry) = self.ids.get(&id) else {
            return;
        };
        let pending = Pending {
            event: Event::new(entry.c, kind, status, param),
            owner: id,
            action,
        };
        let channel = entry.channel;
        self.enqueue(channel, pending);
    }

    pub(crate) fn enqueue(&mut self, channel: ChannelKey, pending: Pending) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.queue.push_back(pending);
            channel.counter.add();
        }
    }

    /// Whether the end of a connection is still to be told.
    pub(crate) fn awaits_end(&self, id: IdKey) -> bool {
        let Some(entry) = self.ids.get(&id) else {
            return false;
        };
        let channel = self.channels.get(&entry.channel);
        entry.phase != Phase::Over || channel.is_some_and(|channel| !channel.queue.is_empty())
    }

    /// Takes the events that `which` wants out of a channel.
    pub(crate) fn extract(
        &mut self,
        channel: ChannelKey,
        which: impl Fn(&Pending) -> bool,
    ) -> Vec<Pending> {
        let Some(channel) = self.channels.get_mut(&channel) else {
            return Vec::new();
        };
        let (taken, kept): (Vec<_>, Vec<_>) = channel.queue.drain(..).partition(which);
        channel.queue = kept.into();
        // One that is being waited for just now may be gone already: the reader finds nothing.
        for _ in &taken {
            channel.counter.take();
        }
        taken
    }

    /// The agent of a device, with the thread that serves it.
    pub(crate) fn agent(&mut self, device: DeviceKey) -> Result<&mut Agent, Failure> {
        if self.thread.is_none() {
            self.thread = Some(start_thread()?);
        }
        let fresh = self.devices.list[device].agent.is_none();
        self.devices.list[device].agent()?;
        if fresh && let Some(thread) = &self.thread {
            // The thread has one descriptor more to look at.
            thread.wake.add();
        }
        self.devices.list[device].agent()
    }

    /// Lets everything that was asked of the communication managers happen.
    pub(crate) fn settle(&mut self) {
        for device in 0..self.devices.list.len() {
            self.settle_device(device);
        }
        let deadline = self.deadline();
        if let Some(thread) = &self.thread
            && !thread.awake
            && let Some(deadline) = deadline
            && thread.until.is_none_or(|until| deadline < until)
        {
            thread.wake.add();
        }
    }

    fn settle_device(&mut self, device: DeviceKey) {
        loop {
            let Some(agent) = &mut self.devices.list[device].agent else {
                return;
            };
            agent.transmit();
            let Some(event) = agent.cm.poll_event() else {
                return;
            };
            self.happen(device, event);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let agents = self.devices.list.iter().flat_map(|device| &device.agent);
        let timeouts = agents.filter_map(|agent| agent.cm.poll_timeout());
        timeouts.chain(self.next_again()).min()
    }

    /// One round of the thread; says what it waits for next.
    fn round(&mut self, fds: &mut Vec<libc::pollfd>) -> Option<Instant> {
        let now = sys::now();
        let mut changed = false;
        if let Some(thread) = &mut self.thread {
            thread.awake = true;
            while thread.wake.take() {}
            let readable = |index: usize| fds.get(index).is_some_and(|fd| fd.revents != 0);
            if let Some(interfaces) = &thread.interfaces
                && readable(1)
            {
                sys::drain(interfaces.as_raw_fd());
                changed = true;
            }
        }
        if changed {
            self.interfaces_changed();
        }
        for device in &mut self.devices.list {
            if let Some(agent) = &mut device.agent {
                agent.receive(now);
            }
        }
        self.settle();
        self.ask_again(now);
        self.settle();
        let deadline = self.deadline();
        fds.clear();
        if let Some(thread) = &mut self.thread {
            thread.awake = false;
            thread.until = deadline;
            fds.push(poll_entry(thread.wake.fd()));
            // A negative descriptor is not looked at.
            let interfaces = thread.interfaces.as_ref();
            fds.push(poll_entry(interfaces.map_or(-1, |fd| fd.as_raw_fd())));
        }
        let agents = self.devices.list.iter().flat_map(|device| &device.agent);
        fds.extend(agents.map(|agent| poll_entry(agent.fd())));
        deadline
    }
}

/// Whether an identifier may go on from where it is.
pub(crate) fn require(
    world: &mut World,
    id: *mut abi::rdma_cm_id,
    phases: &[Phase],
    what: &str,
) -> Result<IdKey, Failure> {
    let phase = world.id(id)?.phase;
    if phases.contains(&phase) {
        return Ok(id.addr());
    }
    Err(Failure::invalid(format!("cannot {what}: id is {phase:?}")))
}

const fn poll_entry(fd: i32) -> libc::pollfd {
    libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    }
}

fn start_thread() -> Result<Thread, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::new(
            error.raw_os_error().unwrap_or(libc::EIO),
            format!("the connection manager's thread: {error}"),
        )
    };
    let wake = Counter::new().map_err(cannot)?;
    let interfaces = sys::watch_interfaces()
        .inspect_err(|error| log::warn!("changes of interfaces will not be seen: {error}"))
        .ok();
    let hall = hall();
    // Signals are the program's.
    let blocked = sys::block_signals();
    let spawned = std::thread::Builder::new()
        .name("feroce-cm".to_owned())
        .stack_size(256 * 1024)
        .spawn(move || run(hall));
    sys::restore_signals(&blocked);
    spawned.map_err(cannot)?;
    Ok(Thread {
        wake,
        interfaces,
        until: None,
        awake: true,
    })
}

fn run(hall: &'static Hall) {
    let mut fds = Vec::new();
    loop {
        let deadline = hall.lock().round(&mut fds);
        sys::wait(&mut fds, sys::now(), deadline);
    }
}
