//! Work requests in the form of chained C structs (`ibv_post_send`, `ibv_post_recv`).
//!
//! After a post nothing of the caller's structs is read again, so everything is copied here,
//! inline data included. Lengths are checked against the queue pair's limits *before* what they
//! count is read. Not here: whether keys and addresses are right; they stay claims.

use std::{ptr, slice};

use feroce_verbs::Qpn;
use feroce_verbs::{
    BindRequest, Data, DatagramTarget, Path, QpType, RecvRequest, Remote, SendFlags, SendOperation,
    SendRequest, Sge, SgeList,
};
use feroce_verbs_abi as abi;

use crate::guard::Failure;

/// What a queue pair was granted at creation, as far as single requests are concerned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLimits {
    pub(crate) qp_type: QpType,
    /// Entries of a scatter/gather list.
    pub(crate) max_sge: u32,
    /// Bytes.
    pub(crate) max_inline_data: u32,
}

/// A work request that may be followed by another.
///
/// # Safety
/// `next` is the field of that name.
pub(crate) unsafe trait Chained {
    fn next(&self) -> *mut Self;
}

// SAFETY: the field of that name.
unsafe impl Chained for abi::ibv_send_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

// SAFETY: the field of that name.
unsafe impl Chained for abi::ibv_recv_wr {
    fn next(&self) -> *mut Self {
        self.next
    }
}

/// One send request. `resolve` gives the path behind an address handle (UD).
///
/// # Safety
/// The request's list points to as many entries as it says; with IBV_SEND_INLINE each of them
/// describes readable memory; pointers to windows and regions are live or null.
pub(crate) unsafe fn send_request(
    wr: &abi::ibv_send_wr,
    limits: &RequestLimits,
    resolve: impl FnOnce(*mut abi::ibv_ah) -> Result<Path, Failure>,
) -> Result<SendRequest, Failure> {
    let flags = send_flags(wr.send_flags)?;
    // SAFETY: the caller's contract.
    let operation = unsafe { operation(wr) }?;
    // SAFETY: the caller's contract.
    let sges = unsafe { list(wr.sg_list, wr.num_sge, limits.max_sge) }?;
    let data = if wr.send_flags & abi::IBV_SEND_INLINE == 0 {
        Data::Gather(sges.iter().map(sge).collect())
    } else {
        check_inline(&operation)?;
        let buffers = sges.iter().map(|sge| {
            // 64 bits both; the crate of the ABI insists on that.
            (
                ptr::with_exposed_provenance(sge.addr as usize),
                sge.length as usize,
            )
        });
        // SAFETY: the caller's contract: with the inline flag entries are plain addresses.
        unsafe { inline(buffers, limits.max_inline_data) }?
    };
    let target = if limits.qp_type == QpType::Ud {
        // SAFETY: programs write this member for this type.
        let ud = unsafe { wr.wr.ud };
        Some(datagram_target(
            resolve(ud.ah)?,
            ud.remote_qpn,
            ud.remote_qkey,
        ))
    } else {
        None
    };
    let xrc_srqn = if limits.qp_type == QpType::XrcSend {
        // SAFETY: programs write this member for this type.
        unsafe { wr.qp_type.xrc.remote_srqn }
    } else {
        0
    };
    Ok(SendRequest {
        wr_id: wr.wr_id,
        operation,
        data,
        flags,
        target,
        xrc_srqn,
    })
}

/// One receive request.
///
/// # Safety
/// The request's list points to as many entries as it says.
pub(crate) unsafe fn recv_request(
    wr: &abi::ibv_recv_wr,
    max_sge: u32,
) -> Result<RecvRequest, Failure> {
    // SAFETY: the caller's contract.
    let sges = unsafe { list(wr.sg_list, wr.num_sge, max_sge) }?;
    Ok(RecvRequest {
        wr_id: wr.wr_id,
        sges: sges.iter().map(sge).collect(),
    })
}

/// The flags of a request; IBV_SEND_INLINE is for the caller to look at.
pub(crate) fn send_flags(flags: u32) -> Result<SendFlags, Failure> {
    const KNOWN: u32 = abi::IBV_SEND_FENCE
        | abi::IBV_SEND_SIGNALED
        | abi::IBV_SEND_SOLICITED
        | abi::IBV_SEND_INLINE
        | abi::IBV_SEND_IP_CSUM;
    if flags & !KNOWN != 0 {
        let unknown = flags & !KNOWN;
        return Err(Failure::invalid(format!(
            "send_flags has undefined bits {unknown:#x}"
        )));
    }
    Ok(SendFlags {
        signaled: flags & abi::IBV_SEND_SIGNALED != 0,
        solicited: flags & abi::IBV_SEND_SOLICITED != 0,
        fence: flags & abi::IBV_SEND_FENCE != 0,
    })
}

