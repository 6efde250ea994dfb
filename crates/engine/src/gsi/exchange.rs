//! What this process claims and listens on, over all of its devices.
//!
//! A claim is not tied to a device: its requests come to the agent of the device that they arrived
//! at. Requests for a listener of this process need no detour; those that another process received
//! come in over the listener's own socket, which is looked at when a program asks for datagrams.

use super::agent::Mailbox;
use super::{Mad, MadAddress, format, owner};
use feroce_netio::{Claim, ClaimError, ConnectPort, Courier, Place, Service, claim_descriptors};
use rustix::event::epoll;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use slab::Slab;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

pub(super) use feroce_netio::Delivery;

/// Listeners looked at by one call.
const READY_MAX: usize = 64;

/// Requests taken from one listener by one call.
const REQUESTS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Exchange {
    courier: Courier,
    /// Readable while some listener is.
    ready: OwnedFd,
    listening: Mutex<Slab<Claim>>,
    mailboxes: Mutex<Vec<(String, Weak<Mailbox>)>>,
}

static EXCHANGE: Mutex<Option<Arc<Exchange>>> = Mutex::new(None);

fn exchange() -> MutexGuard<'static, Option<Arc<Exchange>>> {
    EXCHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exchange, made when first wanted.
pub(super) fn of_this_process() -> io::Result<Arc<Exchange>> {
    let mut exchange = exchange();
    if let Some(made) = &*exchange {
        return Ok(Arc::clone(made));
    }
    let made = Arc::new(Exchange {
        courier: Courier::new()?,
        ready: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        listening: Mutex::new(Slab::new()),
        mailboxes: Mutex::new(Vec::new()),
    });
    Ok(Arc::clone(exchange.insert(made)))
}

/// The exchange, held still while a process forks, and its descriptors.
pub(crate) struct Forking {
    exchange: MutexGuard<'static, Option<Arc<Exchange>>>,
    pub(crate) descriptors: Vec<RawFd>,
}

pub(crate) fn before_fork() -> Forking {
    let exchange = exchange();
    let mut descriptors = claim_descriptors();
    if let Some(exchange) = &*exchange {
        descriptors.extend([exchange.courier.descriptor(), exchange.ready.as_raw_fd()]);
    }
    Forking {
        exchange,
        descriptors,
    }
}

/// In a child: what the parent claims is not the child's; its descriptors are closed elsewhere.
pub(crate) fn forget_in_child(mut forking: Forking) {
    std::mem::forget(forking.exchange.take());
}

/// Delivers a request to whoever listens, in this process or another.
pub(super) fn deliver(
    device: &str,
    service: Service,
    place: Place,
    from: &MadAddress,
    mad: &Mad,
) -> Delivery {
    let exchange = match of_this_process() {
        Ok(exchange) => exchange,
        Err(error) => {
            log::warn!("a request for {service:?} is lost: {error}");
            return Delivery::Full;
        }
    };
    if exchange.listens(service, place) {
        return exchange.put(device, *from, mad);
    }
    let request = format::encode(from, device, mad);
    exchange.courier.deliver(service, place, &request)
}

impl Exchange {
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    pub(super) fn add_mailbox(&self, device: &str, mailbox: &Arc<Mailbox>) {
        let mut mailboxes = self.mailboxes();
        mailboxes.retain(|(_, mailbox)| mailbox.strong_count() > 0);
        mailboxes.push((device.to_owned(), Arc::downgrade(mailbox)));
    }

