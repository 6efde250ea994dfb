//! Groups: joining and leaving them, on real IP group membership, which the device keeps for the
//! queue pairs that are attached. Not here: how a group becomes a membership (the verbs library).

use std::ffi::{c_int, c_void};

use feroce_proto::cm::Route;
use feroce_verbs_abi as abi;
use feroce_verbs_abi::functions as verbs;
use feroce_verbs_abi::{ibv_gid, rdma_cm_id, rdma_cm_join_mc_attr_ex};
use libc::sockaddr;

use crate::address::SocketAddress;
use crate::channel;
use crate::device::IdKey;
use crate::guard::{self, Failure};
use crate::route;
use crate::state::{Action, AddressHandle, Event, Membership, Param, Phase};
use crate::world::{self, World};

/// Joins a group; the event tells how to send to it. The queue pair of the identifier, if there is
/// one, receives what is sent to the group.
///
/// # Safety
/// `id` is live; `addr` is as long as its family says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    guard::zero("rdma_join_multicast", || {
        // SAFETY: the caller's contract.
        let group = unsafe { SocketAddress::read(addr, "addr") }?;
        join(id, group, context, true)
    })
}

/// As [`rdma_join_multicast`], perhaps only to send.
///
/// # Safety
/// `id` and `mc_join_attr` are live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    guard::zero("rdma_join_multicast_ex", || {
        guard::not_null(mc_join_attr, "mc_join_attr")?;
        // SAFETY: the caller's contract.
        let attributes = unsafe { mc_join_attr.read() };
        let both = abi::RDMA_CM_JOIN_MC_ATTR_ADDRESS | abi::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
        if attributes.comp_mask != both {
            return Err(Failure::invalid(format!(
                "comp_mask is {:#x}: address and join_flags must be there, and nothing else",
                attributes.comp_mask
            )));
        }
        if attributes.join_flags >= abi::RDMA_MC_JOIN_FLAG_RESERVED {
            return Err(Failure::invalid("join_flags is none of the known values"));
        }
        let receives = attributes.join_flags == abi::RDMA_MC_JOIN_FLAG_FULLMEMBER;
        // SAFETY: the caller's contract.
        let group = unsafe { SocketAddress::read(attributes.addr, "addr") }?;
        join(id, group, context, receives)
    })
}

fn join(
    id: *mut rdma_cm_id,
    group: SocketAddress,
    context: *mut c_void,
    receives: bool,
) -> Result<(), Failure> {
    if !group.ip.is_multicast() {
        return Err(Failure::invalid(format!("{} is no group", group.ip)));
    }
    {
        let mut world = world::lock();
        let entry = world.id(id)?;
        let known = [Phase::Bound, Phase::AddressResolved, Phase::RouteResolved];
        let (Some(device), Some(local)) = (entry.device, entry.local) else {
            return Err(Failure::invalid(
                "id is on no device: bind it to an address or resolve one first",
            ));
        };
        if !entry.datagram || !(known.contains(&entry.phase) || entry.phase == Phase::Connected) {
            return Err(Failure::invalid(
                "groups are for RDMA_PS_UDP and RDMA_PS_IPOIB",
            ));
        }
        if entry
            .memberships
            .iter()
            .any(|member| member.group.ip == group.ip)
        {
            return Err(Failure::new(libc::EADDRINUSE, "id is in the group already"));
        }
        let options = entry.options;
        let way = Route {
            local: local.canonical().ip,
            remote: group.ip,
            traffic_class: options.traffic_class,
            hop_limit: 1,
            flow_label: 0,
            scope_id: local.scope,
        };
        let path = route::path(&world.devices.list[device], local.canonical(), way, options)?;
        let param = Param::Group {
            address: Box::new(AddressHandle(route::address_vector(&path))),
            context: context.expose_provenance(),
        };
        world.id(id)?.memberships.push(Membership {
            group,
            attached: false,
        });
        let action = if receives {
            Action::Attach
        } else {
            Action::Nothing
        };
        let kind = abi::RDMA_CM_EVENT_MULTICAST_JOIN;
        world.post(id.addr(), kind, 0, param, action);
    }
    channel::complete(id)
}

/// The program takes the event of a join: attaches the queue pair.
pub(crate) fn attach(id: IdKey, event: &mut Event) {
    // SAFETY: events of joins carry details of datagrams.
    let group = unsafe { event.c.param.ud.ah_attr.grh.dgid };
    let qp = {
        let world = world::lock();
        world
            .ids
            .get(&id)
            .map_or(std::ptr::null_mut(), |id| id.qp())
    };
    if qp.is_null() {
        return;
    }
    // SAFETY: the queue pair on an identifier is live.
    let result = unsafe { verbs::ibv_attach_mcast(qp, &raw const group, 0) };
    let mut world = world::lock();
    let Some(entry) = world.ids.get_mut(&id) else {
        return;
    };
    // SAFETY: both members of the union are sixteen bytes.
    let raw = unsafe { group.raw };
    let found = entry
        .memberships
        .iter()
        .position(|member| member.group.gid() == raw);
    match (result, found) {
        (0, Some(index)) => entry.memberships[index].attached = true,
        (0, None) => {}
        (errno, found) => {
            event.c.event = abi::RDMA_CM_EVENT_MULTICAST_ERROR;
            event.c.status = -errno;
            if let Some(index) = found {
                entry.memberships.remove(index);
            }
        }
    }
}

/// Leaves a group.
///
/// # Safety
/// `id` is live; `addr` is as long as its family says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    guard::zero("rdma_leave_multicast", || {
        // SAFETY: the caller's contract.
        let group = unsafe { SocketAddress::read(addr, "addr") }?;
        let mut world = world::lock();
        let entry = world.id(id)?;
        let found = entry
            .memberships
            .iter()
            .position(|member| member.group.ip == group.ip);
        let found = found.ok_or_else(|| {
            Failure::new(
                libc::EADDRNOTAVAIL,
                format!("id is not in the group {}", group.ip),
            )
        })?;
        let membership = entry.memberships.remove(found);
        let qp = entry.qp();
        drop(world);
        detach(qp, &membership);
        Ok(())
    })
}

/// Leaves all groups.
pub(crate) fn leave_all(world: &mut World, id: IdKey) {
    if let Some(entry) = world.ids.get_mut(&id) {
        let qp = entry.qp();
        for membership in std::mem::take(&mut entry.memberships) {
            detach(qp, &membership);
        }
    }
}

fn detach(qp: *mut abi::ibv_qp, membership: &Membership) {
    if membership.attached && !qp.is_null() {
        let group = ibv_gid {
            raw: membership.group.gid(),
        };
        // SAFETY: the queue pair on an identifier is live.
        unsafe { verbs::ibv_detach_mcast(qp, &raw const group, 0) };
    }
}
