//! Where same-host peers want their datagrams.
//!
//! A pure table: it is told answers and the time, and says which port to use and when to ask. A
//! cached port can be wrong (its owner died, another process took the slot), so every entry is
//! asked for again while in use; until an answer comes the shared port is right, only slower.

use std::net::{IpAddr, SocketAddr};

use rustc_hash::{FxHashMap, FxHashSet};

use super::room::Room;

/// How long a cached port is used without asking again. A stale one costs at most this much, and
/// a connection set up anew asks at once ([`Peers::forget`]).
const FRESH_MS: u64 = 1_000;

/// An answer this young is good for a connection set up anew, too: programs set up many in a row,
/// and a slot rests longer than this before another process takes it.
const YOUNG_MS: u64 = 20;

/// How long to wait before an unanswered question is repeated.
const REPEAT_MS: u64 = 100;

/// How long an answer is worth waiting for. Where nobody holds the slot, that is known at once;
/// whoever holds it answers when it gets the processor. Without its port, datagrams would
/// land anywhere, unlimited and soon out of order, so only a peer that cannot answer (another
/// build, say) is sent to without.
const WORTHWHILE_MS: u64 = 1_000;

/// Entries kept; slots times addresses of this host are few, so this is never reached honestly.
const ENTRIES_MAX: usize = 8_192;

/// Same-host peers and the addresses that make them such.
#[derive(Debug, Default)]
pub(super) struct Peers {
    host: FxHashSet<IpAddr>,
    entries: FxHashMap<(IpAddr, u16), Entry>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    /// `None`: to be asked with the next datagram.
    asked_ms: Option<u64>,
    first_asked_ms: u64,
    answered_ms: u64,
    /// The question was refused: nobody holds the slot.
    absent: bool,
    known: Option<Known>,
    /// The port that was last known, and the room behind it.
    room: (u16, Room),
}

/// What a peer answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) port: u16,
    pub(super) buffer: u32,
}

/// What to do about a datagram to a same-host peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    /// The peer's port, if known.
    pub(super) port: Option<u16>,
    /// Ask (again) now.
    pub(super) ask: bool,
}

impl Peers {
    /// Takes over the addresses of this host.
    pub(super) fn set_host(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.host.clear();
        self.host.extend(addresses);
        let host = &self.host;
        self.entries
            .retain(|(address, _), _| contains(host, *address));
    }

    /// Adds an address of this host.
    pub(super) fn add_host(&mut self, address: IpAddr) {
        self.host.insert(address);
    }

    /// Removes an address of this host, with its peers.
    pub(super) fn remove_host(&mut self, address: IpAddr) {
        self.host.remove(&address);
        self.entries.retain(|(known, _), _| *known != address);
    }

    /// Whether `address` is one of this host.
    pub(super) fn is_host(&self, address: IpAddr) -> bool {
        contains(&self.host, address)
    }

    /// What to do about a datagram to (`address`, `slot`); an asked question is noted here.
    pub(super) fn look_up(&mut self, address: IpAddr, slot: u16, now_ms: u64) -> Lookup {
        if self.entries.len() >= ENTRIES_MAX {
            self.entries.clear();
        }
        let entry = self.entries.entry((address, slot)).or_default();
        let patience = if entry.known.is_some() {
            FRESH_MS
        } else {
            REPEAT_MS
        };
        let ask = entry.is_due(patience, now_ms);
        Lookup {
            port: entry.known.map(|known| known.port),
            ask,
        }
    }

    /// What is known about a peer.
    pub(super) fn known(&self, address: IpAddr, slot: u16) -> Option<Known> {
        self.entries.get(&(address, slot))?.known
    }

    /// Whether waiting for an answer from this peer is over, one way or the other.
    pub(super) fn is_settled(&self, address: IpAddr, slot: u16, now_ms: u64) -> bool {
        self.entries.get(&(address, slot)).is_some_and(|entry| {
            entry.known.is_some()
                || entry.absent
                || entry.asked_ms.is_some()
                    && now_ms.saturating_sub(entry.first_asked_ms) >= WORTHWHILE_MS
        })
    }

