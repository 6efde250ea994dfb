//! What a program opens to exchange management datagrams.

use super::exchange::Exchange;
use super::{Mad, MadAddress, MadSendError, exchange};
use crate::device::Device;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Datagrams that may wait in one agent.
const WAITING_MAX: usize = 1_024;

/// This process's share of queue pair 1 of a device. Dropping it closes it.
#[derive(Debug)]
pub struct Agent {
    device: Arc<Device>,
    mailbox: Arc<Mailbox>,
    exchange: Arc<Exchange>,
    /// Readable when the mailbox is, or a listener of this process.
    ready: OwnedFd,
}

/// Why an agent could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There can be one per device and process.
    #[error("this process has the management agent of {0} open already")]
    Taken(String),
    /// The process has no descriptor left.
    #[error("a management agent cannot be opened: {0}")]
    System(#[from] io::Error),
}

impl Agent {
    /// Opens the agent of a device.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn open(device: &Arc<Device>) -> Result<Self, AgentError> {
        let exchange = exchange::of_this_process()?;
        let mailbox = Arc::new(Mailbox::new()?);
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        for source in [mailbox.ready.as_fd(), exchange.ready()] {
            let token = epoll::EventData::new_u64(0);
            epoll::add(&ready, source, token, epoll::EventFlags::IN).map_err(io::Error::from)?;
        }
        let mut core = device.lock();
        if core.gsi.mailbox.is_some() {
            return Err(AgentError::Taken(device.name().to_owned()));
        }
        core.gsi.mailbox = Some(Arc::clone(&mailbox));
        drop(core);
        exchange.add_mailbox(device.name(), &mailbox);
        Ok(Self {
            device: Arc::clone(device),
            mailbox,
            exchange,
            ready,
        })
    }

    /// The slot that belongs on top of the ids that peers are given.
    pub fn slot(&self) -> u16 {
        self.device.lock().slot
    }

    /// A descriptor that is readable while datagrams wait; not to be read.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Sends a datagram. Like any it may get lost.
    ///
    /// # Errors
    /// What the kernel says, or that the local address is none of the device.
    pub fn send(&self, to: &MadAddress, mad: &Mad) -> Result<(), MadSendError> {
        let mut core = self.device.lock();
        let sent = core.send_mad(to, mad);
        self.device.finish(core);
        sent
    }

    /// Takes the oldest datagram that waits.
    pub fn receive(&self) -> Option<(MadAddress, Mad)> {
        self.mailbox.take().or_else(|| {
            self.exchange.collect();
            self.mailbox.take()
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.device.lock().gsi.mailbox = None;
    }
}

/// Datagrams that wait for a program.
#[derive(Debug)]
pub(super) struct Mailbox {
    waiting: Mutex<VecDeque<(MadAddress, Mad)>>,
    ready: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::new(VecDeque::new()),
            ready: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Puts a datagram in; false if there is no room.
    pub(super) fn put(&self, from: MadAddress, mad: &Mad) -> bool {
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING_MAX {
            return false;
        }
        waiting.push_back((from, *mad));
        let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
        true
    }

    pub(super) fn take(&self) -> Option<(MadAddress, Mad)> {
        let mut waiting = self.waiting();
        let taken = waiting.pop_front();
        if waiting.is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.ready, &mut count);
        }
        taken
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(MadAddress, Mad)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::is_readable;
    use feroce_proto::MAD_LEN;

    #[test]
    fn a_mailbox_is_readable_exactly_while_datagrams_wait_and_is_bounded() {
        let from = MadAddress {
            local: "10.0.0.1".parse().unwrap(),
            remote: "10.0.0.2".parse().unwrap(),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
        };
        let mailbox = Mailbox::new().unwrap();
        assert!(!is_readable(mailbox.ready.as_fd()));
        assert!(mailbox.put(from, &[1; MAD_LEN]) && mailbox.put(from, &[2; MAD_LEN]));
        assert!(is_readable(mailbox.ready.as_fd()));
        assert_eq!(mailbox.take(), Some((from, [1; MAD_LEN])));
        assert!(is_readable(mailbox.ready.as_fd()));
        assert_eq!(mailbox.take(), Some((from, [2; MAD_LEN])));
        assert!(!is_readable(mailbox.ready.as_fd()));
        assert_eq!(mailbox.take(), None);
        let put = (0..5_000).filter(|_| mailbox.put(from, &[0; MAD_LEN]));
        assert_eq!(put.count(), WAITING_MAX);
    }
}
