//! The responder: requests of the connected peer (IBTA 9.7.4, 9.7.5, 9.9.3).
//!
//! [`Qp::handle_request`] is the one place where an arriving request changes state: [`judge`]
//! says what the PSN means, [`execute`] runs a request that is due, [`replay`] answers one
//! that was executed before. Nothing is sent from there: what is owed to the peer is noted, and
//! [`transmit`] sends it, one acknowledge for everything executed so far.

mod execute;
mod refusal;
mod replay;
mod transmit;
mod unreliable;

use crate::qp::{Context, Qp};
use crate::{CompletionStatus, CqId, Host, PdId, QpType, RecvRequest, SrqId};
use alloc::collections::VecDeque;
use feroce_wire::aeth::{CREDITS_UNLIMITED, NakCode, code_of_credits};
use feroce_wire::{Msn, Packet, Psn, Reth};
pub(crate) use refusal::Refusal;

/// A receive request that a message uses.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) request: RecvRequest,
    /// Domain of its local keys.
    pub(crate) pd: PdId,
    /// Where it completes, if not in the queue pair's own queue.
    pub(crate) cq: Option<CqId>,
}

impl Taken {
    /// Bytes it holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.request
            .sges
            .iter()
            .map(|sge| u64::from(sge.length))
            .sum()
    }
}

/// The message that is coming in.
#[derive(Debug, Default)]
pub(crate) enum Receiving {
    /// None.
    #[default]
    Nothing,
    /// A SEND: the receive it goes to, and the bytes so far.
    Send { taken: Taken, received: u64 },
    /// An RDMA WRITE of `reth.length` bytes, `received` of which have come.
    Write { reth: Reth, received: u32 },
}

/// An executed request whose answer can be given again.
#[derive(Debug)]
struct Replay {
    /// Its PSNs.
    first: Psn,
    packets: u32,
    answer: Answer,
    /// The answer, or a part of it, is to be sent.
    pending: bool,
    /// It has been sent whole before: the peer may have it, and asked again for nothing.
    answered: bool,
}

#[derive(Debug)]
enum Answer {
    /// READ: the whole range, and the part that is to be sent.
    Read {
        /// Domain its key was checked in.
        pd: PdId,
        whole: Reth,
        part: Reth,
        /// PSN of the first response of the part.
        part_first: Psn,
        part_packets: u32,
        /// Responses of the part that have left.
        sent: u32,
    },
    /// The value before an atomic (W5: given again, never computed again).
    Atomic { original: u64 },
    /// ATOMIC WRITE and FLUSH are answered by an empty READ response (annex A19).
    Empty,
}

/// What the peer is to be told when no earlier response remains.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Owed {
    #[default]
    Nothing,
    /// Acknowledge of everything executed.
    Acknowledge,
    /// NAK of this PSN.
    Nak(NakCode, Psn),
    /// RNR NAK of the expected PSN.
    NotReady,
}

/// The receive side of a queue pair.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    expected: Psn,
    /// Messages completed.
    msn: Msn,
    /// The peer has been told that `expected` is missing (or met no receive): what comes ahead
    /// of it is dropped without another word.
    holding: bool,
    pub(crate) receiving: Receiving,
    /// Answers of READs and atomics in PSN order, no more than the peer may have in progress.
    replays: VecDeque<Replay>,
    /// How many of them are pending.
    pending: usize,
    owed: Owed,
    /// The last message that the peer has been told of a receive for, once it has been told.
    credit_limit: Option<u32>,
    /// UC: a receive whose message broke off; the next message takes it.
    kept: Option<Taken>,
}

/// What the PSN of a request means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// It is due.
    Execute,
    /// It has been executed.
    Duplicate,
    /// Something before it is missing, and the peer is to know.
    NakSequence,
    /// Something before it is missing, and the peer knows.
    Drop,
}

impl Responder {
    /// Starts at `psn`, on the way to RTR.
    pub(crate) const fn begin(&mut self, psn: Psn) {
        self.expected = psn;
    }

