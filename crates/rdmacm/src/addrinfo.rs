//! Address look-ups: from names to the addresses of both sides. Not here: identifiers made from
//! the result (`endpoint`).

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use feroce_verbs_abi as abi;
use feroce_verbs_abi::{rdma_addrinfo, rdma_cm_id};
use libc::{sockaddr, sockaddr_storage};

use crate::address::SocketAddress;
use crate::guard::{self, Failure};
use crate::state::{Action, Param};
use crate::{channel, sys, world};

/// What a look-up found, or was given to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    flags: u32,
    family: c_int,
    qp_type: u32,
    port_space: u32,
    source: Option<SocketAddress>,
    destination: Option<SocketAddress>,
}

/// A failure as `rdma_getaddrinfo` returns it: `EAI_…`, or -1 with errno.
type Answer = c_int;

/// What is looked up.
struct Question {
    node: Option<CString>,
    service: Option<CString>,
    hints: Found,
    has_hints: bool,
}

/// Looks addresses up; the result is for [`rdma_create_ep`](crate::endpoint::rdma_create_ep) and
/// is freed by [`rdma_freeaddrinfo`].
///
/// # Safety
/// `node` and `service` are null or strings; `hints` is null or live; `res` has room.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    let mut answer = 0;
    let status = guard::zero("rdma_getaddrinfo", || {
        guard::not_null(res, "res")?;
        // SAFETY: the caller's contract.
        let question = unsafe { Question::read(node, service, hints) }?;
        match question.answer() {
            // SAFETY: the caller's contract.
            Ok(found) => unsafe { res.write(to_c(&found)) },
            Err(code) => answer = code,
        }
        Ok(())
    });
    if status == 0 { answer } else { status }
}

impl Question {
    /// # Safety
    /// As for [`rdma_getaddrinfo`].
    unsafe fn read(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> Result<Self, Failure> {
        let text = |text: *const c_char| {
            // SAFETY: the caller's contract.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
        };
        // SAFETY: the caller's contract.
        let given = unsafe { hints.as_ref() };
        let number = |number: c_int| u32::try_from(number).unwrap_or_default();
        let address = |address: *const sockaddr, length: u32, what: &str| {
            if address.is_null() || length == 0 {
                return Ok(None);
            }
            // SAFETY: the caller's contract.
            unsafe { SocketAddress::read(address, what) }.map(Some)
        };
        let (source, destination) = match given {
            Some(given) => (
                address(given.ai_src_addr, given.ai_src_len, "hints->ai_src_addr")?,
                address(given.ai_dst_addr, given.ai_dst_len, "hints->ai_dst_addr")?,
            ),
            None => (None, None),
        };
        Ok(Self {
            node: text(node),
            service: text(service),
            has_hints: given.is_some(),
            hints: Found {
                flags: given.map_or(0, |given| number(given.ai_flags)),
                family: given.map_or(0, |given| given.ai_family),
                qp_type: given.map_or(0, |given| number(given.ai_qp_type)),
                port_space: given.map_or(0, |given| number(given.ai_port_space)),
                source,
                destination,
            },
        })
    }

    fn answer(&self) -> Result<Found, Answer> {
        const KNOWN: u32 = abi::RAI_PASSIVE
            | abi::RAI_NUMERICHOST
            | abi::RAI_NOROUTE
            | abi::RAI_FAMILY
            | abi::RAI_DNS;
        if self.node.is_none() && self.service.is_none() && !self.has_hints {
            return Err(libc::EAI_NONAME);
        }
        let mut found = self.hints.clone();
        if found.flags & !KNOWN != 0 {
            return Err(libc::EAI_BADFLAGS);
        }
        found.choose_kind()?;
        let passive = found.flags & abi::RAI_PASSIVE != 0;
        if self.node.is_some() || self.service.is_some() {
            let address = self.look_up(passive, found.qp_type == abi::IBV_QPT_UD)?;
            if passive {
                found.source = Some(address);
            } else {
                found.destination = Some(address);
            }
        }
        if passive {
            found.destination = None;
        } else if found.source.is_none()
            && found.flags & abi::RAI_NOROUTE == 0
            && let Some(destination) = found.destination
        {
            found.source = sys::source_for(destination.canonical(), None).ok();
        }
        let known = found.destination.or(found.source);
        found.family = known.map_or(found.family, |address| address.family());
        Ok(found)
    }

    fn look_up(&self, passive: bool, datagram: bool) -> Result<SocketAddress, Answer> {
        // SAFETY: integers and null pointers.
        let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
        hints.ai_socktype = if datagram {
            libc::SOCK_DGRAM
        } else {
            libc::SOCK_STREAM
        };
        if passive {
            hints.ai_flags |= libc::AI_PASSIVE;
        }
        if self.hints.flags & abi::RAI_NUMERICHOST != 0 {
            hints.ai_flags |= libc::AI_NUMERICHOST;
        }
        if self.hints.flags & abi::RAI_FAMILY != 0 {
            if !matches!(self.hints.family, 0 | libc::AF_INET | libc::AF_INET6) {
                return Err(libc::EAI_FAMILY);
            }
            hints.ai_family = self.hints.family;
        }
        let text = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |t| t.as_ptr());
        let mut list = ptr::null_mut();
        // SAFETY: strings or null, hints, room for the list.
        let code = unsafe {
            libc::getaddrinfo(
                text(&self.node),
                text(&self.service),
                &raw const hints,
                &raw mut list,
            )
        };
        if code != 0 {
            return Err(code);
        }
        let mut entry = list;
        let mut address = Err(libc::EAI_FAMILY);
        while !entry.is_null() && address.is_err() {
            // SAFETY: an entry of the list, which is freed below.
            let (at, next) = unsafe { ((*entry).ai_addr, (*entry).ai_next) };
            // SAFETY: an address of the list.
            address = unsafe { SocketAddress::read(at, "ai_addr") }.map_err(|_| libc::EAI_FAMILY);
            entry = next;
        }
        // SAFETY: from getaddrinfo, once.
        unsafe { libc::freeaddrinfo(list) };
        address
    }
}

