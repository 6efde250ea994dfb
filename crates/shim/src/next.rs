//! The definition that a call would have reached without the shim.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys;

/// One interposed function's next definition, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// `name_with_nul` is the C name with a NUL at its end.
    pub(crate) const fn new(name_with_nul: &'static str) -> Self {
        let Ok(name) = CStr::from_bytes_with_nul(name_with_nul.as_bytes()) else {
            panic!("a C name ends with its only NUL");
        };
        Self {
            name,
            address: AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// The address, or null where neither the C library nor another preloaded library has it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() {
            self.resolve()
        } else {
            known
        }
    }

    /// Looks the name up. Two threads may do so at once: they find the same.
    #[cold]
    #[inline(never)]
    pub(crate) fn resolve(&self) -> *mut c_void {
        // SAFETY: `name` is a NUL-terminated string; RTLD_NEXT is a valid handle in a library.
        let found = unsafe { sys::dlsym(sys::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
