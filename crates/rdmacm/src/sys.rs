//! The few system calls of this library: descriptors that wake, route look-ups, interfaces, the
//! clock.
//!
//! Sockets are made by the bare system call: under `librspreload.so` the C library's `socket` is
//! the program's idea of one. Not here: packets, which are the verbs library's.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;

use feroce_proto::Instant;

use crate::address::SocketAddress;

/// A descriptor that counts: readable while the count is not zero, a read takes one.
#[derive(Debug)]
pub(crate) struct Counter(OwnedFd);

impl Counter {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Adds one.
    pub(crate) fn add(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes are read from `one`. It cannot fail before 2⁶⁴ - 1 are waiting.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes one if there is one, without waiting, whatever the descriptor's mode is.
    pub(crate) fn take(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry.
        if unsafe { libc::poll(&raw mut poll, 1, 0) } != 1 {
            return false;
        }
        let mut value = [0_u8; 8];
        let vector = libc::iovec {
            iov_base: value.as_mut_ptr().cast(),
            iov_len: value.len(),
        };
        // SAFETY: one vector of eight bytes. Another reader may have been faster: no waiting.
        unsafe { libc::preadv2(self.fd(), &raw const vector, 1, -1, libc::RWF_NOWAIT) == 8 }
    }
}

/// Takes one from a [`Counter`] by its descriptor, in the descriptor's mode: `EAGAIN` if it is not
/// to block.
pub(crate) fn wait_for_one(fd: RawFd) -> io::Result<()> {
    let mut value = [0_u8; 8];
    // SAFETY: eight bytes of room.
    if unsafe { libc::read(fd, value.as_mut_ptr().cast(), value.len()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until one of the descriptors is readable or `deadline` is there; `None` waits without end.
pub(crate) fn wait(fds: &mut [libc::pollfd], now: Instant, deadline: Option<Instant>) {
    let timeout = deadline.map(|deadline| {
        let rest = deadline.since(now);
        libc::timespec {
            tv_sec: libc::time_t::try_from(rest.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: rest.subsec_nanos().into(),
        }
    });
    let timeout = timeout
        .as_ref()
        .map_or(ptr::null(), |timeout| &raw const *timeout);
    // SAFETY: the slice and the time live during the call; no signal mask.
    unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as u64, timeout, ptr::null()) };
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> Instant {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for the result; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Eight random bytes.
pub(crate) fn random() -> u64 {
    let mut bytes = [0_u8; 8];
    // SAFETY: eight bytes of room.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 8 {
        return now().nanos();
    }
    u64::from_ne_bytes(bytes)
}

fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_socket,
            family,
            kind | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and nobody else's; the kernel's are small.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The address from which this host would send to `destination`: what the kernel answers when a
/// datagram socket is connected. With `source`, whether that address can be used at all.
pub(crate) fn source_for(
    destination: SocketAddress,
    source: Option<SocketAddress>,
) -> io::Result<SocketAddress> {
    let family = destination.family();
    let socket = socket(family, libc::SOCK_DGRAM, 0)?;
    let fd = i64::from(socket.as_raw_fd());
    let call = |number, address: SocketAddress| {
        let (storage, length) = address.to_storage();
        // SAFETY: an address of `length` bytes.
        match unsafe { libc::syscall(number, fd, &raw const storage, length) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    if let Some(source) = source {
        call(libc::SYS_bind, SocketAddress { port: 0, ..source })?;
    }
    // Port 0 cannot be connected to everywhere; any other will do, nothing is sent.
    call(
        libc::SYS_connect,
        SocketAddress {
            port: 4791,
            ..destination
        },
    )?;
    let (mut storage, mut length) = destination.to_storage();
    // SAFETY: room for an address, and its length.
    let got =
        unsafe { libc::syscall(libc::SYS_getsockname, fd, &raw mut storage, &raw mut length) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel wrote a whole address.
    let found = unsafe { SocketAddress::read((&raw const storage).cast(), "the source address") };
    // The port is the socket's, which is of no use to anybody.
    found
        .map(|found| SocketAddress { port: 0, ..found })
        .map_err(|failure| io::Error::other(failure.reason))
}

/// One address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) interface: String,
    pub(crate) index: u32,
    pub(crate) address: SocketAddress,
}

/// The addresses of all interfaces that are up.
pub(crate) fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list = ptr::null_mut();
    // SAFETY: room for the list's head.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: an entry of the list, which lives until it is freed below.
        let (name, address, flags, next) = unsafe {
            let entry = &*entry;
            (
                CStr::from_ptr(entry.ifa_name),
                SocketAddress::read(entry.ifa_addr, "the interface's address"),
                entry.ifa_flags,
                entry.ifa_next,
            )
        };
        entry = next;
        let Ok(address) = address else { continue };
        if flags & libc::IFF_UP as u32 == 0 {
            continue;
        }
        // SAFETY: a string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        found.push(InterfaceAddress {
            interface: name.to_string_lossy().into_owned(),
            index,
            address,
        });
    }
    // SAFETY: from getifaddrs, once.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// A descriptor that is readable after links or addresses have changed.
pub(crate) fn watch_interfaces() -> io::Result<OwnedFd> {
    let socket = socket(
        libc::AF_NETLINK,
        libc::SOCK_RAW | libc::SOCK_NONBLOCK,
        libc::NETLINK_ROUTE,
    )?;
    // SAFETY: integers only, for which zero is a value.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups =
        (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
    // SAFETY: an address of that length.
    let bound = unsafe {
        libc::syscall(
            libc::SYS_bind,
            i64::from(socket.as_raw_fd()),
            &raw const address,
            size_of::<libc::sockaddr_nl>(),
        )
    };
    if bound != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Reads away what waits in a [`watch_interfaces`] descriptor.
pub(crate) fn drain(fd: RawFd) {
    let mut bytes = [0_u8; 8192];
    // SAFETY: room of that length; the socket does not block. An overrun reads as ENOBUFS, once.
    while unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) } != -1
        || io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS)
    {}
}

/// Blocks all signals in this thread, and says which were blocked before.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: room for two sets; a set of integers may be zero.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

/// Undoes [`block_signals`].
pub(crate) fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that the call above filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const *before, ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_gives_what_was_added() {
        let counter = Counter::new().unwrap();
        assert!(!counter.take());
        counter.add();
        counter.add();
        assert!(counter.take());
        wait_for_one(counter.fd()).unwrap();
        assert!(!counter.take());
    }

    #[test]
    fn loopback_is_reached_from_loopback() {
        let destination = SocketAddress::new("127.0.0.1".parse().unwrap(), 7174);
        let source = source_for(destination, None).unwrap();
        assert_eq!(
            source,
            SocketAddress {
                port: 0,
                ..destination
            }
        );
    }
}
