//! A stream socket: how it connects, listens, accepts, waits, closes; one lock around it all.
//!
//! Not here: what goes over the wire ([`connection`](super::connection)), C
//! ([`entry`](super::entry)).

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use feroce_verbs_abi as abi;

use super::connection::Connection;
use super::gather::Buffers;
use super::options::{Options, defaults};
use super::service;
use super::stream::Ending;
use super::sys::{self, Bell, RawAddress};
use super::table::lock;
use super::verbs::{Event, Id};
use super::wait::{self, Watchers};
use super::wire::ConnectionData;
use crate::guard::Failure;

mod iomap;
mod option;
mod state;

pub(crate) use option::Value;
use state::{Read, broken, parameters};

/// How long the search for an address or a route may take.
const RESOLVE_LIMIT_MS: c_int = 5000;

/// How long a close waits for what was sent to arrive, unless the program sets `SO_LINGER`. A peer
/// that lives takes it at once; one that does not is given up by the device in about that time.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

/// Most connections that wait to be accepted.
const BACKLOG_MAX: c_int = 4096;

/// Retries of the device: the most there are, and for ever while receives are missing. A receive is
/// missing only for as long as the peer's program does not look.
const RETRIES: u8 = 7;

/// A stream socket.
pub(crate) struct StreamSocket {
    is_nonblocking: AtomicBool,
    state: Mutex<State>,
}

impl std::fmt::Debug for StreamSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamSocket").finish_non_exhaustive()
    }
}

/// What a socket is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing, perhaps bound.
    New,
    /// Waits for connections.
    Listening,
    /// A program has asked for a connection.
    Connecting,
    /// A connection request was accepted, the peer's last word is missing.
    Accepting,
    /// Connected, now or before.
    Connected,
    /// The attempt to connect failed.
    Failed,
    /// `rclose` was called.
    Closed,
}

struct State {
    phase: Phase,
    options: Options,
    link: Option<Link>,
    listener: Option<Listener>,
    /// The listener that an accepted connection is for.
    parent: Weak<StreamSocket>,
    watchers: Watchers,
    /// What `SO_ERROR` says.
    error: c_int,
    io_maps: iomap::Mappings,
    /// Where the route leads, when a program has said so.
    route: Vec<abi::ibv_path_data>,
    keep_alive_at: Option<Instant>,
}

#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// Those that can be accepted, and how many are on the way.
    ready: VecDeque<Arc<StreamSocket>>,
    underway: usize,
}

impl Listener {
    fn has_room(&self) -> bool {
        self.ready.len() + self.underway < self.backlog
    }
}

/// What the connection manager and the device have of a socket.
#[derive(Debug)]
struct Link {
    id: Id,
    connection: Option<Connection>,
}

impl Drop for Link {
    fn drop(&mut self) {
        // The queue pair goes before the queue and the memory that it uses.
        self.id.destroy_qp();
        self.connection = None;
    }
}

/// What a socket needs of the thread that serves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interest {
    /// To be served when this descriptor is readable.
    Events(RawFd),
    /// To be served at that time.
    At(Instant),
    /// Nothing.
    None,
}

impl StreamSocket {
    /// A new socket and its descriptor.
    pub(crate) fn new() -> Result<(RawFd, Arc<Self>), Failure> {
        let id = Id::new(abi::RDMA_PS_TCP)?;
        let fd = id.fd();
        let socket = Self::with(id, None, Options::new(), Phase::New, Weak::new());
        Ok((fd, Arc::new(socket)))
    }

    fn with(
        id: Id,
        connection: Option<Connection>,
        options: Options,
        phase: Phase,
        parent: Weak<Self>,
    ) -> Self {
        let state = State {
            phase,
            options,
            link: Some(Link { id, connection }),
            listener: None,
            parent,
            watchers: Watchers::default(),
            error: 0,
            io_maps: iomap::Mappings::default(),
            route: Vec::new(),
            keep_alive_at: None,
        };
        Self {
            is_nonblocking: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether calls return rather than wait.
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// `O_NONBLOCK`.
    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) {
        self.is_nonblocking.store(is_nonblocking, Ordering::Relaxed);
    }

    /// `rbind`.
    pub(crate) fn bind(&self, address: RawAddress) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.phase != Phase::New {
            return Err(Failure::invalid("the socket is in use: it cannot be bound"));
        }
        state.link()?.id.bind(address)
    }

