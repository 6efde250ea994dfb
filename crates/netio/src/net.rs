//! The sockets of one device.
//!
//! A device is a set of addresses of one interface. Per address there is a *shared* socket on the
//! well-known port, which all processes of this user bind together, and a *private* one on a port
//! of its own: all sending starts there (its source port is part of what the layers above sign),
//! and same-host peers that learnt the port by way of the [slot](crate::Slot) send to it, so that
//! nothing between processes of one host is misdirected. Remote peers only know the shared port;
//! a flow of theirs that keeps landing in the wrong process gets a socket of its own, connected to
//! its source, which the kernel prefers.
//!
//! Not here: what the bytes mean, retransmission, pacing, any thread. One caller at a time drives
//! a [`Net`], and nothing in it blocks.

mod backpressure;
pub mod bundle;
mod flows;
mod impair;
mod mark;
mod peers;
mod receive;
mod room;
mod send;
mod sockets;
mod strays;

pub use receive::{Datagram, Verdict};
pub use send::{Destination, SEGMENTS_MAX, SendError};
pub use sockets::OpenError;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashSet;
use slab::Slab;

use crate::counters::Counters;
use crate::interface::interfaces;
use crate::lossy::Impairment;
use crate::slot::{Slot, SlotMessage};
use crate::sys;
use impair::Impaired;
use peers::Peers;
use receive::Reception;
use room::{Room, Senders};
use sockets::{NO_ADDRESS, Role, Setup, Socket};

/// The UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;

/// Source ports per address for traffic to other hosts: enough to spread flows over the links of
/// a fabric, few enough not to use up descriptors.
pub const ENTROPY_PORTS: usize = 8;

/// Send buffer asked for, in bytes: some dozens of full batches.
const SEND_BUFFER: i32 = 4 << 20;

/// Sockets for single remote flows, per device.
const FLOWS_MAX: usize = 64;

/// What a device is opened with.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// Index of the interface: multicast and link-local addresses need it.
    pub interface: u32,
    /// Addresses of that interface to serve; more can be added later.
    pub addresses: Vec<IpAddr>,
    /// The well-known port, [`UDP_PORT`].
    pub udp_port: u16,
    /// Most sockets for single remote flows; 0 for none.
    pub flows_max: usize,
    /// Receive buffer to ask for, in bytes, to imitate a host with a lower `rmem_max`; the kernel
    /// doubles it. `None`: as much as there is use for.
    pub receive_buffer: Option<u32>,
    /// Impairs what is received (not what other processes hand on: they did it already).
    pub impairment: Option<Impairment>,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            interface: 0,
            addresses: Vec::new(),
            udp_port: UDP_PORT,
            flows_max: FLOWS_MAX,
            receive_buffer: None,
            impairment: None,
        }
    }
}

/// The sockets of one device. See the module's head.
pub struct Net {
    setup: Setup,
    flows_max: usize,
    epoll: sys::Epoll,
    /// Everything received from, by epoll token.
    sockets: Slab<Socket>,
    local: Vec<Local>,
    groups: Vec<Membership>,
    /// Tokens of [`Role::Flow`] sockets.
    flows: Vec<usize>,
    flow_opened_ms: u64,
    slots: Vec<Arc<Slot>>,
    peers: Peers,
    senders: Senders,
    /// Destinations for which the kernel does not cut batches.
    unsegmented: FxHashSet<IpAddr>,
    /// Destinations on this host that the way is too narrow to for bundles.
    unbundled: FxHashSet<IpAddr>,
    /// Whether IPv6 flow labels may be set.
    labels: bool,
    reception: Reception,
    messages: VecDeque<SlotMessage>,
    impaired: Option<Impaired>,
    counters: Counters,
}

/// One served address.
#[derive(Debug)]
struct Local {
    ip: IpAddr,
    shared: usize,
    private: usize,
    private_port: u16,
    /// Receive buffer of the private socket, in the kernel's accounting.
    buffer: u32,
    /// What this device itself may send there.
    room: Room,
    /// More sockets to send from, made when first wanted; `None` inside if that failed.
    spread: [OnceLock<Option<(OwnedFd, u16)>>; ENTROPY_PORTS - 1],
}

