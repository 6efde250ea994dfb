//! Identifiers: creating, binding, moving and destroying them, and their options. Not here:
//! connections (`connect`).

use std::ffi::{c_int, c_void};
use std::ptr;

use feroce_proto::cm::{ConnectionId, SidrId};
use feroce_verbs_abi as abi;
use feroce_verbs_abi::gsi;
use feroce_verbs_abi::{__be16, ibv_ece, rdma_cm_id, rdma_event_channel, rdma_port_space};
use feroce_wire::cm::Ece;
use libc::sockaddr;

use crate::address::{self, SocketAddress};
use crate::device::{DeviceKey, IdKey, Shared};
use crate::guard::{self, Failure};
use crate::state::{Claim, Id, Options, Phase};
use crate::world::{self, World};
use crate::{channel, multicast, queue, route, sys};

/// Creates an identifier; without a channel its calls wait for their events.
///
/// # Safety
/// `channel` is null or live; `id` has room for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    guard::zero("rdma_create_id", || {
        guard::not_null(id, "id")?;
        let qp_type = match ps {
            abi::RDMA_PS_UDP | abi::RDMA_PS_IPOIB => abi::IBV_QPT_UD,
            _ => abi::IBV_QPT_RC,
        };
        let created = create(channel, context, ps, qp_type)?;
        // SAFETY: the caller's contract.
        unsafe { id.write(created) };
        Ok(())
    })
}

/// Creates an identifier for one kind of queue pair.
pub(crate) fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    ps: rdma_port_space,
    qp_type: abi::ibv_qp_type,
) -> Result<*mut rdma_cm_id, Failure> {
    let number = match ps {
        abi::RDMA_PS_TCP | abi::RDMA_PS_UDP | abi::RDMA_PS_IPOIB | abi::RDMA_PS_IB => ps as u16,
        other => {
            return Err(Failure::new(
                libc::EPROTONOSUPPORT,
                format!("port space {other:#x} is none of RDMA_PS_TCP, UDP, IPOIB, IB"),
            ));
        }
    };
    let mut world = world::lock();
    let sync = channel.is_null();
    let channel = if sync {
        channel::create(&mut world)?
    } else {
        world.channel(channel)?;
        channel
    };
    let c = rdma_cm_id {
        channel,
        context,
        ps,
        qp_type,
        ..rdma_cm_id::default()
    };
    let c = Shared(Box::into_raw(Box::new(c)));
    let mut entry = Id::new(c, channel.addr(), number);
    entry.sync = sync;
    entry.datagram = qp_type == abi::IBV_QPT_UD;
    entry.transport = match qp_type {
        abi::IBV_QPT_XRC_SEND | abi::IBV_QPT_XRC_RECV => feroce_wire::cm::Transport::Xrc,
        abi::IBV_QPT_UC => feroce_wire::cm::Transport::Uc,
        _ => feroce_wire::cm::Transport::Rc,
    };
    world.ids.insert(c.0.addr(), entry);
    Ok(c.0)
}

/// Destroys an identifier; waits until its events are acknowledged.
///
/// # Safety
/// `id` is live; its queue pair was destroyed before.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    guard::zero("rdma_destroy_id", || destroy(id))
}

/// Destroys an identifier.
pub(crate) fn destroy(id: *mut rdma_cm_id) -> Result<(), Failure> {
    let key = id.addr();
    let hall = world::hall();
    let sync = hall.lock().id(id)?.sync;
    if sync {
        channel::forget_event(id);
    }
    let mut world = hall.lock();
    world.id(id)?;
    multicast::leave_all(&mut world, key);
    silence(&mut world, key);
    loop {
        let Some(entry) = world.ids.get(&key) else {
            return Err(Failure::invalid("id is destroyed twice"));
        };
        if entry.unacknowledged == 0 {
            break;
        }
        world = hall
            .acknowledged
            .wait(world)
            .unwrap_or_else(std::sync::PoisonError::into_inner);
    }
    bury(&mut world, key);
    world.settle();
    Ok(())
}

/// Ends whatever an identifier has under way; no event of it follows.
fn silence(world: &mut World, key: IdKey) {
    let Some(entry) = world.ids.get_mut(&key) else {
        return;
    };
    let listeners = std::mem::take(&mut entry.listeners);
    entry.claim = None;
    let (device, channel) = (entry.device, entry.channel);
    let (connection, request) = (entry.connection.take(), entry.request.take());
    for (device, listener) in listeners {
        if let Some(agent) = &mut world.devices.list[device].agent {
            agent.cm.unlisten(listener);
            agent.listeners.remove(&listener);
        }
    }
    if let Some(device) = device {
        abandon(world, device, connection, request);
    }
    for pending in world.extract(channel, channel::is_of(key)) {
        let other = pending.event.c.id.addr();
        // A request that the program never saw: its identifier goes with the listener.
        if other != key {
            silence(world, other);
            bury(world, other);
        }
    }
    world.settle();
}

