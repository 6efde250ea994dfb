//! Requests that are due: SEND, WRITE, READ, atomics, ATOMIC WRITE, FLUSH.
//!
//! Each check refuses before anything has changed. The data is in place before the completion
//! that stands for it is shown.

use super::{Answer, Receiving, Refusal, Replay, Taken};
use crate::config::MESSAGE_BYTES_MAX;
use crate::qp::{Context, Qp, access};
use crate::{AtomicOperation, CompletionOpcode, Host, RemoteAccess, RemoteRange};
use feroce_wire::{Operation, Packet, Position, Reth};

impl Qp {
    /// Executes a request; returns the PSNs that it and its responses take.
    pub(super) fn execute<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        self.check_sequence(packet)?;
        match packet.info.operation {
            Operation::Send => {
                check_place(packet, self.mtu_bytes())?;
                self.execute_send(cx, packet)?;
                Ok(1)
            }
            Operation::Write => {
                check_place(packet, self.mtu_bytes())?;
                self.execute_write(cx, packet)?;
                Ok(1)
            }
            Operation::ReadRequest => self.execute_read(cx, packet),
            Operation::CompareSwap | Operation::FetchAdd => self.execute_atomic(cx, packet),
            Operation::AtomicWrite => self.execute_atomic_write(cx, packet),
            Operation::Flush => self.execute_flush(cx, packet),
            _ => Err(Refusal::NotAllowed),
        }
    }

    /// A message begins when none is in progress, and is continued by its own kind.
    pub(super) fn check_sequence(&self, packet: &Packet<'_>) -> Result<(), Refusal> {
        let follows = match (&self.responder.receiving, packet.info.operation) {
            (Receiving::Nothing, _) => packet.info.position.starts(),
            (Receiving::Send { .. }, Operation::Send)
            | (Receiving::Write { .. }, Operation::Write) => !packet.info.position.starts(),
            _ => false,
        };
        if follows {
            Ok(())
        } else {
            Err(Refusal::OpcodeSequence)
        }
    }

    const fn allows(&self, access: u32) -> Result<(), Refusal> {
        if self.attributes.access_flags & access == access {
            Ok(())
        } else {
            Err(Refusal::NotAllowed)
        }
    }

    /// SEND: from the first packet on it uses a receive.
    pub(super) fn execute_send<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        if packet.info.position.starts() {
            let taken = self.take_receive(cx, packet.extensions.xrc_srqn)?;
            self.responder.receiving = Receiving::Send { taken, received: 0 };
        }
        let Receiving::Send { taken, received } = &mut self.responder.receiving else {
            return Err(Refusal::OpcodeSequence);
        };
        let end = *received + packet.payload.len() as u64;
        if end > taken.capacity() || end > MESSAGE_BYTES_MAX {
            return Err(Refusal::ReceiveTooShort);
        }
        if !packet.payload.is_empty() {
            cx.host
                .scatter(taken.pd, &taken.request.sges, *received, packet.payload)
                .map_err(|_| Refusal::LocalFault)?;
        }
        *received = end;
        if packet.info.position.ends() {
            self.finish_send(cx, packet)?;
        }
        Ok(())
    }

    fn finish_send<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        if let Some(key) = packet.extensions.invalidate {
            let pd = self.remote_pd(cx, packet);
            cx.host
                .remote_invalidate(pd, self.qpn, key)
                .map_err(|_| Refusal::Invalidate)?;
        }
        let Receiving::Send { taken, received } = core::mem::take(&mut self.responder.receiving)
        else {
            return Ok(());
        };
        self.complete_receive(cx, &taken, packet, CompletionOpcode::Receive, received);
        Ok(())
    }

    /// Shows that a message has arrived.
    fn complete_receive<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        taken: &Taken,
        packet: &Packet<'_>,
        opcode: CompletionOpcode,
        bytes: u64,
    ) {
        let mut completion = self.completion(taken.request.wr_id, opcode);
        completion.byte_len = u32::try_from(bytes).unwrap_or(u32::MAX);
        completion.immediate = packet.extensions.immediate;
        completion.invalidated = packet.extensions.invalidate;
        completion.solicited = packet.solicited;
        cx.host.complete(self.receive_cq(taken), completion);
    }

    /// RDMA WRITE: the range is checked whole at its first packet, and again with every write.
    pub(super) fn execute_write<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<(), Refusal> {
        self.allows(access::REMOTE_WRITE)?;
        let (reth, received) = match (&self.responder.receiving, packet.extensions.reth) {
            (Receiving::Write { reth, received }, _) => (*reth, *received),
            (_, Some(reth)) => (reth, 0),
            _ => return Err(Refusal::OpcodeSequence),
        };
        let end = check_write_length(packet, &reth, received)?;
        let immediate = packet.info.immediate;
        if immediate {
            self.check_srq(cx, packet)?;
            if !self.has_receive(cx, packet.extensions.xrc_srqn) {
                return Err(Refusal::NotReady);
            }
        }
        let fault = if immediate {
            Refusal::RemoteAccessImmediate
        } else {
            Refusal::RemoteAccess
        };
        if packet.info.position.starts() && reth.length > 0 {
            let whole = self.range(cx, packet, reth.rkey, reth.virtual_address, reth.length);
            check_range(cx, &whole, RemoteAccess::Write).map_err(|_| fault)?;
        }
        if !packet.payload.is_empty() {
            let at = reth.virtual_address.wrapping_add(u64::from(received));
            let part = self.range(cx, packet, reth.rkey, at, end - received);
            cx.host.write(&part, packet.payload).map_err(|_| fault)?;
        }
        if packet.info.position.ends() {
            self.responder.receiving = Receiving::Nothing;
            cx.counters().rx_write_requests += 1;
            if immediate {
                let taken = self.take_receive(cx, packet.extensions.xrc_srqn)?;
                let opcode = CompletionOpcode::ReceiveWithImmediate;
                self.complete_receive(cx, &taken, packet, opcode, u64::from(end));
            }
        } else {
            self.responder.receiving = Receiving::Write {
                reth,
                received: end,
            };
        }
        Ok(())
    }

    fn check_srq<H: Host>(&self, cx: &Context<'_, H>, packet: &Packet<'_>) -> Result<(), Refusal> {
        match packet.extensions.xrc_srqn {
            Some(srqn) if !self.may_use_srq(cx, crate::SrqId(srqn)) => Err(Refusal::UnknownSrq),
            _ => Ok(()),
        }
    }

    /// RDMA READ: the responses are sent later, from memory as it is then.
    fn execute_read<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        self.allows(access::REMOTE_READ)?;
        let reth = packet.extensions.reth.unwrap_or_default();
        if u64::from(reth.length) > MESSAGE_BYTES_MAX {
            return Err(Refusal::Length);
        }
        self.check_resources()?;
        self.check_read(cx, packet, &reth)?;
        let packets = reth.length.div_ceil(self.mtu_bytes()).max(1);
        let answer = Answer::Read {
            pd: self.remote_pd(cx, packet),
            whole: reth,
            part: reth,
            part_first: packet.psn,
            part_packets: packets,
            sent: 0,
        };
        self.push_replay(packet, packets, answer);
        cx.counters().rx_read_requests += 1;
        Ok(packets)
    }

    pub(super) fn check_read<H: Host>(
        &self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
        reth: &Reth,
    ) -> Result<(), Refusal> {
        if reth.length == 0 {
            return Ok(());
        }
        let range = self.range(cx, packet, reth.rkey, reth.virtual_address, reth.length);
        check_range(cx, &range, RemoteAccess::Read)
    }

    fn execute_atomic<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        self.allows(access::REMOTE_ATOMIC)?;
        let operands = packet.extensions.atomic.unwrap_or_default();
        if !operands.virtual_address.is_multiple_of(8) {
            return Err(Refusal::Misaligned);
        }
        self.check_resources()?;
        let range = self.range(cx, packet, operands.rkey, operands.virtual_address, 8);
        check_range(cx, &range, RemoteAccess::Atomic)?;
        let operation = if packet.info.operation == Operation::CompareSwap {
            AtomicOperation::CompareSwap {
                compare: operands.compare,
                swap: operands.swap_or_add,
            }
        } else {
            AtomicOperation::FetchAdd(operands.swap_or_add)
        };
        let original = cx
            .host
            .atomic(&range, operation)
            .map_err(|_| Refusal::RemoteAccess)?;
        self.push_replay(packet, 1, Answer::Atomic { original });
        cx.counters().rx_atomic_requests += 1;
        Ok(1)
    }

    /// ATOMIC WRITE (annex A19): eight bytes, no more and no fewer (W11).
    fn execute_atomic_write<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        self.allows(access::REMOTE_WRITE)?;
        let reth = packet.extensions.reth.unwrap_or_default();
        let Ok(value) = <[u8; 8]>::try_from(packet.payload) else {
            return Err(Refusal::Length);
        };
        if reth.length != 8 {
            return Err(Refusal::Length);
        }
        if !reth.virtual_address.is_multiple_of(8) {
            return Err(Refusal::Misaligned);
        }
        self.check_resources()?;
        let range = self.range(cx, packet, reth.rkey, reth.virtual_address, 8);
        check_range(cx, &range, RemoteAccess::Write)?;
        cx.host
            .atomic_write(&range, value)
            .map_err(|_| Refusal::RemoteAccess)?;
        self.push_replay(packet, 1, Answer::Empty);
        Ok(1)
    }

    /// FLUSH (annex A19).
    fn execute_flush<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        packet: &Packet<'_>,
    ) -> Result<u32, Refusal> {
        const GLOBAL: u32 = 1;
        const PERSISTENT: u32 = 2;
        let word = packet.extensions.flush.unwrap_or_default();
        let whole_region = word >> 4 & 3 == 1;
        let reth = packet.extensions.reth.unwrap_or_default();
        let kinds = [
            (GLOBAL, access::FLUSH_GLOBAL, RemoteAccess::FlushGlobal),
            (
                PERSISTENT,
                access::FLUSH_PERSISTENT,
                RemoteAccess::FlushPersistent,
            ),
        ];
        if word & 0xf == 0 || word & 0xf & !(GLOBAL | PERSISTENT) != 0 || word >> 4 & 3 > 1 {
            return Err(Refusal::NotAllowed);
        }
        for (bit, flag, _) in kinds {
            if word & bit != 0 {
                self.allows(flag)?;
            }
        }
        self.check_resources()?;
        let range = self.range(cx, packet, reth.rkey, reth.virtual_address, reth.length);
        for (bit, _, access) in kinds {
            if word & bit != 0 {
                if !whole_region && reth.length > 0 {
                    check_range(cx, &range, access)?;
                }
                cx.host
                    .flush(&range, access, whole_region)
                    .map_err(|_| Refusal::RemoteAccess)?;
            }
        }
        self.push_replay(packet, 1, Answer::Empty);
        Ok(1)
    }

    /// IBTA 9.7.4.1.3: no more READs and atomics in progress than `max_dest_rd_atomic`. A peer
    /// within the limit that sends a new one has the answer of the oldest.
    fn check_resources(&self) -> Result<(), Refusal> {
        let limit = usize::from(self.attributes.max_dest_rd_atomic);
        let replays = &self.responder.replays;
        let oldest_in_progress = replays.front().is_none_or(|oldest| !oldest.answered);
        if replays.len() >= limit && oldest_in_progress {
            Err(Refusal::TooManyReads)
        } else {
            Ok(())
        }
    }

    /// Keeps an answer, in the place of the oldest that the peer cannot ask for any more.
    fn push_replay(&mut self, packet: &Packet<'_>, packets: u32, answer: Answer) {
        let limit = usize::from(self.attributes.max_dest_rd_atomic);
        let responder = &mut self.responder;
        while responder.replays.len() >= limit {
            let Some(oldest) = responder.replays.pop_front_if(|oldest| oldest.answered) else {
                break;
            };
            responder.pending -= usize::from(oldest.pending);
        }
        responder.pending += 1;
        responder.replays.push_back(Replay {
            first: packet.psn,
            packets,
            answer,
            pending: true,
            answered: false,
        });
    }

    pub(super) fn range<H: Host>(
        &self,
        cx: &Context<'_, H>,
        packet: &Packet<'_>,
        rkey: u32,
        address: u64,
        length: u32,
    ) -> RemoteRange {
        RemoteRange {
            pd: self.remote_pd(cx, packet),
            qpn: self.qpn,
            rkey,
            address,
            length: u64::from(length),
        }
    }
}

