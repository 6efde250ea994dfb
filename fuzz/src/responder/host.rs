//! A host that trusts the protocol in nothing.
//!
//! Every local list must be that of a request that is posted and not completed; every completion
//! must be of such a request, and ends it; every packet that leaves must be well formed, go to the
//! peer and not be longer than the path MTU; peers reach memory only through queue pairs that allow
//! it. Whether a range is granted is computed here, in wide arithmetic.

use super::pairs::{CLOSED, PD, PEER, RECEIVES, SENDS};
use super::{ICRC, XRC_SRQ};
use feroce_proto::{
    AsyncEvent, AtomicOperation, BindRequest, Completion, CompletionOpcode, CompletionStatus, CqId,
    Envelope, Host, LocalFault, Mtu, Payload, PdId, RemoteAccess, RemoteFault, RemoteRange, Sge,
    SgeList, TransmitError,
};
use feroce_wire::{Headers, Packet, Qpn, Service, pad_len};
use std::collections::BTreeMap;
use std::ops::Range;

/// Memory that peers may reach, and its keys.
const MEMORY_BYTES: usize = 4096;
pub(super) const BASE: u64 = 0x1_0000;
/// All of it, every right.
pub(super) const KEY: u32 = 0x100;
/// All of it, for reading.
pub(super) const READ_KEY: u32 = 0x200;
/// The same bytes where addresses end.
pub(super) const HIGH_KEY: u32 = 0x300;
pub(super) const HIGH_BASE: u64 = u64::MAX - MEMORY_BYTES as u64;

/// Address of the first byte of every local buffer, in its region's terms.
const LOCAL_BASE: u64 = 0x7000_0000;

/// Bytes of GRH before a datagram.
const GRH_LEN: u32 = 40;

/// A work request that is posted and not completed.
#[derive(Debug)]
struct Posted {
    /// `None`: on a shared receive queue.
    owner: Option<Qpn>,
    receive: bool,
    bytes: Vec<u8>,
    /// Its key grants nothing any more.
    faulty: bool,
}

#[derive(Debug)]
pub(super) struct FuzzHost {
    memory: Vec<u8>,
    posted: BTreeMap<u64, Posted>,
    last_id: u64,
    mtu: Mtu,
    /// Packets that are taken before the wire is full.
    pub(super) room: u32,
    pub(super) revoked: bool,
    /// Calls that a program or a peer could notice.
    pub(super) effects: u64,
    outcomes: u32,
}

/// The list of a buffer: `len` bytes in up to four pieces.
pub(super) fn sges(wr_id: u64, len: usize, pieces: u8) -> SgeList {
    let mut left = u32::try_from(len).expect("a short buffer");
    let mut address = LOCAL_BASE;
    let lkey = u32::try_from(wr_id).expect("few requests");
    let piece = left.div_ceil(u32::from(pieces % 4) + 1);
    let mut sges = SgeList::new();
    while left > 0 {
        let length = piece.min(left);
        sges.push(Sge {
            address,
            length,
            lkey,
        });
        address += u64::from(length);
        left -= length;
    }
    sges
}

impl FuzzHost {
    pub(super) fn new(mtu: Mtu) -> Self {
        Self {
            memory: vec![0x5a; MEMORY_BYTES],
            posted: BTreeMap::new(),
            last_id: 0x1000,
            mtu,
            room: u32::MAX,
            revoked: false,
            effects: 0,
            outcomes: 0,
        }
    }

    pub(super) const fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Notes a request that is about to be posted.
    pub(super) fn open(
        &mut self,
        wr_id: u64,
        owner: Option<Qpn>,
        receive: bool,
        bytes: Vec<u8>,
        faulty: bool,
    ) {
        let posted = Posted {
            owner,
            receive,
            bytes,
            faulty,
        };
        self.posted.insert(wr_id, posted);
    }

    /// The request was not posted after all.
    pub(super) fn forget(&mut self, wr_id: u64) {
        assert!(
            self.posted.remove(&wr_id).is_some(),
            "a refused request completed"
        );
    }

    /// The queue pair went, and its requests with it.
    pub(super) fn forget_all_of(&mut self, qpn: Qpn) {
        self.posted.retain(|_, posted| posted.owner != Some(qpn));
    }

