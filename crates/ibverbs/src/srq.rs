//! Shared receive queues. Tag matching (`post_srq_ops`) is not done by Feroce's device.

use std::ffi::{c_int, c_void};

use feroce_verbs::{SharedReceiveQueue, SrqAttributes, SrqOptions};
use feroce_verbs_abi as abi;

use crate::convert::{post, wr};
use crate::guard::{self, Failure};
use crate::handle::{self, Ledger};
use crate::{context, cq, pd, xrcd};

/// The Rust part of an `ibv_srq`.
#[derive(Debug)]
pub(crate) struct SrqState {
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) events: Ledger,
    max_sge: u32,
}

/// The shared receive queue behind a pointer.
///
/// # Safety
/// `srq` is null or live.
pub(crate) unsafe fn state<'a>(srq: *mut abi::ibv_srq) -> Result<&'a SrqState, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(srq) }
}

const fn attributes(attr: &abi::ibv_srq_attr) -> SrqAttributes {
    SrqAttributes {
        max_wr: attr.max_wr,
        max_sge: attr.max_sge,
        limit: 0,
    }
}

/// # Safety
/// `pd` is null or live.
unsafe fn create(
    pd: *mut abi::ibv_pd,
    srq_context: *mut c_void,
    options: SrqOptions,
) -> Result<*mut abi::ibv_srq, Failure> {
    // SAFETY: the caller's contract.
    let (domain, context) = unsafe { (&pd::state(pd)?.pd, (*pd).context) };
    let max_sge = options.attributes.max_sge;
    let srq = domain
        .create_srq(options)
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let id = srq.id();
    let c = abi::ibv_srq {
        context,
        srq_context,
        pd,
        handle: id.0,
        ..Default::default()
    };
    let pointer = handle::create::<abi::ibv_srq, _>(
        c,
        SrqState {
            srq,
            events: Ledger::default(),
            max_sge,
        },
    );
    // SAFETY: a live domain has an open context.
    unsafe { context::state(context) }?
        .objects()
        .srqs
        .insert(id, pointer.expose_provenance());
    Ok(pointer)
}

/// # Safety
/// `pd` and `srq_init_attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_srq(
    pd: *mut abi::ibv_pd,
    srq_init_attr: *mut abi::ibv_srq_init_attr,
) -> *mut abi::ibv_srq {
    guard::pointer("ibv_create_srq", || {
        // SAFETY: the caller's contract.
        let init = unsafe { guard::not_null(srq_init_attr, "srq_init_attr")?.read() };
        let options = SrqOptions {
            attributes: attributes(&init.attr),
            xrc: None,
        };
        // SAFETY: the caller's contract.
        unsafe { create(pd, init.srq_context, options) }
    })
}

/// # Safety
/// `context` and `attr` are null or point to what their types say, as far as `comp_mask` says.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut abi::ibv_context,
    attr: *mut abi::ibv_srq_init_attr_ex,
) -> *mut abi::ibv_srq {
    guard::pointer("ibv_create_srq_ex", || {
        // SAFETY: the caller's contract.
        let init = unsafe { &*guard::not_null(attr, "srq_init_attr_ex")? };
        let has = |bit: u32| init.comp_mask & bit != 0;
        if !has(abi::IBV_SRQ_INIT_ATTR_PD) {
            return Err(Failure::invalid("comp_mask lacks IBV_SRQ_INIT_ATTR_PD"));
        }
        let srq_type = if has(abi::IBV_SRQ_INIT_ATTR_TYPE) {
            init.srq_type
        } else {
            abi::IBV_SRQT_BASIC
        };
        let xrc = match srq_type {
            abi::IBV_SRQT_BASIC => None,
            abi::IBV_SRQT_XRC => {
                if !has(abi::IBV_SRQ_INIT_ATTR_XRCD) || !has(abi::IBV_SRQ_INIT_ATTR_CQ) {
                    return Err(Failure::invalid(
                        "an XRC SRQ needs xrcd and cq in comp_mask",
                    ));
                }
                // SAFETY: the caller's contract.
                let (xrcd, cq) = unsafe { (xrcd::state(init.xrcd)?, cq::state(init.cq)?) };
                Some((xrcd.clone(), cq.cq.clone()))
            }
            _ => {
                return Err(Failure::unsupported(format!(
                    "srq_type {srq_type} is not offered"
                )));
            }
        };
        let options = SrqOptions {
            attributes: attributes(&init.attr),
            xrc,
        };
        // SAFETY: the caller's contract.
        unsafe { create(init.pd, init.srq_context, options) }
    })
}

