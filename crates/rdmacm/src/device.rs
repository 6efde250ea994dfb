//! The devices of this process: which interface they stand on, their context, their share of
//! queue pair 1 (the *agent*) with its communication manager.
//!
//! A device is opened when an address of it is first used and stays open, so that `id->verbs` is
//! the same for all identifiers on it, as programs expect. Not here: identifiers (`world`).

use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr;

use feroce_proto::cm::{Cm, CmConfig, ConnectionId, ListenerId, Route, SidrId, address_of, gid_of};
use feroce_proto::{Instant, Mtu};
use feroce_verbs_abi as abi;
use feroce_verbs_abi::functions as verbs;
use feroce_verbs_abi::gsi;
use feroce_wire::mad::Mad;

use crate::address::SocketAddress;
use crate::guard::Failure;
use crate::sys;

/// Place of a device in the table; devices are never removed.
pub(crate) type DeviceKey = usize;

/// Name of an identifier: its address in C.
pub(crate) type IdKey = usize;

/// A pointer that belongs to the library and may be used by any of its threads.
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

// SAFETY: what these pointers lead to (objects of our verbs library, and our own boxes) may be
// used from any thread; who writes what lies behind one says why that is alone.
unsafe impl<T> Send for Shared<T> {}

/// Datagrams that one round takes from an agent at most, so that none starves the others.
const ROUND_MADS_MAX: usize = 256;

/// The prefix of devices that speak RoCEv2.
const NAME_PREFIX: &str = "roce_";

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) interface: String,
    pub(crate) context: Shared<abi::ibv_context>,
    /// The protection domain for whoever brings none.
    pub(crate) pd: Shared<abi::ibv_pd>,
    /// The XRC domain for whoever brings none, once it is needed.
    pub(crate) xrcd: Shared<abi::ibv_xrcd>,
    pub(crate) reads_max: u8,
    pub(crate) initiated_reads_max: u8,
    pub(crate) ack_delay: u8,
    pub(crate) mtu: Mtu,
    pub(crate) agent: Option<Agent>,
    /// The interface is gone, and everyone on it has been told.
    pub(crate) removed: bool,
}

/// A device's share of queue pair 1, and who uses it.
#[derive(Debug)]
pub(crate) struct Agent {
    handle: Shared<gsi::feroce_gsi>,
    pub(crate) cm: Cm,
    pub(crate) connections: HashMap<ConnectionId, IdKey>,
    pub(crate) listeners: HashMap<ListenerId, IdKey>,
    pub(crate) requests: HashMap<SidrId, IdKey>,
}

impl Agent {
    fn open(context: *mut abi::ibv_context) -> Result<Self, Failure> {
        let mut handle = ptr::null_mut();
        // SAFETY: the context is open.
        let result = unsafe { gsi::feroce_gsi_open(context, &raw mut handle) };
        if result != 0 {
            let what = "the device's management queue pair (another librdmacm in this process?)";
            return Err(Failure::of(result, what));
        }
        // SAFETY: it was just opened.
        let slot = unsafe { gsi::feroce_gsi_slot(handle) };
        // SAFETY: an open context has a device.
        let guid = unsafe { verbs::ibv_get_device_guid((*context).device) };
        let config = CmConfig {
            slot: u16::try_from(slot).unwrap_or_default(),
            seed: sys::random(),
            ca_guid: u64::from_be(guid),
            ..CmConfig::default()
        };
        Ok(Self {
            handle: Shared(handle),
            cm: Cm::new(config),
            connections: HashMap::new(),
            listeners: HashMap::new(),
            requests: HashMap::new(),
        })
    }

    /// The descriptor that is readable while datagrams wait.
    pub(crate) fn fd(&self) -> i32 {
        // SAFETY: open.
        unsafe { gsi::feroce_gsi_fd(self.handle.0) }
    }

    /// Lets the communication manager see what has arrived and what is due.
    pub(crate) fn receive(&mut self, now: Instant) {
        for _ in 0..ROUND_MADS_MAX {
            let mut from = gsi::feroce_gsi_address::default();
            let mut mad: Mad = [0; gsi::FEROCE_GSI_MAD_SIZE];
            // SAFETY: open; room for an address and a datagram.
            let got =
                unsafe { gsi::feroce_gsi_receive(self.handle.0, &raw mut from, mad.as_mut_ptr()) };
            if got != 0 {
                break;
            }
            let route = Route {
                local: address_of(from.local),
                remote: address_of(from.remote),
                traffic_class: from.traffic_class,
                hop_limit: from.hop_limit,
                flow_label: from.flow_label,
                scope_id: from.scope_id,
            };
            self.cm.handle_mad(now, &route, &mad);
        }
        self.cm.handle_timeout(now);
    }

