//! Queue pairs: life, attributes, posting, multicast membership. Not here: the pointers by which
//! programs post to an extended queue pair ([`crate::qp_ex`]).

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export pointer fn ibv_create_qp(
        pd: *mut abi::ibv_pd,
        qp_init_attr: *mut abi::ibv_qp_init_attr,
    ) -> *mut abi::ibv_qp;
    export status fn ibv_modify_qp(
        qp: *mut abi::ibv_qp,
        attr: *mut abi::ibv_qp_attr,
        attr_mask: c_int,
    ) -> c_int;
    export status fn ibv_query_qp(
        qp: *mut abi::ibv_qp,
        attr: *mut abi::ibv_qp_attr,
        attr_mask: c_int,
        init_attr: *mut abi::ibv_qp_init_attr,
    ) -> c_int;
    export answer fn ibv_query_qp_data_in_order(
        qp: *mut abi::ibv_qp,
        op: abi::ibv_wr_opcode,
        flags: u32,
    ) -> c_int;
    export status fn ibv_destroy_qp(qp: *mut abi::ibv_qp) -> c_int;
    export pointer fn ibv_qp_to_qp_ex(qp: *mut abi::ibv_qp) -> *mut abi::ibv_qp_ex;
    export status fn ibv_set_ece(qp: *mut abi::ibv_qp, ece: *mut abi::ibv_ece) -> c_int;
    export status fn ibv_query_ece(qp: *mut abi::ibv_qp, ece: *mut abi::ibv_ece) -> c_int;
    export status fn ibv_attach_mcast(
        qp: *mut abi::ibv_qp,
        gid: *const abi::ibv_gid,
        lid: u16,
    ) -> c_int;
    export status fn ibv_detach_mcast(
        qp: *mut abi::ibv_qp,
        gid: *const abi::ibv_gid,
        lid: u16,
    ) -> c_int;
    ,
    operation pointer fn create_qp_ex(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_qp_init_attr_ex,
    ) -> *mut abi::ibv_qp;
    operation pointer fn open_qp(
        context: *mut abi::ibv_context,
        attr: *mut abi::ibv_qp_open_attr,
    ) -> *mut abi::ibv_qp;
    operation status fn modify_qp_rate_limit(
        qp: *mut abi::ibv_qp,
        attr: *mut abi::ibv_qp_rate_limit_attr,
    ) -> c_int;
    operation status fn post_send(
        qp: *mut abi::ibv_qp,
        wr: *mut abi::ibv_send_wr,
        bad_wr: *mut *mut abi::ibv_send_wr,
    ) -> c_int;
    operation status fn post_recv(
        qp: *mut abi::ibv_qp,
        wr: *mut abi::ibv_recv_wr,
        bad_wr: *mut *mut abi::ibv_recv_wr,
    ) -> c_int;
}
