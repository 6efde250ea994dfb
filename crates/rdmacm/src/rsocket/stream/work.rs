//! What a stream asks its owner to post, and how big it is.

use super::super::ring::Span;
use super::super::wire::{IoMap, Message};

/// Sizes that are fixed when a stream begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of the send buffer.
    pub(crate) send_buffer: u32,
    /// Bytes of the receive buffer, both halves; even.
    pub(crate) receive_buffer: u32,
    /// Entries of the send queue, those for control messages among them.
    pub(crate) send_queue: u16,
    /// Data messages that the peer may have under way.
    pub(crate) receive_queue: u16,
    /// Bytes that are sent without a copy in the send buffer.
    pub(crate) inline: u32,
    /// I/O mappings that the peer may make with us.
    pub(crate) io_maps: u16,
}

/// What a work request was, in the 64 bits that come back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// A receive for an immediate.
    Receive,
    /// Data, and the bytes of the send buffer that it held.
    Send(u32),
    /// A control message.
    Control,
}

impl Work {
    /// As a work request identifier.
    pub(crate) fn id(self) -> u64 {
        match self {
            Self::Receive => 0,
            Self::Control => 1 << 32,
            Self::Send(bytes) => 2 << 32 | u64::from(bytes),
        }
    }

    /// From the identifier in a completion.
    pub(crate) fn from_id(id: u64) -> Self {
        match id >> 32 {
            0 => Self::Receive,
            1 => Self::Control,
            // Lossless: the upper half is cut off.
            _ => Self::Send(id as u32),
        }
    }
}

/// An RDMA WRITE to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Bytes to write.
    pub(crate) length: u32,
    /// Where they go in the send buffer first; `None`: they are sent inline.
    pub(crate) span: Option<Span>,
    /// Where to write, in the peer's memory.
    pub(crate) remote: u64,
    /// The peer's key.
    pub(crate) key: u32,
    /// The immediate; `None`: the peer is not told.
    pub(crate) message: Option<Message>,
    /// What comes back with the completion.
    pub(crate) work: Work,
}

/// A control message to post: a write of a few bytes that are in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlWrite {
    bytes: [u8; IoMap::LEN],
    length: usize,
    /// Where to write.
    pub(crate) remote: u64,
    /// The peer's key.
    pub(crate) key: u32,
    /// The immediate; `None` for a sign of life that the peer does not see.
    pub(crate) message: Option<Message>,
    /// What comes back with the completion.
    pub(crate) work: Work,
}

impl ControlWrite {
    pub(super) fn new(message: Option<Message>) -> Self {
        Self {
            bytes: [0; IoMap::LEN],
            length: 0,
            remote: 0,
            key: 0,
            message,
            work: Work::Control,
        }
    }

    pub(super) fn with(mut self, bytes: &[u8], remote: u64, key: u32) -> Self {
        self.bytes[..bytes.len()].copy_from_slice(bytes);
        self.length = bytes.len();
        (self.remote, self.key) = (remote, key);
        self
    }

    /// What to write.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
