//! The pointers in `ibv_cq_ex`, by which programs walk a queue one completion at a time:
//! `start_poll`, then `read_*` and `next_poll` until ENOENT, then `end_poll`. `wr_id` and `status`
//! of the completion at hand stand in the struct itself.

use std::ffi::{c_int, c_uint};

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

/// Sets every pointer. Those of fields that were not asked for at creation are set as well:
/// verbs.h leaves calling them undefined.
pub(crate) fn fill(cq: &mut abi::ibv_cq_ex) {
    cq.start_poll = Some(start_poll);
    cq.next_poll = Some(next_poll);
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_imm_data = Some(read_imm_data);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_src_qp);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_slid = Some(read_slid);
    cq.read_sl = Some(read_sl);
    cq.read_dlid_path_bits = Some(read_dlid_path_bits);
    cq.read_completion_ts = Some(read_completion_ts);
    cq.read_cvlan = Some(read_cvlan);
    cq.read_flow_tag = Some(read_flow_tag);
    cq.read_tm_info = Some(read_tm_info);
    cq.read_completion_wallclock_ns = Some(read_completion_wallclock_ns);
}

unfilled! {
    ,
    operation status fn start_poll(
        current: *mut abi::ibv_cq_ex,
        attr: *mut abi::ibv_poll_cq_attr,
    ) -> c_int;
    operation status fn next_poll(current: *mut abi::ibv_cq_ex) -> c_int;
    operation nothing fn end_poll(current: *mut abi::ibv_cq_ex);
    operation value fn read_opcode(current: *mut abi::ibv_cq_ex) -> abi::ibv_wc_opcode;
    operation value fn read_vendor_err(current: *mut abi::ibv_cq_ex) -> u32;
    operation value fn read_byte_len(current: *mut abi::ibv_cq_ex) -> u32;
    operation value fn read_imm_data(current: *mut abi::ibv_cq_ex) -> abi::__be32;
    operation value fn read_qp_num(current: *mut abi::ibv_cq_ex) -> u32;
    operation value fn read_src_qp(current: *mut abi::ibv_cq_ex) -> u32;
    operation value fn read_wc_flags(current: *mut abi::ibv_cq_ex) -> c_uint;
    operation value fn read_slid(current: *mut abi::ibv_cq_ex) -> u32;
    operation value fn read_sl(current: *mut abi::ibv_cq_ex) -> u8;
    operation value fn read_dlid_path_bits(current: *mut abi::ibv_cq_ex) -> u8;
    operation value fn read_completion_ts(current: *mut abi::ibv_cq_ex) -> u64;
    operation value fn read_cvlan(current: *mut abi::ibv_cq_ex) -> u16;
    operation value fn read_flow_tag(current: *mut abi::ibv_cq_ex) -> u32;
    operation nothing fn read_tm_info(
        current: *mut abi::ibv_cq_ex,
        tm_info: *mut abi::ibv_wc_tm_info,
    );
    operation value fn read_completion_wallclock_ns(current: *mut abi::ibv_cq_ex) -> u64;
}
