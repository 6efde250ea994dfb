//! The only unsafe code of this crate: thin, typed calls into libc.
//!
//! Everything here is one system call, or the bytes one needs. It decides nothing: which socket,
//! when, and what an error means is the business of the safe modules above. The layouts are the
//! kernel's (`recvmsg(2)`, `cmsg(3)`, `udp(7)`, `ip(7)`, `ipv6(7)`, `unix(7)`, `netlink(7)`).

mod address;
mod call;
mod control;
mod epoll;
mod message;
mod signal;
mod socket;
mod timer;

pub(crate) use epoll::Epoll;
pub(crate) use message::{
    CONTROL_UDP_BYTES, CONTROL_UNIX_BYTES, FRAGMENTS_MAX, Message, Outgoing, ReceiveBuffers,
    for_each_segment, send, send_plain,
};
pub use signal::interrupted_calls_restart;
pub(crate) use socket::{
    bind, bind_abstract, bind_netlink, connect, discard_input, effective_user, get_int, is_bound,
    join, local_address, monotonic_coarse_ms, netlink_socket, receive, set_int,
    set_multicast_interface, udp_socket, unix_socket,
};

pub(crate) use timer::{receive_timer, set_timer, timer, wait_writable};

#[cfg(test)]
pub(crate) use message::{lease_flow_label, send_with_descriptor, unmapped_fragment};
#[cfg(test)]
pub(crate) use socket::receive_memory;
#[cfg(test)]
pub(crate) use timer::wait_readable;

use std::io;

/// Turns libc's -1 into the error it stands for.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// As [`check`], for calls that return a byte count.
fn check_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
