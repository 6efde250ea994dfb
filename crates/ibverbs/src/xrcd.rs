//! XRC domains. verbs.h calls `close_xrcd` without a look whether it is there: it must be.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use feroce_verbs::{Context, XrcDomain};
use feroce_verbs_abi as abi;

use crate::guard::{self, Failure};
use crate::{context, handle};

/// The XRC domain behind a pointer.
///
/// # Safety
/// `xrcd` is null or live.
pub(crate) unsafe fn state<'a>(xrcd: *mut abi::ibv_xrcd) -> Result<&'a XrcDomain, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(xrcd) }
}

/// Domains that were opened by file: all who name the same file get the same domain.
static BY_FILE: Mutex<ByFile> = Mutex::new(Vec::new());

type ByFile = Vec<((u64, u64), XrcDomain)>;

/// Access to the domains that were opened by file.
pub(crate) type ByFileGuard = MutexGuard<'static, ByFile>;

/// Waits for access to the domains that were opened by file.
pub(crate) fn by_file_guard() -> ByFileGuard {
    BY_FILE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// `context` is null or open; `attr` points to attributes.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut abi::ibv_context,
    attr: *mut abi::ibv_xrcd_init_attr,
) -> *mut abi::ibv_xrcd {
    guard::pointer("ibv_open_xrcd", || {
        // SAFETY: the caller's contract.
        let (state, attr) = unsafe {
            (
                context::state(context)?,
                &*guard::not_null(attr, "xrcd_init_attr")?,
            )
        };
        let both = abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS;
        if attr.comp_mask & both != both {
            return Err(Failure::invalid("comp_mask needs fd and oflags"));
        }
        let domain = if attr.fd < 0 {
            state.context.open_xrc_domain()
        } else {
            by_file(&state.context, attr.fd, attr.oflags)?
        };
        Ok(handle::create(abi::ibv_xrcd { context }, domain))
    })
}

fn by_file(context: &Context, fd: c_int, oflags: c_int) -> Result<XrcDomain, Failure> {
    let mut data = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat refuses descriptors that are not open, and fills the whole struct otherwise.
    let data = unsafe {
        if libc::fstat(fd, data.as_mut_ptr()) != 0 {
            return Err(Failure::new(libc::EBADF, format!("fd {fd} is not open")));
        }
        data.assume_init()
    };
    let file = (data.st_dev, data.st_ino);
    let mut domains = by_file_guard();
    // One reference is the table's own.
    domains.retain(|(_, domain)| domain.is_shared());
    let device = context.device_name();
    let found = domains
        .iter()
        .find(|(other, domain)| *other == file && domain.context().device_name() == device);
    if let Some((_, domain)) = found {
        if oflags & libc::O_EXCL != 0 {
            return Err(Failure::new(
                libc::EEXIST,
                "O_EXCL, and the file has a domain already",
            ));
        }
        return Ok(domain.clone());
    }
    if oflags & libc::O_CREAT == 0 {
        return Err(Failure::new(
            libc::ENOENT,
            "no O_CREAT, and the file has no domain yet",
        ));
    }
    let domain = context.open_xrc_domain();
    domains.push((file, domain.clone()));
    Ok(domain)
}

/// # Safety
/// `xrcd` is null or live, and not used afterwards unless the call fails.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut abi::ibv_xrcd) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        unsafe { state(xrcd) }?;
        // SAFETY: the caller's contract.
        drop(unsafe { handle::release::<_, XrcDomain>(xrcd) }?);
        by_file_guard().retain(|(_, domain)| domain.is_shared());
        Ok(())
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_close_xrcd", xrcd, destroy) }
}
