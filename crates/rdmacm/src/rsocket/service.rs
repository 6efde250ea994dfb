//! What happens to streams while no program calls: connections are accepted until the backlog is
//! full, connections that a program does not wait for come about, signs of life are given.
//!
//! One thread per process, from the first socket that needs it on. It sleeps until an event
//! arrives or a sign of life is due. Not here: data, which moves in the program's own calls.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Instant;

use super::socket::{Interest, StreamSocket};
use super::sys::{self, Bell};
use super::table::lock;
use crate::guard::Failure;

/// A socket that is looked after.
#[derive(Debug)]
enum Client {
    /// One that a program has.
    Known(Weak<StreamSocket>),
    /// One that comes about for a listener, and that nobody else has yet.
    New(Arc<StreamSocket>),
}

impl Client {
    fn socket(&self) -> Option<Arc<StreamSocket>> {
        match self {
            Self::Known(socket) => socket.upgrade(),
            Self::New(socket) => Some(Arc::clone(socket)),
        }
    }
}

#[derive(Debug, Default)]
struct Service {
    clients: Vec<Client>,
    /// Wakes the thread; there is one as soon as the thread runs.
    bell: Option<Arc<Bell>>,
}

static SERVICE: Mutex<Service> = Mutex::new(Service {
    clients: Vec::new(),
    bell: None,
});

/// Looks after a socket from now on, as long as it says that it needs that.
pub(crate) fn attend(socket: &Arc<StreamSocket>) -> Result<(), Failure> {
    let mut service = lock(&SERVICE);
    let is_it = |client: &Client| match client {
        Client::Known(known) => known.ptr_eq(&Arc::downgrade(socket)),
        Client::New(new) => Arc::ptr_eq(new, socket),
    };
    if !service.clients.iter().any(is_it) {
        let client = Client::Known(Arc::downgrade(socket));
        service.clients.push(client);
    }
    run(&mut service)
}

/// Something has changed that the thread may want to know.
pub(crate) fn wake() {
    if let Some(bell) = &lock(&SERVICE).bell {
        bell.ring();
    }
}

fn run(service: &mut Service) -> Result<(), Failure> {
    if let Some(bell) = &service.bell {
        bell.ring();
        return Ok(());
    }
    let bell = Arc::new(Bell::new()?);
    let own = Arc::clone(&bell);
    std::thread::Builder::new()
        .name("feroce-rsocket".to_owned())
        .spawn(move || work(&own))
        .map_err(|error| {
            Failure::new(
                error.raw_os_error().unwrap_or(libc::EAGAIN),
                format!("starting a thread: {error}"),
            )
        })?;
    service.bell = Some(bell);
    Ok(())
}

fn work(bell: &Bell) {
    block_signals();
    loop {
        bell.hush();
        let (mut fds, mut until) = (vec![sys::pollfd(bell.fd(), libc::POLLIN)], None);
        for (_, interest) in clients() {
            match interest {
                Interest::Events(fd) => fds.push(sys::pollfd(fd, libc::POLLIN)),
                Interest::At(time) => until = Some(until.map_or(time, |u: Instant| u.min(time))),
                Interest::None => {}
            }
        }
        // A failure is an interruption or a descriptor that was just closed: look again.
        let _ = sys::poll(&mut fds, until);
        let mut new = Vec::new();
        for (socket, _) in clients() {
            socket.serve(&mut new);
        }
        let new = new.into_iter().map(Client::New);
        lock(&SERVICE).clients.extend(new);
    }
}

/// The sockets and what they need; those that need nothing are left out from now on.
fn clients() -> Vec<(Arc<StreamSocket>, Interest)> {
    let sockets: Vec<_> = lock(&SERVICE)
        .clients
        .iter()
        .filter_map(Client::socket)
        .collect();
    let mut found = Vec::with_capacity(sockets.len());
    let mut idle: Vec<Arc<StreamSocket>> = Vec::new();
    for socket in sockets {
        match socket.interest() {
            Interest::None => idle.push(socket),
            interest => found.push((socket, interest)),
        }
    }
    let mut dropped = Vec::new();
    let mut service = lock(&SERVICE);
    service.clients.retain_mut(|client| {
        let keep = client
            .socket()
            .is_some_and(|socket| !idle.iter().any(|idle| Arc::ptr_eq(idle, &socket)));
        if !keep {
            dropped.push(std::mem::replace(client, Client::Known(Weak::new())));
        }
        keep
    });
    // Sockets are dropped without the lock: they may take long.
    drop(service);
    drop(dropped);
    found
}

/// Signals are for the program's threads.
fn block_signals() {
    // SAFETY: an all-zero set is filled in before it is used.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}

/// The service, held still during a fork.
#[derive(Debug)]
pub(crate) struct Held(MutexGuard<'static, Service>);

/// Holds the service still.
pub(crate) fn hold() -> Held {
    Held(lock(&SERVICE))
}

impl Held {
    /// In a child: there is no thread, and the sockets are the parent's.
    pub(crate) fn forget(mut self) {
        std::mem::forget(std::mem::take(&mut *self.0));
    }
}
