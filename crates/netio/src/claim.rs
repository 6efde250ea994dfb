//! Claims: which ports of the connection manager's port spaces are taken, and who listens there.
//!
//! A claim is an abstract Unix socket whose name says what is claimed, as a [slot](crate::Slot) is:
//! seen by every process of the network namespace, freed by the kernel however its process ends. A
//! claim that listens has a second socket, under a name that can be computed from a request's
//! destination, so that whoever receives the request hands it on by trying at most three names.
//!
//! The rules are those of TCP: a wildcard and a specific address of one port exclude each other,
//! IPv6 wildcards cover IPv4 unless told otherwise, ports that all allow reuse may coexist until
//! one listens. Users are as separate as they are for slots. Not here: what a request is.

mod connect;
mod names;

use std::hash::{BuildHasher, Hasher};
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;

use crate::sys::{self, ReceiveBuffers};
pub use connect::ConnectPort;
use names::{Claimed, Listing};

/// Ports that are chosen for those who do not care, as Linux chooses them for TCP.
pub const EPHEMERAL_PORTS: RangeInclusive<u16> = 32_768..=60_999;

/// Longest message to a listener, in bytes.
pub const REQUEST_MAX: usize = 1_024;

/// What is claimed: a port of a port space, or a whole service id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// A port.
    Port {
        /// The port space.
        space: u16,
        /// The port.
        port: u16,
    },
    /// A service id that is not made of a port.
    Whole(u64),
}

/// The address a service is claimed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address; an unspecified one stands for all.
    pub ip: IpAddr,
    /// Interface of a link-local address, otherwise 0.
    pub scope: u32,
    /// An unspecified IPv6 address does not stand for IPv4, too.
    pub one_family: bool,
}

impl Place {
    /// The place, with what does not matter taken out.
    #[must_use]
    pub const fn new(ip: IpAddr, scope: u32, one_family: bool) -> Self {
        let ip = ip.to_canonical();
        let link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        Self {
            ip,
            scope: if link_local { scope } else { 0 },
            one_family: one_family && ip.is_ipv6() && ip.is_unspecified(),
        }
    }

    const fn is_dual(&self) -> bool {
        self.ip.is_ipv6() && self.ip.is_unspecified() && !self.one_family
    }

    /// Whether some request could be for both.
    fn overlaps(&self, other: &Self) -> bool {
        if self.is_dual() || other.is_dual() {
            return true;
        }
        self.ip.is_ipv4() == other.ip.is_ipv4()
            && (self.ip.is_unspecified()
                || other.ip.is_unspecified()
                || (self.ip, self.scope) == (other.ip, other.scope))
    }

    /// The places where a request to this address may be listened for, the best first.
    #[must_use]
    pub fn candidates(&self) -> [Self; 3] {
        let any_v4 = IpAddr::from([0; 4]);
        let any_v6 = IpAddr::from([0; 16]);
        let family = if self.ip.is_ipv4() { any_v4 } else { any_v6 };
        [
            *self,
            Self::new(family, 0, true),
            Self::new(any_v6, 0, false),
        ]
    }
}

/// A service this process claims until the value is dropped or the process ends.
#[derive(Debug)]
pub struct Claim {
    service: Service,
    place: Place,
    // Its name is the claim.
    _holder: OwnedFd,
    listener: Option<OwnedFd>,
    number: usize,
}

/// Why something cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody has it.
    #[error("{service:?} on {ip} is taken by a process of this network namespace")]
    Taken {
        /// What was asked for.
        service: Service,
        /// Where.
        ip: IpAddr,
    },
    /// Every ephemeral port is.
    #[error("all ephemeral ports of port space {0:#06x} are taken")]
    Exhausted(u16),
    /// The caller's fault: a port to connect from does not listen.
    #[error("a port that was taken to connect from cannot listen")]
    NotToListen,
    /// The kernel refused a Unix socket or the list of them.
    #[error("a claim cannot be made: {0}")]
    Io(#[from] io::Error),
}

/// Descriptors of all claims of this process, for a forked child to close.
static DESCRIPTORS: Mutex<Vec<Option<[RawFd; 2]>>> = Mutex::new(Vec::new());

