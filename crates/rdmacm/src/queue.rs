//! Queue pairs on identifiers: creating them with what they need, and their way from state to
//! state. Not here: when they move (`channel`, `connect`).

use std::ffi::{c_int, c_void};
use std::ptr;

use feroce_verbs_abi as abi;
use feroce_verbs_abi::functions as verbs;
use feroce_verbs_abi::{
    ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_cm_id,
};
use feroce_wire::cm::Transport;

use crate::device::IdKey;
use crate::guard::{self, Failure};
use crate::route::{self, PORT};
use crate::state::Id;
use crate::world;

/// Inline bytes that every scatter entry of a send makes room for: those of the entry itself.
const INLINE_BYTES_PER_ENTRY: u32 = 16;

/// What a peer may do unless the program decides otherwise.
const ACCESS: u32 = abi::IBV_ACCESS_LOCAL_WRITE
    | abi::IBV_ACCESS_REMOTE_WRITE
    | abi::IBV_ACCESS_REMOTE_READ
    | abi::IBV_ACCESS_REMOTE_ATOMIC;

/// Creates a queue pair on an identifier and makes it ready for receives. What `attributes` lacks
/// of completion queues is created, with channels.
///
/// # Safety
/// `id` is live; `pd` is null or live; `attributes` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    guard::zero("rdma_create_qp", || {
        guard::not_null(qp_init_attr, "qp_init_attr")?;
        // SAFETY: the caller's contract.
        let attributes = unsafe { &mut *qp_init_attr };
        create(id, pd, attributes)
    })
}

/// As [`rdma_create_qp`], from the short form; tells the capacities that were given.
pub(crate) fn create(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attributes: &mut ibv_qp_init_attr,
) -> Result<(), Failure> {
    let mut extended = ibv_qp_init_attr_ex {
        qp_context: attributes.qp_context,
        send_cq: attributes.send_cq,
        recv_cq: attributes.recv_cq,
        srq: attributes.srq,
        cap: attributes.cap,
        qp_type: attributes.qp_type,
        sq_sig_all: attributes.sq_sig_all,
        comp_mask: if pd.is_null() {
            0
        } else {
            abi::IBV_QP_INIT_ATTR_PD
        },
        pd,
        ..ibv_qp_init_attr_ex::default()
    };
    create_extended(id, &mut extended)?;
    attributes.cap = extended.cap;
    Ok(())
}

/// As [`rdma_create_qp`], with everything that verbs knows of queue pairs.
///
/// # Safety
/// `id` and `qp_init_attr` are live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    guard::zero("rdma_create_qp_ex", || {
        guard::not_null(qp_init_attr, "qp_init_attr")?;
        // SAFETY: the caller's contract.
        create_extended(id, unsafe { &mut *qp_init_attr })
    })
}

fn create_extended(id: *mut rdma_cm_id, wanted: &mut ibv_qp_init_attr_ex) -> Result<(), Failure> {
    let mut attributes = *wanted;
    let xrcd = complete_attributes(id, &mut attributes)?;
    if let Some(xrcd) = xrcd {
        attributes.comp_mask |= abi::IBV_QP_INIT_ATTR_XRCD;
        attributes.xrcd = xrcd;
    }
    // SAFETY: the identifier is live, and on a device: looked up above.
    let c = unsafe { &mut *id };
    create_queues(c, id.cast(), &mut attributes)?;
    // SAFETY: contexts of our verbs library are extended ones.
    let operation = unsafe { (*abi::verbs_context_of(c.verbs)).create_qp_ex };
    let operation = operation.ok_or_else(|| Failure::unsupported("create_qp_ex"))?;
    // SAFETY: the context is open; the attributes live during the call.
    let qp = unsafe { operation(c.verbs, &raw mut attributes) };
    if qp.is_null() {
        let failure = Failure::last("creating the queue pair");
        destroy_queues(c);
        return Err(failure);
    }
    wanted.cap = attributes.cap;
    c.qp = qp;
    c.qp_type = attributes.qp_type;
    if !attributes.pd.is_null() {
        c.pd = attributes.pd;
    }
    let ready = make_initial(id.addr());
    if let Err(failure) = ready {
        destroy_on(c);
        return Err(failure);
    }
    Ok(())
}

