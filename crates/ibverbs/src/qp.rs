//! Queue pairs: life, attributes, posting, multicast membership. Not here: the pointers by which
//! programs post to an extended queue pair ([`crate::qp_ex`]).

mod parts;

use std::ffi::c_int;
use std::net::IpAddr;
use std::ptr;

use feroce_verbs::{
    AttributeMask, CreateQpError, QpAttributes, QpError, QpOptions, QpType, Qpn, QueuePair,
    XrcDomain,
};
use feroce_verbs_abi as abi;

use crate::convert::batch::Workbench;
use crate::convert::post;
use crate::convert::wr::{self, RequestLimits};
use crate::guard::{self, Failure};
use crate::handle::{self, Ledger};
use crate::{ah, context, convert, xrcd};
use parts::Parts;

/// The Rust part of an `ibv_qp`.
#[derive(Debug)]
pub(crate) struct QpState {
    pub(crate) qp: QueuePair,
    pub(crate) events: Ledger,
    pub(crate) send: RequestLimits,
    max_recv_sge: u32,
    pub(crate) max_send_wr: u32,
    /// Where an extended queue pair's requests are built.
    pub(crate) bench: Workbench,
    /// Created with the calls of an extended queue pair.
    extended: bool,
}

/// The queue pair behind a pointer.
///
/// # Safety
/// `qp` is null or live.
pub(crate) unsafe fn state<'a>(qp: *mut abi::ibv_qp) -> Result<&'a QpState, Failure> {
    // SAFETY: the caller's contract.
    unsafe { handle::rust(qp) }
}

/// # Safety
/// `pd` and `qp_init_attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_qp(
    pd: *mut abi::ibv_pd,
    qp_init_attr: *mut abi::ibv_qp_init_attr,
) -> *mut abi::ibv_qp {
    guard::pointer("ibv_create_qp", || {
        // SAFETY: the caller's contract.
        let init = unsafe { &mut *guard::not_null(qp_init_attr, "qp_init_attr")? };
        let extended = abi::ibv_qp_init_attr_ex {
            qp_context: init.qp_context,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            qp_type: init.qp_type,
            sq_sig_all: init.sq_sig_all,
            comp_mask: abi::IBV_QP_INIT_ATTR_PD,
            pd,
            ..Default::default()
        };
        // SAFETY: the caller's contract.
        unsafe { create(&extended, &mut init.cap) }
    })
}

/// # Safety
/// `attr` is null or points to attributes, valid as far as `comp_mask` says.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut abi::ibv_context,
    attr: *mut abi::ibv_qp_init_attr_ex,
) -> *mut abi::ibv_qp {
    guard::pointer("ibv_create_qp_ex", || {
        // SAFETY: the caller's contract.
        let init = unsafe { &mut *guard::not_null(attr, "qp_init_attr_ex")? };
        const KNOWN: u32 = abi::IBV_QP_INIT_ATTR_PD
            | abi::IBV_QP_INIT_ATTR_XRCD
            | abi::IBV_QP_INIT_ATTR_CREATE_FLAGS
            | abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        if init.comp_mask & !KNOWN != 0 {
            let unknown = init.comp_mask & !KNOWN;
            return Err(Failure::unsupported(format!(
                "comp_mask {unknown:#x} is not offered"
            )));
        }
        if init.comp_mask & abi::IBV_QP_INIT_ATTR_CREATE_FLAGS != 0 && init.create_flags != 0 {
            let flags = init.create_flags;
            return Err(Failure::unsupported(format!(
                "create_flags {flags:#x} are not offered"
            )));
        }
        if init.comp_mask & abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0 {
            check_send_operations(init.qp_type, init.send_ops_flags)?;
        }
        let mut cap = init.cap;
        // SAFETY: the caller's contract.
        let qp = unsafe { create(init, &mut cap) }?;
        init.cap = cap;
        Ok(qp)
    })
}