/// A joined multicast group.
#[derive(Debug)]
struct Membership {
    group: IpAddr,
    token: usize,
    joins: usize,
}

impl Net {
    /// Opens the sockets of a device whose queue pair numbers lie in `slot`.
    ///
    /// A slot belongs to one device: what other processes send to it comes out here.
    ///
    /// # Errors
    /// When an address cannot be served; the error says which and what to do.
    pub fn open(config: NetConfig, slot: impl Into<Arc<Slot>>) -> Result<Self, OpenError> {
        let setup = Setup {
            interface: config.interface,
            port: config.udp_port,
            receive_buffer: config.receive_buffer,
            send_buffer: SEND_BUFFER,
        };
        let mut net = Self {
            setup,
            flows_max: config.flows_max,
            epoll: sys::Epoll::new().map_err(OpenError::io("no epoll instance"))?,
            sockets: Slab::new(),
            local: Vec::new(),
            groups: Vec::new(),
            flows: Vec::new(),
            flow_opened_ms: 0,
            slots: Vec::new(),
            peers: Peers::default(),
            senders: Senders::default(),
            unsegmented: FxHashSet::default(),
            unbundled: FxHashSet::default(),
            labels: true,
            reception: Reception::new(),
            messages: VecDeque::new(),
            impaired: None,
            counters: Counters::default(),
        };
        net.refresh_host_addresses()
            .map_err(OpenError::io("the addresses of this host cannot be listed"))?;
        net.add_slot(slot)?;
        if let Some(impairment) = config.impairment {
            let (impaired, timer) =
                Impaired::new(impairment).map_err(OpenError::io("no timer for an impairment"))?;
            net.watch(Socket::new(timer, Role::Timer, NO_ADDRESS))?;
            net.impaired = Some(impaired);
        }
        for address in config.addresses {
            net.add_address(address)?;
        }
        Ok(net)
    }

    /// Takes on another slot of this process, when the numbers of one do not suffice.
    ///
    /// # Errors
    /// When the kernel does not let its socket be watched.
    pub fn add_slot(&mut self, slot: impl Into<Arc<Slot>>) -> Result<(), OpenError> {
        let slot = slot.into();
        let fd = slot
            .as_fd()
            .try_clone_to_owned()
            .map_err(OpenError::io("a slot cannot be watched"))?;
        let position = self.slots.len();
        self.watch(Socket::new(fd, Role::Slot(position), NO_ADDRESS))?;
        self.slots.push(slot);
        Ok(())
    }

    /// The slots this device owns, the one it was opened with first.
    #[must_use]
    pub fn slots(&self) -> &[Arc<Slot>] {
        &self.slots
    }

    /// Serves one more address of the interface. One that is served already is left as it is.
    ///
    /// # Errors
    /// When it cannot be; the error says why and what to do. Nothing changed then.
    pub fn add_address(&mut self, ip: IpAddr) -> Result<(), OpenError> {
        if self.local(ip).is_some() {
            return Ok(());
        }
        let shared = self.setup.shared(ip)?;
        let private = self.setup.private(ip)?;
        let what = OpenError::io("a UDP socket cannot be examined");
        let private_port = sys::local_address(private.as_fd()).map_err(&what)?.port();
        let buffer = sys::get_int(private.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)
            .map_err(&what)?
            .cast_unsigned();
        let shared = self.watch(Socket::new(shared, Role::Shared, ip))?;
        let private = match self.watch(Socket::new(private, Role::Private, ip)) {
            Ok(token) => token,
            Err(error) => {
                self.sockets.remove(shared);
                return Err(error);
            }
        };
        self.local.push(Local {
            ip,
            shared,
            private,
            private_port,
            buffer,
            room: Room::new(buffer),
            spread: [const { OnceLock::new() }; ENTROPY_PORTS - 1],
        });
        self.reception.prefer(private);
        self.peers.add_host(ip);
        Ok(())
    }

    /// Stops serving an address; what still waits in its sockets is lost.
    pub fn remove_address(&mut self, ip: IpAddr) {
        let Some(position) = self.local.iter().position(|local| local.ip == ip) else {
            return;
        };
        let local = self.local.swap_remove(position);
        self.peers.remove_host(ip);
        self.sockets.remove(local.shared);
        self.sockets.remove(local.private);
        let sockets = &mut self.sockets;
        self.flows.retain(|token| {
            let keep = sockets.get(*token).is_some_and(|flow| flow.address != ip);
            if !keep {
                sockets.try_remove(*token);
            }
            keep
        });
    }

