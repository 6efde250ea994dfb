//! Completion queues and completion channels. Not here: the pointers by which programs walk an
//! extended queue ([`crate::cq_ex`]); what a completion looks like in C ([`crate::convert`]).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use std::time::Duration;

use feroce_verbs::{CompletionChannel, CompletionQueue, CqOptions};
use feroce_verbs_abi as abi;

use crate::cq_ex::Walk;
use crate::device::errno_of;
use crate::guard::{self, Failure};
use crate::handle::{self, Ledger};
use crate::{context, convert};

/// The Rust part of an `ibv_comp_channel`.
#[derive(Debug)]
pub(crate) struct ChannelState {
    channel: CompletionChannel,
}

/// The Rust part of an `ibv_cq`.
#[derive(Debug)]
pub(crate) struct CqState {
    pub(crate) cq: CompletionQueue,
    /// Completion events that the program fetched, and asynchronous ones.
    pub(crate) events: Ledger,
    pub(crate) async_events: Ledger,
    /// What a program walks by the calls of an extended queue.
    pub(crate) walk: Walk,
}

/// The completion queue behind a pointer.
///
/// # Safety
/// `cq` is null or live.
pub(crate) unsafe fn state<'a>(cq: *mut abi::ibv_cq) -> Result<&'a CqState, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(cq) }
}

/// # Safety
/// `context` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut abi::ibv_context,
) -> *mut abi::ibv_comp_channel {
    guard::pointer("ibv_create_comp_channel", || {
        // SAFETY: the caller's contract.
        let channel = unsafe { context::state(context) }?
            .context
            .create_channel()
            .map_err(|error| Failure::new(errno_of(&error), error.to_string()))?;
        let c = abi::ibv_comp_channel {
            context,
            fd: channel.raw_fd(),
            refcnt: 0,
        };
        Ok(handle::create(c, ChannelState { channel }))
    })
}

/// # Safety
/// `channel` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(
    channel: *mut abi::ibv_comp_channel,
) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let state = unsafe { handle::rust::<_, ChannelState>(channel) }?;
        if state.channel.users() > 0 {
            return Err(Failure::new(
                libc::EBUSY,
                "completion queues still use the channel",
            ));
        }
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, ChannelState>(channel) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_destroy_comp_channel", channel, destroy) }
}

/// Makes a completion queue and its C object.
///
/// # Safety
/// `context` and `channel` are null or live.
pub(crate) unsafe fn create(
    context: *mut abi::ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut abi::ibv_comp_channel,
    comp_vector: u32,
    walk: Walk,
) -> Result<*mut abi::ibv_cq, Failure> {
    // SAFETY: the caller's contract.
    let state = unsafe { context::state(context) }?;
    if comp_vector >= context::COMPLETION_VECTORS.cast_unsigned() {
        return Err(Failure::invalid(format!(
            "comp_vector {comp_vector}: there is one, 0"
        )));
    }
    let channel_state = if channel.is_null() {
        None
    } else {
        // SAFETY: the caller's contract.
        Some(
            unsafe { handle::rust::<_, ChannelState>(channel) }?
                .channel
                .clone(),
        )
    };
    let options = CqOptions {
        capacity: cqe as usize,
        channel: channel_state,
    };
    let cq = state
        .context
        .create_cq(options)
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let id = cq.id();
    let c = abi::ibv_cq_ex {
        context,
        channel,
        cq_context,
        handle: id.0,
        cqe: cqe.cast_signed(),
        ..walk.c_struct()
    };
    let rust = CqState {
        cq,
        events: Ledger::default(),
        async_events: Ledger::default(),
        walk,
    };
    let pointer = handle::create::<abi::ibv_cq, _>(c, rust);
    state.objects().cqs.insert(id, pointer.expose_provenance());
    if !channel.is_null() {
        // SAFETY: the caller's contract; programs do not touch the count.
        unsafe { (*channel).refcnt += 1 };
    }
    Ok(pointer)
}

/// # Safety
/// `context` and `channel` are null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut abi::ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut abi::ibv_comp_channel,
    comp_vector: c_int,
) -> *mut abi::ibv_cq {
    guard::pointer("ibv_create_cq", || {
        let cqe =
            u32::try_from(cqe).map_err(|_| Failure::invalid(format!("cqe {cqe} is negative")))?;
        let vector = comp_vector.cast_unsigned();
        // SAFETY: the caller's contract.
        unsafe { create(context, cqe, cq_context, channel, vector, Walk::default()) }
    })
}

/// # Safety
/// `cq` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resize_cq(cq: *mut abi::ibv_cq, cqe: c_int) -> c_int {
    guard::status("ibv_resize_cq", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(cq) }?;
        let capacity =
            usize::try_from(cqe).map_err(|_| Failure::invalid(format!("cqe {cqe} is negative")))?;
        state
            .cq
            .resize(capacity)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        // SAFETY: the caller's contract.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    })
}