/// Refuses operations that the service does not have (`ibv_create_qp_ex(3)`).
fn check_send_operations(qp_type: abi::ibv_qp_type, flags: u64) -> Result<(), Failure> {
    let unreliable = u64::from(abi::IBV_QP_EX_WITH_SEND | abi::IBV_QP_EX_WITH_SEND_WITH_IMM);
    let write = u64::from(abi::IBV_QP_EX_WITH_RDMA_WRITE | abi::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
    let window = u64::from(
        abi::IBV_QP_EX_WITH_LOCAL_INV
            | abi::IBV_QP_EX_WITH_BIND_MW
            | abi::IBV_QP_EX_WITH_SEND_WITH_INV,
    );
    let reliable = u64::from(
        abi::IBV_QP_EX_WITH_RDMA_READ
            | abi::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
            | abi::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD
            | abi::IBV_QP_EX_WITH_FLUSH
            | abi::IBV_QP_EX_WITH_ATOMIC_WRITE,
    );
    let allowed = match convert::qp::qp_type(qp_type)? {
        QpType::Rc | QpType::XrcSend => unreliable | write | window | reliable,
        QpType::Uc => unreliable | write,
        QpType::Ud => unreliable,
        QpType::XrcRecv => 0,
    };
    if flags & !allowed == 0 {
        return Ok(());
    }
    let refused = flags & !allowed;
    Err(Failure::unsupported(format!(
        "send_ops_flags {refused:#x}: not with this qp_type"
    )))
}

/// Makes a queue pair and its C object; writes the granted capacities.
///
/// # Safety
/// What `init` points to is live.
unsafe fn create(
    init: &abi::ibv_qp_init_attr_ex,
    cap: &mut abi::ibv_qp_cap,
) -> Result<*mut abi::ibv_qp, Failure> {
    let qp_type = convert::qp::qp_type(init.qp_type)?;
    // SAFETY: the caller's contract.
    let parts = unsafe { Parts::collect(init, qp_type) }?;
    let extended = init.comp_mask & abi::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS != 0;
    let capabilities = convert::qp::capabilities(&init.cap);
    let options = QpOptions {
        qp_type,
        send_cq: parts.send_cq,
        recv_cq: parts.recv_cq,
        srq: parts.srq,
        xrc_domain: parts.xrc_domain,
        capabilities,
        signal_all: init.sq_sig_all != 0,
    };
    let qp = parts
        .pd
        .create_qp(options)
        .map_err(|error| Failure::new(create_errno(&error), error.to_string()))?;
    let qpn = qp.qpn();
    let mut c = abi::ibv_qp_ex {
        qp_base: abi::ibv_qp {
            context: parts.context,
            qp_context: init.qp_context,
            pd: init.pd,
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: qpn.value(),
            qp_num: qpn.value(),
            state: abi::IBV_QPS_RESET,
            qp_type: init.qp_type,
            ..Default::default()
        },
        ..Default::default()
    };
    if extended {
        crate::qp_ex::fill(&mut c);
    }
    *cap = convert::qp::capabilities_to_c(&capabilities);
    let state = QpState {
        qp,
        events: Ledger::default(),
        send: RequestLimits {
            qp_type,
            max_sge: capabilities.max_send_sge,
            max_inline_data: capabilities.max_inline_data,
        },
        max_recv_sge: capabilities.max_recv_sge,
        max_send_wr: capabilities.max_send_wr,
        bench: Workbench::default(),
        extended,
    };
    let pointer = handle::create::<abi::ibv_qp, _>(c, state);
    // SAFETY: the caller's contract.
    let context = unsafe { context::state(parts.context) }?;
    context
        .objects()
        .qps
        .insert(qpn, pointer.expose_provenance());
    Ok(pointer)
}

const fn create_errno(error: &CreateQpError) -> c_int {
    match error {
        CreateQpError::Qp(QpError::TooMany(_)) => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

/// # Safety
/// `qp` and `attr` are null or point to what their types say, as far as `attr_mask` says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut abi::ibv_qp,
    attr: *mut abi::ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    guard::status("ibv_modify_qp", || {
        // SAFETY: the caller's contract.
        let (state, attr) = unsafe { (state(qp)?, &*guard::not_null(attr, "attr")?) };
        let context = state.qp.pd().context();
        let resolve = |ah_attr: &abi::ibv_ah_attr| ah::resolve(context, ah_attr);
        let (attributes, mask) = convert::qp::attributes(attr, attr_mask, resolve)?;
        state
            .qp
            .modify(&attributes, mask)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        if mask.contains(AttributeMask::STATE) {
            // SAFETY: the caller's contract.
            unsafe { (*qp).state = attr.qp_state };
        }
        Ok(())
    })
}

/// # Safety
/// The pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut abi::ibv_qp,
    attr: *mut abi::ibv_qp_attr,
    _attr_mask: c_int,
    init_attr: *mut abi::ibv_qp_init_attr,
) -> c_int {
    guard::status("ibv_query_qp", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(qp) }?;
        let attributes = state
            .qp
            .query()
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let options = state.qp.options();
        let mut answer = convert::qp::attributes_to_c(&attributes);
        answer.cap = convert::qp::capabilities_to_c(&options.capabilities);
        // SAFETY: the caller's contract.
        unsafe {
            (*qp).state = answer.qp_state;
            if !init_attr.is_null() {
                init_attr.write(abi::ibv_qp_init_attr {
                    qp_context: (*qp).qp_context,
                    send_cq: (*qp).send_cq,
                    recv_cq: (*qp).recv_cq,
                    srq: (*qp).srq,
                    cap: answer.cap,
                    qp_type: (*qp).qp_type,
                    sq_sig_all: options.signal_all.into(),
                });
            }
            guard::not_null(attr, "attr")?.write(answer);
        }
        Ok(())
    })
}