    /// Index of the interface.
    #[must_use]
    pub const fn interface(&self) -> u32 {
        self.setup.interface
    }

    /// The addresses served.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.local.iter().map(|local| local.ip)
    }

    /// Receives datagrams to a multicast group on this interface. Joining counts: the group is
    /// left with the last [`Self::leave`].
    ///
    /// # Errors
    /// When the kernel refuses, for instance because its limit of memberships
    /// (`igmp_max_memberships`) is reached.
    pub fn join(&mut self, group: IpAddr) -> Result<(), OpenError> {
        if let Some(member) = self.groups.iter_mut().find(|member| member.group == group) {
            member.joins += 1;
            return Ok(());
        }
        let socket = self.setup.group(group)?;
        let token = self.watch(Socket::new(socket, Role::Group, group))?;
        self.groups.push(Membership {
            group,
            token,
            joins: 1,
        });
        Ok(())
    }

    /// Undoes one [`Self::join`]; without one it does nothing.
    pub fn leave(&mut self, group: IpAddr) {
        let Some(position) = self.groups.iter().position(|member| member.group == group) else {
            return;
        };
        self.groups[position].joins -= 1;
        if self.groups[position].joins == 0 {
            // Closing the socket ends its membership.
            let member = self.groups.swap_remove(position);
            self.sockets.remove(member.token);
        }
    }

    /// Reads the addresses of this host anew: to be called when a [`crate::Monitor`] reports that
    /// one came or went, on any interface. It decides which peers count as being on this host;
    /// those of the device itself are known without it.
    ///
    /// # Errors
    /// The kernel's; the old addresses stay in force.
    pub fn refresh_host_addresses(&mut self) -> io::Result<()> {
        let interfaces = interfaces()?;
        let addresses = interfaces.iter().flat_map(|interface| &interface.addresses);
        self.peers.set_host(addresses.map(|address| address.ip));
        Ok(())
    }

    /// Receive buffer of the private sockets (the smallest of them), in the kernel's accounting:
    /// a lone datagram counts about twice its length, a batch hardly more than its length.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        let smallest = self.local.iter().map(|local| local.buffer).min();
        smallest.map_or(0, |buffer| buffer as usize)
    }

    /// A descriptor (of an epoll instance) that is readable when anything may be received. After
    /// waiting for it, [`Self::receive_ready`] is the call to make.
    #[must_use]
    pub fn poll_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Every socket, for a forked child to close: it does not serve the device, and its copies
    /// would keep addresses and slots taken when this process ends.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        let received = self.sockets.iter().map(|(_, socket)| socket.fd.as_raw_fd());
        let slots = self.slots.iter().map(|slot| slot.as_fd().as_raw_fd());
        let spread = self.local.iter().flat_map(|local| &local.spread);
        let spread = spread.filter_map(|made| made.get()?.as_ref());
        let spread = spread.map(|(socket, _)| socket.as_raw_fd());
        received.chain(slots).chain(spread).collect()
    }

    /// What was counted since the device was opened.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the impairment this device was opened with did so far.
    #[must_use]
    pub fn impairment_counts(&self) -> Option<crate::lossy::LossyCounts> {
        self.impaired.as_ref().map(Impaired::counts)
    }

    fn local(&self, ip: IpAddr) -> Option<&Local> {
        self.local.iter().find(|local| local.ip == ip)
    }

    /// Adds a socket to the receive set; returns its token.
    fn watch(&mut self, socket: Socket) -> Result<usize, OpenError> {
        let entry = self.sockets.vacant_entry();
        let token = entry.key();
        self.epoll
            .add(socket.fd.as_fd(), token)
            .map_err(OpenError::io("a socket cannot be watched"))?;
        entry.insert(socket);
        Ok(token)
    }
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net")
            .field("addresses", &self.addresses().collect::<Vec<_>>())
            .field("port", &self.setup.port)
            .field(
                "slots",
                &self.slots.iter().map(|s| s.number()).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
