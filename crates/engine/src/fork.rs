//! `fork`: a child gets the memory of its parent but none of its threads, so that a device of the
//! parent stands still in it for ever, with its locks as they happened to be.
//!
//! The child forgets such devices, unlocked and undropped, and may open its own. That it does not
//! use what the parent made is for the layer above to see to. Not here: when these functions are
//! called (`pthread_atfork`).

use crate::{device, statistics};

/// The state of this crate that all threads share, held still while a process forks.
#[must_use]
pub struct Forking {
    devices: device::OpenedGuard,
    reports: statistics::ReportsGuard,
}

/// Waits until no other thread is about to change what a child must find whole.
pub fn before_fork() -> Forking {
    // The order in which opening a device takes them.
    Forking {
        devices: device::opened(),
        reports: statistics::reports(),
    }
}

impl Forking {
    /// In the parent: goes on.
    pub fn in_parent(self) {}

    /// In the child: forgets the devices of the parent, which are not the child's to report on.
    pub fn in_child(mut self) {
        self.devices.clear();
        self.reports.clear();
    }
}
