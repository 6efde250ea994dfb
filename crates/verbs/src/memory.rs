//! Protection domains, memory regions and windows.

use crate::context::Context;
use crate::queue::{CreateQpError, QpOptions, QueuePair, SharedReceiveQueue, SrqOptions};
use feroce_mem::{
    Access, Change, DeregisterError, DeviceMemory, DeviceMemoryError, GrantFault, Key, LocalFault,
    LocalUse, Memory, RegisterError, ReregisterError, WindowType,
};
use feroce_proto::{PdId, Sge};
use std::sync::Arc;

/// A protection domain: objects of different domains cannot be used together. Clones are one.
#[derive(Clone, Debug)]
pub struct ProtectionDomain {
    pub(crate) inner: Arc<PdInner>,
}

#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) context: Context,
    pub(crate) id: PdId,
    /// What this is another handle on; kept in use by it.
    _base: Option<ProtectionDomain>,
}

/// Why a buffer could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BufferError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] DeviceMemoryError),
    /// Registration refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Alignment of buffers, in bytes: a page.
/// Why memory could not be prefetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefetchError {
    /// The key does not allow it.
    #[error(transparent)]
    Claim(#[from] LocalFault),
    /// There is no memory to be had.
    #[error(transparent)]
    Memory(#[from] GrantFault),
}

const BUFFER_ALIGN: usize = 4096;

/// Bytes faulted in at once: the device stands still meanwhile, for about 0.1 ms.
const PREFETCH_STEP: u32 = 1 << 18;

impl ProtectionDomain {
    pub(crate) fn new(context: &Context) -> Self {
        let id = context.inner.device.alloc_pd();
        Self {
            inner: Arc::new(PdInner {
                context: context.clone(),
                id,
                _base: None,
            }),
        }
    }

    /// The same domain under a handle whose objects are counted apart (a parent domain of
    /// `ibv_alloc_parent_domain`). This one stays in use while that one exists.
    pub fn alias(&self) -> Self {
        Self {
            inner: Arc::new(PdInner {
                context: self.inner.context.clone(),
                id: self.inner.id,
                _base: Some(self.clone()),
            }),
        }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Its id towards the device.
    pub fn id(&self) -> PdId {
        self.inner.id
    }

    /// Whether objects in it still live.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Registers memory; its bytes have addresses from `iova` on in requests.
    ///
    /// # Errors
    /// [`RegisterError`] names the range or the flag.
    pub fn register(
        &self,
        memory: Memory,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let pd = feroce_mem::PdId(self.inner.id.0);
        let device = &self.inner.context.inner.device;
        let key = device.with_memory(|table| table.register(pd, memory, iova, access))?;
        Ok(MemoryRegion {
            pd: self.clone(),
            key,
            closed: false,
        })
    }

    /// Allocates zeroed memory and registers it; its bytes have addresses from 0 on.
    ///
    /// # Errors
    /// [`BufferError`] names the flag or the limit.
    pub fn alloc_buffer(&self, len: usize, access: Access) -> Result<Buffer, BufferError> {
        let memory = DeviceMemory::new(len, BUFFER_ALIGN)?;
        let part = Memory::device(Arc::clone(&memory), 0, len)?;
        let region = self.register(part, 0, access | Access::ZERO_BASED)?;
        Ok(Buffer {
            region,
            memory,
            len,
        })
    }

    /// Checks that a request of this domain may use `sge`, to write there if `write`, and with
    /// `populate` faults its pages in (`ibv_advise_mr`).
    ///
    /// # Errors
    /// [`PrefetchError`]; pages before the one that failed may be in.
    pub fn prefetch(&self, sge: &Sge, write: bool, populate: bool) -> Result<(), PrefetchError> {
        let pd = feroce_mem::PdId(self.inner.id.0);
        let usage = if write {
            LocalUse::Write
        } else {
            LocalUse::Read
        };
        let device = &self.inner.context.inner.device;
        let step = if populate { PREFETCH_STEP } else { sge.length };
        let mut done = 0;
        while done < sge.length {
            let length = step.min(sge.length - done);
            let address = sge.address.wrapping_add(u64::from(done));
            device.with_memory(|table| {
                let key = Key(sge.lkey);
                let grant = table.local(pd, key, address, length as usize, usage)?;
                match populate {
                    true => grant.populate().map_err(PrefetchError::from),
                    false => Ok(()),
                }
            })?;
            done += length;
        }
        Ok(())
    }

    /// A new memory window.
    ///
    /// # Errors
    /// If there are too many regions and windows.
    pub fn alloc_window(&self, window_type: WindowType) -> Result<MemoryWindow, RegisterError> {
        let pd = feroce_mem::PdId(self.inner.id.0);
        let device = &self.inner.context.inner.device;
        let key = device.with_memory(|table| table.alloc_window(pd, window_type))?;
        Ok(MemoryWindow {
            pd: self.clone(),
            key,
            window_type,
        })
    }

    /// A new queue pair.
    ///
    /// # Errors
    /// [`CreateQpError`] names the attribute and the limit.
    pub fn create_qp(&self, options: QpOptions) -> Result<QueuePair, CreateQpError> {
        QueuePair::new(self, options)
    }

    /// A new shared receive queue.
    ///
    /// # Errors
    /// [`CreateQpError`] names the attribute and the limit.
    pub fn create_srq(&self, options: SrqOptions) -> Result<SharedReceiveQueue, CreateQpError> {
        SharedReceiveQueue::new(self, options)
    }
}

/// A registered memory region; deregistered when dropped.
#[derive(Debug)]
pub struct MemoryRegion {
    pd: ProtectionDomain,
    key: Key,
    closed: bool,
}

impl MemoryRegion {
    /// Key for local use.
    pub const fn lkey(&self) -> u32 {
        self.key.0
    }

    /// Key to give to peers.
    pub const fn rkey(&self) -> u32 {
        self.key.0
    }

    /// Its protection domain.
    pub const fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Changes translation, domain or access (`ibv_rereg_mr`). The key may change.
    ///
    /// # Errors
    /// [`ReregisterError`]; the region is unchanged then.
    pub fn reregister(
        &mut self,
        pd: Option<&ProtectionDomain>,
        translation: Option<(Memory, u64)>,
        access: Option<Access>,
    ) -> Result<(), ReregisterError> {
        let change = Change {
            translation,
            pd: pd.map(|pd| feroce_mem::PdId(pd.inner.id.0)),
            access,
        };
        let device = Arc::clone(&self.pd.inner.context.inner.device);
        self.key = device.with_memory(|table| table.reregister(self.key, change))?;
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        Ok(())
    }

    /// Deregisters the region now.
    ///
    /// # Errors
    /// The region itself, and why, when windows are bound to it.
    pub fn close(mut self) -> Result<(), (Self, DeregisterError)> {
        let device = &self.pd.inner.context.inner.device;
        match device.with_memory(|table| table.deregister(self.key)) {
            Ok(()) => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.closed {
            return;
        }
        let device = &self.pd.inner.context.inner.device;
        if let Err(error) = device.with_memory(|table| table.deregister(self.key)) {
            log::error!("memory stays registered: {error}");
        }
    }
}

/// Memory that Feroce allocated, with its registration. Peers may change it at any time.
#[derive(Debug)]
pub struct Buffer {
    region: MemoryRegion,
    memory: Arc<DeviceMemory>,
    len: usize,
}

impl Buffer {
    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Key for local use.
    pub const fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// Key to give to peers.
    pub const fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    /// A scatter/gather entry for a part of it.
    pub const fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge {
            address: offset,
            length,
            lkey: self.region.lkey(),
        }
    }

    /// Copies bytes out, from `offset`.
    ///
    /// # Errors
    /// If the range is not inside the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), DeviceMemoryError> {
        self.memory.copy_from(offset, into)
    }

    /// Copies bytes in, at `offset`.
    ///
    /// # Errors
    /// If the range is not inside the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceMemoryError> {
        self.memory.copy_to(offset, from)
    }
}

/// A memory window.
#[derive(Debug)]
pub struct MemoryWindow {
    pd: ProtectionDomain,
    key: Key,
    window_type: WindowType,
}

impl MemoryWindow {
    /// Its key as allocated; after a bind the index part stays and the low byte is the bind's.
    pub const fn rkey(&self) -> u32 {
        self.key.0
    }

    /// Its type.
    pub const fn window_type(&self) -> WindowType {
        self.window_type
    }

    /// Its protection domain.
    pub const fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let device = &self.pd.inner.context.inner.device;
        if let Err(error) = device.with_memory(|table| table.dealloc_window(self.key)) {
            log::error!("freeing a memory window: {error}");
        }
    }
}
