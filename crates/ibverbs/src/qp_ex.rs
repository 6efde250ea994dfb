//! The pointers in `ibv_qp_ex`, by which programs build work requests in place: `wr_start`, any
//! number of requests each with its setters, `wr_complete` or `wr_abort`. What they build is
//! [`crate::convert::batch`]; a mistake shows only at `wr_complete`.

use std::ffi::{c_int, c_void};

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

/// Sets every pointer. Those of operations that were not asked for at creation are set as well:
/// verbs.h leaves calling them undefined.
pub(crate) fn fill(qp: &mut abi::ibv_qp_ex) {
    qp.wr_atomic_cmp_swp = Some(wr_atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(wr_atomic_fetch_add);
    qp.wr_bind_mw = Some(wr_bind_mw);
    qp.wr_local_inv = Some(wr_local_inv);
    qp.wr_rdma_read = Some(wr_rdma_read);
    qp.wr_rdma_write = Some(wr_rdma_write);
    qp.wr_rdma_write_imm = Some(wr_rdma_write_imm);
    qp.wr_send = Some(wr_send);
    qp.wr_send_imm = Some(wr_send_imm);
    qp.wr_send_inv = Some(wr_send_inv);
    qp.wr_send_tso = Some(wr_send_tso);
    qp.wr_set_ud_addr = Some(wr_set_ud_addr);
    qp.wr_set_xrc_srqn = Some(wr_set_xrc_srqn);
    qp.wr_set_inline_data = Some(wr_set_inline_data);
    qp.wr_set_inline_data_list = Some(wr_set_inline_data_list);
    qp.wr_set_sge = Some(wr_set_sge);
    qp.wr_set_sge_list = Some(wr_set_sge_list);
    qp.wr_start = Some(wr_start);
    qp.wr_complete = Some(wr_complete);
    qp.wr_abort = Some(wr_abort);
    qp.wr_atomic_write = Some(wr_atomic_write);
    qp.wr_flush = Some(wr_flush);
}

unfilled! {
    ,
    operation nothing fn wr_start(qp: *mut abi::ibv_qp_ex);
    operation status fn wr_complete(qp: *mut abi::ibv_qp_ex) -> c_int;
    operation nothing fn wr_abort(qp: *mut abi::ibv_qp_ex);
    operation nothing fn wr_send(qp: *mut abi::ibv_qp_ex);
    operation nothing fn wr_send_imm(qp: *mut abi::ibv_qp_ex, imm_data: abi::__be32);
    operation nothing fn wr_send_inv(qp: *mut abi::ibv_qp_ex, invalidate_rkey: u32);
    operation nothing fn wr_send_tso(
        qp: *mut abi::ibv_qp_ex,
        hdr: *mut c_void,
        hdr_sz: u16,
        mss: u16,
    );
    operation nothing fn wr_rdma_read(qp: *mut abi::ibv_qp_ex, rkey: u32, remote_addr: u64);
    operation nothing fn wr_rdma_write(qp: *mut abi::ibv_qp_ex, rkey: u32, remote_addr: u64);
    operation nothing fn wr_rdma_write_imm(
        qp: *mut abi::ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        imm_data: abi::__be32,
    );
    operation nothing fn wr_atomic_cmp_swp(
        qp: *mut abi::ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        compare: u64,
        swap: u64,
    );
    operation nothing fn wr_atomic_fetch_add(
        qp: *mut abi::ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        add: u64,
    );
    operation nothing fn wr_atomic_write(
        qp: *mut abi::ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        atomic_wr: *const c_void,
    );
    operation nothing fn wr_flush(
        qp: *mut abi::ibv_qp_ex,
        rkey: u32,
        remote_addr: u64,
        len: usize,
        kind: u8,
        level: u8,
    );
    operation nothing fn wr_bind_mw(
        qp: *mut abi::ibv_qp_ex,
        mw: *mut abi::ibv_mw,
        rkey: u32,
        bind_info: *const abi::ibv_mw_bind_info,
    );
    operation nothing fn wr_local_inv(qp: *mut abi::ibv_qp_ex, invalidate_rkey: u32);
    operation nothing fn wr_set_ud_addr(
        qp: *mut abi::ibv_qp_ex,
        ah: *mut abi::ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    );
    operation nothing fn wr_set_xrc_srqn(qp: *mut abi::ibv_qp_ex, remote_srqn: u32);
    operation nothing fn wr_set_inline_data(
        qp: *mut abi::ibv_qp_ex,
        addr: *mut c_void,
        length: usize,
    );
    operation nothing fn wr_set_inline_data_list(
        qp: *mut abi::ibv_qp_ex,
        num_buf: usize,
        buf_list: *const abi::ibv_data_buf,
    );
    operation nothing fn wr_set_sge(
        qp: *mut abi::ibv_qp_ex,
        lkey: u32,
        addr: u64,
        length: u32,
    );
    operation nothing fn wr_set_sge_list(
        qp: *mut abi::ibv_qp_ex,
        num_sge: usize,
        sg_list: *const abi::ibv_sge,
    );
}
