//! What is behind the lock of a stream socket, and how events of the connection manager and of the
//! device change it.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feroce_verbs_abi as abi;

use super::super::connection::Connection;
use super::super::gather::Buffers;
use super::super::stream::Ending;
use super::super::sys::{self, Bell};
use super::super::verbs::Event;
use super::super::wire::ConnectionData;
use super::{Link, Listener, Phase, RESOLVE_LIMIT_MS, RETRIES, State};
use crate::guard::Failure;

/// What a program's read came to.
pub(super) enum Read {
    /// Bytes.
    Some,
    /// There are none yet.
    Nothing,
    /// There will be none.
    End,
}

impl State {
    pub(super) fn link(&mut self) -> Result<&mut Link, Failure> {
        self.link
            .as_mut()
            .ok_or_else(|| Failure::new(libc::EBADF, "the socket is closed"))
    }

    /// The connection, if there is or was one.
    pub(super) fn connected(&mut self) -> Option<&mut Connection> {
        if self.phase != Phase::Connected {
            return None;
        }
        self.link.as_mut()?.connection.as_mut()
    }

    pub(super) fn not_connected(&self) -> Failure {
        match self.phase {
            Phase::Failed => self.take_error(),
            Phase::Closed => Failure::new(libc::EBADF, "the socket is closed"),
            Phase::Connecting => Failure::new(libc::EAGAIN, "the connection is on its way"),
            _ => Failure::new(libc::ENOTCONN, "the socket is not connected"),
        }
    }

    /// The error of a failed attempt; further calls get the same.
    pub(super) fn take_error(&self) -> Failure {
        let errno = if self.error == 0 {
            libc::ECONNREFUSED
        } else {
            self.error
        };
        Failure::of(errno, "the connection did not come about")
    }

    // --- progress -------------------------------------------------------------------------------

    /// Looks at what has happened. Whether anything has; others that wait are told then.
    pub(super) fn progress(&mut self, own: Option<&Arc<Bell>>) -> bool {
        let mut any = false;
        if matches!(self.phase, Phase::Connecting | Phase::Accepting) {
            any |= self.events_of_manager();
        }
        if let Some(connection) = self.connected() {
            any |= connection.progress();
        }
        if any {
            self.watchers.ring(own);
        }
        any
    }

    fn events_of_manager(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.link.as_mut().and_then(|link| link.id.event()) {
            any = true;
            if let Err(failure) = self.handle(&event) {
                log::debug!("rsocket: {}", failure.reason);
                self.fail(failure.errno);
            }
        }
        any
    }

