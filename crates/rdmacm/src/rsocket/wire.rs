//! What two rsockets say to each other: private data of the connection, 32-bit messages, tables.
//!
//! These are formats only; when what is sent is decided by [`stream`](super::stream) and
//! [`peers`](super::peers). Numbers are in network order, but for the entries of tables: those are
//! in the order of the host that *owns* the table, as its flag in the private data says.
//!
//! Read first: the protocol description of rdma-core (`Documentation/rsockets`), which is public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version of the stream protocol.
const VERSION: u8 = 1;
/// Set by a host whose own order is network order.
const FLAG_NETWORK_ORDER: u8 = 1 << 0;
/// Set by a host that has a table for I/O mappings.
const FLAG_IO_MAPS: u8 = 1 << 1;

/// Entries in the table of receive buffers that each end has: both halves of a buffer.
pub(crate) const TARGETS: usize = 2;

/// A piece of memory that a peer may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Where it is, in the owner's memory.
    pub(crate) address: u64,
    /// The remote key.
    pub(crate) key: u32,
    /// Bytes.
    pub(crate) length: u32,
}

impl Segment {
    /// Bytes of an entry in a table.
    pub(crate) const LEN: usize = 16;

    /// An entry of a table that is ours, as the peer wrote it.
    pub(crate) fn from_table(bytes: [u8; Self::LEN]) -> Self {
        let [a @ .., _, _, _, _, _, _, _, _] = bytes;
        let [.., k0, k1, k2, k3, l0, l1, l2, l3] = bytes;
        Self {
            address: u64::from_ne_bytes(a),
            key: u32::from_ne_bytes([k0, k1, k2, k3]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
        }
    }

    /// An entry for a table of the peer.
    pub(crate) fn to_table(self, order: Order) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.u64(self.address));
        bytes[8..12].copy_from_slice(&order.u32(self.key));
        bytes[12..].copy_from_slice(&order.u32(self.length));
        bytes
    }
}

/// An entry in the table of I/O mappings: an offset that the programs use, and where it leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoMap {
    /// What programs call the first byte.
    pub(crate) offset: u64,
    /// The memory behind it.
    pub(crate) segment: Segment,
}

impl IoMap {
    /// Bytes of an entry in a table.
    pub(crate) const LEN: usize = 8 + Segment::LEN;

    /// An entry of our own table.
    pub(crate) fn from_table(bytes: [u8; Self::LEN]) -> Self {
        let (mut offset, mut segment) = ([0; 8], [0; Segment::LEN]);
        offset.copy_from_slice(&bytes[..8]);
        segment.copy_from_slice(&bytes[8..]);
        Self {
            offset: u64::from_ne_bytes(offset),
            segment: Segment::from_table(segment),
        }
    }

    /// An entry for the table of the peer.
    pub(crate) fn to_table(self, order: Order) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.u64(self.offset));
        bytes[8..].copy_from_slice(&self.segment.to_table(order));
        bytes
    }
}

/// The order of bytes in the numbers of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Least significant first.
    Little,
    /// Network order.
    Big,
}

impl Order {
    /// That of this machine.
    pub(crate) const OURS: Self = if cfg!(target_endian = "big") {
        Self::Big
    } else {
        Self::Little
    };

    fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}

