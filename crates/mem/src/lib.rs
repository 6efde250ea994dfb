//! Memory regions and windows: the one unsafe door to application memory.
//!
//! A program registers memory with a [`Table`] and gets a [`Key`]. Work requests and peers then
//! *claim* ranges under that key; a lookup checks the claim and turns it into a [`Grant`], and
//! only a grant can copy. A grant borrows the table, so that memory cannot be deregistered under
//! it.
//!
//! What it is not: it knows no packets, no queue pairs but their numbers, and no locks. Read IBTA
//! volume 1, 10.6 (memory management) first; IBTA annex A19 for FLUSH and ATOMIC WRITE.
//!
//! ```
//! use feroce_mem::{Access, LocalUse, Memory, PdId, Table};
//!
//! let mut buffer = vec![0u8; 4096];
//! let (start, len) = (buffer.as_mut_ptr(), buffer.len());
//! let iova = start as u64;
//! let mut table = Table::new();
//! // SAFETY: `buffer` outlives `table` and is not touched while a grant writes.
//! let memory = unsafe { Memory::from_raw(start, len) };
//! let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
//! let key = table.register(PdId(1), memory, iova, access)?;
//!
//! // The peer of queue pair 17 writes five bytes.
//! let grant = table.remote(PdId(1), 17, key, iova + 8, 5, Access::REMOTE_WRITE)?;
//! grant.write(b"hello")?;
//! // It may not read them, nor go past the end.
//! assert!(table.remote(PdId(1), 17, key, iova, 5, Access::REMOTE_READ).is_err());
//! assert!(table.remote(PdId(1), 17, key, iova + 4092, 5, Access::REMOTE_WRITE).is_err());
//!
//! let mut gathered = Vec::new();
//! table.local(PdId(1), key, iova + 8, 5, LocalUse::Read)?.append_to(&mut gathered)?;
//! assert_eq!(gathered, b"hello");
//! table.deregister(key)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod fault;
mod fragment;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grant;
mod key;
pub mod limits;
mod memory;
mod region;
mod sys;
mod table;
#[cfg(test)]
mod testing;
mod window;

pub use access::{Access, AccessError};
pub use fault::{GrantFault, InvalidateFault, LocalFault, RemoteFault};
pub use fragment::{Fragment, FragmentList, as_iovecs};
pub use grant::Grant;
pub use key::{Claim, Key, PdId};
pub use memory::{DeviceMemory, DeviceMemoryError, Memory};
pub use region::RegisterError;
pub use table::{Change, DeregisterError, LocalUse, ReregisterError, Table};
pub use window::{BindError, BindRequest, WindowType};
