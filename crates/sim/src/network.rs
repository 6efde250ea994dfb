//! Links, queues and switches: how a packet gets from a host's port to another.
//!
//! Every direction of a link is a *channel*: the queue at its sender, and the wire. A switch looks
//! at a packet when its last bit is there, picks the channel, and admits the packet to that
//! channel's queue, marks it or drops it; the queue is served in order. A host's port has a
//! queue of its own, which the host keeps short.

use crate::channel::{Channel, ChannelStatistics};
use crate::fault::{Action, Impaired, Impairment};
use crate::frame::{Frame, Frames, Hot, NONE};
use crate::random::mix;
use crate::topology::{Attachment, EcmpRule, Node, Routes, Topology};
use crate::{
    ChannelId, EcnRamp, EventQueue, FrameId, HostId, Random, Rate, Span, SwitchConfig, SwitchId,
    Time,
};

/// The two ECN bits of a traffic class (RFC 3168).
const ECN_BITS: u8 = 3;

/// What is to happen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A packet's last bit is at the far end of a channel.
    Arrive(ChannelId, FrameId),
    /// A channel may send its next packet.
    Free(ChannelId),
    /// A host's timer, if its number is still the newest.
    Timer(HostId, u32),
    /// A flow begins.
    Begin(u32),
    /// A fault of the schedule.
    Fault(u32),
    /// A sample is due.
    Sample,
}

#[derive(Debug)]
struct Switch {
    config: SwitchConfig,
    used: u64,
    salt: u64,
    random: Random,
}

/// Everything between the hosts.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    topology: Topology,
    channels: Vec<Channel>,
    switches: Vec<Switch>,
    routes: Routes,
    frames: Frames,
    /// Packets on wires.
    flying: u64,
    /// Packets that hosts sent, and copies that links made.
    entered: u64,
    /// Packets that hosts received, and that were dropped or lost.
    left: u64,
    /// Packets to addresses that nobody has or no way leads to.
    unroutable: u64,
    rehashes: u64,
}

/// Streams of random numbers.
const STREAM_CHANNEL: u64 = 1 << 32;
const STREAM_SWITCH: u64 = 2 << 32;
const STREAM_SALT: u64 = 3 << 32;

impl Network {
    pub(crate) fn new(topology: Topology, seed: u64) -> Self {
        let mut channels = Vec::new();
        for link in &topology.links {
            let [a, b] = link.ends;
            channels.push(Channel::new(a, b, link.config));
            channels.push(Channel::new(b, a, link.config));
        }
        let switch = |(index, &config): (usize, &SwitchConfig)| Switch {
            config,
            used: 0,
            salt: salt(seed, index, 0),
            random: Random::new(seed, STREAM_SWITCH + index as u64),
        };
        Self {
            seed,
            channels,
            switches: topology.switches.iter().enumerate().map(switch).collect(),
            routes: topology.routes(|_| true),
            frames: Frames::default(),
            flying: 0,
            entered: 0,
            left: 0,
            unroutable: 0,
            rehashes: 0,
            topology,
        }
    }

    /// What the network was made from.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What a channel has seen.
    pub fn statistics(&self, channel: ChannelId) -> &ChannelStatistics {
        &self.channels[channel.0 as usize].statistics
    }

    /// The sum over all channels; of the longest queues, the longest.
    pub fn total(&self) -> ChannelStatistics {
        let mut total = ChannelStatistics::default();
        for channel in &self.channels {
            total.add(&channel.statistics);
        }
        total
    }

    /// Bytes that wait for a channel now.
    pub fn queued(&self, channel: ChannelId) -> u64 {
        self.channels[channel.0 as usize].queued
    }

    /// Packets to addresses that nobody has or no way leads to.
    pub const fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// Whether a host's port could send a packet at once.
    pub(crate) fn is_idle(&self, channel: ChannelId, now: Time) -> bool {
        let channel = &self.channels[channel.0 as usize];
        channel.busy_until <= now && channel.first == NONE
    }

