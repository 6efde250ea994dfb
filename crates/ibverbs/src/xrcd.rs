//! XRC domains. verbs.h calls `close_xrcd` without a look whether it is there: it must be.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    ,
    operation pointer fn open_xrcd(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_xrcd_init_attr,
    ) -> *mut abi::ibv_xrcd;
    operation status fn close_xrcd(xrcd: *mut abi::ibv_xrcd) -> c_int;
}