/// Whether the bytes of a message appear in memory in order: this device writes a message from its
/// first byte to its last.
///
/// # Safety
/// `qp` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_qp_data_in_order(
    qp: *mut abi::ibv_qp,
    _op: abi::ibv_wr_opcode,
    flags: u32,
) -> c_int {
    guard::answer("ibv_query_qp_data_in_order", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(qp) }?;
        let ordered = matches!(
            state.send.qp_type,
            QpType::Rc | QpType::XrcSend | QpType::XrcRecv
        );
        Ok(
            match (
                ordered,
                flags & abi::IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS != 0,
            ) {
                (false, _) => 0,
                (true, false) => 1,
                (true, true) => abi::IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG.cast_signed(),
            },
        )
    })
}

/// # Safety
/// `qp` is null or live, and not used afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut abi::ibv_qp) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        let (state, context) = unsafe { (state(qp)?, (*qp).context) };
        if state.qp.is_attached() {
            return Err(Failure::new(
                libc::EBUSY,
                "it is attached to multicast groups",
            ));
        }
        // SAFETY: a live queue pair has an open context.
        unsafe { context::state(context) }?
            .objects()
            .qps
            .remove(&state.qp.qpn());
        state.events.settle();
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, QpState>(qp) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_destroy_qp", qp, destroy) }
}

/// The same pointer, for queue pairs that were created with `send_ops_flags`.
///
/// # Safety
/// `qp` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut abi::ibv_qp) -> *mut abi::ibv_qp_ex {
    guard::pointer("ibv_qp_to_qp_ex", || {
        // SAFETY: the caller's contract.
        if unsafe { state(qp) }?.extended {
            return Ok(handle::allocated(qp));
        }
        Err(Failure::invalid(
            "it was not created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS",
        ))
    })
}

/// Enhanced connection establishment: this device has no vendor's extras to agree on, so only the
/// empty offer is accepted.
///
/// # Safety
/// `qp` and `ece` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_set_ece(qp: *mut abi::ibv_qp, ece: *mut abi::ibv_ece) -> c_int {
    guard::status("ibv_set_ece", || {
        // SAFETY: the caller's contract.
        let (_, offer) = unsafe { (state(qp)?, guard::not_null(ece, "ece")?.read()) };
        if offer.vendor_id != 0 {
            return Err(Failure::unsupported("options of a vendor are not offered"));
        }
        Ok(())
    })
}

/// # Safety
/// `qp` and `ece` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_ece(
    qp: *mut abi::ibv_qp,
    ece: *mut abi::ibv_ece,
) -> c_int {
    guard::status("ibv_query_ece", || {
        // SAFETY: the caller's contract.
        unsafe {
            state(qp)?;
            guard::not_null(ece, "ece")?.write(abi::ibv_ece::default());
        }
        Ok(())
    })
}

/// # Safety
/// `qp` and `gid` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_attach_mcast(
    qp: *mut abi::ibv_qp,
    gid: *const abi::ibv_gid,
    _lid: u16,
) -> c_int {
    guard::status("ibv_attach_mcast", || {
        // SAFETY: the caller's contract.
        let (state, group) = unsafe { (state(qp)?, group(gid)?) };
        state
            .qp
            .attach_multicast(group)
            .map_err(|error| Failure::invalid(error.to_string()))
    })
}

/// # Safety
/// `qp` and `gid` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_detach_mcast(
    qp: *mut abi::ibv_qp,
    gid: *const abi::ibv_gid,
    _lid: u16,
) -> c_int {
    guard::status("ibv_detach_mcast", || {
        // SAFETY: the caller's contract.
        let (state, group) = unsafe { (state(qp)?, group(gid)?) };
        state
            .qp
            .detach_multicast(group)
            .map_err(|error| Failure::invalid(error.to_string()))
    })
}

/// # Safety
/// `gid` is null or points to a GID.
unsafe fn group(gid: *const abi::ibv_gid) -> Result<IpAddr, Failure> {
    // SAFETY: the caller's contract.
    let gid = unsafe { gid.as_ref() }.ok_or_else(|| Failure::invalid("gid is a null pointer"))?;
    Ok(convert::address::address(gid))
}

