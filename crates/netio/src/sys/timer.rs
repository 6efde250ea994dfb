//! Waiting: for a timer, and for room in a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::{call, check, check_size};

const NS_PER_S: u64 = 1_000_000_000;

/// A timer that is readable once it has fired.
pub(crate) fn timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
    // SAFETY: takes no pointer.
    let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
    // SAFETY: `fd` was just returned to us and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has a timer fire once, `wait_ns` nanoseconds from now; 0 stops it.
pub(crate) fn set_timer(timer: BorrowedFd<'_>, wait_ns: u64) -> io::Result<()> {
    let value = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: libc::timespec {
            tv_sec: (wait_ns / NS_PER_S).cast_signed(),
            tv_nsec: (wait_ns % NS_PER_S).cast_signed(),
        },
    };
    // SAFETY: `value` lives across the call; the old value is not asked for.
    check(unsafe {
        libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const value, std::ptr::null_mut())
    })?;
    Ok(())
}

/// Makes a timer that has fired unreadable again.
pub(crate) fn receive_timer(timer: BorrowedFd<'_>) -> io::Result<()> {
    let mut fired = 0u64;
    // SAFETY: `fired` is writable for the 8 bytes a timer yields.
    check_size(unsafe {
        call::read(timer.as_raw_fd(), (&raw mut fired).cast(), size_of::<u64>())
    })?;
    Ok(())
}

/// Waits until `fd` may be written to, at most `timeout`; returns whether it may.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    wait(fd, libc::POLLOUT, timeout)
}

/// Waits until `fd` may be read from, at most `timeout`; returns whether it may.
#[cfg(test)]
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    wait(fd, libc::POLLIN, timeout)
}

fn wait(fd: BorrowedFd<'_>, events: libc::c_short, timeout: Duration) -> bool {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events,
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    // SAFETY: one entry, as announced; both structs live across the call.
    let ready = unsafe { call::poll(&raw mut entry, &raw const timeout) };
    ready > 0 && entry.revents & events != 0
}
