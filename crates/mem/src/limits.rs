//! Every limit of this crate, with its unit and its reason.

/// Regions and windows of one table: a key has 24 bits of index, and index 0 stays unused so
/// that no key is 0, the value that uninitialised structs hold.
pub const SLOTS_MAX: u32 = (1 << 24) - 1;

/// Slots that must lie unused before one of them is used again, while new ones can still be
/// made. A stale key becomes valid again only after the slot's tag has come round, so not before
/// 256 times this many deregistrations; costs about 20 KiB once that many slots were used.
pub const QUARANTINE_SLOTS: usize = 256;

/// Bytes of one region in host or device memory: offsets within one object must fit `isize`.
/// Null and address-space regions are longer, because nothing points into them directly.
pub const REGION_BYTES_MAX: u64 = isize::MAX as u64;

/// Bytes of one piece of device memory: it is ordinary memory of this process, zeroed when it is
/// made, so that a mistaken size must not take the machine down.
pub const DEVICE_MEMORY_BYTES_MAX: usize = 1 << 30;

/// Largest alignment of device memory, in bytes: the largest page size of a Linux machine.
pub const DEVICE_MEMORY_ALIGN_MAX: usize = 1 << 16;

/// Device memory is copied in units of this many bytes, at offsets that are multiples of it, as
/// on-chip memory is; programs written for hardware keep to it.
pub const DEVICE_MEMORY_GRANULE: usize = 4;

/// Bytes staged on the stack at once when memory cannot be read in place: the largest path MTU,
/// so that one payload costs one system call.
pub const STAGING_BYTES: usize = 4096;
