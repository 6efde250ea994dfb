//! The passive side of connections: listening, accepting, rejecting. Not here: how requests become
//! identifiers (`happen`).

use std::ffi::{c_int, c_void};

use feroce_proto::cm::{Accept, Listen, ListenAddress, Reject, SidrReply};
use feroce_verbs_abi as abi;
use feroce_verbs_abi::gsi;
use feroce_verbs_abi::{rdma_cm_id, rdma_conn_param};
use feroce_wire::cm::{RejectReason, SidrStatus};
use feroce_wire::{Psn, Qpn};

use crate::address::SocketAddress;
use crate::connect::{Wish, clamp, of_cm, read_data, service_id};
use crate::device::IdKey;
use crate::guard::{self, Failure};
use crate::state::{Limits, Phase};
use crate::world::{self, World};
use crate::{channel, id, queue, sys};

/// Unanswered requests of a listener whose program gives no number.
const BACKLOG_DEFAULT: usize = 1024;

/// `reason` of [`rdma_reject_ece`]: the options offered are not acceptable.
const ECE_REFUSED: RejectReason = RejectReason::VENDOR_OPTION_NOT_SUPPORTED;

/// Begins to listen. An identifier that is not bound gets a port on all addresses.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    guard::zero("rdma_listen", || {
        let unbound = world::lock().id(id)?.phase == Phase::Idle;
        if unbound {
            id::bind(id, SocketAddress::any(libc::AF_INET))?;
        }
        let mut world = world::lock();
        let key = world::require(&mut world, id, &[Phase::Bound], "listen")?;
        listen(&mut world, key, backlog)
    })
}

fn listen(world: &mut World, key: IdKey, backlog: c_int) -> Result<(), Failure> {
    let Some(entry) = world.ids.get_mut(&key) else {
        return Err(Failure::invalid("id is destroyed"));
    };
    let (Some(local), Some(claim)) = (entry.local, &entry.claim) else {
        return Err(Failure::invalid("id is not bound"));
    };
    entry.backlog = usize::try_from(backlog)
        .ok()
        .filter(|&backlog| backlog > 0)
        .unwrap_or(BACKLOG_DEFAULT);
    let wanted = Listen {
        service_id: service_id(entry.port_space, local.port),
        address: listen_address(&local, entry.options.one_family),
        backlog: entry.backlog,
    };
    let handle = claim.0;
    let devices = match entry.device {
        Some(device) => vec![device],
        None => world.devices.all()?,
    };
    // The agents must be there before requests are sent to this process.
    for &device in &devices {
        world.agent(device)?;
    }
    // SAFETY: granted, and held by the identifier.
    let result = unsafe { gsi::feroce_gsi_claim_listen(handle.0) };
    if result != 0 {
        return Err(Failure::of(
            result,
            &format!("listening on port {}", local.port),
        ));
    }
    for device in devices {
        let agent = world.agent(device)?;
        let listener = agent
            .cm
            .listen(wanted)
            .map_err(|error| Failure::new(libc::EADDRINUSE, error.to_string()))?;
        agent.listeners.insert(listener, key);
        if let Some(entry) = world.ids.get_mut(&key) {
            entry.listeners.push((device, listener));
        }
    }
    if let Some(entry) = world.ids.get_mut(&key) {
        entry.phase = Phase::Listening;
    }
    Ok(())
}

fn listen_address(local: &SocketAddress, one_family: bool) -> ListenAddress {
    match local.ip {
        ip if !ip.is_unspecified() => ListenAddress::Exactly(ip.to_canonical()),
        std::net::IpAddr::V4(_) => ListenAddress::AnyV4,
        std::net::IpAddr::V6(_) if one_family => ListenAddress::AnyV6,
        std::net::IpAddr::V6(_) => ListenAddress::Any,
    }
}

/// Accepts a request. Without `conn_param` the connection is as the peer wants it, as far as the
/// device can.
///
/// # Safety
/// `id` is live; `conn_param` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    guard::zero("rdma_accept", || {
        // SAFETY: the caller's contract.
        let wish = unsafe { Wish::read(conn_param) }?;
        let (key, datagram) = {
            let mut world = world::lock();
            let phases = [Phase::Requested, Phase::Connecting];
            let key = world::require(&mut world, id, &phases, "accept")?;
            (key, world.id(id)?.datagram)
        };
        if datagram {
            return answer_with_queue(key, wish.unwrap_or_else(Wish::full));
        }
        if !world::lock().id(id)?.passive {
            // Before rdma_establish there was this way to say that the active side is ready.
            return channel::establish(key);
        }
        answer_with_connection(key, wish.unwrap_or_else(Wish::full))?;
        channel::complete(id)
    })
}