/// What each end tells the other while they connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionData {
    /// The order of the sender's tables.
    pub(crate) order: Order,
    /// Data messages that the peer may send before it hears of more.
    pub(crate) credits: u16,
    /// Entries in the sender's table of I/O mappings; 0: it has none.
    pub(crate) io_maps: u16,
    /// The sender's table of targets; its length is a number of entries.
    pub(crate) table: Segment,
    /// The first target.
    pub(crate) buffer: Segment,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSegment {
    address: U64,
    key: U32,
    length: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawConnectionData {
    version: u8,
    flags: u8,
    credits: U16,
    reserved: [u8; 3],
    io_maps: u8,
    table: RawSegment,
    buffer: RawSegment,
}

const _: () = assert!(size_of::<RawConnectionData>() == ConnectionData::LEN);

impl From<RawSegment> for Segment {
    fn from(raw: RawSegment) -> Self {
        Self {
            address: raw.address.get(),
            key: raw.key.get(),
            length: raw.length.get(),
        }
    }
}

impl From<Segment> for RawSegment {
    fn from(segment: Segment) -> Self {
        Self {
            address: segment.address.into(),
            key: segment.key.into(),
            length: segment.length.into(),
        }
    }
}

/// Why private data is no rsocket's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAnRsocket {
    /// Fewer bytes than there must be.
    TooShort(usize),
    /// Another version of the protocol.
    Version(u8),
    /// A table of targets that cannot hold both halves of a buffer.
    Table(u32),
}

impl ConnectionData {
    /// Bytes of it.
    pub(crate) const LEN: usize = 40;

    /// Reads private data; more bytes may follow.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NotAnRsocket> {
        let Ok((raw, _)) = RawConnectionData::read_from_prefix(bytes) else {
            return Err(NotAnRsocket::TooShort(bytes.len()));
        };
        if raw.version != VERSION {
            return Err(NotAnRsocket::Version(raw.version));
        }
        let table = Segment::from(raw.table);
        if table.length < TARGETS as u32 {
            return Err(NotAnRsocket::Table(table.length));
        }
        let has_io_maps = raw.flags & FLAG_IO_MAPS != 0;
        Ok(Self {
            order: if raw.flags & FLAG_NETWORK_ORDER != 0 {
                Order::Big
            } else {
                Order::Little
            },
            credits: raw.credits.get(),
            io_maps: if has_io_maps {
                scale::decode(raw.io_maps)
            } else {
                0
            },
            table,
            buffer: raw.buffer.into(),
        })
    }

    /// The bytes for the peer.
    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let order = match self.order {
            Order::Little => 0,
            Order::Big => FLAG_NETWORK_ORDER,
        };
        let raw = RawConnectionData {
            version: VERSION,
            flags: order | FLAG_IO_MAPS,
            credits: self.credits.into(),
            reserved: [0; 3],
            io_maps: scale::encode(self.io_maps),
            table: self.table.into(),
            buffer: self.buffer.into(),
        };
        zerocopy::transmute!(raw)
    }
}

/// Sizes of tables in eight bits: up to 128 as they are, above in steps of 256.
pub(crate) mod scale {
    const STEP_BITS: u32 = 8;
    const EXACT_MAX: u16 = 1 << 7;

    /// The eight bits of a size; a size between two steps becomes the lower one.
    pub(crate) fn encode(size: u16) -> u8 {
        let bits = if size <= EXACT_MAX {
            size
        } else {
            EXACT_MAX | (size >> STEP_BITS).min(EXACT_MAX - 1)
        };
        // Lossless: both branches have at most eight bits.
        bits as u8
    }

    /// The size that eight bits stand for.
    pub(crate) fn decode(bits: u8) -> u16 {
        let bits = u16::from(bits);
        if bits <= EXACT_MAX {
            bits
        } else {
            (bits & !EXACT_MAX) << STEP_BITS
        }
    }

    /// The size that a peer is told when a program asks for `size`: at least that, where possible.
    pub(crate) fn round(size: u16) -> u16 {
        let size = if size <= EXACT_MAX {
            size
        } else {
            size.saturating_add((1 << STEP_BITS) - 1)
        };
        decode(encode(size))
    }
}

/// What an immediate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// So many bytes were written into the current target.
    Data(u32),
    /// The data message with this number may not be sent yet, all before it may. A new target may
    /// be in the table.
    Grant(u16),
    /// The entry with this index of the table of I/O mappings is new.
    IoMapped(u32),
    /// Neither data nor room for it.
    Control(Control),
    /// A kind that this version does not know.
    Unknown(u32),
}

