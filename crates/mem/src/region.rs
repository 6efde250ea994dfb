//! One memory region: its memory, its rights, and the checks made when it is registered.

use crate::grant::{Backing, Grant, Rights};
use crate::limits::REGION_BYTES_MAX;
use crate::memory::Source;
use crate::{Access, AccessError, DeregisterError, Key, Memory, PdId, sys};
use core::cell::Cell;

/// Registered memory. What `Region::new` let through stays true until it is dropped.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) pd: PdId,
    /// Passed `check_region`: peers may write only if LOCAL_WRITE is there.
    pub(crate) access: Access,
    /// Address of the first byte in claims; `iova + len` does not wrap.
    iova: u64,
    backing: Backing,
    memory: Memory,
    /// Windows bound to it: while there are any, it can be neither changed nor dropped.
    pub(crate) windows: Cell<u32>,
}

impl Region {
    pub(crate) fn new(
        pd: PdId,
        memory: Memory,
        iova: u64,
        access: Access,
    ) -> Result<Self, RegisterError> {
        access.check_region()?;
        let (iova, access, backing) = match memory.source() {
            Source::Host => prepare_host(&memory, iova, access)?,
            Source::Device { .. } if !access.contains(Access::ZERO_BASED) => {
                return Err(RegisterError::DeviceNotZeroBased);
            }
            Source::Device { .. } => (0, access, Backing::Direct),
            Source::Null if access.intersects(Access::REMOTE.union(Access::MW_BIND)) => {
                return Err(RegisterError::NullIsLocal(access));
            }
            Source::Null => (0, access.union(Access::LOCAL_WRITE), Backing::Null),
            Source::AddressSpace => prepare_address_space(iova, access)?,
        };
        Ok(Self {
            pd,
            access,
            iova,
            backing,
            memory,
            windows: Cell::new(0),
        })
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.memory.len()
    }

    pub(crate) fn is_null(&self) -> bool {
        self.backing == Backing::Null
    }

    /// What [`Region::new`] needs to make the same translation again.
    pub(crate) fn translation_again(&self) -> (Memory, u64) {
        // A zero-based region that loses ZERO_BASED gets the address of its memory, as
        // `ibv_reg_mr` would give it; device memory must stay zero-based.
        let iova = match self.memory.source() {
            Source::Host if self.access.contains(Access::ZERO_BASED) => {
                self.memory.base().addr() as u64
            }
            _ => self.iova,
        };
        (self.memory.duplicate(), iova)
    }

    /// Fails while windows are bound.
    pub(crate) fn check_unbound(&self, key: Key) -> Result<(), DeregisterError> {
        match self.windows.get() {
            0 => Ok(()),
            windows => Err(DeregisterError::Busy(key, windows)),
        }
    }

    /// How far into the memory the range begins, if it is all inside.
    #[inline]
    pub(crate) fn offset_of(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.checked_sub(self.iova)?;
        let end = offset.checked_add(length)?;
        (end <= self.memory.len()).then_some(offset)
    }

    /// The bytes at an offset that [`Region::offset_of`] or a binding has proved inside.
    #[inline]
    pub(crate) fn grant(&self, offset: u64, length: u64, rights: Rights) -> Grant<'_> {
        // Neither cast loses bits: both are at most the memory's length, which came from a
        // `usize`; the null region's may be more where pointers are narrow, but it has no bytes.
        let start = self.memory.base().wrapping_add(offset as usize);
        // SAFETY: the range is inside the memory (see above), whose registrant promised what
        // `Grant::new` asks (`Memory::from_raw`) until this region is dropped or changed, which
        // takes `&mut Table` and so outlasts the grant. Device memory is kept by its `Arc`.
        // Rights to change bytes are granted only under LOCAL_WRITE, which `check_region` (for
        // regions) and `bind` (for windows) demand for every remote write and atomic.
        unsafe { Grant::new(start, length as usize, self.backing, rights) }
    }
}

type Prepared = (u64, Access, Backing);

