//! Counters that a program attaches: completion counters, and those of flow rules.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export status fn _ibv_query_comp_cntr_caps(
        context: *mut abi::ibv_context,
        caps: *mut abi::ibv_comp_cntr_caps,
        caps_size: usize,
    ) -> c_int;
    export pointer fn ibv_create_comp_cntr(
        context: *mut abi::ibv_context,
        cc_attr: *mut abi::ibv_comp_cntr_init_attr,
    ) -> *mut abi::ibv_comp_cntr;
    export status fn ibv_destroy_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr) -> c_int;
    export status fn ibv_set_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr, value: u64) -> c_int;
    export status fn ibv_set_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: u64,
    ) -> c_int;
    export status fn ibv_inc_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr, amount: u64) -> c_int;
    export status fn ibv_inc_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        amount: u64,
    ) -> c_int;
    export status fn ibv_read_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: *mut u64,
    ) -> c_int;
    export status fn ibv_read_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: *mut u64,
    ) -> c_int;
    export status fn ibv_qp_attach_comp_cntr(
        qp: *mut abi::ibv_qp,
        comp_cntr: *mut abi::ibv_comp_cntr,
        attr: *mut abi::ibv_qp_attach_comp_cntr_attr,
    ) -> c_int;
    ,
    operation pointer fn create_counters(
        context: *mut abi::ibv_context,
        init_attr: *mut abi::ibv_counters_init_attr,
    ) -> *mut abi::ibv_counters;
    operation status fn destroy_counters(counters: *mut abi::ibv_counters) -> c_int;
    operation status fn attach_counters_point_flow(
        counters: *mut abi::ibv_counters,
        attr: *mut abi::ibv_counter_attach_attr,
        flow: *mut abi::ibv_flow,
    ) -> c_int;
    operation status fn read_counters(
        counters: *mut abi::ibv_counters,
        counters_value: *mut u64,
        ncounters: u32,
        flags: u32,
    ) -> c_int;
}