/// Messages that change the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Nothing more is sent or read.
    Disconnect,
    /// The connection is looked after.
    KeepAlive,
    /// Nothing more is sent.
    Shutdown,
}

const KIND_SHIFT: u32 = 29;
const VALUE_MASK: u32 = (1 << KIND_SHIFT) - 1;
const KIND_DATA: u32 = 0;
const KIND_GRANT: u32 = 4;
const KIND_IO_MAPPED: u32 = 6;
const KIND_CONTROL: u32 = 7;

impl Message {
    /// The longest data message.
    pub(crate) const DATA_MAX: u32 = VALUE_MASK;

    /// From an immediate, in the order of this machine.
    pub(crate) fn parse(immediate: u32) -> Self {
        let value = immediate & VALUE_MASK;
        match (immediate >> KIND_SHIFT, value) {
            (KIND_DATA, _) => Self::Data(value),
            // Sequence numbers wrap at 16 bits, and a peer may send the carry with them.
            (KIND_GRANT, _) => Self::Grant(value as u16),
            (KIND_IO_MAPPED, _) => Self::IoMapped(value),
            (KIND_CONTROL, 0) => Self::Control(Control::Disconnect),
            (KIND_CONTROL, 1) => Self::Control(Control::KeepAlive),
            (KIND_CONTROL, 2) => Self::Control(Control::Shutdown),
            _ => Self::Unknown(immediate),
        }
    }

    /// The immediate, in the order of this machine.
    pub(crate) fn immediate(self) -> u32 {
        match self {
            Self::Data(length) => KIND_DATA << KIND_SHIFT | (length & VALUE_MASK),
            Self::Grant(number) => KIND_GRANT << KIND_SHIFT | u32::from(number),
            Self::IoMapped(index) => KIND_IO_MAPPED << KIND_SHIFT | (index & VALUE_MASK),
            Self::Control(control) => {
                let value = match control {
                    Control::Disconnect => 0,
                    Control::KeepAlive => 1,
                    Control::Shutdown => 2,
                };
                KIND_CONTROL << KIND_SHIFT | value
            }
            Self::Unknown(immediate) => immediate,
        }
    }
}

/// What tells our datagrams from others that come to the same UDP port.
const UDP_TAG: u32 = 0x5555_5555;

/// What a message over UDP is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UdpOperation {
    /// A program's datagram follows.
    Data,
    /// The sender's queue pair, nothing else.
    Control,
}

/// In front of everything that datagram sockets send over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpHeader {
    /// What follows.
    pub(crate) operation: UdpOperation,
    /// The sender's queue pair, 24 bits.
    pub(crate) queue_pair: u32,
    /// The address that the sender wanted to reach.
    pub(crate) target: IpAddr,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawUdpHeader {
    tag: U32,
    version: u8,
    operation: u8,
    length: u8,
    reserved: u8,
    queue_pair: U32, // queue_pair:24 reserved:8
}

impl UdpHeader {
    /// The longest one, of IPv6.
    pub(crate) const LEN_MAX: usize = size_of::<RawUdpHeader>() + 16;

    /// The header and what follows it; `None` if it is none of ours.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = RawUdpHeader::read_from_prefix(bytes).ok()?;
        let target = match raw.version {
            4 => IpAddr::from(*rest.first_chunk::<4>()?),
            6 => IpAddr::from(*rest.first_chunk::<16>()?),
            _ => return None,
        };
        let length = size_of::<RawUdpHeader>() + address_length(target);
        let operation = match Message::parse(u32::from(raw.operation) << KIND_SHIFT) {
            Message::Data(_) => UdpOperation::Data,
            Message::Control(_) => UdpOperation::Control,
            _ => return None,
        };
        if raw.tag.get() != UDP_TAG || usize::from(raw.length) != length {
            return None;
        }
        let header = Self {
            operation,
            queue_pair: raw.queue_pair.get() >> 8,
            target,
        };
        Some((header, &bytes[length..]))
    }

    /// Appends the header.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let operation = match self.operation {
            UdpOperation::Data => KIND_DATA,
            UdpOperation::Control => KIND_CONTROL,
        };
        let length = size_of::<RawUdpHeader>() + address_length(self.target);
        let raw = RawUdpHeader {
            tag: UDP_TAG.into(),
            version: version(self.target),
            // Lossless: kinds have three bits, lengths at most two digits.
            operation: operation as u8,
            length: length as u8,
            reserved: 0,
            queue_pair: (self.queue_pair << 8).into(),
        };
        out.extend_from_slice(raw.as_bytes());
        write_address(self.target, out);
    }
}

