//! Making sockets and setting them up.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::address::RawAddress;
use super::{call, check, check_size};

/// Sockets of this crate never block and never leak into programs started later.
const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Asks the kernel directly: a preloaded library may turn every `socket` of the process into
/// something else, an rsocket for one, and these carry the device itself.
fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) };
    // Lossless: a descriptor or -1.
    let fd = check(fd as c_int)?;
    // SAFETY: `fd` was just returned to us and nobody else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A UDP socket of the family of `address`, unbound; an IPv6 one carries no IPv4.
pub(crate) fn udp_socket(address: IpAddr) -> io::Result<OwnedFd> {
    use std::os::fd::AsFd;
    match address {
        IpAddr::V4(_) => socket(libc::AF_INET, libc::SOCK_DGRAM | FLAGS, 0),
        IpAddr::V6(_) => {
            let fd = socket(libc::AF_INET6, libc::SOCK_DGRAM | FLAGS, 0)?;
            set_int(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
            Ok(fd)
        }
    }
}

/// A Unix datagram socket, unbound.
pub(crate) fn unix_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_UNIX, libc::SOCK_DGRAM | FLAGS, 0)
}

/// A route netlink socket; `blocking` for dumps, otherwise for a monitor.
pub(crate) fn netlink_socket(blocking: bool) -> io::Result<OwnedFd> {
    let nonblocking = if blocking { 0 } else { libc::SOCK_NONBLOCK };
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | nonblocking;
    socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)
}

fn bind_raw(fd: BorrowedFd<'_>, address: &RawAddress) -> io::Result<()> {
    // SAFETY: `storage` holds an initialised address of `length` bytes.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address.storage).cast(),
            address.length,
        )
    })?;
    Ok(())
}

/// Binds to an IP address and port.
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &SocketAddr) -> io::Result<()> {
    bind_raw(fd, &RawAddress::from_ip(address))
}

/// Binds to an abstract Unix name, given without its leading zero byte.
pub(crate) fn bind_abstract(fd: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    bind_raw(fd, &RawAddress::from_abstract(name))
}

/// Whether some datagram socket of this network namespace has an abstract Unix name.
pub(crate) fn is_bound(name: &[u8]) -> bool {
    use std::os::fd::AsFd;
    let Ok(probe) = unix_socket() else {
        return false;
    };
    let raw = RawAddress::from_abstract(name);
    // SAFETY: `storage` holds an initialised address of `length` bytes. Nothing is sent.
    check(unsafe {
        libc::connect(
            probe.as_fd().as_raw_fd(),
            (&raw const raw.storage).cast(),
            raw.length,
        )
    })
    .is_ok()
}

/// Binds a netlink socket to the multicast groups in `groups` (a bit set).
pub(crate) fn bind_netlink(fd: BorrowedFd<'_>, groups: u32) -> io::Result<()> {
    // SAFETY: `sockaddr_nl` is plain integers; all zeroes is a valid value of it.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = groups;
    // SAFETY: `address` is an initialised `sockaddr_nl` of the length given.
    check(unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_nl>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Fixes the peer of a UDP socket.
pub(crate) fn connect(fd: BorrowedFd<'_>, peer: &SocketAddr) -> io::Result<()> {
    let raw = RawAddress::from_ip(peer);
    // SAFETY: `storage` holds an initialised address of `length` bytes.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw.storage).cast(), raw.length) })?;
    Ok(())
}

/// The address a UDP socket is bound to.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let mut raw = RawAddress::empty();
    // SAFETY: `storage` has room for the `length` bytes announced.
    check(unsafe {
        libc::getsockname(
            fd.as_raw_fd(),
            (&raw mut raw.storage).cast(),
            &raw mut raw.length,
        )
    })?;
    raw.to_ip()
        .ok_or_else(|| io::Error::other("the kernel reported no IP address for a UDP socket"))
}

fn set_raw<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is an initialised `T` and the kernel reads no more than its size.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    })?;
    Ok(())
}

/// Sets an option whose value is an `int`.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_raw(fd, level, name, &value)
}

/// Reads an option whose value is an `int`.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: `value` has room for the `length` bytes announced.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Bytes of its receive buffer a socket has in use, in the kernel's accounting, for tests.
#[cfg(test)]
pub(crate) fn receive_memory(fd: BorrowedFd<'_>) -> u32 {
    let mut values = [0u32; 9]; // SK_MEMINFO_VARS; the first is SK_MEMINFO_RMEM_ALLOC.
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: `values` has room for the `length` bytes announced.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert!(check(result).is_ok());
    values[0]
}

/// Joins a multicast group on the interface with this index, until the socket is closed.
pub(crate) fn join(fd: BorrowedFd<'_>, group: IpAddr, interface: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(group) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(group.octets()),
                },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface.cast_signed(),
            };
            set_raw(fd, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)
        }
        IpAddr::V6(group) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr {
                    s6_addr: group.octets(),
                },
                ipv6mr_interface: interface,
            };
            set_raw(fd, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)
        }
    }
}

/// Fixes the interface by which multicast of the family of `ip` leaves.
pub(crate) fn set_multicast_interface(
    fd: BorrowedFd<'_>,
    ip: IpAddr,
    interface: u32,
) -> io::Result<()> {
    match ip {
        IpAddr::V4(_) => {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: 0 },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface.cast_signed(),
            };
            set_raw(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
        }
        IpAddr::V6(_) => set_int(
            fd,
            libc::IPPROTO_IPV6,
            libc::IPV6_MULTICAST_IF,
            interface.cast_signed(),
        ),
    }
}

/// Has the kernel drop all input of a socket that is only sent from: a filter that keeps 0 bytes.
pub(crate) fn discard_input(fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut keep_nothing = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut keep_nothing,
    };
    set_raw(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// One `recv`, into a buffer; returns the length of the message, which may exceed the buffer.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: `buffer` is writable for its length.
    check_size(unsafe {
        call::recv(
            fd.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
            libc::MSG_TRUNC,
        )
    })
}

/// Effective user id, which `SO_REUSEPORT` groups must share.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// Effective group id.
pub(super) fn effective_group() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::getegid() }
}

/// Milliseconds of the coarse monotonic clock: a few nanoseconds to read, a few milliseconds off.
pub(crate) fn monotonic_coarse_ms() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is writable; the clock exists since Linux 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}
