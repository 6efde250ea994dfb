//! A toy host: memory is one array of bytes, keys are a table, packets and completions are lists.

use crate::metaroce::{Port, Route};
use crate::{
    AsyncEvent, AtomicOperation, BindRequest, Completion, CqId, Envelope, Host, LocalFault,
    MAD_LEN, Payload, PdId, RemoteAccess, RemoteFault, RemoteRange, Sge, TransmitError,
};
use feroce_wire::metaroce::Headers as MetaHeaders;
use feroce_wire::{Address, Headers, Qpn, icrc, pad_len};
use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;

/// Address of the first byte of a toy host's memory.
pub(crate) const BASE: u64 = 0x10_0000;
/// A key for the whole memory with every right.
pub(crate) const KEY: u32 = 0x100;
/// The domain that [`KEY`] belongs to.
pub(crate) const PD: PdId = PdId(1);

/// What a key grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) pd: PdId,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) read_only: bool,
}

/// A packet as it lies on the wire, BTH to ICRC.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) to: Envelope,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct ToyHost {
    pub(crate) memory: Vec<u8>,
    pub(crate) keys: BTreeMap<u32, Grant>,
    pub(crate) sent: VecDeque<Frame>,
    /// MetaRoCE packets, without their check sum.
    pub(crate) datagrams: VecDeque<(Route, Vec<u8>)>,
    pub(crate) completions: Vec<(CqId, Completion)>,
    pub(crate) events: Vec<AsyncEvent>,
    /// Packets it takes before it is busy.
    pub(crate) room: usize,
    /// It has no room for this queue pair.
    pub(crate) no_room_for: Option<Qpn>,
    pub(crate) atomics: usize,
    pub(crate) binds: usize,
    pub(crate) invalidates: usize,
    pub(crate) flushes: Vec<(RemoteAccess, bool)>,
    pub(crate) writes: usize,
    pub(crate) managed: usize,
}

impl ToyHost {
    pub(crate) fn new(bytes: usize) -> Self {
        let grant = Grant {
            pd: PD,
            address: BASE,
            length: bytes as u64,
            read_only: false,
        };
        Self {
            memory: vec![0; bytes],
            keys: BTreeMap::from([(KEY, grant)]),
            sent: VecDeque::new(),
            datagrams: VecDeque::new(),
            completions: Vec::new(),
            events: Vec::new(),
            room: usize::MAX,
            no_room_for: None,
            atomics: 0,
            binds: 0,
            invalidates: 0,
            flushes: Vec::new(),
            writes: 0,
            managed: 0,
        }
    }

    pub(crate) fn bytes(&self, address: u64, length: usize) -> &[u8] {
        let start = (address - BASE) as usize;
        &self.memory[start..start + length]
    }

    pub(crate) fn bytes_mut(&mut self, address: u64, length: usize) -> &mut [u8] {
        let start = (address - BASE) as usize;
        &mut self.memory[start..start + length]
    }

    pub(crate) fn word(&self, address: u64) -> u64 {
        u64::from_ne_bytes(self.bytes(address, 8).try_into().unwrap())
    }

    pub(crate) fn set_word(&mut self, address: u64, value: u64) {
        self.bytes_mut(address, 8)
            .copy_from_slice(&value.to_ne_bytes());
    }

    /// Completions since the last call.
    pub(crate) fn take_completions(&mut self) -> Vec<Completion> {
        self.completions.drain(..).map(|(_, c)| c).collect()
    }

    fn grant(&self, pd: PdId, key: u32, address: u64, length: u64, write: bool) -> Option<usize> {
        let grant = self.keys.get(&key)?;
        let end = address.checked_add(length)?;
        let inside = address >= grant.address && end <= grant.address + grant.length;
        let allowed = grant.pd == pd && inside && !(write && grant.read_only);
        allowed.then(|| (address - BASE) as usize)
    }

    /// The bytes that a list names, if its keys cover them.
    pub(crate) fn gather(&self, pd: PdId, sges: &[Sge]) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let gathered = self.append(Payload::Gather(pd, sges), &mut bytes);
        gathered.is_ok().then_some(bytes)
    }

    /// The bytes of a payload, behind others.
    fn append(&self, payload: Payload<'_>, bytes: &mut Vec<u8>) -> Result<(), TransmitError> {
        match payload {
            Payload::Bytes(data) => bytes.extend_from_slice(data),
            Payload::Gather(pd, sges) => {
                for sge in sges {
                    let length = u64::from(sge.length);
                    let at = self
                        .grant(pd, sge.lkey, sge.address, length, false)
                        .ok_or(TransmitError::Local(LocalFault))?;
                    bytes.extend_from_slice(&self.memory[at..at + sge.length as usize]);
                }
            }
            Payload::Remote(range) => {
                let at = self.remote(&range, false).map_err(TransmitError::Remote)?;
                bytes.extend_from_slice(&self.memory[at..at + range.length as usize]);
            }
        }
        Ok(())
    }

    fn remote(&self, range: &RemoteRange, write: bool) -> Result<usize, RemoteFault> {
        self.grant(range.pd, range.rkey, range.address, range.length, write)
            .ok_or(RemoteFault)
    }
}

