//! `sendmsg` with a gather list, `recvmmsg` with everything the kernel can say about a datagram.

use std::ffi::c_int;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use feroce_mem::Fragment;

use super::address::RawAddress;
use super::control::{Control, int, walk};
use super::socket::{effective_group, effective_user};
use super::{call, check, check_size};

/// Fragments one `sendmsg` takes; the kernel's `UIO_MAXIOV`.
pub(crate) const FRAGMENTS_MAX: usize = 1024;

/// Room for the control messages of one UDP datagram: traffic class, hop limit, segment length
/// and overflow count take 24 bytes each.
pub(crate) const CONTROL_UDP_BYTES: usize = 96;

/// Room for the control messages of one Unix datagram: the credentials and not a byte more, so
/// that the kernel has no place to hand us descriptors a stranger attached (it closes them).
pub(crate) const CONTROL_UNIX_BYTES: usize = 32;

/// Messages one [`ReceiveBuffers::receive`] takes at most.
const MESSAGES_MAX: usize = 16;

// `Fragment` promises to be an `iovec`; the gather list is handed to the kernel as it is.
const _: () = assert!(size_of::<Fragment<'_>>() == size_of::<libc::iovec>());
const _: () = assert!(align_of::<Fragment<'_>>() == align_of::<libc::iovec>());
const _: () = assert!(size_of::<IoSlice<'_>>() == size_of::<libc::iovec>());

/// Where a datagram goes and what its IP header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    /// Address, port, and for IPv6 scope and flow label.
    pub(crate) to: SocketAddr,
    /// DSCP and ECN bits.
    pub(crate) tclass: u8,
    /// Time to live or hop limit; at least 1.
    pub(crate) hop_limit: u8,
}

impl Outgoing {
    /// The same without its flow label, if it has one.
    pub(crate) fn without_label(mut self) -> Option<Self> {
        match &mut self.to {
            SocketAddr::V6(to) if to.flowinfo() != 0 => to.set_flowinfo(0),
            _ => return None,
        }
        Some(self)
    }
}

/// Sends `fragments` as one datagram, or as datagrams of `segment_len` bytes each (the last may be
/// shorter) cut by the kernel.
///
/// # Errors
/// The kernel's; then nothing was sent.
pub(crate) fn send(
    fd: BorrowedFd<'_>,
    outgoing: &Outgoing,
    fragments: &[Fragment<'_>],
    segment_len: Option<u16>,
) -> io::Result<()> {
    send_iovecs(
        fd,
        outgoing,
        feroce_mem::as_iovecs(fragments),
        fragments.len(),
        segment_len,
    )
}

/// Hands out the fragments of each segment of a batch, with its length, in turn.
pub(crate) fn for_each_segment<'f>(
    fragments: &[Fragment<'f>],
    segment_len: usize,
    mut sink: impl FnMut(&[Fragment<'f>], usize),
) {
    let mut segment: Vec<Fragment<'f>> = Vec::new();
    let mut room = segment_len;
    for fragment in fragments {
        let mut at = 0;
        while at < fragment.len() {
            let taken = room.min(fragment.len() - at);
            segment.extend(fragment.slice(at, taken));
            at += taken;
            room -= taken;
            if room == 0 {
                sink(&segment, segment_len);
                segment.clear();
                room = segment_len;
            }
        }
    }
    if !segment.is_empty() {
        sink(&segment, segment_len - room);
    }
}

/// `iovecs` points to `count` entries whose memory the caller keeps borrowed across the call.
fn send_iovecs(
    fd: BorrowedFd<'_>,
    outgoing: &Outgoing,
    iovecs: *const libc::iovec,
    count: usize,
    segment_len: Option<u16>,
) -> io::Result<()> {
    let mut name = RawAddress::from_ip(&outgoing.to);
    let mut control = Control::<96>::new();
    let tclass = c_int::from(outgoing.tclass).to_ne_bytes();
    let hop_limit = c_int::from(outgoing.hop_limit).to_ne_bytes();
    match outgoing.to {
        SocketAddr::V4(_) => {
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &tclass);
            control.push(libc::IPPROTO_IP, libc::IP_TTL, &hop_limit);
        }
        SocketAddr::V6(_) => {
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &tclass);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hop_limit);
        }
    }
    if let Some(length) = segment_len {
        control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &length.to_ne_bytes());
    }
    let control = control.as_bytes();
    // SAFETY: `msghdr` is pointers and integers; all zeroes is a valid value of it.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw mut name.storage).cast();
    header.msg_namelen = name.length;
    header.msg_iov = iovecs.cast_mut();
    header.msg_iovlen = count as _;
    header.msg_control = control.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: name and control live on this stack; the gather list is `count` entries long and its
    // memory is borrowed by the caller's `Fragment`s. The kernel checks each range itself and
    // answers EFAULT for one that is not mapped. `sendmsg` writes to none of it.
    check_size(unsafe { call::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) })?;
    Ok(())
}

