//! The devices, as programs list them.

use std::ffi::c_int;

use feroce_verbs_abi::ibv_context;

use crate::guard::{self, Failure};
use crate::world;

/// The contexts of all devices, as a list that ends with a null pointer.
///
/// # Safety
/// `num_devices` is null or has room for the count.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    guard::pointer("rdma_get_devices", || {
        let mut world = world::lock();
        let keys = world.devices.all()?;
        if !num_devices.is_null() {
            // SAFETY: the caller's contract.
            unsafe { num_devices.write(c_int::try_from(keys.len()).unwrap_or(c_int::MAX)) };
        }
        // SAFETY: no more than an allocation; zeroed, so that the last entry is null.
        let list = unsafe { libc::calloc(keys.len() + 1, size_of::<*mut ibv_context>()) };
        let list = list.cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(Failure::new(libc::ENOMEM, "a list of devices"));
        }
        for (index, key) in keys.into_iter().enumerate() {
            // SAFETY: the list has room for all.
            unsafe { list.add(index).write(world.devices.list[key].context.0) };
        }
        Ok(list)
    })
}

/// Frees a list; the contexts stay open.
///
/// # Safety
/// `list` is null or came from [`rdma_get_devices`] and is freed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: allocated by the C library's allocator, above.
    unsafe { libc::free(list.cast()) };
}
