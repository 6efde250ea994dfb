//! `fork` and registered memory. A NIC writes to physical pages, which after a fork may belong to
//! the child; hence `ibv_fork_init` and ranges that are kept out of the child. Feroce writes to
//! the addresses of the process itself: whatever pages the kernel gives parent and child, the bytes
//! land where the parent sees them. Nothing needs to be prepared, and programs are told so.

use std::ffi::{c_int, c_void};

use feroce_verbs_abi as abi;

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_is_fork_initialized() -> abi::ibv_fork_status {
    abi::IBV_FORK_UNNEEDED
}

/// # Safety
/// None needed: the range is left as it is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// # Safety
/// None needed: the range is left as it is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_visible_to_a_child() {
        let mut memory = [7_u8; 64];
        let base: *mut c_void = memory.as_mut_ptr().cast();
        // SAFETY: no contract for the four; the child only exits, which is safe after fork.
        unsafe {
            assert_eq!(ibv_fork_init(), 0);
            assert_eq!(ibv_is_fork_initialized(), abi::IBV_FORK_UNNEEDED);
            assert_eq!(ibv_dontfork_range(base, memory.len()), 0);
            let child = libc::fork();
            if child == 0 {
                // A page kept out of the child would be a segmentation fault here.
                libc::_exit(c_int::from(*base.cast::<u8>()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
            assert_eq!(ibv_dofork_range(base, memory.len()), 0);
        }
    }
}
