//! One connection: its paths in both directions, one congestion state, and what waits to be sent.
//!
//! The handshake lives in [`super::handshake`], sending in [`super::transmit`].

mod steer;

use super::config::{EndpointConfig, WindowRule};
use super::congestion::{Aimd, AnyWindow, Bounds, Feedback, Fixed, Window};
use super::counters::EndpointCounters;
use super::handshake::Offer;
use super::job::{Answer, JobRef, Jobs};
use super::path::{Outcome, Path, PathState, Piece, SUSPECT_AFTER, Timing};
use super::receive_path::{AckRule, ReceivePath};
use super::responder::Handled;
use super::siphash::siphash;
use super::stream::{Context, Stream, StreamRef};
use super::streams::Streams;
use crate::{Host, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use feroce_wire::metaroce::{
    Ack, CloseCode, ConnectionId, Epoch, Handshake, MessageNumber, PLANES_MAX, PacketNumber,
    Planes, Refusal, RefusalCode, Request, Response, SHARE_UNLIMITED,
};

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum State {
    /// A hello is to be answered.
    Offering(Offer),
    /// Packets flow.
    Open {
        /// The peer has shown that it knows the connection: an acceptor sends nothing before.
        confirmed: bool,
    },
    /// A close has been sent and is repeated until it is answered.
    Closing {
        code: CloseCode,
        tries: u8,
        at: Instant,
    },
    /// It is over.
    Dead,
}

/// A piece that is to be sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) piece: Piece,
    /// The path that lost it.
    pub(super) path: u8,
    /// It has left before.
    pub(super) left: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) index: u32,
    /// The name under which the peer addresses us, and the peer's.
    pub(super) local: ConnectionId,
    pub(super) remote: ConnectionId,
    pub(super) nonce: u64,
    pub(super) state: State,
    pub(super) local_planes: Planes,
    pub(super) remote_planes: Planes,
    /// A stream of the peer, for the host to find its process.
    pub(super) peer_stream: u32,
    segment: u32,
    /// Unconfirmed messages per stream that the peer keeps track of.
    pub(super) message_window: u16,
    /// The first round trip has set the windows.
    calibrated: bool,
    /// Bytes per second the peer can take in on all planes, and what it grants us.
    peer_rate: u64,
    share: u64,
    pub(super) paths: Vec<Path>,
    pub(super) receive: Vec<ReceivePath>,
    pub(super) window: AnyWindow,
    pub(super) in_flight: u64,
    /// Nothing is sent before, and how far pacing has come.
    pub(super) pace_at: Instant,
    /// Where the search for a path begins.
    pub(super) turn: usize,
    pub(super) again: VecDeque<Again>,
    pub(super) jobs: Jobs,
    /// A response was sent last: the next turn is the requests'.
    pub(super) answered_last: bool,
    /// Streams that may have something to send.
    pub(super) ready: VecDeque<StreamRef>,
    /// Streams the peer is to hear of.
    pub(super) dirty: VecDeque<StreamRef>,
    /// Streams connected through it.
    pub(super) streams: Vec<StreamRef>,
    /// Words in use for segments out of order.
    words: usize,
    /// Last sign of life of the peer, or beginning of waiting for one.
    pub(super) heard: Instant,
    /// When streams are asked about that the peer has not confirmed.
    pub(super) query_at: Option<Instant>,
    pub(super) queries: u32,
    /// When the wait of a stream is over: for a receive, or after a refusal.
    pub(super) wake_at: Option<Instant>,
    pub(super) outcome: Outcome,
    /// Path of the last packet received: updates go back on it.
    pub(super) last_receive: usize,
    /// Planes for which the host has no room, a bit each, until it asks for packets again.
    pub(super) busy: u32,
    /// It is in the endpoint's list of those that may send.
    pub(super) scheduled: bool,
    /// Its entry among the endpoint's timers.
    pub(super) timer: Option<Instant>,
}

