//! What `librdmacm.so.1` asks of this library: management datagrams and claims of ports
//! ([`feroce_verbs_abi::gsi`]). Not here: what is in the datagrams.

use std::ffi::c_int;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::slice;

use feroce_verbs::gsi::{
    Agent, AgentError, ClaimError, Listener, MAD_LEN, Mad, MadAddress, MadSendError, Place,
};
use feroce_verbs::{Context, gid_address, gid_bytes};
use feroce_verbs_abi as abi;
use feroce_verbs_abi::gsi::{
    FEROCE_GSI_CLAIM_AFONLY, FEROCE_GSI_CLAIM_CONNECT, FEROCE_GSI_CLAIM_REUSE,
    FEROCE_GSI_CLAIM_SERVICE, feroce_gsi, feroce_gsi_address, feroce_gsi_claim as ClaimRequest,
    feroce_gsi_claim_handle,
};

use crate::guard::{self, Failure};
use crate::{context, fork};

/// Behind a `feroce_gsi`.
struct Opened {
    agent: Agent,
    context: Context,
    slot: u16,
    /// [`fork::generation`] when it was made.
    born: u32,
}

/// Behind a `feroce_gsi_claim_handle`.
struct Held {
    listener: Listener,
    born: u32,
}

/// # Safety
/// `context` is null or open, and stays open while the agent is; `agent` is null or has room for a
/// pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_open(
    context: *mut abi::ibv_context,
    agent: *mut *mut feroce_gsi,
) -> c_int {
    guard::status("feroce_gsi_open", || {
        let target = guard::not_null(agent, "agent")?;
        // SAFETY: the caller's contract.
        let context = unsafe { context::state(context) }?.context.clone();
        let agent = context.open_agent().map_err(agent_failure)?;
        let opened = Box::new(Opened {
            slot: agent.slot(),
            agent,
            context,
            born: fork::generation(),
        });
        // SAFETY: the caller's contract; null was refused.
        unsafe { target.write(Box::into_raw(opened).cast()) };
        Ok(())
    })
}

/// # Safety
/// `agent` is null or open, and not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_close(agent: *mut feroce_gsi) {
    guard::nothing("feroce_gsi_close", || {
        // SAFETY: the caller's contract.
        if unsafe { opened(agent) }.is_ok() {
            // SAFETY: it came from `feroce_gsi_open` of this process, which made a box of it.
            drop(unsafe { Box::from_raw(agent.cast::<Opened>()) });
        }
        Ok(())
    });
}

/// # Safety
/// `agent` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_slot(agent: *const feroce_gsi) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { opened(agent) }.map_or(0, |opened| opened.slot.into())
}

/// # Safety
/// `agent` is null or open.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_fd(agent: *const feroce_gsi) -> c_int {
    // SAFETY: the caller's contract.
    let opened = unsafe { opened(agent) };
    opened.map_or(-1, |opened| opened.agent.descriptor().as_raw_fd())
}

/// # Safety
/// `agent` is null or open; `to` is null or points to an address; `mad` is null or points to 256
/// bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_send(
    agent: *mut feroce_gsi,
    to: *const feroce_gsi_address,
    mad: *const u8,
) -> c_int {
    guard::status("feroce_gsi_send", || {
        let to = guard::not_null(to.cast_mut(), "to")?;
        let mad = guard::not_null(mad.cast_mut(), "mad")?;
        // SAFETY: the caller's contract; null was refused.
        let (opened, to) = unsafe { (opened(agent)?, *to) };
        // SAFETY: as above.
        let bytes = unsafe { slice::from_raw_parts(mad, MAD_LEN) };
        let mad: &Mad = bytes.first_chunk().unwrap_or(&[0; MAD_LEN]);
        let to = MadAddress {
            local: gid_address(to.local),
            remote: gid_address(to.remote),
            traffic_class: to.traffic_class,
            hop_limit: to.hop_limit,
            flow_label: to.flow_label,
        };
        opened.agent.send(&to, mad).map_err(send_failure)
    })
}

