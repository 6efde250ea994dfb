//! Datagram sockets: a UDP socket that has the address and finds peers, and a UD queue pair for
//! each address of ours that is used.
//!
//! A datagram that does not fit a packet of the device, or whose receiver is not known yet, goes
//! over the UDP socket. Not here: which way one takes ([`peers`](super::peers)), headers
//! ([`wire`](super::wire)), queue pairs ([`queue`]).

use std::collections::VecDeque;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::gather::Buffers;
use super::options::{Options, defaults};
use super::peers::{Peers, Way};
use super::socket::Value;
use super::sys::{self, Bell, RawAddress};
use super::table::lock;
use super::wait::{self, Watchers};
use super::wire::{DatagramHeader, UdpHeader, UdpOperation};
use crate::guard::Failure;

mod queue;

use queue::{Arrived, Queue};

/// Datagrams that are kept for the program. More stay in the UDP socket and in the queue pairs,
/// whose bounds are bytes and receives.
const INBOX_MAX: usize = 256;

/// Addresses of ours that one socket uses at once.
const QUEUES_MAX: usize = 64;

/// The longest payload of UDP.
const UDP_MAX: usize = 65507;

/// How long a close waits for the device to send what it was given.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// A datagram socket.
pub(crate) struct DatagramSocket {
    is_nonblocking: AtomicBool,
    state: Mutex<State>,
}

impl std::fmt::Debug for DatagramSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatagramSocket").finish_non_exhaustive()
    }
}

struct State {
    options: Options,
    udp: OwnedFd,
    is_ipv6: bool,
    /// Whether the UDP socket has its address.
    is_bound: bool,
    connected: Option<SocketAddr>,
    peers: Peers,
    queues: Vec<Queue>,
    inbox: VecDeque<Datagram>,
    watchers: Watchers,
    /// Room for one message over UDP.
    scratch: Vec<u8>,
}

/// A datagram that waits for the program.
struct Datagram {
    from: SocketAddr,
    bytes: Place,
}

/// Where its bytes are.
enum Place {
    Copied(Vec<u8>),
    /// In the receive buffer of that queue.
    Received(usize, Arrived),
}

impl DatagramSocket {
    /// A new socket and its descriptor.
    pub(crate) fn new(domain: c_int) -> Result<(RawFd, Arc<Self>), Failure> {
        let udp = sys::udp_socket(domain)?;
        let fd = udp.as_raw_fd();
        let state = State {
            options: Options::new(),
            udp,
            is_ipv6: domain == libc::AF_INET6,
            is_bound: false,
            connected: None,
            peers: Peers::default(),
            queues: Vec::new(),
            inbox: VecDeque::new(),
            watchers: Watchers::default(),
            scratch: vec![0; UDP_MAX + 1],
        };
        let socket = Self {
            is_nonblocking: AtomicBool::new(false),
            state: Mutex::new(state),
        };
        Ok((fd, Arc::new(socket)))
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
        sys::bind(state.udp.as_raw_fd(), &address)?;
        state.is_bound = true;
        Ok(())
    }

    /// `rconnect`: the peer of calls that name none, and the only one that is heard.
    pub(crate) fn connect(&self, to: RawAddress) -> Result<(), Failure> {
        let to = to.address().map(canonical);
        let to = to.ok_or_else(|| Failure::invalid("an address without a family"))?;
        let mut state = self.lock();
        state.have_address()?;
        state.source(to)?;
        state.connected = Some(to);
        state.inbox.clear();
        Ok(())
    }

    /// `rsendto`.
    pub(crate) fn send_to(
        &self,
        buffers: &mut Buffers<'_>,
        flags: c_int,
        to: Option<RawAddress>,
    ) -> Result<usize, Failure> {
        let named = to.and_then(|to| to.address()).map(canonical);
        let length = buffers.rest();
        if length > UDP_MAX - UdpHeader::LEN_MAX {
            return Err(Failure::new(
                libc::EMSGSIZE,
                format!("a datagram of {length} bytes is too long"),
            ));
        }
        let may_wait = !self.is_nonblocking() && flags & libc::MSG_DONTWAIT == 0;
        self.wait(may_wait, None, libc::POLLOUT, |state| {
            let Some(to) = named.or(state.connected) else {
                return Some(Err(Failure::new(
                    libc::EDESTADDRREQ,
                    "the datagram has no destination",
                )));
            };
            match state.send(buffers, to) {
                Err(failure) if failure.errno == libc::EAGAIN => None,
                other => Some(other.map(|()| length)),
            }
        })?
    }

