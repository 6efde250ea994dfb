//! Receiving: cheap while spinning, complete in the long run, bounded in every call.
//!
//! The socket that last had something is tried first, with one system call, so a ping-pong costs
//! one call per message. All others are looked at together, by one `epoll_wait` that does not
//! wait, but not every time: see [`EMPTY_ROUNDS`] and [`BUSY_BYTES`] for how late that makes them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;

use super::impair::Held;
use super::mark::Control;
use super::peers::{Known, Peers};
use super::sockets::{Role, Socket};
use super::strays::{Stray, add_stray};
use super::{Net, bundle};
use crate::counters::Counters;
use crate::slot::message::{self, Answer, Incoming, Query, Run};
use crate::slot::{self, SlotMessage};
use crate::sys::{self, Message, ReceiveBuffers};

/// After this many fruitless rounds on the usual socket all are looked at. An empty receive and a
/// fruitless poll both cost about a fifth of a microsecond: spinning gets a tenth dearer, and
/// a datagram on another socket waits 2 µs at most.
const EMPTY_ROUNDS: u32 = 8;

/// After this many fruitful rounds on the usual socket all are looked at ...
const BUSY_ROUNDS: u32 = 16;

/// ... or after this many bytes: 1 MiB takes some 150 µs to receive and place, which bounds how
/// long a busy socket can keep the others waiting.
const BUSY_BYTES: usize = 1 << 20;

/// Messages received by one system call. More save calls only when messages are small.
const BATCH: usize = 16;

/// Bytes after which a call takes no further batch.
const CALL_BYTES: usize = 256 << 10;

/// A batch may grow while the last one had no more than this; 16 full messages are 1 MiB.
const GROWTH_BYTES: usize = 64 << 10;

/// Datagrams that the messages of a batch hold at most, if they are like those before: a program
/// should get to see them, and to post new receives, before there are many more.
const BATCH_DATAGRAMS: usize = 64;

/// Longest datagram, or batch joined by the kernel.
pub(super) const MESSAGE_BYTES: usize = 65_535;

/// Batches in a row that may hold nothing but marks and answers before a call ends without a
/// datagram.
const CONTROL_BATCHES: usize = 4;

/// Messages of a slot taken by one system call.
const SLOT_BATCH: usize = 2;

/// Slot messages kept for the caller.
const MESSAGES_MAX: usize = 1_024;

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Its payload.
    pub bytes: &'a [u8],
    /// Where it says it comes from.
    pub source: SocketAddr,
    /// Where it was sent: one of our addresses, or a multicast group.
    pub destination: IpAddr,
    /// The port the sender meant: the well-known one, also when a same-host peer took the short
    /// way to our private port.
    pub destination_port: u16,
    /// DSCP and ECN bits as they arrived.
    pub traffic_class: u8,
    /// Time to live or hop limit as it arrived.
    pub hop_limit: u8,
    /// Its source is an address of this host.
    pub local: bool,
    /// Another process received it and handed it on.
    pub forwarded: bool,
    /// Its place among the datagrams that arrived joined by the kernel: its IPv4 identification,
    /// if its sender's kernel cut them from one batch. 0 in a bundle; `None` if it came alone.
    pub index: Option<u16>,
}

/// What the receiver says about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was dealt with, whatever came of it. `()` says the same.
    Done,
    /// It belongs to the owner of this slot: hand it on. Datagrams that were handed on already,
    /// and those to a multicast group, go no further.
    Forward(u16),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// What receiving needs between calls.
pub(super) struct Reception {
    pub(super) buffers: ReceiveBuffers,
    slot_buffers: ReceiveBuffers,
    /// Token of the socket that last had something.
    usual: usize,
    empty_rounds: u32,
    busy_rounds: u32,
    busy_bytes: usize,
    /// Messages to ask for at once.
    batch: usize,
    pub(super) strays: Vec<Stray>,
    /// Marks and answers of the last batch, and where they came from.
    pub(super) controls: Vec<(SocketAddr, Control)>,
}

impl Reception {
    pub(super) fn new() -> Self {
        Self {
            buffers: ReceiveBuffers::new(BATCH, MESSAGE_BYTES + 1, sys::CONTROL_UDP_BYTES),
            slot_buffers: ReceiveBuffers::new(
                SLOT_BATCH,
                message::BYTES_MAX,
                sys::CONTROL_UNIX_BYTES,
            ),
            usual: usize::MAX,
            empty_rounds: 0,
            busy_rounds: 0,
            busy_bytes: 0,
            batch: 1,
            strays: Vec::new(),
            controls: Vec::with_capacity(BATCH),
        }
    }

    /// Makes a socket the usual one.
    pub(super) const fn prefer(&mut self, token: usize) {
        self.usual = token;
    }