    /// Sends what the communication manager wants sent.
    pub(crate) fn transmit(&mut self) {
        while let Some((route, mad)) = self.cm.poll_transmit() {
            let to = gsi::feroce_gsi_address {
                local: gid_of(route.local),
                remote: gid_of(route.remote),
                traffic_class: route.traffic_class,
                hop_limit: route.hop_limit,
                reserved: 0,
                flow_label: route.flow_label,
                scope_id: route.scope_id,
            };
            // SAFETY: open; an address and a datagram.
            let result =
                unsafe { gsi::feroce_gsi_send(self.handle.0, &raw const to, mad.as_ptr()) };
            if result != 0 {
                // As good as lost: it is repeated like any.
                let error = std::io::Error::from_raw_os_error(result);
                log::info!("a message to {} was not sent: {error}", route.remote);
            }
        }
    }
}

impl Device {
    /// Opens the device of an interface.
    fn open(interface: &str) -> Result<Self, Failure> {
        let name = format!("{NAME_PREFIX}{interface}");
        let context = open_context(&name)?;
        // SAFETY: the context was just opened.
        let pd = unsafe { verbs::ibv_alloc_pd(context) };
        let mut attributes = abi::ibv_device_attr::default();
        // SAFETY: the context is open; room for the attributes.
        let result = unsafe { verbs::ibv_query_device(context, &raw mut attributes) };
        let failure = if pd.is_null() {
            Some(Failure::last("the default protection domain"))
        } else {
            (result != 0).then(|| Failure::of(result, "ibv_query_device"))
        };
        if let Some(failure) = failure {
            // SAFETY: nothing of the context is in use.
            unsafe { verbs::ibv_close_device(context) };
            return Err(failure);
        }
        let limit = |value: i32| u8::try_from(value).unwrap_or(u8::MAX);
        Ok(Self {
            interface: interface.to_owned(),
            context: Shared(context),
            pd: Shared(pd),
            xrcd: Shared(ptr::null_mut()),
            reads_max: limit(attributes.max_qp_rd_atom),
            initiated_reads_max: limit(attributes.max_qp_init_rd_atom),
            ack_delay: attributes.local_ca_ack_delay,
            mtu: active_mtu(context),
            agent: None,
            removed: false,
        })
    }

    /// The agent, opened when it is first needed.
    pub(crate) fn agent(&mut self) -> Result<&mut Agent, Failure> {
        if self.agent.is_none() {
            self.agent = Some(Agent::open(self.context.0)?);
        }
        self.agent
            .as_mut()
            .ok_or_else(|| Failure::new(libc::ENODEV, "no agent"))
    }

    /// Index of the GID that is `address`.
    pub(crate) fn gid_index(&self, address: &SocketAddress) -> Option<u32> {
        let mut entries = [abi::ibv_gid_entry::default(); 64];
        // SAFETY: the context is open; room for as many entries as it is told.
        let count = unsafe {
            verbs::_ibv_query_gid_table(
                self.context.0,
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<abi::ibv_gid_entry>(),
            )
        };
        let count = usize::try_from(count).ok()?.min(entries.len());
        let gid = address.gid();
        let mut entries = entries.iter().take(count);
        entries
            // SAFETY: both members of the union are sixteen bytes.
            .find(|entry| unsafe { entry.gid.raw } == gid)
            .map(|entry| entry.gid_index)
    }

    /// The first address of the device that is of the same family, with the same port.
    fn address_like(&self, address: SocketAddress) -> Option<SocketAddress> {
        let own = sys::interface_addresses().ok()?;
        let mut own = own.into_iter().map(|own| own.address);
        own.find(|own| own.ip.is_ipv4() == address.ip.is_ipv4() && self.gid_index(own).is_some())
            .map(|own| SocketAddress {
                port: address.port,
                ..own
            })
    }

    /// The XRC domain of whoever brings none.
    pub(crate) fn default_xrcd(&mut self) -> Result<*mut abi::ibv_xrcd, Failure> {
        if self.xrcd.0.is_null() {
            let mut attributes = abi::ibv_xrcd_init_attr {
                // IBV_XRCD_INIT_ATTR_FD and _OFLAGS.
                comp_mask: 3,
                fd: -1,
                oflags: libc::O_CREAT,
            };
            // SAFETY: contexts of our verbs library are extended ones.
            let open = unsafe { (*abi::verbs_context_of(self.context.0)).open_xrcd };
            let open = open.ok_or_else(|| Failure::unsupported("XRC"))?;
            // SAFETY: the context is open, the attributes live during the call.
            let xrcd = unsafe { open(self.context.0, &raw mut attributes) };
            if xrcd.is_null() {
                return Err(Failure::last("the default XRC domain"));
            }
            self.xrcd = Shared(xrcd);
        }
        Ok(self.xrcd.0)
    }
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub(crate) list: Vec<Device>,
}