/// First and middle packets are full, a last one is not empty (IBTA 9.7.4.1.6).
pub(super) fn check_place(packet: &Packet<'_>, mtu: u32) -> Result<(), Refusal> {
    let (length, mtu) = (packet.payload.len(), mtu as usize);
    let right = match packet.info.position {
        Position::First | Position::Middle => length == mtu,
        Position::Last => (1..=mtu).contains(&length),
        Position::Only => length <= mtu,
    };
    if right { Ok(()) } else { Err(Refusal::Length) }
}

/// The sum of the packets of a WRITE is what its RETH says; returns the sum so far.
fn check_write_length(packet: &Packet<'_>, reth: &Reth, received: u32) -> Result<u32, Refusal> {
    let end = u64::from(received) + packet.payload.len() as u64;
    let length = u64::from(reth.length);
    let right = if packet.info.position.ends() {
        end == length
    } else {
        end < length
    };
    if !right || length > MESSAGE_BYTES_MAX {
        return Err(Refusal::Length);
    }
    u32::try_from(end).map_err(|_| Refusal::Length)
}

/// Whether the key grants the access to a range that does not wrap (W12).
pub(super) fn check_range<H: Host>(
    cx: &mut Context<'_, H>,
    range: &RemoteRange,
    access: RemoteAccess,
) -> Result<(), Refusal> {
    range
        .address
        .checked_add(range.length)
        .ok_or(Refusal::RemoteAccess)?;
    cx.host
        .check(range, access)
        .map_err(|_| Refusal::RemoteAccess)
}