/// Salts that keep derived values apart.
pub(super) const SALT_PORT: u64 = 1;
pub(super) const SALT_ACK_PORT: u64 = 2;

/// Source ports are from the dynamic range (RFC 6335): the top two bits are ones.
const PORT_BASE: u16 = 0xc000;

/// The bit of a path's plane; there are few planes.
pub(super) const fn plane_bit(path: &Path) -> u32 {
    1 << path.plane
}

const _: () = assert!(PLANES_MAX <= 32);

impl Connection {
    pub(super) fn new(
        config: &EndpointConfig,
        index: u32,
        local: ConnectionId,
        peer: IpAddr,
        state: State,
        now: Instant,
    ) -> Self {
        Self {
            index,
            local,
            remote: ConnectionId(0),
            nonce: 0,
            state,
            local_planes: Planes::new(&config.planes),
            remote_planes: Planes::new(&[peer]),
            peer_stream: 0,
            segment: u32::from(config.segment),
            message_window: config.message_window,
            calibrated: false,
            peer_rate: 0,
            share: 0,
            paths: Vec::new(),
            receive: Vec::new(),
            window: new_window(config, now, config.window_initial),
            in_flight: 0,
            pace_at: Instant::ZERO,
            turn: 0,
            again: VecDeque::new(),
            jobs: Jobs::default(),
            answered_last: false,
            ready: VecDeque::new(),
            dirty: VecDeque::new(),
            streams: Vec::new(),
            words: 0,
            heard: now,
            query_at: None,
            queries: 0,
            wake_at: None,
            outcome: Outcome::default(),
            last_receive: 0,
            busy: 0,
            scheduled: false,
            timer: None,
        }
    }

    /// The peer's side is known: paths are made. `rtt` is that of the handshake, if measured.
    pub(super) fn open(
        &mut self,
        config: &EndpointConfig,
        now: Instant,
        peer: &Handshake,
        confirmed: bool,
    ) {
        self.remote = peer.source;
        self.nonce = peer.nonce;
        self.remote_planes = peer.planes;
        self.peer_stream = peer.origin;
        //= MR-CON-009
        self.segment = u32::from(config.segment.min(peer.segment)).max(SEGMENT_MIN);
        self.message_window = peer.message_window.max(1);
        let planes = self.planes();
        let both = match (config.line_rate, u64::from(peer.line_rate) * 1000) {
            (0, rate) | (rate, 0) => rate,
            (ours, theirs) => ours.min(theirs),
        };
        self.peer_rate = both * planes as u64;
        self.share = self.peer_rate;
        let count = config.paths.min(peer.paths).max(1);
        let per_path = path_restart_window(config.window_initial, count, self.segment);
        for id in 0..count {
            //= MR-PTH-006
            let plane = u8::try_from(usize::from(id) % planes).unwrap_or(0);
            let window = new_window(config, now, per_path);
            let port = self.entropy(config, SALT_PORT, id, Epoch(0));
            self.paths.push(Path::new(id, plane, port, window));
        }
        self.receive
            .resize_with(usize::from(config.paths), ReceivePath::default);
        self.heard = now;
        self.state = State::Open { confirmed };
    }

    /// Planes that both sides have.
    //= MR-CON-010
    pub(super) fn planes(&self) -> usize {
        let (ours, theirs) = (self.local_planes.as_slice(), self.remote_planes.as_slice());
        ours.len().min(theirs.len()).max(1)
    }

    //= MR-PTH-004
    pub(super) fn entropy(
        &self,
        config: &EndpointConfig,
        salt: u64,
        path: u8,
        epoch: Epoch,
    ) -> u16 {
        let place = u64::from(path) << 8 | u64::from(epoch.0);
        let hash = siphash(config.secret, &[salt, self.local.0, place]);
        PORT_BASE | u16::try_from(hash & 0x3fff).unwrap_or(0)
    }

