//! Connections: resolving, connecting, ending. Not here: the passive side (`answer`), the messages
//! (`feroce_proto::cm`) and the events (`happen`, `channel`).

use std::ffi::{c_int, c_void};

use feroce_proto::Mtu;
use feroce_proto::cm::{CmError, Connect, SidrRequest};
use feroce_verbs_abi as abi;
use feroce_verbs_abi::gsi;
use feroce_verbs_abi::{ibv_event_type, rdma_cm_id, rdma_conn_param};
use feroce_wire::cm::{IpCmHeader, ServiceId};
use feroce_wire::{DEFAULT_PKEY, Psn, Qpn};
use libc::sockaddr;

use crate::address::SocketAddress;
use crate::device::{DeviceKey, IdKey};
use crate::guard::{self, Failure};
use crate::state::{Action, Id, Limits, Param, Path, Phase};
use crate::world::{self, World};
use crate::{channel, id, queue, route, sys};

/// Code of the time in which a peer answers: 4.3 s.
const RESPONSE_TIMEOUT: u8 = 20;

/// Repetitions of an unanswered message.
const RETRIES: u8 = 15;

/// The largest value of a retry count.
const RETRY_COUNT_MAX: u8 = 7;

/// Finds the way to an address, and with it the device.
///
/// # Safety
/// `id` is live; `src_addr` is null or, like `dst_addr`, as long as its family says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    guard::zero("rdma_resolve_addr", || {
        // The kernel knows at once.
        let _ = timeout_ms;
        let source = if src_addr.is_null() {
            None
        } else {
            // SAFETY: the caller's contract.
            Some(unsafe { SocketAddress::read(src_addr, "src_addr") }?)
        };
        // SAFETY: the caller's contract.
        let destination = unsafe { SocketAddress::read(dst_addr, "dst_addr") }?;
        resolve_address(id, source, destination)?;
        channel::complete(id)
    })
}

/// Finds the way to an address; the event is posted.
pub(crate) fn resolve_address(
    id: *mut rdma_cm_id,
    source: Option<SocketAddress>,
    destination: SocketAddress,
) -> Result<(), Failure> {
    let mut world = world::lock();
    let phases = [Phase::Idle, Phase::Bound];
    let key = world::require(&mut world, id, &phases, "resolve an address")?;
    let entry = world.id(id)?;
    let (port_space, options) = (entry.port_space, entry.options);
    let local = entry.local.or(source);
    // A destination of "any" is this host.
    let destination = if destination.ip.is_unspecified() {
        let loopback = match destination.family() {
            libc::AF_INET6 => std::net::Ipv6Addr::LOCALHOST.into(),
            _ => std::net::Ipv4Addr::LOCALHOST.into(),
        };
        SocketAddress {
            ip: loopback,
            ..destination
        }
    } else {
        destination
    };
    let canonical = destination.canonical();
    let bound = local.map(SocketAddress::canonical);
    let bound = bound.filter(|local| local.family() == canonical.family());
    let (device, mut local, path) = world.find_way(bound, canonical, options)?;
    let entry = world.id(id)?;
    if entry.claim.is_none() {
        let flags = if local.port == 0 {
            gsi::FEROCE_GSI_CLAIM_CONNECT
        } else {
            0
        };
        let (claim, port) = id::claim(port_space, local, options, flags)?;
        entry.claim = Some(claim);
        local.port = port;
    }
    entry.device = Some(device);
    entry.local = Some(local);
    entry.remote = Some(destination);
    entry.path = Some(path);
    entry.phase = Phase::AddressResolved;
    // SAFETY: live, looked up just now.
    let c = unsafe { &mut *id };
    route::attach(c, &world.devices.list[device]);
    route::write_addresses(c, Some(local), Some(destination));
    let kind = abi::RDMA_CM_EVENT_ADDR_RESOLVED;
    world.post(key, kind, 0, Param::None, Action::Nothing);
    Ok(())
}

/// Finds the path to the peer. On Ethernet there is nothing more to find.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    guard::zero("rdma_resolve_route", || {
        let _ = timeout_ms;
        resolve_route(id)?;
        channel::complete(id)
    })
}

/// Finds the path to the peer; the event is posted.
pub(crate) fn resolve_route(id: *mut rdma_cm_id) -> Result<(), Failure> {
    let mut world = world::lock();
    let phases = [Phase::AddressResolved];
    let key = world::require(&mut world, id, &phases, "resolve a route")?;
    let entry = world.id(id)?;
    entry.phase = Phase::RouteResolved;
    if let Some(path) = &entry.path {
        // SAFETY: live, looked up just now.
        route::write_path(unsafe { &mut *id }, path);
    }
    let kind = abi::RDMA_CM_EVENT_ROUTE_RESOLVED;
    world.post(key, kind, 0, Param::None, Action::Nothing);
    Ok(())
}