    /// Notes a round on the usual socket; returns whether the others are due.
    const fn note_round(&mut self, bytes: usize) -> bool {
        if bytes == 0 {
            self.empty_rounds += 1;
        } else {
            self.empty_rounds = 0;
            self.busy_rounds += 1;
            self.busy_bytes += bytes;
        }
        self.empty_rounds >= EMPTY_ROUNDS
            || self.busy_rounds >= BUSY_ROUNDS
            || self.busy_bytes >= BUSY_BYTES
    }

    const fn note_look(&mut self) {
        self.empty_rounds = 0;
        self.busy_rounds = 0;
        self.busy_bytes = 0;
    }

    /// Adapts the batch size to what the last one yielded.
    fn adapt(&mut self, received: usize, total: Yield) {
        let may_grow = received == self.batch && total.bytes <= GROWTH_BYTES;
        self.batch = if total.datagrams > BATCH_DATAGRAMS {
            received * BATCH_DATAGRAMS / total.datagrams
        } else if may_grow && total.datagrams <= BATCH_DATAGRAMS / 2 {
            received * 2
        } else {
            received
        }
        .clamp(1, BATCH);
    }
}

/// Datagrams and bytes one step yielded.
#[derive(Clone, Copy, Default)]
pub(super) struct Yield {
    datagrams: usize,
    bytes: usize,
}