/// Who sent a Unix datagram, as the kernel vouches for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    /// Effective user id the sender claimed and was entitled to.
    pub(crate) user: u32,
}

/// Sends `pieces` as one message: to an abstract Unix name together with our credentials, or,
/// without a name, to the kernel on a netlink socket.
///
/// # Errors
/// The kernel's; then nothing was sent.
pub(crate) fn send_plain(
    fd: BorrowedFd<'_>,
    abstract_name: Option<&[u8]>,
    pieces: &[IoSlice<'_>],
) -> io::Result<()> {
    // SAFETY: `msghdr` is pointers and integers; all zeroes is a valid value of it.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    let mut name = abstract_name.map(RawAddress::from_abstract);
    let mut control = Control::<32>::new();
    if let Some(name) = &mut name {
        header.msg_name = (&raw mut name.storage).cast();
        header.msg_namelen = name.length;
        // Asked anew each time: a forked child has another process id.
        let mut credentials = [0; 12];
        credentials[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        credentials[4..8].copy_from_slice(&effective_user().to_ne_bytes());
        credentials[8..].copy_from_slice(&effective_group().to_ne_bytes());
        control.push(libc::SOL_SOCKET, libc::SCM_CREDENTIALS, &credentials);
    }
    let control = control.as_bytes();
    header.msg_iov = pieces.as_ptr().cast_mut().cast();
    header.msg_iovlen = pieces.len() as _;
    header.msg_control = control.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: name, control and the slices in `pieces` (`IoSlice` is ABI-compatible with `iovec`)
    // live across the call, and `sendmsg` writes to none of them.
    check_size(unsafe { call::sendmsg(fd.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) })?;
    Ok(())
}

/// Buffers for a batch of received messages. Untouched ones cost no memory; the default has none.
#[derive(Default)]
pub(crate) struct ReceiveBuffers {
    bytes: Box<[u8]>,
    capacity: usize,
    control_room: usize,
    arrivals: Box<[Arrival]>,
}

/// What the kernel wrote besides the bytes.
struct Arrival {
    name: RawAddress,
    control: ControlRoom,
    control_len: usize,
    length: usize,
    truncated: bool,
}

/// Aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct ControlRoom([u8; CONTROL_UDP_BYTES]);

/// One received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// One datagram, or several of `segment_len` bytes joined by the kernel.
    pub(crate) bytes: &'a [u8],
    /// Length of each joined datagram but the last, or `None` if nothing was joined.
    pub(crate) segment_len: Option<usize>,
    /// DSCP and ECN bits.
    pub(crate) tclass: u8,
    /// Time to live or hop limit as it arrived.
    pub(crate) hop_limit: u8,
    /// Datagrams this socket has dropped so far for want of buffer, when the kernel says so.
    pub(crate) overflow: Option<u32>,
    /// Sender, on Unix sockets.
    pub(crate) credentials: Option<Credentials>,
}

impl ReceiveBuffers {
    /// Room for `count` messages (at most 16) of `capacity` bytes, with `control_room` bytes of
    /// control messages each.
    pub(crate) fn new(count: usize, capacity: usize, control_room: usize) -> Self {
        assert!(count <= MESSAGES_MAX && control_room <= CONTROL_UDP_BYTES);
        let arrival = || Arrival {
            name: RawAddress::empty(),
            control: ControlRoom([0; CONTROL_UDP_BYTES]),
            control_len: 0,
            length: 0,
            truncated: false,
        };
        Self {
            bytes: vec![0; count * capacity].into_boxed_slice(),
            capacity,
            control_room,
            arrivals: (0..count).map(|_| arrival()).collect(),
        }
    }

    /// Receives up to `count` messages (as many as there is room for) without waiting.
    ///
    /// # Errors
    /// The kernel's; `WouldBlock` when there is nothing.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        let count = count.min(self.arrivals.len());
        let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES_MAX];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES_MAX];
        let chunks = self.bytes.chunks_exact_mut(self.capacity);
        for (index, (arrival, chunk)) in self.arrivals.iter_mut().zip(chunks).enumerate() {
            if index == count {
                break;
            }
            arrival.name.length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            let iovec = iovecs[index].write(libc::iovec {
                iov_base: chunk.as_mut_ptr().cast(),
                iov_len: chunk.len(),
            });
            // SAFETY: `mmsghdr` is pointers and integers; all zeroes is a valid value of it.
            let header = headers[index].write(unsafe { mem::zeroed() });
            header.msg_hdr.msg_name = (&raw mut arrival.name.storage).cast();
            header.msg_hdr.msg_namelen = arrival.name.length;
            header.msg_hdr.msg_iov = iovec;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = arrival.control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = self.control_room as _;
        }
        // SAFETY: the first `count` headers were initialised above; they point to names, control
        // rooms and chunks of `self`, which stays borrowed mutably, and to `iovecs` on this stack.
        let received = check(unsafe {
            call::recvmmsg(
                fd.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
            )
        })?;
        let received = usize::try_from(received).unwrap_or(0);
        for (arrival, header) in self.arrivals.iter_mut().zip(&headers[..received]) {
            // SAFETY: `received <= count`, so this header was initialised above.
            let header = unsafe { header.assume_init_ref() };
            arrival.name.length = header.msg_hdr.msg_namelen;
            arrival.control_len = header.msg_hdr.msg_controllen.min(self.control_room);
            arrival.length = (header.msg_len as usize).min(self.capacity);
            arrival.truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        }
        Ok(received)
    }

    /// The `index`-th message of the last batch; `None` if it did not fit its buffer.
    pub(crate) fn message(&self, index: usize) -> Option<Message<'_>> {
        let arrival = &self.arrivals[index];
        if arrival.truncated {
            return None;
        }
        let start = index * self.capacity;
        let mut message = Message {
            bytes: &self.bytes[start..start + arrival.length],
            segment_len: None,
            tclass: 0,
            hop_limit: 0,
            overflow: None,
            credentials: None,
        };
        for (level, kind, payload) in walk(&arrival.control.0[..arrival.control_len]) {
            message.note(level, kind, payload);
        }
        Some(message)
    }

    /// IP address the `index`-th message came from.
    pub(crate) fn source(&self, index: usize) -> Option<SocketAddr> {
        self.arrivals[index].name.to_ip()
    }

    /// Abstract Unix name the `index`-th message came from.
    pub(crate) fn abstract_source(&self, index: usize) -> Option<Vec<u8>> {
        self.arrivals[index].name.to_abstract()
    }
}