    pub(super) const fn segment(&self) -> u32 {
        self.segment
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    //= MR-CON-005
    pub(super) const fn may_send(&self) -> bool {
        matches!(self.state, State::Open { confirmed: true })
    }

    /// Words left for segments out of order.
    pub(super) const fn words_left(&self, config: &EndpointConfig) -> usize {
        config.reorder_words_max.saturating_sub(self.words)
    }

    /// A set has grown or shrunk.
    pub(super) const fn count_words(&mut self, before: usize, after: usize) {
        self.words = (self.words + after).saturating_sub(before);
    }

    /// The peer is to hear how far a stream has come.
    pub(super) fn mark_dirty(&mut self, stream: &mut Stream) {
        if !stream.dirty {
            stream.dirty = true;
            self.dirty.push_back(stream.reference);
        }
    }

    /// A stream may have something to send.
    pub(super) fn mark_ready(&mut self, stream: &mut Stream) {
        if !stream.ready {
            stream.ready = true;
            self.ready.push_back(stream.reference);
        }
    }

    /// An answer is to be sent, and kept until it has arrived.
    pub(super) fn answer(
        &mut self,
        stream: &Stream,
        message: MessageNumber,
        answer: Answer,
        segments: u32,
    ) -> JobRef {
        let peer = stream.target.qpn.value();
        self.jobs
            .push(stream.reference, peer, message, answer, segments)
    }

    /// A request for a stream that does not exist, or not yet.
    //= MR-STR-018
    pub(super) fn refuse_unknown(&mut self, request: &Request<'_>) -> Handled {
        if self.jobs.len() >= REFUSALS_MAX {
            return Handled::NoRoom;
        }
        let refusal = Refusal {
            code: RefusalCode::UnknownStream,
            delay_nanos: 0,
        };
        let nobody = StreamRef {
            index: u32::MAX,
            incarnation: 0,
        };
        let answer = Answer::Refused(refusal);
        self.jobs
            .push(nobody, request.stream, request.message, answer, 1);
        Handled::Accepted
    }

    /// The stream of ours that a response is for. Who does not know a stream cannot know its peer
    /// either: such a refusal names the stream that was asked for.
    pub(super) fn requester_of(&self, streams: &Streams, response: &Response<'_>) -> Option<u32> {
        let unknown = response
            .refusal
            .is_some_and(|refusal| refusal.code == RefusalCode::UnknownStream);
        if !unknown {
            return Some(response.stream);
        }
        let mut ours = self.streams.iter().filter_map(|&name| streams.get(name));
        let found = ours.find(|stream| stream.target.qpn.value() == response.stream);
        found.map(|stream| stream.qpn.value())
    }

    /// The peer is to hear, reliably, of the receives of a stream.
    pub(super) fn tell(&mut self, now: Instant, stream: &Stream) {
        let piece = Piece::Update(stream.reference);
        if self.again.iter().any(|again| again.piece == piece) {
            return;
        }
        self.begin_wait(now);
        self.again.push_back(Again {
            piece,
            path: 0,
            left: false,
        });
    }

    /// A stream is gone.
    pub(super) fn forget_stream(&mut self, stream: &Stream) {
        self.count_words(stream.words(), 0);
        let stream = stream.reference;
        self.streams.retain(|&other| other != stream);
        self.ready.retain(|&other| other != stream);
        self.dirty.retain(|&other| other != stream);
        self.jobs.forget(stream);
    }

    /// Every path is probed: it is measured, and the peer learns that we know it.
    pub(super) fn probe_all(&mut self) {
        for path in &mut self.paths {
            path.probe_due = true;
        }
    }

    /// Lets the timers of paths, acknowledgements and streams fire that are due.
    pub(super) fn handle_timeout<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        streams: &mut Streams,
    ) {
        let now = cx.now;
        for place in 0..self.paths.len() {
            if self.paths[place].probe_at.is_some_and(|at| at <= now) {
                self.path_timed_out(cx.config, now, place, cx.counters);
            }
        }
        for path in &mut self.receive {
            if path.deadline.is_some_and(|at| at <= now) {
                path.deadline = None;
                path.due = true;
            }
        }
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake(cx, streams);
        }
        if self.query_at.is_some_and(|at| at <= now) {
            self.ask(cx, streams);
        }
    }

    /// A stream waits; its connection looks after it then.
    pub(super) fn wake_for(&mut self, stream: &Stream) {
        let at = [self.wake_at, stream.wakes_at()];
        self.wake_at = at.into_iter().flatten().min();
    }

    /// Streams whose wait is over go on.
    fn wake<H: Host>(&mut self, cx: &mut Context<'_, H>, streams: &mut Streams) {
        self.wake_at = None;
        for place in 0..self.streams.len() {
            let Some(stream) = streams.get_mut(self.streams[place]) else {
                continue;
            };
            stream.handle_stream_timer(cx);
            if stream.requester.paused_until.is_some_and(|at| at <= cx.now) {
                stream.requester.paused_until = None;
                self.mark_ready(stream);
            }
            self.wake_for(stream);
        }
    }

    /// Streams that wait for the peer are asked about.
    fn ask<H: Host>(&mut self, cx: &Context<'_, H>, streams: &Streams) {
        let mut all = self.streams.iter().filter_map(|&name| streams.get(name));
        let waiting = all.any(|stream| stream.requester.is_waiting());
        if !waiting {
            self.query_at = None;
            self.queries = 0;
            return;
        }
        let active = self
            .paths
            .iter_mut()
            .find(|path| path.state == PathState::Active);
        if let Some(path) = active {
            path.probe_due = true;
        }
        self.queries = self.queries.saturating_add(1);
        self.query_at = Some(cx.now + self.query_interval(cx.config));
    }

    /// The path that the next packet of data takes: of those with room the one whose window is
    /// emptiest. A repeated piece goes back to the path that lost it, if that has room.
    //= MR-PTH-007
    pub(super) fn choose_path(&self, wish: Option<u8>) -> Option<usize> {
        //= MR-CC-001
        if self.in_flight >= self.window.bytes() && self.in_flight > 0 {
            return None;
        }
        let may_take = |path: &Path| path.has_room() && self.busy & plane_bit(path) == 0;
        if let Some(wish) = wish.map(usize::from)
            && self.paths.get(wish).is_some_and(may_take)
        {
            return Some(wish);
        }
        let count = self.paths.len();
        let mut best: Option<(usize, u64)> = None;
        for step in 0..count {
            let place = (self.turn + step) % count;
            let path = &self.paths[place];
            if !may_take(path) {
                continue;
            }
            let load = (path.in_flight() << 10) / path.window.bytes().max(1);
            if best.is_none_or(|(_, least)| load < least) {
                best = Some((place, load));
            }
        }
        best.map(|(place, _)| place)
    }

    /// Bytes per second that may be sent; none: as many as there are.
    pub(super) fn rate(&self) -> Option<u64> {
        let rate = if self.share == 0 {
            self.peer_rate
        } else if self.peer_rate == 0 {
            self.share
        } else {
            self.share.min(self.peer_rate)
        };
        (rate > 0).then_some(rate)
    }

    /// Granted share in bytes per second; 0: no limit known.
    pub(super) const fn share(&self) -> u64 {
        self.share
    }

    /// Notes bytes that pacing has let pass.
    //= MR-CC-008
    pub(super) fn pace(&mut self, config: &EndpointConfig, now: Instant, bytes: u32) {
        let Some(rate) = self.rate() else {
            return;
        };
        let nanos = |bytes: u64| {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let credit = nanos(config.pacing_burst);
        let earliest = now
            .nanos()
            .saturating_sub(u64::try_from(credit.as_nanos()).unwrap_or(u64::MAX));
        let from = self.pace_at.max(Instant::from_nanos(earliest));
        let wire = u64::from(bytes) + u64::from(config.wire_overhead);
        self.pace_at = from + nanos(wire);
    }

    /// Whether something is under way whose fate only the peer knows. Probes of a path that is
    /// given up do not count while another one is active: a plane may be gone for good.
    pub(super) fn is_waiting(&self) -> bool {
        let active = |path: &&Path| path.state == PathState::Active;
        !self.again.is_empty()
            || self.paths.iter().filter(active).any(Path::is_flying)
            || !(self.paths.is_empty() || self.paths.iter().any(|path| active(&path)))
    }

    /// Something is about to be under way: the wait for the peer begins, if it has not.
    pub(super) fn begin_wait(&mut self, now: Instant) {
        if !self.is_waiting() {
            self.heard = now;
        }
    }

    /// The earliest thing that must be done without a packet's arrival.
    //= MR-CON-016
    pub(super) fn next_timeout(&self, config: &EndpointConfig) -> Option<Instant> {
        match &self.state {
            State::Offering(offer) => return Some(offer.at),
            State::Closing { at, .. } => return Some(*at),
            State::Dead => return None,
            State::Open { .. } => {}
        }
        let probes = self.paths.iter().filter_map(|path| path.probe_at);
        let acks = self.receive.iter().filter_map(|path| path.deadline);
        //= MR-CON-014
        let waits = self.is_waiting() || !self.may_send();
        let dead = waits.then(|| self.heard + config.dead_after);
        // A host without room asks again by itself.
        let pace = (self.busy == 0 && self.has_work()).then_some(self.pace_at);
        probes
            .chain(acks)
            .chain(dead)
            .chain(pace.filter(|_| self.choose_path(None).is_some()))
            .chain(self.query_at)
            .chain(self.wake_at)
            .min()
    }

    /// Whether data waits to be sent.
    pub(super) fn has_work(&self) -> bool {
        self.may_send()
            && (!self.again.is_empty() || self.jobs.has_unsent() || !self.ready.is_empty())
    }
}

