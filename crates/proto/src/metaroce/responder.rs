//! The receiving half of a stream: pieces are placed as they land, messages take effect in order.
//!
//! [`Stream::handle_request`] judges a piece before anything is placed; [`Stream::deliver`] gives
//! effect to what is complete at the head. docs/spec/metaroce/reliability.md and streams.md.

mod effects;

use super::connection::Connection;
use super::job::{Answer, JobRef};
use super::requester::{receiver_delay, segment_of};
use super::segments::{Inserted, Segments};
use super::stream::{Context, Stream};
use crate::qp::access;
use crate::responder::Taken;
use crate::{
    AsyncEvent, AtomicOperation, CompletionOpcode, CompletionStatus, Host, QpState, RemoteAccess,
    RemoteRange,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use feroce_wire::metaroce::{
    MessageNumber, ReceiveNumber, Refusal, RefusalCode, Request, RequestOpcode,
};

/// A message that is coming in, or complete and waiting for its turn.
#[derive(Debug)]
struct Inbound {
    /// As its pieces describe it; without payload and place.
    head: Request<'static>,
    segments: Segments,
    total: u32,
    /// From the shared receive queue.
    taken: Option<Taken>,
    fault: Option<Fault>,
}

impl Inbound {
    const fn is_complete(&self) -> bool {
        self.fault.is_some() || self.segments.count() >= self.total
    }
}

/// Why a message fails when its turn comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fault {
    code: RefusalCode,
    /// How the receive it uses completes, if not flushed.
    status: Option<CompletionStatus>,
    /// It is the local program's fault, or the peer's access.
    event: FaultEvent,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FaultEvent {
    Nothing,
    Access,
    Request,
}

const ACCESS: Fault = Fault {
    code: RefusalCode::RemoteAccess,
    status: None,
    event: FaultEvent::Access,
};

const INVALID: Fault = Fault {
    code: RefusalCode::InvalidRequest,
    status: None,
    event: FaultEvent::Request,
};

const TOO_LONG: Fault = Fault {
    code: RefusalCode::InvalidRequest,
    status: Some(CompletionStatus::LocalLength),
    event: FaultEvent::Nothing,
};

const LOCAL: Fault = Fault {
    code: RefusalCode::RemoteOperation,
    status: Some(CompletionStatus::LocalProtection),
    event: FaultEvent::Nothing,
};

/// The receiving half.
#[derive(Debug, Default)]
pub(super) struct Responder {
    /// Every message before it has taken effect.
    pub(super) expected: MessageNumber,
    /// From `expected` on.
    inbound: VecDeque<Option<Box<Inbound>>>,
    /// Answers of READs and atomics that the requester may not have, the oldest first.
    answers: VecDeque<JobRef>,
    /// The limit of receives that the peer was last told of.
    pub(super) told_limit: Option<ReceiveNumber>,
}

impl Responder {
    pub(super) const fn begin(&mut self, number: MessageNumber) {
        self.expected = number;
    }

    /// Words in use for segments out of order.
    pub(super) fn words(&self) -> usize {
        let inbound = self.inbound.iter().flatten();
        inbound.map(|record| record.segments.words()).sum()
    }

    /// Shared receives that messages hold; they are given up.
    pub(super) fn take_all(&mut self) -> Vec<u64> {
        let inbound = self.inbound.drain(..).flatten();
        let taken = inbound.filter_map(|message| message.taken);
        taken.map(|taken| taken.request.wr_id).collect()
    }
}

/// What became of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handled {
    /// It is dealt with.
    Accepted,
    /// There is no room to note it: as if it had not arrived.
    NoRoom,
}