impl Message<'_> {
    /// Takes over what one control message says; unknown ones say nothing.
    fn note(&mut self, level: c_int, kind: c_int, payload: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                self.tclass = payload.first().copied().unwrap_or(0);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.tclass = int(payload).unwrap_or(0) as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = int(payload).unwrap_or(0) as u8;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                self.segment_len = int(payload)
                    .and_then(|length| usize::try_from(length).ok())
                    .filter(|length| *length > 0);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                self.overflow = int(payload).map(i32::cast_unsigned);
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                // `struct ucred`: pid, uid, gid.
                self.credentials = payload.get(4..).and_then(int).map(|user| Credentials {
                    user: user.cast_unsigned(),
                });
            }
            _ => {}
        }
    }
}

/// `length` bytes at an address where nothing is mapped, for tests.
#[cfg(test)]
pub(crate) fn unmapped_fragment(length: usize) -> Fragment<'static> {
    let entry = libc::iovec {
        // The first page is never mapped.
        iov_base: std::ptr::without_provenance_mut(64),
        iov_len: length,
    };
    // SAFETY: `Fragment` is `repr(transparent)` over `iovec`. That its bytes are not mapped breaks
    // what it promises, on purpose: only the kernel looks at them, and answers EFAULT.
    unsafe { mem::transmute::<libc::iovec, Fragment<'static>>(entry) }
}

/// Leases an IPv6 flow label for one socket alone, for tests.
#[cfg(test)]
pub(crate) fn lease_flow_label(fd: BorrowedFd<'_>, destination: std::net::Ipv6Addr, label: u32) {
    const IPV6_FLOWLABEL_MGR: c_int = 32;
    let mut request = [0u8; 32]; // struct in6_flowlabel_req
    request[..16].copy_from_slice(&destination.octets());
    request[16..20].copy_from_slice(&label.to_be_bytes());
    request[20] = 0; // get
    request[21] = 1; // exclusive
    request[22..24].copy_from_slice(&1u16.to_ne_bytes()); // create
    // SAFETY: `request` is as long as announced, and the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IPV6,
            IPV6_FLOWLABEL_MGR,
            request.as_ptr().cast(),
            request.len() as libc::socklen_t,
        )
    };
    assert!(check(result).is_ok());
}

/// Sends `payload` with an open file attached, for tests.
#[cfg(test)]
pub(crate) fn send_with_descriptor(
    fd: BorrowedFd<'_>,
    abstract_name: &[u8],
    payload: &[u8],
    attached: BorrowedFd<'_>,
) {
    let mut name = RawAddress::from_abstract(abstract_name);
    let mut control = Control::<32>::new();
    let attached = attached.as_raw_fd().to_ne_bytes();
    control.push(libc::SOL_SOCKET, libc::SCM_RIGHTS, &attached);
    let control = control.as_bytes();
    let piece = IoSlice::new(payload);
    // SAFETY: `msghdr` is pointers and integers; all zeroes is a valid value of it.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = (&raw mut name.storage).cast();
    header.msg_namelen = name.length;
    header.msg_iov = (&raw const piece).cast_mut().cast();
    header.msg_iovlen = 1;
    header.msg_control = control.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len() as _;
    // SAFETY: all of these live across the call, which writes to none of them.
    let sent = unsafe { call::sendmsg(fd.as_raw_fd(), &raw const header, 0) };
    assert_eq!(check_size(sent).ok(), Some(payload.len()));
}
