//! Sending: one packet at a time, acknowledgements first, then probes, then what was lost, then
//! answers and requests in turn.

mod control;

use super::config::EndpointConfig;
use super::connection::{Again, Connection, SALT_ACK_PORT, State, plane_bit, timing};
use super::handshake::{HELLO_INTERVAL, HELLO_INTERVAL_MAX, describe};
use super::job::{Answer, JobRef};
use super::path::{Path, Piece};
use super::port::{Port, Route};
use super::requester::{Limits, Requester};
use super::share::Shares;
use super::stream::{Context, Stream, StreamRef};
use super::streams::Streams;
use crate::qp::Step;
use crate::request::pieces;
use crate::{
    CompletionStatus, Data, Instant, Payload, PdId, QpState, Remote as RemoteClaim, RemoteRange,
    SendOperation, SgeList, TransmitError,
};
use arrayvec::ArrayVec;
use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;
use feroce_wire::metaroce::header::UpdateView;
use feroce_wire::metaroce::{
    ACK_UPDATES_MAX, Ack, Atomic, Body, Close, ConnectionId, Datagram, Epoch, Flags, Frame,
    Headers, MessageNumber, PROBE_STREAMS_MAX, PacketNumber, ReceiveNumber, Refusal, RefusalCode,
    Remote, Request, RequestOpcode, Response, ResponseOpcode, Streams as StreamList, Update,
    Updates, check,
};

/// What a packet of data is made of, apart from its place on a path.
struct Made<'a> {
    body: Body<'a>,
    payload: Bytes<'a>,
    length: u32,
}

enum Bytes<'a> {
    Held(&'a [u8]),
    Gather(PdId, SgeList),
    Remote(RemoteRange),
}

/// A packet with a number, before it has one.
struct Outgoing<'a> {
    piece: Piece,
    again: bool,
    body: Body<'a>,
    payload: Payload<'a>,
    length: u32,
    ack: bool,
}

