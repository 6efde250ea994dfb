//! The pointers in `ibv_cq_ex`, by which programs walk a queue one completion at a time:
//! `start_poll`, then `read_*` and `next_poll` until ENOENT, then `end_poll`. `wr_id` and `status`
//! of the completion at hand stand in the struct itself.

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use feroce_verbs::Stamped;
use feroce_verbs_abi as abi;

use crate::guard::{self, Failure};
use crate::{convert, cq, handle};

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

/// The completion at which a program stands in an extended queue.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The queue was created with the calls of an extended one.
    extended: bool,
    at: Mutex<Option<Stamped>>,
}

impl Walk {
    /// For a queue that is created as an extended one.
    pub(crate) fn extended() -> Self {
        Self {
            extended: true,
            at: Mutex::default(),
        }
    }

    /// The C struct to begin with: its calls are set if the queue is an extended one.
    pub(crate) fn c_struct(&self) -> abi::ibv_cq_ex {
        let mut c = abi::ibv_cq_ex::default();
        if self.extended {
            fill(&mut c);
        }
        c
    }

    fn at(&self) -> MutexGuard<'_, Option<Stamped>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `wc_flags` may ask for. Fields that RoCE lacks (LIDs, VLAN and flow tags) read as 0; tag
/// matching is not offered.
pub(crate) const WC_FLAGS: u64 = abi::IBV_WC_STANDARD_FLAGS as u64
    | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP as u64
    | abi::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK as u64;

/// # Safety
/// `context` and `init_attr` are null or point to what their types say.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut abi::ibv_context,
    init_attr: *mut abi::ibv_cq_init_attr_ex,
) -> *mut abi::ibv_cq_ex {
    guard::pointer("ibv_create_cq_ex", || {
        // SAFETY: the caller's contract.
        let init = unsafe { &*guard::not_null(init_attr, "cq_attr")? };
        let known = abi::IBV_CQ_INIT_ATTR_MASK_FLAGS | abi::IBV_CQ_INIT_ATTR_MASK_PD;
        if init.comp_mask & !known != 0 {
            let unknown = init.comp_mask & !known;
            return Err(Failure::unsupported(format!(
                "comp_mask {unknown:#x} is not offered"
            )));
        }
        if init.wc_flags & !WC_FLAGS != 0 {
            let unknown = init.wc_flags & !WC_FLAGS;
            return Err(Failure::unsupported(format!(
                "wc_flags {unknown:#x} are not offered"
            )));
        }
        let flags_known =
            abi::IBV_CREATE_CQ_ATTR_SINGLE_THREADED | abi::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        if init.comp_mask & abi::IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 && init.flags & !flags_known != 0
        {
            return Err(Failure::unsupported(format!(
                "flags {:#x} are not offered",
                init.flags
            )));
        }
        // SAFETY: the caller's contract.
        let cq = unsafe {
            cq::create(
                context,
                init.cqe,
                init.cq_context,
                init.channel,
                init.comp_vector,
                Walk::extended(),
            )
        }?;
        Ok(handle::allocated(cq))
    })
}

/// Steps to the next completion; `false` when there is none.
///
/// # Safety
/// `current` is null or live.
unsafe fn step(current: *mut abi::ibv_cq_ex) -> Result<bool, Failure> {
    // SAFETY: the caller's contract.
    let state = unsafe { cq::state(current.cast()) }?;
    let next = state.cq.poll_one();
    if let Some(entry) = &next {
        // SAFETY: the caller's contract: the program reads these two fields itself.
        unsafe {
            (*current).wr_id = entry.completion.wr_id;
            (*current).status = entry.completion.status as abi::ibv_wc_status;
        }
    }
    let found = next.is_some();
    if found {
        *state.walk.at() = next;
    }
    Ok(found)
}

