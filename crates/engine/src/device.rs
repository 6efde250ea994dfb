//! A device: one interface, opened once per process, shared by all contexts on it.

use crate::core::{Core, Counters};
use crate::cq::{Channel, Cq, Notify, Stamped};
use crate::discover::{Candidate, GID_TABLE_LEN, Gid, PortInfo, candidates, port_of};
use crate::events::EventQueue;
use crate::ids::Ids;
use crate::listeners::Listeners;
use crate::service::Service;
use crate::settings::{impairment, nic_config};
use crate::waiter::Waiting;
use crate::{clock, statistics};
use feroce_mem as mem;
use feroce_netio::{Interface, Net, NetConfig, Slot, SlotError};
use feroce_obs::pcapng::Capture;
use feroce_proto::{AsyncEvent, CqId, Instant, Nic, PdId, XrcdId};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// An asynchronous event of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceEvent {
    /// Concerns one queue pair or shared receive queue.
    Affiliated(AsyncEvent),
    /// A completion queue lost completions.
    CqError(CqId),
    /// The interface came up.
    PortActive,
    /// The interface went down.
    PortError,
    /// An address came or went.
    GidChange,
    /// The interface is gone.
    Fatal,
}

/// The queue that a context fetches its asynchronous events from.
pub type DeviceEvents = EventQueue<DeviceEvent>;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No interface gives a device of that name.
    #[error("there is no device {name}; `feroce devices` lists what there is")]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The interface exists but cannot be used.
    #[error("device {name} cannot be used: {reason}")]
    LeftOut {
        /// The device.
        name: String,
        /// Why.
        reason: String,
    },
    /// No process slot.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A socket could not be made.
    #[error(transparent)]
    Net(#[from] feroce_netio::OpenError),
    /// The environment asks for a link that cannot be made.
    #[error("FEROCE_LINK: {0}")]
    Link(String),
    /// The environment asks for a congestion control that there is not.
    #[error("FEROCE_CC: there is no {0:?}; there are none and dcqcn")]
    Congestion(String),
    /// The system refused something else.
    #[error("opening the device failed: {0}")]
    System(#[from] io::Error),
}

/// An opened interface.
pub struct Device {
    name: String,
    guid: [u8; 8],
    core: Mutex<Core>,
    /// Threads that wait for the lock; a polling thread yields to them.
    waiting: AtomicU32,
    /// A program polled or posted since the service thread last looked.
    polled: AtomicBool,
    /// Rounds of polling programs since one last found something to do.
    idle_rounds: AtomicU32,
    /// A polling program lets others have its processor at this moment.
    stepped_aside: AtomicBool,
    /// When a program last polled or posted, in nanoseconds of the monotonic clock.
    last_poll: AtomicU64,
    /// Completion queues that a program waits on by event.
    armed: AtomicU32,
    /// When a program last asked for an event.
    last_arm: AtomicU64,
    ids: Mutex<Ids>,
    port: Mutex<Port>,
    listeners: Mutex<Listeners>,
    service: OnceLock<Service>,
    waiting_threads: Waiting,
    /// The statistics have been written.
    reported: AtomicBool,
}

struct Port {
    interface: Interface,
    gids: [Option<Gid>; GID_TABLE_LEN],
}

/// Rounds in vain after which a polling thread lets others have its processor: about 8 µs.
const IDLE_ROUNDS: u32 = 16;

/// A program that asked for an event this recently will ask again: the service thread keeps
/// watching for packets although the program polls in between.
const EVENT_HABIT: Duration = Duration::from_millis(10);

static OPENED: Mutex<Opened> = Mutex::new(Vec::new());

/// The devices that are open, by name.
type Opened = Vec<(String, Weak<Device>)>;

/// Access to the devices that are open.
pub(crate) type OpenedGuard = MutexGuard<'static, Opened>;

/// Waits for access to the devices that are open.
pub(crate) fn opened() -> OpenedGuard {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(opened: &Opened, name: &str) -> Option<Arc<Device>> {
    let found = opened.iter().find(|(other, _)| other == name);
    found.and_then(|(_, device)| device.upgrade())
}

impl Device {
    /// Opens a device, or shares it when this process has it open already.
    ///
    /// # Errors
    /// [`OpenError`], which says what to do.
    pub fn open(name: &str) -> Result<Arc<Self>, OpenError> {
        let mut opened = opened();
        opened.retain(|(_, device)| device.strong_count() > 0);
        if let Some(device) = find(&opened, name) {
            return Ok(device);
        }
        let device = Self::open_new(name, true)?;
        opened.push((name.to_owned(), Arc::downgrade(&device)));
        Ok(device)
    }

    /// Opens a device of its own, without a service thread: nothing happens but in the caller's
    /// calls, and memory is as quiet between them as the network lets it. For measurements and
    /// for programs that never sleep.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_unattended(name: &str) -> Result<Arc<Self>, OpenError> {
        Self::open_new(name, false)
    }

    /// The device of that name, if this process has it open.
    pub(crate) fn opened(name: &str) -> Option<Arc<Self>> {
        find(&opened(), name)
    }

    fn open_new(name: &str, attended: bool) -> Result<Arc<Self>, OpenError> {
        let candidate = candidates()?
            .into_iter()
            .find(|candidate| candidate.name == name)
            .ok_or_else(|| OpenError::Unknown {
                name: name.to_owned(),
            })?;
        if let Some(reason) = candidate.left_out {
            return Err(OpenError::LeftOut {
                name: name.to_owned(),
                reason,
            });
        }
        let slot = Slot::claim()?;
        let number = slot.number();
        let config = NetConfig {
            interface: candidate.interface.index,
            addresses: candidate.gids.clone(),
            impairment: impairment()?,
            ..NetConfig::default()
        };
        let net = Net::open(config, slot)?;
        let capture = Capture::from_environment();
        let packets = net.poll_fd().try_clone_to_owned()?;
        let nic = Nic::new(nic_config(&candidate, net.receive_buffer())?);
        let core = Core::new(candidate.name.clone(), nic, net, number, capture);
        let waiting = Waiting::new(packets)?;
        let device = Arc::new(Self::assemble(candidate, core, number, waiting));
        if attended {
            let service = Service::start(&device)?;
            let _ = device.service.set(service);
        }
        statistics::register(&device);
        Ok(device)
    }

    fn assemble(candidate: Candidate, core: Core, slot: u16, waiting: Waiting) -> Self {
        let mut gids = [None; GID_TABLE_LEN];
        for (entry, gid) in gids.iter_mut().zip(&candidate.gids) {
            *entry = Some(*gid);
        }
        let guid = candidate.guid();
        Self {
            name: candidate.name,
            guid,
            core: Mutex::new(core),
            waiting: AtomicU32::new(0),
            polled: AtomicBool::new(false),
            idle_rounds: AtomicU32::new(0),
            stepped_aside: AtomicBool::new(false),
            last_poll: AtomicU64::new(0),
            armed: AtomicU32::new(0),
            last_arm: AtomicU64::new(0),
            ids: Mutex::new(Ids::new(slot)),
            port: Mutex::new(Port {
                interface: candidate.interface,
                gids,
            }),
            listeners: Mutex::new(Listeners::default()),
            service: OnceLock::new(),
            waiting_threads: waiting,
            reported: AtomicBool::new(false),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its GUID, in network order.
    pub const fn guid(&self) -> [u8; 8] {
        self.guid
    }

    /// State of the port.
    pub fn port(&self) -> PortInfo {
        port_of(&self.port_lock().interface)
    }

    /// The interface behind it, as last seen.
    pub fn interface(&self) -> Interface {
        self.port_lock().interface.clone()
    }

    /// An entry of the GID table.
    pub fn gid(&self, index: usize) -> Option<Gid> {
        self.port_lock().gids.get(index).copied().flatten()
    }

    /// What the engine and the protocol counted.
    pub fn counters(&self) -> (Counters, feroce_proto::Counters, feroce_netio::Counters) {
        let core = self.lock();
        (core.counters, *core.nic.counters(), *core.net.counters())
    }

    /// All counters by name, as `feroce_obs::statistics` and the view of sysfs show them.
    pub fn named_counters(&self) -> Vec<(&'static str, u64)> {
        let (engine, proto, net) = self.counters();
        let mut all = engine.fields().to_vec();
        all.extend(proto.fields());
        all.extend(net.fields());
        all
    }

    /// True the first time: the statistics of a device are reported once.
    pub(crate) fn take_report(&self) -> bool {
        !self.reported.swap(true, Ordering::Relaxed)
    }

    /// Registers an event queue for events of the device.
    pub fn add_listener(&self, events: &Arc<DeviceEvents>) {
        let mut listeners = self.listeners();
        listeners.all.retain(|other| other.strong_count() > 0);
        listeners.all.push(Arc::downgrade(events));
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> PdId {
        self.ids().take_pd()
    }

    /// A new XRC domain.
    pub fn alloc_xrcd(&self) -> XrcdId {
        self.ids().take_xrcd()
    }

    /// Runs `call` on the memory table.
    pub fn with_memory<R>(&self, call: impl FnOnce(&mut mem::Table) -> R) -> R {
        call(&mut self.lock().mem)
    }

    /// A new completion queue for `capacity` completions.
    pub fn create_cq(
        &self,
        capacity: usize,
        channel: Option<Arc<Channel>>,
        events: &Arc<DeviceEvents>,
    ) -> Arc<Cq> {
        let mut core = self.lock();
        let entry = core.cqs.vacant_entry();
        // Limited far below 2^32 by memory.
        let id = CqId(u32::try_from(entry.key()).expect("fewer than 2^32 completion queues"));
        let cq = Arc::new(Cq::new(id, capacity, channel));
        entry.insert(Arc::clone(&cq));
        drop(core);
        self.listeners().by_cq.insert(id, Arc::downgrade(events));
        cq
    }

    /// Removes a completion queue; no queue pair uses it any more.
    pub fn destroy_cq(&self, cq: &Cq) {
        self.lock().cqs.try_remove(cq.id().0 as usize);
        self.forget_cq_events(cq);
    }

    /// Withdraws all events that name a completion queue and raises no more.
    pub fn forget_cq_events(&self, cq: &Cq) {
        if cq.disarm() {
            self.armed.fetch_sub(1, Ordering::Relaxed);
        }
        let events = self.listeners().by_cq.remove(&cq.id());
        if let Some(events) = events.and_then(|events| events.upgrade()) {
            events.retain(|event| *event != DeviceEvent::CqError(cq.id()));
        }
        if let Some(channel) = cq.channel() {
            channel.retain(|&id| id != cq.id());
        }
    }

    /// Takes up to `count` completions; when there are none, makes one round of progress first.
    pub fn poll_cq(&self, cq: &Cq, count: usize, mut sink: impl FnMut(Stamped)) -> usize {
        // Noted whatever comes of it: a program that finds completions polls, too.
        let now = clock::now();
        self.note_poll(now);
        let taken = cq.drain(count, &mut sink);
        if taken > 0 || count == 0 {
            return taken;
        }
        self.progress(now);
        cq.drain(count, sink)
    }

    /// Asks for an event at the next completion.
    pub fn arm_cq(&self, cq: &Cq, notify: Notify) {
        // The service thread must watch while anyone waits for an event.
        self.last_arm.store(clock::now().nanos(), Ordering::Relaxed);
        if cq.arm(notify) == Notify::Nothing {
            self.armed.fetch_add(1, Ordering::SeqCst);
            // A thread that waits, or just did, comes back and looks after packets itself.
            if let Some(service) = self.service.get()
                && !self.waiting_threads.attends(clock::now())
            {
                service.attend();
            }
        }
    }

    /// Makes one round of progress unless another thread is doing so.
    pub fn poll_progress(&self) {
        let now = clock::now();
        self.note_poll(now);
        self.progress(now);
    }

    fn progress(&self, now: Instant) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.step_aside();
            return;
        }
        let mut core = match self.core.try_lock() {
            Ok(core) => core,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let busy = core.round(now, false);
        self.finish(core);
        if busy {
            self.idle_rounds.store(0, Ordering::Relaxed);
        } else if self.idle_rounds.fetch_add(1, Ordering::Relaxed) % IDLE_ROUNDS == IDLE_ROUNDS - 1
        {
            // The peer that the program waits for may need this very processor.
            self.step_aside();
        }
    }

    fn step_aside(&self) {
        self.stepped_aside.store(true, Ordering::Relaxed);
        std::thread::yield_now();
        self.stepped_aside.store(false, Ordering::Relaxed);
    }

    /// Whether a program makes a round now, or will as soon as it gets a processor.
    pub(crate) fn is_attended(&self) -> bool {
        self.stepped_aside.load(Ordering::Relaxed)
            || matches!(self.core.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Notes that the program polls, or posts and will poll.
    pub(crate) fn note_poll(&self, now: Instant) {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
        self.last_poll.store(now.nanos(), Ordering::Relaxed);
    }

    /// When a program last polled or posted.
    pub(crate) fn last_poll(&self) -> Instant {
        Instant::from_nanos(self.last_poll.load(Ordering::Relaxed))
    }

    /// Waits for the lock; a polling thread steps aside meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        if let Ok(core) = self.core.try_lock() {
            return core;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        core
    }

    /// Ends a stretch under the lock: hands events on and has the service thread watch the timers.
    pub(crate) fn finish(&self, core: MutexGuard<'_, Core>) {
        if self.hand_on(core) {
            self.waiting_threads.wake();
        }
    }

    /// As [`Self::finish`], for a thread that waits for events itself; returns whether some were
    /// raised.
    pub(crate) fn hand_on(&self, mut core: MutexGuard<'_, Core>) -> bool {
        let events = std::mem::take(&mut core.events);
        let fired = std::mem::take(&mut core.fired);
        let due = core.due();
        drop(core);
        if fired > 0 {
            self.armed.fetch_sub(fired, Ordering::Relaxed);
        }
        for event in events {
            self.deliver(event);
        }
        if let (Some(due), Some(service)) = (due, self.service.get()) {
            service.watch(due);
        }
        fired > 0
    }

    pub(crate) const fn waiting_threads(&self) -> &Waiting {
        &self.waiting_threads
    }

    /// A thread no longer waits: the service thread may have left everything to it.
    pub(crate) fn waiter_left(&self) {
        if let Some(service) = self.service.get() {
            service.waiter_left();
        }
    }

    /// Whether a program polled since the last call of this.
    pub(crate) fn was_polled(&self) -> bool {
        self.polled.swap(false, Ordering::Relaxed)
    }

    /// Sends acknowledges that wait for a program which is about to end.
    pub(crate) fn send_acknowledges(&self) {
        // A thread that holds the lock while the process ends is at work on just this.
        if let Ok(mut core) = self.core.try_lock() {
            core.send_acknowledges(clock::now());
        }
    }

    /// Whether acknowledges have waited long enough for a program that posts nothing.
    pub(crate) fn owes_acknowledges(&self) -> bool {
        // While another thread has the lock it is at work.
        self.core.try_lock().is_ok_and(|core| {
            let until = core.acknowledges_wait_until();
            until.is_some_and(|until| until <= clock::now())
        })
    }

    /// Whether a timer is overdue by more than `span`: whoever should have seen to it, does not.
    pub(crate) fn is_late(&self, span: Duration) -> bool {
        self.core
            .try_lock()
            .is_ok_and(|core| core.due().is_some_and(|due| due + span < clock::now()))
    }

    /// Whether a program waits for an event, or did so lately and will again.
    pub(crate) fn lives_by_events(&self, now: Instant) -> bool {
        let last_arm = Instant::from_nanos(self.last_arm.load(Ordering::Relaxed));
        self.armed.load(Ordering::SeqCst) > 0 || now.since(last_arm) < EVENT_HABIT
    }

    /// Takes over a changed interface: addresses come and go, the link goes up and down.
    pub(crate) fn interface_changed(&self, interface: Option<Interface>) {
        let Some(interface) = interface else {
            self.port_lock().interface.up = false;
            self.deliver(DeviceEvent::Fatal);
            return;
        };
        let addresses = crate::discover::usable_addresses(&interface);
        let mut port = self.port_lock();
        let was_up = std::mem::replace(&mut port.interface, interface).up;
        let is_up = port.interface.up;
        let mut changed = false;
        let mut core = self.lock();
        if let Err(error) = core.net.refresh_host_addresses() {
            log::warn!("the addresses of this host cannot be read: {error}");
        }
        for entry in &mut port.gids {
            if let Some(gid) = *entry
                && !addresses.contains(&gid)
            {
                core.net.remove_address(gid);
                *entry = None;
                changed = true;
            }
        }
        for address in addresses {
            if port.gids.contains(&Some(address)) {
                continue;
            }
            let Some(entry) = port.gids.iter_mut().find(|entry| entry.is_none()) else {
                break;
            };
            match core.net.add_address(address) {
                Ok(()) => {
                    *entry = Some(address);
                    changed = true;
                }
                // A GID that would not work is not listed.
                Err(error) => log::warn!("address {address} of {} left out: {error}", self.name),
            }
        }
        drop(core);
        drop(port);
        if changed {
            self.deliver(DeviceEvent::GidChange);
        }
        if was_up != is_up {
            self.deliver(if is_up {
                DeviceEvent::PortActive
            } else {
                DeviceEvent::PortError
            });
        }
    }

    pub(crate) fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn port_lock(&self) -> MutexGuard<'_, Port> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        statistics::report(self);
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
