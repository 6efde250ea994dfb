//! `fork`. A NIC writes to physical pages, which after a fork may belong to the child; hence
//! `ibv_fork_init` and ranges that are kept out of the child. Feroce writes to the addresses of the
//! process itself: whatever pages the kernel gives parent and child, the bytes land where the
//! parent sees them. Nothing needs to be prepared, and programs are told so.
//!
//! What does matter here is the child. It has a copy of the device, but not of the threads that
//! work on it, and would wait for them for ever. So the objects of the parent are dead in the
//! child: every entry point refuses them with EPERM, but for those that destroy, which do nothing.
//! The child may open devices of its own. It has no part in the sockets of the parent: as long as
//! it held copies, packets would go to them after the end of the parent.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use feroce_verbs::Forking;
use feroce_verbs_abi as abi;

use crate::{device, share, xrcd};

/// How many forks lie between the process that loaded the library and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// What tells objects of this process from those it has inherited.
#[inline]
pub(crate) fn generation() -> u32 {
    // Changed only when there is one thread.
    GENERATION.load(Ordering::Relaxed)
}

/// Everything that threads of this library share beside objects, held still during a fork.
struct Held {
    xrc_domains: xrcd::ByFileGuard,
    families: share::FamiliesGuard,
    _devices: device::DevicesGuard,
    engine: Forking,
    /// The sockets of all devices, and what they are.
    sockets: Vec<(RawFd, share::File)>,
}

thread_local! {
    /// Between the two halves of a fork, in the thread that forks.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Has forks noticed from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: three functions without arguments that do not unwind: a panic aborts. The library
        // is never unloaded before the process ends, since its threads may run.
        let refusal =
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if refusal != 0 {
            log::error!("forks go unnoticed (errno {refusal}): do not use verbs in children");
        }
    });
}

extern "C" fn before() {
    let (xrc_domains, families) = (xrcd::by_file_guard(), share::families());
    let (devices, engine) = (device::devices(), feroce_verbs::before_fork());
    let sockets = engine.sockets().iter();
    let sockets = sockets
        .filter_map(|&socket| Some((socket, share::identify(socket).ok()?)))
        .collect();
    let held = Held {
        xrc_domains,
        families,
        _devices: devices,
        engine,
        sockets,
    };
    HELD.with_borrow_mut(|place| *place = Some(held));
}

extern "C" fn in_parent() {
    if let Some(held) = HELD.take() {
        held.engine.in_parent();
    }
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if let Some(mut held) = HELD.take() {
        // Dropping the domains would lock the device they are of.
        std::mem::forget(std::mem::take(&mut *held.xrc_domains));
        held.families.clear();
        held.engine.in_child();
        for (socket, file) in held.sockets {
            if share::identify(socket).is_ok_and(|now| now == file) {
                // SAFETY: the parent's device, which owns it, is never used or dropped here.
                unsafe { libc::close(socket) };
            }
        }
    }
}

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
pub(crate) mod tests {
    use super::*;
    use crate::handle;

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

    /// Forks and returns what `child` makes of it.
    pub(crate) fn in_a_child(child: impl FnOnce() -> bool) -> bool {
        watch();
        // SAFETY: the child allocates, which the C library allows, and takes no lock but those
        // that are held still for it. It leaves without running anything of the test harness.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(c_int::from(!child())),
                process => {
                    assert!(process > 0);
                    let mut status = 0;
                    assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                }
            }
        }
    }

    #[test]
    fn objects_of_the_parent_are_refused_in_a_child_and_its_own_are_not() {
        let pd = handle::create::<abi::ibv_pd, u8>(abi::ibv_pd::default(), 5);
        assert!(in_a_child(|| {
            let own = handle::create::<abi::ibv_pd, u8>(abi::ibv_pd::default(), 6);
            // SAFETY: both are live.
            unsafe {
                handle::rust::<_, u8>(pd).is_err_and(|failure| failure.errno == libc::EPERM)
                    && handle::release::<_, u8>(pd).is_err()
                    && handle::inheritable::<_, u8>(pd) == Ok(&5)
                    && handle::rust::<_, u8>(own) == Ok(&6)
            }
        }));
        // SAFETY: it is live here.
        unsafe {
            assert_eq!(handle::rust::<_, u8>(pd), Ok(&5));
            handle::release::<_, u8>(pd).unwrap();
        }
    }
}
