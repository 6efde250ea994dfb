//! The few route netlink messages this crate needs, as bytes.
//!
//! Not a netlink library: two dumps and five notifications, seven attributes. Everything else in
//! a message is stepped over, so a kernel that adds or changes other attributes cannot make an
//! interface disappear. See `netlink(7)` and `rtnetlink(7)`.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crate::sys;

/// Subscriptions: `RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR`.
pub(crate) const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// Large enough for what the kernel puts into one read of a dump (32 KiB) and for any link.
const READ_BYTES: usize = 64 * 1024;

/// A dump that changes under way is read again this often before it is taken as it is.
const DUMP_ATTEMPTS: usize = 4;

const MESSAGE_HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ADDRESS_HEADER: usize = 8;
const DUMP_INTERRUPTED: u16 = 0x10;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_OPERSTATE: u16 = 16;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// A link as the kernel described it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkRecord {
    pub(crate) index: u32,
    /// `IFF_*`.
    pub(crate) flags: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) mac: Vec<u8>,
    /// `IF_OPER_*`.
    pub(crate) operational_state: u8,
}

/// An interface address as the kernel described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressRecord {
    pub(crate) index: u32,
    pub(crate) ip: IpAddr,
    pub(crate) prefix_len: u8,
    /// `RT_SCOPE_*`.
    pub(crate) scope: u8,
    /// `IFA_F_*`.
    pub(crate) flags: u32,
}

/// One message this crate understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    AddressGone(AddressRecord),
    Address(AddressRecord),
    LinkGone(u32),
    Link(LinkRecord),
}

/// Reads all links and addresses of this network namespace.
pub(crate) fn dump() -> io::Result<Vec<Record>> {
    let socket = sys::netlink_socket(true)?;
    sys::bind_netlink(socket.as_fd(), 0)?;
    let mut records = dump_kind(socket.as_fd(), libc::RTM_GETLINK, LINK_HEADER, 1)?;
    records.extend(dump_kind(
        socket.as_fd(),
        libc::RTM_GETADDR,
        ADDRESS_HEADER,
        1 + DUMP_ATTEMPTS as u32,
    )?);
    Ok(records)
}

fn dump_kind(
    socket: BorrowedFd<'_>,
    kind: u16,
    body_len: usize,
    first_sequence: u32,
) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    for attempt in 0..DUMP_ATTEMPTS as u32 {
        records.clear();
        let interrupted = dump_once(
            socket,
            kind,
            body_len,
            first_sequence + attempt,
            &mut records,
        )?;
        if !interrupted {
            break;
        }
    }
    Ok(records)
}

/// One dump; `true` if something changed while it was made.
fn dump_once(
    socket: BorrowedFd<'_>,
    kind: u16,
    body_len: usize,
    sequence: u32,
    records: &mut Vec<Record>,
) -> io::Result<bool> {
    let length = (MESSAGE_HEADER + body_len) as u32;
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut request = Vec::with_capacity(length as usize);
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    request.resize(length as usize, 0);
    sys::send_plain(socket, None, &[IoSlice::new(&request)])?;

    let mut interrupted = false;
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = match sys::receive(socket, &mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let Some(read) = buffer.get(..length) else {
            return Err(io::Error::other(
                "a netlink message is longer than any should be",
            ));
        };
        for message in messages(read).filter(|message| message.sequence == sequence) {
            interrupted |= message.flags & DUMP_INTERRUPTED != 0;
            match i32::from(message.kind) {
                libc::NLMSG_DONE => return Ok(interrupted),
                libc::NLMSG_ERROR => return Err(error_of(message.body)),
                _ => records.extend(record(&message)),
            }
        }
    }
}

/// The error a `NLMSG_ERROR` carries.
fn error_of(body: &[u8]) -> io::Error {
    let code = body
        .first_chunk()
        .map_or(0, |code| i32::from_ne_bytes(*code));
    io::Error::from_raw_os_error(code.wrapping_neg())
}

/// Reads what is waiting on a subscribed, non-blocking socket and hands each record to `sink`.
///
/// # Errors
/// `WouldBlock` when all is read; `ENOBUFS` when notifications were lost.
pub(crate) fn read_notifications(
    socket: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    mut sink: impl FnMut(Record),
) -> io::Result<()> {
    buffer.resize(READ_BYTES, 0);
    let length = sys::receive(socket, buffer)?;
    // A message beyond the buffer was cut: the caller has to look again, as after an overflow.
    let read = buffer
        .get(..length)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOBUFS))?;
    messages(read)
        .filter_map(|message| record(&message))
        .for_each(&mut sink);
    Ok(())
}

struct RawMessage<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

fn messages(mut bytes: &[u8]) -> impl Iterator<Item = RawMessage<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let message = RawMessage {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            body: bytes.get(MESSAGE_HEADER..length)?,
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const FLAGS: u16 = 0xc000; // nested, network byte order
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & !FLAGS;
        let payload = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    })
}

