//! Memory windows. verbs.h refuses impossible binds of type 1 before it calls; type 2 windows are
//! bound by work request ([`crate::convert`]).

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    ,
    operation pointer fn alloc_mw(pd: *mut abi::ibv_pd, kind: abi::ibv_mw_type) -> *mut abi::ibv_mw;
    operation status fn bind_mw(
        qp: *mut abi::ibv_qp,
        mw: *mut abi::ibv_mw,
        mw_bind: *mut abi::ibv_mw_bind,
    ) -> c_int;
    operation status fn dealloc_mw(mw: *mut abi::ibv_mw) -> c_int;
}
