//! Who is joined to whom: hosts, switches, links, and the shortest ways between them.
//!
//! A host has one port per link, and a port has an address: `10.PORT.HIGH.LOW`, where HIGH and
//! LOW are the host's number. With several planes, port *p* of every host lies in plane *p*.

use crate::{Chance, Rate, Span};
use core::net::{IpAddr, Ipv4Addr};

/// A host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

/// A switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SwitchId(pub u32);

/// A link between two ports, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId(pub u32);

impl LinkId {
    /// From the end that was named first when the link was made.
    pub const fn forward(self) -> ChannelId {
        ChannelId(self.0 * 2)
    }

    /// Towards the end that was named first.
    pub const fn backward(self) -> ChannelId {
        ChannelId(self.0 * 2 + 1)
    }

    /// Both directions.
    pub const fn channels(self) -> [ChannelId; 2] {
        [self.forward(), self.backward()]
    }
}

/// An end of a link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Node {
    /// A host: the link becomes its next port.
    Host(HostId),
    /// A switch.
    Switch(SwitchId),
}

/// What a link does to packets when all is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Bits per second, of everything [`Frame::wire_bytes`](crate::Frame::wire_bytes) counts.
    pub rate: Rate,
    /// Time from one end to the other, with whatever the receiving device takes to look at a
    /// packet.
    pub delay: Span,
}

/// When a switch marks packets that allow it (RFC 3168): never up to `min` bytes in the
/// queue, always from `max` on, between them with a chance that grows up to `chance_max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "said above")]
pub struct EcnRamp {
    pub min: u64,
    pub max: u64,
    pub chance_max: Chance,
}

/// Which of several ways of equal length a packet takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EcmpRule {
    /// By a hash of the five-tuple, with a salt per switch.
    Hash,
    /// By the UDP source port modulo the number of ways: for tests that must know the way.
    SourcePort,
}

/// A switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// Bytes that all queues of the switch share.
    pub buffer: u64,
    /// A queue holds at most this many bytes.
    pub queue_max: u64,
    /// A queue holds at most `numerator / denominator` times what is free of the buffer
    /// (dynamic threshold).
    pub threshold: (u64, u64),
    /// Marking.
    pub ecn: Option<EcnRamp>,
    /// Choice of way.
    pub ecmp: EcmpRule,
}

impl SwitchConfig {
    /// Queues measured in the bytes that fill a round trip at `rate`: marks begin at 1/5 of that
    /// product and hit every packet at 4/5, a queue ends at five times (the settings of the
    /// published Ultra Ethernet simulations without trimming, FACTS 2.2).
    pub const fn for_round_trip(rate: Rate, round_trip: Span) -> Self {
        let product = rate.bytes_in(round_trip);
        Self {
            buffer: product * 512,
            queue_max: product * 5,
            threshold: (8, 1),
            ecn: Some(EcnRamp {
                min: product / 5,
                max: product * 4 / 5,
                chance_max: Chance::percent(100),
            }),
            ecmp: EcmpRule::Hash,
        }
    }
}

/// A port of a host, seen from the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attachment {
    /// The switch it hangs on; `None` if its link leads to another host.
    pub(crate) switch: Option<SwitchId>,
    /// The channel that leads to the host.
    pub(crate) channel: ChannelId,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) ends: [Node; 2],
    pub(crate) config: LinkConfig,
}

/// A network to be simulated.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    pub(crate) links: Vec<Link>,
    pub(crate) switches: Vec<SwitchConfig>,
    /// Per host and port: the channel that leads away from it.
    pub(crate) ports: Vec<Vec<ChannelId>>,
    pub(crate) attachments: Vec<Attachment>,
    /// Per host: its first attachment.
    attachment_of: Vec<Vec<u32>>,
}

impl Topology {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a host without ports.
    ///
    /// # Panics
    /// After 65,536 hosts: addresses have room for no more.
    pub fn add_host(&mut self) -> HostId {
        assert!(self.ports.len() < 1 << 16, "more hosts than addresses");
        self.ports.push(Vec::new());
        self.attachment_of.push(Vec::new());
        HostId(self.ports.len() as u32 - 1)
    }

    /// Adds a switch without ports.
    pub fn add_switch(&mut self, config: SwitchConfig) -> SwitchId {
        self.switches.push(config);
        SwitchId(self.switches.len() as u32 - 1)
    }

    /// Joins two nodes; several links between the same two are several ways.
    ///
    /// # Panics
    /// If a host gets more than 256 ports: addresses have room for no more.
    pub fn connect(&mut self, first: Node, second: Node, config: LinkConfig) -> LinkId {
        let link = LinkId(self.links.len() as u32);
        let ends = [first, second];
        self.links.push(Link { ends, config });
        for (end, other, channels) in [
            (first, second, link.channels()),
            (second, first, [link.backward(), link.forward()]),
        ] {
            if let Node::Host(HostId(host)) = end {
                let ports = &mut self.ports[host as usize];
                assert!(ports.len() < 256, "more ports than addresses");
                ports.push(channels[0]);
                let switch = match other {
                    Node::Switch(switch) => Some(switch),
                    Node::Host(_) => None,
                };
                self.attachment_of[host as usize].push(self.attachments.len() as u32);
                self.attachments.push(Attachment {
                    switch,
                    channel: channels[1],
                });
            }
        }
        link
    }