/// # Safety
/// `srq` and `srq_attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_srq(
    srq: *mut abi::ibv_srq,
    srq_attr: *mut abi::ibv_srq_attr,
    srq_attr_mask: c_int,
) -> c_int {
    guard::status("ibv_modify_srq", || {
        // SAFETY: the caller's contract.
        let (state, attr) = unsafe { (state(srq)?, guard::not_null(srq_attr, "srq_attr")?.read()) };
        let mask = srq_attr_mask.cast_unsigned();
        let named = |bit: u32, value: u32| (mask & bit != 0).then_some(value);
        state
            .srq
            .modify(
                named(abi::IBV_SRQ_MAX_WR, attr.max_wr),
                named(abi::IBV_SRQ_LIMIT, attr.srq_limit),
            )
            .map_err(|error| Failure::invalid(error.to_string()))
    })
}

/// # Safety
/// `srq` and `srq_attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_srq(
    srq: *mut abi::ibv_srq,
    srq_attr: *mut abi::ibv_srq_attr,
) -> c_int {
    guard::status("ibv_query_srq", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(srq) }?;
        let SrqAttributes {
            max_wr,
            max_sge,
            limit,
        } = state.srq.query();
        let target = guard::not_null(srq_attr, "srq_attr")?;
        // SAFETY: the caller's contract.
        unsafe {
            target.write(abi::ibv_srq_attr {
                max_wr,
                max_sge,
                srq_limit: limit,
            })
        };
        Ok(())
    })
}

/// # Safety
/// `srq` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut abi::ibv_srq) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let (state, context) = unsafe { (state(srq)?, (*srq).context) };
        if state.srq.is_shared() {
            return Err(Failure::new(libc::EBUSY, "queue pairs still use the SRQ"));
        }
        // SAFETY: a live SRQ has an open context.
        unsafe { context::state(context) }?
            .objects()
            .srqs
            .remove(&state.srq.id());
        state.events.settle();
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, SrqState>(srq) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_destroy_srq", srq, destroy) }
}

/// # Safety
/// `srq` is null or live; `srq_num` points to a place for the answer.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut abi::ibv_srq, srq_num: *mut u32) -> c_int {
    guard::status("ibv_get_srq_num", || {
        // SAFETY: the caller's contract.
        unsafe { *guard::not_null(srq_num, "srq_num")? = state(srq)?.srq.id().0 };
        Ok(())
    })
}

/// # Safety
/// `srq` is null or live; `recv_wr` begins a chain of requests; `bad_recv_wr` is null or valid.
pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut abi::ibv_srq,
    recv_wr: *mut abi::ibv_recv_wr,
    bad_recv_wr: *mut *mut abi::ibv_recv_wr,
) -> c_int {
    guard::status("ibv_post_srq_recv", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(srq) }?;
        let convert = |wr: &abi::ibv_recv_wr| {
            // SAFETY: the caller's contract.
            unsafe { wr::recv_request(wr, state.max_sge) }
        };
        // SAFETY: the caller's contract.
        unsafe {
            post::post_list(recv_wr, bad_recv_wr, convert, |list| {
                state.srq.post_recv(list)
            })
        }
    })
}