fn prepare_host(memory: &Memory, iova: u64, access: Access) -> Result<Prepared, RegisterError> {
    let (address, length) = (memory.base().addr() as u64, memory.len());
    let iova = if access.contains(Access::ZERO_BASED) {
        0
    } else {
        iova
    };
    if length > REGION_BYTES_MAX {
        return Err(RegisterError::TooLong { length });
    }
    for address in [address, iova] {
        if address.checked_add(length).is_none() {
            return Err(RegisterError::AddressWraps { address, length });
        }
    }
    if access.contains(Access::ON_DEMAND) {
        check_on_demand(access)?;
        return Ok((iova, access, Backing::OnDemand));
    }
    probe(memory, access)?;
    Ok((iova, access, Backing::Direct))
}

fn prepare_address_space(iova: u64, access: Access) -> Result<Prepared, RegisterError> {
    if !access.contains(Access::ON_DEMAND) || iova != 0 {
        return Err(RegisterError::AddressSpaceNotOnDemand);
    }
    check_on_demand(access)?;
    Ok((0, access, Backing::OnDemand))
}

/// On-demand memory is reached by system calls that a sandbox or an old kernel may lack.
fn check_on_demand(access: Access) -> Result<(), RegisterError> {
    if let Err(refusal) = sys::check_copy() {
        return Err(RegisterError::OnDemandRefused {
            errno: refusal.errno,
        });
    }
    if access.contains(Access::REMOTE_ATOMIC) && !sys::can_populate() {
        return Err(RegisterError::OnDemandAtomics);
    }
    Ok(())
}

/// Finds what registration on hardware would find: holes and wrong protection.
fn probe(memory: &Memory, access: Access) -> Result<(), RegisterError> {
    let (address, length) = (memory.base().addr(), memory.len() as usize);
    if length == 0 {
        return Ok(());
    }
    sys::check_mapped(address, length).map_err(|_| RegisterError::NotMapped { address, length })?;
    let write = access.contains(Access::LOCAL_WRITE);
    for address in [address, address + (length - 1)] {
        if sys::populate(address, 1, write).is_err() {
            return Err(if write {
                RegisterError::NotWritable { address }
            } else {
                RegisterError::NotReadable { address }
            });
        }
    }
    Ok(())
}

/// Why memory cannot be registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RegisterError {
    /// The rights make no sense.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The address space is on-demand by nature and starts at 0.
    #[error("an implicit region needs ON_DEMAND, address 0 and length SIZE_MAX")]
    AddressSpaceNotOnDemand,
    /// The range goes past the end of 64 bits.
    #[error("{length} bytes from {address:#x} go past the end of the address space")]
    AddressWraps {
        /// First byte: address in the process, or iova.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// Device memory is addressed from 0.
    #[error("device memory must be registered with ZERO_BASED")]
    DeviceNotZeroBased,
    /// Some page is not mapped.
    #[error("{length} bytes from {address:#x} are not all mapped: map them, or use ON_DEMAND")]
    NotMapped {
        /// First byte of the range.
        address: usize,
        /// Bytes of the range.
        length: usize,
    },
    /// The page cannot be read.
    #[error("memory at {address:#x} cannot be read")]
    NotReadable {
        /// An address in the page.
        address: usize,
    },
    /// The page cannot be written.
    #[error("memory at {address:#x} cannot be written: register it without LOCAL_WRITE")]
    NotWritable {
        /// An address in the page.
        address: usize,
    },
    /// Null memory has no R_Key; holds the rights asked for.
    #[error("access {0}: a null region is for local use only")]
    NullIsLocal(Access),
    /// Atomics on memory that may be unmapped need a newer kernel.
    #[error("ON_DEMAND with REMOTE_ATOMIC needs Linux 5.14 (MADV_POPULATE_WRITE)")]
    OnDemandAtomics,
    /// The system call for memory that may be unmapped is forbidden.
    #[error(
        "ON_DEMAND needs process_vm_readv, which is refused here (errno {errno}): allow it in the \
         sandbox, or register without ON_DEMAND"
    )]
    OnDemandRefused {
        /// What the kernel said.
        errno: i32,
    },
    /// No key is left.
    #[error("all {limit} keys are used: deregister regions or deallocate windows")]
    TableFull {
        /// Regions and windows together.
        limit: u32,
    },
    /// Longer than any memory can be.
    #[error("{length} bytes are more than the {REGION_BYTES_MAX} that a region can have")]
    TooLong {
        /// Bytes.
        length: u64,
    },
}