    pub(super) fn open_of(&self, qpn: Qpn) -> Vec<u64> {
        let open = self
            .posted
            .iter()
            .filter(|(_, posted)| posted.owner == Some(qpn));
        open.map(|(&wr_id, _)| wr_id).collect()
    }

    /// Which statuses were seen, as bits.
    pub(super) const fn outcomes(&self) -> u32 {
        self.outcomes
    }

    /// The bytes that a list names from `offset`, which must be those of an open request.
    fn local(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        len: usize,
    ) -> Result<&mut [u8], LocalFault> {
        assert_eq!(pd, PD);
        let Some(first) = sges.first() else {
            assert_eq!((offset, len), (0, 0), "bytes of an empty list");
            return Ok(&mut []);
        };
        let posted = self
            .posted
            .get_mut(&first.lkey.into())
            .expect("a list of an open request");
        let start = first.address.checked_sub(LOCAL_BASE).expect("our address") + offset;
        let total: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        assert!(
            offset + len as u64 <= total,
            "{len} bytes from {offset} of {sges:?}"
        );
        for pair in sges.windows(2) {
            let end = pair[0].address + u64::from(pair[0].length);
            assert!(
                pair[1].lkey == first.lkey && pair[1].address == end,
                "{sges:?}"
            );
        }
        if posted.faulty {
            return Err(LocalFault);
        }
        let start = usize::try_from(start).expect("a small offset");
        Ok(posted
            .bytes
            .get_mut(start..start + len)
            .expect("inside of what was posted"))
    }

    /// Where a peer's range lies, if it is granted.
    fn remote(&self, range: &RemoteRange, write: bool) -> Result<Range<usize>, RemoteFault> {
        assert_eq!(range.pd, PD);
        assert_ne!(range.qpn, CLOSED, "the queue pair allows peers nothing");
        if range.length == 0 {
            return Ok(0..0);
        }
        let base = match range.rkey {
            KEY => BASE,
            READ_KEY if !write => BASE,
            HIGH_KEY => HIGH_BASE,
            _ => return Err(RemoteFault),
        };
        let offset = i128::from(range.address) - i128::from(base);
        let end = offset + i128::from(range.length);
        if self.revoked || offset < 0 || end > MEMORY_BYTES as i128 {
            return Err(RemoteFault);
        }
        let index = |at: i128| usize::try_from(at).expect("between 0 and the length");
        Ok(index(offset)..index(end))
    }

    fn check_packet(&self, to: &Envelope, bytes: &[u8]) {
        let packet = Packet::parse(bytes).expect("what leaves is well formed");
        let len = u32::try_from(packet.payload.len()).expect("a short packet");
        assert!(
            len <= self.mtu.bytes(),
            "{packet}: longer than the path MTU"
        );
        assert_eq!(packet.dest_qp, to.dest_qp);
        let unreliable = matches!(packet.info.service, Service::Uc | Service::Ud);
        assert!(!unreliable || !packet.ack_request, "W13: {packet}");
        assert_eq!(to.destination, PEER, "{packet}");
    }
}