    /// Packets that wait for a channel now.
    pub(crate) fn queued_packets(&self, channel: ChannelId) -> u32 {
        self.waiting(&self.channels[channel.0 as usize]) as u32
    }

    /// Packets sent equal packets received, dropped, waiting and flying.
    pub(crate) fn check_conservation(&self) -> Result<(), String> {
        let waiting: u64 = self
            .channels
            .iter()
            .map(|channel| self.waiting(channel))
            .sum();
        let alive = self.frames.len();
        if alive != waiting + self.flying {
            return Err(format!(
                "{alive} packets exist, but {waiting} wait and {} fly",
                self.flying
            ));
        }
        if self.entered != self.left + alive {
            return Err(format!(
                "{} packets came to be, but {} ended and {alive} exist",
                self.entered, self.left
            ));
        }
        let mut used = vec![0; self.switches.len()];
        for channel in &self.channels {
            if let Node::Switch(switch) = channel.from {
                used[switch.0 as usize] += channel.queued;
            }
        }
        let differs = |(switch, &used): (&Switch, &u64)| switch.used != used;
        if let Some(index) = self.switches.iter().zip(&used).position(differs) {
            return Err(format!(
                "switch {index} counts {} bytes, but {} wait",
                self.switches[index].used, used[index]
            ));
        }
        Ok(())
    }

    fn waiting(&self, channel: &Channel) -> u64 {
        let mut count = 0;
        let mut id = channel.first;
        while id != NONE {
            count += 1;
            id = self.frames.hot(id).next;
        }
        count
    }

    /// A host sends a packet by the port that has its source address.
    pub(crate) fn send(
        &mut self,
        now: Time,
        channel: ChannelId,
        frame: Frame,
        events: &mut EventQueue<Event>,
    ) {
        self.entered += 1;
        let Some(attachment) = self.topology.attachment(frame.address.destination) else {
            self.unroutable += 1;
            self.left += 1;
            return;
        };
        let hot = Hot {
            next: NONE,
            wire_bytes: frame.wire_bytes(),
            hash: hash_of(&frame),
            attachment,
            failures: 0,
            traffic_class: frame.address.traffic_class,
            corrupt: false,
        };
        let id = self.frames.insert(hot, frame);
        self.enqueue(now, channel, id, events);
    }

    /// A packet's last bit is at the end of a channel: a switch sends it on; what is for a host
    /// is returned.
    pub(crate) fn arrive(
        &mut self,
        now: Time,
        channel: ChannelId,
        id: FrameId,
        events: &mut EventQueue<Event>,
    ) -> Option<(HostId, Frame, bool)> {
        self.flying -= 1;
        let from = &mut self.channels[channel.0 as usize];
        if !from.is_up || from.failures != self.frames.hot(id).failures {
            from.statistics.dropped_down += 1;
            self.discard(id);
            return None;
        }
        match from.to {
            Node::Host(host) => {
                self.left += 1;
                let (hot, mut frame) = self.frames.remove(id)?;
                frame.address.traffic_class = hot.traffic_class;
                Some((host, frame, hot.corrupt))
            }
            Node::Switch(switch) => {
                match self.way(switch, id) {
                    Some(way) => self.enqueue(now, way, id, events),
                    None => {
                        self.unroutable += 1;
                        self.discard(id);
                    }
                }
                None
            }
        }
    }

    /// The channel by which a switch sends a packet on.
    fn way(&self, switch: SwitchId, id: FrameId) -> Option<ChannelId> {
        let hot = self.frames.hot(id);
        let Attachment {
            switch: last,
            channel,
        } = self.topology.attachments[hot.attachment as usize];
        let last = last?;
        if last == switch {
            return Some(channel);
        }
        let ways = self.routes.ways(switch, last);
        let Switch { config, salt, .. } = &self.switches[switch.0 as usize];
        let choice = match config.ecmp {
            EcmpRule::Hash => {
                let hash = mix(hot.hash ^ salt) >> 32;
                (hash * ways.len() as u64) >> 32
            }
            // The low bits of the hash are the port, for this rule.
            EcmpRule::SourcePort => (hot.hash & 0xffff) % (ways.len() as u64).max(1),
        };
        ways.get(choice as usize).copied()
    }