/// # Safety
/// `qp` is null or live; `wr` begins a chain of requests; `bad_wr` is null or valid.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut abi::ibv_qp,
    wr: *mut abi::ibv_send_wr,
    bad_wr: *mut *mut abi::ibv_send_wr,
) -> c_int {
    guard::status("ibv_post_send", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(qp) }?;
        let convert = |wr: &abi::ibv_send_wr| {
            // SAFETY: the caller's contract.
            unsafe { wr::send_request(wr, &state.send, |ah| ah::path(ah)) }
        };
        // SAFETY: the caller's contract.
        unsafe { post::post_list(wr, bad_wr, convert, |list| state.qp.post_send(list)) }
    })
}

/// # Safety
/// `qp` is null or live; `wr` begins a chain of requests; `bad_wr` is null or valid.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut abi::ibv_qp,
    wr: *mut abi::ibv_recv_wr,
    bad_wr: *mut *mut abi::ibv_recv_wr,
) -> c_int {
    guard::status("ibv_post_recv", || {
        // SAFETY: the caller's contract.
        let state = unsafe { state(qp) }?;
        let convert = |wr: &abi::ibv_recv_wr| {
            // SAFETY: the caller's contract.
            unsafe { wr::recv_request(wr, state.max_recv_sge) }
        };
        // SAFETY: the caller's contract.
        unsafe { post::post_list(wr, bad_wr, convert, |list| state.qp.post_recv(list)) }
    })
}

/// # Safety
/// `qp` and `attr` are null or point to what their types say.
pub(crate) unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut abi::ibv_qp,
    attr: *mut abi::ibv_qp_rate_limit_attr,
) -> c_int {
    guard::status("ibv_modify_qp_rate_limit", || {
        // SAFETY: the caller's contract.
        let (state, attr) = unsafe { (state(qp)?, guard::not_null(attr, "attr")?.read()) };
        let attributes = QpAttributes {
            rate_limit: attr.rate_limit,
            ..QpAttributes::default()
        };
        state
            .qp
            .modify(&attributes, AttributeMask::RATE_LIMIT)
            .map_err(|error| Failure::invalid(error.to_string()))
    })
}

/// Opens an XRC target queue pair of the domain again, by its number.
///
/// # Safety
/// `attr` is null or points to attributes, valid as far as `comp_mask` says.
pub(crate) unsafe extern "C" fn open_qp(
    context: *mut abi::ibv_context,
    attr: *mut abi::ibv_qp_open_attr,
) -> *mut abi::ibv_qp {
    guard::pointer("ibv_open_qp", || {
        // SAFETY: the caller's contract.
        let (opened, attr) =
            unsafe { (context::state(context)?, &*guard::not_null(attr, "attr")?) };
        let needed =
            abi::IBV_QP_OPEN_ATTR_NUM | abi::IBV_QP_OPEN_ATTR_XRCD | abi::IBV_QP_OPEN_ATTR_TYPE;
        if attr.comp_mask & needed != needed || attr.qp_type != abi::IBV_QPT_XRC_RECV {
            return Err(Failure::invalid(
                "only XRC_RECV queue pairs, by qp_num, xrcd and qp_type",
            ));
        }
        let number = Qpn::new(attr.qp_num);
        let objects = opened.objects();
        let address = *objects.qps.get(&number).ok_or_else(|| {
            Failure::invalid(format!("no XRC target {:#x} on this context", attr.qp_num))
        })?;
        let original: *mut abi::ibv_qp = ptr::with_exposed_provenance_mut(address);
        // SAFETY: it is live while the table, which is locked, lists it.
        let qp = unsafe { state(original) }?.qp.clone();
        drop(objects);
        if qp.options().xrc_domain.as_ref().map(XrcDomain::id)
            // SAFETY: the caller's contract.
            != Some(unsafe { xrcd::state(attr.xrcd) }?.id())
        {
            return Err(Failure::invalid(
                "the queue pair belongs to another XRC domain",
            ));
        }
        let c = abi::ibv_qp_ex {
            qp_base: abi::ibv_qp {
                context,
                qp_context: if attr.comp_mask & abi::IBV_QP_OPEN_ATTR_CONTEXT != 0 {
                    attr.qp_context
                } else {
                    ptr::null_mut()
                },
                handle: attr.qp_num,
                qp_num: attr.qp_num,
                state: abi::IBV_QPS_RESET,
                qp_type: attr.qp_type,
                ..Default::default()
            },
            ..Default::default()
        };
        let state = QpState {
            qp,
            events: Ledger::default(),
            send: RequestLimits {
                qp_type: QpType::XrcRecv,
                max_sge: 0,
                max_inline_data: 0,
            },
            max_recv_sge: 0,
            max_send_wr: 0,
            bench: Workbench::default(),
            extended: false,
        };
        Ok(handle::create::<abi::ibv_qp, _>(c, state))
    })
}
