//! The kinds of UDP sockets a device has, and how each is set up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys;

/// Receive buffer asked for, in bytes: half a millisecond of 100 Gb/s is 6 MiB. The kernel takes
/// no more than `rmem_max` (212,992 or 4 MiB by default), and memory only while it is in use.
const RECEIVE_BUFFER: i32 = 16 << 20;

/// `IPV6_MULTICAST_ALL`, which libc does not name.
const IPV6_MULTICAST_ALL: i32 = 29;

/// A socket in the receive set.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    pub(super) role: Role,
    /// Address a datagram on it was sent to; meaningless for slots.
    pub(super) address: IpAddr,
    /// Last overflow count the kernel reported.
    pub(super) overflow: u32,
    /// Coarse time of the last datagram; kept for flows only.
    pub(super) used_ms: u64,
}

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Connected to one remote flow, so that the kernel prefers it to the shared ones.
    Flow(SocketAddr),
    /// Bound to a multicast group; every member process gets its own copy.
    Group,
    /// Bound to a port of our own: same-host peers send here, and all sending starts here.
    Private,
    /// Bound to the well-known port, together with other processes.
    Shared,
    /// The Unix socket of the slot with this position.
    Slot(usize),
    /// Not a socket at all: the timer of delayed datagrams.
    Timer,
}

impl Socket {
    pub(super) const fn new(fd: OwnedFd, role: Role, address: IpAddr) -> Self {
        Self {
            fd,
            role,
            address,
            overflow: 0,
            used_ms: 0,
        }
    }
}

/// Why a device's sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is not on this host, or not yet usable.
    #[error(
        "{0} is not an address of this host, or its duplicate address detection has not finished: \
         see `ip address`"
    )]
    AddressUnavailable(IpAddr),
    /// The process has no file descriptors left.
    #[error("out of file descriptors: raise the limit (`ulimit -n`)")]
    Descriptors,
    /// The well-known port belongs to someone who does not share it.
    #[error(
        "UDP port {port} on {address} is in use by another user or a program that does not share \
         it: run all RDMA programs of this address as one user, or stop the one that holds the \
         port (`ss -ulpn`)"
    )]
    PortInUse {
        /// The address.
        address: IpAddr,
        /// The port.
        port: u16,
    },
    /// Something else.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl OpenError {
    /// Errors of `socket`, `setsockopt` and the like.
    pub(super) fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Self::Descriptors,
            _ => Self::Io { what, source },
        }
    }

    /// Errors of `bind`.
    fn bind(address: SocketAddr) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EADDRINUSE) if address.port() != 0 => Self::PortInUse {
                address: address.ip(),
                port: address.port(),
            },
            Some(libc::EADDRNOTAVAIL) => Self::AddressUnavailable(address.ip()),
            _ => Self::Io {
                what: "a UDP socket cannot be bound",
                source,
            },
        }
    }
}

/// What all sockets of a device have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) interface: u32,
    pub(super) port: u16,
    /// Receive buffer to ask for; `None`: [`RECEIVE_BUFFER`].
    pub(super) receive_buffer: Option<u32>,
    pub(super) send_buffer: i32,
}

impl Setup {
    /// `ip` and `port` as a socket address; link-local ones need the interface.
    pub(super) const fn socket_address(&self, ip: IpAddr, port: u16, label: u32) -> SocketAddr {
        match ip {
            IpAddr::V4(ip) => SocketAddr::V4(std::net::SocketAddrV4::new(ip, port)),
            IpAddr::V6(ip) => {
                let scope = if is_link_local(ip) { self.interface } else { 0 };
                SocketAddr::V6(SocketAddrV6::new(ip, port, label, scope))
            }
        }
    }

    /// A socket on the well-known port of `ip`, shared with other processes of this user.
    pub(super) fn shared(&self, ip: IpAddr) -> Result<OwnedFd, OpenError> {
        let fd = self.receiving(ip)?;
        let share = sys::set_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
        share.map_err(OpenError::io("a UDP port cannot be shared"))?;
        let address = self.socket_address(ip, self.port, 0);
        sys::bind(fd.as_fd(), &address).map_err(OpenError::bind(address))?;
        Ok(fd)
    }

    /// A socket for the datagrams of one remote flow.
    pub(super) fn flow(&self, ip: IpAddr, peer: &SocketAddr) -> Result<OwnedFd, OpenError> {
        let fd = self.shared(ip)?;
        sys::connect(fd.as_fd(), peer).map_err(OpenError::io(
            "a UDP socket cannot be connected to a remote flow",
        ))?;
        Ok(fd)
    }