/// Checks the attributes and puts in what the identifier knows. Says which XRC domain is to be
/// used if the program named none.
fn complete_attributes(
    id: *mut rdma_cm_id,
    attributes: &mut ibv_qp_init_attr_ex,
) -> Result<Option<*mut abi::ibv_xrcd>, Failure> {
    let mut world = world::lock();
    let entry = world.id(id)?;
    let device = entry.device.ok_or_else(|| {
        Failure::invalid("id is on no device: bind it to an address or resolve one first")
    })?;
    if !entry.qp().is_null() {
        return Err(Failure::invalid("id has a queue pair already"));
    }
    entry.transport = match attributes.qp_type {
        abi::IBV_QPT_UC => Transport::Uc,
        abi::IBV_QPT_XRC_SEND | abi::IBV_QPT_XRC_RECV => Transport::Xrc,
        _ => Transport::Rc,
    };
    let datagram = attributes.qp_type == abi::IBV_QPT_UD;
    if datagram
        != matches!(
            u32::from(entry.port_space),
            abi::RDMA_PS_UDP | abi::RDMA_PS_IPOIB
        )
        && u32::from(entry.port_space) != abi::RDMA_PS_IB
    {
        return Err(Failure::invalid(
            "RDMA_PS_TCP is for connected queue pairs, RDMA_PS_UDP and RDMA_PS_IPOIB for UD",
        ));
    }
    entry.datagram = datagram;
    // Programs send a few bytes inline without having asked for it: adapters have room for that
    // where scatter entries would lie.
    let capacities = &mut attributes.cap;
    capacities.max_inline_data = capacities
        .max_inline_data
        .max(capacities.max_send_sge * INLINE_BYTES_PER_ENTRY);
    let of_device = &mut world.devices.list[device];
    let receives_xrc = attributes.qp_type == abi::IBV_QPT_XRC_RECV;
    if attributes.comp_mask & abi::IBV_QP_INIT_ATTR_PD == 0 {
        attributes.pd = of_device.pd.0;
        if !receives_xrc {
            attributes.comp_mask |= abi::IBV_QP_INIT_ATTR_PD;
        }
    }
    // SAFETY: a protection domain of the program is live.
    if unsafe { (*attributes.pd).context } != of_device.context.0 {
        return Err(Failure::invalid(
            "the protection domain is of another device than id: use id->pd or one of id->verbs",
        ));
    }
    let needs_domain = receives_xrc && attributes.comp_mask & abi::IBV_QP_INIT_ATTR_XRCD == 0;
    Ok(if needs_domain {
        Some(of_device.default_xrcd()?)
    } else {
        None
    })
}

/// Creates the completion queues that are missing.
fn create_queues(
    c: &mut rdma_cm_id,
    context: *mut c_void,
    attributes: &mut ibv_qp_init_attr_ex,
) -> Result<(), Failure> {
    let sends = attributes.qp_type != abi::IBV_QPT_XRC_RECV;
    let receives = !matches!(
        attributes.qp_type,
        abi::IBV_QPT_XRC_RECV | abi::IBV_QPT_XRC_SEND
    );
    if sends && attributes.send_cq.is_null() {
        if c.send_cq.is_null() {
            (c.send_cq_channel, c.send_cq) =
                new_queue(c.verbs, attributes.cap.max_send_wr, context)?;
        }
        attributes.send_cq = c.send_cq;
    }
    if receives && attributes.recv_cq.is_null() {
        if c.recv_cq.is_null() {
            match new_queue(c.verbs, attributes.cap.max_recv_wr, context) {
                Ok((channel, queue)) => (c.recv_cq_channel, c.recv_cq) = (channel, queue),
                Err(failure) => {
                    destroy_queues(c);
                    return Err(failure);
                }
            }
        }
        attributes.recv_cq = c.recv_cq;
    }
    if receives && attributes.srq.is_null() {
        attributes.srq = c.srq;
    }
    Ok(())
}