impl Connection {
    /// Sends the next packet, if there is one and it may be sent. A plane for which the host has no
    /// room does not hold up the others.
    pub(super) fn transmit<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
        shares: &mut Shares,
    ) -> Step {
        match self.transmit_on_free_planes(cx, streams, shares) {
            Step::Idle if self.busy != 0 => Step::Busy,
            step => step,
        }
    }

    fn transmit_on_free_planes<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
        shares: &mut Shares,
    ) -> Step {
        match self.state {
            State::Offering(_) => return self.send_hello(cx),
            State::Closing { .. } => return self.send_close(cx),
            State::Dead => return Step::Idle,
            State::Open { .. } => {}
        }
        if let Some(place) = self.due_ack() {
            return self.send_ack(cx, streams, shares, place);
        }
        if !self.may_send() {
            return Step::Idle;
        }
        let probe_due = |path: &Path| path.probe_due && self.busy & plane_bit(path) == 0;
        if let Some(place) = self.paths.iter().position(probe_due) {
            return self.send_probe(cx, streams, place);
        }
        if self.pace_at > cx.now {
            return Step::Idle;
        }
        let lost = self.again.front().filter(|again| again.left);
        let wish = lost.map(|again| again.path);
        let Some(place) = self.choose_path(wish) else {
            return Step::Idle;
        };
        match self.next_piece(cx, streams) {
            Some(next) => self.send_piece(cx, streams, shares, place, next),
            None => Step::Idle,
        }
    }

    fn route<H>(&self, cx: &Context<'_, H>, plane: usize, source_port: u16) -> Route {
        let pick = |addresses: &[IpAddr]| {
            let address = addresses.get(plane).or_else(|| addresses.first());
            address.copied()
        };
        let nowhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Route {
            source: pick(self.local_planes.as_slice()).unwrap_or(nowhere),
            destination: pick(self.remote_planes.as_slice()).unwrap_or(nowhere),
            source_port,
            destination_port: cx.config.port,
            traffic_class: cx.config.traffic_class,
            stream: self.peer_stream,
        }
    }

    /// Sends a packet with a number on a path.
    fn send_numbered<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        place: usize,
        out: &Outgoing<'_>,
    ) -> Result<(), TransmitError> {
        let timing = timing(cx.config);
        let path = &self.paths[place];
        let route = self.route(cx, usize::from(path.plane), path.port);
        let ack = out.ack || path.wants_ack(self.segment());
        let mut flags = Flags::default();
        for (on, flag) in [
            (ack, Flags::ACK_REQUEST),
            (!self.has_work(), Flags::DRAINED),
            (out.again, Flags::AGAIN),
        ] {
            if on {
                flags = flags.with(flag);
            }
        }
        let frame = Frame {
            flags,
            path: path.id,
            epoch: path.epoch,
            number: path.next_number(),
            ..plain(out.body, self.remote)
        };
        let headers = Headers::new(&frame);
        cx.host.send(&route, &headers, out.payload)?;
        self.begin_wait(cx.now);
        let header_bytes = u32::try_from(headers.as_bytes().len() + check::LEN).unwrap_or(u32::MAX);
        let bytes = header_bytes + out.length;
        self.paths[place].sent(cx.now, out.piece, bytes, ack, &timing);
        self.in_flight += u64::from(bytes);
        self.pace(cx.config, cx.now, bytes);
        if matches!(out.piece, Piece::Request { .. }) {
            self.begin_asking(cx.config, cx.now);
        }
        cx.counters.tx_packets += 1;
        cx.counters.tx_bytes += u64::from(out.length);
        Ok(())
    }

    /// A stream begins to wait for an update: if none comes, it asks.
    fn begin_asking(&mut self, config: &EndpointConfig, now: Instant) {
        if self.query_at.is_none() {
            self.query_at = Some(now + self.query_interval(config));
        }
    }

    pub(super) fn query_interval(&self, config: &EndpointConfig) -> Duration {
        let timing = timing(config);
        let longest = self.paths.iter().map(|path| path.probe_timeout(&timing));
        let base = longest.max().unwrap_or(config.rtt_initial) * 2;
        (base * (1 << self.queries.min(10))).min(config.probe_interval_max.max(base))
    }

    /// The next piece: what was lost, then answers and requests in turn.
    fn next_piece<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
    ) -> Option<Again> {
        while let Some(again) = self.again.pop_front() {
            if self.is_wanted(streams, again.piece) {
                return Some(again);
            }
        }
        let fresh = |piece| Again {
            piece,
            path: 0,
            left: false,
        };
        if !self.answered_last || self.ready.is_empty() {
            self.answered_last = true;
            if let Some((job, segment)) = self.jobs.take() {
                return Some(fresh(Piece::Response { job, segment }));
            }
        }
        self.answered_last = false;
        while let Some(reference) = self.ready.pop_front() {
            let Some(stream) = streams.get_mut(reference) else {
                continue;
            };
            stream.ready = false;
            let limits = limits_of(self, stream);
            let piece = Requester::advance(stream, cx, &limits)
                .then(|| stream.requester.take(reference))
                .flatten();
            if piece.is_some() && Requester::advance(stream, cx, &limits) {
                self.mark_ready(stream);
            }
            self.wake_for(stream);
            if stream.requester.is_waiting() {
                self.begin_asking(cx.config, cx.now);
            }
            if piece.is_some() {
                return piece.map(fresh);
            }
        }
        self.jobs
            .take()
            .map(|(job, segment)| fresh(Piece::Response { job, segment }))
    }

    fn is_wanted(&self, streams: &Streams, piece: Piece) -> bool {
        match piece {
            Piece::Request {
                stream, message, ..
            } => {
                let stream = streams.get(stream);
                stream.is_some_and(|stream| {
                    stream.state == QpState::ReadyToSend && stream.requester.find(message).is_some()
                })
            }
            Piece::Response { job, segment } => self.jobs.wants(job, segment),
            Piece::Update(stream) => streams.get(stream).is_some(),
            Piece::Probe => false,
        }
    }

    fn send_piece<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
        shares: &mut Shares,
        place: usize,
        next: Again,
    ) -> Step {
        let mut list = ArrayVec::<UpdateView, 1>::new();
        let made = match next.piece {
            Piece::Request {
                stream,
                message,
                segment,
            } => streams
                .get(stream)
                .and_then(|stream| make_request(stream, message, segment, self.segment())),
            Piece::Response { job, segment } => self.make_response(job, segment),
            Piece::Update(reference) => streams.get_mut(reference).map(|stream| {
                list.push(news(stream).into());
                stream.responder.told_limit = stream.receive_limit();
                Made {
                    body: Body::Update(Updates(&list)),
                    payload: Bytes::Held(&[]),
                    length: 0,
                }
            }),
            Piece::Probe => None,
        };
        let Some(made) = made else {
            return Step::Again;
        };
        let payload = match &made.payload {
            Bytes::Held(bytes) => Payload::Bytes(bytes),
            Bytes::Gather(pd, sges) => Payload::Gather(*pd, sges),
            Bytes::Remote(range) => Payload::Remote(*range),
        };
        let ack = self.is_tail(streams, next.piece);
        let asks = matches!(&made.body, Body::Request(r) if r.opcode == RequestOpcode::Read);
        let sent = Outgoing {
            piece: next.piece,
            again: next.left,
            body: made.body,
            payload,
            length: made.length,
            ack,
        };
        match self.send_numbered(cx, place, &sent) {
            Ok(()) => {
                cx.counters.retransmissions += u64::from(next.left);
                self.turn = (place + 1) % self.paths.len().max(1);
                if asks {
                    self.grant_with_question(shares);
                }
                Step::Sent
            }
            Err(TransmitError::Busy) => {
                self.again.push_front(next);
                self.busy |= plane_bit(&self.paths[place]);
                Step::Again
            }
            Err(_) => {
                self.fail_piece(cx, streams, next.piece);
                Step::Again
            }
        }
    }

    /// A READ makes the peer send: it is told its share along with the question, by an
    /// acknowledgement that repeats what it knows.
    //= MR-CC-015
    fn grant_with_question(&mut self, shares: &mut Shares) {
        shares.expect(self.index);
        if shares.is_shared()
            && let Some(path) = self.receive.get_mut(self.last_receive)
            && path.from.is_some()
        {
            path.due = true;
        }
    }

    /// Near its end, every packet asks for an acknowledgement, so that a loss on any path shows.
    //= MR-REL-006
    fn is_tail(&self, streams: &Streams, piece: Piece) -> bool {
        if self.again.len() + self.ready.len() > 1 {
            return false;
        }
        let left = match piece {
            Piece::Request { stream, .. } if !self.jobs.has_unsent() => {
                let stream = streams.get(stream);
                stream.and_then(|stream| stream.requester.tail())
            }
            Piece::Response { job, segment } if self.ready.is_empty() => {
                let job = self.jobs.get(job);
                job.map(|job| job.segments.saturating_sub(segment + 1))
            }
            Piece::Update(_) => Some(0),
            _ => None,
        };
        left.is_some_and(|left| (left as usize) < self.paths.len())
    }

    fn make_response(&self, job: JobRef, segment: u32) -> Option<Made<'static>> {
        let job = self.jobs.get(job)?;
        let mut response = Response {
            opcode: ResponseOpcode::ReadData,
            stream: job.peer_stream,
            message: job.message,
            offset: 0,
            length: 0,
            original: 0,
            refusal: None,
            payload: &[],
        };
        let (mut payload, mut bytes) = (Bytes::Held(&[]), 0);
        match job.answer {
            Answer::Read(range) => {
                response.length = u32::try_from(range.length).unwrap_or(u32::MAX);
                response.offset = segment.saturating_mul(self.segment());
                bytes = response.length.saturating_sub(response.offset);
                bytes = bytes.min(self.segment());
                if bytes > 0 {
                    payload = Bytes::Remote(RemoteRange {
                        address: range.address.wrapping_add(u64::from(response.offset)),
                        length: u64::from(bytes),
                        ..range
                    });
                }
            }
            Answer::Original(original) => {
                response.opcode = ResponseOpcode::Original;
                response.length = 8;
                response.original = original;
            }
            Answer::Refused(refusal) => {
                response.opcode = ResponseOpcode::Refused;
                response.refusal = Some(refusal);
            }
        }
        Some(Made {
            body: Body::Response(response),
            payload,
            length: bytes,
        })
    }

    /// The memory that a piece was to be read from is not there any more.
    fn fail_piece<H: Port>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
        piece: Piece,
    ) {
        match piece {
            Piece::Request {
                stream, message, ..
            } => {
                if let Some(stream) = streams.get_mut(stream) {
                    stream.fail_message(cx, message, CompletionStatus::LocalProtection);
                }
            }
            Piece::Response { job, .. } => {
                let Some(job) = self.jobs.remove(job) else {
                    return;
                };
                let Some(stream) = streams.get_mut(job.stream) else {
                    return;
                };
                let refusal = Refusal {
                    code: RefusalCode::RemoteAccess,
                    delay_nanos: 0,
                };
                self.answer(stream, job.message, Answer::Refused(refusal), 1);
                stream.enter_error(cx, CompletionStatus::WorkRequestFlushed);
            }
            Piece::Update(_) | Piece::Probe => {}
        }
    }
}

