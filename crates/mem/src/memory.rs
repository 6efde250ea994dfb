//! What can be registered: host memory, device memory, nothing, everything.

use crate::limits::{
    DEVICE_MEMORY_ALIGN_MAX, DEVICE_MEMORY_BYTES_MAX, DEVICE_MEMORY_GRANULE as GRANULE,
};
use core::{fmt, ptr, ptr::NonNull};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;

/// Memory that a region can be made of.
#[derive(Debug)]
pub struct Memory {
    base: *mut u8,
    len: u64,
    source: Source,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The program's own memory.
    Host,
    /// Ours, kept alive by this.
    Device { _owner: Arc<DeviceMemory> },
    /// Nowhere.
    Null,
    /// Wherever the program maps something.
    AddressSpace,
}

// SAFETY: `base` is an address, not a claim of ownership: `from_raw` demands that the range may
// be used from any thread, and device memory is `Send` and `Sync` itself.
unsafe impl Send for Memory {}

impl Memory {
    /// The program's memory `address..address + len`.
    ///
    /// # Safety
    /// What `ibv_reg_mr` makes a program promise. From registration until the region is
    /// deregistered, gets another translation, or its table is dropped:
    /// - the range stays mapped, and writable if the region has LOCAL_WRITE. For regions with
    ///   ON_DEMAND it need not be, except while an atomic is executed on it;
    /// - its bytes may be read, and with LOCAL_WRITE written, at any time from any thread: no
    ///   Rust reference to them is alive, and whoever else uses them tolerates the changes.
    pub const unsafe fn from_raw(address: *mut u8, len: usize) -> Self {
        Self {
            base: address,
            len: len as u64,
            source: Source::Host,
        }
    }

    /// A part of device memory, `len` bytes from `offset`. Its region is zero-based.
    ///
    /// # Errors
    /// [`DeviceMemoryError::OutOfRange`] if that part does not exist.
    pub fn device(
        memory: Arc<DeviceMemory>,
        offset: usize,
        len: usize,
    ) -> Result<Self, DeviceMemoryError> {
        memory.check_range(offset, len)?;
        Ok(Self {
            base: memory.start.as_ptr().wrapping_add(offset),
            len: len as u64,
            source: Source::Device { _owner: memory },
        })
    }

    /// No memory: reads give zeros, writes vanish. For local use only, of any length.
    pub const fn null() -> Self {
        Self {
            base: ptr::null_mut(),
            len: u64::MAX,
            source: Source::Null,
        }
    }

    /// The whole address space (implicit on-demand paging): address 0, length `SIZE_MAX`.
    ///
    /// # Safety
    /// As for [`Memory::from_raw`], for all memory that the program lets a key of the region
    /// reach: with LOCAL_WRITE or remote rights nothing in this process is out of reach.
    pub const unsafe fn address_space() -> Self {
        Self {
            base: ptr::null_mut(),
            len: usize::MAX as u64,
            source: Source::AddressSpace,
        }
    }

    /// Where the first byte is.
    #[inline]
    pub(crate) const fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes; at most `usize::MAX`.
    #[inline]
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) const fn source(&self) -> &Source {
        &self.source
    }

    /// The same memory once more, for a region that replaces the one that has it now.
    pub(crate) fn duplicate(&self) -> Self {
        Self {
            base: self.base,
            len: self.len,
            source: self.source.clone(),
        }
    }
}

/// Memory of the device (`ibv_alloc_dm`): zeroed at first, reached by registration or by copies.
pub struct DeviceMemory {
    start: NonNull<u8>,
    layout: Layout,
    len: usize,
}

// SAFETY: the allocation belongs to this value alone; all access to it is by raw copies and
// atomics, never by reference, so that threads can at worst see each other's bytes.
unsafe impl Send for DeviceMemory {}
// SAFETY: as above.
unsafe impl Sync for DeviceMemory {}

