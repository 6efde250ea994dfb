//! Memory windows. verbs.h refuses impossible binds of type 1 before it calls; type 2 windows are
//! bound by work request ([`crate::convert`]).

use std::ffi::c_int;

use feroce_verbs::{Data, MemoryWindow, SendOperation, SendRequest, SgeList, WindowType};
use feroce_verbs_abi as abi;

use crate::convert::{post, wr};
use crate::guard::{self, Failure};
use crate::{handle, mr, pd, qp};

/// # Safety
/// `pd` is null or live.
pub(crate) unsafe extern "C" fn alloc_mw(
    pd: *mut abi::ibv_pd,
    kind: abi::ibv_mw_type,
) -> *mut abi::ibv_mw {
    guard::pointer("ibv_alloc_mw", || {
        let window_type = match kind {
            abi::IBV_MW_TYPE_1 => WindowType::One,
            abi::IBV_MW_TYPE_2 => WindowType::Two,
            other => return Err(Failure::invalid(format!("type {other} does not exist"))),
        };
        // SAFETY: the caller's contract.
        let (domain, context) = unsafe { (&pd::state(pd)?.pd, (*pd).context) };
        let window = domain
            .alloc_window(window_type)
            .map_err(|error| Failure::new(mr::register_errno(&error), error.to_string()))?;
        let c = abi::ibv_mw {
            context,
            pd,
            rkey: window.rkey(),
            handle: window.rkey(),
            type_: kind,
        };
        Ok(handle::create(c, window))
    })
}

/// Binds a type 1 window by a work request of `qp`; its new key counts once that is done.
///
/// # Safety
/// `qp`, `mw`, the region in `mw_bind` are null or live.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut abi::ibv_qp,
    mw: *mut abi::ibv_mw,
    mw_bind: *mut abi::ibv_mw_bind,
) -> c_int {
    guard::status("ibv_bind_mw", || {
        // SAFETY: the caller's contract.
        let (state, bind) = unsafe { (qp::state(qp)?, &*guard::not_null(mw_bind, "mw_bind")?) };
        // SAFETY: the caller's contract.
        let request = unsafe { wr::rebind_request(mw, &bind.bind_info) }?;
        let send = SendRequest {
            wr_id: bind.wr_id,
            operation: SendOperation::Bind(request),
            data: Data::Gather(SgeList::new()),
            flags: wr::send_flags(bind.send_flags)?,
            target: None,
            xrc_srqn: 0,
        };
        state
            .qp
            .post_send([send])
            .map_err(|refused| post::failure(&refused))?;
        // SAFETY: the caller's contract; `rebind_request` refused null.
        unsafe { (*mw).rkey = request.window };
        Ok(())
    })
}

/// # Safety
/// `mw` is null or live, and not used afterwards unless the call fails.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut abi::ibv_mw) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, MemoryWindow>(mw) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_dealloc_mw", mw, destroy) }
}