fn record(message: &RawMessage<'_>) -> Option<Record> {
    match message.kind {
        libc::RTM_NEWLINK => link(message.body).map(Record::Link),
        libc::RTM_DELLINK => u32_at(message.body, 4).map(Record::LinkGone),
        libc::RTM_NEWADDR => address(message.body).map(Record::Address),
        libc::RTM_DELADDR => address(message.body).map(Record::AddressGone),
        _ => None,
    }
}

fn link(body: &[u8]) -> Option<LinkRecord> {
    // Bridges report their ports with their own family in the same message type.
    if *body.first()? != libc::AF_UNSPEC as u8 {
        return None;
    }
    let mut link = LinkRecord {
        index: u32_at(body, 4)?,
        flags: u32_at(body, 8)?,
        ..LinkRecord::default()
    };
    for (kind, payload) in attributes(body.get(LINK_HEADER..)?) {
        match kind {
            IFLA_ADDRESS => link.mac = payload.to_vec(),
            IFLA_IFNAME => {
                let name = payload.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => link.mtu = u32_at(payload, 0).unwrap_or(0),
            IFLA_OPERSTATE => link.operational_state = payload.first().copied().unwrap_or(0),
            _ => {}
        }
    }
    Some(link)
}

fn address(body: &[u8]) -> Option<AddressRecord> {
    let family = *body.first()?;
    let mut flags = u32::from(*body.get(2)?);
    let (mut peer, mut local) = (None, None);
    for (kind, payload) in attributes(body.get(ADDRESS_HEADER..)?) {
        match kind {
            IFA_ADDRESS => peer = ip(family, payload),
            IFA_LOCAL => local = ip(family, payload),
            IFA_FLAGS => flags = u32_at(payload, 0).unwrap_or(flags),
            _ => {}
        }
    }
    Some(AddressRecord {
        index: u32_at(body, 4)?,
        // On a point-to-point link `IFA_ADDRESS` is the other end.
        ip: local.or(peer)?,
        prefix_len: *body.get(1)?,
        scope: *body.get(3)?,
        flags,
    })
}

fn ip(family: u8, payload: &[u8]) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => payload.first_chunk::<4>().map(|bytes| (*bytes).into()),
        libc::AF_INET6 => payload.first_chunk::<16>().map(|bytes| (*bytes).into()),
        _ => None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_ne_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((4 + payload.len() as u16).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, header: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
        let body: Vec<u8> = header.iter().copied().chain(attributes.concat()).collect();
        let mut bytes = Vec::new();
        bytes.extend((MESSAGE_HEADER as u32 + body.len() as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(MESSAGE_HEADER, 0);
        bytes.extend(body);
        bytes
    }

    fn link_bytes() -> Vec<u8> {
        let mut header = [0; LINK_HEADER];
        header[4..8].copy_from_slice(&7u32.to_ne_bytes());
        header[8..12].copy_from_slice(&0x1_0043u32.to_ne_bytes());
        message(
            libc::RTM_NEWLINK,
            &header,
            &[
                attribute(IFLA_IFNAME, b"eth7\0"),
                attribute(99, &[1, 2, 3]),
                attribute(IFLA_MTU, &9000u32.to_ne_bytes()),
                attribute(IFLA_OPERSTATE, &[6]),
                attribute(IFLA_ADDRESS, &[2, 0, 0, 0, 0, 7]),
            ],
        )
    }

    fn records(bytes: &[u8]) -> Vec<Record> {
        messages(bytes)
            .filter_map(|message| record(&message))
            .collect()
    }

    #[test]
    fn a_link_is_read_and_unknown_attributes_are_stepped_over() {
        let expected = LinkRecord {
            index: 7,
            flags: 0x1_0043,
            name: "eth7".into(),
            mtu: 9000,
            mac: vec![2, 0, 0, 0, 0, 7],
            operational_state: 6,
        };
        assert_eq!(records(&link_bytes()), [Record::Link(expected)]);
    }

    #[test]
    fn a_point_to_point_address_is_the_local_one_and_flags_are_the_wide_ones() {
        let header = [libc::AF_INET as u8, 30, 0x80, 0, 7, 0, 0, 0];
        let bytes = message(
            libc::RTM_NEWADDR,
            &header,
            &[
                attribute(IFA_ADDRESS, &[10, 0, 0, 1]),
                attribute(IFA_LOCAL, &[10, 0, 0, 2]),
                attribute(IFA_FLAGS, &0x240u32.to_ne_bytes()),
            ],
        );
        let [Record::Address(address)] = &records(&bytes)[..] else {
            panic!("one address");
        };
        assert_eq!(address.ip, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((address.prefix_len, address.flags), (30, 0x240));
    }

    #[test]
    fn a_cut_message_is_never_read_beyond_its_end() {
        let bytes = [link_bytes(), link_bytes()].concat();
        for length in 0..bytes.len() {
            assert!(records(&bytes[..length]).len() <= 1, "cut at {length}");
        }
        assert_eq!(records(&bytes).len(), 2);
        // Lengths that lie.
        for at in [0, 4 + MESSAGE_HEADER + LINK_HEADER] {
            let mut bytes = link_bytes();
            for value in [0, 1, 3, 4, 0xff] {
                bytes[at] = value;
                let _ = records(&bytes);
            }
        }
    }
}