    fn handle(&mut self, event: &Event) -> Result<(), Failure> {
        match (self.phase, event.kind) {
            (Phase::Connecting, abi::RDMA_CM_EVENT_ADDR_RESOLVED) => self.address_resolved(),
            (Phase::Connecting, abi::RDMA_CM_EVENT_ROUTE_RESOLVED) => self.route_resolved(),
            (Phase::Connecting, abi::RDMA_CM_EVENT_ESTABLISHED) => {
                let data = ConnectionData::parse(&event.private_data).map_err(|why| {
                    Failure::new(libc::EPROTO, format!("the peer is no rsocket: {why:?}"))
                })?;
                self.phase = Phase::Connected;
                if let Some(connection) = self.connected() {
                    connection.connected(&data);
                }
                Ok(())
            }
            (Phase::Accepting, abi::RDMA_CM_EVENT_ESTABLISHED) => {
                self.phase = Phase::Connected;
                if let Some(connection) = self.connected() {
                    connection.control();
                }
                Ok(())
            }
            (Phase::Connecting | Phase::Accepting, kind) => match failure(kind, event.status) {
                Some(failure) => Err(failure),
                None => Ok(()),
            },
            (
                Phase::Connected,
                abi::RDMA_CM_EVENT_DISCONNECTED | abi::RDMA_CM_EVENT_DEVICE_REMOVAL,
            ) => {
                if let Some(connection) = self.connected() {
                    // What came before the end is read before the end.
                    connection.progress();
                    connection.stream.handle_end(Ending::Closed);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn address_resolved(&mut self) -> Result<(), Failure> {
        let route = std::mem::take(&mut self.route);
        let id = &mut self.link()?.id;
        if !route.is_empty() {
            id.set_route(&route)?;
        }
        id.resolve_route(RESOLVE_LIMIT_MS)
    }

    fn route_resolved(&mut self) -> Result<(), Failure> {
        let options = self.options.clone();
        let link = self.link()?;
        let connection = link
            .connection
            .insert(Connection::new(&mut link.id, &options)?);
        let data = connection.data().to_bytes();
        link.id.connect(&mut parameters(&data))
    }

    fn fail(&mut self, errno: c_int) {
        if self.phase == Phase::Connected {
            if let Some(connection) = self.connected() {
                connection.stream.handle_end(Ending::Failure);
            }
        } else {
            self.phase = Phase::Failed;
            self.error = errno;
        }
    }

    // --- waiting --------------------------------------------------------------------------------

    /// Adds what a thread that waits must poll, and has the device tell of completions.
    pub(super) fn prepare_wait(&self, fds: &mut Vec<libc::pollfd>) {
        let Some(link) = &self.link else {
            return;
        };
        if matches!(
            self.phase,
            Phase::Connecting | Phase::Accepting | Phase::Connected
        ) {
            fds.push(sys::pollfd(link.id.fd(), libc::POLLIN));
        }
        if self.phase == Phase::Connected
            && let Some(connection) = &link.connection
        {
            connection.arm();
            fds.push(sys::pollfd(connection.fd(), libc::POLLIN));
        }
    }

    /// A thread has waited.
    pub(super) fn finish_wait(&mut self, own: Option<&Arc<Bell>>) {
        if let Some(connection) = self.connected() {
            connection.clear_events();
            if self.events_of_manager() {
                self.watchers.ring(own);
            }
        }
    }

    pub(super) fn events(&mut self, wanted: i16) -> i16 {
        let (mut events, read, write) = (0, libc::POLLIN, libc::POLLOUT);
        match self.phase {
            Phase::New => events |= write | libc::POLLHUP,
            Phase::Listening => {
                let ready = |listener: &Listener| !listener.ready.is_empty();
                if self.listener.as_ref().is_some_and(ready) {
                    events |= read;
                }
            }
            Phase::Connecting | Phase::Accepting => {}
            Phase::Failed => events |= read | write | libc::POLLERR | libc::POLLHUP,
            Phase::Closed => return libc::POLLNVAL,
            Phase::Connected => {
                if let Some(connection) = self.connected() {
                    let stream = &connection.stream;
                    if stream.readable() > 0 || stream.is_at_end() {
                        events |= read;
                    }
                    if stream.can_send() || !stream.may_write() {
                        events |= write;
                    }
                    match stream.ending() {
                        // As with TCP, a peer that has closed is no reason for POLLHUP: there may
                        // be more to read, and then reading says that it is the end.
                        None => {}
                        Some(Ending::Closed) if !stream.is_write_closed() => {}
                        Some(Ending::Closed) => events |= libc::POLLHUP,
                        Some(_) => events |= libc::POLLHUP | libc::POLLERR,
                    }
                }
            }
        }
        let plain = (wanted & (libc::POLLIN | libc::POLLRDNORM) != 0 && events & read != 0)
            .then_some(wanted & (libc::POLLIN | libc::POLLRDNORM));
        let out = (wanted & (libc::POLLOUT | libc::POLLWRNORM) != 0 && events & write != 0)
            .then_some(wanted & (libc::POLLOUT | libc::POLLWRNORM));
        events & (libc::POLLHUP | libc::POLLERR) | plain.unwrap_or(0) | out.unwrap_or(0)
    }

    // --- data -----------------------------------------------------------------------------------

    pub(super) fn send(&mut self, buffers: &mut Buffers<'_>) -> Result<(), Failure> {
        if !self.tell_io_maps()? {
            return Ok(());
        }
        let Some(connection) = self.connected() else {
            return self.without_connection();
        };
        if !connection.stream.may_write() {
            return Err(broken(connection.stream.ending()));
        }
        connection.send(buffers);
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        buffers: &mut Buffers<'_>,
        is_peek: bool,
    ) -> Result<Read, Failure> {
        let Some(connection) = self.connected() else {
            return self.without_connection().map(|()| Read::Nothing);
        };
        if connection.stream.readable() > 0 || buffers.rest() == 0 {
            connection.read(buffers, is_peek);
            return Ok(Read::Some);
        }
        match connection.stream.ending() {
            None | Some(Ending::Closed) if connection.stream.is_at_end() => Ok(Read::End),
            None => Ok(Read::Nothing),
            ending => Err(broken(ending)),
        }
    }

    /// While the connection is on its way, calls for data wait; otherwise they fail.
    fn without_connection(&self) -> Result<(), Failure> {
        match self.phase {
            Phase::Connecting => Ok(()),
            _ => Err(self.not_connected()),
        }
    }

    pub(super) fn keep_alive(&mut self) {
        let keep_alive = self.options.keep_alive;
        let Some(due) = self.keep_alive_at else {
            return;
        };
        let now = Instant::now();
        if now < due {
            return;
        }
        self.progress(None);
        let seconds = u64::try_from(keep_alive.idle_s.max(1)).unwrap_or(1);
        let next = now + Duration::from_secs(seconds);
        let Some(connection) = self.connected() else {
            return;
        };
        connection.keep_alive();
        let is_over = connection.stream.ending().is_some();
        self.keep_alive_at = (keep_alive.is_on && !is_over).then_some(next);
    }
}

/// What a connection request or its answer carries.
pub(super) fn parameters(data: &[u8; ConnectionData::LEN]) -> abi::rdma_conn_param {
    abi::rdma_conn_param {
        private_data: data.as_ptr().cast(),
        private_data_len: ConnectionData::LEN as u8,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..Default::default()
    }
}

/// The end of an attempt to connect, if the event is one.
fn failure(kind: abi::rdma_cm_event_type, status: c_int) -> Option<Failure> {
    let given = (-4095..0).contains(&status).then_some(-status);
    let (usual, what) = match kind {
        abi::RDMA_CM_EVENT_ADDR_ERROR => (libc::EADDRNOTAVAIL, "no device leads to the address"),
        abi::RDMA_CM_EVENT_ROUTE_ERROR => (libc::EHOSTUNREACH, "no route"),
        abi::RDMA_CM_EVENT_CONNECT_ERROR => (libc::ECONNREFUSED, "the connection failed"),
        abi::RDMA_CM_EVENT_UNREACHABLE => (libc::ETIMEDOUT, "the peer does not answer"),
        abi::RDMA_CM_EVENT_REJECTED => {
            return Some(Failure::new(
                libc::ECONNREFUSED,
                format!("the peer refuses, reason {status}"),
            ));
        }
        abi::RDMA_CM_EVENT_DISCONNECTED => (libc::ECONNRESET, "the peer went away"),
        abi::RDMA_CM_EVENT_DEVICE_REMOVAL => (libc::ENODEV, "the device went away"),
        _ => return None,
    };
    Some(Failure::new(given.unwrap_or(usual), what))
}

/// Why nothing can be sent or read any more.
pub(super) fn broken(ending: Option<Ending>) -> Failure {
    match ending {
        None => Failure::new(libc::EPIPE, "this direction was shut down"),
        Some(Ending::Closed) => Failure::new(libc::ECONNRESET, "the connection was closed"),
        Some(Ending::Silence) => Failure::new(libc::ETIMEDOUT, "the peer does not answer"),
        Some(Ending::Violation) => {
            Failure::new(libc::EPROTO, "the peer broke the rules of rsockets")
        }
        Some(Ending::Failure) => Failure::new(libc::ECONNRESET, "a request failed"),
    }
}
