//! Receiving: from bytes to connection, stream and effect.

use super::connection::{Connection, State, ack_rule};
use super::endpoint::{Endpoint, Handle, REPLIES_MAX};
use super::event::Event;
use super::handshake::{cookie, describe, is_good_cookie, is_sane, speaks_our_version};
use super::port::Route;
use super::receive_path::Verdict;
use super::responder::Handled;
use super::stream::Context;
use super::streams::Streams;
use super::transmit::plain;
use crate::{CompletionStatus, Host, Instant};
use feroce_wire::Address;
use feroce_wire::metaroce::{
    Ack, Body, Close, CloseCode, ConnectionId, Flags, Frame, Handshake, Headers, ParseError,
    Refuse, RefuseCode, Request, Retry, Updates, VERSION,
};

/// Retries that are followed by a hello at once; the next ones wait for its timer, so that two
/// endpoints that do not understand one another do not keep each other busy.
const RETRIES_AT_ONCE_MAX: u8 = 3;

impl Endpoint {
    /// Takes a packet whose check sum the host has found right, without its trailer.
    pub fn handle_packet<H: Host>(
        &mut self,
        now: Instant,
        from: &Address,
        packet: &[u8],
        host: &mut H,
    ) {
        self.counters.rx_packets += 1;
        match Frame::parse(packet) {
            Ok(frame) => self.handle_frame(now, from, &frame, packet.len(), host),
            Err(error) => self.handle_malformed(error),
        }
    }

    const fn handle_malformed(&mut self, _error: ParseError) {
        self.counters.dropped_malformed += 1;
    }

    fn handle_frame<H: Host>(
        &mut self,
        now: Instant,
        from: &Address,
        frame: &Frame<'_>,
        bytes: usize,
        host: &mut H,
    ) {
        match &frame.body {
            Body::Hello(hello) => return self.handle_hello(now, from, hello),
            Body::Retry(retry) => return self.handle_retry(now, frame.connection, retry),
            Body::Accept(accept) => return self.handle_accept(now, from, frame, accept),
            Body::Refuse(refuse) => return self.handle_refuse(now, frame.connection, refuse, host),
            _ => {}
        }
        let index = self.by_id.get(&frame.connection).copied();
        let connection = index.and_then(|index| self.connections.get_mut(index as usize));
        let (Some(index), Some(connection)) = (index, connection) else {
            self.handle_unknown(from, frame);
            return;
        };
        //= MR-CON-011
        //= MR-SEC-002
        if !connection.remote_planes.as_slice().contains(&from.source) {
            self.counters.dropped_address += 1;
            return;
        }
        if let Body::Close(close) = &frame.body {
            self.handle_close(now, from, index, close, host);
            return;
        }
        let confirmed = match &mut connection.state {
            State::Open { confirmed } => core::mem::replace(confirmed, true),
            State::Offering(_) | State::Closing { .. } | State::Dead => {
                self.counters.dropped_unknown_connection += 1;
                return;
            }
        };
        if !confirmed {
            self.confirm(index);
        }
        if let Body::Ack(ack) = &frame.body {
            self.handle_ack(now, index, frame, ack, host);
        } else {
            self.handle_numbered(now, from, index, frame, bytes, host);
        }
        self.schedule(index);
    }

    /// The initiator knows us: what waits may be sent, and paths are measured.
    fn confirm(&mut self, index: u32) {
        self.counters.connections_opened += 1;
        self.raise(Event::Open(Handle(index)));
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        connection.probe_all();
        let planes = connection.remote_planes;
        let stream = connection.peer_stream;
        for &address in planes.as_slice() {
            let key = self.peer_key(address, stream);
            self.by_peer.insert(key, index);
        }
    }

    fn reply(&mut self, from: &Address, stream: u32, frame: &Frame<'_>) {
        if self.replies.len() == REPLIES_MAX {
            return;
        }
        let route = Route {
            source: from.destination,
            destination: from.source,
            // Back the way it came: the peer's own port is as good an entropy as any.
            source_port: from.source_port,
            destination_port: self.config.port,
            traffic_class: self.config.traffic_class,
            stream,
        };
        self.replies.push_back((route, Headers::new(frame)));
    }