/// # Safety
/// Pointers to windows and regions are live or null.
unsafe fn operation(wr: &abi::ibv_send_wr) -> Result<SendOperation, Failure> {
    // Each member is read only where the opcode says that the program wrote it.
    // SAFETY: the opcodes below with a remote address and no operands.
    let rdma = || unsafe { wr.wr.rdma };
    // SAFETY: the two atomic opcodes.
    let atomic = || unsafe { wr.wr.atomic };
    // SAFETY: the opcodes *_WITH_IMM.
    let immediate = || u32::from_be(unsafe { wr.__bindgen_anon_1.imm_data });
    // SAFETY: the opcodes *_INV.
    let key = || unsafe { wr.__bindgen_anon_1.invalidate_rkey };
    let remote = || Remote {
        address: rdma().remote_addr,
        rkey: rdma().rkey,
    };
    let word = || Remote {
        address: atomic().remote_addr,
        rkey: atomic().rkey,
    };
    Ok(match wr.opcode {
        abi::IBV_WR_SEND => SendOperation::Send,
        abi::IBV_WR_SEND_WITH_IMM => SendOperation::SendImmediate(immediate()),
        abi::IBV_WR_SEND_WITH_INV => SendOperation::SendInvalidate(key()),
        abi::IBV_WR_RDMA_WRITE => SendOperation::Write(remote()),
        abi::IBV_WR_RDMA_WRITE_WITH_IMM => SendOperation::WriteImmediate(remote(), immediate()),
        abi::IBV_WR_RDMA_READ => SendOperation::Read(remote()),
        abi::IBV_WR_ATOMIC_CMP_AND_SWP => SendOperation::CompareSwap {
            remote: word(),
            compare: atomic().compare_add,
            swap: atomic().swap,
        },
        abi::IBV_WR_ATOMIC_FETCH_AND_ADD => SendOperation::FetchAdd {
            remote: word(),
            add: atomic().compare_add,
        },
        abi::IBV_WR_ATOMIC_WRITE => SendOperation::AtomicWrite(remote()),
        abi::IBV_WR_LOCAL_INV => SendOperation::LocalInvalidate(key()),
        abi::IBV_WR_BIND_MW => {
            // SAFETY: the opcode says that this member was written.
            let bind = unsafe { wr.__bindgen_anon_2.bind_mw };
            // SAFETY: the caller's contract.
            SendOperation::Bind(unsafe { bind_request(bind.mw, bind.rkey, &bind.bind_info) }?)
        }
        // verbs.h has no place in the struct for what a flush needs.
        abi::IBV_WR_FLUSH => {
            return Err(Failure::invalid(
                "IBV_WR_FLUSH is posted by ibv_wr_flush only",
            ));
        }
        abi::IBV_WR_TSO | abi::IBV_WR_DRIVER1 => {
            return Err(Failure::unsupported(format!(
                "opcode {} is not offered",
                wr.opcode
            )));
        }
        other => return Err(Failure::invalid(format!("opcode {other} does not exist"))),
    })
}

/// A bind of a type 2 window, whose new key the program chooses.
///
/// # Safety
/// `window` and the region in `info` are live or null.
pub(crate) unsafe fn bind_request(
    window: *const abi::ibv_mw,
    new_rkey: u32,
    info: &abi::ibv_mw_bind_info,
) -> Result<BindRequest, Failure> {
    // SAFETY: the caller's contract.
    let (window, region) = unsafe { (window.as_ref(), info.mr.as_ref()) };
    let window = window.ok_or_else(|| Failure::invalid("bind_mw.mw is a null pointer"))?;
    if window.rkey & !TAG != new_rkey & !TAG {
        return Err(Failure::invalid(format!(
            "bind_mw.rkey {new_rkey:#x} may differ from the window's {:#x} in the last byte only",
            window.rkey
        )));
    }
    let region = region.ok_or_else(|| Failure::invalid("bind_info.mr is a null pointer"))?;
    Ok(BindRequest {
        window: new_rkey,
        region: region.lkey,
        address: info.addr,
        length: info.length,
        access: info.mw_access_flags,
        // Windows of type 1 are bound by a call of their own; the protocol refuses them here.
        type_2: true,
    })
}