fn descriptors() -> std::sync::MutexGuard<'static, Vec<Option<[RawFd; 2]>>> {
    DESCRIPTORS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Claim {
    /// Claims a service; with `reuse` others who say the same may have it, too, until one listens.
    ///
    /// # Errors
    /// [`ClaimError::Taken`], or the kernel's.
    pub fn new(service: Service, place: Place, reuse: bool) -> Result<Self, ClaimError> {
        let taken = || ClaimError::Taken {
            service,
            ip: place.ip,
        };
        let own = names::claim(service, &place, reuse);
        let holder = bind(&own)?.ok_or_else(taken)?;
        let listing = Listing::read(Some(service))?;
        let conflicts = |claimed: &Claimed| {
            claimed.name != own
                && claimed.place.overlaps(&place)
                && !(reuse && claimed.reuse && !claimed.listens)
        };
        if listing.claims.iter().any(conflicts) {
            return Err(taken());
        }
        let entry = [holder.as_raw_fd(), -1];
        let mut all = descriptors();
        let number = all.iter().position(Option::is_none).unwrap_or(all.len());
        if number == all.len() {
            all.push(None);
        }
        all[number] = Some(entry);
        Ok(Self {
            service,
            place,
            _holder: holder,
            listener: None,
            number,
        })
    }

    /// Claims a free port of [`EPHEMERAL_PORTS`], found from a random one on.
    ///
    /// # Errors
    /// [`ClaimError::Exhausted`], or the kernel's.
    pub fn ephemeral(space: u16, place: Place, reuse: bool) -> Result<Self, ClaimError> {
        let taken = Listing::read(None)?.ports(space);
        for port in ephemeral_ports() {
            if taken.contains(&port) {
                continue;
            }
            match Self::new(Service::Port { space, port }, place, reuse) {
                Err(ClaimError::Taken { .. }) => {}
                result => return result,
            }
        }
        Err(ClaimError::Exhausted(space))
    }

    /// What is claimed.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// Where.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Has requests delivered to this claim from now on.
    ///
    /// # Errors
    /// [`ClaimError::Taken`] if a claim listens that this one overlaps, or the kernel's.
    pub fn listen(&mut self) -> Result<(), ClaimError> {
        if self.listener.is_some() {
            return Ok(());
        }
        let taken = || ClaimError::Taken {
            service: self.service,
            ip: self.place.ip,
        };
        let own = names::listener(sys::effective_user(), self.service, &self.place);
        let listener = bind(&own)?.ok_or_else(taken)?;
        let listing = Listing::read(Some(self.service))?;
        let rival = |(name, place): &(String, Place)| *name != own && place.overlaps(&self.place);
        if listing.listeners.iter().any(rival) {
            return Err(taken());
        }
        if let Some(Some(entry)) = descriptors().get_mut(self.number) {
            entry[1] = listener.as_raw_fd();
        }
        self.listener = Some(listener);
        Ok(())
    }

    /// The descriptor that is readable while requests wait, once it listens.
    #[must_use]
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(entry) = descriptors().get_mut(self.number) {
            *entry = None;
        }
    }
}

/// Descriptors of everything this process claims, for a forked child to close.
#[must_use]
pub fn claim_descriptors() -> Vec<RawFd> {
    let claims = descriptors().iter().flatten().flatten().copied().collect();
    let mut all: Vec<RawFd> = claims;
    all.retain(|&fd| fd >= 0);
    all.extend(connect::descriptors());
    all
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A listener has it.
    Delivered,
    /// Nobody listens yet, but the service is claimed: its owner may be about to listen.
    Early,
    /// The listener's queue is full, as that of a switch would be.
    Full,
    /// Nobody listens.
    Nobody,
}

/// Takes requests to their listeners, and those of this process out of their sockets.
pub struct Courier {
    socket: OwnedFd,
    buffers: Mutex<ReceiveBuffers>,
}

impl Courier {
    /// A courier.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            socket: sys::unix_socket()?,
            buffers: Mutex::new(ReceiveBuffers::new(1, REQUEST_MAX, sys::CONTROL_UNIX_BYTES)),
        })
    }

    /// Delivers a request (at most [`REQUEST_MAX`] bytes) that came to address `place`.
    pub fn deliver(&self, service: Service, place: Place, request: &[u8]) -> Delivery {
        let user = sys::effective_user();
        for candidate in place.candidates() {
            let name = names::listener(user, service, &candidate);
            let pieces = [IoSlice::new(request)];
            match sys::send_plain(self.socket.as_fd(), Some(name.as_bytes()), &pieces) {
                Ok(()) => return Delivery::Delivered,
                Err(error) if is_absent(&error) => {}
                Err(error) => {
                    log::debug!("a request for {service:?} is lost: {error}");
                    return Delivery::Full;
                }
            }
        }
        let is_claimed = |candidate| {
            let name = names::claim(service, &candidate, false);
            sys::is_bound(name.as_bytes())
        };
        if place.candidates().into_iter().any(is_claimed) {
            return Delivery::Early;
        }
        Delivery::Nobody
    }

    /// Takes the oldest request out of a listener's socket and hands it to `sink`; false if there
    /// is none.
    pub fn take(&self, listener: BorrowedFd<'_>, sink: impl FnOnce(&[u8])) -> bool {
        let mut buffers = self
            .buffers
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if buffers.receive(listener, 1).unwrap_or(0) == 0 {
            return false;
        }
        let user = sys::effective_user();
        if let Some(message) = buffers.message(0)
            && message.credentials.is_some_and(|from| from.user == user)
        {
            sink(message.bytes);
        }
        true
    }

    /// Its descriptor, for a forked child to close.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl std::fmt::Debug for Courier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Courier").finish_non_exhaustive()
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ECONNREFUSED | libc::ENOENT)
    )
}

/// A socket of this name, with credentials on what arrives; `None` if the name is taken.
fn bind(name: &str) -> io::Result<Option<OwnedFd>> {
    let socket = sys::unix_socket()?;
    // Before the name exists, so that no message arrives without credentials.
    sys::set_int(socket.as_fd(), libc::SOL_SOCKET, libc::SO_PASSCRED, 1)?;
    match sys::bind_abstract(socket.as_fd(), name.as_bytes()) {
        Ok(()) => Ok(Some(socket)),
        Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Every ephemeral port once, from a random one on.
fn ephemeral_ports() -> impl Iterator<Item = u16> {
    let (first, last) = (*EPHEMERAL_PORTS.start(), *EPHEMERAL_PORTS.end());
    let count = last - first + 1;
    let start = random_below(count);
    (0..count).map(move |step| {
        let offset = (u32::from(start) + u32::from(step)) % u32::from(count);
        // Below `count`, which is 16 bits wide.
        first + offset as u16
    })
}

/// A number below `count` that nobody can foresee.
fn random_below(count: u16) -> u16 {
    // The standard library seeds its hash tables from the kernel.
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random % u64::from(count.max(1))) as u16
}

#[cfg(test)]
mod tests;
