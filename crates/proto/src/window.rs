//! Bytes in flight: one window per peer address, and one for what peers send us on request.
//!
//! A receiver's socket buffer is shared by all queue pairs that send to it, so the limit is on
//! the address, not on the queue pair. READ responses land in *our* buffer: they are charged
//! to the inbound window of the device when they are asked for. A window grows while
//! bytes are acknowledged, halves on loss, and never falls below two packets. This is no rate
//! control: see [`crate::dcqcn`] for that.

use crate::NicConfig;
use crate::lists::{Index, Links, List};
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use slab::Slab;

/// Names a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WindowId(u32);

/// The window of READ responses on their way to this device.
pub(crate) const INBOUND: WindowId = WindowId(0);

/// How sure a sender is that bytes were lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// A later packet shows it; many queue pairs may report the same overflow.
    Gap,
    /// Nothing came back in time.
    Timeout,
}

#[derive(Debug)]
struct Window {
    /// Bytes charged and not given back.
    in_flight: u64,
    /// Bytes that may be in flight.
    size: u64,
    limit: u64,
    floor: u64,
    /// Up to here the window grows by what is acknowledged, beyond by one packet per window.
    threshold: u64,
    /// Acknowledged bytes that have not yet made the window grow.
    acknowledged: u64,
    /// Bytes still to be acknowledged before another gap cuts the window again.
    until_next_cut: u64,
    /// Queue pairs that use it.
    users: u32,
    address: Option<IpAddr>,
    /// Queue pairs that wait for room.
    waiting: List,
}

impl Window {
    fn new(address: Option<IpAddr>, initial: u64, limit: u64, floor: u64) -> Self {
        let limit = limit.max(floor);
        Self {
            in_flight: 0,
            size: initial.clamp(floor, limit),
            limit,
            floor,
            threshold: limit,
            acknowledged: 0,
            until_next_cut: 0,
            users: 0,
            address,
            waiting: List::default(),
        }
    }

    /// One item more may leave; the last one may stick out, so that none is too big.
    const fn has_room(&self) -> bool {
        self.in_flight < self.size
    }

    fn grow(&mut self, bytes: u64) {
        self.until_next_cut = self.until_next_cut.saturating_sub(bytes);
        // A sender that does not use its window learns nothing about its size.
        if self.in_flight.saturating_add(bytes) < self.size / 2 {
            return;
        }
        if self.size < self.threshold {
            self.size = self.size.saturating_add(bytes);
        } else {
            self.acknowledged = self.acknowledged.saturating_add(bytes);
            if self.acknowledged >= self.size {
                self.acknowledged = 0;
                self.size = self.size.saturating_add(self.floor / 2);
            }
        }
        self.size = self.size.min(self.limit);
    }

    fn cut(&mut self, loss: Loss) {
        if loss == Loss::Gap && self.until_next_cut > 0 {
            return;
        }
        self.until_next_cut = self.in_flight.max(1);
        self.size = (self.size / 2).max(self.floor);
        self.threshold = self.size;
        self.acknowledged = 0;
    }
}

/// All windows of a device.
#[derive(Debug)]
pub(crate) struct Windows {
    windows: Slab<Window>,
    by_address: BTreeMap<IpAddr, WindowId>,
    /// Limits the owner has set, also for peers without queue pairs now.
    limits: BTreeMap<IpAddr, u64>,
    links: Links,
    initial: u64,
    max: u64,
    floor: u64,
}

impl Windows {
    pub(crate) fn new(config: &NicConfig) -> Self {
        let packet = u64::from(config.path_mtu_max.bytes()) + config.packet_overhead;
        let floor = 2 * packet;
        let mut windows = Slab::new();
        windows.insert(Window::new(
            None,
            config.read_window,
            config.read_window,
            floor,
        ));
        Self {
            windows,
            by_address: BTreeMap::new(),
            limits: BTreeMap::new(),
            links: Links::default(),
            initial: config.window_initial,
            max: config.window_max,
            floor,
        }
    }

    /// The window of a peer, for one more user.
    pub(crate) fn attach(&mut self, address: IpAddr) -> WindowId {
        let id = self.by_address.get(&address).copied();
        let id = id.unwrap_or_else(|| {
            let limit = self.limits.get(&address).copied().unwrap_or(self.max);
            let window = Window::new(Some(address), self.initial, limit, self.floor);
            let id = WindowId(u32::try_from(self.windows.insert(window)).unwrap_or(u32::MAX));
            self.by_address.insert(address, id);
            id
        });
        self.window(id).users += 1;
        id
    }

    /// One user less; the last one takes the window along. It has given its bytes back and
    /// does not wait.
    pub(crate) fn detach(&mut self, id: WindowId) {
        let window = self.window(id);
        window.users = window.users.saturating_sub(1);
        if window.users == 0
            && let Some(address) = window.address
        {
            debug_assert_eq!(window.in_flight, 0);
            debug_assert!(window.waiting.is_empty());
            self.windows.remove(id.0 as usize);
            self.by_address.remove(&address);
        }
    }

    /// Sets the most bytes in flight to a peer; the owner knows its buffer.
    /// Returns the window, if there is one now.
    pub(crate) fn set_limit(&mut self, address: IpAddr, limit: u64) -> Option<WindowId> {
        self.limits.insert(address, limit);
        let id = self.by_address.get(&address).copied()?;
        self.set_limit_of(id, limit);
        Some(id)
    }