    /// A close is answered even when nobody knows its connection: its answer may have been lost.
    //= MR-CON-015
    fn handle_unknown(&mut self, from: &Address, frame: &Frame<'_>) {
        self.counters.dropped_unknown_connection += 1;
        if let Body::Close(close) = &frame.body
            && !close.answer
        {
            let answer = Close {
                source: frame.connection,
                code: CloseCode::Done,
                answer: true,
            };
            let to = close.source;
            self.reply(from, 0, &plain(Body::Close(answer), to));
        }
    }

    fn handle_hello(&mut self, now: Instant, from: &Address, hello: &Handshake) {
        let refuse = |code| {
            let refuse = Refuse {
                nonce: hello.nonce,
                code,
            };
            plain(Body::Refuse(refuse), hello.source)
        };
        //= MR-CON-006
        if !speaks_our_version(hello) {
            self.reply(from, hello.origin, &refuse(RefuseCode::Version));
            return;
        }
        if !is_sane(hello, from.source) {
            self.reply(from, hello.origin, &refuse(RefuseCode::Invalid));
            return;
        }
        //= MR-CON-002
        //= MR-SEC-005
        if !is_good_cookie(self.config.secret, now, from.source, hello) {
            self.counters.bad_cookies += u64::from(hello.cookie != 0);
            self.counters.retries_sent += 1;
            let retry = Retry {
                nonce: hello.nonce,
                cookie: cookie(self.config.secret, now, from.source, hello),
                versions: (VERSION, VERSION),
            };
            self.reply(from, hello.origin, &plain(Body::Retry(retry), hello.source));
            return;
        }
        // From here on the sender is known to receive at its address.
        let known = self.find_accepted(hello);
        let index = match known.or_else(|| self.place_for(now, from, hello)) {
            Some(Ok(index)) => index,
            Some(Err(())) => return,
            None => {
                self.reply(from, hello.origin, &refuse(RefuseCode::Full));
                return;
            }
        };
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        let local = connection.local;
        let offer = super::handshake::Offer {
            nonce: hello.nonce,
            cookie: 0,
            target: hello.origin,
            origin: hello.target,
            sent_at: now,
            at: now,
            tries: 0,
            retries: 0,
            since: now,
        };
        let accept = describe(&self.config, local, &offer);
        self.reply(
            from,
            hello.origin,
            &plain(Body::Accept(accept), hello.source),
        );
        self.settle(index);
    }

    /// The connection that this very offer made before: our acceptance was lost.
    //= MR-CON-004
    fn find_accepted(&self, hello: &Handshake) -> Option<Result<u32, ()>> {
        let found = self.connections.iter().find(|(_, connection)| {
            connection.is_open()
                && connection.remote == hello.source
                && connection.nonce == hello.nonce
        });
        found.map(|(index, _)| Ok(u32::try_from(index).unwrap_or(u32::MAX)))
    }

    /// A connection for an offer. `Err`: our own offer goes before it. None: there is no room.
    fn place_for(
        &mut self,
        now: Instant,
        from: &Address,
        hello: &Handshake,
    ) -> Option<Result<u32, ()>> {
        let peers = hello.planes.as_slice().iter();
        let mut keys = peers.map(|&address| self.peer_key(address, hello.origin));
        let ours = keys.find_map(|key| self.by_peer.get(&key).copied());
        if let Some(index) = ours
            && let Some(connection) = self.connections.get_mut(index as usize)
            && let State::Offering(offer) = connection.state
        {
            //= MR-CON-007
            if offer.nonce < hello.nonce {
                return Some(Err(()));
            }
            connection.open(&self.config, now, hello, false);
            return Some(Ok(index));
        }
        if self.connections.len() >= self.config.max_connections {
            return None;
        }
        let state = State::Open { confirmed: false };
        let index = self.add_connection(now, from.source, state);
        let connection = self.connections.get_mut(index as usize)?;
        connection.open(&self.config, now, hello, false);
        if ours.is_none() {
            for &address in hello.planes.as_slice() {
                let key = self.peer_key(address, hello.origin);
                self.by_peer.insert(key, index);
            }
        }
        Some(Ok(index))
    }