pub(crate) const fn service_id(port_space: u16, port: u16) -> ServiceId {
    ServiceId((port_space as u64) << 16 | port as u64)
}

/// What the program says of a connection, copied.
#[derive(Clone)]
pub(crate) struct Wish {
    pub(crate) private_data: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) flow_control: bool,
    pub(crate) rnr_retry_count: u8,
    srq: bool,
    qpn: u32,
}

impl Wish {
    /// # Safety
    /// `param` is null or live, its private data as long as it says.
    pub(crate) unsafe fn read(param: *const rdma_conn_param) -> Result<Option<Self>, Failure> {
        if param.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's contract.
        let param = unsafe { &*param };
        Ok(Some(Self {
            // SAFETY: the caller's contract.
            private_data: unsafe { read_data(param.private_data, param.private_data_len) }?,
            limits: Limits {
                responder_resources: param.responder_resources,
                initiator_depth: param.initiator_depth,
                retry_count: param.retry_count.min(RETRY_COUNT_MAX),
            },
            flow_control: param.flow_control != 0,
            rnr_retry_count: param.rnr_retry_count.min(RETRY_COUNT_MAX),
            srq: param.srq != 0,
            qpn: param.qp_num,
        }))
    }

    /// What a connection is like if the program says nothing: as much as the device does.
    pub(crate) const fn full() -> Self {
        Self {
            private_data: Vec::new(),
            limits: Limits {
                responder_resources: u8::MAX,
                initiator_depth: u8::MAX,
                retry_count: RETRY_COUNT_MAX,
            },
            flow_control: false,
            rnr_retry_count: RETRY_COUNT_MAX,
            srq: false,
            qpn: 0,
        }
    }

    /// The queue pair, and whether it has a shared receive queue: what is on the identifier
    /// counts, else what the program says.
    pub(crate) fn queue(&self, entry: &Id) -> Result<(u32, bool), Failure> {
        let qp = entry.qp();
        if qp.is_null() {
            if self.qpn == 0 {
                return Err(Failure::invalid(
                    "id has no queue pair and conn_param names none",
                ));
            }
            return Ok((self.qpn, self.srq));
        }
        // SAFETY: the queue pair on an identifier is live.
        Ok(unsafe { ((*qp).qp_num, !(*qp).srq.is_null()) })
    }
}

/// # Safety
/// `data` is null or has `length` bytes.
pub(crate) unsafe fn read_data(data: *const c_void, length: u8) -> Result<Vec<u8>, Failure> {
    if length == 0 {
        return Ok(Vec::new());
    }
    if data.is_null() {
        return Err(Failure::invalid(format!(
            "private_data is a null pointer, but private_data_len is {length}"
        )));
    }
    // SAFETY: the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) }.to_vec())
}

pub(crate) fn of_cm(error: CmError) -> Failure {
    let errno = match error {
        CmError::Full(_) => libc::ENOMEM,
        CmError::UnknownConnection(_) | CmError::UnknownSidr(_) => libc::ENOTCONN,
        _ => libc::EINVAL,
    };
    Failure::new(errno, error.to_string())
}

/// Asks the peer for a connection, or for its datagram queue pair.
///
/// # Safety
/// `id` is live; `conn_param` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    guard::zero("rdma_connect", || {
        // SAFETY: the caller's contract.
        let wish = unsafe { Wish::read(conn_param) }?.unwrap_or_else(Wish::full);
        {
            let mut world = world::lock();
            let phases = [Phase::RouteResolved];
            let key = world::require(&mut world, id, &phases, "connect")?;
            ask(&mut world, key, &wish)?;
            if let Some(entry) = world.ids.get_mut(&key) {
                entry.again.wish = Some(wish);
            }
            world.settle();
        }
        channel::complete(id)
    })
}

/// Everything that a request needs to know of an identifier.
fn ends(entry: &Id) -> Result<(DeviceKey, Path, IpCmHeader, ServiceId), Failure> {
    let unresolved = || Failure::invalid("id has no route: resolve address and route first");
    let device = entry.device.ok_or_else(unresolved)?;
    let path = entry.path.ok_or_else(unresolved)?;
    let local = entry.local.ok_or_else(unresolved)?;
    let remote = entry.remote.ok_or_else(unresolved)?;
    let header = IpCmHeader {
        source: local.canonical().ip,
        source_port: local.port,
        destination: remote.canonical().ip,
    };
    Ok((
        device,
        path,
        header,
        service_id(entry.port_space, remote.port),
    ))
}

/// Sends the request.
pub(crate) fn ask(world: &mut World, key: IdKey, wish: &Wish) -> Result<(), Failure> {
    if world.ids.get(&key).is_some_and(|entry| entry.datagram) {
        ask_for_queue(world, key, wish)
    } else {
        ask_for_connection(world, key, wish)
    }
}

