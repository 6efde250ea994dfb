//! The interfaces of this network namespace, and news about them.
//!
//! Facts only: which of them become devices, and under which names, is decided above.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::netlink::{self, AddressRecord, LinkRecord, Record};
use crate::sys;

const IFF_UP: u32 = 0x1;
const IFF_LOOPBACK: u32 = 0x8;
const IFF_LOWER_UP: u32 = 0x1_0000;
const IF_OPER_UNKNOWN: u8 = 0;
const IF_OPER_UP: u8 = 6;
const IFA_F_OPTIMISTIC: u32 = 0x04;
const IFA_F_DADFAILED: u32 = 0x08;
const IFA_F_DEPRECATED: u32 = 0x20;
const IFA_F_TENTATIVE: u32 = 0x40;

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, as in `ip link`.
    pub name: String,
    /// Index, unique in its network namespace.
    pub index: u32,
    /// Whether packets can pass: set up by the administrator and, but for loopback, with carrier.
    pub up: bool,
    /// Whether this is `lo`.
    pub loopback: bool,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Ethernet address; `None` for interfaces that have none of six bytes.
    pub mac: Option<[u8; 6]>,
    /// IP addresses, in the kernel's order.
    pub addresses: Vec<Address>,
}

/// One IP address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address itself.
    pub ip: IpAddr,
    /// Length of the network part, in bits.
    pub prefix_len: u8,
    /// How far the address reaches.
    pub scope: Scope,
    /// Duplicate address detection is still under way: the address cannot be bound yet.
    pub tentative: bool,
    /// Duplicate address detection found another owner: the address cannot be used.
    pub dad_failed: bool,
    /// Still valid, but not to be used for new connections.
    pub deprecated: bool,
}

impl Address {
    /// Whether a socket can be bound to it now.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        !self.tentative && !self.dad_failed
    }

    fn from_record(record: &AddressRecord) -> Self {
        let set = |flag| record.flags & flag != 0;
        Self {
            ip: record.ip,
            prefix_len: record.prefix_len,
            scope: Scope::from_raw(record.scope),
            // An optimistic address may be used while its uniqueness is being checked.
            tentative: set(IFA_F_TENTATIVE) && !set(IFA_F_OPTIMISTIC),
            dad_failed: set(IFA_F_DADFAILED),
            deprecated: set(IFA_F_DEPRECATED),
        }
    }
}

/// How far an address reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This host only.
    Host,
    /// This link only.
    Link,
    /// Anything between link and everywhere, with the kernel's number for it.
    Other(u8),
    /// Everywhere.
    Universe,
}

impl Scope {
    const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Universe,
            253 => Self::Link,
            254 => Self::Host,
            other => Self::Other(other),
        }
    }
}

impl Interface {
    fn from_record(link: &LinkRecord) -> Self {
        let loopback = link.flags & IFF_LOOPBACK != 0;
        // Interfaces without a notion of carrier (tunnels, some drivers) report "unknown".
        let carrier = link.operational_state == IF_OPER_UP
            || (link.operational_state == IF_OPER_UNKNOWN && link.flags & IFF_LOWER_UP != 0);
        Self {
            name: link.name.clone(),
            index: link.index,
            up: link.flags & IFF_UP != 0 && (loopback || carrier),
            loopback,
            mtu: link.mtu,
            mac: link.mac.as_slice().try_into().ok(),
            addresses: Vec::new(),
        }
    }
}

/// The interfaces of this network namespace, by ascending index.
///
/// # Errors
/// The kernel's, when it lets no route netlink socket be opened or the dump fails.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut table = Table::default();
    for record in netlink::dump()? {
        table.apply(record, &mut Vec::new());
    }
    Ok(table.interfaces.into_values().collect())
}

/// News about the interfaces of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An address appeared, or its flags changed (tentative ends, deprecated begins).
    AddressAdded {
        /// Interface index.
        index: u32,
        /// The address as it is now.
        address: Address,
    },
    /// An address went away.
    AddressRemoved {
        /// Interface index.
        index: u32,
        /// The address that is gone.
        ip: IpAddr,
    },
    /// Packets no longer pass.
    LinkDown {
        /// Interface index.
        index: u32,
    },
    /// The interface no longer exists; its addresses are gone with it.
    LinkRemoved {
        /// Interface index.
        index: u32,
    },
    /// Packets pass now; also reported for an interface that is new and up.
    LinkUp {
        /// Interface index.
        index: u32,
    },
    /// The largest IP packet changed.
    Mtu {
        /// Interface index.
        index: u32,
        /// The new value, in bytes.
        mtu: u32,
    },
    /// News was lost: forget what was known and ask [`interfaces`] again.
    Resync,
}

