//! A byte stream over an RC queue pair, without I/O: who may send how much where, and what has
//! arrived.
//!
//! Each end has a receive buffer in two halves and a small *table of targets* that the peer
//! writes. Data goes by RDMA WRITE with an immediate into the half that the table names; when a
//! program has read half a buffer, that half is published again by a write into the peer's table.
//! An immediate needs a receive at the other end, so a sender also needs *credits*: it counts its
//! data messages and hears up to which number it may go on.
//!
//! Calls go in through `handle_*` and the verbs of programs; what must be posted comes out of
//! [`Stream::poll_send`], [`Stream::poll_direct`], [`Stream::poll_io_map`] and
//! [`Stream::poll_control`]. Whoever calls these posts what they return, at once and in that order.
//! Not here: memory, queue pairs, waiting ([`socket`](super::socket)).
//!
//! Nothing a peer says is trusted: what does not fit its own promises ends the stream.

use std::collections::VecDeque;

use super::ring::{Ring, Span};
use super::wire::{ConnectionData, Control, IoMap, Message, Order, Segment, TARGETS};

#[cfg(test)]
mod tests;
mod work;

pub(crate) use work::{ControlWrite, Sizes, Work, Write};

/// Send queue entries that only control messages use, so that data never keeps them out.
pub(crate) const CONTROL_SENDS: u16 = 4;

/// Receives beyond the peer's credits. Control messages need no credit: a peer may have as many
/// under way as it has entries for them, and has sent more before our receives are posted again.
pub(crate) const CONTROL_RECEIVES: u16 = 8;

/// Bytes of one write: copying the next piece goes on while this one is on its way.
const PIECE_MAX: u32 = 64 * 1024;

/// A half of the receive buffer to be published: the caller says where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer {
    /// Address of the receive buffer.
    pub(crate) address: u64,
    /// Its remote key.
    pub(crate) key: u32,
}

/// The memory that the peer writes, as the stream sees it.
pub(crate) trait Tables {
    /// Entry `index` of the table of targets.
    fn target(&self, index: usize) -> [u8; Segment::LEN];
    /// Entry `index` of the table of I/O mappings.
    fn io_map(&self, index: usize) -> [u8; IoMap::LEN];
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// One of the ends closed it.
    Closed,
    /// The peer said what it may not say: more bytes than it had room for, a table entry that
    /// does not exist.
    Violation,
    /// The peer does not answer any more.
    Silence,
    /// A work request failed in another way.
    Failure,
}

/// One end of a stream.
#[derive(Debug)]
pub(crate) struct Stream {
    sizes: Sizes,
    peer: Option<Peer>,
    ending: Option<Ending>,

    send_ring: Ring,
    send_entries: u16,
    control_entries: u16,
    /// Number of the next data message, and the first that may not be sent yet.
    next_number: u16,
    number_limit: u16,
    targets: VecDeque<Segment>,
    /// The table entry in which the next target appears.
    next_target: usize,
    /// Nothing more is sent.
    write_closed: bool,
    control_due: Option<Control>,
    /// The stream ended because we said so, and the peer must still hear it.
    said_disconnect: bool,

    receive_ring: Ring,
    /// Bytes that the peer may still write, and bytes that were read and not published again.
    published: u32,
    unpublished: u32,
    /// The half that is published next.
    next_half: u32,
    /// Data messages that came, and how many of them had come when credits were given last.
    arrived: u16,
    arrived_when_granted: u16,
    /// Nothing more is read.
    read_closed: bool,
    /// The peer sends nothing more.
    peer_write_closed: bool,

    /// What the peer has mapped, by index.
    io_maps: Vec<IoMap>,
}

/// What the peer has told about itself.
#[derive(Clone, Copy, Debug)]
struct Peer {
    order: Order,
    table: Segment,
    /// The entry of its table that is written next.
    next_entry: u32,
    /// Its table of I/O mappings begins behind its targets.
    io_maps: u16,
}

impl Stream {
    /// A stream that has no peer yet.
    pub(crate) fn new(sizes: Sizes) -> Self {
        let half = sizes.receive_buffer / 2;
        Self {
            sizes,
            peer: None,
            ending: None,
            send_ring: Ring::new(sizes.send_buffer.max(1)),
            send_entries: sizes.send_queue.saturating_sub(CONTROL_SENDS).max(1),
            control_entries: CONTROL_SENDS,
            next_number: 0,
            number_limit: 0,
            targets: VecDeque::with_capacity(TARGETS),
            next_target: 1,
            write_closed: false,
            control_due: None,
            said_disconnect: false,
            receive_ring: Ring::new((half * 2).max(2)),
            published: half,
            unpublished: half,
            next_half: 1,
            arrived: 0,
            arrived_when_granted: 0,
            read_closed: false,
            peer_write_closed: false,
            io_maps: vec![IoMap::default(); usize::from(sizes.io_maps)],
        }
    }