fn abandon(
    world: &mut World,
    device: DeviceKey,
    connection: Option<ConnectionId>,
    request: Option<SidrId>,
) {
    let Some(agent) = &mut world.devices.list[device].agent else {
        return;
    };
    let now = sys::now();
    if let Some(connection) = connection {
        agent.connections.remove(&connection);
        agent.cm.abandon(now, connection);
    }
    if let Some(request) = request {
        agent.requests.remove(&request);
        agent.cm.sidr_abandon(now, request);
    }
}

/// Takes an identifier out of the table, and frees it.
fn bury(world: &mut World, key: IdKey) {
    let Some(entry) = world.ids.remove(&key) else {
        return;
    };
    if entry.sync {
        channel::destroy(world, entry.channel);
    }
    // SAFETY: made from a box; nobody finds it any more.
    let mut c = unsafe { Box::from_raw(entry.c.0) };
    queue::destroy_queues(&mut c);
    route::forget_path(&mut c);
}

/// Binds an identifier to an address of this host, or to a port on all of them.
///
/// # Safety
/// `id` is live; `addr` is as long as its family says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    guard::zero("rdma_bind_addr", || {
        // SAFETY: the caller's contract.
        bind(id, unsafe { SocketAddress::read(addr, "addr") }?)
    })
}

/// Binds an identifier.
pub(crate) fn bind(id: *mut rdma_cm_id, address: SocketAddress) -> Result<(), Failure> {
    let mut world = world::lock();
    world::require(&mut world, id, &[Phase::Idle], "bind")?;
    let (device, address) = if address.ip.is_unspecified() {
        (None, address)
    } else {
        let (device, address) = world.devices.bindable(address)?;
        (Some(device), address)
    };
    let entry = world.id(id)?;
    let (claim, port) = claim(entry.port_space, address, entry.options, 0)?;
    let local = SocketAddress { port, ..address };
    entry.claim = Some(claim);
    entry.local = Some(local);
    entry.phase = Phase::Bound;
    entry.device = device;
    // SAFETY: live, looked up just now.
    let c = unsafe { &mut *id };
    route::write_addresses(c, Some(local), None);
    if let Some(device) = device {
        route::attach(c, &world.devices.list[device]);
    }
    Ok(())
}

/// Takes a port; says which it is.
pub(crate) fn claim(
    port_space: u16,
    address: SocketAddress,
    options: Options,
    flags: u32,
) -> Result<(Claim, u16), Failure> {
    let mut flags = flags;
    if options.reuse_address {
        flags |= gsi::FEROCE_GSI_CLAIM_REUSE;
    }
    if options.one_family {
        flags |= gsi::FEROCE_GSI_CLAIM_AFONLY;
    }
    let wanted = gsi::feroce_gsi_claim {
        service_id: 0,
        ip: address.gid(),
        flags,
        scope_id: address.scope,
        port_space,
        port: address.port,
        family: address.family() as u16,
        reserved: 0,
    };
    let (mut handle, mut port) = (ptr::null_mut(), 0);
    // SAFETY: a claim, room for a handle and a port.
    let result =
        unsafe { gsi::feroce_gsi_claim(&raw const wanted, &raw mut handle, &raw mut port) };
    if result != 0 {
        let what = format!("port {} on {}", address.port, address.ip);
        return Err(Failure::of(result, &what));
    }
    Ok((Claim(Shared(handle)), port))
}

/// Moves an identifier, with the events that wait for it, to another channel; without one its
/// calls wait for their events from now on.
///
/// # Safety
/// `id` is live; `channel` is null or live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    guard::zero("rdma_migrate_id", || migrate(id, channel))
}

