//! From a captured frame to the RoCE packet in it: Ethernet, VLAN tags, IPv4, IPv6, UDP, GRH.
//!
//! What it is not: a judge of the RoCE part, which [`feroce_wire::Packet::parse`] reads. Read IBTA
//! annex A16 for RoCE v1 (EtherType 0x8915) and annex A17 for RoCEv2 first.

use crate::read::LinkType;
use feroce_wire::ROCE_V2_PORT;
use feroce_wire::icrc::{self, Flow, GRH_LEN, Verdict};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A frame that carries RoCE.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Sending address, or GID in RoCE v1.
    pub source: IpAddr,
    /// Receiving address, or GID in RoCE v1.
    pub destination: IpAddr,
    /// What lies around the RoCE packet.
    pub encapsulation: Encapsulation,
    /// The RoCE packet, BTH to ICRC, as far as it was captured.
    pub roce: &'a [u8],
    /// Bytes of `roce` on the wire.
    pub roce_len: usize,
}

/// What lies around a RoCE packet.
#[derive(Clone, Copy, Debug)]
pub enum Encapsulation {
    /// RoCE v1: a global routing header right on Ethernet.
    V1 {
        /// The global routing header.
        grh: [u8; GRH_LEN],
    },
    /// RoCEv2: UDP.
    V2 {
        /// What enters the ICRC, with the true IPv4 identification.
        flow: Flow,
        /// IPv4 TOS or IPv6 traffic class.
        traffic_class: u8,
    },
}

impl<'a> Frame<'a> {
    /// Looks for a RoCE packet in a captured frame.
    ///
    /// # Errors
    /// [`NotRoce`], which tells what is there instead.
    pub fn parse(link_type: LinkType, bytes: &'a [u8]) -> Result<Self, NotRoce> {
        let (ether_type, bytes) = match link_type {
            LinkType::ETHERNET => ethernet(bytes)?,
            LinkType::LINUX_SLL => cooked(bytes, 16, 14)?,
            LinkType::LINUX_SLL2 => cooked(bytes, 20, 0)?,
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => match bytes.first() {
                Some(first) if first >> 4 == 6 => (ETHER_IPV6, bytes),
                _ => (ETHER_IPV4, bytes),
            },
            other => return Err(NotRoce::LinkType(other)),
        };
        match ether_type {
            ETHER_IPV4 => ipv4(bytes),
            ETHER_IPV6 => ipv6(bytes),
            ETHER_ROCE_V1 => roce_v1(bytes),
            _ => Err(NotRoce::OtherProtocol),
        }
    }

    /// Whether all of the RoCE packet was captured.
    pub const fn is_whole(&self) -> bool {
        self.roce.len() == self.roce_len
    }

    /// Judges the ICRC.
    pub fn icrc(&self) -> Icrc {
        if !self.is_whole() {
            return Icrc::NotCaptured;
        }
        let verdict = match &self.encapsulation {
            Encapsulation::V1 { grh } => icrc::check_v1(grh, self.roce),
            Encapsulation::V2 { flow, .. } => icrc::check(flow, self.roce),
        };
        match verdict {
            Verdict::Good => Icrc::Right,
            Verdict::GoodWithId(id) => Icrc::RightForId(id),
            Verdict::Bad => Icrc::Wrong,
        }
    }
}

/// What a capture shows of an ICRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icrc {
    /// It is right.
    Right,
    /// It is wrong, but would be right with this IPv4 identification: someone rewrote it.
    RightForId(u16),
    /// It is wrong.
    Wrong,
    /// The frame was cut before it.
    NotCaptured,
}

impl fmt::Display for Icrc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Right => f.write_str("icrc ok"),
            Self::RightForId(id) => write!(f, "icrc BAD (right for IPv4 id {id:#06x})"),
            Self::Wrong => f.write_str("icrc BAD"),
            Self::NotCaptured => f.write_str("icrc not captured"),
        }
    }
}

/// Why a frame holds no RoCE packet that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NotRoce {
    /// A link type that is not read here.
    LinkType(LinkType),
    /// Something else than RoCE.
    OtherProtocol,
    /// A fragment of an IPv4 packet. RoCEv2 never fragments.
    Fragment,
    /// IPv4 options, which RoCEv2 does not have.
    Ipv4Options,
    /// The lengths of the headers contradict each other, or the headers were not captured.
    Damaged,
}

impl fmt::Display for NotRoce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkType(link_type) => write!(f, "{link_type} is not known"),
            Self::OtherProtocol => f.write_str("not RoCE"),
            Self::Fragment => f.write_str("a fragment of a UDP datagram"),
            Self::Ipv4Options => f.write_str("IPv4 options, which RoCEv2 does not have"),
            Self::Damaged => f.write_str("headers that contradict each other or are cut"),
        }
    }
}

impl std::error::Error for NotRoce {}