impl Host for FuzzHost {
    fn transmit(
        &mut self,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        if self.room == 0 {
            return Err(TransmitError::Busy);
        }
        let payload = match payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Gather(pd, sges) => {
                let len: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
                let len = usize::try_from(len).expect("one packet's bytes");
                let bytes = self.local(pd, sges, 0, len);
                bytes.map_err(TransmitError::Local)?.to_vec()
            }
            Payload::Remote(range) => {
                let place = self.remote(&range, false).map_err(TransmitError::Remote)?;
                self.memory[place].to_vec()
            }
        };
        let mut bytes = [headers.as_bytes(), &payload].concat();
        bytes.resize(bytes.len() + usize::from(pad_len(payload.len())), 0);
        bytes.extend(ICRC);
        self.check_packet(to, &bytes);
        self.room -= 1;
        self.effects += 1;
        Ok(())
    }

    fn scatter(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        self.effects += 1;
        self.local(pd, sges, offset, data.len())?
            .copy_from_slice(data);
        Ok(())
    }

    fn check(&mut self, range: &RemoteRange, access: RemoteAccess) -> Result<(), RemoteFault> {
        let write = matches!(access, RemoteAccess::Write | RemoteAccess::Atomic);
        self.remote(range, write).map(drop)
    }

    fn write(&mut self, range: &RemoteRange, data: &[u8]) -> Result<(), RemoteFault> {
        self.effects += 1;
        assert_eq!(range.length, data.len() as u64);
        let place = self.remote(range, true)?;
        self.memory[place].copy_from_slice(data);
        Ok(())
    }

    fn atomic(
        &mut self,
        range: &RemoteRange,
        operation: AtomicOperation,
    ) -> Result<u64, RemoteFault> {
        self.effects += 1;
        assert!(
            range.length == 8 && range.address.is_multiple_of(8),
            "{range:?}"
        );
        let place = self.remote(range, true)?;
        let cell: &mut [u8; 8] = (&mut self.memory[place]).try_into().expect("eight bytes");
        let before = u64::from_ne_bytes(*cell);
        let after = match operation {
            AtomicOperation::CompareSwap { compare, swap } if before == compare => swap,
            AtomicOperation::CompareSwap { .. } => before,
            AtomicOperation::FetchAdd(add) => before.wrapping_add(add),
        };
        *cell = after.to_ne_bytes();
        Ok(before)
    }

    fn atomic_write(&mut self, range: &RemoteRange, value: [u8; 8]) -> Result<(), RemoteFault> {
        self.effects += 1;
        assert!(
            range.length == 8 && range.address.is_multiple_of(8),
            "{range:?}"
        );
        let place = self.remote(range, true)?;
        self.memory[place].copy_from_slice(&value);
        Ok(())
    }

    fn flush(
        &mut self,
        range: &RemoteRange,
        _: RemoteAccess,
        whole_region: bool,
    ) -> Result<(), RemoteFault> {
        self.effects += 1;
        let (address, length) = if whole_region {
            (BASE, 1)
        } else {
            (range.address, range.length)
        };
        let range = RemoteRange {
            address,
            length,
            ..*range
        };
        self.remote(&range, false).map(drop)
    }

    fn remote_invalidate(&mut self, pd: PdId, _: Qpn, key: u32) -> Result<(), RemoteFault> {
        self.effects += 1;
        assert_eq!(pd, PD);
        if key == KEY { Ok(()) } else { Err(RemoteFault) }
    }

    fn local_invalidate(&mut self, pd: PdId, _: Qpn, key: u32) -> Result<(), LocalFault> {
        self.effects += 1;
        assert_eq!(pd, PD);
        if key == KEY { Ok(()) } else { Err(LocalFault) }
    }

    fn bind(&mut self, pd: PdId, _: Qpn, request: &BindRequest) -> Result<(), LocalFault> {
        self.effects += 1;
        assert_eq!(pd, PD);
        if request.region == KEY {
            Ok(())
        } else {
            Err(LocalFault)
        }
    }

    fn complete(&mut self, cq: CqId, completion: Completion) {
        self.effects += 1;
        let posted = self.posted.remove(&completion.wr_id);
        let posted = posted.unwrap_or_else(|| panic!("nothing is posted for {completion:?}"));
        assert_eq!(
            cq,
            if posted.receive { RECEIVES } else { SENDS },
            "{completion:?}"
        );
        if let Some(owner) = posted.owner {
            assert_eq!(completion.qpn, owner, "{completion:?}");
        }
        self.outcomes |= 1 << (completion.status as u32 % 12);
        let received = matches!(
            completion.opcode,
            CompletionOpcode::Receive | CompletionOpcode::ReceiveWithImmediate
        );
        if completion.status == CompletionStatus::Success && posted.receive {
            assert!(received, "{completion:?}");
            let grh = if completion.source.is_some() {
                GRH_LEN
            } else {
                0
            };
            // An immediate of a WRITE completes a receive without using its bytes.
            let within = completion.byte_len as usize <= posted.bytes.len();
            let used = completion.opcode == CompletionOpcode::Receive;
            assert!(
                within || !used,
                "{completion:?} in {} bytes",
                posted.bytes.len()
            );
            assert!(completion.byte_len >= grh, "{completion:?}");
        }
    }

    fn event(&mut self, event: AsyncEvent) {
        self.effects += 1;
        if let AsyncEvent::SrqLimitReached(id) | AsyncEvent::SrqError(id) = event {
            assert!(id.0 <= XRC_SRQ.0, "{event:?}");
        }
    }
}