    fn offering(&mut self, id: ConnectionId, nonce: u64) -> Option<&mut Connection> {
        let index = self.by_id.get(&id)?;
        let connection = self.connections.get_mut(*index as usize)?;
        let ours = matches!(&connection.state, State::Offering(offer) if offer.nonce == nonce);
        ours.then_some(connection)
    }

    fn handle_retry(&mut self, now: Instant, id: ConnectionId, retry: &Retry) {
        let Some(connection) = self.offering(id, retry.nonce) else {
            self.counters.dropped_unknown_connection += 1;
            return;
        };
        if let State::Offering(offer) = &mut connection.state
            && offer.cookie != retry.cookie
        {
            // The same way again: the cookie is good for it, and it has just answered.
            offer.cookie = retry.cookie;
            if offer.retries < RETRIES_AT_ONCE_MAX {
                offer.retries += 1;
                offer.at = now;
                offer.tries = offer.tries.saturating_sub(1);
            }
        }
        let index = connection.index;
        self.schedule(index);
    }

    fn handle_accept(&mut self, now: Instant, from: &Address, frame: &Frame<'_>, peer: &Handshake) {
        let sane = speaks_our_version(peer) && is_sane(peer, from.source);
        let config = self.config.clone();
        let Some(connection) = self.offering(frame.connection, peer.nonce).filter(|_| sane) else {
            self.counters.dropped_unknown_connection += 1;
            return;
        };
        connection.open(&config, now, peer, true);
        let index = connection.index;
        self.confirm(index);
        self.schedule(index);
    }

    fn handle_refuse<H: Host>(
        &mut self,
        now: Instant,
        id: ConnectionId,
        refuse: &Refuse,
        host: &mut H,
    ) {
        let Some(connection) = self.offering(id, refuse.nonce) else {
            self.counters.dropped_unknown_connection += 1;
            return;
        };
        let index = connection.index;
        self.fail_connection(now, index, host);
    }