    /// Whether to ask now whether this silent peer is alive; that it is asked is noted here.
    pub(super) fn suspect(&mut self, address: IpAddr, slot: u16, now_ms: u64) -> bool {
        let entry = self.entries.get_mut(&(address, slot));
        entry.is_some_and(|entry| entry.is_due(REPEAT_MS, now_ms))
    }

    /// The room in the socket of a peer whose port is known.
    pub(super) fn room(&mut self, address: IpAddr, slot: u16) -> Option<&mut Room> {
        let entry = self.entries.get_mut(&(address, slot))?;
        entry.known.map(|_| &mut entry.room.1)
    }

    /// The room in the socket with this address and port, if that is the peer's.
    pub(super) fn room_behind(&mut self, from: SocketAddr, slot: u16) -> Option<&mut Room> {
        let entry = self.entries.get_mut(&(from.ip(), slot))?;
        (entry.room.0 == from.port()).then_some(&mut entry.room.1)
    }

    /// An answer came. One that was not asked for is not kept; `None` says the address is not
    /// served there.
    pub(super) fn answered(
        &mut self,
        address: IpAddr,
        slot: u16,
        known: Option<Known>,
        now_ms: u64,
    ) {
        if let Some(entry) = self.entries.get_mut(&(address, slot)) {
            entry.known = known;
            entry.answered_ms = now_ms;
            entry.absent = known.is_none();
            // The same socket as before still holds what it was sent.
            if let Some(Known { port, buffer }) = known
                && entry.room.0 != port
            {
                entry.room = (port, Room::new(buffer));
            }
        }
    }

    /// The question could not be delivered because nobody holds the slot.
    pub(super) fn absent(&mut self, address: IpAddr, slot: u16) {
        self.answered(address, slot, None, 0);
    }

    /// Forgets the port of a peer unless it was told just now, so that the next datagram asks.
    pub(super) fn forget(&mut self, address: IpAddr, slot: u16, now_ms: u64) {
        if let Some(entry) = self.entries.get_mut(&(address, slot)) {
            if entry.known.is_some() && now_ms.saturating_sub(entry.answered_ms) < YOUNG_MS {
                return;
            }
            let room = std::mem::take(&mut entry.room);
            *entry = Entry {
                room,
                ..Entry::default()
            };
        }
    }
}

impl Entry {
    /// Whether to ask (again) now; if so, that is noted.
    fn is_due(&mut self, patience_ms: u64, now_ms: u64) -> bool {
        match self.asked_ms {
            None => self.first_asked_ms = now_ms,
            Some(asked_ms) if now_ms.saturating_sub(asked_ms) < patience_ms => return false,
            Some(_) => {}
        }
        self.asked_ms = Some(now_ms);
        true
    }
}