impl Found {
    /// Fills in the kind of queue pair or the port space from the other.
    fn choose_kind(&mut self) -> Result<(), Answer> {
        /// What glibc's netdb.h would call EAI_QPTYPE; rdma_cm's manual names it, no header does.
        const EAI_QPTYPE: Answer = libc::EAI_SOCKTYPE;
        if self.port_space == 0 {
            self.port_space = match self.qp_type {
                abi::IBV_QPT_UD => abi::RDMA_PS_UDP,
                _ => abi::RDMA_PS_TCP,
            };
        }
        if self.qp_type == 0 {
            self.qp_type = match self.port_space {
                abi::RDMA_PS_UDP | abi::RDMA_PS_IPOIB => abi::IBV_QPT_UD,
                _ => abi::IBV_QPT_RC,
            };
        }
        let fits = match self.port_space {
            abi::RDMA_PS_TCP => self.qp_type != abi::IBV_QPT_UD,
            abi::RDMA_PS_UDP | abi::RDMA_PS_IPOIB => self.qp_type == abi::IBV_QPT_UD,
            abi::RDMA_PS_IB => true,
            _ => false,
        };
        if fits { Ok(()) } else { Err(EAI_QPTYPE) }
    }
}

fn to_c(found: &Found) -> *mut rdma_addrinfo {
    let address = |address: Option<SocketAddress>| match address {
        Some(address) => {
            let (storage, length) = address.to_storage();
            (Box::into_raw(Box::new(storage)).cast::<sockaddr>(), length)
        }
        None => (ptr::null_mut(), 0),
    };
    let (source, source_length) = address(found.source);
    let (destination, destination_length) = address(found.destination);
    Box::into_raw(Box::new(rdma_addrinfo {
        ai_flags: found.flags as c_int,
        ai_family: found.family,
        ai_qp_type: found.qp_type as c_int,
        ai_port_space: found.port_space as c_int,
        ai_src_len: source_length,
        ai_dst_len: destination_length,
        ai_src_addr: source,
        ai_dst_addr: destination,
        ..rdma_addrinfo::default()
    }))
}

