//! The books of a [`Cm`]: names, indexes, deadlines, and the one place that changes a connection.

use super::connection::{Connection, Next, State, Step};
use super::sidr::{Sidr, SidrState};
use super::types::{CmError, CmEvent, ConnectionId};
use super::{Cm, SLOT_SHIFT};
use crate::Instant;
use alloc::boxed::Box;
use feroce_wire::mad::Mad;

const INDEX_MASK: u32 = (1 << SLOT_SHIFT) - 1;

impl Cm {
    /// A name for something new, as long after its last use as can be.
    pub(super) fn new_id(&mut self) -> Result<u32, CmError> {
        let open = self.connections.len() + self.sidrs.len() - self.closed.len();
        if open >= self.config.open_max {
            return Err(CmError::Full(self.config.open_max));
        }
        for _ in 0..=INDEX_MASK {
            self.next_index = self.next_index.wrapping_add(1) & INDEX_MASK;
            let id = u32::from(self.config.slot) << SLOT_SHIFT | self.next_index;
            if id != 0 && !self.connections.contains_key(&id) && !self.sidrs.contains_key(&id) {
                return Ok(id);
            }
        }
        Err(CmError::Full(self.config.open_max))
    }

    pub(super) fn new_transaction(&mut self) -> u64 {
        self.next_transaction = self.next_transaction.wrapping_add(1);
        self.next_transaction
    }

    pub(super) fn connection(&self, id: ConnectionId) -> Result<&Connection, CmError> {
        self.connections
            .get(&id.0)
            .map(|connection| &**connection)
            .ok_or(CmError::UnknownConnection(id))
    }

    /// Puts a connection in that is in its first state.
    pub(super) fn add(&mut self, now: Instant, connection: Connection) {
        let id = connection.id;
        if let Some(request) = connection.request {
            self.by_request.insert(request, id);
        }
        let first = connection.state.clone();
        self.connections.insert(id, Box::new(connection));
        self.enter(now, id, first);
    }

    /// Does what was decided: the message goes out, the state changes, the program is told.
    pub(super) fn apply(&mut self, now: Instant, id: u32, step: Step) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        if let Some(mad) = step.send {
            self.transmits.push_back((connection.route, mad));
        }
        for event in step.events {
            self.tell(id, event);
        }
        match step.next {
            Next::Stay => {}
            Next::Prolong(by) => self.arm(id, now + by),
            Next::Enter(state) => self.enter(now, id, state),
        }
    }

    /// Tells the program, unless it wants to hear no more or has heard it before.
    fn tell(&mut self, id: u32, event: CmEvent) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let repeated = matches!(event, CmEvent::Disconnected { .. }) && connection.told;
        if connection.silent || repeated {
            return;
        }
        match event {
            CmEvent::Disconnected { .. } => connection.told = true,
            CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } => connection.silent = true,
            _ => {}
        }
        self.events.push_back(event);
    }

    fn enter(&mut self, now: Instant, id: u32, state: State) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let deadline = connection.patience(&state).map(|wait| now + wait);
        let holds = state.holds_peer();
        let answered = !matches!(state, State::ReqReceived);
        let over = matches!(state, State::Timewait { .. });
        connection.state = state;
        if let Some(peer) = connection.peer {
            if holds {
                self.by_peer.insert(peer, id);
            } else if self.by_peer.get(&peer) == Some(&id) {
                self.by_peer.remove(&peer);
            }
        }
        if answered && let Some(listener) = connection.pending_at.take() {
            self.listeners.release(listener);
        }
        match deadline {
            Some(deadline) => self.arm(id, deadline),
            None => self.disarm(id),
        }
        if over {
            self.close(id);
        }
    }

    /// Notes that `id` is over, and forgets the oldest such if there are too many.
    pub(super) fn close(&mut self, id: u32) {
        let sequence = self.next_closed;
        let closed = match (self.connections.get_mut(&id), self.sidrs.get_mut(&id)) {
            (Some(connection), _) => &mut connection.closed,
            (None, Some(sidr)) => &mut sidr.closed,
            (None, None) => return,
        };
        if closed.is_some() {
            return;
        }
        *closed = Some(sequence);
        self.next_closed += 1;
        self.closed.insert(sequence, id);
        while self.closed.len() > self.config.closed_max {
            let Some((_, oldest)) = self.closed.pop_first() else {
                return;
            };
            self.expire(oldest);
        }
    }

    /// Forgets something that is over; the program learns that its name is free.
    fn expire(&mut self, id: u32) {
        if self.connections.get(&id).is_some_and(|c| c.told) {
            let connection = ConnectionId(id);
            self.tell(id, CmEvent::TimewaitExit { connection });
        }
        self.forget(id);
    }

    /// Takes a connection or request out of all books.
    pub(super) fn forget(&mut self, id: u32) {
        self.disarm(id);
        let closed = if let Some(connection) = self.connections.remove(&id) {
            if let Some(request) = connection.request
                && self.by_request.get(&request) == Some(&id)
            {
                self.by_request.remove(&request);
            }
            if let Some(peer) = connection.peer
                && self.by_peer.get(&peer) == Some(&id)
            {
                self.by_peer.remove(&peer);
            }
            if let Some(listener) = connection.pending_at {
                self.listeners.release(listener);
            }
            connection.closed
        } else if let Some(sidr) = self.sidrs.remove(&id) {
            if let Some(asker) = sidr.asker {
                self.by_asker.remove(&asker);
            }
            if let SidrState::Received { listener, .. } = sidr.state {
                self.listeners.release(listener);
            }
            sidr.closed
        } else {
            None
        };
        if let Some(sequence) = closed {
            self.closed.remove(&sequence);
        }
    }

    fn deadline_of(&mut self, id: u32) -> Option<&mut Option<Instant>> {
        if let Some(connection) = self.connections.get_mut(&id) {
            return Some(&mut connection.deadline);
        }
        self.sidrs.get_mut(&id).map(|sidr| &mut sidr.deadline)
    }

    pub(super) fn arm(&mut self, id: u32, deadline: Instant) {
        self.disarm(id);
        if let Some(slot) = self.deadline_of(id) {
            *slot = Some(deadline);
            self.timers.insert((deadline, id));
        }
    }

    pub(super) fn disarm(&mut self, id: u32) {
        if let Some(at) = self.deadline_of(id).and_then(Option::take) {
            self.timers.remove(&(at, id));
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first() {
            if at > now {
                return;
            }
            self.disarm(id);
            if let Some(connection) = self.connections.get_mut(&id) {
                if matches!(connection.state, State::Timewait { .. }) {
                    self.expire(id);
                } else {
                    let step = connection.time_is_up(self.config.ca_guid);
                    let again = connection.response_time;
                    if matches!(step.next, Next::Stay) {
                        self.arm(id, now + again);
                    }
                    self.apply(now, id, step);
                }
            } else {
                self.sidr_time_is_up(now, id);
            }
        }
    }

    /// A record of a request for a datagram queue pair.
    pub(super) fn add_sidr(&mut self, id: u32, sidr: Sidr, deadline: Option<Instant>) {
        if let Some(asker) = sidr.asker {
            self.by_asker.insert(asker, id);
        }
        self.sidrs.insert(id, Box::new(sidr));
        if let Some(deadline) = deadline {
            self.arm(id, deadline);
        }
    }

    pub(super) fn send(&mut self, route: &super::Route, mad: Mad) {
        self.transmits.push_back((*route, mad));
    }
}
