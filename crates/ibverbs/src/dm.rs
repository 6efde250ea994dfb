//! Device memory. Programs copy to and from it through function pointers in `ibv_dm` itself.

use std::ffi::{c_int, c_void};

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export pointer fn ibv_import_dm(
        context: *mut abi::ibv_context,
        dm_handle: u32,
    ) -> *mut abi::ibv_dm;
    export nothing fn ibv_unimport_dm(dm: *mut abi::ibv_dm);
    export minus_one fn ibv_dm_export_dmabuf_fd(dm: *mut abi::ibv_dm) -> c_int;
    ,
    operation pointer fn alloc_dm(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_alloc_dm_attr,
    ) -> *mut abi::ibv_dm;
    operation status fn free_dm(dm: *mut abi::ibv_dm) -> c_int;
    operation status fn memcpy_to_dm(
        dm: *mut abi::ibv_dm,
        dm_offset: u64,
        host_addr: *const c_void,
        length: usize,
    ) -> c_int;
    operation status fn memcpy_from_dm(
        host_addr: *mut c_void,
        dm: *mut abi::ibv_dm,
        dm_offset: u64,
        length: usize,
    ) -> c_int;
}

/// The part of an `ibv_dm` that is the same for all: its copy functions.
pub(crate) fn c_struct(context: *mut abi::ibv_context, handle: u32) -> abi::ibv_dm {
    abi::ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: abi::IBV_DM_MASK_HANDLE,
        handle,
    }
}