/// In front of what datagram sockets send from queue pair to queue pair: who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramHeader {
    /// The address and UDP port of the sender.
    pub(crate) source: SocketAddr,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDatagramHeader {
    version: u8,
    length: u8,
    port: U16,
}

/// IPv6 has four more bytes, of flow information, in front of the address.
const FLOW_LENGTH: usize = 4;

impl DatagramHeader {
    /// The longest one, of IPv6.
    pub(crate) const LEN_MAX: usize = size_of::<RawDatagramHeader>() + FLOW_LENGTH + 16;

    /// Bytes of the header of a sender with that address.
    pub(crate) fn length(source: IpAddr) -> usize {
        let flow = if source.is_ipv6() { FLOW_LENGTH } else { 0 };
        size_of::<RawDatagramHeader>() + flow + address_length(source)
    }

    /// The header and what follows it; `None` if it is none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (raw, rest) = RawDatagramHeader::read_from_prefix(bytes).ok()?;
        let address = match raw.version {
            4 => IpAddr::from(*rest.first_chunk::<4>()?),
            6 => IpAddr::from(*rest.get(FLOW_LENGTH..)?.first_chunk::<16>()?),
            _ => return None,
        };
        let length = Self::length(address);
        if usize::from(raw.length) != length {
            return None;
        }
        let source = SocketAddr::new(address, raw.port.get());
        Some((Self { source }, &bytes[length..]))
    }

    /// Appends the header.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let address = self.source.ip();
        let raw = RawDatagramHeader {
            version: version(address),
            // Lossless: at most 24.
            length: Self::length(address) as u8,
            port: self.source.port().into(),
        };
        out.extend_from_slice(raw.as_bytes());
        if address.is_ipv6() {
            out.extend_from_slice(&[0; FLOW_LENGTH]);
        }
        write_address(address, out);
    }
}

fn version(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 4,
        IpAddr::V6(_) => 6,
    }
}

