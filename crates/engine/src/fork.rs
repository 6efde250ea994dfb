//! `fork`: a child gets the memory of its parent but none of its threads, so that a device of the
//! parent stands still in it for ever, with its locks as they happened to be.
//!
//! The child forgets such devices, unlocked and undropped, and may open its own. That it does not
//! use what the parent made is for the layer above to see to, and that their sockets are closed in
//! it: else the kernel would go on delivering packets to them after the parent's end. Not here:
//! when these functions are called (`pthread_atfork`).

use crate::{device, gsi, statistics};
use std::os::fd::RawFd;
use std::sync::Weak;

/// The state of this crate that all threads share, held still while a process forks.
#[must_use]
pub struct Forking {
    devices: device::OpenedGuard,
    reports: statistics::ReportsGuard,
    claims: gsi::Forking,
    sockets: Vec<RawFd>,
}

/// Waits until no other thread is about to change what a child must find whole.
pub fn before_fork() -> Forking {
    // The order in which opening a device takes them.
    let devices = device::opened();
    let reports = statistics::reports();
    let alive = devices.iter().map(|(_, device)| device);
    let mut sockets: Vec<RawFd> = alive
        .filter_map(Weak::upgrade)
        .flat_map(|device| device.lock().net.descriptors())
        .collect();
    let claims = gsi::before_fork();
    sockets.extend(&claims.descriptors);
    Forking {
        devices,
        reports,
        claims,
        sockets,
    }
}

impl Forking {
    /// The sockets of all devices. They may change until the fork: look again in the child whether
    /// a number still means the same.
    pub fn sockets(&self) -> &[RawFd] {
        &self.sockets
    }

    /// In the parent: goes on.
    pub fn in_parent(self) {}

    /// In the child: forgets the devices of the parent, which are not the child's to report on.
    pub fn in_child(mut self) {
        self.devices.clear();
        self.reports.clear();
        gsi::forget_in_child(self.claims);
    }
}