    /// Moves what waits in the sockets of listeners to the mailboxes of their devices.
    pub(super) fn collect(&self) {
        let mut events = Vec::with_capacity(READY_MAX);
        let now = rustix::time::Timespec::default();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.ready, spare, Some(&now)).is_err() {
            return;
        }
        let listening = self.listening();
        for event in events {
            let token = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(listener) = listening.get(token).and_then(Claim::listener) else {
                continue;
            };
            let take = |bytes: &[u8]| {
                if let Some((from, device, mad)) = format::decode(bytes)
                    && self.put(&device, from, &mad) != Delivery::Delivered
                {
                    log::debug!("a request to {} found no agent or no room", from.local);
                }
            };
            let mut requests = 0..REQUESTS_MAX;
            while requests.next().is_some() && self.courier.take(listener, take) {}
        }
    }

    /// Whether a listener of this process is the best for a request to this place.
    fn listens(&self, service: Service, place: Place) -> bool {
        let listening = self.listening();
        place.candidates().iter().any(|candidate| {
            let mut claims = listening.iter();
            claims.any(|(_, claim)| (claim.service(), claim.place()) == (service, *candidate))
        })
    }

    fn put(&self, device: &str, from: MadAddress, mad: &Mad) -> Delivery {
        let mailboxes = self.mailboxes();
        let found = mailboxes.iter().filter(|(name, _)| name == device);
        match found.filter_map(|(_, mailbox)| mailbox.upgrade()).next() {
            Some(mailbox) if mailbox.put(from, mad) => Delivery::Delivered,
            Some(_) => Delivery::Full,
            None => Delivery::Nobody,
        }
    }

    fn listening(&self) -> MutexGuard<'_, Slab<Claim>> {
        self.listening
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn mailboxes(&self) -> MutexGuard<'_, Vec<(String, Weak<Mailbox>)>> {
        self.mailboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port or service that this process claims until the value is dropped.
#[derive(Debug)]
pub struct Listener {
    exchange: Arc<Exchange>,
    held: Mutex<Held>,
    port: u16,
}

#[derive(Debug)]
enum Held {
    /// By the exchange, under this number: it listens.
    Listening(usize),
    /// Only claimed.
    Claimed(Claim),
    /// A port to connect from.
    Connecting(#[expect(dead_code, reason = "held until it is dropped")] ConnectPort),
    /// Between the others.
    Nothing,
}

impl Listener {
    /// Claims a port of a port space; port 0 stands for any that is free.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim_port(
        space: u16,
        port: u16,
        place: Place,
        reuse: bool,
    ) -> Result<Self, ClaimError> {
        let claim = if port == 0 {
            Claim::ephemeral(space, place, reuse)?
        } else {
            Claim::new(Service::Port { space, port }, place, reuse)?
        };
        Self::holding(claim)
    }

    /// Claims a whole service id.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn claim_service(id: u64, place: Place, reuse: bool) -> Result<Self, ClaimError> {
        Self::holding(Claim::new(owner::service_of(id), place, reuse)?)
    }

    /// Takes a port for someone who only connects.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn connect_port(space: u16) -> Result<Self, ClaimError> {
        let port = ConnectPort::take(space)?;
        Ok(Self {
            exchange: of_this_process()?,
            port: port.port(),
            held: Mutex::new(Held::Connecting(port)),
        })
    }

    fn holding(claim: Claim) -> Result<Self, ClaimError> {
        let port = match claim.service() {
            Service::Port { port, .. } => port,
            Service::Whole(_) => 0,
        };
        Ok(Self {
            exchange: of_this_process()?,
            port,
            held: Mutex::new(Held::Claimed(claim)),
        })
    }

    /// The port; 0 for a whole service id.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Has requests delivered from now on.
    ///
    /// # Errors
    /// [`ClaimError::Taken`] if an overlapping claim listens already, or the kernel's.
    pub fn listen(&self) -> Result<(), ClaimError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let mut claim = match std::mem::replace(&mut *held, Held::Nothing) {
            Held::Claimed(claim) => claim,
            other @ Held::Listening(_) => {
                *held = other;
                return Ok(());
            }
            other => {
                *held = other;
                return Err(ClaimError::NotToListen);
            }
        };
        let listens = claim.listen();
        if let (Ok(()), Some(listener)) = (&listens, claim.listener()) {
            let mut listening = self.exchange.listening();
            let entry = listening.vacant_entry();
            let token = epoll::EventData::new_u64(entry.key() as u64);
            let watched = epoll::add(&self.exchange.ready, listener, token, epoll::EventFlags::IN);
            if let Err(error) = watched {
                drop(listening);
                *held = Held::Claimed(claim);
                return Err(ClaimError::Io(error.into()));
            }
            *held = Held::Listening(entry.key());
            entry.insert(claim);
        } else {
            *held = Held::Claimed(claim);
        }
        listens
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Held::Listening(number) = *held {
            // Closing its socket also ends the watch.
            self.exchange.listening().try_remove(number);
        }
    }
}
