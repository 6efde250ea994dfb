//! Protection domains, parent domains, thread domains. Not here: what is registered in them.

use std::ffi::c_int;
use std::sync::Arc;

use feroce_verbs::ProtectionDomain;
use feroce_verbs_abi as abi;

use crate::guard::{self, Failure};
use crate::{context, handle, share};

/// The Rust part of an `ibv_pd`. A parent domain is the same domain under another pointer.
#[derive(Debug)]
pub(crate) struct PdState {
    /// Shared by what was imported of it.
    pub(crate) pd: Arc<ProtectionDomain>,
    /// What a parent domain is made of; it counts as a user of both.
    parent: Option<Parent>,
}

#[derive(Debug)]
struct Parent {
    _thread_domain: Option<Arc<ThreadDomain>>,
}

/// The Rust part of an `ibv_td`: the promise of a program to use what is made under it from one
/// thread at a time. Nothing follows from it here, where all locks of the data path are shared.
#[derive(Debug)]
struct ThreadDomain;

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
        let state = unsafe { context::state(context) }?;
        let pd = Arc::new(state.context.alloc_pd());
        let weak = Arc::downgrade(&pd);
        state.family.handles().pds.insert(pd.id().0, weak);
        Ok(create(context, pd, None))
    })
}

fn create(
    context: *mut abi::ibv_context,
    pd: Arc<ProtectionDomain>,
    parent: Option<Parent>,
) -> *mut abi::ibv_pd {
    let c = abi::ibv_pd {
        context,
        handle: pd.id().0,
    };
    handle::create(c, PdState { pd, parent })
}

/// # Safety
/// `pd` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut abi::ibv_pd) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let (domain, context) = unsafe { (state(pd)?, (*pd).context) };
        if domain.pd.is_shared() {
            return Err(Failure::new(
                libc::EBUSY,
                "the protection domain still has queue pairs, regions or other objects",
            ));
        }
        if domain.parent.is_none() {
            // SAFETY: a live domain has an open context.
            let family = unsafe { &context::state(context)?.family };
            family.handles().pds.remove(&domain.pd.id().0);
        }
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, PdState>(pd) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_dealloc_pd", pd, destroy) }
}

/// # Safety
/// `context` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_pd(
    context: *mut abi::ibv_context,
    pd_handle: u32,
) -> *mut abi::ibv_pd {
    guard::pointer("ibv_import_pd", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        let pd = share::import(&state.family.handles().pds, pd_handle, "protection domain")?;
        Ok(create(context, pd, None))
    })
}

/// # Safety
/// `pd` came from [`ibv_import_pd`] and is not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut abi::ibv_pd) {
    guard::nothing("ibv_unimport_pd", || {
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, PdState>(pd) }.map(drop)
    });
}

/// A parent domain. Its allocators are for the queues of a NIC, which lie in the program's memory;
/// those of this device do not, so that it has nothing to ask them for.
///
/// # Safety
/// `context` is null or open; `attr` is null or points to attributes with live domains.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut abi::ibv_context,
    attr: *mut abi::ibv_parent_domain_init_attr,
) -> *mut abi::ibv_pd {
    guard::pointer("ibv_alloc_parent_domain", || {
        // SAFETY: the caller's contract.
        let attr = unsafe {
            context::state(context)?;
            &*guard::not_null(attr, "attr")?
        };
        const KNOWN: u32 = abi::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
            | abi::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
        if attr.comp_mask & !KNOWN != 0 {
            let unknown = attr.comp_mask & !KNOWN;
            return Err(Failure::unsupported(format!(
                "comp_mask {unknown:#x} is not offered"
            )));
        }
        let allocators = attr.comp_mask & abi::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0;
        if allocators && (attr.alloc.is_none() || attr.free.is_none()) {
            return Err(Failure::invalid("alloc and free go together"));
        }
        // SAFETY: the caller's contract.
        let base = unsafe { state(attr.pd) }?;
        if base.parent.is_some() {
            return Err(Failure::invalid("pd is a parent domain itself"));
        }
        let thread_domain = if attr.td.is_null() {
            None
        } else {
            // SAFETY: the caller's contract.
            Some(Arc::clone(unsafe { thread_domain(attr.td) }?))
        };
        let parent = Parent {
            _thread_domain: thread_domain,
        };
        Ok(create(context, Arc::new(base.pd.alias()), Some(parent)))
    })
}

/// # Safety
/// `td` is null or live.
unsafe fn thread_domain<'a>(td: *mut abi::ibv_td) -> Result<&'a Arc<ThreadDomain>, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(td) }
}

/// # Safety
/// `context` is null or open; `init_attr` is null or points to attributes.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut abi::ibv_context,
    init_attr: *mut abi::ibv_td_init_attr,
) -> *mut abi::ibv_td {
    guard::pointer("ibv_alloc_td", || {
        // SAFETY: the caller's contract.
        let attr = unsafe {
            context::state(context)?;
            &*guard::not_null(init_attr, "init_attr")?
        };
        if attr.comp_mask != 0 {
            let unknown = attr.comp_mask;
            return Err(Failure::unsupported(format!(
                "comp_mask {unknown:#x} is not offered"
            )));
        }
        Ok(handle::create(
            abi::ibv_td { context },
            Arc::new(ThreadDomain),
        ))
    })
}

/// # Safety
/// `td` is null or live, and not used afterwards unless the call fails.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut abi::ibv_td) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        if Arc::strong_count(unsafe { thread_domain(td) }?) > 1 {
            return Err(Failure::new(libc::EBUSY, "parent domains still use it"));
        }
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, Arc<ThreadDomain>>(td) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_dealloc_td", td, destroy) }
}
