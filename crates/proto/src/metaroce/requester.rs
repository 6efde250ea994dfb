//! The sending half of a stream: work requests become numbered messages, messages become pieces.

mod answers;

use super::connection::Connection;
use super::path::Piece;
use super::segments::{Inserted, Segments};
use super::stream::{Context, Stream, StreamRef};
use crate::{
    CompletionOpcode, CompletionStatus, Data, Host, Instant, PostError, QpState, SendOperation,
    SendRequest,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;
use feroce_wire::metaroce::{
    MessageNumber, ReceiveNumber, RefusalCode, RequestOpcode, Response, ResponseOpcode, Update,
};
use feroce_wire::timing;

/// A send request in the queue.
#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) request: SendRequest,
    /// Its message; a local operation has the number of the message behind it.
    pub(super) number: MessageNumber,
    pub(super) receive: ReceiveNumber,
    pub(super) length: u32,
    segments: u32,
    /// First segment that has never been sent.
    next: u32,
    started: bool,
    answered: bool,
    /// READ: the segments that have arrived.
    arrived: Option<Box<Segments>>,
    failed: Option<CompletionStatus>,
}

impl Outbound {
    /// None: a local operation.
    pub(super) const fn opcode(&self) -> Option<RequestOpcode> {
        opcode_of(&self.request.operation)
    }

    fn is_answered_kind(&self) -> bool {
        self.opcode().is_some_and(RequestOpcode::is_answered)
    }

    //= MR-REL-020
    fn is_done(&self, confirmed: MessageNumber) -> bool {
        match self.opcode() {
            Some(opcode) if opcode.is_answered() => self.answered,
            Some(_) => self.number.distance_from(confirmed) < 0,
            None => self.answered,
        }
    }
}

const fn opcode_of(operation: &SendOperation) -> Option<RequestOpcode> {
    Some(match operation {
        SendOperation::Send => RequestOpcode::Send,
        SendOperation::SendImmediate(_) => RequestOpcode::SendImmediate,
        SendOperation::SendInvalidate(_) => RequestOpcode::SendInvalidate,
        SendOperation::Write(_) => RequestOpcode::Write,
        SendOperation::WriteImmediate(..) => RequestOpcode::WriteImmediate,
        SendOperation::Read(_) => RequestOpcode::Read,
        SendOperation::CompareSwap { .. } => RequestOpcode::CompareSwap,
        SendOperation::FetchAdd { .. } => RequestOpcode::FetchAdd,
        SendOperation::AtomicWrite(_) => RequestOpcode::AtomicWrite,
        SendOperation::Flush { .. } => RequestOpcode::Flush,
        SendOperation::LocalInvalidate(_) | SendOperation::Bind(_) => return None,
    })
}

/// What keeps a stream from sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Blocked {
    /// It has nothing to send, or waits for answers.
    Waiting,
    /// The peer has no receive for the next message.
    Credits,
}

/// The sending half.
#[derive(Debug, Default)]
pub(super) struct Requester {
    pub(super) queue: VecDeque<Outbound>,
    /// Of the next message that is posted.
    next_number: MessageNumber,
    next_receive: ReceiveNumber,
    /// Every message before it is complete at the peer.
    confirmed: MessageNumber,
    /// First entry with segments that have never been sent.
    cursor: usize,
    /// Receives of the peer before this number are posted.
    limit: Option<ReceiveNumber>,
    shared: bool,
    delay_code: u8,
    /// READs and atomics started, and not answered together with all before them.
    reads: u32,
    /// Nothing is sent before.
    pub(super) paused_until: Option<Instant>,
    /// Waits without success for a receive, or for a peer that knows the stream.
    tries: u8,
    /// A request has failed: nothing more is sent.
    stopped: bool,
    /// When waiting for a receive becomes one try more.
    pub(super) credits_at: Option<Instant>,
}