impl Stream {
    /// A piece of a request. Nothing is placed that has been before.
    pub(super) fn handle_request<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        request: &Request<'_>,
    ) -> Handled {
        if !matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend) {
            // In the error state it says nothing more: the peer has been told why.
            return Handled::Accepted;
        }
        let ahead = request.message.distance_from(self.responder.expected);
        let Ok(place) = usize::try_from(ahead) else {
            //= MR-REL-022
            // It took effect: the peer has missed that.
            cx.counters.duplicate_messages += 1;
            connection.mark_dirty(self);
            return Handled::Accepted;
        };
        //= MR-STR-005
        if place >= usize::from(cx.config.message_window) {
            cx.counters.dropped_violation += 1;
            return Handled::NoRoom;
        }
        //= MR-REL-004
        //= MR-SEC-003
        match self.admit(cx, connection, place, request) {
            Admission::Place(segment) => self.place(cx, connection, place, segment, request),
            Admission::Known => {
                cx.counters.duplicate_segments += 1;
            }
            Admission::NoRoom => {
                cx.counters.dropped_resources += 1;
                return Handled::NoRoom;
            }
            Admission::NotReady => self.refuse_for_now(cx, connection, request.message),
        }
        self.deliver(cx, connection);
        Handled::Accepted
    }

    /// Finds or makes the message's record and judges the piece; places nothing.
    fn admit<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        place: usize,
        request: &Request<'_>,
    ) -> Admission {
        let inbound = &mut self.responder.inbound;
        while inbound.len() <= place {
            inbound.push_back(None);
        }
        let bytes = connection.segment();
        let carried = if request.opcode.has_payload() {
            request.length
        } else {
            0
        };
        let segment = segment_of(request.offset, request.payload, carried, bytes);
        if inbound[place].is_none() {
            let record = Inbound {
                head: head_of(request),
                segments: Segments::default(),
                total: carried.div_ceil(bytes).max(1),
                taken: None,
                fault: None,
            };
            inbound[place] = Some(Box::new(record));
            match self.begin_message(cx, connection, place, request) {
                Begin::Good => {}
                Begin::Fault(fault) => self.set_fault(place, fault),
                Begin::NotReady => {
                    self.responder.inbound[place] = None;
                    return Admission::NotReady;
                }
            }
        }
        let Some(record) = self.responder.inbound[place].as_deref_mut() else {
            return Admission::Known;
        };
        if record.fault.is_some() {
            return Admission::Known;
        }
        let Some(segment) = segment.filter(|_| is_same(&record.head, request)) else {
            record.fault = Some(INVALID);
            return Admission::Known;
        };
        match record
            .segments
            .judge(segment, connection.words_left(cx.config))
        {
            Inserted::New => Admission::Place(segment),
            Inserted::Duplicate => Admission::Known,
            Inserted::TooFar => Admission::NoRoom,
        }
    }

    fn set_fault(&mut self, place: usize, fault: Fault) {
        if let Some(Some(record)) = self.responder.inbound.get_mut(place) {
            record.fault.get_or_insert(fault);
        }
    }

    /// Checks a message whole, by whichever piece comes first, and finds its receive.
    fn begin_message<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        place: usize,
        request: &Request<'_>,
    ) -> Begin {
        let needed = match request.opcode {
            RequestOpcode::Write | RequestOpcode::WriteImmediate | RequestOpcode::AtomicWrite => {
                access::REMOTE_WRITE
            }
            RequestOpcode::Read => access::REMOTE_READ,
            RequestOpcode::CompareSwap | RequestOpcode::FetchAdd => access::REMOTE_ATOMIC,
            //= MR-STR-019
            RequestOpcode::Datagram | RequestOpcode::DatagramImmediate => {
                return Begin::Fault(INVALID);
            }
            _ => 0,
        };
        if self.target.access_flags & needed != needed {
            return Begin::Fault(INVALID);
        }
        let eight = matches!(
            request.opcode,
            RequestOpcode::AtomicWrite | RequestOpcode::CompareSwap | RequestOpcode::FetchAdd
        );
        if eight && (request.length != 8 || !request.remote.address.is_multiple_of(8)) {
            return Begin::Fault(INVALID);
        }
        let kind = match request.opcode {
            RequestOpcode::Write | RequestOpcode::WriteImmediate | RequestOpcode::AtomicWrite => {
                Some(RemoteAccess::Write)
            }
            _ => None,
        };
        if let Some(kind) = kind
            && request.length > 0
            //= MR-STR-016
            && self.check(cx, request, kind).is_err()
        {
            return Begin::Fault(ACCESS);
        }
        if request.opcode.uses_receive() {
            self.find_receive(cx, connection, place, request)
        } else {
            Begin::Good
        }
    }

    fn range(&self, request: &Request<'_>, offset: u32, length: u32) -> RemoteRange {
        RemoteRange {
            pd: self.init.pd,
            qpn: self.qpn,
            rkey: request.remote.key,
            address: request.remote.address.wrapping_add(u64::from(offset)),
            length: u64::from(length),
        }
    }

    fn check<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        request: &Request<'_>,
        access: RemoteAccess,
    ) -> Result<(), Fault> {
        let range = self.range(request, 0, request.length);
        range.address.checked_add(range.length).ok_or(ACCESS)?;
        cx.host.check(&range, access).map_err(|_| ACCESS)
    }

    /// The receive that a message names, or one from the shared queue.
    fn find_receive<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        place: usize,
        request: &Request<'_>,
    ) -> Begin {
        let needed = if request.opcode == RequestOpcode::WriteImmediate {
            0
        } else {
            u64::from(request.length)
        };
        let Some(srq) = self.init.srq else {
            let ahead = request.receive.distance_from(self.receive_base);
            let posted = usize::try_from(ahead).ok();
            // A number that is past can not belong to a message that is not.
            let Some(posted) = posted else {
                return Begin::Fault(INVALID);
            };
            return match self.receives.get(posted) {
                None => Begin::NotReady,
                Some(receive) if capacity(&receive.sges) < needed => Begin::Fault(TOO_LONG),
                Some(_) => Begin::Good,
            };
        };
        let taken = match cx.srqs.take(srq) {
            Some((taken, event)) => {
                if let Some(event) = event {
                    cx.host.event(event);
                }
                taken
            }
            None => match self.steal_receive(connection, place) {
                Some((taken, message)) => {
                    self.refuse_for_now(cx, connection, message);
                    taken
                }
                None => return Begin::NotReady,
            },
        };
        let short = taken.capacity() < needed;
        if let Some(Some(record)) = self.responder.inbound.get_mut(place) {
            record.taken = Some(taken);
        }
        if short {
            Begin::Fault(TOO_LONG)
        } else {
            Begin::Good
        }
    }

    /// The shared queue is empty, but a later message holds a receive: the earlier one needs it
    /// more, because the later one cannot complete before it. The later one must come again.
    //= MR-STR-011
    fn steal_receive(
        &mut self,
        connection: &mut Connection,
        place: usize,
    ) -> Option<(Taken, MessageNumber)> {
        let inbound = &mut self.responder.inbound;
        let later = (place + 1..inbound.len()).rev().find(|&later| {
            let record = inbound[later].as_deref();
            record.is_some_and(|record| record.taken.is_some())
        })?;
        let record = inbound[later].take()?;
        connection.count_words(record.segments.words(), 0);
        let steps = u32::try_from(later).ok()?;
        Some((record.taken?, self.responder.expected.plus(steps)))
    }

    /// Puts a piece into its place and notes it.
    fn place<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        place: usize,
        segment: u32,
        request: &Request<'_>,
    ) {
        let fault = self.copy(cx, place, request).err();
        let Some(Some(record)) = self.responder.inbound.get_mut(place) else {
            return;
        };
        let before = record.segments.words();
        record.segments.insert(segment);
        connection.count_words(before, record.segments.words());
        if let Some(fault) = fault {
            record.fault = Some(fault);
        }
    }

    //= MR-STR-002
    //= MR-SEC-006
    fn copy<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        place: usize,
        request: &Request<'_>,
    ) -> Result<(), Fault> {
        if request.payload.is_empty() {
            return Ok(());
        }
        let bytes = u32::try_from(request.payload.len()).unwrap_or(u32::MAX);
        match request.opcode {
            RequestOpcode::Write | RequestOpcode::WriteImmediate => {
                let range = self.range(request, request.offset, bytes);
                cx.host.write(&range, request.payload).map_err(|_| ACCESS)
            }
            RequestOpcode::Send | RequestOpcode::SendImmediate | RequestOpcode::SendInvalidate => {
                let record = self.responder.inbound.get(place);
                let record = record.and_then(|record| record.as_deref());
                let taken = record.and_then(|record| record.taken.as_ref());
                let (pd, sges) = match taken {
                    Some(taken) => (taken.pd, &taken.request.sges),
                    None => {
                        let posted = request.receive.distance_from(self.receive_base);
                        let posted = usize::try_from(posted).map_err(|_| INVALID)?;
                        let receive = self.receives.get(posted).ok_or(INVALID)?;
                        (self.init.pd, &receive.sges)
                    }
                };
                let offset = u64::from(request.offset);
                cx.host
                    .scatter(pd, sges, offset, request.payload)
                    .map_err(|_| LOCAL)
            }
            // Eight bytes that must not be seen in part: written when their turn comes.
            RequestOpcode::AtomicWrite => Ok(()),
            _ => Ok(()),
        }
    }

    fn refuse_for_now<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        message: MessageNumber,
    ) {
        cx.counters.refused_not_ready += 1;
        let delay = receiver_delay(self.target.min_rnr_timer);
        let refusal = Refusal {
            code: RefusalCode::NotReady,
            delay_nanos: u32::try_from(delay.as_nanos()).unwrap_or(u32::MAX),
        };
        connection.answer(self, message, Answer::Refused(refusal), 1);
    }

    /// The message at the head fails, and the stream with it.
    //= MR-STR-015
    fn refuse<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        record: &Inbound,
        fault: Fault,
    ) {
        cx.counters.refused += 1;
        let refusal = Refusal {
            code: fault.code,
            delay_nanos: 0,
        };
        connection.answer(self, record.head.message, Answer::Refused(refusal), 1);
        if record.head.opcode.uses_receive() {
            let taken = record.taken.as_ref().map(|taken| taken.request.wr_id);
            let own = || self.receives.pop_front().map(|receive| receive.wr_id);
            if let Some(wr_id) = taken.or_else(own) {
                let status = fault.status;
                let status = status.unwrap_or(CompletionStatus::WorkRequestFlushed);
                let what = (wr_id, CompletionOpcode::Receive);
                self.complete_error(cx.host, self.init.recv_cq, what, status);
            }
        }
        match fault.event {
            FaultEvent::Nothing => {}
            FaultEvent::Access => cx.host.event(AsyncEvent::QpAccessError(self.qpn)),
            FaultEvent::Request => cx.host.event(AsyncEvent::QpRequestError(self.qpn)),
        }
        self.enter_error(cx, CompletionStatus::WorkRequestFlushed);
    }
}

