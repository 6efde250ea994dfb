//! Numbers that a device gives out: queue pairs, domains, shared receive queues.

use crate::QPN_INDEX_BITS;
use feroce_proto::{PdId, SrqId, XrcdId};
use feroce_wire::Qpn;
use std::collections::VecDeque;

/// The first index: 0 and 1 are the management queue pairs of slot 0, and nobody's elsewhere.
const QPN_INDEX_FIRST: u32 = 2;

/// Queue pairs of one process: the index part of the number, less index 0 and 1.
pub(crate) const QPS_MAX: u32 = (1 << QPN_INDEX_BITS) - QPN_INDEX_FIRST;

/// SRQ numbers have 24 bits.
const SRQ_NUMBER_MAX: u32 = 0x00ff_fffe;

/// What has been given out.
pub(crate) struct Ids {
    slot: u16,
    free_qpns: VecDeque<u32>,
    next_qpn: u32,
    next_pd: u32,
    next_srq: u32,
    next_xrcd: u32,
}

impl Ids {
    /// Nothing given out yet, by the process that holds `slot`.
    pub(crate) const fn new(slot: u16) -> Self {
        Self {
            slot,
            free_qpns: VecDeque::new(),
            next_qpn: QPN_INDEX_FIRST,
            next_pd: 0,
            next_srq: 0,
            next_xrcd: 0,
        }
    }

    /// A new protection domain.
    pub(crate) const fn take_pd(&mut self) -> PdId {
        self.next_pd += 1;
        PdId(self.next_pd)
    }

    /// A new XRC domain.
    pub(crate) const fn take_xrcd(&mut self) -> XrcdId {
        self.next_xrcd += 1;
        XrcdId(self.next_xrcd)
    }

    /// The next SRQ number; it may still be taken after a wrap.
    pub(crate) const fn take_srq(&mut self) -> SrqId {
        self.next_srq = (self.next_srq % SRQ_NUMBER_MAX) + 1;
        SrqId(self.next_srq)
    }

    /// A queue pair is gone.
    pub(crate) fn give_back(&mut self, qpn: Qpn) {
        self.free_qpns.push_back(qpn.value());
    }

    /// The next number: fresh ones first, then the one that has been free for the longest, so that
    /// late packets to a destroyed queue pair find nobody.
    pub(crate) fn take_qpn(&mut self) -> Option<Qpn> {
        if self.next_qpn < 1 << QPN_INDEX_BITS {
            let index = self.next_qpn;
            self.next_qpn += 1;
            return Some(Qpn::new(u32::from(self.slot) << QPN_INDEX_BITS | index));
        }
        self.free_qpns.pop_front().map(Qpn::new)
    }
}
