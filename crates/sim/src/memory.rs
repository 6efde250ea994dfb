//! What stands in for the memory of a host: nothing is stored.
//!
//! Message *k* of a flow lives at *k* strides in both hosts, and the protection domain is the
//! number of the flow. So an address alone tells which byte of which message belongs there: with
//! checked payloads, senders compute the bytes from the address and receivers compare.

use crate::frame::FrameBytes;
use crate::random::mix;
use crate::{FlowId, Report};
use feroce_proto::{LocalFault, Payload, PdId, RemoteFault, RemoteRange, Sge};

/// The one key of every host, which grants everything.
pub(crate) const KEY: u32 = 0x5eed;

/// Memory, and what was seen there.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Payloads are real bytes and compared.
    pub(crate) is_checked: bool,
    pub(crate) reports: Vec<Report>,
}

impl Memory {
    /// Adds a payload to a packet; returns how many bytes are phantom.
    pub(crate) fn append(&self, payload: Payload<'_>, bytes: &mut FrameBytes) -> u32 {
        match payload {
            Payload::Bytes(data) => {
                bytes.extend_from_slice(data);
                0
            }
            Payload::Gather(pd, sges) => {
                let pieces = sges.iter();
                pieces
                    .map(|sge| self.append_range(pd, sge.address, sge.length, bytes))
                    .sum()
            }
            Payload::Remote(range) => {
                let length = u32::try_from(range.length).unwrap_or(u32::MAX);
                self.append_range(range.pd, range.address, length, bytes)
            }
        }
    }

    fn append_range(&self, pd: PdId, address: u64, length: u32, bytes: &mut FrameBytes) -> u32 {
        if !self.is_checked {
            return length;
        }
        bytes.extend((address..address + u64::from(length)).map(|at| byte_at(pd, at)));
        0
    }

    /// Payload lands at an address.
    pub(crate) fn place(&mut self, pd: PdId, address: u64, data: &[u8]) {
        let flow = FlowId(pd.0);
        if self.is_checked {
            let wrong = (address..)
                .zip(data)
                .find(|&(at, &byte)| byte != byte_at(pd, at));
            if let Some((address, _)) = wrong {
                self.reports.push(Report::Wrong { flow, address });
            }
        }
        self.reports.push(Report::Placed {
            flow,
            address,
            length: data.len() as u32,
        });
    }

    /// Payload lands in a scatter list.
    pub(crate) fn scatter(
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
            let (piece, left) = rest.split_at(rest.len().min((length - skip) as usize));
            if sge.lkey != KEY {
                return Err(LocalFault);
            }
            if !piece.is_empty() {
                self.place(pd, sge.address + skip, piece);
            }
            (skip, rest) = (0, left);
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(LocalFault)
        }
    }

    /// A peer's payload lands in the range that it names.
    pub(crate) fn write(&mut self, range: &RemoteRange, data: &[u8]) -> Result<(), RemoteFault> {
        Self::check(range)?;
        if !data.is_empty() {
            self.place(range.pd, range.address, data);
        }
        Ok(())
    }

    /// Whether a peer may use a range.
    pub(crate) const fn check(range: &RemoteRange) -> Result<(), RemoteFault> {
        if range.rkey == KEY {
            Ok(())
        } else {
            Err(RemoteFault)
        }
    }
}

/// The byte that belongs at an address.
const fn byte_at(pd: PdId, address: u64) -> u8 {
    let word = mix((pd.0 as u64) << 40 ^ address >> 3);
    (word >> ((address & 7) * 8)) as u8
}
