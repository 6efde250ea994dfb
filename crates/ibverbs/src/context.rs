//! The tables through which the inline functions of verbs.h call: `ibv_context.ops` for the data
//! path and `verbs_context` for the newer verbs. They are ABI as much as the exported names.
//!
//! What Feroce's device does not do (flow steering, work queues and their indirection tables, tag
//! matching, flow actions and counters, DMA handles) has no entry: verbs.h answers EOPNOTSUPP
//! for it. The
//! `_compat_` entries served libraries older than any program that still runs.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use feroce_proto::{CqId, SrqId};
use feroce_verbs::{Context, Limits, Qpn};
use feroce_verbs_abi as abi;

use crate::guard::Failure;
use crate::share::Family;
use crate::{cq, cq_ex, dm, handle, mr, mw, pd, qp, query, srq, xrcd};

/// The Rust part of an `ibv_context`.
#[derive(Debug)]
pub(crate) struct ContextState {
    pub(crate) context: Context,
    objects: Mutex<Objects>,
    /// The contexts whose objects can be imported here.
    pub(crate) family: Arc<Family>,
    /// What programs find in `cmd_fd`.
    _cmd: OwnedFd,
}

/// The C objects of a context that events name by number. Addresses: pointers are not `Send`.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) cqs: BTreeMap<CqId, usize>,
    pub(crate) qps: BTreeMap<Qpn, usize>,
    pub(crate) srqs: BTreeMap<SrqId, usize>,
}

impl ContextState {
    /// The objects of the context.
    pub(crate) fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the C context of an opened device. `cmd` leads to its family and belongs to it.
pub(crate) fn create(context: Context, family: Arc<Family>, cmd: OwnedFd) -> *mut abi::ibv_context {
    let device = ptr::with_exposed_provenance_mut(family.device);
    let c = c_struct(device, cmd.as_raw_fd(), context.events().raw_fd());
    let state = ContextState {
        context,
        objects: Mutex::default(),
        family,
        _cmd: cmd,
    };
    handle::create(c, state)
}

/// The Rust part of a context.
///
/// # Safety
/// `context` is null or an open context.
pub(crate) unsafe fn state<'a>(
    context: *mut abi::ibv_context,
) -> Result<&'a ContextState, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(context) }
}

/// What never changes of a context: a forked child may look at that of its parent, too.
///
/// # Safety
/// `context` is null or an open context, here or in the process that forked this one.
pub(crate) unsafe fn description(context: *mut abi::ibv_context) -> Result<Description, Failure> {
    // SAFETY: the caller's contract. Neither number is behind a lock.
    let state = unsafe { handle::inheritable::<_, ContextState>(context) }?;
    Ok(Description {
        guid: state.context.guid(),
        limits: state.context.limits(),
    })
}

/// See [`description`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Description {
    /// As it stands in memory, most significant byte first.
    pub(crate) guid: [u8; 8],
    pub(crate) limits: &'static Limits,
}

/// The C part of a context on `device`. `async_fd` becomes readable when an event waits; `cmd_fd`
/// can be duplicated and imported, nothing more: there is no kernel device behind it.
fn c_struct(device: *mut abi::ibv_device, cmd_fd: i32, async_fd: i32) -> abi::verbs_context {
    abi::verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        reg_dm_mr: Some(mr::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        modify_qp_rate_limit: Some(qp::modify_qp_rate_limit),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        query_device_ex: Some(query::query_device_ex),
        open_qp: Some(qp::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrcd::open_xrcd),
        close_xrcd: Some(xrcd::close_xrcd),
        sz: abi::VERBS_CONTEXT_SIZE,
        context: abi::ibv_context {
            device,
            ops: operations(),
            cmd_fd,
            async_fd,
            num_comp_vectors: COMPLETION_VECTORS,
            abi_compat: abi::VERBS_ABI_IS_EXTENDED,
            ..Default::default()
        },
        ..Default::default()
    }
}

/// Completion vectors spread interrupts; there are none here, and one is the least allowed.
pub(crate) const COMPLETION_VECTORS: i32 = 1;

/// verbs.h calls these without a look whether they are there, so all must be.
fn operations() -> abi::ibv_context_ops {
    abi::ibv_context_ops {
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        post_srq_recv: Some(srq::post_srq_recv),
        post_send: Some(qp::post_send),
        post_recv: Some(qp::post_recv),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle;
    use std::mem::offset_of;

    /// What the macro `verbs_get_ctx_op` of verbs.h asks before it calls an operation.
    fn reaches(context: *mut abi::ibv_context, offset: usize) -> bool {
        // SAFETY: the context is live and lies in a `verbs_context`.
        unsafe {
            (*context).abi_compat == abi::VERBS_ABI_IS_EXTENDED
                && (*abi::verbs_context_of(context)).sz >= size_of::<abi::verbs_context>() - offset
        }
    }

    #[test]
    fn programs_reach_old_and_new_operations() {
        let context = handle::create::<abi::ibv_context, _>(c_struct(ptr::null_mut(), 8, 9), ());
        assert!(reaches(context, offset_of!(abi::verbs_context, close_xrcd)));
        assert!(reaches(context, offset_of!(abi::verbs_context, query_port)));
        assert!(reaches(context, offset_of!(abi::verbs_context, reg_mr_ex)));
        // SAFETY: the context is live until released.
        unsafe {
            assert_eq!(((*context).cmd_fd, (*context).async_fd), (8, 9));
            assert!((*abi::verbs_context_of(context)).query_port.is_some());
            handle::release::<_, ()>(context).unwrap();
        }
    }

    #[test]
    fn what_verbs_h_calls_unasked_is_there() {
        let ops = operations();
        assert!(ops.alloc_mw.is_some() && ops.bind_mw.is_some() && ops.dealloc_mw.is_some());
        assert!(ops.poll_cq.is_some() && ops.req_notify_cq.is_some());
        assert!(ops.post_send.is_some() && ops.post_recv.is_some());
        assert!(ops.post_srq_recv.is_some());
        assert!(c_struct(ptr::null_mut(), 0, 0).close_xrcd.is_some());
    }
}
