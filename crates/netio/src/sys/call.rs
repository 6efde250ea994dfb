//! System calls without libc's wrappers.
//!
//! The wrappers are cancellation points (`pthreads(7)`): a program that cancels a thread inside a
//! verb would unwind through a locked device. And libraries that programs preload replace some of
//! them.

use std::ffi::{c_int, c_uint};

/// `sendmsg(2)`.
///
/// # Safety
/// As of the system call: everything that `header` points to is readable.
pub(super) unsafe fn sendmsg(fd: c_int, header: *const libc::msghdr, flags: c_int) -> isize {
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, header, flags) as isize }
}

/// `recvmmsg(2)` that never waits.
///
/// # Safety
/// As of the system call: `headers` has `count` valid entries.
pub(super) unsafe fn recvmmsg(
    fd: c_int,
    headers: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let forever = std::ptr::null_mut::<libc::timespec>();
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_recvmmsg, fd, headers, count, flags, forever) as c_int }
}

/// `recvfrom(2)` without a source address.
///
/// # Safety
/// `buffer` is writable for `len` bytes.
pub(super) unsafe fn recv(fd: c_int, buffer: *mut u8, len: usize, flags: c_int) -> isize {
    let (name, name_len) = (std::ptr::null_mut::<u8>(), std::ptr::null_mut::<u32>());
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_recvfrom, fd, buffer, len, flags, name, name_len) as isize }
}

/// `read(2)`.
///
/// # Safety
/// `buffer` is writable for `len` bytes.
pub(super) unsafe fn read(fd: c_int, buffer: *mut u8, len: usize) -> isize {
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_read, fd, buffer, len) as isize }
}

/// `epoll_pwait(2)` without a signal mask; `timeout` in milliseconds.
///
/// # Safety
/// `events` has room for `count` entries.
pub(super) unsafe fn epoll_wait(
    fd: c_int,
    events: *mut libc::epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the caller's contract.
    unsafe { libc::syscall(libc::SYS_epoll_pwait, fd, events, count, timeout, mask, 8) as c_int }
}

/// `ppoll(2)` of one entry without a signal mask.
///
/// # Safety
/// `entry` and `timeout` point to live values.
pub(super) unsafe fn poll(entry: *mut libc::pollfd, timeout: *const libc::timespec) -> c_int {
    let mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the caller's contract. The kernel may write what is left of the time, to a copy.
    let mut left = unsafe { timeout.read() };
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_ppoll, entry, 1, &raw mut left, mask, 8) as c_int }
}
