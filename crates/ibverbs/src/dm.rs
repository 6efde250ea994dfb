//! Device memory. Programs copy to and from it through function pointers in `ibv_dm` itself.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use feroce_verbs::{DeviceMemory, DeviceMemoryError, Limits};
use feroce_verbs_abi as abi;

use crate::guard::{self, Failure};
use crate::share::{self, SharedMemory};
use crate::{context, handle};

/// The device memory behind a pointer.
///
/// # Safety
/// `dm` is null or live.
pub(crate) unsafe fn memory<'a>(dm: *mut abi::ibv_dm) -> Result<&'a SharedMemory, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(dm) }
}

/// Works in a forked child, too: it takes no part of the device that the parent has open.
///
/// # Safety
/// `context` is null or open, here or in the process that forked this one; `attr` is null or
/// points to attributes.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut abi::ibv_context,
    attr: *mut abi::ibv_alloc_dm_attr,
) -> *mut abi::ibv_dm {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    guard::pointer("ibv_alloc_dm", || {
        guard::not_null(context, "context")?;
        // SAFETY: the caller's contract.
        let attr = unsafe { &*guard::not_null(attr, "dm_attr")? };
        if attr.comp_mask != 0 {
            let unknown = attr.comp_mask;
            return Err(Failure::unsupported(format!(
                "comp_mask {unknown:#x} is not offered"
            )));
        }
        let limit = Limits::DEVICE.max_dm_size;
        if attr.length as u64 > limit {
            return Err(Failure::invalid(format!(
                "length {} is above max_dm_size {limit}",
                attr.length
            )));
        }
        let align = 1_usize.checked_shl(attr.log_align_req).unwrap_or(0);
        let memory = DeviceMemory::new(attr.length, align).map_err(|error| failure(&error))?;
        let memory = SharedMemory::new(memory);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract. Memory of a child is nobody's to import.
        if let Ok(state) = unsafe { context::state(context) } {
            let mut handles = state.family.handles();
            handles.dms.insert(number, Arc::downgrade(&memory));
        }
        Ok(handle::create(c_struct(context, number), memory))
    })
}

/// # Safety
/// `dm` is null or live, and not used afterwards unless the call fails.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut abi::ibv_dm) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let (shared, number) = unsafe { (memory(dm)?, (*dm).handle) };
        if Arc::strong_count(&**shared) > 1 {
            return Err(Failure::new(
                libc::EBUSY,
                "regions are still registered in the device memory",
            ));
        }
        // SAFETY: the caller's contract; device memory does not outlive its context.
        if let Ok(state) = unsafe { context::state((*dm).context) } {
            state.family.handles().dms.remove(&number);
        }
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, SharedMemory>(dm) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_free_dm", dm, destroy) }
}

/// # Safety
/// `context` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_dm(
    context: *mut abi::ibv_context,
    dm_handle: u32,
) -> *mut abi::ibv_dm {
    guard::pointer("ibv_import_dm", || {
        // SAFETY: the caller's contract.
        let state = unsafe { context::state(context) }?;
        let memory = share::import(&state.family.handles().dms, dm_handle, "device memory")?;
        Ok(handle::create(c_struct(context, dm_handle), memory))
    })
}

/// # Safety
/// `dm` came from [`ibv_import_dm`] and is not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut abi::ibv_dm) {
    guard::nothing("ibv_unimport_dm", || {
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, SharedMemory>(dm) }.map(drop)
    });
}

/// # Safety
/// None needed: it refuses without a look at its argument.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dm_export_dmabuf_fd(_dm: *mut abi::ibv_dm) -> c_int {
    guard::minus_one("ibv_dm_export_dmabuf_fd", || {
        Err(Failure::unsupported(
            "device memory is memory of this process, not a dma-buf",
        ))
    })
}

/// # Safety
/// `dm` is null or live; `host_addr` points to `length` bytes.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut abi::ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    guard::status("ibv_memcpy_to_dm", || {
        // SAFETY: the caller's contract.
        let memory = unsafe { memory(dm) }?;
        let offset = check(dm_offset, host_addr, length)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the caller's contract; null was refused.
        let data = unsafe { slice::from_raw_parts(host_addr.cast(), length) };
        memory
            .copy_to(offset, data)
            .map_err(|error| failure(&error))
    })
}

/// # Safety
/// `dm` is null or live; `host_addr` points to room for `length` bytes.
unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut abi::ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    guard::status("ibv_memcpy_from_dm", || {
        // SAFETY: the caller's contract.
        let memory = unsafe { memory(dm) }?;
        let offset = check(dm_offset, host_addr, length)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the caller's contract; null was refused. The program may not have written the
        // bytes, but any value is a `u8` and they are only overwritten.
        let data = unsafe { slice::from_raw_parts_mut(host_addr.cast(), length) };
        memory
            .copy_from(offset, data)
            .map_err(|error| failure(&error))
    })
}

/// Refuses what on-chip memory would refuse; the rest of the range is checked by the copy.
fn check(dm_offset: u64, host_addr: *const c_void, length: usize) -> Result<usize, Failure> {
    if host_addr.is_null() && length > 0 {
        return Err(Failure::invalid("host_addr is a null pointer"));
    }
    let offset = usize::try_from(dm_offset).unwrap_or(usize::MAX);
    DeviceMemory::check_granule(offset, length).map_err(|error| failure(&error))?;
    Ok(offset)
}

/// The errno of a refusal.
pub(crate) fn failure(error: &DeviceMemoryError) -> Failure {
    let errno = match error {
        DeviceMemoryError::Exhausted { .. } => libc::ENOMEM,
        _ => libc::EINVAL,
    };
    Failure::new(errno, error.to_string())
}

fn c_struct(context: *mut abi::ibv_context, handle: u32) -> abi::ibv_dm {
    abi::ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: abi::IBV_DM_MASK_HANDLE,
        handle,
    }
}
