//! Shared receive queues. Tag matching (`post_srq_ops`) is not done by Feroce's device.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export pointer fn ibv_create_srq(
        pd: *mut abi::ibv_pd,
        srq_init_attr: *mut abi::ibv_srq_init_attr,
    ) -> *mut abi::ibv_srq;
    export status fn ibv_modify_srq(
        srq: *mut abi::ibv_srq,
        srq_attr: *mut abi::ibv_srq_attr,
        srq_attr_mask: c_int,
    ) -> c_int;
    export status fn ibv_query_srq(
        srq: *mut abi::ibv_srq,
        srq_attr: *mut abi::ibv_srq_attr,
    ) -> c_int;
    export status fn ibv_destroy_srq(srq: *mut abi::ibv_srq) -> c_int;
    ,
    operation pointer fn create_srq_ex(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_srq_init_attr_ex,
    ) -> *mut abi::ibv_srq;
    operation status fn get_srq_num(srq: *mut abi::ibv_srq, srq_num: *mut u32) -> c_int;
    operation status fn post_srq_recv(
        srq: *mut abi::ibv_srq,
        recv_wr: *mut abi::ibv_recv_wr,
        bad_recv_wr: *mut *mut abi::ibv_recv_wr,
    ) -> c_int;
}