    pub(crate) const fn expected_psn(&self) -> Psn {
        self.expected
    }

    const fn judge(&self, psn: Psn) -> Verdict {
        match psn.distance_from(self.expected) {
            0 => Verdict::Execute,
            distance if distance < 0 => Verdict::Duplicate,
            _ if self.holding => Verdict::Drop,
            _ => Verdict::NakSequence,
        }
    }

    /// Forgets the message that is coming in; returns the receive that it or a broken
    /// predecessor used.
    pub(crate) fn abandon_message(&mut self) -> Option<Taken> {
        match core::mem::take(&mut self.receiving) {
            Receiving::Send { taken, .. } => Some(taken),
            Receiving::Nothing | Receiving::Write { .. } => self.kept.take(),
        }
    }

    /// Nothing more is sent: the program itself moved the queue pair to the error state.
    pub(crate) fn fall_silent(&mut self) {
        self.owed = Owed::Nothing;
        self.replays = VecDeque::new();
        self.pending = 0;
    }

    /// The answer is to be sent (again).
    fn mark_pending(&mut self, place: usize) -> &mut Replay {
        let replay = &mut self.replays[place];
        self.pending += usize::from(!replay.pending);
        replay.pending = true;
        replay
    }

    /// The next answer to send, if any.
    fn next_pending(&self) -> Option<usize> {
        debug_assert_eq!(
            self.pending,
            self.replays.iter().filter(|replay| replay.pending).count()
        );
        if self.pending == 0 {
            return None;
        }
        self.replays.iter().position(|replay| replay.pending)
    }
}

impl Qp {
    /// A request of the peer on a reliable service.
    pub(crate) fn handle_request<H: Host>(&mut self, cx: &mut Context<'_, H>, packet: &Packet<'_>) {
        match self.responder.judge(packet.psn) {
            Verdict::Execute => match self.execute(cx, packet) {
                Ok(psns) => self.executed(packet, psns),
                Err(refusal) => {
                    self.refuse(cx, packet.psn, packet.extensions.xrc_srqn, refusal);
                }
            },
            Verdict::Duplicate => {
                cx.counters().duplicate_request += 1;
                if let Err(refusal) = self.replay(cx, packet) {
                    self.refuse(cx, packet.psn, None, refusal);
                }
            }
            Verdict::NakSequence => {
                cx.counters().out_of_sequence += 1;
                self.responder.holding = true;
                self.responder.owed = Owed::Nak(NakCode::SequenceError, self.responder.expected);
            }
            Verdict::Drop => cx.counters().out_of_sequence += 1,
        }
        if self.owes_response() {
            cx.schedule();
        }
    }

    /// A request that was due has taken effect; `psns` is what it and its responses take.
    fn executed(&mut self, packet: &Packet<'_>, psns: u32) {
        let responder = &mut self.responder;
        responder.expected = responder.expected.plus(psns);
        responder.holding = false;
        if packet.info.position.ends() {
            responder.msn = responder.msn.next();
        }
        let answers_by_itself = matches!(
            responder.replays.back(),
            Some(replay) if replay.pending && replay.first == packet.psn
        );
        match responder.owed {
            Owed::Nothing if !packet.ack_request || answers_by_itself => {}
            // A complaint that has not left, about a packet that has come, is no complaint.
            Owed::Nothing | Owed::Acknowledge | Owed::Nak(..) | Owed::NotReady => {
                responder.owed = Owed::Acknowledge;
            }
        }
    }

