//! Short forms of what most programs do with the objects of this crate. Nothing here that could
//! not be written with the rest of it.

use crate::{
    AttributeMask, Buffer, Completion, CompletionQueue, Context, Data, Path, PathError,
    PathRequest, QpAttributes, QpError, QpState, QueuePair, SgeList, gid_bytes,
};
use feroce_engine::GID_TABLE_LEN;
use std::net::IpAddr;
use std::time::{Duration, Instant};

impl Context {
    /// The path to an address, from the first GID of the same address family, with usual
    /// attributes.
    ///
    /// # Errors
    /// [`PathError::TwoFamilies`] or [`PathError::NoSuchGid`] if the device has no GID of that
    /// family; otherwise as [`resolve`](Self::resolve).
    pub fn path_to(&self, destination: IpAddr) -> Result<Path, PathError> {
        let source = (0..GID_TABLE_LEN)
            .find(|&index| {
                self.gid(index)
                    .is_some_and(|gid| gid.is_ipv4() == destination.is_ipv4())
            })
            .unwrap_or(0);
        self.resolve(&PathRequest {
            destination: gid_bytes(destination),
            // Below the table's length of 16.
            source_gid_index: source as u8,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            service_level: 0,
        })
    }
}

impl Buffer {
    /// `length` bytes from `offset` as the data of a send request.
    pub fn gather(&self, offset: u64, length: u32) -> Data {
        Data::Gather(self.scatter(offset, length))
    }

    /// `length` bytes from `offset` as the place of a receive request.
    pub fn scatter(&self, offset: u64, length: u32) -> SgeList {
        SgeList::from_slice(&[self.sge(offset, length)])
    }
}

impl CompletionQueue {
    /// Polls until there is a completion and takes it; `None` if there is none for `timeout`.
    /// Keeps a processor busy: to sleep, use a [`CompletionChannel`](crate::CompletionChannel).
    pub fn wait_one(&self, timeout: Duration) -> Option<Completion> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(entry) = self.poll_one() {
                return Some(entry.completion);
            }
            if Instant::now() >= deadline {
                return None;
            }
        }
    }
}

impl QueuePair {
    /// Brings a queue pair of type UD from RESET to RTS in one call. It takes datagrams with
    /// the queue key `qkey`, and sends with it where a request's key has the top bit set.
    ///
    /// # Errors
    /// [`QpError::Modify`], as [`modify`](Self::modify) gives it.
    pub fn enable_datagrams(&self, qkey: u32) -> Result<(), QpError> {
        use AttributeMask as Mask;
        let mut attributes = QpAttributes {
            state: QpState::Init,
            qkey,
            ..QpAttributes::default()
        };
        self.modify(
            &attributes,
            Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY,
        )?;
        attributes.state = QpState::ReadyToReceive;
        self.modify(&attributes, Mask::STATE)?;
        attributes.state = QpState::ReadyToSend;
        self.modify(&attributes, Mask::STATE | Mask::SQ_PSN)
    }
}
