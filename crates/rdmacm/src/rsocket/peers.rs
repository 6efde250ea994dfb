//! What a datagram socket knows of others, and which way a datagram takes, without I/O.
//!
//! A datagram to an address whose queue pair is unknown goes over UDP, with a header that names the
//! sender's own. The receiver answers with its queue pair, and from then on datagrams go from queue
//! pair to queue pair. Since a queue pair may go away unseen (its process ended and another took
//! the port), a peer that has been silent for a while is asked again, by one datagram over UDP.
//!
//! Nothing here is trusted further than UDP's source addresses are.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a peer may be silent before it is asked again.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Most peers that are remembered: anybody can send from as many ports as there are.
const PEERS_MAX: usize = 4096;

/// Which way a datagram takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From queue pair to this one.
    Direct(u32),
    /// Over UDP, with our queue pair in front.
    Udp,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    queue_pair: u32,
    heard: Instant,
    asked: Instant,
}

/// The peers of a socket.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    known: HashMap<SocketAddr, Peer>,
    /// From which of our addresses a peer is reached.
    sources: HashMap<IpAddr, IpAddr>,
}

impl Peers {
    /// A peer has told its queue pair, over UDP.
    pub(crate) fn handle_udp(&mut self, now: Instant, from: SocketAddr, queue_pair: u32) {
        if self.known.len() >= PEERS_MAX && !self.known.contains_key(&from) {
            self.known.clear();
        }
        let peer = Peer {
            queue_pair,
            heard: now,
            asked: now,
        };
        self.known.insert(from, peer);
    }

    /// A peer's datagram has come directly, from that queue pair.
    pub(crate) fn handle_direct(&mut self, now: Instant, from: SocketAddr, queue_pair: u32) {
        if let Some(peer) = self.known.get_mut(&from)
            && peer.queue_pair == queue_pair
        {
            peer.heard = now;
        }
    }

    /// The way of a datagram that is sent now.
    pub(crate) fn way(&mut self, now: Instant, to: SocketAddr) -> Way {
        let Some(peer) = self.known.get_mut(&to) else {
            return Way::Udp;
        };
        let last = peer.heard.max(peer.asked);
        if now.saturating_duration_since(last) >= SILENCE_MAX {
            peer.asked = now;
            return Way::Udp;
        }
        Way::Direct(peer.queue_pair)
    }

    /// The address of ours from which `to` is reached, as `look_up` finds it the first time.
    pub(crate) fn source<E>(
        &mut self,
        to: IpAddr,
        look_up: impl FnOnce() -> Result<IpAddr, E>,
    ) -> Result<IpAddr, E> {
        if let Some(&source) = self.sources.get(&to) {
            return Ok(source);
        }
        let source = look_up()?;
        if self.sources.len() >= PEERS_MAX {
            self.sources.clear();
        }
        self.sources.insert(to, source);
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(
        std::net::Ipv4Addr::LOCALHOST,
        7174,
    ));

    #[test]
    fn a_peer_is_reached_directly_once_it_has_told_its_queue_pair() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        assert_eq!(peers.way(now, A), Way::Udp);
        peers.handle_direct(now, A, 5);
        assert_eq!(peers.way(now, A), Way::Udp);
        peers.handle_udp(now, A, 5);
        assert_eq!(peers.way(now, A), Way::Direct(5));
    }

    #[test]
    fn a_silent_peer_is_asked_by_one_datagram_now_and_then() {
        let (mut peers, start) = (Peers::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        peers.handle_udp(start, A, 5);
        assert_eq!(peers.way(at(1999), A), Way::Direct(5));
        assert_eq!(peers.way(at(2000), A), Way::Udp);
        assert_eq!(peers.way(at(2001), A), Way::Direct(5));
        assert_eq!(peers.way(at(4000), A), Way::Udp);
        // It lives, under another number.
        peers.handle_udp(at(4001), A, 6);
        assert_eq!(peers.way(at(4002), A), Way::Direct(6));
        peers.handle_direct(at(5900), A, 6);
        assert_eq!(peers.way(at(7800), A), Way::Direct(6));
    }

    #[test]
    fn strangers_cannot_fill_the_memory() {
        let (mut peers, now) = (Peers::default(), Instant::now());
        for port in 0..=u16::MAX {
            let stranger = SocketAddr::new(A.ip(), port);
            peers.handle_udp(now, stranger, 1);
        }
        assert!(peers.known.len() <= PEERS_MAX);
    }
}
