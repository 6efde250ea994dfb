//! The pointers in `ibv_qp_ex`, by which programs build work requests in place: `wr_start`, any
//! number of requests each with its setters, `wr_complete` or `wr_abort`. What they build is
//! [`crate::convert::batch`]; a mistake shows only at `wr_complete`.

use std::ffi::{c_int, c_void};
use std::slice;

use feroce_verbs::{Data, Remote, SendOperation, Sge, SgeList};
use feroce_verbs_abi as abi;

use crate::ah;
use crate::convert::batch::Batch;
use crate::convert::{post, wr};
use crate::guard::{self, Failure};
use crate::qp::{self, QpState};

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

/// The queue pair behind its extended form.
///
/// # Safety
/// `qp` is null or live.
unsafe fn state<'a>(qp: *mut abi::ibv_qp_ex) -> Result<&'a QpState, Failure> {
    // SAFETY: the caller's contract; `qp_base` is the front of the extended form.
    unsafe { qp::state(qp.cast()) }
}

/// Works on the batch that is open on a queue pair.
fn edit(qp: *mut abi::ibv_qp_ex, change: impl FnOnce(&QpState, &mut Batch)) -> Result<(), Failure> {
    // SAFETY: every caller's contract: a live queue pair.
    let state = unsafe { state(qp) }?;
    state.bench.edit(|batch| change(state, batch))
}

/// Begins a request.
fn begin(qp: *mut abi::ibv_qp_ex, operation: SendOperation) -> Result<(), Failure> {
    // SAFETY: every caller's contract: a live queue pair, whose fields the program sets.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    edit(qp, |state, batch| {
        batch.push(operation, wr_id, flags, state.max_send_wr)
    })
}

const fn remote(rkey: u32, address: u64) -> Remote {
    Remote { address, rkey }
}

