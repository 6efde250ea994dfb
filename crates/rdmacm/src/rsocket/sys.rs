//! System calls that rsockets need besides verbs: waiting, waking, a UDP socket, memory.
//!
//! A preloaded library may stand in for `socket`, `poll` and the like in the whole process and
//! turn them into rsockets. What is made here must stay what it is, so the few calls that could be
//! taken for a program's go to the kernel directly.

use std::ffi::{c_int, c_short, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant};

use crate::guard::Failure;

/// A descriptor that becomes readable when another thread wants this one to look.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    /// A bell that has not rung.
    pub(crate) fn new() -> Result<Self, Failure> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(Failure::last("eventfd"));
        }
        // SAFETY: just made, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The descriptor to poll.
    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub(crate) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. A full counter is as good as a ring.
        unsafe { libc::syscall(libc::SYS_write, self.fd(), one.as_ptr(), one.len()) };
    }

    /// Makes it silent.
    pub(crate) fn hush(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight writable bytes.
        unsafe { libc::syscall(libc::SYS_read, self.fd(), count.as_mut_ptr(), count.len()) };
    }
}

/// A descriptor to wait for.
pub(crate) fn pollfd(fd: RawFd, events: c_short) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// Waits until a descriptor is ready or the time is up (`None`: for ever). How many are ready.
///
/// # Errors
/// EINTR above all; the caller decides whether to go on.
pub(crate) fn poll(fds: &mut [libc::pollfd], until: Option<Instant>) -> Result<usize, Failure> {
    let limit = until.map(|until| {
        let rest = until.saturating_duration_since(Instant::now());
        timespec(rest)
    });
    let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: a slice of descriptors and a time that live through the call. `ppoll` rather than
    // `poll`: nothing stands in for it.
    let count = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, limit, ptr::null()) };
    usize::try_from(count).map_err(|_| Failure::last("poll"))
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// A UDP socket that stays one under a preloaded library.
pub(crate) fn udp_socket(domain: c_int) -> Result<OwnedFd, Failure> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, 0) };
    match c_int::try_from(fd) {
        // SAFETY: just made, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(Failure::last("socket")),
    }
}

/// Has reads and writes of a descriptor fail rather than wait.
pub(crate) fn set_nonblocking(fd: RawFd) -> Result<(), Failure> {
    // SAFETY: takes no pointer; the descriptor is one of ours.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(Failure::last("fcntl"));
    }
    Ok(())
}

/// Pages of zeros, given back when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    start: *mut u8,
    length: usize,
}

// SAFETY: plain memory; who may touch which bytes when is settled by those who hold it.
unsafe impl Send for Pages {}

impl Pages {
    /// At least `length` bytes, not there before they are touched.
    pub(crate) fn new(length: usize) -> Result<Self, Failure> {
        let length = length.max(1);
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Failure::last("mmap of a buffer"));
        }
        Ok(Self {
            start: start.cast(),
            length,
        })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Copies out. A peer may write the same bytes at the same time, by its own fault: no
    /// reference to them is made.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.length && to.len() <= self.length - offset);
        // SAFETY: inside the mapping, as just checked; `to` is other memory, since nobody has a
        // reference into the mapping.
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Copies in.
    pub(crate) fn write(&mut self, offset: usize, from: &[u8]) {
        assert!(offset <= self.length && from.len() <= self.length - offset);
        // SAFETY: as in `read`.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(offset), from.len()) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, registered nowhere any more: registrations are dropped first.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// A socket address as C programs have it.
#[derive(Clone, Copy)]
pub(crate) struct RawAddress {
    storage: libc::sockaddr_storage,
}

impl std::fmt::Debug for RawAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.address())
    }
}