/// # Safety
/// `agent` is null or open; `from` is null or has room for an address; `mad` is null or has room
/// for 256 bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_receive(
    agent: *mut feroce_gsi,
    from: *mut feroce_gsi_address,
    mad: *mut u8,
) -> c_int {
    guard::status("feroce_gsi_receive", || {
        let from = guard::not_null(from, "from")?;
        let target = guard::not_null(mad, "mad")?;
        // SAFETY: the caller's contract.
        let opened = unsafe { opened(agent) }?;
        let (address, mad) = opened
            .agent
            .receive()
            .ok_or_else(|| Failure::new(libc::EAGAIN, "no management datagram waits"))?;
        let address = feroce_gsi_address {
            local: gid_bytes(address.local),
            remote: gid_bytes(address.remote),
            traffic_class: address.traffic_class,
            hop_limit: address.hop_limit,
            reserved: 0,
            flow_label: address.flow_label,
            scope_id: opened.scope_of(address.local),
        };
        // SAFETY: the caller's contract; null was refused.
        unsafe {
            from.write(address);
            target.copy_from_nonoverlapping(mad.as_ptr(), mad.len());
        }
        Ok(())
    })
}

/// # Safety
/// `claim` is null or points to one; `handle` is null or has room for a pointer; `port` is null or
/// has room for a port.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_claim(
    claim: *const ClaimRequest,
    handle: *mut *mut feroce_gsi_claim_handle,
    port: *mut u16,
) -> c_int {
    guard::status("feroce_gsi_claim", || {
        let claim = guard::not_null(claim.cast_mut(), "claim")?;
        let target = guard::not_null(handle, "handle")?;
        // SAFETY: the caller's contract; null was refused.
        let listener = claim_of(unsafe { &*claim })?;
        if !port.is_null() {
            // SAFETY: the caller's contract.
            unsafe { port.write(listener.port()) };
        }
        let held = Box::new(Held {
            listener,
            born: fork::generation(),
        });
        // SAFETY: the caller's contract; null was refused.
        unsafe { target.write(Box::into_raw(held).cast()) };
        Ok(())
    })
}

/// # Safety
/// `handle` is null or came from `feroce_gsi_claim`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_claim_listen(
    handle: *mut feroce_gsi_claim_handle,
) -> c_int {
    guard::status("feroce_gsi_claim_listen", || {
        // SAFETY: the caller's contract.
        let held = unsafe { held(handle) }?;
        held.listener.listen().map_err(claim_failure)
    })
}

/// # Safety
/// `handle` is null or came from `feroce_gsi_claim`, and is not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_gsi_claim_release(handle: *mut feroce_gsi_claim_handle) {
    guard::nothing("feroce_gsi_claim_release", || {
        // SAFETY: the caller's contract.
        if unsafe { held(handle) }.is_ok() {
            // SAFETY: it came from `feroce_gsi_claim` of this process, which made a box of it.
            drop(unsafe { Box::from_raw(handle.cast::<Held>()) });
        }
        Ok(())
    });
}

impl Opened {
    /// The interface, which a link-local address needs to mean something.
    fn scope_of(&self, address: IpAddr) -> u32 {
        match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => self.context.device().interface().index,
            _ => 0,
        }
    }
}

/// # Safety
/// `agent` is null or open.
unsafe fn opened<'a>(agent: *const feroce_gsi) -> Result<&'a Opened, Failure> {
    let agent = guard::not_null(agent.cast_mut(), "agent")?;
    // SAFETY: the caller's contract: it came from `feroce_gsi_open`.
    let opened = unsafe { &*agent.cast::<Opened>() };
    ours(opened.born).map(|()| opened)
}

/// # Safety
/// `handle` is null or came from `feroce_gsi_claim`.
unsafe fn held<'a>(handle: *mut feroce_gsi_claim_handle) -> Result<&'a Held, Failure> {
    let handle = guard::not_null(handle, "handle")?;
    // SAFETY: the caller's contract.
    let held = unsafe { &*handle.cast::<Held>() };
    ours(held.born).map(|()| held)
}

fn ours(born: u32) -> Result<(), Failure> {
    if born == fork::generation() {
        return Ok(());
    }
    Err(Failure::new(
        libc::EPERM,
        "the parent of this process made it: a child opens its own",
    ))
}

fn claim_of(claim: &ClaimRequest) -> Result<Listener, Failure> {
    let has = |flag| claim.flags & flag != 0;
    let mut ip = gid_address(claim.ip);
    if i32::from(claim.family) == libc::AF_INET && ip.is_unspecified() {
        ip = IpAddr::from([0; 4]);
    }
    let place = Place::new(ip, claim.scope_id, has(FEROCE_GSI_CLAIM_AFONLY));
    let reuse = has(FEROCE_GSI_CLAIM_REUSE);
    if has(FEROCE_GSI_CLAIM_SERVICE) {
        return Listener::claim_service(claim.service_id, place, reuse).map_err(claim_failure);
    }
    if has(FEROCE_GSI_CLAIM_CONNECT) && claim.port == 0 {
        return Listener::connect_port(claim.port_space).map_err(claim_failure);
    }
    Listener::claim_port(claim.port_space, claim.port, place, reuse).map_err(claim_failure)
}

