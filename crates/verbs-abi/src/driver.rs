//! What the provider interface (`driver.h`) fixes about structs that programs also see, and the
//! step from a struct to the one around it. Not here: the rest of that interface, which is private
//! to rdma-core and its providers.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use crate::bindings::{ibv_context, ibv_device, ibv_port_attr, verbs_context};

/// A device as providers see it. Their `is_mine(device)` tests read [`Self::ops`] of *every*
/// device in a process, so whoever allocates an [`ibv_device`] must allocate one of these.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct verbs_device {
    /// What programs see; must be first.
    pub device: ibv_device,
    /// Identifies the provider by its address; nothing a foreign provider knows may stand here.
    pub ops: *const c_void,
    /// Not read by anyone but rdma-core.
    pub refcount: c_int,
    /// Not read by anyone but rdma-core.
    pub entry: [*mut c_void; 2],
    /// Not read by anyone but rdma-core.
    pub sysfs: *mut c_void,
    /// Not read by anyone but rdma-core.
    pub core_support: u64,
}

const _: () = assert!(offset_of!(verbs_device, ops) == size_of::<ibv_device>());

impl Default for verbs_device {
    fn default() -> Self {
        Self {
            device: ibv_device::default(),
            ops: core::ptr::null(),
            refcount: 0,
            entry: [core::ptr::null_mut(); 2],
            sysfs: core::ptr::null_mut(),
            core_support: 0,
        }
    }
}

/// How `ibv_query_gid_type` (a private symbol that two programs use) names RoCE v1 and InfiniBand.
pub const IBV_GID_TYPE_SYSFS_IB_ROCE_V1: u32 = 0;
/// How `ibv_query_gid_type` names RoCE v2.
pub const IBV_GID_TYPE_SYSFS_ROCE_V2: u32 = 1;

/// Bytes of an `ibv_port_attr` that the exported `ibv_query_port` may write: programs old enough to
/// call it (newer ones call through [`verbs_context`]) know no more of it.
pub const COMPAT_PORT_ATTR_SIZE: usize = offset_of!(ibv_port_attr, port_cap_flags2);

/// The extended context around `context`.
///
/// The result may be dereferenced only if `context` really lies in a [`verbs_context`], which
/// programs read off `abi_compat` ([`crate::VERBS_ABI_IS_EXTENDED`]).
pub const fn verbs_context_of(context: *mut ibv_context) -> *mut verbs_context {
    context
        .wrapping_byte_sub(offset_of!(verbs_context, context))
        .cast()
}

/// `verbs_context.sz`: how many bytes of it precede and include the context. Programs compare it
/// with the offset of an operation, counted from the end, before they call the operation.
pub const VERBS_CONTEXT_SIZE: usize = size_of::<verbs_context>();

#[cfg(test)]
mod tests {
    use super::{VERBS_CONTEXT_SIZE, verbs_context_of};
    use crate::bindings::verbs_context;
    use core::mem::offset_of;

    #[test]
    fn the_context_is_the_last_field_and_the_size_stands_right_before_it() {
        assert_eq!(
            offset_of!(verbs_context, context) + size_of::<crate::ibv_context>(),
            VERBS_CONTEXT_SIZE
        );
        assert_eq!(
            offset_of!(verbs_context, sz) + size_of::<usize>(),
            offset_of!(verbs_context, context)
        );
    }

    #[test]
    fn the_extended_context_is_found_again_from_the_plain_one() {
        let mut extended = verbs_context::default();
        let outer = &raw mut extended;
        assert_eq!(verbs_context_of(&raw mut extended.context), outer);
    }
}
