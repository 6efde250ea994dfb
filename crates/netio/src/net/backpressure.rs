//! What [`room`](super::room) counts and [`mark`](super::mark) says, put into practice: no socket
//! of a process of this host overflows because of what we send.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use feroce_mem::Fragment;

use super::bundle::{HEAD, PREFIX_BYTES};
use super::mark::{Control, Mark};
use super::room::{Room, Silence};
use super::send::{BATCH_BYTES_MAX, Destination, Peer};
use super::{Local, Net};
use crate::sys::{self, Outgoing};

/// What control datagrams leave with; they never leave the host.
const HOP_LIMIT: u8 = 64;

impl Net {
    /// How many datagrams of `segment_len` bytes one [`Self::send`] to this destination may take
    /// now, at most [`Self::segments_max`]. 0 says "not now":
    /// - a peer on this host has not told its private port yet (see [`Self::peer_ready`]), or
    /// - the socket of a process of this host might overflow. All senders together fill no more
    ///   than half of it.
    ///
    /// What changes the answer arrives like any datagram, so another try is due after a receive,
    /// and after some milliseconds, because a receiver may be silent: one that died is noticed
    /// then, and after a second without a sign of life there is room again.
    pub fn room(&mut self, to: &Destination, segment_len: usize) -> usize {
        let most = self.segments_max(to, segment_len);
        let peer = self.peer(to);
        let Some(room) = self.room_of(to, peer) else {
            return if self.peer_ready(to) { most } else { 0 };
        };
        let now_ms = sys::monotonic_coarse_ms();
        let count = room.datagrams(segment_len, most, now_ms);
        if count == 0 {
            self.press(to, peer, now_ms);
        }
        count
    }

    /// How long a bundle to this destination may get now, in bytes, if it begins with a datagram
    /// of `length` bytes; 0 says "not now", as for [`Self::room`]. `None`: it takes no bundles,
    /// because it is not a process of this host, or has not told its private port, or the way
    /// is too narrow.
    pub fn bundle_room(&mut self, to: &Destination, length: usize) -> Option<usize> {
        let peer = self.peer(to);
        if peer == Peer::Elsewhere || self.unbundled.contains(&to.destination) {
            return None;
        }
        let room = self.room_of(to, peer)?;
        let length = HEAD.len() + PREFIX_BYTES + length;
        let now_ms = sys::monotonic_coarse_ms();
        let bytes = room.bundle(length, BATCH_BYTES_MAX, now_ms);
        if bytes == 0 {
            self.press(to, peer, now_ms);
        }
        Some(bytes)
    }

    /// Something that costs this much has left.
    pub(super) fn charge(&mut self, to: &Destination, peer: Peer, cost: u64) {
        let Some(room) = self.room_of(to, peer) else {
            return;
        };
        let now_ms = sys::monotonic_coarse_ms();
        room.charge(cost);
        if room.wants_mark() {
            self.mark(to, peer, now_ms);
        }
    }

    /// The room in the peer's private socket, if that is where datagrams go.
    fn room_of(&mut self, to: &Destination, peer: Peer) -> Option<&mut Room> {
        match peer {
            Peer::Elsewhere => None,
            Peer::Own => {
                let mut local = self.local.iter_mut();
                let local = local.find(|local| local.ip == to.destination)?;
                Some(&mut local.room)
            }
            Peer::Slot(slot) => self.peers.room(to.destination, slot),
        }
    }

    /// There is no room: does what makes some.
    fn press(&mut self, to: &Destination, peer: Peer, now_ms: u64) {
        let Some(room) = self.room_of(to, peer) else {
            return;
        };
        let is_new = room.refuse();
        let silence = room.silence(now_ms);
        self.counters.room_waits += u64::from(is_new);
        if silence != Silence::Wait
            && let Peer::Slot(slot) = peer
            && self.peers.suspect(to.destination, slot, now_ms)
        {
            self.ask(to.destination, slot);
        }
        // The question may have shown that the peer is gone.
        let Some(room) = self.room_of(to, peer) else {
            return;
        };
        if silence == Silence::GiveUp {
            room.start_over();
            self.counters.room_resets += 1;
        } else if room.needs_mark(now_ms) {
            self.mark(to, peer, now_ms);
        }
    }

    /// Puts a mark behind everything sent to the peer. One that cannot be sent is tried again.
    fn mark(&mut self, to: &Destination, peer: Peer, now_ms: u64) {
        let port = self.destination_port(to, peer);
        let Some(slot) = to.slot else {
            return;
        };
        // The look at the port may have shown that the peer is gone.
        let Some(position) = self.room_of(to, peer).map(|room| room.position()) else {
            return;
        };
        let Some(from) = self.local(to.source) else {
            return;
        };
        let address = self.setup.socket_address(to.destination, port, 0);
        if !self.send_control(from, address, &Control::Mark(Mark { slot, position })) {
            return;
        }
        self.counters.marks_out += 1;
        if let Some(room) = self.room_of(to, peer) {
            room.mark(now_ms);
        }
    }

    fn send_control(&self, from: &Local, to: SocketAddr, control: &Control) -> bool {
        let fd = self.sockets[from.private].fd.as_fd();
        let outgoing = Outgoing {
            to,
            tclass: 0,
            hop_limit: HOP_LIMIT,
        };
        let bytes = control.encode();
        sys::send(fd, &outgoing, &[Fragment::from(&bytes[..])], None).is_ok()
    }

    /// Deals with the marks and answers that came to a private socket.
    pub(super) fn take_controls(&mut self, token: usize) {
        let now_ms = sys::monotonic_coarse_ms();
        let mut controls = std::mem::take(&mut self.reception.controls);
        for (source, control) in controls.drain(..) {
            match control {
                Control::Mark(mark) => self.take_mark(token, source, mark, now_ms),
                Control::Answer(mark, allowance) => {
                    let room = self.peers.room_behind(source, mark.slot);
                    let answered =
                        room.is_some_and(|room| room.answered(mark.position, allowance, now_ms));
                    self.counters.answers_in += u64::from(answered);
                }
            }
        }
        self.reception.controls = controls;
    }

    fn take_mark(&mut self, token: usize, source: SocketAddr, mark: Mark, now_ms: u64) {
        let is_own = |local: &Local| (local.ip, local.private_port) == (source.ip(), source.port());
        let own = self.local.iter().any(is_own);
        let Some(position) = self.local.iter().position(|local| local.private == token) else {
            return;
        };
        let local = &mut self.local[position];
        let allowance = self.senders.allow(source, token, local.buffer, now_ms);
        if own {
            let answered = local.room.answered(mark.position, allowance, now_ms);
            self.counters.answers_in += u64::from(answered);
            return;
        }
        // An answer that cannot be sent is asked for again.
        let answer = Control::Answer(mark, allowance);
        let answered = self.send_control(&self.local[position], source, &answer);
        self.counters.answers_out += u64::from(answered);
    }
}
