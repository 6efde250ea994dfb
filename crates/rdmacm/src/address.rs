//! Socket addresses of C, and what they mean. Not here: which interface has an address (`sys`).

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::guard::Failure;

/// An IP address with port (host order) and, for link-local addresses, interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SocketAddress {
    pub(crate) ip: IpAddr,
    pub(crate) port: u16,
    pub(crate) scope: u32,
}

/// `AF_IB`, which libc does not name.
const AF_IB: i32 = 27;

impl SocketAddress {
    pub(crate) const fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port, scope: 0 }
    }

    /// Any address of a family.
    pub(crate) fn any(family: i32) -> Self {
        let ip = if family == libc::AF_INET6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        Self::new(ip, 0)
    }

    /// Reads an address; `what` names the argument.
    ///
    /// # Safety
    /// `address` is null or as long as its family says.
    pub(crate) unsafe fn read(address: *const sockaddr, what: &str) -> Result<Self, Failure> {
        if address.is_null() {
            return Err(Failure::invalid(format!("{what} is a null pointer")));
        }
        // SAFETY: every address begins with its family; C callers need not align it.
        let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
        match i32::from(family) {
            libc::AF_INET => {
                // SAFETY: the family says that it is one.
                let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Ok(Self::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: the family says that it is one.
                let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
                Ok(Self {
                    ip: Ipv6Addr::from(v6.sin6_addr.s6_addr).into(),
                    port: u16::from_be(v6.sin6_port),
                    scope: v6.sin6_scope_id,
                })
            }
            AF_IB => Err(Failure::new(
                libc::EAFNOSUPPORT,
                format!(
                    "{what} is of AF_IB: RoCE devices have IP addresses, use AF_INET or AF_INET6"
                ),
            )),
            other => Err(Failure::new(
                libc::EAFNOSUPPORT,
                format!("{what} is of address family {other}, not AF_INET or AF_INET6"),
            )),
        }
    }

    pub(crate) const fn family(&self) -> i32 {
        match self.ip {
            IpAddr::V4(_) => libc::AF_INET,
            IpAddr::V6(_) => libc::AF_INET6,
        }
    }

    /// The same with IPv4 out of its IPv6-mapped form.
    pub(crate) fn canonical(self) -> Self {
        Self {
            ip: self.ip.to_canonical(),
            ..self
        }
    }

    /// As C has it, and how many bytes of it count.
    pub(crate) fn to_storage(self) -> (sockaddr_storage, u32) {
        // SAFETY: integers only, for which zero is a value.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let target = (&raw mut storage).cast::<c_void>();
        let length = match self.ip {
            IpAddr::V4(ip) => {
                let v4 = sockaddr_in {
                    sin_family: libc::AF_INET as sa_family_t,
                    sin_port: self.port.to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(ip.octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage has room for every kind of address.
                unsafe { target.cast::<sockaddr_in>().write(v4) };
                size_of::<sockaddr_in>()
            }
            IpAddr::V6(ip) => {
                let v6 = sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as sa_family_t,
                    sin6_port: self.port.to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    sin6_scope_id: self.scope,
                };
                // SAFETY: the storage has room for every kind of address.
                unsafe { target.cast::<sockaddr_in6>().write(v6) };
                size_of::<sockaddr_in6>()
            }
        };
        (storage, length as u32)
    }

    /// The GID of the address: IPv4 in its IPv6-mapped form.
    pub(crate) fn gid(&self) -> [u8; 16] {
        feroce_proto::cm::gid_of(self.ip)
    }

    /// Whether the address has to be told with an interface.
    pub(crate) fn is_link_local(&self) -> bool {
        matches!(self.ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }
}

/// The port of an address as it lies in memory, in network order; 0 if it has none.
pub(crate) fn port_of(storage: &sockaddr_storage) -> u16 {
    // Both families have it at the same place.
    const _: () = assert!(offset_of!(sockaddr_in, sin_port) == offset_of!(sockaddr_in6, sin6_port));
    match i32::from(storage.ss_family) {
        libc::AF_INET | libc::AF_INET6 => {
            // SAFETY: the storage has room for every kind of address.
            unsafe { (*(&raw const *storage).cast::<sockaddr_in>()).sin_port }
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_from_c() {
        for text in ["127.0.0.1", "192.0.2.7", "::1", "2001:db8::9"] {
            let address = SocketAddress::new(text.parse().unwrap(), 20_886);
            let (storage, length) = address.to_storage();
            assert!(length >= 16);
            assert_eq!(port_of(&storage), 20_886_u16.to_be());
            // SAFETY: the storage holds a whole address.
            let read = unsafe { SocketAddress::read((&raw const storage).cast(), "dst_addr") };
            assert_eq!(read, Ok(address));
        }
    }

    #[test]
    fn other_families_are_refused_by_name() {
        let (mut storage, _) = SocketAddress::any(libc::AF_INET).to_storage();
        storage.ss_family = AF_IB as sa_family_t;
        // SAFETY: the storage holds a whole address.
        let read = unsafe { SocketAddress::read((&raw const storage).cast(), "src_addr") };
        let failure = read.unwrap_err();
        assert_eq!(failure.errno, libc::EAFNOSUPPORT);
        assert!(failure.reason.contains("src_addr is of AF_IB"));
    }
}