    /// What the peer must know: where our table and our buffer are.
    pub(crate) fn connection_data(&self, table: Segment, buffer: Buffer) -> ConnectionData {
        ConnectionData {
            order: Order::OURS,
            credits: self.sizes.receive_queue,
            io_maps: self.sizes.io_maps,
            table: Segment {
                length: TARGETS as u32,
                ..table
            },
            buffer: Segment {
                address: buffer.address,
                key: buffer.key,
                length: self.half(),
            },
        }
    }

    /// The connection stands, and the peer has told this.
    pub(crate) fn handle_connected(&mut self, data: &ConnectionData) {
        self.number_limit = data.credits;
        self.targets.clear();
        self.targets.push_back(data.buffer);
        self.peer = Some(Peer {
            order: data.order,
            table: data.table,
            next_entry: 1,
            io_maps: data.io_maps,
        });
    }

    // --- programs ----------

    /// Whether the connection stands.
    pub(crate) fn is_connected(&self) -> bool {
        self.peer.is_some() && self.ending.is_none()
    }

    /// Why the stream ended, if it did.
    pub(crate) fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Whether a program may still send.
    pub(crate) fn may_write(&self) -> bool {
        self.is_connected() && !self.write_closed
    }

    /// Whether the program itself has said that it sends nothing more.
    pub(crate) fn is_write_closed(&self) -> bool {
        self.write_closed
    }

    /// Whether a call that sends would send something now.
    pub(crate) fn can_send(&self) -> bool {
        self.may_write() && self.has_entry_and_room() && self.has_credit_and_target()
    }

    /// Bytes that can be read now.
    pub(crate) fn readable(&self) -> u32 {
        if self.read_closed {
            0
        } else {
            self.receive_ring.used()
        }
    }

    /// Whether what can be read now is all there will ever be.
    pub(crate) fn is_at_end(&self) -> bool {
        self.read_closed || self.peer_write_closed || self.ending.is_some()
    }

    /// The next piece of `wanted` bytes that a program sends, if it may be sent now.
    pub(crate) fn poll_send(&mut self, wanted: usize) -> Option<Write> {
        if wanted == 0 || !self.can_send() {
            return None;
        }
        let target = *self.targets.front()?;
        let (length, span) = self.take_room(wanted, target.length.min(Message::DATA_MAX))?;
        self.next_number = self.next_number.wrapping_add(1);
        self.advance_target(length);
        Some(Write {
            length,
            span,
            remote: target.address,
            key: target.key,
            message: Some(Message::Data(length)),
            work: Work::Send(span.map_or(0, |span| span.len())),
        })
    }

    /// The I/O mapping of the peer that holds `offset`: how many bytes lie behind it.
    pub(crate) fn mapped_at(&self, offset: u64) -> Option<u64> {
        let (_, rest) = self.find_io_map(offset)?;
        Some(rest)
    }

    /// Whether [`Stream::poll_direct`] would have an entry and room.
    pub(crate) fn can_write_directly(&self) -> bool {
        self.may_write() && self.has_entry_and_room()
    }

    /// The next piece of `wanted` bytes that go to an offset of the peer's mappings, if it may be
    /// sent now.
    pub(crate) fn poll_direct(&mut self, wanted: usize, offset: u64) -> Option<Write> {
        if wanted == 0 || !self.can_write_directly() {
            return None;
        }
        let (map, rest) = self.find_io_map(offset)?;
        let limit = u32::try_from(rest).unwrap_or(u32::MAX);
        let (length, span) = self.take_room(wanted, limit)?;
        Some(Write {
            length,
            span,
            remote: map.segment.address.wrapping_add(offset - map.offset),
            key: map.segment.key,
            message: None,
            work: Work::Send(span.map_or(0, |span| span.len())),
        })
    }

    /// How many I/O mappings the peer lets us make.
    pub(crate) fn io_maps_of_peer(&self) -> u16 {
        self.peer.map_or(0, |peer| peer.io_maps)
    }

