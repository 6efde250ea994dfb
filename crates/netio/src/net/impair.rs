//! A device whose network is bad on purpose: what is received passes a [`lossy`](crate::lossy)
//! link first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use super::receive::Datagram;
use crate::lossy::{Impairment, Link, LossyCounts};
use crate::sys;

/// The link, and a timer that makes the device readable when the link has something.
pub(super) struct Impaired {
    link: Link<(Datagram<'static>, bool)>,
    start: Instant,
    timer: OwnedFd,
    /// What the timer is set to.
    armed_ns: Option<u64>,
}

/// A datagram the link lets out.
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    /// Everything about it but its bytes.
    pub(super) like: Datagram<'static>,
    pub(super) can_stray: bool,
}

impl Impaired {
    /// The link, and a descriptor to watch.
    pub(super) fn new(options: Impairment) -> io::Result<(Self, OwnedFd)> {
        log::warn!("everything received is impaired: {options}");
        let timer = sys::timer()?;
        let watched = timer.as_fd().try_clone_to_owned()?;
        let impaired = Self {
            link: Link::new(options),
            start: Instant::now(),
            timer,
            armed_ns: None,
        };
        Ok((impaired, watched))
    }

    pub(super) fn push(&mut self, datagram: &Datagram<'_>, can_stray: bool) {
        let now_ns = self.now_ns();
        let like = Datagram {
            bytes: &[],
            ..*datagram
        };
        self.link.push(now_ns, datagram.bytes, (like, can_stray));
    }

    /// Takes the next datagram whose time has come.
    pub(super) fn pop(&mut self) -> Option<Held> {
        let now_ns = self.now_ns();
        let (bytes, (like, can_stray)) = self.link.pop(now_ns)?;
        Some(Held {
            bytes,
            like,
            can_stray,
        })
    }

    /// Sets the timer to the next arrival.
    pub(super) fn arm(&mut self) {
        let next_ns = self.link.next_ns();
        if next_ns == self.armed_ns {
            return;
        }
        self.armed_ns = next_ns;
        let now_ns = self.now_ns();
        let wait_ns = next_ns.map(|next_ns| next_ns.saturating_sub(now_ns).max(1));
        if let Err(error) = sys::set_timer(self.timer.as_fd(), wait_ns.unwrap_or(0)) {
            log::error!("the timer of an impairment cannot be set: {error}");
        }
    }

    /// The timer fired: makes it unreadable until it is set again.
    pub(super) fn acknowledge(&mut self, timer: BorrowedFd<'_>) {
        let _ = sys::receive_timer(timer);
        self.armed_ns = None;
    }

    pub(super) const fn counts(&self) -> LossyCounts {
        self.link.counts()
    }

    /// Whether anything is on its way.
    #[cfg(test)]
    pub(super) fn is_waiting(&self) -> bool {
        self.link.next_ns().is_some()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
