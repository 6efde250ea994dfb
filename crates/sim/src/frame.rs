//! Packets inside the simulator.
//!
//! A packet's headers are real bytes, made by `wire`. Its payload may be *phantom*: a length
//! without bytes, so that runs over thousands of hosts fit into caches. A receiver's
//! protocol is shown bytes of that length whose values mean nothing.

use feroce_wire::Address;
use smallvec::SmallVec;

/// The bytes of a packet that are not phantom; headers fit in place.
pub type FrameBytes = SmallVec<[u8; 104]>;

/// A packet as an [`Endpoint`](crate::Endpoint) sends it: one UDP datagram.
#[derive(Clone, Debug)]
pub struct Frame {
    /// IP addresses, UDP source port, traffic class.
    pub address: Address,
    /// UDP destination port.
    pub destination_port: u16,
    /// The first bytes of the UDP payload.
    pub bytes: FrameBytes,
    /// Bytes of UDP payload that follow, with no value of their own.
    pub phantom: u32,
}

/// Bytes around a UDP payload on an Ethernet link with IPv4: preamble 8, Ethernet header 14, IP 20,
/// UDP 8, frame check sequence 4, gap 12.
pub const FRAMING_BYTES: u32 = 8 + 14 + 20 + 8 + 4 + 12;

/// The least time an Ethernet frame takes: 64 bytes, preamble and gap.
const FRAME_MIN_BYTES: u32 = 64 + 8 + 12;

impl Frame {
    /// Bytes of the UDP payload.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.phantom as usize
    }

    /// Whether the UDP payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the packet takes on a link, with everything around it.
    pub fn wire_bytes(&self) -> u32 {
        (self.len() as u32 + FRAMING_BYTES).max(FRAME_MIN_BYTES)
    }
}

/// Names a packet in the network.
pub(crate) type FrameId = u32;

/// No packet.
pub(crate) const NONE: FrameId = u32::MAX;

/// What forwarding looks at, apart from the rest so that a hop touches one cache line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hot {
    /// The next packet of the queue it waits in.
    pub(crate) next: FrameId,
    pub(crate) wire_bytes: u32,
    /// Hash of the five-tuple.
    pub(crate) hash: u64,
    /// Where it goes, as a number of the topology's attachments.
    pub(crate) attachment: u32,
    /// How often the link it flies over had failed when it left.
    pub(crate) failures: u32,
    pub(crate) traffic_class: u8,
    pub(crate) corrupt: bool,
}

/// All packets that exist.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    hot: Vec<Hot>,
    cold: Vec<Option<Frame>>,
    free: Vec<FrameId>,
}

impl Frames {
    pub(crate) fn insert(&mut self, hot: Hot, frame: Frame) -> FrameId {
        if let Some(id) = self.free.pop() {
            self.hot[id as usize] = hot;
            self.cold[id as usize] = Some(frame);
            return id;
        }
        self.hot.push(hot);
        self.cold.push(Some(frame));
        self.hot.len() as FrameId - 1
    }

    pub(crate) fn remove(&mut self, id: FrameId) -> Option<(Hot, Frame)> {
        let frame = self.cold[id as usize].take()?;
        self.free.push(id);
        Some((self.hot[id as usize], frame))
    }

    pub(crate) fn duplicate(&mut self, id: FrameId) -> Option<FrameId> {
        let frame = self.cold[id as usize].clone()?;
        Some(self.insert(self.hot[id as usize], frame))
    }

    pub(crate) fn hot(&self, id: FrameId) -> &Hot {
        &self.hot[id as usize]
    }

    pub(crate) fn hot_mut(&mut self, id: FrameId) -> &mut Hot {
        &mut self.hot[id as usize]
    }

    /// Packets that exist.
    pub(crate) fn len(&self) -> u64 {
        (self.hot.len() - self.free.len()) as u64
    }
}
