//! Packets of the connection itself: hello, close, acknowledgement, probe.

use super::{
    ACK_UPDATES_MAX, Ack, ArrayVec, Body, Close, Connection, ConnectionId, Context, Epoch, Frame,
    HELLO_INTERVAL, HELLO_INTERVAL_MAX, Headers, Outgoing, PROBE_STREAMS_MAX, Payload, Piece, Port,
    Route, SALT_ACK_PORT, Shares, State, Step, StreamList, StreamRef, Streams, UpdateView, Updates,
    describe, news, plain, plane_bit, timing,
};

impl Connection {
    pub(super) fn send_hello<H: Port>(&mut self, cx: &mut Context<'_, H>) -> Step {
        let State::Offering(offer) = self.state else {
            return Step::Idle;
        };
        if offer.at > cx.now {
            return Step::Idle;
        }
        // Every try takes another way, so that one dead path does not keep a connection from
        // coming about.
        let try_number = u8::try_from(offer.tries & 0xff).unwrap_or(0);
        // Only the plane of the address we were given is known to lead to the peer.
        let planes = self.local_planes.as_slice().len().max(1);
        let plane = if try_number.is_multiple_of(2) {
            0
        } else {
            usize::from(try_number / 2 + 1) % planes
        };
        let port = self.entropy(cx.config, SALT_ACK_PORT, try_number, Epoch(0));
        let mut route = self.route(cx, plane, port);
        route.stream = offer.target;
        let hello = describe(cx.config, self.local, &offer);
        let headers = Headers::new(&plain(Body::Hello(hello), ConnectionId(0)));
        if cx.host.send(&route, &headers, Payload::Bytes(&[])).is_err() {
            return Step::Busy;
        }
        if let State::Offering(offer) = &mut self.state {
            //= MR-CON-008
            let wait = HELLO_INTERVAL * (1 << offer.tries.min(10));
            offer.tries += 1;
            offer.sent_at = cx.now;
            offer.at = cx.now + wait.min(HELLO_INTERVAL_MAX);
        }
        cx.counters.tx_packets += 1;
        Step::Sent
    }

    //= MR-CON-012
    pub(super) fn send_close<H: Port>(&mut self, cx: &mut Context<'_, H>) -> Step {
        let State::Closing { code, tries, at } = self.state else {
            return Step::Idle;
        };
        if at > cx.now {
            return Step::Idle;
        }
        let port = self.entropy(cx.config, SALT_ACK_PORT, tries, Epoch(0));
        let route = self.route(cx, usize::from(tries) % self.planes(), port);
        let close = Close {
            source: self.local,
            code,
            answer: false,
        };
        let headers = Headers::new(&plain(Body::Close(close), self.remote));
        if cx.host.send(&route, &headers, Payload::Bytes(&[])).is_err() {
            return Step::Busy;
        }
        cx.counters.tx_packets += 1;
        let wait = self.paths.first().map_or(cx.config.rtt_initial, |path| {
            path.probe_timeout(&timing(cx.config)) * 2
        });
        self.state = State::Closing {
            code,
            tries: tries + 1,
            at: cx.now + wait,
        };
        Step::Sent
    }

    /// An acknowledgement goes back the way the packet came, with news of streams.
    pub(super) fn send_ack<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
        shares: &Shares,
        place: usize,
    ) -> Step {
        let Some(path) = self.receive.get(place) else {
            return Step::Idle;
        };
        let (Some(report), Some(from)) = (path.report(cx.now), path.from) else {
            self.receive[place].acknowledged();
            return Step::Again;
        };
        let mut told: ArrayVec<StreamRef, ACK_UPDATES_MAX> = ArrayVec::new();
        let mut updates: ArrayVec<UpdateView, ACK_UPDATES_MAX> = ArrayVec::new();
        while !told.is_full()
            && let Some(reference) = self.dirty.pop_front()
        {
            if let Some(stream) = streams.get_mut(reference) {
                updates.push(news(stream).into());
                told.push(reference);
            }
        }
        let id = u8::try_from(place).unwrap_or(0);
        //= MR-PTH-015
        //= MR-PTH-016
        let port = self.entropy(cx.config, SALT_ACK_PORT, id, report.epoch);
        let route = Route {
            source: from.destination,
            destination: from.source,
            source_port: port,
            destination_port: cx.config.port,
            traffic_class: cx.config.traffic_class,
            stream: self.peer_stream,
        };
        let ack = Ack {
            vector: report.vector,
            delay_nanos: u32::try_from(report.delay.as_nanos()).unwrap_or(u32::MAX),
            received: report.received,
            marked: report.marked,
            share: shares.grant(),
            updates: Updates(&updates),
        };
        let frame = Frame {
            path: id,
            epoch: report.epoch,
            number: report.number,
            ..plain(Body::Ack(ack), self.remote)
        };
        let headers = Headers::new(&frame);
        if cx.host.send(&route, &headers, Payload::Bytes(&[])).is_err() {
            for reference in told.into_iter().rev() {
                self.dirty.push_front(reference);
            }
            self.busy |= self.ack_plane_bit(place);
            return Step::Again;
        }
        for reference in told {
            if let Some(stream) = streams.get_mut(reference) {
                stream.dirty = false;
                stream.responder.told_limit = stream.receive_limit();
            }
        }
        self.receive[place].acknowledged();
        cx.counters.acks_sent += 1;
        cx.counters.tx_packets += 1;
        Step::Sent
    }

    /// A probe: a number of its own, so that its acknowledgement shows every gap before it, and a
    /// question about streams that wait.
    //= MR-REL-013
    //= MR-REL-021
    pub(super) fn send_probe<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &Streams,
        place: usize,
    ) -> Step {
        let mut asked = ArrayVec::<_, PROBE_STREAMS_MAX>::new();
        let count = self.streams.len();
        for step in 0..count {
            let reference = self.streams[(self.queries as usize + step) % count];
            let Some(stream) = streams.get(reference) else {
                continue;
            };
            if stream.requester.is_waiting() && !asked.is_full() {
                asked.push(stream.target.qpn.value().into());
            }
        }
        let probe = Outgoing {
            piece: Piece::Probe,
            again: false,
            body: Body::Probe(StreamList(&asked)),
            payload: Payload::Bytes(&[]),
            length: 0,
            ack: true,
        };
        if self.send_numbered(cx, place, &probe).is_err() {
            self.busy |= plane_bit(&self.paths[place]);
            return Step::Again;
        }
        let path = &mut self.paths[place];
        path.probe_due = false;
        path.counters.probes += 1;
        cx.counters.probes_sent += 1;
        Step::Sent
    }
}