/// Frees the result of a look-up.
///
/// # Safety
/// `res` is null or came from a look-up here, and is freed once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    guard::nothing("rdma_freeaddrinfo", || {
        let mut entry = res;
        while !entry.is_null() {
            // SAFETY: `to_c` made it from a box, and so its addresses.
            let found = unsafe { Box::from_raw(entry) };
            for address in [found.ai_src_addr, found.ai_dst_addr] {
                if !address.is_null() {
                    // SAFETY: as above.
                    drop(unsafe { Box::from_raw(address.cast::<sockaddr_storage>()) });
                }
            }
            entry = found.ai_next;
        }
        Ok(())
    });
}

/// Looks addresses up while the program goes on; an event tells when it is done.
///
/// # Safety
/// As for [`rdma_getaddrinfo`]; `id` is live.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    guard::zero("rdma_resolve_addrinfo", || {
        // SAFETY: the caller's contract.
        let question = unsafe { Question::read(node, service, hints) }?;
        if question.hints.flags & abi::RAI_SA != 0 {
            return Err(Failure::unsupported(
                "RAI_SA asks a subnet administrator: there is none on Ethernet, use RAI_DNS",
            ));
        }
        world::lock().id(id)?;
        let key = id.addr();
        let work = move || {
            let answer = question.answer();
            let mut world = world::lock();
            let (kind, status) = match answer {
                Ok(found) => {
                    if let Some(entry) = world.ids.get_mut(&key) {
                        entry.found = Some(found);
                    }
                    (abi::RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)
                }
                Err(libc::EAI_AGAIN) => (abi::RDMA_CM_EVENT_ADDRINFO_ERROR, -libc::EAGAIN),
                Err(_) => (abi::RDMA_CM_EVENT_ADDRINFO_ERROR, -libc::ENOENT),
            };
            world.post(key, kind, status, Param::None, Action::Nothing);
        };
        let blocked = sys::block_signals();
        let spawned = std::thread::Builder::new()
            .name("feroce-lookup".to_owned())
            .spawn(work);
        sys::restore_signals(&blocked);
        spawned.map_err(|error| {
            let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
            Failure::new(errno, format!("a thread for the look-up: {error}"))
        })?;
        channel::complete(id)
    })
}

/// The result of [`rdma_resolve_addrinfo`]; freed by [`rdma_freeaddrinfo`].
///
/// # Safety
/// `id` is live, `info` has room for a pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    guard::zero("rdma_query_addrinfo", || {
        guard::not_null(info, "info")?;
        let mut world = world::lock();
        let found = world.id(id)?.found.as_ref();
        let found = found.ok_or_else(|| {
            Failure::invalid("nothing was found: call rdma_resolve_addrinfo, wait for its event")
        })?;
        // SAFETY: the caller's contract.
        unsafe { info.write(to_c(found)) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(node: &str, service: &str, flags: u32) -> Question {
        Question {
            node: Some(CString::new(node).unwrap()),
            service: Some(CString::new(service).unwrap()),
            hints: Found {
                flags,
                family: 0,
                qp_type: 0,
                port_space: 0,
                source: None,
                destination: None,
            },
            has_hints: true,
        }
    }

    #[test]
    fn the_active_side_learns_both_addresses() {
        let found = question("127.0.0.1", "7174", 0).answer().unwrap();
        assert_eq!(found.destination.unwrap().port, 7174);
        assert_eq!(
            found.source.unwrap().ip,
            "127.0.0.1".parse::<std::net::IpAddr>().unwrap()
        );
        assert_eq!(found.port_space, abi::RDMA_PS_TCP);
        assert_eq!(found.qp_type, abi::IBV_QPT_RC);
    }

    #[test]
    fn the_passive_side_has_no_destination() {
        let found = question("::1", "7174", abi::RAI_PASSIVE).answer().unwrap();
        assert_eq!(found.destination, None);
        assert_eq!(found.family, libc::AF_INET6);
    }

    #[test]
    fn contradictions_are_refused() {
        let mut both = question("127.0.0.1", "7174", 0);
        both.hints.qp_type = abi::IBV_QPT_UD;
        both.hints.port_space = abi::RDMA_PS_TCP;
        assert_eq!(both.answer(), Err(libc::EAI_SOCKTYPE));
        let flags = question("127.0.0.1", "7174", 1 << 30).answer();
        assert_eq!(flags, Err(libc::EAI_BADFLAGS));
        let name = question("no numbers here", "7174", abi::RAI_NUMERICHOST).answer();
        assert_eq!(name, Err(libc::EAI_NONAME));
    }
}