    fn enqueue(
        &mut self,
        now: Time,
        channel: ChannelId,
        id: FrameId,
        events: &mut EventQueue<Event>,
    ) {
        let index = channel.0 as usize;
        let sender = &mut self.channels[index];
        if !sender.is_up {
            sender.statistics.dropped_down += 1;
            return self.discard(id);
        }
        let hot = self.frames.hot_mut(id);
        let bytes = u64::from(hot.wire_bytes);
        let is_idle = sender.busy_until <= now && sender.first == NONE;
        if let Node::Switch(switch) = sender.from {
            let switch = &mut self.switches[switch.0 as usize];
            if !is_idle && !switch.admits(sender.queued, bytes) {
                sender.statistics.dropped_full += 1;
                return self.discard(id);
            }
            if let Some(ramp) = &switch.config.ecn
                && hot.traffic_class & ECN_BITS != 0
                && ramp.marks(sender.queued, &mut switch.random)
            {
                hot.traffic_class |= ECN_BITS;
                sender.statistics.marked += 1;
            }
            if !is_idle {
                switch.used += bytes;
            }
        }
        if is_idle {
            return self.launch(now, channel, id, events);
        }
        hot.next = NONE;
        sender.queued += bytes;
        sender.statistics.queue_max = sender.statistics.queue_max.max(sender.queued);
        if sender.first == NONE {
            sender.first = id;
        } else {
            self.frames.hot_mut(sender.last).next = id;
        }
        sender.last = id;
        if !sender.is_watched {
            sender.is_watched = true;
            events.push(sender.busy_until, Event::Free(channel));
        }
    }

    /// The channel may have become free: the next packet leaves. Returns the host that may send
    /// more, if the channel is its own.
    pub(crate) fn free(
        &mut self,
        now: Time,
        channel: ChannelId,
        events: &mut EventQueue<Event>,
    ) -> Option<HostId> {
        let sender = &mut self.channels[channel.0 as usize];
        sender.is_watched = false;
        if let Some(id) = self.unqueue(channel) {
            self.launch(now, channel, id, events);
        }
        match self.channels[channel.0 as usize].from {
            Node::Host(host) => Some(host),
            Node::Switch(_) => None,
        }
    }

    /// Takes the first packet out of a queue.
    fn unqueue(&mut self, channel: ChannelId) -> Option<FrameId> {
        let sender = &mut self.channels[channel.0 as usize];
        let id = sender.first;
        if id == NONE {
            return None;
        }
        let hot = self.frames.hot(id);
        sender.first = hot.next;
        sender.queued -= u64::from(hot.wire_bytes);
        if let Node::Switch(switch) = sender.from {
            self.switches[switch.0 as usize].used -= u64::from(hot.wire_bytes);
        }
        Some(id)
    }

    /// A packet goes on the wire.
    fn launch(
        &mut self,
        now: Time,
        channel: ChannelId,
        id: FrameId,
        events: &mut EventQueue<Event>,
    ) {
        let sender = &mut self.channels[channel.0 as usize];
        let hot = self.frames.hot_mut(id);
        sender.busy_until = now + sender.config.rate.span_of(u64::from(hot.wire_bytes));
        sender.statistics.packets += 1;
        sender.statistics.bytes += u64::from(hot.wire_bytes);
        hot.failures = sender.failures;
        // A host's port is watched always: the host decides only then what it sends next.
        let must_watch = sender.first != NONE || matches!(sender.from, Node::Host(_));
        if must_watch && !sender.is_watched {
            sender.is_watched = true;
            events.push(sender.busy_until, Event::Free(channel));
        }
        let arrival = sender.busy_until + sender.config.delay;
        let Some(impaired) = &mut sender.impaired else {
            self.flying += 1;
            events.push_shuffled(arrival, Event::Arrive(channel, id));
            return;
        };
        let fate = impaired.draw();
        sender.statistics.lost += u64::from(fate.is_lost);
        sender.statistics.duplicated += u64::from(fate.is_doubled);
        sender.statistics.corrupted += u64::from(fate.is_corrupt);
        sender.statistics.reordered += u64::from(fate.late > Span::ZERO);
        if fate.is_lost {
            return self.discard(id);
        }
        hot.corrupt |= fate.is_corrupt;
        self.flying += 1;
        events.push_shuffled(arrival + fate.late, Event::Arrive(channel, id));
        if fate.is_doubled
            && let Some(copy) = self.frames.duplicate(id)
        {
            self.entered += 1;
            self.flying += 1;
            events.push_shuffled(arrival + fate.late_copy, Event::Arrive(channel, copy));
        }
    }

