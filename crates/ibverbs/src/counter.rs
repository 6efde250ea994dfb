//! Completion counters, which this device does not have: completions are counted by whoever polls
//! them. Counters of flow rules have no entry in the tables ([`crate::context`]): there are no rules.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::refused;

refused! {
    "the device has no completion counters: poll the completion queue";
    status fn _ibv_query_comp_cntr_caps(
        context: *mut abi::ibv_context,
        caps: *mut abi::ibv_comp_cntr_caps,
        caps_size: usize,
    ) -> c_int;
    pointer fn ibv_create_comp_cntr(
        context: *mut abi::ibv_context,
        cc_attr: *mut abi::ibv_comp_cntr_init_attr,
    ) -> *mut abi::ibv_comp_cntr;
    status fn ibv_destroy_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr) -> c_int;
    status fn ibv_set_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr, value: u64) -> c_int;
    status fn ibv_set_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: u64,
    ) -> c_int;
    status fn ibv_inc_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr, amount: u64) -> c_int;
    status fn ibv_inc_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        amount: u64,
    ) -> c_int;
    status fn ibv_read_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: *mut u64,
    ) -> c_int;
    status fn ibv_read_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: *mut u64,
    ) -> c_int;
    status fn ibv_qp_attach_comp_cntr(
        qp: *mut abi::ibv_qp,
        comp_cntr: *mut abi::ibv_comp_cntr,
        attr: *mut abi::ibv_qp_attach_comp_cntr_attr,
    ) -> c_int;
}
