//! One epoll instance.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{call, check};

/// Ready descriptors fetched per call.
const EVENTS_MAX: usize = 64;

/// An epoll instance whose members are named by tokens.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// The tokens one [`Epoll::ready`] call reported.
pub(crate) struct Ready {
    events: [libc::epoll_event; EVENTS_MAX],
    count: usize,
}

impl Ready {
    /// Tokens of the descriptors that may be read.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = usize> {
        self.events[..self.count]
            .iter()
            .map(|event| usize::try_from(event.u64).unwrap_or(usize::MAX))
    }
}

impl Epoll {
    /// Opens an instance that programs started later do not inherit.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: `fd` was just returned to us and nobody else holds it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd` for input, level-triggered.
    pub(crate) fn add(&self, fd: BorrowedFd<'_>, token: usize) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token as u64,
        };
        // SAFETY: both descriptors are open by their types; `event` lives across the call.
        check(unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        })?;
        Ok(())
    }

    /// What is ready now; never waits.
    pub(crate) fn ready(&self) -> io::Result<Ready> {
        let mut ready = Ready {
            events: [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX],
            count: 0,
        };
        // SAFETY: `events` has room for the `EVENTS_MAX` entries announced.
        let count = check(unsafe {
            call::epoll_wait(
                self.0.as_raw_fd(),
                ready.events.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                0,
            )
        });
        match count {
            Ok(count) => ready.count = usize::try_from(count).unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(ready)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
