//! One endpoint: all connections and streams of a process on one device.
//!
//! It is not thread-safe and holds no lock: everything runs under the owner's.

mod verbs;

use super::config::EndpointConfig;
use super::connection::{Connection, State};
use super::counters::EndpointCounters;
use super::event::{ConnectError, Event, PathStatus};
use super::handshake::{Offer, connection_id, nonce};
use super::path::{Path, PathState};
use super::port::{Port, Route};
use super::share::Shares;
use super::stream::{Context, Stream, StreamTarget};
use super::streams::Streams;
use crate::nic::Progress;
use crate::qp::Step;
use crate::srq::Srqs;
use crate::{
    CompletionStatus, CreateError, DestroyError, Host, Instant, ModifyError, Payload, PostError,
    QpInit, QpState, RecvRequest, SendRequest, SrqId, SrqInit,
};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::IpAddr;
use feroce_wire::Qpn;
use feroce_wire::metaroce::{CloseCode, ConnectionId, Headers};
use slab::Slab;

/// Names a connection of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub(super) u32);

/// Packets of one connection before the next has its turn.
const QUANTUM: usize = 16;

/// Answers to packets without a connection that wait to be sent; more are dropped.
//= MR-SEC-004
pub(super) const REPLIES_MAX: usize = 64;

/// Events that wait to be polled; older ones are dropped.
const EVENTS_MAX: usize = 1024;

