//! Protection domains, parent domains, thread domains. Not here: what is registered in them.

use std::ffi::c_int;

use feroce_verbs::ProtectionDomain;
use feroce_verbs_abi as abi;

use crate::guard::{self, Failure, unfilled};
use crate::{context, handle};

/// The Rust part of an `ibv_pd`. A parent domain is the same domain under another pointer.
#[derive(Debug)]
pub(crate) struct PdState {
    pub(crate) pd: ProtectionDomain,
}

/// The protection domain behind a pointer.
///
/// # Safety
/// `pd` is null or live.
pub(crate) unsafe fn state<'a>(pd: *mut abi::ibv_pd) -> Result<&'a PdState, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(pd) }
}

/// # Safety
/// `context` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut abi::ibv_context) -> *mut abi::ibv_pd {
    guard::pointer("ibv_alloc_pd", || {
        // SAFETY: the caller's contract.
        let pd = unsafe { context::state(context) }?.context.alloc_pd();
        let c = abi::ibv_pd {
            context,
            handle: pd.id().0,
        };
        Ok(handle::create(c, PdState { pd }))
    })
}

/// # Safety
/// `pd` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut abi::ibv_pd) -> c_int {
    guard::status("ibv_dealloc_pd", || {
        // SAFETY: the caller's contract.
        if unsafe { state(pd) }?.pd.is_shared() {
            return Err(Failure::new(
                libc::EBUSY,
                "the protection domain still has queue pairs, regions or other objects",
            ));
        }
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, PdState>(pd) }.map(drop)
    })
}

unfilled! {
    export pointer fn ibv_import_pd(
        context: *mut abi::ibv_context,
        pd_handle: u32,
    ) -> *mut abi::ibv_pd;
    export nothing fn ibv_unimport_pd(pd: *mut abi::ibv_pd);
    ,
    operation pointer fn alloc_parent_domain(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_parent_domain_init_attr,
    ) -> *mut abi::ibv_pd;
    operation pointer fn alloc_td(
        context: *mut abi::ibv_context,
        init_attr: *mut abi::ibv_td_init_attr,
    ) -> *mut abi::ibv_td;
    operation status fn dealloc_td(td: *mut abi::ibv_td) -> c_int;
}
