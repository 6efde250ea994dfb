//! How the kernel schedules a thread.

use std::time::Duration;

/// The shortest turn that Linux takes (`sched(7)`, since 6.12).
const TURN: Duration = Duration::from_micros(100);

/// Asks for short turns at the processor for the calling thread, of the ordinary kind: it then runs
/// as soon as it is woken, not when a program that spins has used its own, longer turn up (some
/// milliseconds). Its share stays what it was.
///
/// Kernels before 6.12 know no such wish, and some sandboxes refuse it: the thread is woken later
/// then, no more.
pub fn prefer_short_turns() {
    // SAFETY: asks about the calling thread; zeros are a valid value, which the call fills in.
    unsafe {
        let size = size_of::<libc::sched_attr>() as libc::c_uint;
        let mut attr: libc::sched_attr = std::mem::zeroed();
        let (own, flags) = (0, 0);
        if libc::syscall(libc::SYS_sched_getattr, own, &raw mut attr, size, flags) != 0
            || attr.sched_policy != libc::SCHED_OTHER as u32
        {
            return;
        }
        attr.sched_runtime = TURN.as_nanos() as u64;
        libc::syscall(libc::SYS_sched_setattr, own, &raw const attr, flags);
    }
}