fn new_queue(
    device: *mut abi::ibv_context,
    entries: u32,
    context: *mut c_void,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Failure> {
    let entries = c_int::try_from(entries.max(1)).unwrap_or(c_int::MAX);
    // SAFETY: the context is open.
    let channel = unsafe { verbs::ibv_create_comp_channel(device) };
    if channel.is_null() {
        return Err(Failure::last("a completion channel"));
    }
    // SAFETY: the context is open, the channel live.
    let queue = unsafe { verbs::ibv_create_cq(device, entries, context, channel, 0) };
    if queue.is_null() {
        let failure = Failure::last("a completion queue");
        // SAFETY: nothing uses it.
        unsafe { verbs::ibv_destroy_comp_channel(channel) };
        return Err(failure);
    }
    Ok((channel, queue))
}

/// Destroys the completion queues that the library created.
pub(crate) fn destroy_queues(c: &mut rdma_cm_id) {
    for (queue, channel) in [
        (&mut c.send_cq, &mut c.send_cq_channel),
        (&mut c.recv_cq, &mut c.recv_cq_channel),
    ] {
        let queue = std::mem::replace(queue, ptr::null_mut());
        let channel = std::mem::replace(channel, ptr::null_mut());
        // SAFETY: `new_queue` created them; the program uses them no longer.
        unsafe {
            if !queue.is_null() {
                verbs::ibv_destroy_cq(queue);
            }
            if !channel.is_null() {
                verbs::ibv_destroy_comp_channel(channel);
            }
        }
    }
}

/// Destroys the queue pair of an identifier and what was created with it.
///
/// # Safety
/// `id` is live; its queue pair is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    guard::nothing("rdma_destroy_qp", || {
        world::lock().id(id)?;
        // SAFETY: it is live.
        destroy_on(unsafe { &mut *id });
        Ok(())
    });
}

fn destroy_on(c: &mut rdma_cm_id) {
    let qp = std::mem::replace(&mut c.qp, ptr::null_mut());
    if !qp.is_null() {
        // SAFETY: a live queue pair.
        unsafe { verbs::ibv_destroy_qp(qp) };
    }
    if c.srq.is_null() {
        destroy_queues(c);
    }
}

/// Creates a shared receive queue on an identifier.
///
/// # Safety
/// `id` is live; `pd` is null or live; `attr` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    guard::zero("rdma_create_srq", || {
        guard::not_null(attr, "attr")?;
        // SAFETY: the caller's contract.
        let attributes = unsafe { &mut *attr };
        let mut extended = ibv_srq_init_attr_ex {
            srq_context: attributes.srq_context,
            attr: attributes.attr,
            pd,
            comp_mask: if pd.is_null() {
                0
            } else {
                abi::IBV_SRQ_INIT_ATTR_PD
            },
            ..ibv_srq_init_attr_ex::default()
        };
        // SAFETY: looked up inside.
        create_shared(id, &mut extended)?;
        attributes.attr = extended.attr;
        Ok(())
    })
}

/// As [`rdma_create_srq`], with everything that verbs knows of shared receive queues.
///
/// # Safety
/// `id` and `attr` are live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    guard::zero("rdma_create_srq_ex", || {
        guard::not_null(attr, "attr")?;
        // SAFETY: the caller's contract.
        create_shared(id, unsafe { &mut *attr })
    })
}

fn create_shared(id: *mut rdma_cm_id, wanted: &mut ibv_srq_init_attr_ex) -> Result<(), Failure> {
    let mut attributes = *wanted;
    {
        let mut world = world::lock();
        let device = world.id(id)?.device.ok_or_else(|| {
            Failure::invalid("id is on no device: bind it to an address or resolve one first")
        })?;
        // SAFETY: live, looked up just now.
        let is_xrc = unsafe { (*id).qp_type } == abi::IBV_QPT_XRC_RECV;
        let of_device = &mut world.devices.list[device];
        if attributes.comp_mask & abi::IBV_SRQ_INIT_ATTR_PD == 0 {
            attributes.comp_mask |= abi::IBV_SRQ_INIT_ATTR_PD;
            attributes.pd = of_device.pd.0;
        }
        if attributes.comp_mask & abi::IBV_SRQ_INIT_ATTR_TYPE == 0 {
            attributes.comp_mask |= abi::IBV_SRQ_INIT_ATTR_TYPE;
            attributes.srq_type = if is_xrc {
                abi::IBV_SRQT_XRC
            } else {
                abi::IBV_SRQT_BASIC
            };
        }
        if attributes.srq_type == abi::IBV_SRQT_XRC
            && attributes.comp_mask & abi::IBV_SRQ_INIT_ATTR_XRCD == 0
        {
            attributes.comp_mask |= abi::IBV_SRQ_INIT_ATTR_XRCD;
            attributes.xrcd = of_device.default_xrcd()?;
        }
    }
    // SAFETY: live, looked up above.
    let c = unsafe { &mut *id };
    if !c.srq.is_null() {
        return Err(Failure::invalid("id has a shared receive queue already"));
    }
    if attributes.srq_type == abi::IBV_SRQT_XRC
        && attributes.comp_mask & abi::IBV_SRQ_INIT_ATTR_CQ == 0
    {
        if c.recv_cq.is_null() {
            (c.recv_cq_channel, c.recv_cq) = new_queue(c.verbs, attributes.attr.max_wr, id.cast())?;
        }
        attributes.comp_mask |= abi::IBV_SRQ_INIT_ATTR_CQ;
        attributes.cq = c.recv_cq;
    }
    // SAFETY: contexts of our verbs library are extended ones.
    let operation = unsafe { (*abi::verbs_context_of(c.verbs)).create_srq_ex };
    let operation = operation.ok_or_else(|| Failure::unsupported("create_srq_ex"))?;
    // SAFETY: the context is open; the attributes live during the call.
    let srq = unsafe { operation(c.verbs, &raw mut attributes) };
    if srq.is_null() {
        return Err(Failure::last("creating the shared receive queue"));
    }
    wanted.attr = attributes.attr;
    c.srq = srq;
    c.pd = attributes.pd;
    Ok(())
}