/// All of 127/8 is this host, whatever `lo` lists.
fn contains(host: &FxHashSet<IpAddr>, address: IpAddr) -> bool {
    address.is_loopback() || host.contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const KNOWN: Known = Known {
        port: 5000,
        buffer: 425_984,
    };

    fn lookup(port: Option<u16>, ask: bool) -> Lookup {
        Lookup { port, ask }
    }

    #[test]
    fn a_peer_is_asked_once_then_used_then_asked_again_while_in_use() {
        let mut peers = Peers::default();
        assert_eq!(peers.look_up(HERE, 7, 0), lookup(None, true));
        assert_eq!(peers.look_up(HERE, 7, 1), lookup(None, false));
        peers.answered(HERE, 7, Some(KNOWN), 0);
        assert_eq!(peers.look_up(HERE, 7, 2), lookup(Some(5000), false));
        assert_eq!(
            peers.look_up(HERE, 7, FRESH_MS),
            lookup(Some(5000), true),
            "stale: used, and asked for"
        );
        assert_eq!(
            peers.look_up(HERE, 7, FRESH_MS + 1),
            lookup(Some(5000), false)
        );
        peers.absent(HERE, 7);
        assert_eq!(peers.look_up(HERE, 7, FRESH_MS + 2), lookup(None, false));
    }

    #[test]
    fn an_unanswered_question_is_repeated_and_is_soon_not_worth_waiting_for() {
        let mut peers = Peers::default();
        assert!(!peers.is_settled(HERE, 7, 0), "never asked");
        peers.look_up(HERE, 7, 0);
        assert!(!peers.is_settled(HERE, 7, WORTHWHILE_MS - 1));
        assert!(peers.is_settled(HERE, 7, WORTHWHILE_MS));
        assert!(peers.look_up(HERE, 7, WORTHWHILE_MS).ask);
        assert!(
            peers.is_settled(HERE, 7, WORTHWHILE_MS),
            "repeating starts no new wait"
        );
    }

    #[test]
    fn a_forgotten_peer_is_asked_and_waited_for_anew_but_keeps_its_account() {
        let mut peers = Peers::default();
        peers.look_up(HERE, 7, 0);
        peers.answered(HERE, 7, Some(KNOWN), 10);
        peers.room(HERE, 7).unwrap().charge(1234);
        peers.forget(HERE, 7, 10 + YOUNG_MS - 1);
        assert_eq!(peers.known(HERE, 7), Some(KNOWN), "told just now");
        peers.forget(HERE, 7, 10 + YOUNG_MS);
        assert_eq!(peers.known(HERE, 7), None);
        assert!(peers.room(HERE, 7).is_none());
        assert!(!peers.is_settled(HERE, 7, 5_000));
        assert_eq!(peers.look_up(HERE, 7, 5_000), lookup(None, true));
        assert!(!peers.is_settled(HERE, 7, 5_000 + WORTHWHILE_MS - 1));
        peers.answered(HERE, 7, Some(KNOWN), 5_001);
        assert_eq!(peers.room(HERE, 7).unwrap().position(), 1234);
        let other = Known {
            port: 5001,
            ..KNOWN
        };
        peers.answered(HERE, 7, Some(other), 5_002);
        assert_eq!(peers.room(HERE, 7).unwrap().position(), 0);
    }

    #[test]
    fn a_silent_peer_is_suspected_now_and_then() {
        let mut peers = Peers::default();
        assert!(!peers.suspect(HERE, 7, 0), "nobody known");
        peers.look_up(HERE, 7, 0);
        peers.answered(HERE, 7, Some(KNOWN), 0);
        assert!(!peers.suspect(HERE, 7, REPEAT_MS - 1));
        assert!(peers.suspect(HERE, 7, REPEAT_MS));
        assert!(!peers.suspect(HERE, 7, REPEAT_MS + 1));
    }

    #[test]
    fn an_answer_nobody_asked_for_is_not_kept() {
        let mut peers = Peers::default();
        peers.answered(HERE, 7, Some(KNOWN), 0);
        assert_eq!(peers.known(HERE, 7), None);
        assert!(peers.entries.is_empty());
    }

    #[test]
    fn an_address_that_left_the_host_takes_its_peers_along() {
        let mut peers = Peers::default();
        peers.set_host([HERE]);
        peers.look_up(HERE, 7, 0);
        peers.answered(HERE, 7, Some(KNOWN), 0);
        peers.set_host([HERE]);
        assert_eq!(peers.known(HERE, 7), Some(KNOWN));
        peers.set_host([]);
        assert_eq!(peers.known(HERE, 7), None);
        assert!(!peers.is_host(HERE));
        peers.add_host(HERE);
        peers.look_up(HERE, 7, 0);
        peers.answered(HERE, 7, Some(KNOWN), 0);
        peers.remove_host(HERE);
        assert!(!peers.is_host(HERE));
        assert_eq!(peers.known(HERE, 7), None);
        assert!(peers.is_host("127.9.9.9".parse().unwrap()));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut peers = Peers::default();
        for n in 0..20_000u32 {
            peers.look_up(IpAddr::from(n.to_be_bytes()), 7, 0);
        }
        assert!(peers.entries.len() <= ENTRIES_MAX);
    }
}
