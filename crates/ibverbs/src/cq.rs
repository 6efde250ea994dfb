//! Completion queues and completion channels. Not here: the pointers by which programs walk an
//! extended queue ([`crate::cq_ex`]); what a completion looks like in C ([`crate::convert`]).

use std::ffi::{c_int, c_uint, c_void};

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export pointer fn ibv_create_comp_channel(
        context: *mut abi::ibv_context,
    ) -> *mut abi::ibv_comp_channel;
    export status fn ibv_destroy_comp_channel(channel: *mut abi::ibv_comp_channel) -> c_int;
    export pointer fn ibv_create_cq(
        context: *mut abi::ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut abi::ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut abi::ibv_cq;
    export status fn ibv_resize_cq(cq: *mut abi::ibv_cq, cqe: c_int) -> c_int;
    export status fn ibv_destroy_cq(cq: *mut abi::ibv_cq) -> c_int;
    export minus_one fn ibv_get_cq_event(
        channel: *mut abi::ibv_comp_channel,
        cq: *mut *mut abi::ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    export nothing fn ibv_ack_cq_events(cq: *mut abi::ibv_cq, nevents: c_uint);
    ,
    operation minus_one fn poll_cq(
        cq: *mut abi::ibv_cq,
        num_entries: c_int,
        wc: *mut abi::ibv_wc,
    ) -> c_int;
    operation status fn req_notify_cq(cq: *mut abi::ibv_cq, solicited_only: c_int) -> c_int;
    operation pointer fn create_cq_ex(
        context: *mut abi::ibv_context,
        init_attr: *mut abi::ibv_cq_init_attr_ex,
    ) -> *mut abi::ibv_cq_ex;
    operation status fn modify_cq(
        cq: *mut abi::ibv_cq,
        attr: *mut abi::ibv_modify_cq_attr,
    ) -> c_int;
}
