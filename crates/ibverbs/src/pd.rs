//! Protection domains, parent domains, thread domains. Not here: what is registered in them.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export pointer fn ibv_alloc_pd(context: *mut abi::ibv_context) -> *mut abi::ibv_pd;
    export status fn ibv_dealloc_pd(pd: *mut abi::ibv_pd) -> c_int;
    export pointer fn ibv_import_pd(
        context: *mut abi::ibv_context,
        pd_handle: u32,
    ) -> *mut abi::ibv_pd;
    export nothing fn ibv_unimport_pd(pd: *mut abi::ibv_pd);
    ,
    operation pointer fn alloc_parent_domain(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_parent_domain_init_attr,
    ) -> *mut abi::ibv_pd;
    operation pointer fn alloc_td(
        context: *mut abi::ibv_context,
        init_attr: *mut abi::ibv_td_init_attr,
    ) -> *mut abi::ibv_td;
    operation status fn dealloc_td(td: *mut abi::ibv_td) -> c_int;
}
