//! Which devices there are: one for each interface that is up and has a usable address.

use feroce_netio::{Interface, interfaces};
use feroce_proto::Mtu;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// Entries of a GID table. Programs query every one of them at start, so it is small.
pub const GID_TABLE_LEN: usize = 16;

/// Bytes of Ethernet payload that are not RoCE payload: the longest IP (40), UDP (8), BTH (12) and
/// extended headers (28) and the ICRC (4). What rest there is bounds the path MTU.
const OVERHEAD_BYTES: u32 = 40 + 8 + 12 + 28 + 4;

/// An entry of the GID table: a RoCEv2 GID is an address of the interface.
pub type Gid = IpAddr;

/// An interface, seen as a device.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// `roce_` and the interface's name.
    pub name: String,
    /// The interface.
    pub interface: Interface,
    /// Usable addresses, in the order of the GID table.
    pub gids: Vec<Gid>,
    /// Why it cannot be used, for people; `None`: it can.
    pub left_out: Option<String>,
}

/// State of a device's only port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// The interface is up.
    pub active: bool,
    /// The largest path MTU that fits the interface's MTU.
    pub mtu: Mtu,
}

impl Candidate {
    /// State of the port.
    pub fn port(&self) -> PortInfo {
        port_of(&self.interface)
    }

    /// EUI-64 of the interface's hardware address; for interfaces without one it is made from
    /// the interface's index, with the "local" bit.
    pub fn guid(&self) -> [u8; 8] {
        let mac = match self.interface.mac {
            Some(mac) if mac != [0; 6] => mac,
            _ => {
                let [a, b, c, d] = self.interface.index.to_be_bytes();
                [0x02, 0xfe, a, b, c, d]
            }
        };
        [
            mac[0] ^ 2,
            mac[1],
            mac[2],
            0xff,
            0xfe,
            mac[3],
            mac[4],
            mac[5],
        ]
    }
}

pub(crate) fn port_of(interface: &Interface) -> PortInfo {
    PortInfo {
        active: interface.up,
        mtu: mtu_for(interface.mtu),
    }
}

/// The largest path MTU whose packets fit an interface MTU (annex A17.9.1 leaves 256 as floor).
fn mtu_for(interface_mtu: u32) -> Mtu {
    let room = interface_mtu.saturating_sub(OVERHEAD_BYTES);
    [Mtu::Mtu4096, Mtu::Mtu2048, Mtu::Mtu1024, Mtu::Mtu512]
        .into_iter()
        .find(|mtu| mtu.bytes() <= room)
        .unwrap_or(Mtu::Mtu256)
}

/// All interfaces as devices, usable ones first, loopback last of those.
///
/// `FEROCE_DEVICE` in the environment limits the usable ones to those it names (separated by
/// commas).
///
/// # Errors
/// If the kernel does not tell its interfaces.
pub fn candidates() -> io::Result<Vec<Candidate>> {
    let wanted = std::env::var("FEROCE_DEVICE")
        .ok()
        .filter(|list| !list.is_empty());
    let mut found: Vec<Candidate> = interfaces()?
        .into_iter()
        .map(|interface| {
            let name = format!("roce_{}", interface.name);
            let gids = usable_addresses(&interface);
            let left_out = reason_against(&interface, &gids, &name, wanted.as_deref());
            Candidate {
                name,
                interface,
                gids,
                left_out,
            }
        })
        .collect();
    found.sort_by_key(|c| {
        (
            c.left_out.is_some(),
            c.interface.loopback,
            c.interface.index,
        )
    });
    Ok(found)
}

fn reason_against(
    interface: &Interface,
    gids: &[Gid],
    name: &str,
    wanted: Option<&str>,
) -> Option<String> {
    if !interface.up {
        return Some("the interface is down".into());
    }
    if gids.is_empty() {
        return Some("the interface has no usable IPv4 or IPv6 address".into());
    }
    if mtu_for(interface.mtu).bytes() + OVERHEAD_BYTES > interface.mtu {
        return Some(format!(
            "the interface's MTU of {} bytes is too small",
            interface.mtu
        ));
    }
    match wanted {
        Some(list) if !list.split(',').any(|item| item.trim() == name) => {
            Some("FEROCE_DEVICE names other devices".into())
        }
        _ => None,
    }
}

/// IPv4 addresses first, then IPv6: index 0 is what most programs take unasked.
pub(crate) fn usable_addresses(interface: &Interface) -> Vec<Gid> {
    let mut addresses: Vec<IpAddr> = interface
        .addresses
        .iter()
        .filter(|address| address.is_usable())
        .map(|address| address.ip)
        .filter(|ip| !ip.is_unspecified() && !ip.is_multicast())
        .collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses.dedup();
    addresses.truncate(GID_TABLE_LEN);
    addresses
}

/// The 16 bytes of a GID: IPv4 addresses in their IPv6-mapped form (annex A17.4.5.2).
pub fn gid_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The address that a GID stands for.
pub fn gid_address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}