/// Moves an identifier.
pub(crate) fn migrate(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> Result<(), Failure> {
    let hall = world::hall();
    let was_sync = hall.lock().id(id)?.sync;
    if was_sync && !channel.is_null() {
        channel::forget_event(id);
    }
    let mut world = hall.lock();
    let sync = channel.is_null();
    if sync && world.id(id)?.sync {
        return Err(Failure::invalid("id is in synchronous use already"));
    }
    let target = if sync {
        channel::create(&mut world)?
    } else {
        world.channel(channel)?;
        channel
    };
    let key = id.addr();
    let old = world.id(id)?.channel;
    let pending = world.extract(old, channel::is_of(key));
    let entry = world.id(id)?;
    entry.channel = target.addr();
    entry.sync = sync;
    // SAFETY: live, looked up just now.
    unsafe { (*id).channel = target };
    for pending in pending {
        world.enqueue(target.addr(), pending);
    }
    if was_sync {
        channel::destroy(&mut world, old);
    }
    Ok(())
}

/// Sets an option; see rdma_set_option(3).
///
/// # Safety
/// `id` is live; `optval` has `optlen` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    guard::zero("rdma_set_option", || {
        guard::not_null(optval, "optval")?;
        let mut world = world::lock();
        let entry = world.id(id)?;
        if level != abi::RDMA_OPTION_ID as c_int {
            return Err(Failure::new(
                libc::ENOSYS,
                format!("option level {level}: paths of InfiniBand are not for RoCE devices"),
            ));
        }
        let byte = || match optlen {
            // SAFETY: the caller's contract.
            1.. => Ok(unsafe { optval.cast::<u8>().read() }),
            0 => Err(Failure::invalid("optlen is 0")),
        };
        let flag = || match optlen {
            // SAFETY: the caller's contract.
            4.. => Ok(unsafe { optval.cast::<c_int>().read_unaligned() } != 0),
            _ => Err(Failure::invalid("optlen is less than the size of an int")),
        };
        let bound = entry.claim.is_some();
        match u32::try_from(optname) {
            Ok(abi::RDMA_OPTION_ID_TOS) => {
                let traffic_class = byte()?;
                entry.options.traffic_class = traffic_class;
                if let Some(path) = &mut entry.path {
                    path.route.traffic_class = traffic_class;
                }
            }
            Ok(abi::RDMA_OPTION_ID_REUSEADDR) => entry.options.reuse_address = flag()?,
            Ok(abi::RDMA_OPTION_ID_AFONLY) if bound => {
                return Err(Failure::invalid(
                    "id is bound: set RDMA_OPTION_ID_AFONLY before",
                ));
            }
            Ok(abi::RDMA_OPTION_ID_AFONLY) => entry.options.one_family = flag()?,
            Ok(abi::RDMA_OPTION_ID_ACK_TIMEOUT) => {
                let timeout = byte()?;
                if timeout > 31 {
                    return Err(Failure::invalid(format!(
                        "ACK timeout {timeout}: the code has five bits"
                    )));
                }
                entry.options.ack_timeout = (timeout != 0).then_some(timeout);
            }
            _ => {
                return Err(Failure::new(
                    libc::ENOSYS,
                    format!("option {optname} is not known"),
                ));
            }
        }
        Ok(())
    })
}

/// The local port, in network order; 0 if there is none.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16 {
    if id.is_null() {
        return 0;
    }
    // SAFETY: the caller's contract; the union's members are all addresses.
    address::port_of(unsafe { &(*id).route.addr.__bindgen_anon_1.src_storage })
}

/// The peer's port, in network order; 0 if there is none.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16 {
    if id.is_null() {
        return 0;
    }
    // SAFETY: the caller's contract; the union's members are all addresses.
    address::port_of(unsafe { &(*id).route.addr.__bindgen_anon_2.dst_storage })
}

/// Sets what the peer is told about enhanced connection establishment.
///
/// # Safety
/// `id` and `ece` are live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    guard::zero("rdma_set_local_ece", || {
        guard::not_null(ece, "ece")?;
        // SAFETY: the caller's contract.
        let ece = unsafe { ece.read() };
        if ece.comp_mask != 0 {
            return Err(Failure::invalid("ece->comp_mask is not 0"));
        }
        world::lock().id(id)?.ece = Ece {
            vendor_id: ece.vendor_id & 0x00ff_ffff,
            options: ece.options,
        };
        Ok(())
    })
}

/// What the peer told about enhanced connection establishment; zero if nothing.
///
/// # Safety
/// `id` is live, `ece` has room.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    guard::zero("rdma_get_remote_ece", || {
        guard::not_null(ece, "ece")?;
        let remote = world::lock().id(id)?.remote_ece;
        // SAFETY: the caller's contract.
        unsafe {
            ece.write(ibv_ece {
                vendor_id: remote.vendor_id,
                options: remote.options,
                comp_mask: 0,
            });
        }
        Ok(())
    })
}