fn answer_with_connection(key: IdKey, wish: Wish) -> Result<(), Failure> {
    let has_queue = {
        let mut world = world::lock();
        let Some(entry) = world.ids.get(&key) else {
            return Err(Failure::invalid("id is destroyed"));
        };
        let (offered, device) = (entry.limits, entry.device);
        let device = device.ok_or_else(|| Failure::invalid("id is on no device"))?;
        // This side may not ask for more than the peer gives.
        let wished = Limits {
            responder_resources: match wish.limits.responder_resources {
                u8::MAX => offered.responder_resources,
                chosen => chosen,
            },
            initiator_depth: wish.limits.initiator_depth.min(offered.initiator_depth),
            retry_count: offered.retry_count,
        };
        let limits = clamp(&world, device, wished);
        let Some(entry) = world.ids.get_mut(&key) else {
            return Err(Failure::invalid("id is destroyed"));
        };
        entry.limits = limits;
        !entry.qp().is_null()
    };
    if has_queue {
        queue::make_ready(key)?;
    }
    let mut world = world::lock();
    let Some(entry) = world.ids.get_mut(&key) else {
        return Err(Failure::invalid("id is destroyed"));
    };
    let (qpn, srq) = wish.queue(entry)?;
    let (Some(device), Some(connection)) = (entry.device, entry.connection) else {
        return Err(Failure::new(libc::ENOTCONN, "the request is gone"));
    };
    entry.phase = Phase::Connecting;
    let (psn, ece, limits) = (entry.psn, entry.ece, entry.limits);
    let target_ack_delay = world.devices.list[device].ack_delay;
    let accept = Accept {
        srq,
        responder_resources: limits.responder_resources,
        initiator_depth: limits.initiator_depth,
        flow_control: wish.flow_control,
        rnr_retry_count: wish.rnr_retry_count,
        target_ack_delay,
        ece,
        private_data: &wish.private_data,
        ..Accept::new(Qpn::new(qpn), Psn::new(psn))
    };
    let agent = world.agent(device)?;
    let sent = agent.cm.accept(sys::now(), connection, &accept);
    let sent = sent.map_err(of_cm);
    world.settle();
    drop(world);
    if sent.is_err() && has_queue {
        queue::fail(key);
    }
    sent
}

fn answer_with_queue(key: IdKey, wish: Wish) -> Result<(), Failure> {
    let mut world = world::lock();
    let Some(entry) = world.ids.get_mut(&key) else {
        return Err(Failure::invalid("id is destroyed"));
    };
    let (qpn, _) = wish.queue(entry)?;
    let (Some(device), Some(request)) = (entry.device, entry.request.take()) else {
        return Err(Failure::new(libc::ENOTCONN, "the request is gone"));
    };
    entry.phase = Phase::Connected;
    let reply = SidrReply {
        status: SidrStatus::SUCCESS,
        qpn: Qpn::new(qpn),
        qkey: abi::RDMA_UDP_QKEY,
        ece: entry.ece,
        information: &[],
        private_data: &wish.private_data,
    };
    let agent = world.agent(device)?;
    agent.requests.remove(&request);
    let sent = agent.cm.sidr_reply(sys::now(), request, &reply);
    world.settle();
    sent.map_err(of_cm)
}

/// Rejects a request, or a reply.
///
/// # Safety
/// `id` is live; `private_data` is null or has `private_data_len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    guard::zero("rdma_reject", || {
        // SAFETY: the caller's contract.
        let data = unsafe { read_data(private_data, private_data_len) }?;
        reject(id, RejectReason::CONSUMER_DEFINED, &data)
    })
}

/// Rejects a request because of what the peer offers for enhanced connection establishment.
///
/// # Safety
/// `id` is live; `private_data` is null or has `private_data_len` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    guard::zero("rdma_reject_ece", || {
        // SAFETY: the caller's contract.
        let data = unsafe { read_data(private_data, private_data_len) }?;
        reject(id, ECE_REFUSED, &data)
    })
}

fn reject(id: *mut rdma_cm_id, reason: RejectReason, data: &[u8]) -> Result<(), Failure> {
    let mut world = world::lock();
    let entry = world.id(id)?;
    let gone = || Failure::new(libc::ENOTCONN, "there is no request to reject");
    let device = entry.device.ok_or_else(gone)?;
    if let Some(request) = entry.request {
        let reply = SidrReply::rejected(data);
        let agent = world.agent(device)?;
        agent
            .cm
            .sidr_reply(sys::now(), request, &reply)
            .map_err(of_cm)?;
        agent.requests.remove(&request);
        world.id(id)?.request = None;
    } else {
        let connection = entry.connection.ok_or_else(gone)?;
        let reject = Reject {
            reason,
            information: &[],
            private_data: data,
        };
        let agent = world.agent(device)?;
        agent
            .cm
            .reject(sys::now(), connection, &reject)
            .map_err(of_cm)?;
    }
    world.id(id)?.phase = Phase::Over;
    world.settle();
    Ok(())
}