impl Requester {
    pub(super) const fn begin(&mut self, number: MessageNumber) {
        self.next_number = number;
        self.confirmed = number;
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Words in use for segments out of order.
    pub(super) fn words(&self) -> usize {
        let arrived = self
            .queue
            .iter()
            .filter_map(|entry| entry.arrived.as_deref());
        arrived.map(Segments::words).sum()
    }

    /// Whether messages are under way that the peer has not confirmed or answered.
    pub(super) fn is_waiting(&self) -> bool {
        self.queue.front().is_some_and(|front| front.started) || self.credits_at.is_some()
    }

    /// Takes the oldest request, whatever its state.
    pub(super) fn pop_any(&mut self) -> Option<(u64, CompletionOpcode)> {
        let front = self.queue.pop_front()?;
        self.cursor = 0;
        let opcode = front.request.operation.completion_opcode();
        Some((front.request.wr_id, opcode))
    }

    /// A message that is still wanted at the peer.
    pub(super) fn find(&self, message: MessageNumber) -> Option<&Outbound> {
        let place = self.place(message)?;
        let found = &self.queue[place];
        let wanted = message.distance_from(self.confirmed) >= 0 && found.started && !found.answered;
        wanted.then_some(found)
    }

    fn place(&self, message: MessageNumber) -> Option<usize> {
        let front = self.queue.front()?;
        let first = usize::try_from(message.distance_from(front.number)).ok()?;
        // Local operations take places, but no numbers.
        let rest = self.queue.iter().enumerate().skip(first);
        let mut rest = rest.filter(|(_, entry)| entry.opcode().is_some());
        let place = rest.find(|(_, entry)| entry.number.distance_from(message) >= 0);
        place
            .filter(|(_, entry)| entry.number == message)
            .map(|(place, _)| place)
    }

    fn blocked(&self, stream: &Limits) -> Option<Blocked> {
        let entry = self.queue.get(self.cursor)?;
        if entry.started {
            return None;
        }
        let opcode = entry.opcode();
        //= MR-STR-004
        let fence = entry.request.flags.fence && self.reads > 0;
        if fence {
            return Some(Blocked::Waiting);
        }
        let opcode = opcode?;
        let ahead = entry.number.distance_from(self.confirmed);
        //= MR-STR-005
        if ahead >= i32::from(stream.message_window) {
            return Some(Blocked::Waiting);
        }
        if opcode.is_answered() && self.reads >= stream.reads_max {
            return Some(Blocked::Waiting);
        }
        if opcode.uses_receive() && !self.shared {
            //= MR-STR-007
            let posted = match self.limit {
                Some(limit) => entry.receive.distance_from(limit) < 0,
                // Nothing is known: one message finds out.
                None => ahead == 0,
            };
            if !posted {
                return Some(Blocked::Credits);
            }
        }
        None
    }

    /// Executes local operations whose turn it is, and moves on to what can be sent.
    pub(super) fn advance<H: Host>(
        stream: &mut Stream,
        cx: &mut Context<'_, H>,
        limits: &Limits,
    ) -> bool {
        if stream.state != QpState::ReadyToSend || stream.requester.stopped {
            return false;
        }
        if let Some(until) = stream.requester.paused_until {
            if cx.now < until {
                return false;
            }
            stream.requester.paused_until = None;
        }
        loop {
            let requester = &mut stream.requester;
            let Some(entry) = requester.queue.get(requester.cursor) else {
                return false;
            };
            if entry.started && entry.next >= entry.segments {
                requester.cursor += 1;
                continue;
            }
            match requester.blocked(limits) {
                None => {}
                Some(Blocked::Waiting) => return false,
                Some(Blocked::Credits) => {
                    if requester.credits_at.is_none() {
                        let wait = receiver_delay(requester.delay_code);
                        requester.credits_at = Some(cx.now + wait);
                    }
                    return false;
                }
            }
            if stream.requester.queue[stream.requester.cursor]
                .opcode()
                .is_some()
            {
                return true;
            }
            if !stream.execute_local(cx) {
                return false;
            }
        }
    }

    /// Takes the next piece after [`advance`](Self::advance) said there is one.
    pub(super) fn take(&mut self, stream: StreamRef) -> Option<Piece> {
        let entry = self.queue.get_mut(self.cursor)?;
        if !entry.started {
            entry.started = true;
            self.reads += u32::from(entry.is_answered_kind());
            self.credits_at = None;
        }
        let segment = entry.next;
        entry.next += 1;
        if entry.next >= entry.segments {
            self.cursor += 1;
        }
        let message = entry.number;
        Some(Piece::Request {
            stream,
            message,
            segment,
        })
    }

    /// Segments that have never been sent, if the queue ends with their message.
    pub(super) fn tail(&self) -> Option<u32> {
        match self.queue.len().checked_sub(self.cursor)? {
            0 => Some(0),
            1 => self
                .queue
                .get(self.cursor)
                .map(|entry| entry.segments - entry.next),
            _ => None,
        }
    }

    /// A message must be sent again from its beginning.
    fn rewind(&mut self, place: usize) {
        if let Some(entry) = self.queue.get_mut(place) {
            entry.next = 0;
            self.cursor = self.cursor.min(place);
        }
    }
}

/// What limits a stream besides its own state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) message_window: u16,
    pub(super) reads_max: u32,
}