/// # Safety
/// `qp` is null or a live queue pair that was created with `send_ops_flags`.
unsafe extern "C" fn wr_start(qp: *mut abi::ibv_qp_ex) {
    guard::nothing("ibv_wr_start", || {
        // SAFETY: the caller's contract.
        unsafe { state(qp) }?.bench.start();
        Ok(())
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_complete(qp: *mut abi::ibv_qp_ex) -> c_int {
    guard::status("ibv_wr_complete", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(qp) }?;
        state.bench.complete(|requests| {
            state
                .qp
                .post_send(requests)
                .map_err(|refused| post::failure(&refused))
        })
    })
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_abort(qp: *mut abi::ibv_qp_ex) {
    guard::nothing("ibv_wr_abort", || {
        // SAFETY: the caller's contract.
        unsafe { state(qp) }?.bench.abort();
        Ok(())
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_send(qp: *mut abi::ibv_qp_ex) {
    guard::nothing("ibv_wr_send", || begin(qp, SendOperation::Send));
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_send_imm(qp: *mut abi::ibv_qp_ex, imm_data: abi::__be32) {
    guard::nothing("ibv_wr_send_imm", || {
        begin(qp, SendOperation::SendImmediate(u32::from_be(imm_data)))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_send_inv(qp: *mut abi::ibv_qp_ex, invalidate_rkey: u32) {
    guard::nothing("ibv_wr_send_inv", || {
        begin(qp, SendOperation::SendInvalidate(invalidate_rkey))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_send_tso(
    qp: *mut abi::ibv_qp_ex,
    _hdr: *mut c_void,
    _hdr_sz: u16,
    _mss: u16,
) {
    guard::nothing("ibv_wr_send_tso", || {
        let refusal = Failure::unsupported("segmentation is for raw packet queue pairs");
        edit(qp, |_, batch| batch.fail(refusal))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_rdma_read(qp: *mut abi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    guard::nothing("ibv_wr_rdma_read", || {
        begin(qp, SendOperation::Read(remote(rkey, remote_addr)))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_rdma_write(qp: *mut abi::ibv_qp_ex, rkey: u32, remote_addr: u64) {
    guard::nothing("ibv_wr_rdma_write", || {
        begin(qp, SendOperation::Write(remote(rkey, remote_addr)))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_rdma_write_imm(
    qp: *mut abi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    imm_data: abi::__be32,
) {
    guard::nothing("ibv_wr_rdma_write_imm", || {
        let immediate = u32::from_be(imm_data);
        begin(
            qp,
            SendOperation::WriteImmediate(remote(rkey, remote_addr), immediate),
        )
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_atomic_cmp_swp(
    qp: *mut abi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare: u64,
    swap: u64,
) {
    guard::nothing("ibv_wr_atomic_cmp_swp", || {
        let remote = remote(rkey, remote_addr);
        begin(
            qp,
            SendOperation::CompareSwap {
                remote,
                compare,
                swap,
            },
        )
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_atomic_fetch_add(
    qp: *mut abi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    add: u64,
) {
    guard::nothing("ibv_wr_atomic_fetch_add", || {
        begin(
            qp,
            SendOperation::FetchAdd {
                remote: remote(rkey, remote_addr),
                add,
            },
        )
    });
}

/// # Safety
/// As for [`wr_start`]; `atomic_wr` points to eight bytes.
unsafe extern "C" fn wr_atomic_write(
    qp: *mut abi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    atomic_wr: *const c_void,
) {
    guard::nothing("ibv_wr_atomic_write", || {
        begin(qp, SendOperation::AtomicWrite(remote(rkey, remote_addr)))?;
        // SAFETY: the caller's contract: eight bytes.
        let data = unsafe { wr::inline([(atomic_wr.cast(), 8)].into_iter(), 8) };
        edit(qp, |_, batch| batch.set_data(data))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_flush(
    qp: *mut abi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    len: usize,
    kind: u8,
    level: u8,
) {
    guard::nothing("ibv_wr_flush", || {
        let Ok(length) = u32::try_from(len) else {
            let refusal = Failure::invalid(format!("a flush of {len} bytes is too long"));
            return edit(qp, |_, batch| batch.fail(refusal));
        };
        let remote = remote(rkey, remote_addr);
        begin(
            qp,
            SendOperation::Flush {
                remote,
                length,
                placement: kind,
                level,
            },
        )
    });
}

/// # Safety
/// As for [`wr_start`]; window and region are live.
unsafe extern "C" fn wr_bind_mw(
    qp: *mut abi::ibv_qp_ex,
    mw: *mut abi::ibv_mw,
    rkey: u32,
    bind_info: *const abi::ibv_mw_bind_info,
) {
    guard::nothing("ibv_wr_bind_mw", || {
        // SAFETY: the caller's contract.
        let request = unsafe { bind_info.as_ref() }
            .ok_or_else(|| Failure::invalid("bind_info is a null pointer"))
            // SAFETY: the caller's contract.
            .and_then(|info| unsafe { wr::bind_request(mw, rkey, info) });
        match request {
            Ok(request) => begin(qp, SendOperation::Bind(request)),
            Err(refusal) => edit(qp, |_, batch| batch.fail(refusal)),
        }
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_local_inv(qp: *mut abi::ibv_qp_ex, invalidate_rkey: u32) {
    guard::nothing("ibv_wr_local_inv", || {
        begin(qp, SendOperation::LocalInvalidate(invalidate_rkey))
    });
}

/// # Safety
/// As for [`wr_start`]; `ah` is null or live.
unsafe extern "C" fn wr_set_ud_addr(
    qp: *mut abi::ibv_qp_ex,
    ah: *mut abi::ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    guard::nothing("ibv_wr_set_ud_addr", || {
        // SAFETY: the caller's contract.
        let path = unsafe { ah::path(ah) };
        let target = path.map(|path| wr::datagram_target(path, remote_qpn, remote_qkey));
        edit(qp, |_, batch| batch.set_target(target))
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut abi::ibv_qp_ex, remote_srqn: u32) {
    guard::nothing("ibv_wr_set_xrc_srqn", || {
        edit(qp, |_, batch| batch.set_xrc_srqn(remote_srqn))
    });
}

/// # Safety
/// As for [`wr_start`]; `addr` points to `length` bytes.
unsafe extern "C" fn wr_set_inline_data(qp: *mut abi::ibv_qp_ex, addr: *mut c_void, length: usize) {
    guard::nothing("ibv_wr_set_inline_data", || {
        edit(qp, |state, batch| {
            let buffers = [(addr.cast_const().cast(), length)].into_iter();
            // SAFETY: the caller's contract.
            batch.set_data(unsafe { wr::inline(buffers, state.send.max_inline_data) });
        })
    });
}

/// # Safety
/// As for [`wr_start`]; `buf_list` has `num_buf` entries that point to their bytes.
unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut abi::ibv_qp_ex,
    num_buf: usize,
    buf_list: *const abi::ibv_data_buf,
) {
    guard::nothing("ibv_wr_set_inline_data_list", || {
        edit(qp, |state, batch| {
            // SAFETY: the caller's contract.
            let list = unsafe { slice::from_raw_parts(buf_list, num_buf) };
            let buffers = list
                .iter()
                .map(|buffer| (buffer.addr.cast_const().cast(), buffer.length));
            // SAFETY: the caller's contract.
            batch.set_data(unsafe { wr::inline(buffers, state.send.max_inline_data) });
        })
    });
}

/// # Safety
/// As for [`wr_start`].
unsafe extern "C" fn wr_set_sge(qp: *mut abi::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    guard::nothing("ibv_wr_set_sge", || {
        let sge = Sge {
            address: addr,
            length,
            lkey,
        };
        edit(qp, |_, batch| {
            batch.set_data(Ok(Data::Gather(SgeList::from_slice(&[sge]))))
        })
    });
}

/// # Safety
/// As for [`wr_start`]; `sg_list` has `num_sge` entries.
unsafe extern "C" fn wr_set_sge_list(
    qp: *mut abi::ibv_qp_ex,
    num_sge: usize,
    sg_list: *const abi::ibv_sge,
) {
    guard::nothing("ibv_wr_set_sge_list", || {
        edit(qp, |state, batch| {
            // SAFETY: the caller's contract.
            let sges = unsafe { wr::sge_list(sg_list, num_sge, state.send.max_sge) };
            batch.set_data(sges.map(Data::Gather));
        })
    });
}