impl Port for ToyHost {
    fn send(
        &mut self,
        route: &Route,
        headers: &MetaHeaders,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        if self.room == 0 {
            return Err(TransmitError::Busy);
        }
        let mut bytes = headers.as_bytes().to_vec();
        self.append(payload, &mut bytes)?;
        self.room -= 1;
        self.datagrams.push_back((*route, bytes));
        Ok(())
    }
}

impl Host for ToyHost {
    fn transmit(
        &mut self,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        if self.room == 0 || self.no_room_for == Some(to.dest_qp) {
            return Err(TransmitError::Busy);
        }
        let mut bytes = headers.as_bytes().to_vec();
        let start = bytes.len();
        self.append(payload, &mut bytes)?;
        let pad = usize::from(pad_len(bytes.len() - start));
        bytes.resize(bytes.len() + pad + icrc::LEN, 0);
        self.room -= 1;
        self.sent.push_back(Frame { to: *to, bytes });
        Ok(())
    }

    fn scatter(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        let (mut skip, mut rest) = (offset, data);
        for sge in sges {
            let length = u64::from(sge.length);
            if skip >= length {
                skip -= length;
                continue;
            }
            let count = (length - skip).min(rest.len() as u64) as usize;
            let at = self
                .grant(pd, sge.lkey, sge.address + skip, count as u64, true)
                .ok_or(LocalFault)?;
            self.memory[at..at + count].copy_from_slice(&rest[..count]);
            (skip, rest) = (0, &rest[count..]);
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(LocalFault)
        }
    }

    fn check(&mut self, range: &RemoteRange, access: RemoteAccess) -> Result<(), RemoteFault> {
        let write = matches!(access, RemoteAccess::Write | RemoteAccess::Atomic);
        self.remote(range, write).map(drop)
    }

    fn write(&mut self, range: &RemoteRange, data: &[u8]) -> Result<(), RemoteFault> {
        assert_eq!(range.length, data.len() as u64);
        let at = self.remote(range, true)?;
        self.memory[at..at + data.len()].copy_from_slice(data);
        self.writes += 1;
        Ok(())
    }

    fn atomic(
        &mut self,
        range: &RemoteRange,
        operation: AtomicOperation,
    ) -> Result<u64, RemoteFault> {
        self.remote(range, true)?;
        let original = self.word(range.address);
        let value = match operation {
            AtomicOperation::CompareSwap { compare, swap } if compare == original => swap,
            AtomicOperation::CompareSwap { .. } => original,
            AtomicOperation::FetchAdd(add) => original.wrapping_add(add),
        };
        self.set_word(range.address, value);
        self.atomics += 1;
        Ok(original)
    }

    fn atomic_write(&mut self, range: &RemoteRange, value: [u8; 8]) -> Result<(), RemoteFault> {
        let at = self.remote(range, true)?;
        self.memory[at..at + 8].copy_from_slice(&value);
        self.writes += 1;
        Ok(())
    }

    fn flush(
        &mut self,
        range: &RemoteRange,
        access: RemoteAccess,
        whole_region: bool,
    ) -> Result<(), RemoteFault> {
        if whole_region {
            self.keys.get(&range.rkey).ok_or(RemoteFault)?;
        } else {
            self.remote(range, false)?;
        }
        self.flushes.push((access, whole_region));
        Ok(())
    }

    fn remote_invalidate(&mut self, pd: PdId, _qpn: Qpn, key: u32) -> Result<(), RemoteFault> {
        match self.keys.get(&key) {
            Some(grant) if grant.pd == pd => {
                self.keys.remove(&key);
                self.invalidates += 1;
                Ok(())
            }
            _ => Err(RemoteFault),
        }
    }

    fn local_invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), LocalFault> {
        self.remote_invalidate(pd, qpn, key).map_err(|_| LocalFault)
    }

    fn bind(&mut self, pd: PdId, _qpn: Qpn, request: &BindRequest) -> Result<(), LocalFault> {
        let region = self.keys.get(&request.region).ok_or(LocalFault)?;
        if region.pd != pd {
            return Err(LocalFault);
        }
        let grant = Grant {
            address: request.address,
            length: request.length,
            ..*region
        };
        self.keys.insert(request.window, grant);
        self.binds += 1;
        Ok(())
    }

    fn complete(&mut self, cq: CqId, completion: Completion) {
        self.completions.push((cq, completion));
    }

    fn management(&mut self, _from: &Address, _mad: &[u8; MAD_LEN]) {
        self.managed += 1;
    }

    fn event(&mut self, event: AsyncEvent) {
        self.events.push(event);
    }
}