impl Devices {
    /// The device that has `address`, which must be an address of this host.
    pub(crate) fn of_address(&mut self, address: &SocketAddress) -> Result<DeviceKey, Failure> {
        let interface = interface_of(address)?;
        let key = self.of_interface(&interface)?;
        if self.list[key].gid_index(address).is_none() {
            return Err(Failure::new(
                libc::ENODEV,
                format!(
                    "{} is no GID of {NAME_PREFIX}{interface}: see `feroce devices`",
                    address.ip
                ),
            ));
        }
        Ok(key)
    }

    /// The device and address for an identifier that a program binds to `address`. A loopback
    /// address that no device has stands for the first device, and its address: libfabric binds to
    /// "localhost" to find one where the program names none.
    pub(crate) fn bindable(
        &mut self,
        address: SocketAddress,
    ) -> Result<(DeviceKey, SocketAddress), Failure> {
        match self.of_address(&address.canonical()) {
            Err(failure) if failure.errno == libc::ENODEV && address.ip.is_loopback() => {
                let first = self.all()?.first().copied().ok_or(failure)?;
                let meant = self.list[first].address_like(address);
                Ok((first, meant.unwrap_or(address)))
            }
            found => found.map(|device| (device, address)),
        }
    }

    /// The device of an interface, opened if need be.
    pub(crate) fn of_interface(&mut self, interface: &str) -> Result<DeviceKey, Failure> {
        let known = |device: &Device| device.interface == interface && !device.removed;
        if let Some(key) = self.list.iter().position(known) {
            return Ok(key);
        }
        self.list.push(Device::open(interface)?);
        Ok(self.list.len() - 1)
    }

    /// Every device there is, opened if need be.
    pub(crate) fn all(&mut self) -> Result<Vec<DeviceKey>, Failure> {
        let mut keys = Vec::new();
        for name in device_names()? {
            if let Some(interface) = name.strip_prefix(NAME_PREFIX) {
                match self.of_interface(interface) {
                    Ok(key) => keys.push(key),
                    Err(failure) => log::warn!("{name}: {}", failure.reason),
                }
            }
        }
        Ok(keys)
    }
}

/// The interface that has an address.
fn interface_of(address: &SocketAddress) -> Result<String, Failure> {
    let addresses = sys::interface_addresses()
        .map_err(|error| Failure::new(libc::EIO, format!("the interfaces: {error}")))?;
    let fits = |own: &sys::InterfaceAddress| {
        own.address.ip == address.ip && (address.scope == 0 || own.index == address.scope)
    };
    addresses
        .into_iter()
        .find(fits)
        .map(|own| own.interface)
        .ok_or_else(|| {
            Failure::new(
                libc::EADDRNOTAVAIL,
                format!("{} is no address of an interface that is up", address.ip),
            )
        })
}

/// The devices of the verbs library, by name.
fn device_names() -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    with_devices(|device| names.push(name_of(device)))?;
    Ok(names)
}

fn open_context(name: &str) -> Result<*mut abi::ibv_context, Failure> {
    let mut context = Err(Failure::new(
        libc::ENODEV,
        format!("there is no device {name}: `feroce devices` says why"),
    ));
    with_devices(|device| {
        if name_of(device) == name {
            // SAFETY: the device is of a list that is not freed yet.
            let opened = unsafe { verbs::ibv_open_device(device) };
            context = if opened.is_null() {
                Err(Failure::last(name))
            } else {
                Ok(opened)
            };
        }
    })?;
    context
}

fn with_devices(mut look: impl FnMut(*mut abi::ibv_device)) -> Result<(), Failure> {
    let mut count = 0;
    // SAFETY: room for the count.
    let list = unsafe { verbs::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(Failure::last("ibv_get_device_list"));
    }
    for index in 0..usize::try_from(count).unwrap_or_default() {
        // SAFETY: the list has `count` entries.
        look(unsafe { *list.add(index) });
    }
    // SAFETY: from ibv_get_device_list, once.
    unsafe { verbs::ibv_free_device_list(list) };
    Ok(())
}

fn name_of(device: *mut abi::ibv_device) -> String {
    // SAFETY: a device of a list that is not freed; its name is a string.
    unsafe { CStr::from_ptr(verbs::ibv_get_device_name(device)) }
        .to_string_lossy()
        .into_owned()
}

/// The path MTU of the port, as it is now.
fn active_mtu(context: *mut abi::ibv_context) -> Mtu {
    let mut port = abi::ibv_port_attr::default();
    // SAFETY: contexts of our verbs library are extended ones.
    let query = unsafe { (*abi::verbs_context_of(context)).query_port };
    let result = query.map(|query| {
        // SAFETY: the context is open; room for the attributes, whose size is told.
        unsafe { query(context, 1, &raw mut port, size_of::<abi::ibv_port_attr>()) }
    });
    let code = u8::try_from(port.active_mtu).unwrap_or_default();
    match result {
        Some(0) => Mtu::from_code(code).unwrap_or(Mtu::Mtu1024),
        _ => Mtu::Mtu1024,
    }
}