/// Destroys the shared receive queue of an identifier.
///
/// # Safety
/// `id` is live, and no queue pair uses its shared receive queue.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    guard::nothing("rdma_destroy_srq", || {
        world::lock().id(id)?;
        // SAFETY: it is live.
        let c = unsafe { &mut *id };
        let srq = std::mem::replace(&mut c.srq, ptr::null_mut());
        if !srq.is_null() {
            // SAFETY: live.
            unsafe { verbs::ibv_destroy_srq(srq) };
        }
        if c.qp.is_null() {
            destroy_queues(c);
        }
        Ok(())
    });
}

/// The attributes with which the queue pair of an identifier goes to `qp_attr->qp_state`.
///
/// # Safety
/// `id` and `qp_attr` are live, `qp_attr_mask` has room for the mask.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    guard::zero("rdma_init_qp_attr", || {
        guard::not_null(qp_attr, "qp_attr")?;
        guard::not_null(qp_attr_mask, "qp_attr_mask")?;
        let mut world = world::lock();
        // SAFETY: the caller's contract.
        let state = unsafe { (*qp_attr).qp_state };
        let (attributes, mask) = attributes_for(world.id(id)?, state)?;
        // SAFETY: the caller's contract.
        unsafe {
            qp_attr.write(attributes);
            qp_attr_mask.write(mask as c_int);
        }
        Ok(())
    })
}

/// The attributes, and which of them count, for the step to `state`.
fn attributes_for(id: &Id, state: abi::ibv_qp_state) -> Result<(ibv_qp_attr, u32), Failure> {
    let mut attributes = ibv_qp_attr {
        qp_state: state,
        ..ibv_qp_attr::default()
    };
    let unready = || Failure::invalid("the peer of id is not known yet: connect, or accept");
    let mask = match state {
        abi::IBV_QPS_INIT => initial(id, &mut attributes),
        abi::IBV_QPS_RTR if id.datagram => abi::IBV_QP_STATE,
        abi::IBV_QPS_RTR => ready_to_receive(id, &mut attributes).ok_or_else(unready)?,
        abi::IBV_QPS_RTS if id.datagram => abi::IBV_QP_STATE | abi::IBV_QP_SQ_PSN,
        abi::IBV_QPS_RTS => ready_to_send(id, &mut attributes).ok_or_else(unready)?,
        other => {
            return Err(Failure::invalid(format!(
                "qp_attr->qp_state is {other}: only INIT, RTR and RTS have attributes here"
            )));
        }
    };
    Ok((attributes, mask))
}

fn initial(id: &Id, attributes: &mut ibv_qp_attr) -> u32 {
    attributes.port_num = PORT;
    let mask = abi::IBV_QP_STATE | abi::IBV_QP_PKEY_INDEX | abi::IBV_QP_PORT;
    if id.datagram {
        attributes.qkey = abi::RDMA_UDP_QKEY;
        return mask | abi::IBV_QP_QKEY;
    }
    attributes.qp_access_flags = ACCESS;
    mask | abi::IBV_QP_ACCESS_FLAGS
}