/// Watches links and addresses of this network namespace.
#[derive(Debug)]
pub struct Monitor {
    socket: OwnedFd,
    buffer: Vec<u8>,
    table: Table,
}

impl Monitor {
    /// Subscribes, then takes stock: later [`Self::changes`] are relative to this moment.
    ///
    /// # Errors
    /// As for [`interfaces`].
    pub fn open() -> io::Result<Self> {
        let socket = sys::netlink_socket(false)?;
        sys::bind_netlink(socket.as_fd(), netlink::GROUPS)?;
        let mut monitor = Self {
            socket,
            buffer: Vec::new(),
            table: Table::default(),
        };
        monitor.take_stock()?;
        Ok(monitor)
    }

    /// Readable when [`Self::changes`] may have something to say.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What changed since the last call, in order; never waits. Lost news, or a failure to read
    /// any, is reported as [`Change::Resync`].
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let table = &mut self.table;
            let result =
                netlink::read_notifications(self.socket.as_fd(), &mut self.buffer, |record| {
                    table.apply(record, &mut changes);
                });
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    log::warn!("interface news was lost ({error}), looking again");
                    if let Err(error) = self.take_stock() {
                        log::error!("interfaces cannot be listed: {error}");
                    }
                    changes.push(Change::Resync);
                    if error.raw_os_error() != Some(libc::ENOBUFS) {
                        break;
                    }
                }
            }
        }
        changes
    }

    fn take_stock(&mut self) -> io::Result<()> {
        let mut table = Table::default();
        for record in netlink::dump()? {
            table.apply(record, &mut Vec::new());
        }
        self.table = table;
        Ok(())
    }
}

/// The interfaces as far as the records seen so far tell.
#[derive(Debug, Default)]
struct Table {
    interfaces: BTreeMap<u32, Interface>,
}

impl Table {
    fn apply(&mut self, record: Record, changes: &mut Vec<Change>) {
        match record {
            Record::Link(link) => self.link(&link, changes),
            Record::LinkGone(index) => {
                if self.interfaces.remove(&index).is_some() {
                    changes.push(Change::LinkRemoved { index });
                }
            }
            Record::Address(record) => self.address(&record, changes),
            Record::AddressGone(record) => self.address_gone(&record, changes),
        }
    }

    fn link(&mut self, link: &LinkRecord, changes: &mut Vec<Change>) {
        let index = link.index;
        let mut now = Interface::from_record(link);
        let before = self.interfaces.remove(&index);
        let (was_up, old_mtu) = before
            .as_ref()
            .map_or((false, now.mtu), |before| (before.up, before.mtu));
        now.addresses = before.map_or_else(Vec::new, |before| before.addresses);
        if now.mtu != old_mtu {
            changes.push(Change::Mtu {
                index,
                mtu: now.mtu,
            });
        }
        match (was_up, now.up) {
            (false, true) => changes.push(Change::LinkUp { index }),
            (true, false) => changes.push(Change::LinkDown { index }),
            _ => {}
        }
        self.interfaces.insert(index, now);
    }

    fn address(&mut self, record: &AddressRecord, changes: &mut Vec<Change>) {
        let index = record.index;
        let Some(interface) = self.interfaces.get_mut(&index) else {
            return;
        };
        let address = Address::from_record(record);
        let known = interface
            .addresses
            .iter_mut()
            .find(|known| (known.ip, known.prefix_len) == (address.ip, address.prefix_len));
        match known {
            // Only its lifetime was renewed.
            Some(known) if *known == address => return,
            Some(known) => *known = address,
            None => interface.addresses.push(address),
        }
        changes.push(Change::AddressAdded { index, address });
    }

    fn address_gone(&mut self, record: &AddressRecord, changes: &mut Vec<Change>) {
        let AddressRecord { index, ip, .. } = *record;
        let Some(interface) = self.interfaces.get_mut(&index) else {
            return;
        };
        let before = interface.addresses.len();
        interface
            .addresses
            .retain(|known| (known.ip, known.prefix_len) != (ip, record.prefix_len));
        // The same address may still be there with another prefix length.
        let gone = interface.addresses.iter().all(|known| known.ip != ip);
        if gone && interface.addresses.len() < before {
            changes.push(Change::AddressRemoved { index, ip });
        }
    }
}

#[cfg(test)]
mod tests;