/// A window of the rule the endpoint was made with.
fn new_window(config: &EndpointConfig, now: Instant, bytes: u64) -> AnyWindow {
    match config.windows {
        WindowRule::Specified => AnyWindow::Specified(Aimd::new(now, bytes)),
        WindowRule::Fixed(bytes) => AnyWindow::Fixed(Fixed(bytes)),
    }
}

/// A path begins with twice its part of the connection's window, two packets at least.
//= MR-CC-006
fn path_restart_window(connection: u64, paths: u8, segment: u32) -> u64 {
    (connection * 2 / u64::from(paths.max(1))).max(2 * u64::from(segment))
}

pub(super) const fn timing(config: &EndpointConfig) -> Timing {
    Timing {
        ack_delay_max: config.ack_delay_max,
        grain: config.timer_grain,
        rtt_initial: config.rtt_initial,
        probe_interval_max: config.probe_interval_max,
    }
}

pub(super) const fn ack_rule(config: &EndpointConfig) -> AckRule {
    AckRule {
        delay_max: config.ack_delay_max,
        packets_max: config.ack_packets_max,
    }
}

/// Refusals of requests for unknown streams that are kept until the peer has them.
const REFUSALS_MAX: usize = 1024;

/// Shortest segment: the smallest path MTU of verbs.
const SEGMENT_MIN: u32 = 256;

/// A window grows by a sixteenth of its target in a round trip without marks: half of it is won
/// back in eight, whatever the distance.
const INCREASE_DIVISOR: u64 = 16;

trait LenU8 {
    fn len_u8(&self) -> u8;
}

impl LenU8 for Vec<Path> {
    fn len_u8(&self) -> u8 {
        u8::try_from(self.len()).unwrap_or(u8::MAX)
    }
}