/// An endpoint.
///
/// Every verb and every `handle_*` may make [`poll_transmit`](Self::poll_transmit) have something
/// to send and change [`poll_timeout`](Self::poll_timeout); call both after them.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) config: EndpointConfig,
    pub(super) counters: EndpointCounters,
    pub(super) connections: Slab<Connection>,
    pub(super) by_id: BTreeMap<ConnectionId, u32>,
    /// By address and process of the peer.
    pub(super) by_peer: BTreeMap<(IpAddr, u32), u32>,
    pub(super) streams: Streams,
    pub(super) srqs: Srqs,
    pub(super) shares: Shares,
    ready: VecDeque<u32>,
    timers: BTreeSet<(Instant, u32)>,
    pub(super) replies: VecDeque<(Route, Headers)>,
    events: VecDeque<Event>,
    /// Ids and nonces given so far.
    names: u64,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(config: EndpointConfig) -> Self {
        let config = EndpointConfig {
            paths: config.paths.max(1),
            segment: config.segment.max(256),
            message_window: config.message_window.max(1),
            ..config
        };
        let planes = config.planes.len().max(1) as u64;
        Self {
            shares: Shares::new(config.line_rate.saturating_mul(planes)),
            config,
            counters: EndpointCounters::default(),
            connections: Slab::new(),
            by_id: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            streams: Streams::default(),
            srqs: Srqs::default(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            replies: VecDeque::new(),
            events: VecDeque::new(),
            names: 0,
        }
    }

    /// What it was made with.
    pub const fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// What it counts.
    pub const fn counters(&self) -> &EndpointCounters {
        &self.counters
    }

    /// Connections that exist.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// Streams that exist.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// The oldest event that has not been taken.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn raise(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) const fn next_name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Opens a connection to the process that owns stream `target` at `peer`; `origin` is a stream
    /// of ours. One that exists already is returned.
    ///
    /// # Errors
    /// [`ConnectError`] if there are as many connections as there may be.
    pub fn connect(
        &mut self,
        now: Instant,
        peer: IpAddr,
        target: Qpn,
        origin: Qpn,
    ) -> Result<Handle, ConnectError> {
        let key = self.peer_key(peer, target.value());
        if let Some(&index) = self.by_peer.get(&key) {
            return Ok(Handle(index));
        }
        if self.connections.len() >= self.config.max_connections {
            return Err(ConnectError::Full(self.config.max_connections));
        }
        let count = self.next_name();
        let offer = Offer {
            nonce: nonce(self.config.secret, count),
            cookie: 0,
            target: target.value(),
            origin: origin.value(),
            sent_at: now,
            at: now,
            tries: 0,
            retries: 0,
            since: now,
        };
        let index = self.add_connection(now, peer, State::Offering(offer));
        if let Some(connection) = self.connections.get_mut(index as usize) {
            connection.peer_stream = target.value();
        }
        self.by_peer.insert(key, index);
        self.schedule(index);
        Ok(Handle(index))
    }

    pub(super) fn add_connection(&mut self, now: Instant, peer: IpAddr, state: State) -> u32 {
        let count = self.next_name();
        let local = connection_id(self.config.secret, count);
        let entry = self.connections.vacant_entry();
        let index = u32::try_from(entry.key()).unwrap_or(u32::MAX);
        let connection = Connection::new(&self.config, index, local, peer, state, now);
        entry.insert(connection);
        self.by_id.insert(local, index);
        index
    }

    pub(super) const fn peer_key(&self, peer: IpAddr, stream: u32) -> (IpAddr, u32) {
        (peer, stream >> self.config.process_shift)
    }

    /// Ends a connection; its streams fail.
    pub fn close<H: Host>(&mut self, now: Instant, handle: Handle, host: &mut H) {
        self.fail_streams(now, handle.0, CompletionStatus::WorkRequestFlushed, host);
        let Some(connection) = self.connections.get_mut(handle.0 as usize) else {
            return;
        };
        connection.state = if connection.is_open() {
            State::Closing {
                code: CloseCode::Done,
                tries: 0,
                at: now,
            }
        } else {
            State::Dead
        };
        self.unlink_peer(handle.0);
        self.settle(handle.0);
    }

    fn unlink_peer(&mut self, index: u32) {
        self.by_peer.retain(|_, entry| *entry != index);
        self.shares.forget(index);
    }

    /// Gives a connection a turn to send, and sets its timer.
    pub(super) fn schedule(&mut self, index: u32) {
        if let Some(connection) = self.connections.get_mut(index as usize)
            && !connection.scheduled
        {
            connection.scheduled = true;
            self.ready.push_back(index);
        }
        self.settle(index);
    }

    /// Sets the timer of a connection, or forgets it if it is dead.
    pub(super) fn settle(&mut self, index: u32) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        let next = connection.next_timeout(&self.config);
        if next != connection.timer {
            if let Some(at) = connection.timer {
                self.timers.remove(&(at, index));
            }
            if let Some(at) = next {
                self.timers.insert((at, index));
            }
            connection.timer = next;
        }
        if matches!(connection.state, State::Dead) {
            let connection = self.connections.remove(index as usize);
            self.by_id.remove(&connection.local);
            self.unlink_peer(index);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; perhaps earlier than anything is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Whether some connection may have something to send.
    pub fn wants_transmit(&self) -> bool {
        !self.ready.is_empty() || !self.replies.is_empty()
    }

    /// Sends what may be sent now, at most `budget` packets, through [`Port::send`].
    #[must_use]
    pub fn poll_transmit<H: Port>(
        &mut self,
        now: Instant,
        budget: usize,
        host: &mut H,
    ) -> Progress {
        let mut progress = Progress::default();
        while progress.sent < budget
            && let Some((route, headers)) = self.replies.front()
        {
            if host.send(route, headers, Payload::Bytes(&[])).is_err() {
                progress.busy = true;
                break;
            }
            self.counters.tx_packets += 1;
            self.replies.pop_front();
            progress.sent += 1;
        }
        // Those that the host had no room for come back at the end.
        let mut refused = VecDeque::new();
        while progress.sent < budget {
            let Some(index) = self.ready.pop_front() else {
                break;
            };
            let left = (budget - progress.sent).min(QUANTUM);
            let (sent, end) = self.take_turn(now, index, left, host);
            progress.sent += sent;
            match end {
                Step::Busy => {
                    progress.busy = true;
                    refused.push_back(index);
                }
                Step::Idle => {
                    if let Some(connection) = self.connections.get_mut(index as usize) {
                        connection.scheduled = false;
                    }
                }
                Step::Sent | Step::Again => self.ready.push_back(index),
            }
            self.settle(index);
        }
        self.ready.append(&mut refused);
        progress.more = !self.ready.is_empty() && !progress.busy;
        progress
    }

    fn take_turn<H: Port>(
        &mut self,
        now: Instant,
        index: u32,
        quantum: usize,
        host: &mut H,
    ) -> (usize, Step) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return (0, Step::Idle);
        };
        let mut cx = Context {
            now,
            config: &self.config,
            counters: &mut self.counters,
            srqs: &mut self.srqs,
            host,
        };
        connection.busy = 0;
        let mut sent = 0;
        while sent < quantum {
            match connection.transmit(&mut cx, &mut self.streams, &mut self.shares) {
                Step::Sent => sent += 1,
                Step::Again => {}
                end @ (Step::Busy | Step::Idle) => return (sent, end),
            }
        }
        (sent, Step::Sent)
    }

    /// Lets every timer fire that is due.
    pub fn handle_timeout<H: Host>(&mut self, now: Instant, host: &mut H) {
        while let Some(&(at, index)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, index));
            if let Some(connection) = self.connections.get_mut(index as usize) {
                connection.timer = None;
            }
            self.fire(now, index, host);
            self.schedule_after(now, index);
        }
    }

    /// As [`schedule`](Self::schedule), and the timer lies in the future, whatever is due.
    fn schedule_after(&mut self, now: Instant, index: u32) {
        self.schedule(index);
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        if let Some(at) = connection.timer
            && at <= now
        {
            // What is due is done by the next `poll_transmit`, which sets the timer again.
            self.timers.remove(&(at, index));
            connection.timer = None;
        }
    }

    fn fire<H: Host>(&mut self, now: Instant, index: u32, host: &mut H) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        match connection.state {
            State::Offering(offer) => {
                if now.since(offer.since) >= self.config.dead_after {
                    self.fail_connection(now, index, host);
                }
                return;
            }
            State::Closing { tries, .. } => {
                if tries >= super::handshake::CLOSE_TRIES {
                    connection.state = State::Dead;
                }
                return;
            }
            State::Dead => return,
            State::Open { .. } => {}
        }
        let mut cx = Context {
            now,
            config: &self.config,
            counters: &mut self.counters,
            srqs: &mut self.srqs,
            host,
        };
        connection.handle_timeout(&mut cx, &mut self.streams);
        //= MR-CON-014
        let waits = connection.is_waiting() || !connection.may_send();
        if waits && now.since(connection.heard) >= self.config.dead_after {
            self.fail_connection(now, index, host);
        }
    }

    /// The peer is gone, or does not want us.
    pub(super) fn fail_connection<H: Host>(&mut self, now: Instant, index: u32, host: &mut H) {
        self.counters.connections_failed += 1;
        self.raise(Event::Failed(Handle(index)));
        self.fail_streams(now, index, CompletionStatus::RetryExceeded, host);
        if let Some(connection) = self.connections.get_mut(index as usize) {
            connection.state = State::Dead;
        }
        self.settle(index);
    }

    pub(super) fn fail_streams<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        status: CompletionStatus,
        host: &mut H,
    ) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        for reference in core::mem::take(&mut connection.streams) {
            let Some(stream) = self.streams.get_mut(reference) else {
                continue;
            };
            let mut cx = Context {
                now,
                config: &self.config,
                counters: &mut self.counters,
                srqs: &mut self.srqs,
                host,
            };
            stream.connection = None;
            stream.enter_error(&mut cx, status);
        }
    }

    /// What is known of the paths of a connection.
    pub fn paths(&self, handle: Handle) -> impl Iterator<Item = PathStatus> {
        let connection = self.connections.get(handle.0 as usize);
        let paths = connection.map_or(&[][..], |connection| &connection.paths);
        paths.iter().map(status_of)
    }

    /// Share of inbound bandwidth that the peer grants, bytes per second; 0: none known.
    pub fn granted_share(&self, handle: Handle) -> u64 {
        let connection = self.connections.get(handle.0 as usize);
        connection.map_or(0, Connection::share)
    }

    /// Bytes of the congestion window of a connection, and those in flight.
    pub fn window(&self, handle: Handle) -> Option<(u64, u64)> {
        use super::congestion::Window;
        let connection = self.connections.get(handle.0 as usize)?;
        Some((connection.window.bytes(), connection.in_flight))
    }

    /// Whether a connection is open in both directions.
    pub fn is_open(&self, handle: Handle) -> bool {
        let connection = self.connections.get(handle.0 as usize);
        connection.is_some_and(Connection::may_send)
    }

    /// The connection a stream is on.
    pub fn connection_of(&self, qpn: Qpn) -> Option<Handle> {
        let stream: &Stream = self.streams.by_number(qpn.value())?;
        stream.connection.map(Handle)
    }
}

fn status_of(path: &Path) -> PathStatus {
    use super::congestion::Window;
    PathStatus {
        path: path.id,
        plane: path.plane,
        epoch: path.epoch.0,
        source_port: path.port,
        suspect: path.state == PathState::Suspect,
        rtt: path.rtt.smoothed,
        rtt_min: path.rtt.least,
        window: path.window.bytes(),
        in_flight: path.in_flight(),
        marked_per_1024: path.window.marked_share(),
        counters: path.counters,
    }
}
