//! `libferoce_shim.so`: shows a program that was started by `feroce run` a view of
//! `/sys/class/infiniband`, `/sys/class/infiniband_verbs`, `/dev/infiniband` and
//! `/sys/devices/feroce`, which only a kernel driver could make for real.
//!
//! It is preloaded, so it sits in every program of the process tree, shells and editors included,
//! between the program and the C library's file calls. What follows from that:
//! - A path outside the four folders costs a few byte comparisons and goes to the next definition
//!   of the call, unchanged. Nothing there allocates, locks or keeps state.
//! - A path inside is looked up in the folder that `FEROCE_VIEW` names (`feroce run` makes it);
//!   without that variable the shim does nothing at all.
//! - A port counter is asked of the verbs library of the same process (`counter`), so that a
//!   program that reads its own traffic from sysfs sees it grow.
//! - No threads, no I/O of its own, no std in the release build, no library needed.
//!
//! What it is not: a sandbox or a mount. Only absolute paths are seen; a program that makes its
//! system calls itself (static binaries, Go), that walks down from `/sys/class` by descriptor or
//! that changes its folder to `/sys/class` first sees the machine as it is.
//!
//! Why programs need it: the gates measured with UCX, Mooncake and perftest. UCX drops a device
//! whose `/dev/infiniband/uverbsN` is not a readable and writable character device, Mooncake one
//! whose `/sys/class/infiniband/NAME/../..` has no real path, perftest `-W` reads its counters
//! there.
#![no_std]

// The unwinding profiles (dev, test) need std's panic machinery; the library itself uses only core.
#[cfg(any(test, not(panic = "abort")))]
extern crate std as _;

mod calls;
mod counter;
mod next;
mod path;
mod sys;
mod view;

/// Nothing here panics on purpose; a defect must not unwind into a stranger's C frames.
#[cfg(all(panic = "abort", not(test)))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` has no requirements.
    unsafe { sys::abort() }
}

// The precompiled `core` names the routine that unwinding would ask about its frames. Nothing
// unwinds here, so nothing calls it; it only has to exist, inside this library.
#[cfg(all(panic = "abort", not(test)))]
core::arch::global_asm!(
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality:",
    ".byte 0, 0, 0, 0",
);

/// Runs when the loader starts the program: after it the calls are safe in signal handlers too,
/// since every address is known. Calls made before it (by constructors of other libraries) look
/// their address up on the spot.
extern "C" fn start() {
    view::remember();
    calls::resolve_all();
}

// The test executable has no use for it.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cfg(test)]
const _: extern "C" fn() = start;
