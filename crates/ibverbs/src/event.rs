//! Asynchronous events of a context. Not here: completion events ([`crate::cq`]).

use std::ffi::c_int;
use std::ptr;

use feroce_verbs::{AsyncEvent, DeviceEvent};
use feroce_verbs_abi as abi;

use crate::context::{self, Objects};
use crate::convert::address::PORT;
use crate::guard::{self, Failure};
use crate::{cq, qp, srq};

/// # Safety
/// `context` is null or open; `event` points to a place for the answer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_async_event(
    context: *mut abi::ibv_context,
    event: *mut abi::ibv_async_event,
) -> c_int {
    guard::minus_one("ibv_get_async_event", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        let target = guard::not_null(event, "event")?;
        loop {
            let taken = state.context.events().take().map_err(|errno| {
                Failure::new(
                    errno.raw_os_error(),
                    "no event, and the descriptor does not wait",
                )
            })?;
            let objects = state.objects();
            // An event of an object that was destroyed in the meantime is nobody's.
            // SAFETY: what the table, which is locked, lists is live.
            if let Some(c) = unsafe { to_c(&taken, &objects) } {
                // SAFETY: the caller's contract.
                unsafe { target.write(c) };
                return Ok(0);
            }
        }
    })
}

/// The C form of an event; its object counts it as delivered.
///
/// # Safety
/// What `objects` lists is live.
unsafe fn to_c(event: &DeviceEvent, objects: &Objects) -> Option<abi::ibv_async_event> {
    let mut c = abi::ibv_async_event::default();
    match *event {
        DeviceEvent::Affiliated(event) => {
            let (kind, qpn) = match event {
                AsyncEvent::QpFatal(qpn) => (abi::IBV_EVENT_QP_FATAL, Ok(qpn)),
                AsyncEvent::QpRequestError(qpn) => (abi::IBV_EVENT_QP_REQ_ERR, Ok(qpn)),
                AsyncEvent::QpAccessError(qpn) => (abi::IBV_EVENT_QP_ACCESS_ERR, Ok(qpn)),
                AsyncEvent::CommunicationEstablished(qpn) => (abi::IBV_EVENT_COMM_EST, Ok(qpn)),
                AsyncEvent::SqDrained(qpn) => (abi::IBV_EVENT_SQ_DRAINED, Ok(qpn)),
                AsyncEvent::PathMigrated(qpn) => (abi::IBV_EVENT_PATH_MIG, Ok(qpn)),
                AsyncEvent::QpLastWqeReached(qpn) => (abi::IBV_EVENT_QP_LAST_WQE_REACHED, Ok(qpn)),
                AsyncEvent::SrqLimitReached(srq) => (abi::IBV_EVENT_SRQ_LIMIT_REACHED, Err(srq)),
                AsyncEvent::SrqError(srq) => (abi::IBV_EVENT_SRQ_ERR, Err(srq)),
            };
            c.event_type = kind;
            match qpn {
                Ok(qpn) => {
                    let qp: *mut abi::ibv_qp =
                        ptr::with_exposed_provenance_mut(*objects.qps.get(&qpn)?);
                    // SAFETY: the caller's contract.
                    unsafe { qp::state(qp) }.ok()?.events.deliver();
                    c.element.qp = qp;
                }
                Err(id) => {
                    let srq: *mut abi::ibv_srq =
                        ptr::with_exposed_provenance_mut(*objects.srqs.get(&id)?);
                    // SAFETY: the caller's contract.
                    unsafe { srq::state(srq) }.ok()?.events.deliver();
                    c.element.srq = srq;
                }
            }
        }
        DeviceEvent::CqError(id) => {
            let cq: *mut abi::ibv_cq = ptr::with_exposed_provenance_mut(*objects.cqs.get(&id)?);
            // SAFETY: the caller's contract.
            unsafe { cq::state(cq) }.ok()?.async_events.deliver();
            c.event_type = abi::IBV_EVENT_CQ_ERR;
            c.element.cq = cq;
        }
        DeviceEvent::PortActive => port(&mut c, abi::IBV_EVENT_PORT_ACTIVE),
        DeviceEvent::PortError => port(&mut c, abi::IBV_EVENT_PORT_ERR),
        DeviceEvent::GidChange => port(&mut c, abi::IBV_EVENT_GID_CHANGE),
        DeviceEvent::Fatal => c.event_type = abi::IBV_EVENT_DEVICE_FATAL,
    }
    Some(c)
}

fn port(c: &mut abi::ibv_async_event, kind: abi::ibv_event_type) {
    c.event_type = kind;
    c.element.port_num = PORT.into();
}

/// # Safety
/// `event` is null or came from [`ibv_get_async_event`] and is acknowledged once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut abi::ibv_async_event) {
    guard::nothing("ibv_ack_async_event", || {
        // SAFETY: the caller's contract.
        let event = unsafe { &*guard::not_null(event, "event")? };
        // SAFETY: the event's type says which member of the union holds a live object.
        unsafe {
            match event.event_type {
                abi::IBV_EVENT_CQ_ERR => cq::state(event.element.cq)?.async_events.acknowledge(1),
                abi::IBV_EVENT_SRQ_ERR | abi::IBV_EVENT_SRQ_LIMIT_REACHED => {
                    srq::state(event.element.srq)?.events.acknowledge(1);
                }
                abi::IBV_EVENT_QP_FATAL
                | abi::IBV_EVENT_QP_REQ_ERR
                | abi::IBV_EVENT_QP_ACCESS_ERR
                | abi::IBV_EVENT_COMM_EST
                | abi::IBV_EVENT_SQ_DRAINED
                | abi::IBV_EVENT_PATH_MIG
                | abi::IBV_EVENT_QP_LAST_WQE_REACHED => {
                    qp::state(event.element.qp)?.events.acknowledge(1);
                }
                _ => {}
            }
        }
        Ok(())
    });
}