    /// A socket on a port of its own, to send from and for same-host peers to send to.
    pub(super) fn private(&self, ip: IpAddr) -> Result<OwnedFd, OpenError> {
        let fd = self.receiving(ip)?;
        self.prepare_sending(&fd, ip)
            .map_err(OpenError::io("a UDP socket cannot be set up to send"))?;
        let address = self.socket_address(ip, 0, 0);
        sys::bind(fd.as_fd(), &address).map_err(OpenError::bind(address))?;
        Ok(fd)
    }

    /// A socket that only sends, for one more source port.
    pub(super) fn spread(&self, ip: IpAddr) -> Result<OwnedFd, OpenError> {
        let what = OpenError::io("a UDP socket cannot be set up to send");
        let fd = sys::udp_socket(ip).map_err(&what)?;
        sys::discard_input(fd.as_fd()).map_err(&what)?;
        self.prepare_sending(&fd, ip).map_err(&what)?;
        let address = self.socket_address(ip, 0, 0);
        sys::bind(fd.as_fd(), &address).map_err(OpenError::bind(address))?;
        Ok(fd)
    }

    /// A socket for the datagrams of one multicast group.
    pub(super) fn group(&self, group: IpAddr) -> Result<OwnedFd, OpenError> {
        let what = OpenError::io("a multicast group cannot be joined");
        let fd = self.receiving(group)?;
        sys::set_int(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).map_err(&what)?;
        // Without this, memberships of other sockets and interfaces would show here.
        let (level, all) = match group {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL),
        };
        sys::set_int(fd.as_fd(), level, all, 0).map_err(&what)?;
        let address = self.socket_address(group, self.port, 0);
        sys::bind(fd.as_fd(), &address).map_err(OpenError::bind(address))?;
        sys::join(fd.as_fd(), group, self.interface).map_err(&what)?;
        Ok(fd)
    }

    /// An unbound socket that reports all the protocol wants to know about a datagram.
    fn receiving(&self, ip: IpAddr) -> Result<OwnedFd, OpenError> {
        let what = OpenError::io("a UDP socket cannot be opened");
        let fd = sys::udp_socket(ip).map_err(&what)?;
        let socket = fd.as_fd();
        let (level, tclass, hop_limit) = match ip {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS, libc::IP_RECVTTL),
            IpAddr::V6(_) => (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVTCLASS,
                libc::IPV6_RECVHOPLIMIT,
            ),
        };
        sys::set_int(socket, level, tclass, 1).map_err(&what)?;
        sys::set_int(socket, level, hop_limit, 1).map_err(&what)?;
        sys::set_int(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(&what)?;
        if ip.is_ipv6() {
            // RoCE peers send no UDP checksum; the invariant CRC covers what it would.
            sys::set_int(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1).map_err(&what)?;
        }
        // Kernels before 5.0 cannot join datagrams: slower, not wrong.
        if let Err(error) = sys::set_int(socket, libc::SOL_UDP, libc::UDP_GRO, 1) {
            log::debug!("this kernel does not join received datagrams: {error}");
        }
        match self.receive_buffer {
            None => raise(socket, libc::SO_RCVBUF, RECEIVE_BUFFER),
            Some(bytes) => {
                let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
                sys::set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
            }
        }
        .map_err(&what)?;
        Ok(fd)
    }

    fn prepare_sending(&self, fd: &OwnedFd, ip: IpAddr) -> io::Result<()> {
        let socket = fd.as_fd();
        match ip {
            IpAddr::V4(_) => {
                // Unconnected and never fragmenting: the kernel then sends identification 0 with
                // "don't fragment", which the invariant CRC of the layers above relies on.
                let probe = libc::IP_PMTUDISC_PROBE;
                sys::set_int(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, probe)?;
                sys::set_int(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP, 1)?;
            }
            IpAddr::V6(_) => {
                let probe = libc::IPV6_PMTUDISC_PROBE;
                sys::set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
                sys::set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, 1)?;
                // Lets the destination address carry a flow label.
                sys::set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO_SEND, 1)?;
            }
        }
        sys::set_multicast_interface(socket, ip, self.interface)?;
        raise(socket, libc::SO_SNDBUF, self.send_buffer)
    }
}

/// Raises a buffer size to `wanted` bytes or the most the host allows (`rmem_max`, `wmem_max`).
fn raise(fd: BorrowedFd<'_>, which: i32, wanted: i32) -> io::Result<()> {
    // The kernel reports twice what was asked for, and may have more already.
    if sys::get_int(fd, libc::SOL_SOCKET, which)? / 2 < wanted {
        sys::set_int(fd, libc::SOL_SOCKET, which, wanted)?;
    }
    Ok(())
}

/// Whether an IPv6 address means different hosts on different interfaces.
const fn is_link_local(ip: Ipv6Addr) -> bool {
    ip.is_unicast_link_local() || (ip.is_multicast() && ip.octets()[1] & 0xf <= 2)
}

/// The address no datagram is sent to, for sockets that have none.
pub(super) const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