    /// `rlisten`.
    pub(crate) fn listen(self: &Arc<Self>, backlog: c_int) -> Result<(), Failure> {
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        let mut state = self.lock();
        match state.phase {
            Phase::New => state.link()?.id.listen(backlog)?,
            Phase::Listening => {}
            _ => return Err(Failure::invalid("a socket with a connection cannot listen")),
        }
        state.phase = Phase::Listening;
        let listener = state.listener.get_or_insert_with(|| Listener {
            backlog: 0,
            ready: VecDeque::new(),
            underway: 0,
        });
        // Lossless: clamped.
        listener.backlog = backlog as usize;
        drop(state);
        service::attend(self)
    }

    /// `raccept`.
    pub(crate) fn accept(&self) -> Result<(RawFd, Arc<Self>), Failure> {
        if self.lock().phase != Phase::Listening {
            return Err(Failure::invalid("the socket does not listen"));
        }
        let may_wait = !self.is_nonblocking();
        let accepted = self.wait(may_wait, None, |state| {
            state.listener.as_mut()?.ready.pop_front()
        })?;
        // There is room in the backlog again.
        service::wake();
        let fd = accepted.lock().link()?.id.fd();
        Ok((fd, accepted))
    }

    /// `rconnect`.
    pub(crate) fn connect(self: &Arc<Self>, to: RawAddress) -> Result<(), Failure> {
        self.begin_connect(to)?;
        if self.is_nonblocking() {
            service::attend(self)?;
            self.lock().progress(None);
        }
        let may_wait = !self.is_nonblocking();
        let waited = self.wait(may_wait, None, |state| match state.phase {
            Phase::Connecting => None,
            Phase::Connected => Some(Ok(())),
            _ => Some(Err(state.take_error())),
        });
        waited.map_err(|failure| match failure.errno {
            libc::EAGAIN => Failure::new(libc::EINPROGRESS, "the connection is on its way"),
            _ => failure,
        })?
    }

    fn begin_connect(&self, to: RawAddress) -> Result<(), Failure> {
        let mut state = self.lock();
        match state.phase {
            Phase::New => {}
            Phase::Connecting => {
                return Err(Failure::new(libc::EALREADY, "a connection is on its way"));
            }
            Phase::Connected => return Err(Failure::new(libc::EISCONN, "already connected")),
            Phase::Failed => return Err(state.take_error()),
            _ => return Err(Failure::invalid("the socket cannot connect")),
        }
        state.link()?.id.resolve_address(to, RESOLVE_LIMIT_MS)?;
        state.phase = Phase::Connecting;
        Ok(())
    }

    /// `rsend` and its like: all of it, or as much as goes without waiting.
    pub(crate) fn send(&self, buffers: &mut Buffers<'_>, flags: c_int) -> Result<usize, Failure> {
        let whole = buffers.rest();
        let may_wait = self.may_wait(flags);
        let sent = self.wait(may_wait, None, |state| match state.send(buffers) {
            Err(failure) => Some(Err(failure)),
            Ok(()) if buffers.rest() == 0 => Some(Ok(())),
            Ok(()) => None,
        });
        let done = whole - buffers.rest();
        match sent {
            Ok(Ok(())) => Ok(done),
            // What is sent is sent.
            _ if done > 0 => Ok(done),
            Ok(Err(failure)) | Err(failure) => Err(failure),
        }
    }

    /// `rrecv` and its like.
    pub(crate) fn receive(
        &self,
        buffers: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<usize, Failure> {
        let whole = buffers.rest();
        let is_peek = flags & libc::MSG_PEEK != 0;
        let wants_all = flags & libc::MSG_WAITALL != 0 && !is_peek;
        let may_wait = self.may_wait(flags);
        let read = self.wait(may_wait, None, |state| {
            let result = state.receive(buffers, is_peek);
            match result {
                Err(failure) => Some(Err(failure)),
                Ok(Read::Nothing) => None,
                Ok(Read::Some) if wants_all && buffers.rest() > 0 => None,
                Ok(Read::Some | Read::End) => Some(Ok(())),
            }
        });
        let done = whole - buffers.rest();
        match read {
            Ok(Ok(())) => Ok(done),
            _ if done > 0 => Ok(done),
            Ok(Err(failure)) | Err(failure) => Err(failure),
        }
    }

    /// `rshutdown`.
    pub(crate) fn shutdown(&self, how: c_int) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.phase == Phase::Listening {
            state.phase = Phase::Failed;
            state.watchers.ring(None);
            return Ok(());
        }
        let Some(connection) = state.connected() else {
            return Err(Failure::new(libc::ENOTCONN, "the socket is not connected"));
        };
        match how {
            libc::SHUT_RD => connection.stream.close_read(),
            libc::SHUT_WR => connection.stream.close_write(),
            libc::SHUT_RDWR => connection.stream.close(),
            _ => return Err(Failure::invalid(format!("shutdown in a way {how}"))),
        }
        connection.control();
        state.watchers.ring(None);
        drop(state);
        self.flush(CLOSE_LIMIT);
        Ok(())
    }