/// What a piece comes to before anything is placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Admission {
    /// This segment is new.
    Place(u32),
    /// It has been placed, or its message has failed.
    Known,
    NoRoom,
    /// Its message finds no receive.
    NotReady,
}

/// How a message begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    Good,
    Fault(Fault),
    NotReady,
}

/// What a piece says of its message. The eight bytes of an atomic write, which must not be seen in
/// part, are kept as an operand until their turn comes.
fn head_of(piece: &Request<'_>) -> Request<'static> {
    let mut atomic = piece.atomic;
    if piece.opcode == RequestOpcode::AtomicWrite
        && let Ok(value) = piece.payload.try_into()
    {
        atomic.operand = u64::from_ne_bytes(value);
    }
    Request {
        opcode: piece.opcode,
        solicited: piece.solicited,
        stream: piece.stream,
        message: piece.message,
        offset: 0,
        length: piece.length,
        receive: piece.receive,
        remote: piece.remote,
        atomic,
        datagram: piece.datagram,
        word: piece.word,
        payload: &[],
    }
}

/// Whether a piece describes its message as the first one did.
fn is_same(head: &Request<'_>, piece: &Request<'_>) -> bool {
    head.opcode == piece.opcode
        && head.length == piece.length
        && head.remote == piece.remote
        && head.receive == piece.receive
        && head.word == piece.word
}

fn capacity(sges: &[crate::Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}