    /// The write that tells the peer of a mapping, if it may be sent now. `index` is below
    /// [`Stream::io_maps_of_peer`].
    pub(crate) fn poll_io_map(&mut self, index: u16, map: IoMap) -> Option<ControlWrite> {
        let peer = self.peer?;
        if index >= peer.io_maps || !self.can_send() {
            return None;
        }
        self.send_entries -= 1;
        // It needs a receive at the peer like data, and counts like data.
        self.next_number = self.next_number.wrapping_add(1);
        let targets = u64::from(peer.table.length) * Segment::LEN as u64;
        let place = targets + u64::from(index) * IoMap::LEN as u64;
        let message = Message::IoMapped(u32::from(index));
        let mut write = ControlWrite::new(Some(message)).with(
            &map.to_table(peer.order),
            peer.table.address.wrapping_add(place),
            peer.table.key,
        );
        write.work = Work::Send(0);
        Some(write)
    }

    /// The oldest bytes that can be read, `skip` left out, at most `limit`.
    pub(crate) fn peek(&self, skip: u32, limit: usize) -> Span {
        if self.read_closed {
            return Span::default();
        }
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.receive_ring.peek(skip, limit)
    }

    /// A program has read the oldest `length` bytes, at most what [`Stream::readable`] said.
    pub(crate) fn consume(&mut self, length: u32) {
        self.receive_ring.pop(length);
        self.unpublished += length;
    }

    /// Nothing more is sent; the peer hears of it through [`Stream::poll_control`].
    pub(crate) fn close_write(&mut self) {
        if !self.write_closed {
            self.write_closed = true;
            let whole = self.read_closed || self.peer_write_closed;
            self.due(if whole {
                Control::Disconnect
            } else {
                Control::Shutdown
            });
        }
    }

    /// Nothing more is read. The peer is not told before nothing is sent either: TCP's does not
    /// know either.
    pub(crate) fn close_read(&mut self) {
        if !self.read_closed {
            self.read_closed = true;
            if self.write_closed {
                self.due(Control::Disconnect);
            }
        }
    }

    /// Nothing more is sent or read.
    pub(crate) fn close(&mut self) {
        let told = self.write_closed && (self.read_closed || self.peer_write_closed);
        (self.write_closed, self.read_closed) = (true, true);
        if !told {
            self.due(Control::Disconnect);
        }
    }

    /// Whether nothing needs to be waited for before the queue pair may go: all that was posted has
    /// completed and nothing waits to be posted, or the peer is not interested any more.
    pub(crate) fn is_flushed(&self) -> bool {
        let whole = self.sizes.send_queue.saturating_sub(CONTROL_SENDS).max(1);
        let complete = self.send_entries == whole && self.control_entries == CONTROL_SENDS;
        match self.ending {
            None => self.peer.is_none() || (self.control_due.is_none() && complete),
            Some(_) => !self.said_disconnect || complete,
        }
    }

    // --- what is due without a program's doing ----------

    /// The next control message, if one is due and may be sent.
    pub(crate) fn poll_control(&mut self, buffer: Buffer) -> Option<ControlWrite> {
        if !self.is_connected() || self.control_entries == 0 {
            return None;
        }
        if let Some(control) = self.control_due.take() {
            self.control_entries -= 1;
            if control == Control::Disconnect {
                self.ending = Some(Ending::Closed);
                self.said_disconnect = true;
            }
            return Some(ControlWrite::new(Some(Message::Control(control))));
        }
        if self.peer_write_closed {
            return None;
        }
        self.poll_grant(buffer)
    }

    /// A sign of life: a write of nothing, which the peer's device acknowledges and its program
    /// does not see. Fails where the peer is gone.
    pub(crate) fn poll_keep_alive(&mut self) -> Option<ControlWrite> {
        if !self.is_connected() || self.control_entries == 0 {
            return None;
        }
        self.control_entries -= 1;
        Some(ControlWrite::new(None))
    }

    fn poll_grant(&mut self, buffer: Buffer) -> Option<ControlWrite> {
        let half = self.half();
        let has_half = self.unpublished >= half;
        let spent = self.arrived.wrapping_sub(self.arrived_when_granted);
        if !has_half && spent < self.sizes.receive_queue.div_ceil(2) {
            return None;
        }
        let peer = self.peer.as_mut()?;
        self.control_entries -= 1;
        self.arrived_when_granted = self.arrived;
        let limit = self.arrived.wrapping_add(self.sizes.receive_queue);
        let write = ControlWrite::new(Some(Message::Grant(limit)));
        if !has_half {
            return Some(write);
        }
        let segment = Segment {
            address: buffer.address + u64::from(self.next_half * half),
            key: buffer.key,
            length: half,
        };
        let place = u64::from(peer.next_entry) * Segment::LEN as u64;
        peer.next_entry = (peer.next_entry + 1) % peer.table.length;
        self.next_half ^= 1;
        self.unpublished -= half;
        self.published += half;
        let (table, order) = (peer.table, peer.order);
        Some(write.with(
            &segment.to_table(order),
            table.address.wrapping_add(place),
            table.key,
        ))
    }

