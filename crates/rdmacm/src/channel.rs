//! Event channels, and what happens when the program takes an event: a queue pair moves on, the
//! peer is told that this side is ready. Not here: where events come from (`happen`).

use std::collections::VecDeque;
use std::ffi::c_int;
use std::ptr;

use feroce_verbs_abi as abi;
use feroce_verbs_abi::{rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_event_channel};

use crate::device::{IdKey, Shared};
use crate::guard::{self, Failure};
use crate::state::{Action, Channel, ChannelKey, Event, Param, Pending, Phase};
use crate::sys::{self, Counter};
use crate::world::{self, World};
use crate::{multicast, queue};

/// A channel for events; its descriptor is readable while events wait, and the program may make
/// it non-blocking.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    guard::pointer("rdma_create_event_channel", || create(&mut world::lock()))
}

/// Creates a channel in the table.
pub(crate) fn create(world: &mut World) -> Result<*mut rdma_event_channel, Failure> {
    let counter = Counter::new().map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
        Failure::new(errno, format!("a descriptor for the channel: {error}"))
    })?;
    let c = Box::into_raw(Box::new(rdma_event_channel { fd: counter.fd() }));
    let channel = Channel {
        c: Shared(c),
        counter,
        queue: VecDeque::new(),
    };
    world.channels.insert(c.addr(), channel);
    Ok(c)
}

/// Takes a channel out of the table.
pub(crate) fn destroy(world: &mut World, channel: ChannelKey) {
    if let Some(channel) = world.channels.remove(&channel) {
        // SAFETY: from `create`; nobody finds it any more.
        drop(unsafe { Box::from_raw(channel.c.0) });
    }
}

/// Destroys a channel. The program has destroyed its identifiers before.
///
/// # Safety
/// `channel` is null or came from [`rdma_create_event_channel`] and is destroyed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    guard::nothing("rdma_destroy_event_channel", || {
        destroy(&mut world::lock(), channel.addr());
        Ok(())
    });
}

/// Waits for an event, unless the channel's descriptor is non-blocking: then `EAGAIN`.
///
/// # Safety
/// `channel` is live, `event` has room for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    guard::zero("rdma_get_cm_event", || {
        guard::not_null(event, "event")?;
        let found = take(channel)?;
        // SAFETY: the caller's contract.
        unsafe { event.write(found) };
        Ok(())
    })
}

/// The next event, with everything done that it asks for.
pub(crate) fn take(channel: *mut rdma_event_channel) -> Result<*mut rdma_cm_event, Failure> {
    let fd = world::lock().channel(channel)?.counter.fd();
    loop {
        // A place where threads may be cancelled: nothing is held.
        sys::wait_for_one(fd).map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            Failure::new(errno, format!("no event: {error}"))
        })?;
        let mut world = world::lock();
        let Some(pending) = world.channel(channel)?.queue.pop_front() else {
            // It was taken back meanwhile.
            continue;
        };
        let id = pending.event.c.id.addr();
        if let Some(owner) = world.ids.get_mut(&pending.owner) {
            owner.unacknowledged += 1;
        }
        let key = (&raw const pending.event.c).addr();
        world.outstanding.insert(key, pending.owner);
        drop(world);
        let mut event = pending.event;
        act(id, pending.action, &mut event);
        return Ok(Box::into_raw(event).cast());
    }
}

/// What is to be done when the program takes an event. The queue pair is the program's: it moves
/// in the program's thread, as the program expects.
fn act(id: IdKey, action: Action, event: &mut Event) {
    match action {
        Action::Nothing => {}
        Action::Fail => queue::fail(id),
        Action::Attach => multicast::attach(id, event),
        Action::Establish => {
            let has_queue = world::lock()
                .ids
                .get(&id)
                .is_some_and(|id| !id.qp().is_null());
            if !has_queue {
                // The program has a queue pair of its own: rdma_establish follows.
                return;
            }
            match queue::make_ready(id).and_then(|()| establish(id)) {
                Ok(()) => event.c.event = abi::RDMA_CM_EVENT_ESTABLISHED,
                Err(failure) => {
                    log::warn!("the connection cannot be used: {}", failure.reason);
                    event.c.event = abi::RDMA_CM_EVENT_CONNECT_ERROR;
                    event.c.status = -failure.errno;
                    give_up(id);
                }
            }
        }
    }
}

