//! What the peer answers, and what is done when it does not. Not here: what is asked.

use super::{
    CompletionStatus, Connection, Context, DELAY_MAX, DOUBLINGS_MAX, Data, Duration, Host,
    Inserted, Instant, QpState, RNR_FOR_EVER, RefusalCode, RequestOpcode, Response, ResponseOpcode,
    Stream, UNKNOWN_STREAM_DELAY, receiver_delay, segment_of,
};

impl Stream {
    /// A piece of a response. False: there is no room to note it, so it has not arrived.
    pub(in crate::metaroce) fn handle_response<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        response: &Response<'_>,
    ) -> bool {
        if self.state != QpState::ReadyToSend {
            return true;
        }
        let Some(place) = self.requester.place(response.message) else {
            cx.counters.duplicate_messages += 1;
            return true;
        };
        let entry = &self.requester.queue[place];
        if !entry.started || entry.answered {
            cx.counters.duplicate_messages += 1;
            return true;
        }
        match (response.opcode, entry.opcode()) {
            (ResponseOpcode::ReadData, Some(RequestOpcode::Read)) => {
                self.handle_read_data(cx, connection, place, response)
            }
            (
                ResponseOpcode::Original,
                Some(RequestOpcode::CompareSwap | RequestOpcode::FetchAdd),
            ) => {
                self.answer(cx, place, &response.original.to_ne_bytes());
                true
            }
            (ResponseOpcode::Refused, _) => {
                self.handle_refusal(cx, place, response);
                true
            }
            _ => {
                cx.counters.dropped_violation += 1;
                true
            }
        }
    }

    pub(super) fn handle_read_data<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        place: usize,
        response: &Response<'_>,
    ) -> bool {
        let (pd, entry) = (self.init.pd, &mut self.requester.queue[place]);
        let segment_bytes = connection.segment();
        let Some(segment) = segment_of(
            response.offset,
            response.payload,
            entry.length,
            segment_bytes,
        )
        .filter(|_| response.length == entry.length) else {
            cx.counters.dropped_violation += 1;
            return true;
        };
        let arrived = entry.arrived.get_or_insert_default();
        match arrived.judge(segment, connection.words_left(cx.config)) {
            Inserted::New => {}
            Inserted::Duplicate => {
                cx.counters.duplicate_segments += 1;
                return true;
            }
            Inserted::TooFar => return false,
        }
        let Data::Gather(sges) = &entry.request.data else {
            return true;
        };
        let placed = cx
            .host
            .scatter(pd, sges, u64::from(response.offset), response.payload);
        if placed.is_err() {
            self.fail_at(cx, place, CompletionStatus::LocalProtection);
            return true;
        }
        let before = arrived.words();
        arrived.insert(segment);
        connection.count_words(before, arrived.words());
        let total = entry.length.div_ceil(segment_bytes).max(1);
        if arrived.count() >= total {
            let words = arrived.words();
            connection.count_words(words, 0);
            self.answer(cx, place, &[]);
        }
        true
    }

    /// A READ or an atomic has its answer.
    pub(super) fn answer<H: Host>(&mut self, cx: &mut Context<'_, H>, place: usize, value: &[u8]) {
        let (pd, entry) = (self.init.pd, &mut self.requester.queue[place]);
        if let (Data::Gather(sges), false) = (&entry.request.data, value.is_empty())
            && cx.host.scatter(pd, sges, 0, value).is_err()
        {
            self.fail_at(cx, place, CompletionStatus::LocalProtection);
            return;
        }
        entry.answered = true;
        entry.arrived = None;
        let after = entry.number.next();
        let requester = &mut self.requester;
        requester.tries = 0;
        // It was executed, so everything before it was.
        if after.distance_from(requester.confirmed) > 0 {
            requester.confirmed = after;
        }
        self.complete_done(cx);
    }

    pub(super) fn handle_refusal<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        place: usize,
        response: &Response<'_>,
    ) {
        let Some(refusal) = response.refusal else {
            return;
        };
        if !refusal.code.is_temporary() {
            let status = match refusal.code {
                RefusalCode::InvalidRequest => CompletionStatus::RemoteInvalidRequest,
                RefusalCode::RemoteAccess => CompletionStatus::RemoteAccess,
                _ => CompletionStatus::RemoteOperation,
            };
            //= MR-STR-017
            // Everything before it was executed, or it would not have been judged.
            self.requester.confirmed = response.message;
            self.complete_done(cx);
            let place = self.requester.place(response.message).unwrap_or(0);
            self.fail_at(cx, place, status);
            return;
        }
        self.requester.rewind(place);
        // What else was under way is refused too; that is one try, not many.
        if self.requester.paused_until.is_some_and(|at| at > cx.now) {
            return;
        }
        let asked = Duration::from_nanos(u64::from(refusal.delay_nanos)).min(DELAY_MAX);
        if refusal.code == RefusalCode::NotReady {
            self.requester.paused_until = Some(cx.now + asked);
            if self.target.rnr_retry != RNR_FOR_EVER {
                let limit = self.target.rnr_retry;
                self.count_try(cx, place, limit, CompletionStatus::RnrRetryExceeded);
            }
        } else {
            let doublings = u32::from(self.requester.tries.min(DOUBLINGS_MAX));
            self.requester.paused_until = Some(cx.now + UNKNOWN_STREAM_DELAY * (1 << doublings));
            let limit = self.target.retry_count.saturating_add(DOUBLINGS_MAX);
            self.count_try(cx, place, limit, CompletionStatus::RetryExceeded);
        }
    }

    /// One wait more for a receive or a peer; too many are an error.
    pub(super) fn count_try<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        place: usize,
        limit: u8,
        status: CompletionStatus,
    ) {
        if self.requester.tries >= limit {
            self.fail_at(cx, place, status);
        } else {
            self.requester.tries += 1;
        }
    }

    /// When its wait ends: after a refusal, or for a receive where that counts.
    pub(in crate::metaroce) fn wakes_at(&self) -> Option<Instant> {
        let counts = self.target.rnr_retry != RNR_FOR_EVER;
        let credits = self.requester.credits_at.filter(|_| counts);
        let waits = [self.requester.paused_until, credits];
        let sends = self.state == QpState::ReadyToSend;
        waits.into_iter().flatten().min().filter(|_| sends)
    }

    /// Waiting for a receive has taken as long as the peer said.
    //= MR-STR-009
    pub(in crate::metaroce) fn handle_stream_timer<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let due = self.requester.credits_at.is_some_and(|at| at <= cx.now);
        if due {
            let wait = receiver_delay(self.requester.delay_code);
            self.requester.credits_at = Some(cx.now + wait);
            let (limit, place) = (self.target.rnr_retry, self.requester.cursor);
            if limit != RNR_FOR_EVER {
                self.count_try(cx, place, limit, CompletionStatus::RnrRetryExceeded);
            }
        }
    }
}
