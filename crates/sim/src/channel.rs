//! One direction of a link: the queue at its sender, and the wire.

use crate::fault::Impaired;
use crate::frame::NONE;
use crate::topology::Node;
use crate::{FrameId, LinkConfig, Time};

/// What one direction of a link has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelStatistics {
    /// Packets that left.
    pub packets: u64,
    /// Bytes that left, with framing.
    pub bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets dropped because the queue or the buffer was full.
    pub dropped_full: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets lost because the link was down.
    pub dropped_down: u64,
    /// Packets changed on the way.
    pub corrupted: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets delayed so that others overtook them.
    pub reordered: u64,
    /// Most bytes that waited.
    pub queue_max: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) config: LinkConfig,
    pub(crate) is_up: bool,
    /// How often it has failed: what left before the last time does not arrive.
    pub(crate) failures: u32,
    pub(crate) busy_until: Time,
    /// An [`Event::Free`] is under way.
    pub(crate) is_watched: bool,
    pub(crate) first: FrameId,
    pub(crate) last: FrameId,
    pub(crate) queued: u64,
    pub(crate) impaired: Option<Box<Impaired>>,
    pub(crate) statistics: ChannelStatistics,
}

impl Channel {
    pub(crate) const fn new(from: Node, to: Node, config: LinkConfig) -> Self {
        Self {
            from,
            to,
            config,
            is_up: true,
            failures: 0,
            busy_until: Time::ZERO,
            is_watched: false,
            first: NONE,
            last: NONE,
            queued: 0,
            impaired: None,
            statistics: ChannelStatistics {
                packets: 0,
                bytes: 0,
                marked: 0,
                dropped_full: 0,
                lost: 0,
                dropped_down: 0,
                corrupted: 0,
                duplicated: 0,
                reordered: 0,
                queue_max: 0,
            },
        }
    }
}

impl ChannelStatistics {
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.marked += other.marked;
        self.dropped_full += other.dropped_full;
        self.lost += other.lost;
        self.dropped_down += other.dropped_down;
        self.corrupted += other.corrupted;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.queue_max = self.queue_max.max(other.queue_max);
    }
}