impl Stream {
    /// A request posted in the error state completes at once.
    pub(super) fn flush_posted<H: Host>(&mut self, host: &mut H, wr_id: u64) {
        if let Some(entry) = self.requester.queue.pop_back() {
            let opcode = entry.request.operation.completion_opcode();
            let status = CompletionStatus::WorkRequestFlushed;
            self.complete_error(host, self.init.send_cq, (wr_id, opcode), status);
        }
    }

    /// Queues a send request.
    pub(super) fn post_send(
        &mut self,
        request: SendRequest,
        segment: u32,
    ) -> Result<(), PostError> {
        if !matches!(self.state, QpState::ReadyToSend | QpState::Error) {
            return Err(PostError::BadState(self.state));
        }
        let max = self.init.capabilities.max_send_wr;
        if self.requester.len() >= max as usize {
            return Err(PostError::QueueFull(max));
        }
        let length = self.check_request(&request)?;
        let requester = &mut self.requester;
        let opcode = opcode_of(&request.operation);
        let carries = opcode.is_none_or(RequestOpcode::has_payload);
        requester.queue.push_back(Outbound {
            number: requester.next_number,
            receive: requester.next_receive,
            length,
            segments: if carries {
                length.div_ceil(segment).max(1)
            } else {
                1
            },
            next: 0,
            started: false,
            answered: false,
            arrived: None,
            failed: None,
            request,
        });
        if let Some(opcode) = opcode {
            requester.next_number = requester.next_number.next();
            if opcode.uses_receive() {
                //= MR-STR-006
                requester.next_receive = requester.next_receive.next();
            }
        }
        Ok(())
    }

    fn check_request(&self, request: &SendRequest) -> Result<u32, PostError> {
        let capabilities = &self.init.capabilities;
        match &request.data {
            Data::Gather(sges) if sges.len() > capabilities.max_send_sge as usize => {
                return Err(PostError::TooManySge {
                    asked: sges.len(),
                    max: capabilities.max_send_sge,
                });
            }
            Data::Inline(bytes) if bytes.len() > capabilities.max_inline_data as usize => {
                return Err(PostError::InlineTooLong {
                    asked: bytes.len(),
                    max: capabilities.max_inline_data,
                });
            }
            _ => {}
        }
        let opcode = opcode_of(&request.operation);
        let bytes = match request.operation {
            SendOperation::Flush { length, .. } => u64::from(length),
            _ => request.data.len(),
        };
        if bytes > u64::from(feroce_wire::metaroce::MESSAGE_BYTES_MAX) {
            return Err(PostError::TooLong {
                bytes,
                max: u64::from(feroce_wire::metaroce::MESSAGE_BYTES_MAX),
            });
        }
        let eight = matches!(
            opcode,
            Some(RequestOpcode::CompareSwap | RequestOpcode::FetchAdd | RequestOpcode::AtomicWrite)
        );
        if eight && bytes != 8 {
            return Err(PostError::AtomicLength(bytes));
        }
        if opcode.is_some_and(RequestOpcode::is_answered) && matches!(request.data, Data::Inline(_))
        {
            return Err(PostError::InlineNotAllowed);
        }
        Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
    }

    /// Executes the local operation under the cursor. False: it failed, and the stream with it.
    fn execute_local<H: Host>(&mut self, cx: &mut Context<'_, H>) -> bool {
        let cursor = self.requester.cursor;
        let Some(entry) = self.requester.queue.get_mut(cursor) else {
            return false;
        };
        let (pd, qpn) = (self.init.pd, self.qpn);
        let (done, failure) = match entry.request.operation {
            SendOperation::LocalInvalidate(key) => (
                cx.host.local_invalidate(pd, qpn, key),
                CompletionStatus::LocalQpOperation,
            ),
            SendOperation::Bind(ref bind) => {
                (cx.host.bind(pd, qpn, bind), CompletionStatus::WindowBind)
            }
            _ => return false,
        };
        entry.started = true;
        entry.next = entry.segments;
        entry.answered = true;
        self.requester.cursor += 1;
        if done.is_err() {
            self.fail_at(cx, cursor, failure);
            return false;
        }
        self.complete_done(cx);
        true
    }