    /// `rrecvfrom`: how much of a datagram there was room for, and who sent it.
    pub(crate) fn receive_from(
        &self,
        buffers: &mut Buffers<'_>,
        flags: c_int,
    ) -> Result<(usize, RawAddress), Failure> {
        let may_wait = !self.is_nonblocking() && flags & libc::MSG_DONTWAIT == 0;
        let is_peek = flags & libc::MSG_PEEK != 0;
        self.wait(may_wait, None, libc::POLLIN, |state| {
            state.receive(buffers, is_peek)
        })
    }

    /// `rclose`.
    pub(crate) fn close(&self) {
        let until = Instant::now() + CLOSE_LIMIT;
        let sent = self.wait(true, Some(until), 0, |state| {
            state.queues.iter().all(Queue::has_sent_all).then_some(())
        });
        if sent.is_err() {
            log::debug!("rsocket: the device did not send all datagrams before the close");
        }
        let mut state = self.lock();
        state.inbox.clear();
        let queues = std::mem::take(&mut state.queues);
        // The descriptor is free for others from here on.
        if let Ok(none) = sys::udp_socket(libc::AF_INET) {
            let udp = std::mem::replace(&mut state.udp, none);
            drop(state);
            drop(udp);
        }
        drop(queues);
    }

    /// `rgetsockname`.
    pub(crate) fn local_address(&self) -> Result<RawAddress, Failure> {
        sys::local_address(self.lock().udp.as_raw_fd())
    }

    /// `rgetpeername`.
    pub(crate) fn peer_address(&self) -> Result<RawAddress, Failure> {
        let state = self.lock();
        let peer = state.connected.map(|peer| state.outside(peer));
        peer.map(RawAddress::new)
            .ok_or_else(|| Failure::new(libc::ENOTCONN, "the socket is not connected"))
    }

    /// `rsetsockopt`.
    pub(crate) fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: Value<'_>,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        let number = value.int()?;
        let fd = state.udp.as_raw_fd();
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => state.options.set_receive_buffer(number),
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => state.options.set_send_buffer(number),
            (libc::SOL_SOCKET, libc::SO_REUSEADDR)
            | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)
            | (libc::IPPROTO_IP, libc::IP_TOS)
            | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {}
            _ => return state.options.set_rdma(level, name, number),
        }
        sys::set_option(fd, level, name, number)
    }

    /// `rgetsockopt`.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Result<Vec<u8>, Failure> {
        let state = self.lock();
        let number = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_DGRAM,
            (libc::SOL_SOCKET, libc::SO_ERROR) => 0,
            _ => state.options.number(level, name)?,
        };
        Ok(number.to_ne_bytes().to_vec())
    }

    // --- waiting --------------------------------------------------------------------------------

    fn wait<T>(
        &self,
        may_wait: bool,
        until: Option<Instant>,
        udp_events: i16,
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
            if state.progress(None)
                && let Some(result) = ready(&mut state)
            {
                return Ok(result);
            }
            drop(state);
            std::hint::spin_loop();
            state = self.lock();
        }
        let bell = wait::bell()?;
        loop {
            let mut fds = vec![sys::pollfd(bell.fd(), libc::POLLIN)];
            state.prepare_wait(udp_events, &mut fds);
            state.progress(Some(&bell));
            if let Some(result) = ready(&mut state) {
                return Ok(result);
            }
            let now = Instant::now();
            if until.is_some_and(|until| until <= now) {
                return Err(Failure::new(libc::ETIMEDOUT, "nothing happened in time"));
            }
            state.watchers.add(&bell);
            drop(state);
            let next = now + defaults().wake_up;
            let next = until.map_or(next, |until| until.min(next));
            let polled = sys::poll(&mut fds, Some(next));
            bell.hush();
            state = self.lock();
            state.watchers.remove(&bell);
            state.queues.iter().for_each(Queue::clear_events);
            match polled {
                Err(failure) if failure.errno != libc::EINTR => return Err(failure),
                _ => {}
            }
        }
    }

    /// What has happened, of what a poll asks for.
    pub(crate) fn events(&self, wanted: i16) -> i16 {
        let mut state = self.lock();
        state.progress(None);
        let mut events = 0;
        if !state.inbox.is_empty() {
            events |= libc::POLLIN | libc::POLLRDNORM;
        }
        if state.queues.iter().all(Queue::can_send) {
            events |= libc::POLLOUT | libc::POLLWRNORM;
        }
        events & wanted
    }

    /// A thread begins to wait: adds what it must poll.
    pub(crate) fn begin_wait(&self, bell: &Arc<Bell>, fds: &mut Vec<libc::pollfd>) {
        let mut state = self.lock();
        state.watchers.add(bell);
        state.prepare_wait(libc::POLLIN, fds);
    }

    /// It has waited.
    pub(crate) fn end_wait(&self, bell: &Arc<Bell>) {
        let mut state = self.lock();
        state.watchers.remove(bell);
        state.queues.iter().for_each(Queue::clear_events);
    }
}