    /// `rclose`.
    pub(crate) fn close(&self) {
        let linger = self.lock().options.linger;
        let limit = match (linger.l_onoff, u64::try_from(linger.l_linger)) {
            (0, _) | (_, Err(_)) => CLOSE_LIMIT,
            (_, Ok(seconds)) => Duration::from_secs(seconds),
        };
        let mut state = self.lock();
        if let Some(connection) = state.connected() {
            connection.stream.close();
            connection.control();
            drop(state);
            self.flush(limit);
            state = self.lock();
            if let Some(link) = &mut state.link {
                link.id.disconnect();
            }
        }
        state.phase = Phase::Closed;
        state.watchers.ring(None);
        let (link, listener) = (state.link.take(), state.listener.take());
        let mappings = std::mem::take(&mut state.io_maps);
        drop(state);
        drop((link, mappings));
        for waiting in listener.into_iter().flat_map(|listener| listener.ready) {
            waiting.close();
        }
        service::wake();
    }

    /// Waits until everything sent has arrived, or it is clear that it will not.
    fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let waited = self.wait(true, Some(until), |state| {
            let flushed = state
                .connected()
                .is_none_or(|connection| connection.stream.is_flushed());
            flushed.then_some(())
        });
        if let Err(failure) = waited {
            log::debug!("rsocket: what was sent may be lost: {}", failure.reason);
        }
    }

    /// `rgetsockname`.
    pub(crate) fn local_address(&self) -> Result<RawAddress, Failure> {
        Ok(self.lock().link()?.id.local())
    }

    /// `rgetpeername`.
    pub(crate) fn peer_address(&self) -> Result<RawAddress, Failure> {
        let mut state = self.lock();
        if state.phase != Phase::Connected {
            return Err(Failure::new(libc::ENOTCONN, "the socket is not connected"));
        }
        Ok(state.link()?.id.peer())
    }

    fn may_wait(&self, flags: c_int) -> bool {
        !self.is_nonblocking() && flags & libc::MSG_DONTWAIT == 0
    }

    // --- waiting ----------

    /// Makes progress until `ready` has a result. Signals do not end it: programs ask for that
    /// (`SA_RESTART`) far more often than not.
    ///
    /// # Errors
    /// EAGAIN if it would have to wait and may not, ETIMEDOUT when the time is up.
    fn wait<T>(
        &self,
        may_wait: bool,
        until: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Failure> {
        let mut state = self.lock();
        state.progress(None);
        if let Some(result) = ready(&mut state) {
            return Ok(result);
        }
        if !may_wait {
            return Err(Failure::new(libc::EAGAIN, "it would have to wait"));
        }
        let spin_until = Instant::now() + defaults().polling;
        while Instant::now() < spin_until {
            drop(state);
            std::hint::spin_loop();
            state = self.lock();
            if state.progress(None)
                && let Some(result) = ready(&mut state)
            {
                return Ok(result);
            }
        }
        let bell = wait::bell()?;
        state.watchers.add(&bell);
        let result = self.sleep(&bell, state, until, ready);
        self.lock().watchers.remove(&bell);
        result
    }

    fn sleep<'a, T>(
        &'a self,
        bell: &Arc<Bell>,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Failure> {
        loop {
            let mut fds = vec![sys::pollfd(bell.fd(), libc::POLLIN)];
            state.prepare_wait(&mut fds);
            state.progress(Some(bell));
            if let Some(result) = ready(&mut state) {
                return Ok(result);
            }
            drop(state);
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Err(Failure::new(libc::ETIMEDOUT, "nothing happened in time"));
            }
            let next = now + defaults().wake_up;
            let next = until.map_or(next, |until| until.min(next));
            match sys::poll(&mut fds, Some(next)) {
                Err(failure) if failure.errno != libc::EINTR => return Err(failure),
                _ => {}
            }
            bell.hush();
            state = self.lock();
            state.finish_wait(Some(bell));
        }
    }

    // --- rpoll ----------

    /// What has happened, of what is asked for.
    pub(crate) fn events(&self, wanted: i16) -> i16 {
        let mut state = self.lock();
        state.progress(None);
        state.events(wanted)
    }

    /// A thread begins to wait: what it must poll.
    pub(crate) fn begin_wait(&self, bell: &Arc<Bell>, fds: &mut Vec<libc::pollfd>) {
        let mut state = self.lock();
        state.watchers.add(bell);
        state.prepare_wait(fds);
    }

    /// It has waited.
    pub(crate) fn end_wait(&self, bell: &Arc<Bell>) {
        let mut state = self.lock();
        state.watchers.remove(bell);
        state.finish_wait(Some(bell));
    }

    // --- the thread that serves ----------

    /// What the socket needs of it.
    pub(crate) fn interest(&self) -> Interest {
        let state = self.lock();
        let Some(link) = &state.link else {
            return Interest::None;
        };
        match state.phase {
            Phase::Listening if state.listener.as_ref().is_some_and(Listener::has_room) => {
                Interest::Events(link.id.fd())
            }
            // Full: `raccept` wakes the thread.
            Phase::Listening => Interest::At(Instant::now() + defaults().wake_up),
            Phase::Connecting | Phase::Accepting => Interest::Events(link.id.fd()),
            Phase::Connected => state.keep_alive_at.map_or(Interest::None, Interest::At),
            Phase::New | Phase::Failed | Phase::Closed => Interest::None,
        }
    }

    /// Does what is due; sockets that come about by it go to `new`.
    pub(crate) fn serve(self: &Arc<Self>, new: &mut Vec<Arc<Self>>) {
        let mut state = self.lock();
        match state.phase {
            Phase::Listening => {
                while state.listener.as_ref().is_some_and(Listener::has_room)
                    && let Some(event) = state.link.as_mut().and_then(|link| link.id.event())
                {
                    self.request(&mut state, event, new);
                }
            }
            Phase::Connecting => {
                state.progress(None);
            }
            Phase::Accepting => {
                state.progress(None);
                if state.phase != Phase::Accepting {
                    let (parent, accepted) =
                        (state.parent.upgrade(), state.phase == Phase::Connected);
                    drop(state);
                    self.hand_over(parent, accepted);
                }
            }
            Phase::Connected => state.keep_alive(),
            Phase::New | Phase::Failed | Phase::Closed => {}
        }
    }

    /// A listener has an event.
    fn request(self: &Arc<Self>, state: &mut State, event: Event, new: &mut Vec<Arc<Self>>) {
        if event.kind != abi::RDMA_CM_EVENT_CONNECT_REQUEST {
            return;
        }
        match Self::answer(self, &state.options, &event) {
            Ok(socket) => {
                new.push(Arc::new(socket));
                if let Some(listener) = &mut state.listener {
                    listener.underway += 1;
                }
            }
            Err(failure) => log::warn!("rsocket: a connection is refused: {}", failure.reason),
        }
    }

    /// Accepts a connection request.
    fn answer(parent: &Arc<Self>, options: &Options, event: &Event) -> Result<Self, Failure> {
        // SAFETY: an acknowledged event of that kind, whose identifier is given to us only.
        let mut id = unsafe { Id::adopt(event.id)? };
        let made = ConnectionData::parse(&event.private_data)
            .map_err(|why| Failure::new(libc::EPROTO, format!("the peer is no rsocket: {why:?}")))
            .and_then(|data| {
                let mut connection = Connection::new(&mut id, options)?;
                // Without a word yet: the peer is not ready for one.
                connection.stream.handle_connected(&data);
                Ok(connection)
            });
        let connection = match made {
            Ok(connection) => connection,
            Err(failure) => {
                id.reject();
                return Err(failure);
            }
        };
        let data = connection.data().to_bytes();
        let accepted = id.accept(&mut parameters(&data));
        let parent = Arc::downgrade(parent);
        let socket = Self::with(
            id,
            Some(connection),
            options.clone(),
            Phase::Accepting,
            parent,
        );
        accepted.map(|()| socket)
    }

    /// A connection for a listener stands, or not.
    fn hand_over(self: &Arc<Self>, parent: Option<Arc<Self>>, accepted: bool) {
        let Some(parent) = parent else {
            return self.close();
        };
        let mut state = parent.lock();
        let Some(listener) = &mut state.listener else {
            drop(state);
            return self.close();
        };
        listener.underway = listener.underway.saturating_sub(1);
        if accepted {
            listener.ready.push_back(Arc::clone(self));
            state.watchers.ring(None);
        }
    }
}