impl Net {
    /// Receives what is there, at most about 1 MiB, and hands each datagram to `sink`; never
    /// waits. Returns how many there were.
    ///
    /// 0 means that nothing is waiting only after eight calls in a row: see the module's head.
    /// After waiting for [`Self::poll_fd`] use [`Self::receive_ready`].
    ///
    /// # Errors
    /// When the sockets cannot be watched any more, which should never happen. What a peer can
    /// cause is no error.
    pub fn receive<V: Into<Verdict>>(
        &mut self,
        mut sink: impl FnMut(Datagram<'_>) -> V,
    ) -> io::Result<usize> {
        let usual = self.receive_from(self.reception.usual, &mut sink);
        let mut datagrams = usual.datagrams;
        if self.reception.note_round(usual.bytes) {
            datagrams += self.receive_ready(sink)?;
        } else {
            datagrams += self.release(&mut sink);
        }
        Ok(datagrams)
    }

    /// As [`Self::receive`], but looks at every socket: 0 means that nothing is waiting.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    pub fn receive_ready<V: Into<Verdict>>(
        &mut self,
        mut sink: impl FnMut(Datagram<'_>) -> V,
    ) -> io::Result<usize> {
        self.reception.note_look();
        self.counters.poll_calls += 1;
        let ready = self.epoll.ready()?;
        let mut total = Yield::default();
        let mut most = 0;
        for token in ready.tokens() {
            // What is left out now is reported again, ahead of what was taken.
            if total.bytes >= CALL_BYTES {
                break;
            }
            let got = self.receive_from(token, &mut sink);
            total.datagrams += got.datagrams;
            total.bytes += got.bytes;
            let socket = self.sockets.get(token);
            let is_udp =
                socket.is_some_and(|socket| !matches!(socket.role, Role::Slot(_) | Role::Timer));
            if is_udp && got.bytes > most {
                most = got.bytes;
                self.reception.usual = token;
            }
        }
        total.datagrams += self.release(&mut sink);
        Ok(total.datagrams)
    }

    /// Messages other processes sent to our slots, oldest first.
    pub fn take_messages(&mut self) -> impl Iterator<Item = SlotMessage> {
        self.messages.drain(..)
    }

    pub(super) fn receive_from<V: Into<Verdict>>(
        &mut self,
        token: usize,
        sink: &mut impl FnMut(Datagram<'_>) -> V,
    ) -> Yield {
        match self.sockets.get(token).map(|socket| socket.role) {
            None => Yield::default(),
            Some(Role::Slot(position)) => self.receive_slot(token, position, sink),
            Some(Role::Timer) => {
                if let Some(impaired) = &mut self.impaired {
                    impaired.acknowledge(self.sockets[token].fd.as_fd());
                }
                Yield::default()
            }
            Some(role) => self.receive_udp(token, role, sink),
        }
    }

    fn receive_udp<V: Into<Verdict>>(
        &mut self,
        token: usize,
        role: Role,
        sink: &mut impl FnMut(Datagram<'_>) -> V,
    ) -> Yield {
        for _ in 0..CONTROL_BATCHES {
            let got = self.receive_batch(token, role, sink);
            if self.reception.controls.is_empty() {
                return got;
            }
            self.take_controls(token);
            // Behind what only concerns us there may be something for the caller.
            if got.bytes > 0 {
                return got;
            }
        }
        Yield::default()
    }

    fn receive_batch<V: Into<Verdict>>(
        &mut self,
        token: usize,
        role: Role,
        sink: &mut impl FnMut(Datagram<'_>) -> V,
    ) -> Yield {
        let Self {
            reception,
            sockets,
            peers,
            counters,
            impaired,
            setup,
            ..
        } = self;
        let socket = &mut sockets[token];
        // Every member of a group gets its own copy.
        let can_stray = role != Role::Group;
        counters.receive_calls += 1;
        // WouldBlock, or what somebody's ICMP message left behind: neither is an end.
        let fd = socket.fd.as_fd();
        let received = reception.buffers.receive(fd, reception.batch).unwrap_or(0);
        let mut total = Yield::default();
        for index in 0..received {
            let whole = examine(&reception.buffers, index, socket, peers, counters);
            let Some((mut datagram, segment_len)) = whole else {
                continue;
            };
            if role == Role::Private
                && let Some(control) = Control::parse(datagram.bytes)
            {
                reception.controls.push((datagram.source, control));
                continue;
            }
            datagram.destination_port = setup.port;
            let whole = datagram.bytes;
            total.bytes += whole.len();
            let mut deliver = |range: Range<usize>, place: Option<u16>| {
                datagram.index = place;
                datagram.bytes = &whole[range.clone()];
                if let Some(impaired) = impaired {
                    impaired.push(&datagram, can_stray);
                    return;
                }
                total.datagrams += 1;
                counters.bytes_in += datagram.bytes.len() as u64;
                if let Verdict::Forward(slot) = sink(datagram).into()
                    && can_stray
                {
                    add_stray(&mut reception.strays, slot, index, range);
                }
            };
            let bundle = bundle::parse(whole).filter(|_| role == Role::Private);
            if let Some(mut datagrams) = bundle {
                counters.bundles_in += 1;
                datagrams.by_ref().for_each(|range| deliver(range, Some(0)));
                counters.malformed += u64::from(!datagrams.is_complete());
            } else {
                let alone = whole.len() <= segment_len;
                for (start, place) in (0..whole.len()).step_by(segment_len).zip(0..) {
                    let end = whole.len().min(start + segment_len);
                    deliver(start..end, (!alone).then_some(place));
                }
            }
        }
        self.end_batch(token, role, received, total);
        total
    }

    /// Takes stock of a batch, and hands on what was not ours.
    fn end_batch(&mut self, token: usize, role: Role, received: usize, total: Yield) {
        let socket = &mut self.sockets[token];
        self.counters.datagrams_in += total.datagrams as u64;
        if received > 0 && matches!(role, Role::Flow(_)) {
            socket.used_ms = sys::monotonic_coarse_ms();
        }
        let destination = socket.address;
        self.reception.adapt(received, total);
        if let Some(own) = self.slots.first()
            && !self.reception.strays.is_empty()
        {
            let port = self.setup.port;
            self.reception
                .hand_on_strays(own, destination, port, &mut self.counters);
        }
    }

    fn receive_slot<V: Into<Verdict>>(
        &mut self,
        token: usize,
        position: usize,
        sink: &mut impl FnMut(Datagram<'_>) -> V,
    ) -> Yield {
        self.counters.receive_calls += 1;
        let fd = self.sockets[token].fd.as_fd();
        // Taken out, because what is in it may concern every part of the device.
        let mut buffers = std::mem::take(&mut self.reception.slot_buffers);
        let received = buffers.receive(fd, SLOT_BATCH).unwrap_or(0);
        let mut total = Yield::default();
        let user = sys::effective_user();
        for index in 0..received {
            let Some(message) = buffers.message(index) else {
                self.counters.malformed += 1;
                continue;
            };
            if message.credentials.is_none_or(|from| from.user != user) {
                self.counters.foreign_users += 1;
                continue;
            }
            let name = buffers.abstract_source(index);
            let from = name.as_deref().and_then(slot::number_of);
            let got = self.take_slot_message(position, from, &message, sink);
            match got {
                Some(got) => {
                    total.datagrams += got.datagrams;
                    total.bytes += got.bytes;
                }
                None => self.counters.malformed += 1,
            }
        }
        self.reception.slot_buffers = buffers;
        total
    }

    /// Deals with one message of another slot; `None` if it made no sense.
    fn take_slot_message<V: Into<Verdict>>(
        &mut self,
        position: usize,
        from: Option<u16>,
        message: &Message<'_>,
        sink: &mut impl FnMut(Datagram<'_>) -> V,
    ) -> Option<Yield> {
        let from = from?;
        match Incoming::parse(message.bytes)? {
            Incoming::Packets(packets) => {
                return Some(packets.fold(Yield::default(), |total, run| {
                    let datagrams = self.take_forwarded(&run, sink);
                    Yield {
                        datagrams: total.datagrams + datagrams,
                        bytes: total.bytes + run.bytes.len(),
                    }
                }));
            }
            Incoming::Query(query) => self.answer(position, from, query),
            Incoming::Answer(Answer {
                query,
                private_port,
                buffer,
            }) => {
                let known = (private_port != 0).then_some(Known {
                    port: private_port,
                    buffer,
                });
                if query.port == self.setup.port {
                    let now_ms = sys::monotonic_coarse_ms();
                    self.peers.answered(query.address, from, known, now_ms);
                }
            }
            Incoming::Caller { kind, payload } => {
                if self.messages.len() >= MESSAGES_MAX {
                    self.counters.messages_dropped += 1;
                } else {
                    self.messages.push_back(SlotMessage {
                        from,
                        to: self.slots[position].number(),
                        kind,
                        payload: payload.to_vec(),
                    });
                }
            }
        }
        Some(Yield::default())
    }

    fn take_forwarded<V: Into<Verdict>>(
        &mut self,
        run: &Run<'_>,
        sink: &mut impl FnMut(Datagram<'_>) -> V,
    ) -> usize {
        let local = self.peers.is_host(run.source.ip());
        let mut datagrams = 0;
        for bytes in run.bytes.chunks(run.segment_len) {
            datagrams += 1;
            self.counters.datagrams_in += 1;
            self.counters.forwarded_in += 1;
            self.counters.bytes_in += bytes.len() as u64;
            // A verdict to hand it on once more is not followed: that could go on for ever.
            let _: Verdict = sink(Datagram {
                bytes,
                source: run.source,
                destination: run.destination,
                destination_port: run.destination_port,
                traffic_class: run.tclass,
                hop_limit: run.hop_limit,
                local,
                forwarded: true,
                index: None,
            })
            .into();
        }
        if !local && datagrams > 0 {
            self.adopt_flow(run.destination, run.source);
        }
        datagrams
    }

    fn answer(&self, position: usize, to: u16, query: Query) {
        let local = self.local(query.address);
        let served = local.filter(|_| query.port == self.setup.port);
        let answer = Answer {
            query,
            private_port: served.map_or(0, |local| local.private_port),
            buffer: served.map_or(0, |local| local.buffer),
        };
        if let Err(error) = self.slots[position].answer(to, &answer) {
            // It will ask again.
            log::debug!("the question of slot {to} stays unanswered: {error}");
        }
    }

    /// Hands out impaired datagrams whose time has come.
    fn release<V: Into<Verdict>>(&mut self, sink: &mut impl FnMut(Datagram<'_>) -> V) -> usize {
        let mut datagrams = 0;
        let Some(mut impaired) = self.impaired.take() else {
            return 0;
        };
        while let Some(Held {
            bytes,
            like,
            can_stray,
        }) = impaired.pop()
        {
            let datagram = Datagram {
                bytes: &bytes,
                ..like
            };
            datagrams += 1;
            self.counters.datagrams_in += 1;
            self.counters.bytes_in += bytes.len() as u64;
            match sink(datagram).into() {
                Verdict::Forward(slot) if can_stray => self.forward(slot, &[datagram]),
                Verdict::Forward(_) | Verdict::Done => {}
            }
        }
        impaired.arm();
        self.impaired = Some(impaired);
        datagrams
    }
}

/// What one received message says, with all its bytes, and the length of the datagrams in it;
/// `None` if it is to be ignored.
fn examine<'a>(
    buffers: &'a ReceiveBuffers,
    index: usize,
    socket: &mut Socket,
    peers: &Peers,
    counters: &mut Counters,
) -> Option<(Datagram<'a>, usize)> {
    let (Some(source), Some(message)) = (buffers.source(index), buffers.message(index)) else {
        counters.malformed += 1;
        return None;
    };
    if let Some(overflow) = message.overflow {
        counters.overflowed += u64::from(overflow.wrapping_sub(socket.overflow));
        socket.overflow = overflow;
    }
    let segment_len = message.segment_len.unwrap_or(MESSAGE_BYTES);
    let local = peers.is_host(source.ip());
    if socket.role == Role::Private && !local {
        counters.strangers += message.bytes.len().div_ceil(segment_len) as u64;
        return None;
    }
    counters.batches_in += u64::from(message.bytes.len() > segment_len);
    let datagram = Datagram {
        bytes: message.bytes,
        source,
        destination: socket.address,
        destination_port: 0,
        traffic_class: message.tclass,
        hop_limit: message.hop_limit,
        local,
        forwarded: false,
        index: None,
    };
    Some((datagram, segment_len))
}