/// A piece of a send request as a packet. None: it is not wanted any more.
fn make_request(
    stream: &Stream,
    message: MessageNumber,
    segment: u32,
    segment_bytes: u32,
) -> Option<Made<'_>> {
    let entry = stream.requester.find(message)?;
    let opcode = entry.opcode()?;
    let mut request = Request {
        opcode,
        solicited: entry.request.flags.solicited,
        stream: stream.target.qpn.value(),
        message,
        offset: 0,
        length: entry.length,
        receive: ReceiveNumber(0),
        remote: Remote::default(),
        atomic: Atomic::default(),
        datagram: Datagram::default(),
        word: 0,
        payload: &[],
    };
    if opcode.uses_receive() {
        request.receive = entry.receive;
    }
    describe_operation(&mut request, &entry.request.operation);
    let (mut payload, mut length) = (Bytes::Held(&[]), 0);
    if opcode.has_payload() {
        request.offset = segment.saturating_mul(segment_bytes);
        length = entry
            .length
            .saturating_sub(request.offset)
            .min(segment_bytes);
        payload = match &entry.request.data {
            Data::Inline(bytes) => {
                let rest = bytes.get(request.offset as usize..)?;
                Bytes::Held(rest.get(..length as usize)?)
            }
            Data::Gather(sges) => Bytes::Gather(
                stream.init.pd,
                pieces(sges, request.offset, length).collect(),
            ),
        };
    }
    Some(Made {
        body: Body::Request(request),
        payload,
        length,
    })
}

