//! Which descriptor is which rsocket. The number is a real descriptor of the process, so that it
//! is nobody else's.
//!
//! A forked child inherits the numbers but no part in the sockets: the device behind them belongs
//! to the parent. What it has of them is forgotten, and calls on them fail with EBADF. It may make
//! rsockets of its own.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

use super::datagram::DatagramSocket;
use super::gather::Buffers;
use super::service;
use super::socket::{StreamSocket, Value};
use super::sys::{Bell, RawAddress};
use crate::guard::Failure;

/// An rsocket of either kind.
#[derive(Clone, Debug)]
pub(crate) enum Socket {
    /// `SOCK_STREAM`.
    Stream(Arc<StreamSocket>),
    /// `SOCK_DGRAM`.
    Datagram(Arc<DatagramSocket>),
}

impl Socket {
    /// `O_NONBLOCK`.
    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) {
        match self {
            Self::Stream(stream) => stream.set_nonblocking(is_nonblocking),
            Self::Datagram(datagram) => datagram.set_nonblocking(is_nonblocking),
        }
    }

    /// Whether calls return rather than wait.
    pub(crate) fn is_nonblocking(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.is_nonblocking(),
            Self::Datagram(datagram) => datagram.is_nonblocking(),
        }
    }

    /// `rbind`.
    pub(crate) fn bind(&self, address: RawAddress) -> Result<(), Failure> {
        match self {
            Self::Stream(stream) => stream.bind(address),
            Self::Datagram(datagram) => datagram.bind(address),
        }
    }

    /// `rconnect`.
    pub(crate) fn connect(&self, address: RawAddress) -> Result<(), Failure> {
        match self {
            Self::Stream(stream) => stream.connect(address),
            Self::Datagram(datagram) => datagram.connect(address),
        }
    }

    /// `rshutdown`.
    pub(crate) fn shutdown(&self, how: c_int) -> Result<(), Failure> {
        match self {
            Self::Stream(stream) => stream.shutdown(how),
            Self::Datagram(_) => Ok(()),
        }
    }

    /// `rclose`.
    pub(crate) fn close(&self) {
        match self {
            Self::Stream(stream) => stream.close(),
            Self::Datagram(datagram) => datagram.close(),
        }
    }

    /// `rrecv`.
    pub(crate) fn receive(
        &self,
        buffers: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<usize, Failure> {
        match self {
            Self::Stream(stream) => stream.receive(buffers, flags),
            Self::Datagram(datagram) => Ok(datagram.receive_from(buffers, flags)?.0),
        }
    }

    /// `rrecvfrom`: how much, and who sent it.
    pub(crate) fn receive_from(
        &self,
        buffers: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<(usize, RawAddress), Failure> {
        match self {
            Self::Stream(stream) => {
                let count = stream.receive(buffers, flags)?;
                Ok((count, stream.peer_address()?))
            }
            Self::Datagram(datagram) => datagram.receive_from(buffers, flags),
        }
    }

    /// `rsendto`, or `rsend` without an address.
    pub(crate) fn send_to(
        &self,
        buffers: &mut Buffers<'_>,
        flags: c_int,
        to: Option<RawAddress>,
    ) -> Result<usize, Failure> {
        match self {
            // A stream has one peer, whatever the address says.
            Self::Stream(stream) => stream.send(buffers, flags),
            Self::Datagram(datagram) => datagram.send_to(buffers, flags, to),
        }
    }

    /// `rgetsockname`.
    pub(crate) fn local_address(&self) -> Result<RawAddress, Failure> {
        match self {
            Self::Stream(stream) => stream.local_address(),
            Self::Datagram(datagram) => datagram.local_address(),
        }
    }

    /// `rgetpeername`.
    pub(crate) fn peer_address(&self) -> Result<RawAddress, Failure> {
        match self {
            Self::Stream(stream) => stream.peer_address(),
            Self::Datagram(datagram) => datagram.peer_address(),
        }
    }

    /// `rsetsockopt`.
    pub(crate) fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: Value<'_>,
    ) -> Result<(), Failure> {
        match self {
            Self::Stream(stream) => stream.set_option(level, name, value),
            Self::Datagram(datagram) => datagram.set_option(level, name, value),
        }
    }

    /// `rgetsockopt`.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Stream(stream) => stream.option(level, name),
            Self::Datagram(datagram) => datagram.option(level, name),
        }
    }

    /// What has happened, of what a poll asks for.
    pub(crate) fn events(&self, wanted: i16) -> i16 {
        match self {
            Self::Stream(stream) => stream.events(wanted),
            Self::Datagram(datagram) => datagram.events(wanted),
        }
    }

    /// A thread begins to wait: adds what it must poll.
    pub(crate) fn begin_wait(&self, bell: &Arc<Bell>, fds: &mut Vec<libc::pollfd>) {
        match self {
            Self::Stream(stream) => stream.begin_wait(bell, fds),
            Self::Datagram(datagram) => datagram.begin_wait(bell, fds),
        }
    }

    /// It has waited.
    pub(crate) fn end_wait(&self, bell: &Arc<Bell>) {
        match self {
            Self::Stream(stream) => stream.end_wait(bell),
            Self::Datagram(datagram) => datagram.end_wait(bell),
        }
    }
}

type Sockets = HashMap<RawFd, Socket>;

fn sockets() -> &'static RwLock<Sockets> {
    static SOCKETS: OnceLock<RwLock<Sockets>> = OnceLock::new();
    SOCKETS.get_or_init(RwLock::default)
}

fn change() -> RwLockWriteGuard<'static, Sockets> {
    sockets().write().unwrap_or_else(PoisonError::into_inner)
}

/// The lock of a mutex; a thread that panicked has ended the process.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The socket of a descriptor.
///
/// # Errors
/// EBADF if it is none.
pub(crate) fn find(fd: RawFd) -> Result<Socket, Failure> {
    find_any(fd)
        .ok_or_else(|| Failure::new(libc::EBADF, format!("descriptor {fd} is no rsocket here")))
}

/// The socket of a descriptor, if it is one.
pub(crate) fn find_any(fd: RawFd) -> Option<Socket> {
    let sockets = sockets().read().unwrap_or_else(PoisonError::into_inner);
    sockets.get(&fd).cloned()
}

/// Notes a new socket.
pub(crate) fn insert(fd: RawFd, socket: Socket) {
    watch_forks();
    change().insert(fd, socket);
}

/// Takes a socket out, before its descriptor is closed.
pub(crate) fn remove(fd: RawFd) -> Option<Socket> {
    change().remove(&fd)
}

/// How many forks lie between the process that loaded the library and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Tells what was made in this process from what was inherited.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

thread_local! {
    /// Between the two halves of a fork, in the thread that forks.
    static HELD: RefCell<Option<(RwLockWriteGuard<'static, Sockets>, service::Held)>> =
        const { RefCell::new(None) };
}

fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: three functions without arguments that do not unwind: a panic aborts. The
        // library is never unloaded before the process ends.
        let refusal =
            unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if refusal != 0 {
            log::error!("forks go unnoticed (errno {refusal}): do not use rsockets in children");
        }
    });
}

extern "C" fn before() {
    let held = (change(), service::hold());
    HELD.with_borrow_mut(|place| *place = Some(held));
}

extern "C" fn in_parent() {
    drop(HELD.take());
}

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    if let Some((mut sockets, service)) = HELD.take() {
        // Dropping them would lock what threads of the parent may have locked, and use its device.
        std::mem::forget(std::mem::take(&mut *sockets));
        service.forget();
    }
}