fn ask_for_connection(world: &mut World, key: IdKey, wish: &Wish) -> Result<(), Failure> {
    let Some(entry) = world.ids.get(&key) else {
        return Err(Failure::invalid("id is destroyed"));
    };
    let (device, path, header, service) = ends(entry)?;
    let (qpn, srq) = wish.queue(entry)?;
    let (psn, ece, transport) = (entry.psn, entry.ece, entry.transport);
    let limits = clamp(world, device, wish.limits);
    let request = Connect {
        ip: Some(header),
        transport,
        srq,
        responder_resources: limits.responder_resources,
        initiator_depth: limits.initiator_depth,
        flow_control: wish.flow_control,
        retry_count: limits.retry_count,
        rnr_retry_count: wish.rnr_retry_count,
        path_mtu: Mtu::from_code(path.mtu).unwrap_or(Mtu::Mtu1024),
        pkey: DEFAULT_PKEY,
        local_ack_timeout: path.ack_timeout,
        remote_cm_response_timeout: RESPONSE_TIMEOUT,
        local_cm_response_timeout: RESPONSE_TIMEOUT,
        max_cm_retries: RETRIES,
        ece,
        private_data: &wish.private_data,
        ..Connect::new(path.route, service, Qpn::new(qpn), Psn::new(psn))
    };
    let agent = world.agent(device)?;
    let connection = agent.cm.connect(sys::now(), &request).map_err(of_cm)?;
    agent.connections.insert(connection, key);
    if let Some(entry) = world.ids.get_mut(&key) {
        entry.connection = Some(connection);
        entry.limits = limits;
        entry.phase = Phase::Connecting;
    }
    Ok(())
}

fn ask_for_queue(world: &mut World, key: IdKey, wish: &Wish) -> Result<(), Failure> {
    let Some(entry) = world.ids.get(&key) else {
        return Err(Failure::invalid("id is destroyed"));
    };
    let (device, path, header, service) = ends(entry)?;
    let request = SidrRequest {
        route: path.route,
        service_id: service,
        ip: Some(header),
        pkey: DEFAULT_PKEY,
        response_timeout: RESPONSE_TIMEOUT,
        max_cm_retries: RETRIES,
        private_data: &wish.private_data,
    };
    let agent = world.agent(device)?;
    let sent = agent.cm.sidr_request(sys::now(), &request).map_err(of_cm)?;
    agent.requests.insert(sent, key);
    if let Some(entry) = world.ids.get_mut(&key) {
        entry.request = Some(sent);
        entry.phase = Phase::Connecting;
    }
    Ok(())
}

/// What the device can do of what is wished.
pub(crate) fn clamp(world: &World, device: DeviceKey, limits: Limits) -> Limits {
    let (reads, initiated) = world.device_limits(device);
    Limits {
        responder_resources: limits.responder_resources.min(reads),
        initiator_depth: limits.initiator_depth.min(initiated),
        retry_count: limits.retry_count,
    }
}

/// Active side, with a queue pair of the program's own: it is ready.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    guard::zero("rdma_establish", || {
        let has_queue = !world::lock().id(id)?.qp().is_null();
        if has_queue {
            return Err(Failure::invalid(
                "id has a queue pair: the library establishes the connection itself",
            ));
        }
        channel::establish(id.addr())
    })
}

/// The queue pair has told something that concerns the connection.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    guard::zero("rdma_notify", || {
        if event != abi::IBV_EVENT_COMM_EST {
            return Err(Failure::invalid(format!(
                "event {event}: only IBV_EVENT_COMM_EST means something here"
            )));
        }
        let mut world = world::lock();
        let entry = world.id(id)?;
        let (Some(device), Some(connection)) = (entry.device, entry.connection) else {
            return Err(Failure::new(libc::ENOTCONN, "id has no connection"));
        };
        let agent = world.agent(device)?;
        let result = agent.cm.traffic_arrived(sys::now(), connection);
        world.settle();
        result.map_err(of_cm)
    })
}

/// Ends a connection: the queue pair goes to the error state, the peer is told.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    guard::zero("rdma_disconnect", || {
        {
            let mut world = world::lock();
            let phases = [Phase::Connecting, Phase::Connected, Phase::Over];
            let key = world::require(&mut world, id, &phases, "disconnect")?;
            if world.id(id)?.sync && !world.awaits_end(key) {
                // It is over, and the program has taken the event.
                return Ok(());
            }
        }
        queue::fail(id.addr());
        {
            let mut world = world::lock();
            let entry = world.id(id)?;
            if let (Some(device), Some(connection)) = (entry.device, entry.connection) {
                let agent = world.agent(device)?;
                let sent = agent.cm.disconnect(sys::now(), connection, &[]);
                world.settle();
                sent.map_err(of_cm)?;
            } else if !entry.datagram {
                // It is over, and has been told; or it was about to be asked for again.
                entry.phase = Phase::Over;
                return Ok(());
            }
            if world.id(id)?.datagram {
                return Err(Failure::invalid("a datagram identifier has no connection"));
            }
        }
        channel::complete(id)
    })
}