fn address_length(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => size_of::<Ipv4Addr>(),
        IpAddr::V6(_) => size_of::<Ipv6Addr>(),
    }
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> ConnectionData {
        ConnectionData {
            order: Order::Little,
            credits: 384,
            io_maps: 8,
            table: Segment {
                address: 0x0000_7f01_2345_6780,
                key: 0x0102_0304,
                length: 2,
            },
            buffer: Segment {
                address: 0x0000_7f01_0000_0000,
                key: 0x0506_0708,
                length: 65536,
            },
        }
    }

    #[test]
    fn private_data_lies_as_described() {
        let bytes = data().to_bytes();
        assert_eq!(bytes[..8], [1, 2, 0x01, 0x80, 0, 0, 0, 8]);
        assert_eq!(bytes[8..16], [0, 0, 0x7f, 1, 0x23, 0x45, 0x67, 0x80]);
        assert_eq!(bytes[16..24], [1, 2, 3, 4, 0, 0, 0, 2]);
        assert_eq!(bytes[32..], [5, 6, 7, 8, 0, 1, 0, 0]);
        assert_eq!(ConnectionData::parse(&bytes), Ok(data()));
    }

    #[test]
    fn private_data_may_be_padded_but_not_cut() {
        let mut bytes = data().to_bytes().to_vec();
        bytes.resize(56, 0);
        assert_eq!(ConnectionData::parse(&bytes), Ok(data()));
        assert_eq!(
            ConnectionData::parse(&bytes[..39]),
            Err(NotAnRsocket::TooShort(39))
        );
        bytes[0] = 2;
        assert_eq!(ConnectionData::parse(&bytes), Err(NotAnRsocket::Version(2)));
        bytes[0] = 1;
        bytes[23] = 1;
        assert_eq!(ConnectionData::parse(&bytes), Err(NotAnRsocket::Table(1)));
    }

    #[test]
    fn a_peer_without_the_flag_has_no_io_maps() {
        let mut bytes = data().to_bytes();
        bytes[1] = 1;
        let parsed = ConnectionData::parse(&bytes).unwrap();
        assert_eq!((parsed.io_maps, parsed.order), (0, Order::Big));
    }

    #[test]
    fn every_immediate_is_read_as_it_was_written() {
        for message in [
            Message::Data(0),
            Message::Data(VALUE_MASK),
            Message::Grant(65535),
            Message::IoMapped(7),
            Message::Control(Control::Disconnect),
            Message::Control(Control::KeepAlive),
            Message::Control(Control::Shutdown),
            Message::Unknown(0x2000_0000),
            Message::Unknown(0xe000_0003),
        ] {
            assert_eq!(Message::parse(message.immediate()), message);
        }
        // With a carry out of the 16 bits, as peers send it.
        assert_eq!(Message::parse(0x8001_0005), Message::Grant(5));
    }

    #[test]
    fn tables_are_in_the_order_of_their_owner() {
        let map = IoMap {
            offset: 1,
            segment: data().buffer,
        };
        assert_eq!(map.to_table(Order::Big)[..8], [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(map.to_table(Order::Little)[16..20], [8, 7, 6, 5]);
        assert_eq!(IoMap::from_table(map.to_table(Order::OURS)), map);
    }

    #[test]
    fn sizes_of_tables_survive_up_to_128_and_in_steps_of_256() {
        for size in (0..=128).chain([256, 512, 127 << 8]) {
            assert_eq!(scale::decode(scale::encode(size)), size);
            assert_eq!(scale::round(size), size);
        }
        assert_eq!(scale::round(129), 256);
        assert_eq!(scale::round(257), 512);
        assert_eq!(scale::round(u16::MAX), 127 << 8);
    }

    #[test]
    fn headers_over_udp_lie_as_described() {
        let header = UdpHeader {
            operation: UdpOperation::Control,
            queue_pair: 0x01_0203,
            target: "10.0.2.15".parse().unwrap(),
        };
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        assert_eq!(
            bytes,
            [
                0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 1, 2, 3, 0, 10, 0, 2, 15
            ]
        );
        bytes.extend_from_slice(b"hi");
        assert_eq!(UdpHeader::parse(&bytes), Some((header, &b"hi"[..])));
        for cut in 0..16 {
            assert_eq!(UdpHeader::parse(&bytes[..cut]), None);
        }
        bytes[0] = 0x54;
        assert_eq!(UdpHeader::parse(&bytes), None);
    }

    #[test]
    fn headers_of_datagrams_lie_as_described() {
        let mut bytes = Vec::new();
        let source = "[fe80::1]:7471".parse().unwrap();
        let header = DatagramHeader { source };
        header.write(&mut bytes);
        assert_eq!(bytes[..4], [6, 24, 0x1d, 0x2f]);
        assert_eq!(bytes.len(), DatagramHeader::LEN_MAX);
        assert_eq!(DatagramHeader::parse(&bytes), Some((header, &[][..])));
        bytes[1] = 8;
        assert_eq!(DatagramHeader::parse(&bytes), None);

        let source = "10.1.2.3:1".parse().unwrap();
        let mut bytes = Vec::new();
        DatagramHeader { source }.write(&mut bytes);
        assert_eq!(bytes, [4, 8, 0, 1, 10, 1, 2, 3]);
    }
}