fn agent_failure(error: AgentError) -> Failure {
    let errno = match &error {
        AgentError::Taken(_) => libc::EBUSY,
        AgentError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    Failure::new(errno, error.to_string())
}

fn claim_failure(error: ClaimError) -> Failure {
    let errno = match &error {
        ClaimError::Taken { .. } | ClaimError::Exhausted(_) => libc::EADDRINUSE,
        ClaimError::NotToListen => libc::EINVAL,
        ClaimError::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    Failure::new(errno, error.to_string())
}

fn send_failure(error: MadSendError) -> Failure {
    let errno = match error {
        MadSendError::Busy => libc::EAGAIN,
        MadSendError::Fault => libc::EFAULT,
        MadSendError::NoSource(_) => libc::EADDRNOTAVAIL,
        MadSendError::Malformed(_) => libc::EINVAL,
        MadSendError::TooLarge => libc::EMSGSIZE,
        MadSendError::Unreachable(code) | MadSendError::Refused(code) => code,
    };
    Failure::new(errno, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn request(port_space: u16, port: u16, flags: u32) -> ClaimRequest {
        ClaimRequest {
            flags,
            port_space,
            port,
            // Fits: 2.
            family: libc::AF_INET as u16,
            ..ClaimRequest::default()
        }
    }

    fn claim(request: &ClaimRequest) -> (c_int, *mut feroce_gsi_claim_handle, u16) {
        let (mut handle, mut port) = (ptr::null_mut(), 0);
        // SAFETY: live places on this stack.
        let status = unsafe { feroce_gsi_claim(request, &raw mut handle, &raw mut port) };
        (status, handle, port)
    }

    #[test]
    fn claims_exclude_each_other_until_they_are_released() {
        let space = 0x4000 | std::process::id() as u16 & 0xfff;
        let (status, first, port) = claim(&request(space, 77, 0));
        assert_eq!((status, port), (0, 77));
        assert_eq!(claim(&request(space, 77, 0)).0, libc::EADDRINUSE);
        // SAFETY: it is live, and released once.
        unsafe {
            assert_eq!(feroce_gsi_claim_listen(first), 0);
            feroce_gsi_claim_release(first);
        }
        let (status, again, _) = claim(&request(space, 77, 0));
        assert_eq!(status, 0);
        let (status, any, port) = claim(&request(space, 0, 0));
        assert!(status == 0 && port >= 32_768);
        let (status, connects, port) = claim(&request(space, 0, FEROCE_GSI_CLAIM_CONNECT));
        assert!(status == 0 && port >= 32_768);
        // SAFETY: they are live, and released once.
        unsafe {
            assert_eq!(feroce_gsi_claim_listen(connects), libc::EINVAL);
            feroce_gsi_claim_release(again);
            feroce_gsi_claim_release(any);
            feroce_gsi_claim_release(connects);
        }
    }

    #[test]
    fn null_pointers_are_refused() {
        // SAFETY: null is allowed everywhere.
        unsafe {
            assert_eq!(
                feroce_gsi_open(ptr::null_mut(), ptr::null_mut()),
                libc::EINVAL
            );
            assert_eq!(
                feroce_gsi_send(ptr::null_mut(), ptr::null(), ptr::null()),
                libc::EINVAL
            );
            assert_eq!(
                feroce_gsi_receive(ptr::null_mut(), ptr::null_mut(), ptr::null_mut()),
                libc::EINVAL
            );
            assert_eq!(
                feroce_gsi_claim(ptr::null(), ptr::null_mut(), ptr::null_mut()),
                libc::EINVAL
            );
            assert_eq!(feroce_gsi_claim_listen(ptr::null_mut()), libc::EINVAL);
            assert_eq!(feroce_gsi_slot(ptr::null()), 0);
            assert_eq!(feroce_gsi_fd(ptr::null()), -1);
            feroce_gsi_close(ptr::null_mut());
            feroce_gsi_claim_release(ptr::null_mut());
        }
    }
}