fn ready_to_receive(id: &Id, attributes: &mut ibv_qp_attr) -> Option<u32> {
    let (path, peer) = (id.path?, id.peer?);
    attributes.ah_attr = route::address_vector(&path);
    attributes.path_mtu = path.mtu.into();
    attributes.dest_qp_num = peer.qpn;
    attributes.rq_psn = id.psn;
    let mut mask = abi::IBV_QP_STATE
        | abi::IBV_QP_AV
        | abi::IBV_QP_PATH_MTU
        | abi::IBV_QP_DEST_QPN
        | abi::IBV_QP_RQ_PSN;
    if answers(id) {
        attributes.max_dest_rd_atomic = id.limits.responder_resources;
        mask |= abi::IBV_QP_MAX_DEST_RD_ATOMIC | abi::IBV_QP_MIN_RNR_TIMER;
    }
    Some(mask)
}

fn ready_to_send(id: &Id, attributes: &mut ibv_qp_attr) -> Option<u32> {
    let (path, peer) = (id.path?, id.peer?);
    attributes.sq_psn = peer.psn;
    let mut mask = abi::IBV_QP_STATE | abi::IBV_QP_SQ_PSN;
    if id.transport == Transport::Uc {
        return Some(mask);
    }
    attributes.timeout = id.options.ack_timeout.unwrap_or(path.ack_timeout);
    mask |= abi::IBV_QP_TIMEOUT;
    if asks(id) {
        attributes.retry_cnt = id.limits.retry_count;
        attributes.rnr_retry = peer.rnr_retry_count;
        attributes.max_rd_atomic = id.limits.initiator_depth;
        mask |= abi::IBV_QP_RETRY_CNT | abi::IBV_QP_RNR_RETRY | abi::IBV_QP_MAX_QP_RD_ATOMIC;
    }
    Some(mask)
}

/// Whether the queue pair has a responder: all but the sending end of XRC, and UC.
fn answers(id: &Id) -> bool {
    match id.transport {
        Transport::Uc => false,
        Transport::Xrc => id.passive,
        _ => true,
    }
}

/// Whether the queue pair has a requester: all but the receiving end of XRC.
fn asks(id: &Id) -> bool {
    !(id.transport == Transport::Xrc && id.passive)
}

/// The steps of a queue pair that was just created: INIT, and for datagrams all the way.
fn make_initial(id: IdKey) -> Result<(), Failure> {
    let datagram = world::lock().ids.get(&id).is_some_and(|id| id.datagram);
    step(id, abi::IBV_QPS_INIT)?;
    if datagram {
        step(id, abi::IBV_QPS_RTR)?;
        step(id, abi::IBV_QPS_RTS)?;
    }
    Ok(())
}

/// The steps of a queue pair whose peer is known.
pub(crate) fn make_ready(id: IdKey) -> Result<(), Failure> {
    step(id, abi::IBV_QPS_INIT)?;
    step(id, abi::IBV_QPS_RTR)?;
    step(id, abi::IBV_QPS_RTS)
}

/// One step, with the attributes of [`rdma_init_qp_attr`].
fn step(id: IdKey, state: abi::ibv_qp_state) -> Result<(), Failure> {
    let (qp, mut attributes, mask) = {
        let world = world::lock();
        let entry = world.ids.get(&id);
        let entry = entry.ok_or_else(|| Failure::invalid("id is destroyed"))?;
        let (attributes, mask) = attributes_for(entry, state)?;
        (entry.qp(), attributes, mask)
    };
    if qp.is_null() {
        return Err(Failure::invalid("id has no queue pair"));
    }
    // SAFETY: the queue pair is live: the program destroys it only after its last call for it.
    match unsafe { verbs::ibv_modify_qp(qp, &raw mut attributes, mask as c_int) } {
        0 => Ok(()),
        errno => Err(Failure::of(
            errno,
            &format!("the queue pair to state {state}"),
        )),
    }
}

/// Moves the queue pair of an identifier, if it has one, to the error state.
pub(crate) fn fail(id: IdKey) {
    let qp = {
        let world = world::lock();
        match world.ids.get(&id) {
            Some(entry) if !entry.datagram => entry.qp(),
            _ => return,
        }
    };
    if qp.is_null() {
        return;
    }
    let mut attributes = ibv_qp_attr {
        qp_state: abi::IBV_QPS_ERR,
        ..ibv_qp_attr::default()
    };
    // SAFETY: as in `step`.
    let result =
        unsafe { verbs::ibv_modify_qp(qp, &raw mut attributes, abi::IBV_QP_STATE as c_int) };
    if result != 0 {
        log::debug!("the queue pair to the error state: errno {result}");
    }
}
