//! The `IBVERBS_1.0` twins of newer entry points. Programs that ask for them were built before
//! 2007, with structs laid out otherwise; giving them today's objects would corrupt their memory.
//! They are told that there is no device, and everything else refuses with ENOSYS.
//!
//! `symbols.txt` says which name gets which of these. Not here: names that were never replaced,
//! such as `ibv_create_comp_channel`; those are the real functions under version 1.0.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::guard::{self, Failure};

const VERB: &str = "a call of version IBVERBS_1.0";

fn refused() -> Failure {
    Failure::new(
        libc::ENOSYS,
        "the program was built against libibverbs 1.0; build it against 1.1 or later",
    )
}

/// # Safety
/// `num_devices` is null or points to an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_old_device_list(num_devices: *mut c_int) -> *mut c_void {
    guard::pointer(VERB, || {
        if !num_devices.is_null() {
            // SAFETY: the caller's contract, above.
            unsafe { ptr::write(num_devices, 0) };
        }
        Err(refused())
    })
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_old_errno() -> c_int {
    guard::status(VERB, || Err(refused()))
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_old_minus_one() -> c_int {
    guard::minus_one(VERB, || Err(refused()))
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_old_null() -> *mut c_void {
    guard::pointer(VERB, || Err(refused()))
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_old_nothing() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_program_sees_no_device() {
        let mut count = 5;
        // SAFETY: `count` is an int; the others have no contract.
        unsafe {
            assert!(feroce_old_device_list(&raw mut count).is_null());
            assert!(feroce_old_device_list(ptr::null_mut()).is_null());
            assert_eq!(feroce_old_errno(), libc::ENOSYS);
            assert_eq!(feroce_old_minus_one(), -1);
            assert!(feroce_old_null().is_null());
            feroce_old_nothing();
        }
        assert_eq!(count, 0);
    }
}
