//! An opened device, seen by one user of it.

use crate::completion::{CompletionChannel, CompletionQueue, CqOptions};
use crate::memory::ProtectionDomain;
use crate::path::{self, PathError, PathRequest};
use crate::queue::XrcDomain;
use crate::{Limits, OpenError, PortInfo};
use feroce_engine::{Device, DeviceEvents, Gid};
use feroce_proto::Path;
use std::io;
use std::sync::Arc;

/// An opened device. Clones share one event queue; opening again makes another.
#[derive(Clone, Debug)]
pub struct Context {
    pub(crate) inner: Arc<ContextInner>,
}

#[derive(Debug)]
pub(crate) struct ContextInner {
    pub(crate) device: Arc<Device>,
    pub(crate) events: Arc<DeviceEvents>,
}

/// Why an object could not be made on a context.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// A number is above a limit of the device, or zero.
    #[error("{what} {asked} is outside 1..={limit}")]
    Limit {
        /// Which number.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl Context {
    /// Opens a device by its name, such as `roce_lo`.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the device or the machine.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        Self::on(Device::open(name)?)
    }

    /// Opens a device for this context alone, without a thread behind it: packets are taken and
    /// timers fire only while this program posts and polls.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_unattended(name: &str) -> Result<Self, OpenError> {
        Self::on(Device::open_unattended(name)?)
    }

    fn on(device: Arc<Device>) -> Result<Self, OpenError> {
        let events = Arc::new(DeviceEvents::new()?);
        device.add_listener(&events);
        Ok(Self {
            inner: Arc::new(ContextInner { device, events }),
        })
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        self.inner.device.name()
    }

    /// The device's GUID in network order.
    pub fn guid(&self) -> [u8; 8] {
        self.inner.device.guid()
    }

    /// The device behind the context.
    pub fn device(&self) -> &Arc<Device> {
        &self.inner.device
    }

    /// What the device can do.
    pub const fn limits(&self) -> &'static Limits {
        &Limits::DEVICE
    }

    /// State of the only port.
    pub fn port(&self) -> PortInfo {
        self.inner.device.port()
    }

    /// An entry of the GID table.
    pub fn gid(&self, index: usize) -> Option<Gid> {
        self.inner.device.gid(index)
    }

    /// Asynchronous events of the device and of this context's objects.
    pub fn events(&self) -> &Arc<DeviceEvents> {
        &self.inner.events
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> ProtectionDomain {
        ProtectionDomain::new(self)
    }

    /// A new XRC domain.
    pub fn open_xrc_domain(&self) -> XrcDomain {
        XrcDomain::new(self)
    }

    /// A new completion channel.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn create_channel(&self) -> io::Result<CompletionChannel> {
        CompletionChannel::new(&self.inner.device)
    }

    /// A new completion queue.
    ///
    /// # Errors
    /// [`ContextError::Limit`] for a capacity of 0 or above `max_cqe`.
    pub fn create_cq(&self, options: CqOptions) -> Result<CompletionQueue, ContextError> {
        CompletionQueue::new(self, options)
    }

    /// Resolves an address vector.
    ///
    /// # Errors
    /// [`PathError`] names the field at fault.
    pub fn resolve(&self, request: &PathRequest) -> Result<Path, PathError> {
        path::resolve(&self.inner.device, request)
    }
}
