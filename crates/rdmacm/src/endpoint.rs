//! Endpoints: an identifier from the result of an address look-up, in one call. Not here: the
//! look-up (`addrinfo`).

use std::ffi::c_int;
use std::ptr;

use feroce_verbs_abi as abi;
use feroce_verbs_abi::functions as verbs;
use feroce_verbs_abi::{ibv_pd, ibv_qp_init_attr, rdma_addrinfo, rdma_cm_id};

use crate::address::SocketAddress;
use crate::device::Shared;
use crate::guard::{self, Failure};
use crate::state::Template;
use crate::{channel, connect, id, queue, world};

/// Creates an identifier in synchronous use: bound, for the passive side; for the active side
/// with everything resolved, and with a queue pair if `qp_init_attr` is there.
///
/// # Safety
/// `id` has room for a pointer; `res` is of `rdma_getaddrinfo` or made like it; `pd` and
/// `qp_init_attr` are null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    guard::zero("rdma_create_ep", || {
        guard::not_null(id, "id")?;
        guard::not_null(res, "res")?;
        // SAFETY: the caller's contract.
        let (found, attributes) = unsafe { (&*res, qp_init_attr.as_mut()) };
        let port_space = u32::try_from(found.ai_port_space).unwrap_or_default();
        let qp_type = u32::try_from(found.ai_qp_type).unwrap_or_default();
        let created = id::create(ptr::null_mut(), ptr::null_mut(), port_space, qp_type)?;
        let set_up = if found.ai_flags & abi::RAI_PASSIVE as c_int == 0 {
            // SAFETY: the caller's contract.
            unsafe { active(created, found, pd, attributes) }
        } else {
            // SAFETY: the caller's contract.
            unsafe { passive(created, found, pd, attributes) }
        };
        if let Err(failure) = set_up {
            id::destroy(created)?;
            return Err(failure);
        }
        // SAFETY: the caller's contract.
        unsafe { id.write(created) };
        Ok(())
    })
}

/// # Safety
/// `found` has the addresses that it says.
unsafe fn active(
    id: *mut rdma_cm_id,
    found: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Failure> {
    let source = if found.ai_src_addr.is_null() || found.ai_src_len == 0 {
        None
    } else {
        // SAFETY: the caller's contract.
        Some(unsafe { SocketAddress::read(found.ai_src_addr, "ai_src_addr") }?)
    };
    // SAFETY: the caller's contract.
    let destination = unsafe { SocketAddress::read(found.ai_dst_addr, "ai_dst_addr") }?;
    connect::resolve_address(id, source, destination)?;
    channel::complete(id)?;
    connect::resolve_route(id)?;
    channel::complete(id)?;
    if let Some(attributes) = attributes {
        attributes.qp_type = u32::try_from(found.ai_qp_type).unwrap_or_default();
        queue::create(id, pd, attributes)?;
    }
    Ok(())
}

/// # Safety
/// `found` has the addresses that it says.
unsafe fn passive(
    id: *mut rdma_cm_id,
    found: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: Option<&mut ibv_qp_init_attr>,
) -> Result<(), Failure> {
    // SAFETY: the caller's contract.
    let local = unsafe { SocketAddress::read(found.ai_src_addr, "ai_src_addr") }?;
    id::bind(id, local)?;
    if let Some(attributes) = attributes {
        attributes.qp_type = u32::try_from(found.ai_qp_type).unwrap_or_default();
        world::lock().id(id)?.template = Some(Template {
            pd: Shared(pd),
            attributes: *attributes,
        });
    }
    Ok(())
}

/// Destroys an endpoint with everything on it.
///
/// # Safety
/// `id` came from [`rdma_create_ep`] or [`rdma_get_request`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    guard::nothing("rdma_destroy_ep", || {
        world::lock().id(id)?;
        // SAFETY: live, looked up just now.
        let c = unsafe { &mut *id };
        let qp = std::mem::replace(&mut c.qp, ptr::null_mut());
        let srq = std::mem::replace(&mut c.srq, ptr::null_mut());
        // SAFETY: what is on an endpoint is the endpoint's.
        unsafe {
            if !qp.is_null() {
                verbs::ibv_destroy_qp(qp);
            }
            if !srq.is_null() {
                verbs::ibv_destroy_srq(srq);
            }
        }
        queue::destroy_queues(c);
        id::destroy(id)
    });
}

/// Waits for the next connection request of a listening identifier in synchronous use.
///
/// # Safety
/// `listen` is live, `id` has room for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    guard::zero("rdma_get_request", || {
        guard::not_null(id, "id")?;
        if !world::lock().id(listen)?.sync {
            return Err(Failure::invalid(
                "listen has an event channel: its requests come from rdma_get_cm_event",
            ));
        }
        channel::complete(listen)?;
        let template = world::lock().id(listen)?.template;
        // SAFETY: live, looked up just now; the event was put there.
        let event = unsafe { (*listen).event };
        // SAFETY: outstanding.
        let (kind, child) = unsafe { ((*event).event, (*event).id) };
        if kind != abi::RDMA_CM_EVENT_CONNECT_REQUEST {
            return Err(Failure::invalid(format!("event {kind} is no request")));
        }
        let ready = prepare(child, template);
        if let Err(failure) = ready {
            channel::forget_event(listen);
            id::destroy(child)?;
            return Err(failure);
        }
        // SAFETY: both live; the event goes with the new identifier.
        unsafe {
            (*child).event = std::mem::replace(&mut (*listen).event, ptr::null_mut());
            id.write(child);
        }
        Ok(())
    })
}

/// Makes the identifier of a request synchronous, with a queue pair if the listener says so.
fn prepare(child: *mut rdma_cm_id, template: Option<Template>) -> Result<(), Failure> {
    id::migrate(child, ptr::null_mut())?;
    if let Some(template) = template {
        let mut attributes = template.attributes;
        queue::create(child, template.pd.0, &mut attributes)?;
    }
    Ok(())
}
