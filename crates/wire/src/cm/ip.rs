//! The header of the IP CM service at the start of private data (annex A11.3).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the header, in bytes.
pub const IP_CM_HEADER_LEN: usize = 36;

/// The header as it lies on the wire. Every bit pattern is a valid view.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IpCmView {
    version: u8,    // major:4 minor:4
    ip_version: u8, // ip version:4 reserved:4
    source_port: U16,
    source: [u8; 16],
    destination: [u8; 16],
}
const _: () = assert!(size_of::<IpCmView>() == IP_CM_HEADER_LEN);

/// Who asks for a connection, in terms of IP. Both addresses are of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpCmHeader {
    /// The address of the active side.
    pub source: IpAddr,
    /// The port of the active side.
    pub source_port: u16,
    /// The address that was asked for.
    pub destination: IpAddr,
}

impl IpCmHeader {
    /// Reads the start of private data, `None` if there is no header of version 0 with addresses
    /// of IPv4 or IPv6.
    pub fn read(private_data: &[u8]) -> Option<Self> {
        let (view, _) = IpCmView::ref_from_prefix(private_data).ok()?;
        let address = |bytes: [u8; 16]| match view.ip_version >> 4 {
            4 => Some(IpAddr::V4(ipv4_at_end(bytes))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        };
        if view.version != 0 {
            return None;
        }
        Some(Self {
            source: address(view.source)?,
            source_port: view.source_port.get(),
            destination: address(view.destination)?,
        })
    }

    /// The bytes on the wire. Addresses of different families become IPv6.
    pub fn to_bytes(&self) -> [u8; IP_CM_HEADER_LEN] {
        let (ip_version, source, destination) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (4, at_end_of_16(source), at_end_of_16(destination))
            }
            (source, destination) => (6, ipv6_bytes(source), ipv6_bytes(destination)),
        };
        let view = IpCmView {
            version: 0,
            ip_version: ip_version << 4,
            source_port: U16::new(self.source_port),
            source,
            destination,
        };
        zerocopy::transmute!(view)
    }
}

/// An IPv4 address lies in the last four bytes; the others are zero.
fn at_end_of_16(address: Ipv4Addr) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&address.octets());
    bytes
}

fn ipv4_at_end(bytes: [u8; 16]) -> Ipv4Addr {
    let [.., a, b, c, d] = bytes;
    Ipv4Addr::new(a, b, c, d)
}

fn ipv6_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_lies_in_the_last_four_bytes() {
        let header = IpCmHeader {
            source: [192, 168, 6, 2].into(),
            source_port: 0xb4ca,
            destination: [192, 168, 6, 1].into(),
        };
        let mut bytes = [0; IP_CM_HEADER_LEN];
        bytes[..4].copy_from_slice(&[0x00, 0x40, 0xb4, 0xca]);
        bytes[16..20].copy_from_slice(&[192, 168, 6, 2]);
        bytes[32..].copy_from_slice(&[192, 168, 6, 1]);
        assert_eq!(header.to_bytes(), bytes);
        assert_eq!(IpCmHeader::read(&bytes), Some(header));
    }

    #[test]
    fn ipv6_round_trips_and_other_versions_are_no_header() {
        let header = IpCmHeader {
            source: "fe80::1".parse().unwrap(),
            source_port: 7174,
            destination: "2001:db8::2".parse().unwrap(),
        };
        let bytes = header.to_bytes();
        assert_eq!(IpCmHeader::read(&bytes), Some(header));
        for (at, value) in [(0, 0x10), (0, 0x01), (1, 0x50), (1, 0x00)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(IpCmHeader::read(&other), None, "byte {at} = {value:#x}");
        }
        assert_eq!(IpCmHeader::read(&bytes[..35]), None);
    }
}