    /// Turns a refusal into what the peer, the program and the queue pair see of it.
    fn refuse<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        psn: Psn,
        xrc_srqn: Option<u32>,
        refusal: Refusal,
    ) {
        let Some(code) = refusal.nak() else {
            cx.counters().out_of_buffer += 1;
            self.responder.holding = true;
            self.responder.owed = Owed::NotReady;
            return;
        };
        match code {
            NakCode::RemoteAccess => cx.counters().resp_remote_access_errors += 1,
            NakCode::InvalidRequest => cx.counters().resp_invalid_request += 1,
            _ => {}
        }
        self.responder.owed = Owed::Nak(code, psn);
        let status = refusal.receive_status();
        let in_use = match status {
            Some(CompletionStatus::LocalAccess) => self.take_receive(cx, xrc_srqn).ok(),
            _ => self.responder.abandon_message(),
        };
        let status = status.unwrap_or(CompletionStatus::WorkRequestFlushed);
        if let Some(taken) = in_use {
            self.complete_receive_error(cx, &taken, status);
        }
        if let Some(event) = refusal.event(self.qpn) {
            cx.host.event(event);
        }
        self.enter_error(cx);
    }

    /// Receives that the peer is told of, as a credit code. What is shared is promised to no one.
    fn credits(&self) -> u8 {
        if self.init.qp_type != QpType::Rc || self.init.srq.is_some() {
            return CREDITS_UNLIMITED;
        }
        code_of_credits(u32::try_from(self.receives.len()).unwrap_or(u32::MAX))
    }

    /// A receive has been posted: a peer that has run out of credits, or is about to, is told
    /// without having asked.
    pub(crate) fn offer_credits<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let Some(limit) = self.responder.credit_limit else {
            return;
        };
        let left = Msn::new(limit).distance_from(self.responder.msn).max(0);
        let posted = i32::try_from(self.receives.len()).unwrap_or(i32::MAX);
        if left < posted / 2 || left == 0 {
            self.acknowledge_again();
            cx.schedule();
        }
    }

    /// The shared receive queue that a packet's message takes its receive from.
    fn srq_of(&self, xrc_srqn: Option<u32>) -> Option<SrqId> {
        xrc_srqn.map(SrqId).or(self.init.srq)
    }

    /// The domain that remote keys of a packet are looked up in: an XRC target's is that of the
    /// SRQ the packet names (annex A14).
    fn remote_pd<H: Host>(&self, cx: &Context<'_, H>, packet: &Packet<'_>) -> PdId {
        packet
            .extensions
            .xrc_srqn
            .map(SrqId)
            .filter(|&id| self.may_use_srq(cx, id))
            .and_then(|id| cx.shared.srqs.query(id))
            .map_or(self.init.pd, |init| init.pd)
    }

    /// Whether an XRC target may take receives from an SRQ.
    fn may_use_srq<H: Host>(&self, cx: &Context<'_, H>, id: SrqId) -> bool {
        self.init
            .xrcd
            .is_some_and(|xrcd| cx.shared.srqs.is_of(id, xrcd))
    }

    /// Whether a receive could be taken now.
    fn has_receive<H: Host>(&self, cx: &Context<'_, H>, xrc_srqn: Option<u32>) -> bool {
        self.responder.kept.is_some()
            || match self.srq_of(xrc_srqn) {
                Some(id) => !cx.shared.srqs.is_empty(id),
                None => !self.receives.is_empty(),
            }
    }

    /// Takes the oldest receive.
    pub(crate) fn take_receive<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        xrc_srqn: Option<u32>,
    ) -> Result<Taken, Refusal> {
        if let Some(kept) = self.responder.kept.take() {
            return Ok(kept);
        }
        let Some(id) = self.srq_of(xrc_srqn) else {
            let request = self.receives.pop_front().ok_or(Refusal::NotReady)?;
            return Ok(Taken {
                request,
                pd: self.init.pd,
                cq: None,
            });
        };
        if xrc_srqn.is_some() && !self.may_use_srq(cx, id) {
            return Err(Refusal::UnknownSrq);
        }
        let (taken, event) = cx.shared.srqs.take(id).ok_or(Refusal::NotReady)?;
        if let Some(event) = event {
            cx.host.event(event);
        }
        Ok(taken)
    }
}
