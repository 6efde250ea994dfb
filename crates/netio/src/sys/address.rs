//! Socket addresses between Rust's form and the kernel's.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Longest abstract Unix name that fits `sockaddr_un` behind its leading zero byte.
pub(super) const ABSTRACT_NAME_MAX: usize = 107;

/// A socket address in the kernel's layout, with its length.
#[derive(Clone, Copy)]
pub(super) struct RawAddress {
    pub(super) storage: libc::sockaddr_storage,
    pub(super) length: libc::socklen_t,
}

impl RawAddress {
    /// Room for any address the kernel reports.
    pub(super) const fn empty() -> Self {
        Self {
            // SAFETY: `sockaddr_storage` is plain integers; all zeroes is a valid value of it.
            storage: unsafe { mem::zeroed() },
            length: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    /// Places `value`, a `sockaddr_*`, at the start of the storage.
    fn holding<T: Copy>(value: T, length: usize) -> Self {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        const { assert!(align_of::<T>() <= align_of::<libc::sockaddr_storage>()) };
        let mut raw = Self::empty();
        // SAFETY: the asserts above prove that `T` fits the storage in size and alignment; `T` is
        // one of libc's address structs, plain integers without a destructor.
        unsafe { (&raw mut raw.storage).cast::<T>().write(value) };
        raw.length = length as libc::socklen_t;
        raw
    }

    /// The kernel's form of an IP socket address. A flow label goes into `sin6_flowinfo`.
    pub(super) fn from_ip(address: &SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::holding(
                libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                },
                size_of::<libc::sockaddr_in>(),
            ),
            SocketAddr::V6(v6) => Self::holding(
                libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo().to_be(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                },
                size_of::<libc::sockaddr_in6>(),
            ),
        }
    }

    /// The kernel's form of an abstract Unix name (given without its leading zero byte).
    ///
    /// # Panics
    /// If the name is longer than [`ABSTRACT_NAME_MAX`]: names are ours, never a peer's.
    pub(super) fn from_abstract(name: &[u8]) -> Self {
        assert!(name.len() <= ABSTRACT_NAME_MAX, "slot names are short");
        let mut unix = libc::sockaddr_un {
            sun_family: libc::AF_UNIX as libc::sa_family_t,
            sun_path: [0; 108],
        };
        for (to, from) in unix.sun_path[1..].iter_mut().zip(name) {
            *to = from.cast_signed();
        }
        let length = mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
        Self::holding(unix, length)
    }

    /// The address in Rust's form, or `None` if it is not a whole IP address.
    pub(super) fn to_ip(self) -> Option<SocketAddr> {
        let length = self.length as usize;
        match libc::c_int::from(self.storage.ss_family) {
            libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
                let storage = &raw const self.storage;
                // SAFETY: `storage` is larger and at least as aligned as `sockaddr_in`, and every
                // bit pattern of that struct is valid.
                let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
                let storage = &raw const self.storage;
                // SAFETY: as above, for `sockaddr_in6`.
                let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                Some(
                    SocketAddrV6::new(
                        Ipv6Addr::from(v6.sin6_addr.s6_addr),
                        u16::from_be(v6.sin6_port),
                        u32::from_be(v6.sin6_flowinfo),
                        v6.sin6_scope_id,
                    )
                    .into(),
                )
            }
            _ => None,
        }
    }

    /// The abstract name without its leading zero byte; `None` for anything else.
    pub(super) fn to_abstract(self) -> Option<Vec<u8>> {
        let start = mem::offset_of!(libc::sockaddr_un, sun_path);
        let length = self.length as usize;
        if libc::c_int::from(self.storage.ss_family) != libc::AF_UNIX
            || length <= start + 1
            || length > size_of::<libc::sockaddr_un>()
        {
            return None;
        }
        let storage = &raw const self.storage;
        // SAFETY: `sockaddr_un` is smaller and no more aligned than the storage; every bit pattern
        // of it is valid.
        let unix = unsafe { storage.cast::<libc::sockaddr_un>().read() };
        if unix.sun_path[0] != 0 {
            return None;
        }
        let name = &unix.sun_path[1..length - start];
        Some(name.iter().map(|byte| byte.cast_unsigned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ip_addresses_survive_the_round_trip() {
        for text in ["127.0.0.1:4791", "[fe80::1%3]:7", "[2001:db8::9]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(RawAddress::from_ip(&address).to_ip(), Some(address));
        }
    }

    #[test]
    fn abstract_names_survive_the_round_trip_and_nothing_else_is_one() {
        let raw = RawAddress::from_abstract(b"feroce/slot/17");
        assert_eq!(raw.to_abstract().as_deref(), Some(&b"feroce/slot/17"[..]));
        assert_eq!(raw.to_ip(), None);
        let ip = RawAddress::from_ip(&"1.2.3.4:5".parse().unwrap());
        assert_eq!(ip.to_abstract(), None);
        // An unbound sender has a family and no name.
        let mut unnamed = raw;
        unnamed.length = 2;
        assert_eq!(unnamed.to_abstract(), None);
    }
}