/// # Safety
/// `cq` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut abi::ibv_cq) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let (state, context, channel) = unsafe { (state(cq)?, (*cq).context, (*cq).channel) };
        if state.cq.is_shared() {
            return Err(Failure::new(
                libc::EBUSY,
                "queue pairs still use the completion queue",
            ));
        }
        // SAFETY: a live queue's context is open.
        unsafe { context::state(context) }?
            .objects()
            .cqs
            .remove(&state.cq.id());
        // No new event names the queue from here on; those fetched must be acknowledged.
        state.cq.forget_events();
        state.events.settle();
        state.async_events.settle();
        // SAFETY: the caller's contract.
        drop(unsafe { handle::release::<_, CqState>(cq) }?);
        if !channel.is_null() {
            // SAFETY: a channel outlives its queues; programs do not touch the count.
            unsafe { (*channel).refcnt -= 1 };
        }
        Ok(())
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_destroy_cq", cq, destroy) }
}

/// How long a thread waits before it looks whether it was cancelled.
const CANCEL_SPAN: Duration = Duration::from_secs(1);

/// Neither an event nor an error: the thread may be cancelled now, and otherwise waits on.
pub(crate) const WAITS_ON: c_int = 1;

/// What [`ibv_get_cq_event`](crate::cancel::ibv_get_cq_event) answers, or [`WAITS_ON`] after
/// [`CANCEL_SPAN`] without an event.
///
/// # Safety
/// `channel` is null or live; `cq` and `cq_context` point to places for the answer.
pub(crate) unsafe extern "C" fn next_event(
    channel: *mut abi::ibv_comp_channel,
    cq: *mut *mut abi::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    let mut waits_on = false;
    let result = guard::minus_one("ibv_get_cq_event", || {
        // SAFETY: the caller's contract.
        let (channel_state, context) = unsafe {
            (
                handle::rust::<_, ChannelState>(channel)?,
                context::state((*channel).context)?,
            )
        };
        loop {
            let waited = channel_state.channel.wait_for(CANCEL_SPAN);
            let waited =
                waited.map_err(|error| Failure::new(errno_of(&error), error.to_string()))?;
            let Some(id) = waited else {
                waits_on = true;
                return Ok(0);
            };
            let objects = context.objects();
            // A queue that was destroyed in the meantime has no pointer any more.
            let Some(&address) = objects.cqs.get(&id) else {
                continue;
            };
            let found: *mut abi::ibv_cq = ptr::with_exposed_provenance_mut(address);
            // SAFETY: it is live while the table, which is locked, lists it; the rest is the
            // caller's contract.
            unsafe {
                state(found)?.events.deliver();
                *cq = found;
                *cq_context = (*found).cq_context;
            }
            return Ok(0);
        }
    });
    if waits_on { WAITS_ON } else { result }
}

/// # Safety
/// `cq` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_cq_events(cq: *mut abi::ibv_cq, nevents: c_uint) {
    guard::nothing("ibv_ack_cq_events", || {
        // SAFETY: the caller's contract.
        unsafe { state(cq) }?.events.acknowledge(nevents);
        Ok(())
    });
}

/// # Safety
/// `cq` is null or live; `wc` has room for `num_entries`.
pub(crate) unsafe extern "C" fn poll_cq(
    cq: *mut abi::ibv_cq,
    num_entries: c_int,
    wc: *mut abi::ibv_wc,
) -> c_int {
    guard::minus_one("ibv_poll_cq", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(cq) }?;
        let count = usize::try_from(num_entries)
            .map_err(|_| Failure::invalid(format!("num_entries {num_entries} is negative")))?;
        let mut target = wc;
        let taken = state.cq.poll(count, |entry| {
            // SAFETY: the caller's contract: at most `num_entries` are written.
            unsafe {
                target.write(convert::wc::to_c(&entry.completion));
                target = target.add(1);
            }
        });
        // At most `num_entries`.
        Ok(c_int::try_from(taken).unwrap_or(num_entries))
    })
}

/// # Safety
/// `cq` is null or live.
pub(crate) unsafe extern "C" fn req_notify_cq(
    cq: *mut abi::ibv_cq,
    solicited_only: c_int,
) -> c_int {
    guard::status("ibv_req_notify_cq", || {
        // SAFETY: the caller's contract.
        unsafe { state(cq) }?.cq.request_notify(solicited_only != 0);
        Ok(())
    })
}

/// Moderation spares interrupts. There are none here, and an event is raised as soon as there is a
/// completion: `ibv_query_device_ex` says that no moderation is offered, which may be turned off.
///
/// # Safety
/// `cq` and `attr` are null or point to what their types say.
pub(crate) unsafe extern "C" fn modify_cq(
    cq: *mut abi::ibv_cq,
    attr: *mut abi::ibv_modify_cq_attr,
) -> c_int {
    guard::status("ibv_modify_cq", || {
        // SAFETY: the caller's contract.
        let (_, attr) = unsafe { (state(cq)?, &*guard::not_null(attr, "attr")?) };
        if attr.attr_mask & !abi::IBV_CQ_ATTR_MODERATE != 0 {
            let unknown = attr.attr_mask;
            return Err(Failure::invalid(format!(
                "attr_mask {unknown:#x} is undefined"
            )));
        }
        let off = attr.moderate.cq_count <= 1 && attr.moderate.cq_period == 0;
        if attr.attr_mask & abi::IBV_CQ_ATTR_MODERATE == 0 || off {
            return Ok(());
        }
        Err(Failure::unsupported("moderation is not offered"))
    })
}
