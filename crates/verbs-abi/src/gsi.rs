//! What `librdmacm.so.1` asks of `libibverbs.so.1`: management datagrams, and which ports are
//! taken. Private to Feroce: both libraries come from one build, and nobody else links to these
//! names (version node `FEROCE_0`).
//!
//! A *GSI agent* is this process's share of queue pair 1 of one device (IBTA 13.5.1). A *claim* is
//! a port of a connection-manager port space that this process has bound; claims are seen by all
//! processes of the network namespace and end with the process. Not here: what is in a datagram.
//!
//! Calls return 0 or an errno value and set errno as well. All may be made from any thread.

use crate::bindings::ibv_context;
use core::ffi::c_int;

/// Bytes of a management datagram (IBTA 13.4.2).
pub const FEROCE_GSI_MAD_SIZE: usize = 256;

/// [`struct@feroce_gsi_claim`]: others may have the port too, as long as none of them listens
/// (`RDMA_OPTION_ID_REUSEADDR`).
pub const FEROCE_GSI_CLAIM_REUSE: u32 = 1;
/// [`struct@feroce_gsi_claim`]: an IPv6 wildcard that is not for IPv4 as well
/// (`RDMA_OPTION_ID_AFONLY`).
pub const FEROCE_GSI_CLAIM_AFONLY: u32 = 1 << 1;
/// [`struct@feroce_gsi_claim`]: `service_id` is claimed as a whole; the address counts, port
/// space and port do not.
pub const FEROCE_GSI_CLAIM_SERVICE: u32 = 1 << 2;
/// [`struct@feroce_gsi_claim`]: for an identifier that connects and never listens, with port 0:
/// cheap (no descriptor), and the port is unique among those of this kind only.
pub const FEROCE_GSI_CLAIM_CONNECT: u32 = 1 << 3;

/// Where a management datagram goes, or came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct feroce_gsi_address {
    /// Our GID; IPv4 in its IPv6-mapped form.
    pub local: [u8; 16],
    /// The peer's GID.
    pub remote: [u8; 16],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit; 0 sends with 64.
    pub hop_limit: u8,
    /// 0.
    pub reserved: u16,
    /// IPv6 flow label, in host order; 0 when received.
    pub flow_label: u32,
    /// Index of the interface, for link-local addresses; not needed for sending.
    pub scope_id: u32,
}

/// Which port is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct feroce_gsi_claim {
    /// With [`FEROCE_GSI_CLAIM_SERVICE`]: the service id, in host order.
    pub service_id: u64,
    /// The address that is bound, IPv4 in its IPv6-mapped form; all zeroes (or the mapped
    /// 0.0.0.0) for any.
    pub ip: [u8; 16],
    /// `FEROCE_GSI_CLAIM_…`.
    pub flags: u32,
    /// Index of the interface, for link-local addresses.
    pub scope_id: u32,
    /// `RDMA_PS_…`.
    pub port_space: u16,
    /// In host order; 0 has one chosen (32768 to 60999).
    pub port: u16,
    /// `AF_INET` or `AF_INET6`.
    pub family: u16,
    /// 0.
    pub reserved: u16,
}

/// An agent; opaque.
#[derive(Debug)]
#[repr(C)]
pub struct feroce_gsi {
    _opaque: [u8; 0],
}

/// A claim that was granted; opaque.
#[derive(Debug)]
#[repr(C)]
pub struct feroce_gsi_claim_handle {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    /// Opens the agent of a device, which must stay open; `EBUSY` if this process has it already.
    pub fn feroce_gsi_open(context: *mut ibv_context, agent: *mut *mut feroce_gsi) -> c_int;

    /// Closes it; datagrams that wait are lost.
    pub fn feroce_gsi_close(agent: *mut feroce_gsi);

    /// The slot (10 bits) that belongs on top of every communication id and SIDR request id made
    /// for this agent: answers are routed to this process by it.
    pub fn feroce_gsi_slot(agent: *const feroce_gsi) -> u32;

    /// A descriptor that is readable while datagrams wait. It belongs to the agent, must not be
    /// read, and may also be readable for nothing.
    pub fn feroce_gsi_fd(agent: *const feroce_gsi) -> c_int;

    /// Sends a datagram of [`FEROCE_GSI_MAD_SIZE`] bytes. `EADDRNOTAVAIL`: `local` is no address of
    /// the device; `ENETUNREACH` and the like: the kernel's answer. It may get lost like any.
    pub fn feroce_gsi_send(
        agent: *mut feroce_gsi,
        to: *const feroce_gsi_address,
        mad: *const u8,
    ) -> c_int;

    /// Takes the oldest datagram that waits, of [`FEROCE_GSI_MAD_SIZE`] bytes; `EAGAIN`: none.
    pub fn feroce_gsi_receive(
        agent: *mut feroce_gsi,
        from: *mut feroce_gsi_address,
        mad: *mut u8,
    ) -> c_int;

    /// Claims a port and says which it is (`port` may be null). `EADDRINUSE`: it is taken, by the
    /// rules of TCP; `EINVAL`: the claim contradicts itself.
    pub fn feroce_gsi_claim(
        claim: *const feroce_gsi_claim,
        handle: *mut *mut feroce_gsi_claim_handle,
        port: *mut u16,
    ) -> c_int;

    /// From now on connection requests for the claim arrive at the agents of this process.
    /// `EADDRINUSE`: another claim of the port listens.
    pub fn feroce_gsi_claim_listen(handle: *mut feroce_gsi_claim_handle) -> c_int;

    /// Gives the port back, and stops listening.
    pub fn feroce_gsi_claim_release(handle: *mut feroce_gsi_claim_handle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_no_hidden_padding() {
        assert_eq!(size_of::<feroce_gsi_address>(), 44);
        assert_eq!(size_of::<feroce_gsi_claim>(), 40);
    }
}