/// Splits the Ethernet header and VLAN tags off.
fn ethernet(bytes: &[u8]) -> Result<(u16, &[u8]), NotRoce> {
    let (mut ether_type, mut rest) = cooked(bytes, 14, 12)?;
    while matches!(ether_type, ETHER_VLAN | ETHER_SERVICE_VLAN) {
        (ether_type, rest) = cooked(rest, 4, 2)?;
    }
    Ok((ether_type, rest))
}

/// Splits a link header of `len` bytes off, which has its EtherType `at` an offset.
fn cooked(bytes: &[u8], len: usize, at: usize) -> Result<(u16, &[u8]), NotRoce> {
    let (header, rest) = bytes.split_at_checked(len).ok_or(NotRoce::Damaged)?;
    Ok((word(header, at), rest))
}

fn ipv4(bytes: &[u8]) -> Result<Frame<'_>, NotRoce> {
    let (header, rest) = bytes.split_first_chunk::<20>().ok_or(NotRoce::Damaged)?;
    if header[0] >> 4 != 4 || header[9] != PROTOCOL_UDP {
        return Err(NotRoce::OtherProtocol);
    }
    let fragment = word(header, 6);
    if fragment & !icrc::IPV4_DONT_FRAGMENT != 0 {
        return Err(NotRoce::Fragment);
    }
    if header[0] != 0x45 {
        return Err(NotRoce::Ipv4Options);
    }
    let payload_len = usize::from(word(header, 2)).checked_sub(header.len());
    let [.., a, b, c, d, e, f, g, h] = *header;
    let flow = Flow {
        source: IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        destination: IpAddr::V4(Ipv4Addr::new(e, f, g, h)),
        source_port: 0,
        destination_port: 0,
        ipv4_id: word(header, 4),
        ipv4_fragment: fragment,
    };
    udp(rest, payload_len.ok_or(NotRoce::Damaged)?, flow, header[1])
}

fn ipv6(bytes: &[u8]) -> Result<Frame<'_>, NotRoce> {
    let (header, rest) = bytes.split_first_chunk::<40>().ok_or(NotRoce::Damaged)?;
    if header[0] >> 4 != 6 || header[6] != PROTOCOL_UDP {
        return Err(NotRoce::OtherProtocol);
    }
    let (source, destination) = gids(header);
    let flow = Flow {
        source,
        destination,
        source_port: 0,
        destination_port: 0,
        ipv4_id: 0,
        ipv4_fragment: 0,
    };
    let traffic_class = header[0] << 4 | header[1] >> 4;
    udp(rest, usize::from(word(header, 4)), flow, traffic_class)
}

/// Reads what follows the IP header: a datagram that has `ip_payload_len` bytes on the wire.
fn udp(
    bytes: &[u8],
    ip_payload_len: usize,
    mut flow: Flow,
    traffic_class: u8,
) -> Result<Frame<'_>, NotRoce> {
    let (header, rest) = bytes.split_first_chunk::<8>().ok_or(NotRoce::Damaged)?;
    flow.source_port = word(header, 0);
    flow.destination_port = word(header, 2);
    if flow.destination_port != ROCE_V2_PORT {
        return Err(NotRoce::OtherProtocol);
    }
    let udp_len = usize::from(word(header, 4));
    let roce_len = udp_len.checked_sub(header.len()).ok_or(NotRoce::Damaged)?;
    if udp_len != ip_payload_len {
        return Err(NotRoce::Damaged);
    }
    Ok(Frame {
        source: flow.source,
        destination: flow.destination,
        encapsulation: Encapsulation::V2 {
            flow,
            traffic_class,
        },
        roce: &rest[..rest.len().min(roce_len)],
        roce_len,
    })
}

fn roce_v1(bytes: &[u8]) -> Result<Frame<'_>, NotRoce> {
    let (grh, rest) = bytes.split_first_chunk().ok_or(NotRoce::Damaged)?;
    if grh[0] >> 4 != 6 || grh[6] != NEXT_HEADER_BTH {
        return Err(NotRoce::OtherProtocol);
    }
    let roce_len = usize::from(word(grh, 4));
    let (source, destination) = gids(grh);
    Ok(Frame {
        source,
        destination,
        encapsulation: Encapsulation::V1 { grh: *grh },
        roce: &rest[..rest.len().min(roce_len)],
        roce_len,
    })
}

/// The two addresses of an IPv6 header or a global routing header, which share their form.
fn gids(header: &[u8; 40]) -> (IpAddr, IpAddr) {
    let gid = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    (gid(8), gid(24))
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

const ETHER_IPV4: u16 = 0x0800;
const ETHER_IPV6: u16 = 0x86dd;
const ETHER_ROCE_V1: u16 = 0x8915;
const ETHER_VLAN: u16 = 0x8100;
const ETHER_SERVICE_VLAN: u16 = 0x88a8;
const PROTOCOL_UDP: u8 = 17;
/// "IBA local transport", a BTH follows (IBTA 8.3).
const NEXT_HEADER_BTH: u8 = 0x1b;

#[cfg(test)]
mod tests;