    fn discard(&mut self, id: FrameId) {
        self.frames.remove(id);
        self.left += 1;
    }

    /// Changes the network.
    pub(crate) fn apply(&mut self, action: Action) {
        match action {
            Action::Down(link) => {
                for channel in link.channels() {
                    while let Some(id) = self.unqueue(channel) {
                        self.discard(id);
                        self.channels[channel.0 as usize].statistics.dropped_down += 1;
                    }
                    let channel = &mut self.channels[channel.0 as usize];
                    channel.is_up = false;
                    channel.failures += 1;
                }
            }
            Action::Up(link) => {
                for channel in link.channels() {
                    self.channels[channel.0 as usize].is_up = true;
                }
            }
            Action::Rate(link, rate) => {
                for channel in link.channels() {
                    self.channels[channel.0 as usize].config.rate = rate;
                }
            }
            Action::Impair(channel, impairment) => self.impair(channel, impairment),
            Action::Rehash => {
                self.rehashes += 1;
                for (index, switch) in self.switches.iter_mut().enumerate() {
                    switch.salt = salt(self.seed, index, self.rehashes);
                }
            }
            Action::Reroute => {
                let channels = &self.channels;
                self.routes = self.topology.routes(|id| channels[id.0 as usize].is_up);
            }
        }
    }

    fn impair(&mut self, id: ChannelId, impairment: Impairment) {
        let channel = &mut self.channels[id.0 as usize];
        if impairment == Impairment::default() {
            channel.impaired = None;
        } else if let Some(impaired) = &mut channel.impaired {
            impaired.impairment = impairment;
        } else {
            channel.impaired = Some(Box::new(Impaired {
                impairment,
                random: Random::new(self.seed, STREAM_CHANNEL + u64::from(id.0)),
            }));
        }
    }

    /// The rate of a channel now.
    pub fn rate(&self, channel: ChannelId) -> Rate {
        self.channels[channel.0 as usize].config.rate
    }
}

impl Switch {
    /// Whether a queue that holds `queued` bytes takes `bytes` more.
    fn admits(&self, queued: u64, bytes: u64) -> bool {
        let free = self.config.buffer.saturating_sub(self.used);
        let (numerator, denominator) = self.config.threshold;
        let threshold = free * numerator / denominator.max(1);
        bytes <= free && queued + bytes <= threshold.min(self.config.queue_max)
    }
}

impl EcnRamp {
    fn marks(&self, queued: u64, random: &mut Random) -> bool {
        if queued <= self.min {
            return false;
        }
        if queued >= self.max {
            return true;
        }
        let full = self.chance_max.as_millionths();
        let part = full * (queued - self.min) / (self.max - self.min);
        random.happens(crate::Chance::millionths(part))
    }
}

fn salt(seed: u64, switch: usize, round: u64) -> u64 {
    mix(seed ^ mix(STREAM_SALT + switch as u64 + (round << 16)))
}

/// A hash of the five-tuple whose low bits are the source port.
fn hash_of(frame: &Frame) -> u64 {
    let part = |address| match address {
        core::net::IpAddr::V4(address) => u64::from(address.to_bits()),
        core::net::IpAddr::V6(address) => address.to_bits() as u64,
    };
    let ports = u64::from(frame.address.source_port) << 16 | u64::from(frame.destination_port);
    let hash = mix(part(frame.address.source) ^ mix(part(frame.address.destination) ^ mix(ports)));
    hash & !0xffff | u64::from(frame.address.source_port)
}