    // --- completions ----------

    /// An immediate has arrived, and the `written` bytes that came with it are in place.
    pub(crate) fn handle_immediate(&mut self, immediate: u32, written: u32, tables: &impl Tables) {
        match Message::parse(immediate) {
            Message::Data(length) => self.handle_data(length),
            Message::Grant(limit) => {
                self.number_limit = limit;
                // Without bytes it brings credits only. The next entry must not even be looked at
                // then: the peer may be writing it at this very moment.
                if written > 0 {
                    self.take_target(tables);
                }
            }
            Message::IoMapped(index) => {
                self.arrived = self.arrived.wrapping_add(1);
                match self.io_maps.get_mut(index as usize) {
                    Some(map) => *map = IoMap::from_table(tables.io_map(index as usize)),
                    None => self.end(Ending::Violation),
                }
            }
            Message::Control(Control::Disconnect) => {
                self.peer_write_closed = true;
                self.end(Ending::Closed);
            }
            Message::Control(Control::Shutdown) => {
                self.peer_write_closed = true;
                if self.control_due.is_some() {
                    self.control_due = Some(Control::Disconnect);
                } else if self.write_closed {
                    self.end(Ending::Closed);
                }
            }
            Message::Control(Control::KeepAlive) | Message::Unknown(_) => {}
        }
    }

    /// A work request that is not a receive has completed.
    pub(crate) fn handle_sent(&mut self, work: Work) {
        match work {
            Work::Receive => {}
            Work::Control => self.control_entries += 1,
            Work::Send(bytes) => {
                self.send_entries += 1;
                self.send_ring.pop(bytes);
            }
        }
    }

    /// A work request has failed, or the connection manager says that the peer is gone.
    pub(crate) fn handle_end(&mut self, ending: Ending) {
        self.end(ending);
    }

    // --- inside ----------

    fn half(&self) -> u32 {
        (self.sizes.receive_buffer / 2).max(1)
    }

    fn due(&mut self, control: Control) {
        if self.is_connected() {
            self.control_due = Some(control);
        }
    }

    fn end(&mut self, ending: Ending) {
        if self.ending.is_none() {
            self.ending = Some(ending);
            self.control_due = None;
        } else if ending != Ending::Closed {
            // Whatever we still wanted to say cannot be said.
            self.said_disconnect = false;
        }
    }

    fn has_entry_and_room(&self) -> bool {
        self.send_entries > 0 && self.send_ring.free() > 0
    }

    fn has_credit_and_target(&self) -> bool {
        self.next_number != self.number_limit && !self.targets.is_empty()
    }

    /// An entry of the send queue and room for at most `wanted` and `limit` bytes.
    fn take_room(&mut self, wanted: usize, limit: u32) -> Option<(u32, Option<Span>)> {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(limit);
        let length = wanted.min(PIECE_MAX);
        let inline = length <= self.sizes.inline;
        let length = if inline {
            length
        } else {
            length.min(self.send_ring.free())
        };
        if length == 0 {
            return None;
        }
        self.send_entries -= 1;
        let span = (!inline).then(|| self.send_ring.push(length));
        Some((length, span))
    }

    fn advance_target(&mut self, length: u32) {
        if let Some(target) = self.targets.front_mut() {
            target.address = target.address.wrapping_add(u64::from(length));
            target.length -= length;
            if target.length == 0 {
                self.targets.pop_front();
            }
        }
    }

    fn take_target(&mut self, tables: &impl Tables) {
        let segment = Segment::from_table(tables.target(self.next_target));
        if segment.length == 0 || self.targets.len() >= TARGETS {
            return self.end(Ending::Violation);
        }
        self.next_target = (self.next_target + 1) % TARGETS;
        self.targets.push_back(segment);
    }

    fn handle_data(&mut self, length: u32) {
        if length > self.published || self.peer_write_closed {
            return self.end(Ending::Violation);
        }
        self.arrived = self.arrived.wrapping_add(1);
        self.published -= length;
        self.receive_ring.push(length);
        if self.read_closed {
            // The peer cannot know that nobody reads: its bytes are dropped, and it goes on.
            self.consume(length);
        }
    }

    fn find_io_map(&self, offset: u64) -> Option<(IoMap, u64)> {
        self.io_maps.iter().find_map(|map| {
            let inside = offset.checked_sub(map.offset)?;
            let rest = u64::from(map.segment.length).checked_sub(inside)?;
            (rest > 0).then_some((*map, rest))
        })
    }
}
