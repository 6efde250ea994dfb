//! Completion queues and channels.

use crate::Limits;
use crate::context::{Context, ContextError};
use feroce_engine::{Channel, Cq, Device, Notify, Stamped};
use feroce_proto::CqId;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

/// How a completion queue is made.
#[derive(Clone, Debug)]
pub struct CqOptions {
    /// Completions it holds, 1..=`max_cqe`.
    pub capacity: usize,
    /// Where its events go.
    pub channel: Option<CompletionChannel>,
}

impl CqOptions {
    /// A queue without events.
    pub const fn with_capacity(capacity: usize) -> Self {
        Self {
            capacity,
            channel: None,
        }
    }
}

/// A channel that tells which completion queues have news.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    channel: Arc<Channel>,
    device: Arc<Device>,
}

impl CompletionChannel {
    pub(crate) fn new(device: &Arc<Device>) -> io::Result<Self> {
        Ok(Self {
            channel: Arc::new(Channel::new()?),
            device: Arc::clone(device),
        })
    }

    /// The descriptor that is readable while events wait.
    pub fn raw_fd(&self) -> RawFd {
        self.channel.raw_fd()
    }

    /// Waits for an event; returns the id of the completion queue ([`CompletionQueue::id`]).
    ///
    /// # Errors
    /// `WouldBlock` if the descriptor was made non-blocking; `Interrupted`.
    pub fn wait(&self) -> io::Result<CqId> {
        Ok(self.device.wait_event(&self.channel)?)
    }

    /// As [`Self::wait`], for at most `span`: then `None`.
    ///
    /// # Errors
    /// As for [`Self::wait`].
    pub fn wait_for(&self, span: Duration) -> io::Result<Option<CqId>> {
        Ok(self.device.wait_event_for(&self.channel, span)?)
    }

    /// Completion queues that still use the channel.
    pub fn users(&self) -> usize {
        Arc::strong_count(&self.channel) - 1
    }
}

/// A completion queue. Clones are one queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    inner: Arc<CqInner>,
}

#[derive(Debug)]
struct CqInner {
    context: Context,
    cq: Arc<Cq>,
}

impl Drop for CqInner {
    fn drop(&mut self) {
        self.context.inner.device.destroy_cq(&self.cq);
    }
}

impl CompletionQueue {
    pub(crate) fn new(context: &Context, options: CqOptions) -> Result<Self, ContextError> {
        check_capacity(options.capacity)?;
        let channel = options.channel.map(|channel| channel.channel);
        let device = &context.inner.device;
        let cq = device.create_cq(options.capacity, channel, &context.inner.events);
        Ok(Self {
            inner: Arc::new(CqInner {
                context: context.clone(),
                cq,
            }),
        })
    }

    /// The id that channel and device events name it by.
    pub fn id(&self) -> CqId {
        self.inner.cq.id()
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Completions it holds.
    pub fn capacity(&self) -> usize {
        self.inner.cq.capacity()
    }

    /// Takes up to `count` completions, handing each to `sink`; makes progress when there are
    /// none. Returns how many.
    #[inline]
    pub fn poll(&self, count: usize, sink: impl FnMut(Stamped)) -> usize {
        self.inner
            .context
            .inner
            .device
            .poll_cq(&self.inner.cq, count, sink)
    }

    /// Takes one completion, if there is one.
    pub fn poll_one(&self) -> Option<Stamped> {
        let mut found = None;
        self.poll(1, |entry| found = Some(entry));
        found
    }

    /// Asks for an event at the next completion (or the next solicited one).
    pub fn request_notify(&self, solicited_only: bool) {
        let notify = if solicited_only {
            Notify::Solicited
        } else {
            Notify::Any
        };
        self.inner
            .context
            .inner
            .device
            .arm_cq(&self.inner.cq, notify);
    }

    /// Changes the capacity.
    ///
    /// # Errors
    /// [`ContextError::Limit`] if it is out of range or below what waits in the queue.
    pub fn resize(&self, capacity: usize) -> Result<(), ContextError> {
        check_capacity(capacity)?;
        if self.inner.cq.resize(capacity) {
            return Ok(());
        }
        Err(ContextError::Limit {
            what: "a capacity below the completions that wait:",
            asked: capacity as u64,
            limit: u64::from(Limits::DEVICE.max_cqe),
        })
    }

    /// Withdraws its events from its channel and raises no more: it is about to go.
    pub fn forget_events(&self) {
        self.inner
            .context
            .inner
            .device
            .forget_cq_events(&self.inner.cq);
    }

    /// Whether queue pairs or others still use it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }
}

fn check_capacity(capacity: usize) -> Result<(), ContextError> {
    let limit = u64::from(Limits::DEVICE.max_cqe);
    if capacity == 0 || capacity as u64 > limit {
        return Err(ContextError::Limit {
            what: "cqe",
            asked: capacity as u64,
            limit,
        });
    }
    Ok(())
}