fn describe_operation(request: &mut Request<'_>, operation: &SendOperation) {
    let mut at = |remote: &RemoteClaim| {
        request.remote = Remote {
            address: remote.address,
            key: remote.rkey,
        };
    };
    match operation {
        SendOperation::Send | SendOperation::LocalInvalidate(_) | SendOperation::Bind(_) => {}
        SendOperation::SendImmediate(word) | SendOperation::SendInvalidate(word) => {
            request.word = *word;
        }
        SendOperation::Write(remote)
        | SendOperation::Read(remote)
        | SendOperation::AtomicWrite(remote) => at(remote),
        SendOperation::WriteImmediate(remote, word) => {
            at(remote);
            request.word = *word;
        }
        SendOperation::CompareSwap {
            remote,
            compare,
            swap,
        } => {
            at(remote);
            request.atomic.compare = *compare;
            request.atomic.operand = *swap;
        }
        SendOperation::FetchAdd { remote, add } => {
            at(remote);
            request.atomic.operand = *add;
        }
        SendOperation::Flush {
            remote,
            placement,
            level,
            ..
        } => {
            at(remote);
            request.word = u32::from(*level & 3) << 4 | u32::from(*placement & 0xf);
        }
    }
}

/// What a stream tells its peer.
fn news(stream: &Stream) -> Update {
    Update {
        stream: stream.target.qpn.value(),
        completed: stream.responder.expected,
        limit: stream.receive_limit(),
        delay_code: stream.target.min_rnr_timer,
    }
}

fn limits_of(connection: &Connection, stream: &Stream) -> Limits {
    Limits {
        message_window: connection.message_window,
        reads_max: u32::from(stream.target.max_rd_atomic),
    }
}

/// A packet without number.
pub(super) const fn plain(body: Body<'_>, to: ConnectionId) -> Frame<'_> {
    Frame {
        flags: Flags(0),
        path: 0,
        epoch: Epoch(0),
        connection: to,
        number: PacketNumber(0),
        body,
    }
}