    /// As [`set_limit`](Self::set_limit), for one window.
    pub(crate) fn set_limit_of(&mut self, id: WindowId, limit: u64) {
        let window = self.window(id);
        window.limit = limit.max(window.floor);
        window.size = window.size.min(window.limit);
        window.threshold = window.limit;
        if id == INBOUND {
            window.size = window.limit;
        }
    }

    pub(crate) fn has_room(&self, id: WindowId) -> bool {
        self.windows[id.0 as usize].has_room()
    }

    /// Whether another item could leave after one of `bytes`.
    pub(crate) fn has_room_after(&self, id: WindowId, bytes: u64) -> bool {
        let window = &self.windows[id.0 as usize];
        window.in_flight.saturating_add(bytes) < window.size
    }

    pub(crate) fn size(&self, id: WindowId) -> u64 {
        self.windows[id.0 as usize].size
    }

    pub(crate) fn in_flight_of(&self, id: WindowId) -> u64 {
        self.windows[id.0 as usize].in_flight
    }

    pub(crate) fn charge(&mut self, id: WindowId, bytes: u64) {
        self.window(id).in_flight += bytes;
    }

    /// Bytes that have arrived.
    pub(crate) fn acknowledge(&mut self, id: WindowId, bytes: u64) {
        let window = self.window(id);
        window.grow(bytes);
        window.in_flight = window.in_flight.saturating_sub(bytes);
    }

    /// Bytes that are in flight no more, with no statement about the network.
    pub(crate) fn give_back(&mut self, id: WindowId, bytes: u64) {
        let window = self.window(id);
        window.in_flight = window.in_flight.saturating_sub(bytes);
    }

    pub(crate) fn lost(&mut self, id: WindowId, loss: Loss) {
        self.window(id).cut(loss);
    }

    /// The queue pair waits for room, behind those that wait already; for no other any more.
    pub(crate) fn wait(&mut self, id: WindowId, index: Index) {
        if self.links.list_of(index).is_some_and(|list| list != id.0) {
            self.stop_waiting(index);
        }
        let window = &mut self.windows[id.0 as usize];
        self.links.push_back(&mut window.waiting, id.0, index);
    }

    /// The queue pair waits no more.
    pub(crate) fn stop_waiting(&mut self, index: Index) {
        if let Some(list) = self.links.list_of(index) {
            let window = &mut self.windows[list as usize];
            self.links.remove(&mut window.waiting, index);
        }
    }

    /// The next queue pair that there is room for, if `in_flight` allows one more item after
    /// `woken` others.
    pub(crate) fn wake(&mut self, id: WindowId, woken: u64) -> Option<Index> {
        let window = &mut self.windows[id.0 as usize];
        let expected = window.in_flight.saturating_add(woken * (window.floor / 2));
        if expected >= window.size {
            return None;
        }
        self.links.pop_front(&mut window.waiting)
    }

    /// Bytes in flight in all, for tests and the owner.
    pub(crate) fn in_flight(&self) -> u64 {
        self.windows.iter().map(|(_, w)| w.in_flight).sum()
    }

    fn window(&mut self, id: WindowId) -> &mut Window {
        &mut self.windows[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn windows() -> Windows {
        Windows::new(&NicConfig::default())
    }

    #[test]
    fn grows_while_used_halves_once_per_window_and_keeps_two_packets() {
        let mut windows = windows();
        let id = windows.attach(PEER);
        assert_eq!(windows.size(id), 128 << 10);
        windows.acknowledge(id, 100);
        assert_eq!(windows.size(id), 128 << 10, "an idle window does not grow");
        windows.charge(id, 128 << 10);
        assert!(!windows.has_room(id));
        windows.acknowledge(id, 128 << 10);
        assert_eq!(windows.size(id), 256 << 10);
        windows.charge(id, 1000);
        windows.lost(id, Loss::Gap);
        windows.lost(id, Loss::Gap);
        assert_eq!(windows.size(id), 128 << 10, "one overflow, one cut");
        for _ in 0..20 {
            windows.lost(id, Loss::Timeout);
        }
        assert_eq!(windows.size(id), 2 * (4096 + 512));
    }

    #[test]
    fn the_owner_sets_the_limit_before_or_after_the_first_queue_pair() {
        let mut windows = windows();
        windows.set_limit(PEER, 50_000);
        let id = windows.attach(PEER);
        assert_eq!(windows.size(id), 50_000);
        windows.set_limit(PEER, 20_000);
        assert_eq!(windows.size(id), 20_000);
    }

    #[test]
    fn waiting_queue_pairs_wake_in_turn_as_room_allows() {
        let mut windows = windows();
        let id = windows.attach(PEER);
        windows.charge(id, 128 << 10);
        for index in [4, 2, 9] {
            windows.wait(id, index);
        }
        assert_eq!(windows.wake(id, 0), None);
        windows.stop_waiting(2);
        windows.give_back(id, 5000);
        assert_eq!(windows.wake(id, 0), Some(4));
        assert_eq!(windows.wake(id, 1), Some(9));
        assert_eq!(windows.wake(id, 2), None);
    }

    #[test]
    fn a_queue_pair_waits_for_one_window_at_a_time() {
        let mut windows = windows();
        let id = windows.attach(PEER);
        windows.wait(id, 4);
        windows.wait(INBOUND, 4);
        assert_eq!(windows.wake(id, 0), None);
        assert_eq!(windows.wake(INBOUND, 0), Some(4));
    }
}
