//! Usual networks, with their links by name so that faults can be placed.

use crate::{HostId, LinkConfig, LinkId, Node, Rate, Span, SwitchConfig, SwitchId, Topology};

/// A network of one or more equal planes. Every host has a port in every plane.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// The network.
    pub topology: Topology,
    /// Per plane and host: its link; the host is the first end.
    pub edges: Vec<Vec<LinkId>>,
    /// Per plane, leaf and spine: the link; the leaf is the first end.
    pub uplinks: Vec<Vec<Vec<LinkId>>>,
}

impl Fabric {
    /// Hosts, by number.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.topology.host_count()).map(HostId)
    }
}

/// Two hosts joined by one link.
pub fn back_to_back(link: LinkConfig) -> Fabric {
    let mut topology = Topology::new();
    let (a, b) = (topology.add_host(), topology.add_host());
    let link = topology.connect(Node::Host(a), Node::Host(b), link);
    Fabric {
        topology,
        edges: vec![vec![link, link]],
        uplinks: vec![],
    }
}

/// `left` and `right` hosts on two switches that one link joins, which is `uplinks[0][0][0]`.
pub fn dumbbell(
    (left, right): (u32, u32),
    edge: LinkConfig,
    core: LinkConfig,
    switch: SwitchConfig,
) -> Fabric {
    let mut topology = Topology::new();
    let switches = [(); 2].map(|()| topology.add_switch(switch));
    let mut edges = Vec::new();
    for (switch, count) in switches.into_iter().zip([left, right]) {
        for _ in 0..count {
            let host = topology.add_host();
            edges.push(topology.connect(Node::Host(host), Node::Switch(switch), edge));
        }
    }
    let [a, b] = switches.map(Node::Switch);
    let core = topology.connect(a, b, core);
    Fabric {
        topology,
        edges: vec![edges],
        uplinks: vec![vec![vec![core]]],
    }
}

/// Leaves with hosts, each joined to every spine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpine {
    /// Planes.
    pub planes: u32,
    /// Leaves per plane.
    pub leaves: u32,
    /// Hosts per leaf.
    pub hosts_per_leaf: u32,
    /// Spines per plane.
    pub spines: u32,
    /// Links between hosts and leaves.
    pub edge: LinkConfig,
    /// Links between leaves and spines.
    pub uplink: LinkConfig,
    /// Every switch.
    pub switch: SwitchConfig,
}

impl LeafSpine {
    /// One plane of equal links with an empty-network round trip of `round_trip` between leaves
    /// (the time on links; packets take theirs besides), and as many spines as a leaf has hosts.
    pub const fn new(leaves: u32, hosts_per_leaf: u32, rate: Rate, round_trip: Span) -> Self {
        // Up, over and down again, there and back: eight links.
        let delay = round_trip.divided_by(8);
        let link = LinkConfig { rate, delay };
        Self {
            planes: 1,
            leaves,
            hosts_per_leaf,
            spines: hosts_per_leaf,
            edge: link,
            uplink: link,
            switch: SwitchConfig::for_round_trip(rate, round_trip),
        }
    }

    /// With this change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Builds it.
    pub fn build(&self) -> Fabric {
        let mut topology = Topology::new();
        let count = self.leaves * self.hosts_per_leaf;
        let hosts: Vec<HostId> = (0..count).map(|_| topology.add_host()).collect();
        let mut edges = Vec::new();
        let mut uplinks = Vec::new();
        for _ in 0..self.planes {
            let mut add = |count: u32| -> Vec<SwitchId> {
                (0..count)
                    .map(|_| topology.add_switch(self.switch))
                    .collect()
            };
            let (leaves, spines) = (add(self.leaves), add(self.spines));
            let edge = |(index, &host): (usize, &HostId)| {
                let leaf = leaves[index / self.hosts_per_leaf as usize];
                topology.connect(Node::Host(host), Node::Switch(leaf), self.edge)
            };
            edges.push(hosts.iter().enumerate().map(edge).collect());
            let mut plane = Vec::new();
            for &leaf in &leaves {
                let up = spines.iter().map(|&spine| {
                    topology.connect(Node::Switch(leaf), Node::Switch(spine), self.uplink)
                });
                plane.push(up.collect());
            }
            uplinks.push(plane);
        }
        Fabric {
            topology,
            edges,
            uplinks,
        }
    }
}