    /// Hosts.
    pub const fn host_count(&self) -> u32 {
        self.ports.len() as u32
    }

    /// Links.
    pub const fn link_count(&self) -> u32 {
        self.links.len() as u32
    }

    /// Ports of a host.
    pub fn port_count(&self, host: HostId) -> u32 {
        self.ports[host.0 as usize].len() as u32
    }

    /// The addresses of a host, one per port.
    pub fn addresses(&self, host: HostId) -> Vec<IpAddr> {
        (0..self.port_count(host))
            .map(|port| address(host, port))
            .collect()
    }

    /// The attachment that has an address.
    pub(crate) fn attachment(&self, address: IpAddr) -> Option<u32> {
        let (host, port) = place_of(address)?;
        self.attachment_of
            .get(host.0 as usize)?
            .get(port as usize)
            .copied()
    }

    /// For every pair of switches the channels by which a packet comes nearer, leaving out those
    /// that are down.
    pub(crate) fn routes(&self, is_up: impl Fn(ChannelId) -> bool) -> Routes {
        let count = self.switches.len();
        let mut leaving = vec![Vec::new(); count];
        let mut entering = vec![Vec::new(); count];
        for (index, link) in self.links.iter().enumerate() {
            let [forward, backward] = LinkId(index as u32).channels();
            if let [Node::Switch(a), Node::Switch(b)] = link.ends {
                for (from, to, channel) in [(a, b, forward), (b, a, backward)] {
                    if is_up(channel) {
                        leaving[from.0 as usize].push((to.0 as usize, channel));
                        entering[to.0 as usize].push(from.0 as usize);
                    }
                }
            }
        }
        let mut routes = Routes {
            switches: count,
            groups: vec![Vec::new()],
            group_of: vec![0; count * count],
        };
        let edges = self
            .attachments
            .iter()
            .filter_map(|attachment| attachment.switch);
        let mut edges: Vec<usize> = edges.map(|switch| switch.0 as usize).collect();
        edges.sort_unstable();
        edges.dedup();
        for to in edges {
            let distance = distances(to, &entering);
            for from in 0..count {
                let nearer = |&&(next, _): &&(usize, ChannelId)| {
                    distance[next] != usize::MAX && distance[next] + 1 == distance[from]
                };
                let ways = leaving[from]
                    .iter()
                    .filter(nearer)
                    .map(|&(_, channel)| channel);
                routes.set(from, to, ways.collect());
            }
        }
        routes
    }
}

/// Hops from every switch to `to`.
fn distances(to: usize, entering: &[Vec<usize>]) -> Vec<usize> {
    let mut distance = vec![usize::MAX; entering.len()];
    distance[to] = 0;
    let mut front = vec![to];
    while !front.is_empty() {
        let mut next_front = Vec::new();
        for &node in &front {
            for &from in &entering[node] {
                if distance[from] == usize::MAX {
                    distance[from] = distance[node] + 1;
                    next_front.push(from);
                }
            }
        }
        front = next_front;
    }
    distance
}

/// Groups of equal ways.
#[derive(Debug)]
pub(crate) struct Routes {
    switches: usize,
    groups: Vec<Vec<ChannelId>>,
    group_of: Vec<u32>,
}

impl Routes {
    fn set(&mut self, from: usize, to: usize, ways: Vec<ChannelId>) {
        // The same few groups are used for many destinations.
        let known = self.groups.iter().rposition(|group| *group == ways);
        let group = known.unwrap_or_else(|| {
            self.groups.push(ways);
            self.groups.len() - 1
        });
        self.group_of[from * self.switches + to] = group as u32;
    }

    pub(crate) fn ways(&self, from: SwitchId, to: SwitchId) -> &[ChannelId] {
        let group = self.group_of[from.0 as usize * self.switches + to.0 as usize];
        &self.groups[group as usize]
    }
}

/// The address of a host's port.
pub const fn address(host: HostId, port: u32) -> IpAddr {
    let [_, _, high, low] = host.0.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, port as u8, high, low))
}

/// The host and port that have an address.
pub(crate) const fn place_of(address: IpAddr) -> Option<(HostId, u32)> {
    match address {
        IpAddr::V4(address) => match address.octets() {
            [10, port, high, low] => {
                let host = HostId(u32::from_be_bytes([0, 0, high, low]));
                Some((host, port as u32))
            }
            _ => None,
        },
        IpAddr::V6(_) => None,
    }
}
