//! From addresses to the way of a connection: which device, which GID, which path record; and how
//! the C struct tells of it.

use feroce_proto::cm::Route;
use feroce_verbs_abi as abi;

use crate::address::SocketAddress;
use crate::device::{Device, DeviceKey};
use crate::guard::Failure;
use crate::state::{Options, Path};
use crate::sys;
use crate::world::World;

/// Hop limit of connections.
const HOP_LIMIT: u8 = 64;

/// Code of the local ACK timeout unless the program chooses one: 0.27 s.
const ACK_TIMEOUT: u8 = 16;

/// Code of a packet's life time that path records tell: half of the ACK timeout.
const PACKET_LIFE_TIME: u8 = ACK_TIMEOUT - 1;

/// The only port of a device.
pub(crate) const PORT: u8 = 1;

/// Selector of path records: exactly this value.
const EXACTLY: u8 = 2;

/// The way from `local`, an address of `device`, as `route` says.
pub(crate) fn path(
    device: &Device,
    local: SocketAddress,
    route: Route,
    options: Options,
) -> Result<Path, Failure> {
    let index = device.gid_index(&local).ok_or_else(|| {
        Failure::new(
            libc::ENODEV,
            format!(
                "{} is no GID of the device on {}",
                local.ip, device.interface
            ),
        )
    })?;
    Ok(Path {
        route: Route {
            hop_limit: HOP_LIMIT,
            ..route
        },
        gid_index: u8::try_from(index).unwrap_or_default(),
        mtu: device.mtu as u8,
        ack_timeout: options.ack_timeout.unwrap_or(ACK_TIMEOUT),
    })
}

impl World {
    /// Which of this host's addresses leads to `remote`, on which device.
    pub(crate) fn find_way(
        &mut self,
        local: Option<SocketAddress>,
        remote: SocketAddress,
        options: Options,
    ) -> Result<(DeviceKey, SocketAddress, Path), Failure> {
        let bound = local.filter(|local| !local.ip.is_unspecified());
        let source = match bound {
            // A group is everywhere: the address that is bound says where it is meant.
            Some(bound) if remote.ip.is_multicast() => bound,
            _ => sys::source_for(remote, bound).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(libc::ENETUNREACH);
                Failure::new(errno, format!("no way to {}: {error}", remote.ip))
            })?,
        };
        let scope = if remote.is_link_local() {
            remote.scope
        } else {
            0
        };
        let local = SocketAddress {
            ip: bound.map_or(source.ip, |bound| bound.ip),
            port: local.map_or(0, |local| local.port),
            scope,
        };
        let device = self.devices.of_address(&local)?;
        let route = Route {
            local: local.ip,
            remote: remote.ip,
            traffic_class: options.traffic_class,
            hop_limit: HOP_LIMIT,
            flow_label: 0,
            scope_id: scope,
        };
        let path = path(&self.devices.list[device], local, route, options)?;
        Ok((device, local, path))
    }
}

/// What an address handle, or a queue pair, needs for a way.
pub(crate) fn address_vector(path: &Path) -> abi::ibv_ah_attr {
    let mut address = abi::ibv_ah_attr {
        is_global: 1,
        port_num: PORT,
        ..abi::ibv_ah_attr::default()
    };
    address.grh.dgid.raw = feroce_proto::cm::gid_of(path.route.remote);
    address.grh.sgid_index = path.gid_index;
    address.grh.hop_limit = path.route.hop_limit;
    address.grh.traffic_class = path.route.traffic_class;
    address.grh.flow_label = path.route.flow_label;
    address
}

/// Tells the program which device an identifier is on.
pub(crate) fn attach(c: &mut abi::rdma_cm_id, device: &Device) {
    c.verbs = device.context.0;
    c.port_num = PORT;
    if c.pd.is_null() {
        c.pd = device.pd.0;
    }
}

/// Tells the program the addresses of an identifier, and the GIDs they stand for.
pub(crate) fn write_addresses(
    c: &mut abi::rdma_cm_id,
    local: Option<SocketAddress>,
    remote: Option<SocketAddress>,
) {
    let address = &mut c.route.addr;
    if let Some(local) = local {
        address.__bindgen_anon_1.src_storage = local.to_storage().0;
    }
    if let Some(remote) = remote {
        address.__bindgen_anon_2.dst_storage = remote.to_storage().0;
    }
    address.addr.ibaddr.pkey = 0xffff;
    let gid = |address: SocketAddress| abi::ibv_gid { raw: address.gid() };
    if let Some(local) = local {
        // SAFETY: the union has one member.
        unsafe { &mut address.addr.ibaddr }.sgid = gid(local);
    }
    if let Some(remote) = remote {
        // SAFETY: the union has one member.
        unsafe { &mut address.addr.ibaddr }.dgid = gid(remote);
    }
}

/// Tells the program the path of an identifier.
pub(crate) fn write_path(c: &mut abi::rdma_cm_id, path: &Path) {
    let mut record = abi::ibv_sa_path_rec {
        hop_limit: path.route.hop_limit,
        traffic_class: path.route.traffic_class,
        reversible: 1,
        numb_path: 1,
        pkey: 0xffff,
        mtu_selector: EXACTLY,
        mtu: path.mtu,
        rate_selector: EXACTLY,
        rate: 3, // IBV_RATE_10_GBPS
        packet_life_time_selector: EXACTLY,
        packet_life_time: PACKET_LIFE_TIME,
        ..abi::ibv_sa_path_rec::default()
    };
    record.sgid.raw = feroce_proto::cm::gid_of(path.route.local);
    record.dgid.raw = feroce_proto::cm::gid_of(path.route.remote);
    forget_path(c);
    c.route.path_rec = Box::into_raw(Box::new(record));
    c.route.num_paths = 1;
}

/// Takes the path back.
pub(crate) fn forget_path(c: &mut abi::rdma_cm_id) {
    let record = std::mem::replace(&mut c.route.path_rec, std::ptr::null_mut());
    c.route.num_paths = 0;
    if !record.is_null() {
        // SAFETY: only `write_path` writes the field, with a box.
        drop(unsafe { Box::from_raw(record) });
    }
}