    fn handle_close<H: Host>(
        &mut self,
        now: Instant,
        from: &Address,
        index: u32,
        close: &Close,
        host: &mut H,
    ) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        // Both names are known to the two ends alone.
        let (local, remote) = (connection.local, connection.remote);
        //= MR-CON-013
        if close.source != remote {
            self.counters.dropped_violation += 1;
            return;
        }
        let closing = matches!(connection.state, State::Closing { .. });
        if close.answer && !closing {
            self.counters.dropped_violation += 1;
            return;
        }
        if !close.answer {
            let answer = Close {
                source: local,
                code: close.code,
                answer: true,
            };
            let stream = connection.peer_stream;
            self.reply(from, stream, &plain(Body::Close(answer), remote));
            self.fail_streams(now, index, CompletionStatus::RetryExceeded, host);
            self.raise(Event::Closed(Handle(index)));
        }
        if let Some(connection) = self.connections.get_mut(index as usize) {
            connection.state = State::Dead;
        }
        self.settle(index);
    }

    fn handle_ack<H: Host>(
        &mut self,
        now: Instant,
        index: u32,
        frame: &Frame<'_>,
        ack: &Ack<'_>,
        host: &mut H,
    ) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        self.counters.acks_received += 1;
        let place = (frame.path, frame.epoch, frame.number);
        if !connection.acknowledged(&self.config, now, place, ack) {
            self.counters.dropped_old_epoch += 1;
            return;
        }
        let mut cx = Context {
            now,
            config: &self.config,
            counters: &mut self.counters,
            srqs: &mut self.srqs,
            host,
        };
        take_updates(&mut cx, connection, &mut self.streams, &ack.updates);
    }

    fn handle_numbered<H: Host>(
        &mut self,
        now: Instant,
        from: &Address,
        index: u32,
        frame: &Frame<'_>,
        bytes: usize,
        host: &mut H,
    ) {
        let Some(connection) = self.connections.get_mut(index as usize) else {
            return;
        };
        let place = usize::from(frame.path);
        let Some(path) = connection.receive.get_mut(place) else {
            self.counters.dropped_violation += 1;
            return;
        };
        match path.judge(frame.epoch, frame.number) {
            Verdict::New => {}
            Verdict::Duplicate => {
                self.counters.dropped_duplicate += 1;
                path.repeat();
                return;
            }
            Verdict::OldEpoch => {
                self.counters.dropped_old_epoch += 1;
                return;
            }
        }
        connection.heard = now;
        let mut cx = Context {
            now,
            config: &self.config,
            counters: &mut self.counters,
            srqs: &mut self.srqs,
            host,
        };
        let handled = dispatch(&mut cx, connection, &mut self.streams, &frame.body);
        let drained = frame.flags.contains(Flags::DRAINED);
        let wire = bytes as u64 + u64::from(self.config.wire_overhead);
        let marked = from.congestion_experienced();
        self.shares.arrived(now, index, wire, marked, drained);
        //= MR-REL-005
        if handled == Handled::NoRoom {
            return;
        }
        self.counters.rx_bytes += bytes as u64;
        connection.last_receive = place;
        if let Some(path) = connection.receive.get_mut(place) {
            let asked = frame.flags.contains(Flags::ACK_REQUEST);
            let number = (frame.epoch, frame.number);
            path.accept(now, number, from, asked, ack_rule(&self.config));
        }
    }
}

fn dispatch<H: Host>(
    cx: &mut Context<'_, H>,
    connection: &mut Connection,
    streams: &mut Streams,
    body: &Body<'_>,
) -> Handled {
    match body {
        Body::Request(request) => take_request(cx, connection, streams, request),
        Body::Response(response) => {
            let number = connection.requester_of(streams, response);
            let stream = number.and_then(|number| streams.by_number_mut(number));
            let stream = stream.filter(|stream| stream.connection == Some(connection.index));
            let Some(stream) = stream else {
                return Handled::Accepted;
            };
            let noted = stream.handle_response(cx, connection, response);
            connection.wake_for(stream);
            connection.mark_ready(stream);
            if noted {
                Handled::Accepted
            } else {
                Handled::NoRoom
            }
        }
        Body::Update(updates) => {
            take_updates(cx, connection, streams, updates);
            Handled::Accepted
        }
        Body::Probe(asked) => {
            for number in asked.iter() {
                let stream = streams.by_number_mut(number);
                let stream = stream.filter(|stream| stream.connection == Some(connection.index));
                if let Some(stream) = stream {
                    connection.mark_dirty(stream);
                }
            }
            Handled::Accepted
        }
        _ => Handled::Accepted,
    }
}

fn take_request<H: Host>(
    cx: &mut Context<'_, H>,
    connection: &mut Connection,
    streams: &mut Streams,
    request: &Request<'_>,
) -> Handled {
    let stream = streams.by_number_mut(request.stream);
    let stream = stream.filter(|stream| stream.connection == Some(connection.index));
    match stream {
        Some(stream) => stream.handle_request(cx, connection, request),
        None => connection.refuse_unknown(request),
    }
}

fn take_updates<H: Host>(
    cx: &mut Context<'_, H>,
    connection: &mut Connection,
    streams: &mut Streams,
    updates: &Updates<'_>,
) {
    for update in updates.iter() {
        let stream = streams.by_number_mut(update.stream);
        let stream = stream.filter(|stream| stream.connection == Some(connection.index));
        if let Some(stream) = stream {
            if stream.updated(cx, &update) {
                connection.queries = 0;
            }
            connection.mark_ready(stream);
        }
    }
}