    /// A request fails: nothing more is sent, and when those before it are complete, it completes
    /// with `status` and the rest is flushed.
    pub(super) fn fail_at<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        place: usize,
        status: CompletionStatus,
    ) {
        if let Some(entry) = self.requester.queue.get_mut(place) {
            entry.failed.get_or_insert(status);
        }
        self.requester.stopped = true;
        self.complete_done(cx);
    }

    /// As [`fail_at`](Self::fail_at), for a message.
    pub(super) fn fail_message<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        message: MessageNumber,
        status: CompletionStatus,
    ) {
        if let Some(place) = self.requester.place(message) {
            self.fail_at(cx, place, status);
        }
    }

    fn complete_front<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let Some(front) = self.requester.queue.pop_front() else {
            return;
        };
        self.requester.cursor = self.requester.cursor.saturating_sub(1);
        // Answers come in any order, but a place is free again in order only: so the responder
        // knows that a request beyond the limit confirms the oldest answer.
        if front.is_answered_kind() {
            self.requester.reads = self.requester.reads.saturating_sub(1);
        }
        let opcode = front.request.operation.completion_opcode();
        if front.request.flags.signaled || self.init.signal_all {
            let mut completion = self.completion(front.request.wr_id, opcode);
            completion.byte_len = front.length;
            cx.host.complete(self.init.send_cq, completion);
        }
    }

    /// Completes what is done, in order.
    pub(super) fn complete_done<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        while let Some(front) = self.requester.queue.front() {
            if let Some(status) = front.failed {
                self.enter_error(cx, status);
                return;
            }
            if !front.is_done(self.requester.confirmed) {
                return;
            }
            self.complete_front(cx);
        }
    }

    /// News of the peer's half.
    /// Returns whether the stream has come on by it.
    pub(super) fn updated<H: Host>(&mut self, cx: &mut Context<'_, H>, update: &Update) -> bool {
        if self.state != QpState::ReadyToSend {
            return false;
        }
        let requester = &mut self.requester;
        let beyond = update.completed.distance_from(requester.next_number) > 0;
        if beyond {
            cx.counters.dropped_violation += 1;
            return false;
        }
        let mut news = false;
        if update.completed.distance_from(requester.confirmed) > 0 {
            requester.confirmed = update.completed;
            requester.tries = 0;
            news = true;
        }
        requester.delay_code = update.delay_code;
        match update.limit {
            None => requester.shared = true,
            Some(limit) => {
                let old = requester.limit.unwrap_or(ReceiveNumber(0));
                if requester.limit.is_none() || limit.distance_from(old) > 0 {
                    requester.limit = Some(limit);
                    requester.credits_at = None;
                    requester.tries = 0;
                    news = true;
                }
            }
        }
        self.complete_done(cx);
        news
    }
}

/// IBTA 9.7.5.2.8: seven means for ever.
const RNR_FOR_EVER: u8 = 7;

/// First wait for a peer that does not know the stream; its program is about to connect it.
const UNKNOWN_STREAM_DELAY: Duration = Duration::from_millis(1);

/// That wait doubles this often: up to 64 ms.
const DOUBLINGS_MAX: u8 = 6;

/// Longest wait that a refusal may ask for: the longest of the table of RNR timers.
const DELAY_MAX: Duration = Duration::from_millis(656);

/// The time a requester waits for a receive.
pub(super) fn receiver_delay(code: u8) -> Duration {
    timing::rnr_delay(code)
}

/// The segment that a piece is; none if its place or length is no segment's.
//= MR-REL-007
pub(super) fn segment_of(
    offset: u32,
    payload: &[u8],
    length: u32,
    segment_bytes: u32,
) -> Option<u32> {
    if !offset.is_multiple_of(segment_bytes) {
        return None;
    }
    let expected = length.saturating_sub(offset).min(segment_bytes);
    (payload.len() == expected as usize).then(|| offset / segment_bytes)
}