/// A bind of a type 1 window, which gets the key after its present one. No bytes: unbinds it.
///
/// # Safety
/// `window` and the region in `info` are live or null.
pub(crate) unsafe fn rebind_request(
    window: *const abi::ibv_mw,
    info: &abi::ibv_mw_bind_info,
) -> Result<BindRequest, Failure> {
    // SAFETY: the caller's contract.
    let (window, region) = unsafe { (window.as_ref(), info.mr.as_ref()) };
    let window = window.ok_or_else(|| Failure::invalid("mw is a null pointer"))?;
    if region.is_none() && info.length > 0 {
        return Err(Failure::invalid("bind_info.mr is a null pointer"));
    }
    let tag = window.rkey.wrapping_add(1) & TAG;
    Ok(BindRequest {
        window: window.rkey & !TAG | tag,
        region: region.map_or(0, |region| region.lkey),
        address: info.addr,
        length: info.length,
        access: info.mw_access_flags,
        type_2: false,
    })
}

/// The part of a key that programs choose.
const TAG: u32 = 0xff;

/// Inline data makes sense only where bytes go out.
pub(crate) fn check_inline(operation: &SendOperation) -> Result<(), Failure> {
    match operation {
        SendOperation::Send
        | SendOperation::SendImmediate(_)
        | SendOperation::SendInvalidate(_)
        | SendOperation::Write(_)
        | SendOperation::WriteImmediate(..)
        | SendOperation::AtomicWrite(_) => Ok(()),
        _ => Err(Failure::invalid(
            "IBV_SEND_INLINE is for SEND and RDMA WRITE only",
        )),
    }
}

/// Copies inline data. The sum is checked before the first byte is read.
///
/// # Safety
/// Each buffer is readable for its length.
pub(crate) unsafe fn inline(
    buffers: impl Iterator<Item = (*const u8, usize)> + Clone,
    max_inline_data: u32,
) -> Result<Data, Failure> {
    let bytes = buffers
        .clone()
        .fold(0_usize, |sum, (_, length)| sum.saturating_add(length));
    if bytes > max_inline_data as usize {
        return Err(Failure::invalid(format!(
            "{bytes} bytes inline, the queue pair's max_inline_data is {max_inline_data}"
        )));
    }
    let mut data = Data::Inline(Default::default());
    if let Data::Inline(copy) = &mut data {
        for (address, length) in buffers.filter(|&(_, length)| length > 0) {
            // SAFETY: the caller's contract; empty buffers, whose address may be null, are skipped.
            copy.extend_from_slice(unsafe { slice::from_raw_parts(address, length) });
        }
    }
    Ok(data)
}

/// Where a datagram goes.
pub(crate) fn datagram_target(path: Path, qpn: u32, qkey: u32) -> DatagramTarget {
    DatagramTarget {
        path,
        qpn: Qpn::new(qpn & 0xff_ffff),
        qkey,
    }
}

/// # Safety
/// `entries` points to `count` entries.
unsafe fn list<'a>(
    entries: *const abi::ibv_sge,
    count: i32,
    max_sge: u32,
) -> Result<&'a [abi::ibv_sge], Failure> {
    let length = u32::try_from(count)
        .ok()
        .filter(|&length| length <= max_sge);
    let Some(length) = length else {
        return Err(Failure::invalid(format!(
            "num_sge is {count}, the limit is {max_sge}"
        )));
    };
    if length == 0 {
        return Ok(&[]);
    }
    if entries.is_null() {
        return Err(Failure::invalid(format!(
            "num_sge is {count} and sg_list a null pointer"
        )));
    }
    // SAFETY: the caller's contract; null was refused, the length checked.
    Ok(unsafe { slice::from_raw_parts(entries, length as usize) })
}

fn sge(entry: &abi::ibv_sge) -> Sge {
    Sge {
        address: entry.addr,
        length: entry.length,
        lkey: entry.lkey,
    }
}

/// A list of entries in the form of extended queue pairs.
///
/// # Safety
/// `entries` points to `count` entries.
pub(crate) unsafe fn sge_list(
    entries: *const abi::ibv_sge,
    count: usize,
    max_sge: u32,
) -> Result<SgeList, Failure> {
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    // SAFETY: the caller's contract.
    Ok(unsafe { list(entries, count, max_sge) }?
        .iter()
        .map(sge)
        .collect())
}

#[cfg(test)]
mod tests;