impl State {
    /// Looks at what has arrived. Whether anything has; others that wait are told then.
    fn progress(&mut self, own: Option<&Arc<Bell>>) -> bool {
        let now = Instant::now();
        let mut any = false;
        for index in 0..self.queues.len() {
            let mut arrived = Vec::new();
            any |= self.queues[index].progress(INBOX_MAX, &mut arrived);
            for arrived in arrived {
                self.handle_direct(now, index, arrived);
            }
        }
        while self.inbox.len() < INBOX_MAX {
            let mut scratch = std::mem::take(&mut self.scratch);
            let received = sys::receive_from(self.udp.as_raw_fd(), &mut scratch);
            if let Ok(Some((count, from))) = received {
                self.handle_udp(now, canonical(from), &scratch[..count]);
            }
            self.scratch = scratch;
            // An error is an answer that no peer listens; datagrams have no place to tell it.
            if !matches!(received, Ok(Some(_))) {
                break;
            }
            any = true;
        }
        if any {
            self.watchers.ring(own);
        }
        any
    }

    fn handle_direct(&mut self, now: Instant, index: usize, arrived: Arrived) {
        let from = self.queues[index].with_scope(arrived.from);
        self.peers.handle_direct(now, from, arrived.queue_pair);
        if self.is_heard(from) {
            let bytes = Place::Received(index, arrived);
            self.inbox.push_back(Datagram { from, bytes });
        } else {
            self.queues[index].give_back(&arrived);
        }
    }

    fn handle_udp(&mut self, now: Instant, from: SocketAddr, bytes: &[u8]) {
        let Some((header, payload)) = UdpHeader::parse(bytes) else {
            return;
        };
        self.peers.handle_udp(now, from, header.queue_pair);
        if header.operation != UdpOperation::Data {
            return;
        }
        if self.is_heard(from) {
            let bytes = Place::Copied(payload.to_vec());
            self.inbox.push_back(Datagram { from, bytes });
        }
        if let Err(failure) = self.answer(header.target, from) {
            log::debug!("rsocket: {from} is not told of us: {}", failure.reason);
        }
    }

    fn is_heard(&self, from: SocketAddr) -> bool {
        self.connected.is_none_or(|peer| peer == from)
    }

    /// Tells a peer the queue pair of the address that it reached us under.
    fn answer(&mut self, ours: IpAddr, to: SocketAddr) -> Result<(), Failure> {
        let queue = self.queue(ours.to_canonical(), to)?;
        let header = UdpHeader {
            operation: UdpOperation::Control,
            queue_pair: self.queues[queue].number(),
            target: to.ip(),
        };
        let mut bytes = Vec::with_capacity(UdpHeader::LEN_MAX);
        header.write(&mut bytes);
        sys::send_to(self.udp.as_raw_fd(), &bytes, self.outside(to))
    }

    fn send(&mut self, buffers: &mut Buffers<'_>, to: SocketAddr) -> Result<(), Failure> {
        self.have_address()?;
        let source = self.source(to)?;
        let queue = self.queue(source, to)?;
        let port = self.port()?;
        let source = SocketAddr::new(source, port);
        let length = buffers.rest() + DatagramHeader::length(source.ip());
        let fits = length <= self.queues[queue].payload_max();
        if fits && !self.queues[queue].can_send() {
            return Err(Failure::new(libc::EAGAIN, "the send queue is full"));
        }
        match self.peers.way(Instant::now(), to) {
            Way::Direct(queue_pair) if fits => {
                self.queues[queue].send(source, buffers, to.ip(), queue_pair)
            }
            _ => self.send_over_udp(queue, buffers, to),
        }
    }