/// # Safety
/// `current` is null or a live extended queue.
unsafe extern "C" fn start_poll(
    current: *mut abi::ibv_cq_ex,
    attr: *mut abi::ibv_poll_cq_attr,
) -> c_int {
    // An empty queue is no mistake: errno and log stay as they are.
    let mut empty = false;
    let code = guard::status("ibv_start_poll", || {
        // SAFETY: the caller's contract.
        if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
            return Err(Failure::invalid("comp_mask: no attribute is defined"));
        }
        // SAFETY: the caller's contract.
        empty = !unsafe { step(current) }?;
        Ok(())
    });
    if empty { libc::ENOENT } else { code }
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn next_poll(current: *mut abi::ibv_cq_ex) -> c_int {
    let mut empty = false;
    let code = guard::status("ibv_next_poll", || {
        // SAFETY: the caller's contract.
        empty = !unsafe { step(current) }?;
        Ok(())
    });
    if empty { libc::ENOENT } else { code }
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn end_poll(current: *mut abi::ibv_cq_ex) {
    guard::nothing("ibv_end_poll", || {
        // SAFETY: the caller's contract.
        *unsafe { cq::state(current.cast()) }?.walk.at() = None;
        Ok(())
    });
}

/// Reads a field of the completion at hand; 0 outside a walk.
fn read<T: Default>(
    current: *mut abi::ibv_cq_ex,
    verb: &'static str,
    field: impl FnOnce(&Stamped) -> T,
) -> T {
    let mut value = T::default();
    guard::nothing(verb, || {
        // SAFETY: every caller's contract: `current` is null or a live extended queue.
        let state = unsafe { cq::state(current.cast()) }?;
        match state.walk.at().as_ref() {
            Some(entry) => value = field(entry),
            None => return Err(Failure::invalid("call ibv_start_poll first")),
        }
        Ok(())
    });
    value
}

/// The completion at hand in its C form.
fn wc(entry: &Stamped) -> abi::ibv_wc {
    convert::wc::to_c(&entry.completion)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_opcode(current: *mut abi::ibv_cq_ex) -> abi::ibv_wc_opcode {
    read(current, "ibv_wc_read_opcode", |entry| wc(entry).opcode)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_vendor_err(current: *mut abi::ibv_cq_ex) -> u32 {
    read(current, "ibv_wc_read_vendor_err", |entry| {
        wc(entry).vendor_err
    })
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_byte_len(current: *mut abi::ibv_cq_ex) -> u32 {
    read(current, "ibv_wc_read_byte_len", |entry| wc(entry).byte_len)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_imm_data(current: *mut abi::ibv_cq_ex) -> abi::__be32 {
    read(current, "ibv_wc_read_imm_data", immediate)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_qp_num(current: *mut abi::ibv_cq_ex) -> u32 {
    read(current, "ibv_wc_read_qp_num", |entry| wc(entry).qp_num)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_src_qp(current: *mut abi::ibv_cq_ex) -> u32 {
    read(current, "ibv_wc_read_src_qp", |entry| wc(entry).src_qp)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_wc_flags(current: *mut abi::ibv_cq_ex) -> c_uint {
    read(current, "ibv_wc_read_wc_flags", |entry| wc(entry).wc_flags)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_slid(current: *mut abi::ibv_cq_ex) -> u32 {
    read(current, "ibv_wc_read_slid", |entry| wc(entry).slid.into())
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_sl(current: *mut abi::ibv_cq_ex) -> u8 {
    read(current, "ibv_wc_read_sl", |entry| wc(entry).sl)
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_dlid_path_bits(current: *mut abi::ibv_cq_ex) -> u8 {
    read(current, "ibv_wc_read_dlid_path_bits", |entry| {
        wc(entry).dlid_path_bits
    })
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_completion_ts(current: *mut abi::ibv_cq_ex) -> u64 {
    read(current, "ibv_wc_read_completion_ts", |entry| {
        entry.realtime_nanos
    })
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_completion_wallclock_ns(current: *mut abi::ibv_cq_ex) -> u64 {
    read(current, "ibv_wc_read_completion_wallclock_ns", |entry| {
        entry.realtime_nanos
    })
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_cvlan(current: *mut abi::ibv_cq_ex) -> u16 {
    read(current, "ibv_wc_read_cvlan", |entry| {
        let _ = entry;
        0
    })
}

/// # Safety
/// As for [`start_poll`].
unsafe extern "C" fn read_flow_tag(current: *mut abi::ibv_cq_ex) -> u32 {
    read(current, "ibv_wc_read_flow_tag", |entry| {
        let _ = entry;
        0
    })
}

/// Immediate data in network order, or the key that was invalidated: one place for both.
fn immediate(entry: &Stamped) -> abi::__be32 {
    let completion = &entry.completion;
    completion
        .immediate
        .map(u32::to_be)
        .or(completion.invalidated)
        .unwrap_or_default()
}

/// # Safety
/// As for [`start_poll`]; `tm_info` is null or points to a place for the answer.
unsafe extern "C" fn read_tm_info(current: *mut abi::ibv_cq_ex, tm_info: *mut abi::ibv_wc_tm_info) {
    guard::nothing("ibv_wc_read_tm_info", || {
        // SAFETY: the caller's contract.
        unsafe {
            cq::state(current.cast())?;
            guard::not_null(tm_info, "tm_info")?.write(abi::ibv_wc_tm_info::default());
        }
        Ok(())
    });
}
