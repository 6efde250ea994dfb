//! The C entry points of `rdma/rsocket.h`.
//!
//! Each states its contract, converts, calls safe code, converts back. Read first: the manual
//! pages of the calls without the `r`, whose contracts these are.

use std::ffi::{c_int, c_long, c_void};
use std::time::{Duration, Instant};

use super::datagram::DatagramSocket;
use super::gather::{self, Buffers};
use super::polling::{self, Sets};
use super::socket::{StreamSocket, Value};
use super::sys::RawAddress;
use super::table::{self, Socket};
use crate::guard::{self, Failure};

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    guard::number("rsocket", || {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            let reason = format!("family {domain} is not supported: IPv4 and IPv6 are");
            return Err(Failure::new(libc::EAFNOSUPPORT, reason));
        }
        let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let (fd, socket) = match (kind & !flags, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {
                let (fd, socket) = StreamSocket::new()?;
                (fd, Socket::Stream(socket))
            }
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => {
                let (fd, socket) = DatagramSocket::new(domain)?;
                (fd, Socket::Datagram(socket))
            }
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => {
                let reason = format!("protocol {protocol} is not supported");
                return Err(Failure::new(libc::EPROTONOSUPPORT, reason));
            }
            (kind, _) => {
                let reason = format!("sockets of type {kind} are not supported");
                return Err(Failure::new(libc::EPROTOTYPE, reason));
            }
        };
        socket.set_nonblocking(flags & libc::SOCK_NONBLOCK != 0);
        table::insert(fd, socket);
        Ok(fd as isize)
    }) as c_int
}

/// # Safety
/// `address` has `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    guard::zero("rbind", || {
        // SAFETY: the caller's contract.
        let address = unsafe { RawAddress::copy(address, length)? };
        table::find(socket)?.bind(address)
    })
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    guard::zero("rlisten", || stream(socket)?.listen(backlog))
}

/// # Safety
/// `address` is null or has `*length` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn raccept(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    guard::number("raccept", || {
        let (fd, accepted) = stream(socket)?.accept()?;
        let peer = accepted.peer_address()?;
        table::insert(fd, Socket::Stream(accepted));
        // SAFETY: the caller's contract.
        unsafe { peer.give(address, length) };
        Ok(fd as isize)
    }) as c_int
}

/// # Safety
/// `address` has `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    guard::zero("rconnect", || {
        // SAFETY: the caller's contract.
        let address = unsafe { RawAddress::copy(address, length)? };
        table::find(socket)?.connect(address)
    })
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    guard::zero("rshutdown", || table::find(socket)?.shutdown(how))
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rclose(socket: c_int) -> c_int {
    guard::zero("rclose", || {
        let found = table::find(socket)?;
        table::remove(socket);
        found.close();
        Ok(())
    })
}

/// # Safety
/// `buffer` has `length` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
) -> isize {
    guard::number("rrecv", || {
        // SAFETY: the caller's contract.
        unsafe { receive(socket, &[gather::single(buffer, length)], flags) }
    })
}

/// # Safety
/// `buffer` has `length` writable bytes, `address` is null or has `*address_length`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    flags: c_int,
    address: *mut libc::sockaddr,
    address_length: *mut libc::socklen_t,
) -> isize {
    guard::number("rrecvfrom", || {
        let buffers = [gather::single(buffer, length)];
        // SAFETY: the caller's contract.
        unsafe {
            let mut buffers = Buffers::new(buffers.as_ptr(), buffers.len())?;
            let (count, from) = table::find(socket)?.receive_from(&mut buffers, flags)?;
            from.give(address, address_length);
            count_of(count)
        }
    })
}

/// # Safety
/// `message` is a message whose buffers are writable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rrecvmsg(
    socket: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> isize {
    guard::number("rrecvmsg", || {
        guard::not_null(message, "the message")?;
        // SAFETY: the caller's contract.
        unsafe {
            let message = &mut *message;
            let mut buffers = Buffers::new(message.msg_iov, message.msg_iovlen)?;
            let (count, from) = table::find(socket)?.receive_from(&mut buffers, flags)?;
            from.give(message.msg_name.cast(), &raw mut message.msg_namelen);
            (message.msg_controllen, message.msg_flags) = (0, 0);
            count_of(count)
        }
    })
}

/// # Safety
/// `buffer` has `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
) -> isize {
    guard::number("rsend", || {
        // SAFETY: the caller's contract.
        unsafe { send(socket, &[gather::single(buffer, length)], flags) }
    })
}