/// Says that this side is ready.
pub(crate) fn establish(id: IdKey) -> Result<(), Failure> {
    let mut world = world::lock();
    let entry = world.ids.get_mut(&id);
    let entry = entry.ok_or_else(|| Failure::invalid("id is destroyed"))?;
    let (Some(device), Some(connection)) = (entry.device, entry.connection) else {
        return Err(Failure::new(libc::ENOTCONN, "id has no connection"));
    };
    let agent = world.agent(device)?;
    agent
        .cm
        .establish(sys::now(), connection, &[])
        .map_err(|error| Failure::invalid(error.to_string()))?;
    if let Some(entry) = world.ids.get_mut(&id) {
        entry.phase = Phase::Connected;
    }
    world.settle();
    Ok(())
}

/// Has no more use for the connection of an identifier.
fn give_up(id: IdKey) {
    let mut world = world::lock();
    let Some(entry) = world.ids.get_mut(&id) else {
        return;
    };
    entry.phase = Phase::Over;
    let (device, connection) = (entry.device, entry.connection.take());
    if let (Some(device), Some(connection)) = (device, connection)
        && let Some(agent) = &mut world.devices.list[device].agent
    {
        agent.cm.abandon(sys::now(), connection);
        agent.connections.remove(&connection);
    }
    world.settle();
    drop(world);
    queue::fail(id);
}

/// Gives an event back.
///
/// # Safety
/// `event` came from [`rdma_get_cm_event`] and is acknowledged once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    guard::zero("rdma_ack_cm_event", || acknowledge(event))
}

/// Gives an event back.
pub(crate) fn acknowledge(event: *mut rdma_cm_event) -> Result<(), Failure> {
    let hall = world::hall();
    let mut world = hall.lock();
    let owner = world.outstanding.remove(&event.addr());
    let owner = owner.ok_or_else(|| {
        Failure::invalid("event is not outstanding: acknowledged already, or from before a fork")
    })?;
    if let Some(owner) = world.ids.get_mut(&owner) {
        owner.unacknowledged = owner.unacknowledged.saturating_sub(1);
    }
    drop(world);
    hall.acknowledged.notify_all();
    // SAFETY: `take` made it from a box, and it was outstanding until now.
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    Ok(())
}

/// Puts an event of the program's own into the channel of an identifier: of type
/// `RDMA_CM_EVENT_USER` or `RDMA_CM_EVENT_INTERNAL`.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: rdma_cm_event_type,
    status: c_int,
    arg: u64,
) -> c_int {
    guard::zero("rdma_write_cm_event", || {
        if event != abi::RDMA_CM_EVENT_USER && event != abi::RDMA_CM_EVENT_INTERNAL {
            return Err(Failure::invalid(format!(
                "event {event} is the library's own: use RDMA_CM_EVENT_USER"
            )));
        }
        let mut world = world::lock();
        world.id(id)?;
        world.post(
            id.addr(),
            event,
            status,
            Param::Argument(arg),
            Action::Nothing,
        );
        Ok(())
    })
}

/// In synchronous use: waits for the event of the call that was just made, and keeps it in
/// `id->event`.
pub(crate) fn complete(id: *mut rdma_cm_id) -> Result<(), Failure> {
    let mut world = world::lock();
    let entry = world.id(id)?;
    if !entry.sync {
        return Ok(());
    }
    let key = entry.channel;
    let channel = world.channels.get(&key).map(|channel| channel.c.0);
    let channel = channel.ok_or_else(|| Failure::invalid("the channel of id is destroyed"))?;
    drop(world);
    forget_event(id);
    let event = take(channel)?;
    // SAFETY: the identifier is live (the caller's contract), the event outstanding.
    let (kind, status) = unsafe {
        (*id).event = event;
        ((*event).event, (*event).status)
    };
    let name = || format!("event {kind} with status {status}");
    match (kind, status) {
        (_, 0) => Ok(()),
        (abi::RDMA_CM_EVENT_REJECTED, reason) => Err(Failure::new(
            libc::ECONNREFUSED,
            format!("the peer rejected the connection: reason {reason}"),
        )),
        (_, status) if status < 0 => Err(Failure::new(-status, name())),
        (abi::RDMA_CM_EVENT_UNREACHABLE, _) => Err(Failure::new(libc::ECONNREFUSED, name())),
        (_, _) => Err(Failure::new(libc::EPROTO, name())),
    }
}

/// In synchronous use: gives back the event of the last call.
pub(crate) fn forget_event(id: *mut rdma_cm_id) {
    // SAFETY: the caller looked the identifier up.
    let event = unsafe { std::mem::replace(&mut (*id).event, ptr::null_mut()) };
    if !event.is_null()
        && let Err(failure) = acknowledge(event)
    {
        log::debug!("{}", failure.reason);
    }
}

/// The events of one identifier.
pub(crate) fn is_of(id: IdKey) -> impl Fn(&Pending) -> bool {
    move |pending| pending.owner == id || pending.event.c.id.addr() == id
}
