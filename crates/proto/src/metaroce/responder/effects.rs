//! Effects of complete messages, in the order of the stream. Not here: placing what arrives.

use super::{
    ACCESS, Answer, AtomicOperation, CompletionOpcode, Connection, Context, Fault, Host, INVALID,
    Inbound, RemoteAccess, Request, RequestOpcode, Stream, access,
};

impl Stream {
    /// Gives effect to what is complete at the head, in order.
    //= MR-STR-001
    //= MR-STR-003
    pub(super) fn deliver<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
    ) {
        let mut moved = false;
        while let Some(Some(record)) = self.responder.inbound.front() {
            if !record.is_complete() {
                break;
            }
            let Some(record) = self.responder.inbound.pop_front().flatten() else {
                break;
            };
            connection.count_words(record.segments.words(), 0);
            let done = match record.fault {
                None => self.take_effect(cx, connection, &record),
                Some(fault) => Err(fault),
            };
            if let Err(fault) = done {
                self.refuse(cx, connection, &record, fault);
                return;
            }
            self.responder.expected = self.responder.expected.next();
            moved = true;
        }
        if moved {
            connection.mark_dirty(self);
        }
    }

    pub(super) fn take_effect<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        record: &Inbound,
    ) -> Result<(), Fault> {
        let head = &record.head;
        match head.opcode {
            RequestOpcode::Write => Ok(()),
            RequestOpcode::WriteImmediate => {
                let opcode = CompletionOpcode::ReceiveWithImmediate;
                self.complete_receive(cx, record, opcode, Some(head.word), None);
                Ok(())
            }
            RequestOpcode::Send => {
                self.complete_receive(cx, record, CompletionOpcode::Receive, None, None);
                Ok(())
            }
            RequestOpcode::SendImmediate => {
                let opcode = CompletionOpcode::Receive;
                self.complete_receive(cx, record, opcode, Some(head.word), None);
                Ok(())
            }
            RequestOpcode::SendInvalidate => {
                cx.host
                    .remote_invalidate(self.init.pd, self.qpn, head.word)
                    .map_err(|_| ACCESS)?;
                let opcode = CompletionOpcode::Receive;
                self.complete_receive(cx, record, opcode, None, Some(head.word));
                Ok(())
            }
            RequestOpcode::Read => self.execute_read(cx, connection, head),
            RequestOpcode::CompareSwap | RequestOpcode::FetchAdd => {
                self.execute_atomic(cx, connection, head)
            }
            RequestOpcode::AtomicWrite => self.execute_atomic_write(cx, head),
            RequestOpcode::Flush => self.execute_flush(cx, head),
            RequestOpcode::Datagram | RequestOpcode::DatagramImmediate => Err(INVALID),
        }
    }

    //= MR-STR-010
    pub(super) fn complete_receive<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        record: &Inbound,
        opcode: CompletionOpcode,
        immediate: Option<u32>,
        invalidated: Option<u32>,
    ) {
        let (wr_id, cq) = match &record.taken {
            Some(taken) => (taken.request.wr_id, taken.cq.unwrap_or(self.init.recv_cq)),
            None => {
                let Some(receive) = self.receives.pop_front() else {
                    return;
                };
                self.receive_base = self.receive_base.next();
                (receive.wr_id, self.init.recv_cq)
            }
        };
        let mut completion = self.completion(wr_id, opcode);
        completion.byte_len = record.head.length;
        completion.immediate = immediate;
        completion.invalidated = invalidated;
        completion.solicited = record.head.solicited;
        cx.host.complete(cq, completion);
    }

    /// A requester that keeps to the limit and asks for one more has the answer of the oldest, even
    /// if its acknowledgement is late.
    //= MR-STR-013
    pub(super) fn check_answers(&mut self, connection: &mut Connection) -> Result<(), Fault> {
        let answers = &mut self.responder.answers;
        answers.retain(|&job| connection.jobs.get(job).is_some());
        if answers.len() < usize::from(self.target.max_dest_rd_atomic) {
            return Ok(());
        }
        match answers.front() {
            Some(&oldest) if connection.jobs.has_left(oldest) => {
                connection.jobs.remove(oldest);
                answers.pop_front();
                Ok(())
            }
            _ => Err(INVALID),
        }
    }

    //= MR-STR-012
    pub(super) fn execute_read<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        head: &Request<'_>,
    ) -> Result<(), Fault> {
        self.check_answers(connection)?;
        if head.length > 0 {
            self.check(cx, head, RemoteAccess::Read)?;
        }
        let range = self.range(head, 0, head.length);
        let segments = head.length.div_ceil(connection.segment()).max(1);
        cx.counters.reads_executed += 1;
        let job = connection.answer(self, head.message, Answer::Read(range), segments);
        self.responder.answers.push_back(job);
        Ok(())
    }

    //= MR-STR-014
    pub(super) fn execute_atomic<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        connection: &mut Connection,
        head: &Request<'_>,
    ) -> Result<(), Fault> {
        self.check_answers(connection)?;
        self.check(cx, head, RemoteAccess::Atomic)?;
        let operation = if head.opcode == RequestOpcode::CompareSwap {
            AtomicOperation::CompareSwap {
                compare: head.atomic.compare,
                swap: head.atomic.operand,
            }
        } else {
            AtomicOperation::FetchAdd(head.atomic.operand)
        };
        let range = self.range(head, 0, 8);
        let original = cx.host.atomic(&range, operation).map_err(|_| ACCESS)?;
        cx.counters.atomics_executed += 1;
        let job = connection.answer(self, head.message, Answer::Original(original), 1);
        self.responder.answers.push_back(job);
        Ok(())
    }

    pub(super) fn execute_atomic_write<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        head: &Request<'_>,
    ) -> Result<(), Fault> {
        let value = head.atomic.operand.to_ne_bytes();
        let range = self.range(head, 0, 8);
        cx.host.atomic_write(&range, value).map_err(|_| ACCESS)
    }

    pub(super) fn execute_flush<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        head: &Request<'_>,
    ) -> Result<(), Fault> {
        const KINDS: [(u32, u32, RemoteAccess); 2] = [
            (1, access::FLUSH_GLOBAL, RemoteAccess::FlushGlobal),
            (2, access::FLUSH_PERSISTENT, RemoteAccess::FlushPersistent),
        ];
        let (placement, level) = (head.word & 0xf, head.word >> 4 & 3);
        if placement == 0 || placement > 3 || level > 1 {
            return Err(INVALID);
        }
        let whole_region = level == 1;
        let range = self.range(head, 0, head.length);
        for (bit, flag, kind) in KINDS {
            if placement & bit == 0 {
                continue;
            }
            if self.target.access_flags & flag != flag {
                return Err(INVALID);
            }
            if !whole_region && head.length > 0 {
                self.check(cx, head, kind)?;
            }
            cx.host
                .flush(&range, kind, whole_region)
                .map_err(|_| ACCESS)?;
        }
        Ok(())
    }
}