    fn send_over_udp(
        &self,
        queue: usize,
        buffers: &mut Buffers<'_>,
        to: SocketAddr,
    ) -> Result<(), Failure> {
        let header = UdpHeader {
            operation: UdpOperation::Data,
            queue_pair: self.queues[queue].number(),
            target: to.ip(),
        };
        let mut bytes = Vec::with_capacity(UdpHeader::LEN_MAX + buffers.rest());
        header.write(&mut bytes);
        let start = bytes.len();
        bytes.resize(start + buffers.rest(), 0);
        let mut unsent = buffers.clone();
        unsent.take_into(&mut bytes[start..]);
        sys::send_to(self.udp.as_raw_fd(), &bytes, self.outside(to))?;
        *buffers = unsent;
        Ok(())
    }

    fn receive(&mut self, buffers: &mut Buffers<'_>, is_peek: bool) -> Option<(usize, RawAddress)> {
        let datagram = self.inbox.front()?;
        let from = RawAddress::new(self.outside(datagram.from));
        let count = match &datagram.bytes {
            Place::Copied(bytes) => buffers.put(bytes),
            Place::Received(queue, arrived) => self.queues[*queue].read(arrived, buffers),
        };
        if !is_peek
            && let Some(Datagram {
                bytes: Place::Received(queue, arrived),
                ..
            }) = self.inbox.pop_front()
        {
            self.queues[queue].give_back(&arrived);
        }
        Some((count, from))
    }

    /// Has the UDP socket have an address: a header names it.
    fn have_address(&mut self) -> Result<(), Failure> {
        if !self.is_bound {
            let any = if self.is_ipv6 {
                IpAddr::from(Ipv6Addr::UNSPECIFIED)
            } else {
                IpAddr::from([0; 4])
            };
            let address = RawAddress::new(SocketAddr::new(any, 0));
            sys::bind(self.udp.as_raw_fd(), &address)?;
            self.is_bound = true;
        }
        Ok(())
    }

    fn port(&self) -> Result<u16, Failure> {
        let local = sys::local_address(self.udp.as_raw_fd())?.address();
        Ok(local.map_or(0, |local| local.port()))
    }

    /// The address of ours from which datagrams to `to` are sent.
    fn source(&mut self, to: SocketAddr) -> Result<IpAddr, Failure> {
        let bound = sys::local_address(self.udp.as_raw_fd())?.address();
        match bound.map(|bound| bound.ip().to_canonical()) {
            Some(bound) if !bound.is_unspecified() => Ok(bound),
            _ => self.peers.source(to.ip(), || sys::source_of(to)),
        }
    }

    /// The queue pair of an address of ours; `peer` says on which link, if there are several.
    fn queue(&mut self, ours: IpAddr, peer: SocketAddr) -> Result<usize, Failure> {
        let known = self.queues.iter().position(|queue| queue.is_of(ours));
        if let Some(known) = known {
            return Ok(known);
        }
        if self.queues.len() >= QUEUES_MAX {
            return Err(Failure::new(
                libc::ENOBUFS,
                format!("a datagram socket uses {QUEUES_MAX} addresses at most"),
            ));
        }
        let scope = match peer {
            SocketAddr::V6(peer) => peer.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        self.queues.push(Queue::new(ours, scope, &self.options)?);
        Ok(self.queues.len() - 1)
    }

    /// An address as this socket's family has it.
    fn outside(&self, address: SocketAddr) -> SocketAddr {
        match address {
            SocketAddr::V4(v4) if self.is_ipv6 => {
                SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
            }
            other => other,
        }
    }

    fn prepare_wait(&self, udp_events: i16, fds: &mut Vec<libc::pollfd>) {
        if self.inbox.len() < INBOX_MAX || udp_events != libc::POLLIN {
            fds.push(sys::pollfd(self.udp.as_raw_fd(), libc::POLLIN));
        }
        for queue in &self.queues {
            queue.arm();
            fds.push(sys::pollfd(queue.fd(), libc::POLLIN));
        }
    }
}

/// One form for each address: IPv4 as IPv4, no flow information, a scope only where it is needed.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip = address.ip().to_canonical();
    match (address, ip) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        _ => SocketAddr::new(ip, address.port()),
    }
}