impl DeviceMemory {
    /// Allocates `len` bytes at a multiple of `align` bytes (at least 8, so that atomics work).
    ///
    /// # Errors
    /// [`DeviceMemoryError`] if a limit is passed, `align` is no power of two, or memory is short.
    pub fn new(len: usize, align: usize) -> Result<Arc<Self>, DeviceMemoryError> {
        if len > DEVICE_MEMORY_BYTES_MAX {
            return Err(DeviceMemoryError::TooLong { len });
        }
        if !align.is_power_of_two() || align > DEVICE_MEMORY_ALIGN_MAX {
            return Err(DeviceMemoryError::Align { align });
        }
        let layout = Layout::from_size_align(len.max(1), align.max(8))
            .map_err(|_| DeviceMemoryError::Align { align })?;
        // SAFETY: the layout's size is at least 1.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })
            .ok_or(DeviceMemoryError::Exhausted { len })?;
        Ok(Arc::new(Self { start, layout, len }))
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no byte.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `data` in, at `offset` bytes (`ibv_memcpy_to_dm`).
    ///
    /// # Errors
    /// [`DeviceMemoryError`] if it does not fit.
    pub fn copy_to(&self, offset: usize, data: &[u8]) -> Result<(), DeviceMemoryError> {
        self.check_range(offset, data.len())?;
        // SAFETY: `check_range` proved offset + len <= self.len; no reference to the bytes exists.
        // A peer may write them at the same time; then either value, byte by byte, is right.
        unsafe {
            let target = self.start.as_ptr().add(offset);
            ptr::copy_nonoverlapping(data.as_ptr(), target, data.len());
        }
        Ok(())
    }

    /// Fills `data` from `offset` bytes (`ibv_memcpy_from_dm`).
    ///
    /// # Errors
    /// As for [`DeviceMemory::copy_to`].
    pub fn copy_from(&self, offset: usize, data: &mut [u8]) -> Result<(), DeviceMemoryError> {
        self.check_range(offset, data.len())?;
        // SAFETY: as in `copy_to`.
        unsafe {
            let source = self.start.as_ptr().add(offset);
            ptr::copy_nonoverlapping(source, data.as_mut_ptr(), data.len());
        }
        Ok(())
    }

    /// Whether a copy keeps to the granule of 4 bytes that `ibv_memcpy_to_dm` and
    /// `ibv_memcpy_from_dm` ask for.
    ///
    /// # Errors
    /// [`DeviceMemoryError::Misaligned`].
    pub const fn check_granule(offset: usize, len: usize) -> Result<(), DeviceMemoryError> {
        if offset.is_multiple_of(GRANULE) && len.is_multiple_of(GRANULE) {
            Ok(())
        } else {
            Err(DeviceMemoryError::Misaligned { offset, len })
        }
    }

    fn check_range(&self, offset: usize, len: usize) -> Result<(), DeviceMemoryError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(DeviceMemoryError::OutOfRange {
                offset,
                len,
                size: self.len,
            }),
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; regions that use it hold an `Arc` of it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory")
            .field("len", &self.len)
            .field("align", &self.layout.align())
            .finish()
    }
}

/// Why device memory cannot be had or reached; always the caller's fault, except `Exhausted`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeviceMemoryError {
    /// The alignment is not possible.
    #[error("alignment {align}: pass a power of two up to {DEVICE_MEMORY_ALIGN_MAX}")]
    Align {
        /// Bytes.
        align: usize,
    },
    /// The process has no memory left.
    #[error("no memory left for {len} bytes of device memory")]
    Exhausted {
        /// Bytes asked for.
        len: usize,
    },
    /// A copy does not keep to the granule.
    #[error("copy of {len} bytes at offset {offset}: both must be multiples of {GRANULE}")]
    Misaligned {
        /// Bytes from the start.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// A part that does not exist.
    #[error("{len} bytes at offset {offset} are outside of device memory of {size} bytes")]
    OutOfRange {
        /// Bytes from the start.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes there are.
        size: usize,
    },
    /// More than a device has.
    #[error("{len} bytes of device memory: at most {DEVICE_MEMORY_BYTES_MAX} can be had")]
    TooLong {
        /// Bytes asked for.
        len: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::{DeviceMemory, DeviceMemoryError, Memory};
    use crate::limits::{DEVICE_MEMORY_ALIGN_MAX, DEVICE_MEMORY_BYTES_MAX};

    #[test]
    fn device_memory_is_zero_then_what_was_copied_in() {
        let memory = DeviceMemory::new(100, 4096).expect("allocates");
        assert_eq!(memory.start.as_ptr() as usize % 4096, 0);
        let mut out = [1; 100];
        memory.copy_from(0, &mut out).expect("in range");
        assert_eq!(out, [0; 100]);
        memory.copy_to(96, &[1, 2, 3, 4]).expect("in range");
        memory.copy_from(92, &mut out[..8]).expect("in range");
        assert_eq!(out[..8], [0, 0, 0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn device_memory_copies_keep_to_the_range() {
        let memory = DeviceMemory::new(100, 1).expect("allocates");
        let mut out = [0; 104];
        assert_eq!(memory.copy_from(3, &mut out[..5]), Ok(()));
        for (offset, len) in [(97, 4), (104, 4), (0, 104), (usize::MAX - 3, 4)] {
            let read = memory.copy_from(offset, &mut out[..len]);
            let write = memory.copy_to(offset, &out[..len]);
            assert!(read.is_err(), "read {len} at {offset}");
            assert_eq!(read, write);
        }
    }

    #[test]
    fn verbs_copies_keep_to_the_granule() {
        assert_eq!(DeviceMemory::check_granule(8, 4), Ok(()));
        for (offset, len) in [(3, 4), (4, 3)] {
            let error = DeviceMemoryError::Misaligned { offset, len };
            assert_eq!(DeviceMemory::check_granule(offset, len), Err(error));
        }
    }

    #[test]
    fn device_memory_has_limits() {
        let error = |len, align| DeviceMemory::new(len, align).expect_err("refused");
        let len = DEVICE_MEMORY_BYTES_MAX + 1;
        assert_eq!(error(len, 8), DeviceMemoryError::TooLong { len });
        for align in [0, 3, 2 * DEVICE_MEMORY_ALIGN_MAX] {
            assert_eq!(error(8, align), DeviceMemoryError::Align { align });
        }
        let memory = DeviceMemory::new(0, 1).expect("no byte is a size too");
        assert!(memory.is_empty());
        assert!(Memory::device(memory.clone(), 0, 0).is_ok());
        assert!(Memory::device(memory, 0, 1).is_err());
    }
}