impl RawAddress {
    /// Copies an address of a program.
    ///
    /// # Errors
    /// EINVAL for a length that is too short, EAFNOSUPPORT for other families than IPv4 and IPv6.
    ///
    /// # Safety
    /// `address` is null or has `length` readable bytes.
    pub(crate) unsafe fn copy(
        address: *const libc::sockaddr,
        length: libc::socklen_t,
    ) -> Result<Self, Failure> {
        if address.is_null() {
            return Err(Failure::new(libc::EFAULT, "the address is a null pointer"));
        }
        let length = length as usize;
        if length < size_of::<libc::sa_family_t>() {
            return Err(Failure::invalid("the address has no family"));
        }
        // SAFETY: an all-zero address is one of no family.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let count = length.min(size_of_val(&storage));
        // SAFETY: the caller's contract; at most as many bytes as there is room for.
        unsafe { ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut storage).cast(), count) };
        let enough = match c_int::from(storage.ss_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            // Without the scope, as old programs have it.
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>() - size_of::<u32>(),
            family => {
                return Err(Failure::new(
                    libc::EAFNOSUPPORT,
                    format!("addresses of family {family} are not supported: IPv4 and IPv6 are"),
                ));
            }
        };
        if length < enough {
            return Err(Failure::invalid(format!(
                "an address of {length} bytes where {enough} are needed"
            )));
        }
        Ok(Self { storage })
    }

    /// The address that `storage` holds.
    pub(crate) fn from_storage(storage: libc::sockaddr_storage) -> Self {
        Self { storage }
    }

    /// An address of ours in C's form.
    pub(crate) fn new(address: SocketAddr) -> Self {
        // SAFETY: an all-zero address is one of no family.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        match address {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as _,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: `sockaddr_storage` has room and alignment for every family.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as _,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            }
        }
        Self { storage }
    }

    /// The address in Rust's form; `None` if it has no family.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match c_int::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says which form it has; room and alignment are as above.
                let raw = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in>() };
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(raw.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let raw = unsafe { &*(&raw const self.storage).cast::<libc::sockaddr_in6>() };
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Some(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    /// For calls that take an address.
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    /// For calls of the connection manager, which take it without `const` and do not write.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.storage).cast()
    }

    /// Bytes of it.
    pub(crate) fn length(&self) -> libc::socklen_t {
        let length = match c_int::from(self.storage.ss_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => size_of::<libc::sa_family_t>(),
        };
        length as libc::socklen_t
    }

    /// Gives it to a program, cut to the room that it has, and the true length.
    ///
    /// # Safety
    /// `to` is null or has `*length` writable bytes; `length` is null only if `to` is.
    pub(crate) unsafe fn give(&self, to: *mut libc::sockaddr, length: *mut libc::socklen_t) {
        if to.is_null() || length.is_null() {
            return;
        }
        // SAFETY: the caller's contract.
        unsafe {
            let count = (*length).min(self.length()) as usize;
            ptr::copy_nonoverlapping((&raw const self.storage).cast::<u8>(), to.cast(), count);
            *length = self.length();
        }
    }
}

/// Sets an option of a socket of ours to a number.
pub(crate) fn set_option(
    fd: RawFd,
    level: c_int,
    name: c_int,
    value: c_int,
) -> Result<(), Failure> {
    let size = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: a number that lives through the call.
    let result =
        unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast::<c_void>(), size) };
    if result < 0 {
        return Err(Failure::last("setsockopt"));
    }
    Ok(())
}

/// Binds a socket of ours.
pub(crate) fn bind(fd: RawFd, address: &RawAddress) -> Result<(), Failure> {
    // SAFETY: an address that lives through the call.
    if unsafe { libc::bind(fd, address.as_ptr(), address.length()) } < 0 {
        return Err(Failure::last("bind"));
    }
    Ok(())
}

/// Where a socket of ours is bound.
pub(crate) fn local_address(fd: RawFd) -> Result<RawAddress, Failure> {
    // SAFETY: an all-zero address is one of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: room for every family, and its size.
    let result = unsafe { libc::getsockname(fd, (&raw mut storage).cast(), &raw mut length) };
    if result < 0 {
        return Err(Failure::last("getsockname"));
    }
    Ok(RawAddress::from_storage(storage))
}

/// The address from which the kernel would send to `to`.
pub(crate) fn source_of(to: SocketAddr) -> Result<IpAddr, Failure> {
    let domain = if to.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = udp_socket(domain)?;
    let raw = RawAddress::new(to);
    // SAFETY: an address that lives through the call. Nothing is sent by it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_connect,
            socket.as_raw_fd(),
            raw.as_ptr(),
            raw.length(),
        )
    };
    if result < 0 {
        return Err(Failure::last(&format!("no route to {}", to.ip())));
    }
    let local = local_address(socket.as_raw_fd())?.address();
    local
        .map(|address| address.ip())
        .ok_or_else(|| Failure::new(libc::EADDRNOTAVAIL, "the kernel names no local address"))
}

/// Receives one datagram without waiting: its length and who sent it. `None`: there is none.
pub(crate) fn receive_from(
    fd: RawFd,
    to: &mut [u8],
) -> Result<Option<(usize, SocketAddr)>, io::Error> {
    // SAFETY: an all-zero address is one of no family.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&storage) as libc::socklen_t;
    // SAFETY: room for the bytes and for every family, with their sizes.
    let result = unsafe {
        libc::recvfrom(
            fd,
            to.as_mut_ptr().cast(),
            to.len(),
            libc::MSG_DONTWAIT,
            (&raw mut storage).cast(),
            &raw mut length,
        )
    };
    match (
        usize::try_from(result),
        RawAddress::from_storage(storage).address(),
    ) {
        (Ok(count), Some(from)) => Ok(Some((count, from))),
        (Ok(_), None) => Ok(None),
        (Err(_), _) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}

/// Sends one datagram without waiting.
pub(crate) fn send_to(fd: RawFd, bytes: &[u8], to: SocketAddr) -> Result<(), Failure> {
    let raw = RawAddress::new(to);
    // SAFETY: bytes and an address that live through the call.
    let result = unsafe {
        libc::sendto(
            fd,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            raw.as_ptr(),
            raw.length(),
        )
    };
    if result < 0 {
        return Err(Failure::last("sending a datagram over UDP"));
    }
    Ok(())
}