/// # Safety
/// `buffer` has `length` readable bytes, `address` is null or has `address_length`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    buffer: *const c_void,
    length: usize,
    flags: c_int,
    address: *const libc::sockaddr,
    address_length: libc::socklen_t,
) -> isize {
    guard::number("rsendto", || {
        let buffers = [gather::single(buffer, length)];
        // SAFETY: the caller's contract.
        unsafe {
            let mut buffers = Buffers::new(buffers.as_ptr(), buffers.len())?;
            let to = destination(address, address_length)?;
            count_of(table::find(socket)?.send_to(&mut buffers, flags, to)?)
        }
    })
}

/// # Safety
/// `message` is a message whose buffers and name are readable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsendmsg(
    socket: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> isize {
    guard::number("rsendmsg", || {
        guard::not_null(message.cast_mut(), "the message")?;
        // SAFETY: the caller's contract.
        unsafe {
            let message = &*message;
            if message.msg_controllen > 0 {
                return Err(Failure::unsupported("control data cannot be sent"));
            }
            let mut buffers = Buffers::new(message.msg_iov, message.msg_iovlen)?;
            let to = destination(message.msg_name.cast(), message.msg_namelen)?;
            count_of(table::find(socket)?.send_to(&mut buffers, flags, to)?)
        }
    })
}

/// # Safety
/// As [`rrecv`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rread(socket: c_int, buffer: *mut c_void, count: usize) -> isize {
    guard::number("rread", || {
        // SAFETY: the caller's contract.
        unsafe { receive(socket, &[gather::single(buffer, count)], 0) }
    })
}

/// # Safety
/// `buffers` has `count` elements, each with as many writable bytes as it says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rreadv(
    socket: c_int,
    buffers: *const libc::iovec,
    count: c_int,
) -> isize {
    guard::number("rreadv", || {
        // SAFETY: the caller's contract.
        unsafe { receive(socket, array(buffers, count)?, 0) }
    })
}

/// # Safety
/// As [`rsend`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rwrite(
    socket: c_int,
    buffer: *const c_void,
    count: usize,
) -> isize {
    guard::number("rwrite", || {
        // SAFETY: the caller's contract.
        unsafe { send(socket, &[gather::single(buffer, count)], 0) }
    })
}

/// # Safety
/// `buffers` has `count` elements, each with as many readable bytes as it says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rwritev(
    socket: c_int,
    buffers: *const libc::iovec,
    count: c_int,
) -> isize {
    guard::number("rwritev", || {
        // SAFETY: the caller's contract.
        unsafe { send(socket, array(buffers, count)?, 0) }
    })
}

/// # Safety
/// `fds` has `count` elements.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rpoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: c_int,
) -> c_int {
    guard::number("rpoll", || {
        let count = usize::try_from(count)
            .map_err(|_| Failure::invalid("more descriptors than there can be"))?;
        if fds.is_null() && count > 0 {
            return Err(Failure::new(libc::EFAULT, "the array is a null pointer"));
        }
        let fds = match count {
            0 => &mut [],
            // SAFETY: the caller's contract.
            _ => unsafe { std::slice::from_raw_parts_mut(fds, count) },
        };
        Ok(polling::poll(fds, polling::deadline(timeout))? as isize)
    }) as c_int
}

/// # Safety
/// Each set is null or a set, `timeout` is null or a time.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    guard::number("rselect", || {
        // SAFETY: the caller's contract. A program may not give the same set twice.
        let (sets, timeout) = unsafe {
            let sets = Sets {
                read: read.as_mut(),
                write: write.as_mut(),
                except: except.as_mut(),
            };
            (sets, timeout.as_ref())
        };
        let until = timeout.map(|time| {
            let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
            let rest = Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0));
            Instant::now() + seconds + rest
        });
        Ok(polling::select(count, sets, until)? as isize)
    }) as c_int
}

/// # Safety
/// `address` has `*length` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    guard::zero("rgetpeername", || {
        let peer = table::find(socket)?.peer_address()?;
        // SAFETY: the caller's contract.
        unsafe { peer.give(address, length) };
        Ok(())
    })
}

/// # Safety
/// `address` has `*length` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    guard::zero("rgetsockname", || {
        let local = table::find(socket)?.local_address()?;
        // SAFETY: the caller's contract.
        unsafe { local.give(address, length) };
        Ok(())
    })
}

/// # Safety
/// `value` has `length` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    guard::zero("rsetsockopt", || {
        guard::not_null(value.cast_mut(), "the value")?;
        // SAFETY: the caller's contract.
        let value = unsafe { std::slice::from_raw_parts(value.cast(), length as usize) };
        table::find(socket)?.set_option(level, name, Value(value))
    })
}

/// # Safety
/// `value` has `*length` writable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    guard::zero("rgetsockopt", || {
        guard::not_null(value, "the value")?;
        guard::not_null(length, "the value's length")?;
        let bytes = table::find(socket)?.option(level, name)?;
        // SAFETY: the caller's contract; at most as many bytes as there is room for.
        unsafe {
            let count = bytes.len().min(*length as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count);
            // Lossless: not more than it was.
            *length = count as libc::socklen_t;
        }
        Ok(())
    })
}

/// In C its last argument is variable; on the machines that the mirror is for, a number or a
/// pointer comes the same way.
///
/// # Safety
/// None needed: pointers are not used.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_long) -> c_int {
    guard::number("rfcntl", || {
        let found = table::find(socket)?;
        match command {
            libc::F_GETFL => {
                let nonblocking = if found.is_nonblocking() {
                    libc::O_NONBLOCK
                } else {
                    0
                };
                Ok((libc::O_RDWR | nonblocking) as isize)
            }
            libc::F_SETFL => {
                found.set_nonblocking(argument & c_long::from(libc::O_NONBLOCK) != 0);
                Ok(0)
            }
            libc::F_GETFD => Ok(libc::FD_CLOEXEC as isize),
            // The queue pair does not survive an exec, whatever the flag says.
            libc::F_SETFD => Ok(0),
            _ => Err(Failure::invalid(format!(
                "fcntl command {command} is not supported on rsockets"
            ))),
        }
    }) as c_int
}

/// # Safety
/// `buffer` has `length` bytes that are there, and writable with `PROT_WRITE`, until `riounmap` or
/// `rclose`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    offset: libc::off_t,
) -> libc::off_t {
    guard::number("riomap", || {
        guard::not_null(buffer, "the buffer")?;
        if flags != 0 {
            return Err(Failure::invalid("flags must be 0"));
        }
        // SAFETY: the caller's contract.
        let offset = unsafe { stream(socket)?.map(buffer, length, protection, offset)? };
        Ok(offset as isize)
    }) as libc::off_t
}

/// # Safety
/// None needed: the buffer is only looked up.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn riounmap(
    socket: c_int,
    buffer: *mut c_void,
    length: usize,
) -> c_int {
    guard::zero("riounmap", || stream(socket)?.unmap(buffer, length))
}

/// # Safety
/// `buffer` has `count` readable bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    buffer: *const c_void,
    count: usize,
    offset: libc::off_t,
    flags: c_int,
) -> usize {
    guard::number("riowrite", || {
        let buffers = [gather::single(buffer, count)];
        // SAFETY: the caller's contract.
        let mut buffers = unsafe { Buffers::new(buffers.as_ptr(), buffers.len())? };
        count_of(stream(socket)?.write_directly(&mut buffers, offset, flags)?)
    })
    // The C type has no sign; -1 is meant.
    .cast_unsigned()
}

// --- helpers ----------

fn stream(socket: c_int) -> Result<std::sync::Arc<StreamSocket>, Failure> {
    match table::find(socket)? {
        Socket::Stream(stream) => Ok(stream),
        Socket::Datagram(_) => Err(Failure::unsupported("a datagram socket has no such call")),
    }
}

fn count_of(count: usize) -> Result<isize, Failure> {
    // Lossless: buffers add up to at most that.
    Ok(isize::try_from(count).unwrap_or(isize::MAX))
}

/// # Safety
/// `buffers` has `count` elements.
unsafe fn array<'a>(
    buffers: *const libc::iovec,
    count: c_int,
) -> Result<&'a [libc::iovec], Failure> {
    let count = usize::try_from(count).map_err(|_| Failure::invalid("a negative count"))?;
    if count == 0 {
        return Ok(&[]);
    }
    guard::not_null(buffers.cast_mut(), "the buffers")?;
    // SAFETY: the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(buffers, count) })
}

/// # Safety
/// The buffers are writable.
unsafe fn receive(socket: c_int, buffers: &[libc::iovec], flags: c_int) -> Result<isize, Failure> {
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { Buffers::new(buffers.as_ptr(), buffers.len())? };
    count_of(table::find(socket)?.receive(&mut buffers, flags)?)
}

/// # Safety
/// The buffers are readable.
unsafe fn send(socket: c_int, buffers: &[libc::iovec], flags: c_int) -> Result<isize, Failure> {
    // SAFETY: the caller's contract.
    let mut buffers = unsafe { Buffers::new(buffers.as_ptr(), buffers.len())? };
    count_of(table::find(socket)?.send_to(&mut buffers, flags, None)?)
}

/// # Safety
/// `address` is null or has `length` readable bytes.
unsafe fn destination(
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Result<Option<RawAddress>, Failure> {
    if address.is_null() || length == 0 {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { RawAddress::copy(address, length) }.map(Some)
}
