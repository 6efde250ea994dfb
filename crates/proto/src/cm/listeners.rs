//! Who listens on what, for which addresses, and how many requests wait.

use super::types::{Listen, ListenAddress, ListenError, ListenerId};
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use feroce_wire::cm::ServiceId;

#[derive(Debug)]
struct Listener {
    listen: Listen,
    /// Requests that the program has not answered.
    pending: usize,
}

/// The listeners of a device.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// The more specific of two addresses comes first.
    by_service: BTreeMap<(ServiceId, ListenAddress), ListenerId>,
    listeners: BTreeMap<ListenerId, Listener>,
    next: u32,
}

impl Listeners {
    pub(crate) fn add(&mut self, listen: Listen, max: usize) -> Result<ListenerId, ListenError> {
        if self.listeners.len() >= max {
            return Err(ListenError::Full(max));
        }
        let key = (listen.service_id, listen.address.canonical());
        if self.by_service.contains_key(&key) {
            return Err(ListenError::InUse(listen.service_id));
        }
        while self.listeners.contains_key(&ListenerId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let id = ListenerId(self.next);
        self.next = self.next.wrapping_add(1);
        self.by_service.insert(key, id);
        self.listeners.insert(id, Listener { listen, pending: 0 });
        Ok(id)
    }

    pub(crate) fn remove(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.remove(&id) {
            let listen = listener.listen;
            self.by_service
                .remove(&(listen.service_id, listen.address.canonical()));
        }
    }

    /// The most specific listener for a service and the address that was asked for.
    pub(crate) fn find(&self, service_id: ServiceId, address: IpAddr) -> Option<ListenerId> {
        let address = address.to_canonical();
        let any_of_family = match address {
            IpAddr::V4(_) => ListenAddress::AnyV4,
            IpAddr::V6(_) => ListenAddress::AnyV6,
        };
        [
            ListenAddress::Exactly(address),
            any_of_family,
            ListenAddress::Any,
        ]
        .into_iter()
        .find_map(|address| self.by_service.get(&(service_id, address)).copied())
    }

    /// Counts a request; false if the backlog is full.
    pub(crate) fn admit(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.listeners.get_mut(&id) else {
            return false;
        };
        let room = listener.pending < listener.listen.backlog.max(1);
        listener.pending += usize::from(room);
        room
    }

    /// A request that was counted is answered.
    pub(crate) fn release(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(&id) {
            listener.pending = listener.pending.saturating_sub(1);
        }
    }

    /// Requests that wait, over all listeners.
    #[cfg(test)]
    pub(crate) fn pending(&self) -> usize {
        self.listeners.values().map(|l| l.pending).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_wire::cm::PortSpace;

    fn listen(port: u16, address: ListenAddress) -> Listen {
        Listen {
            service_id: ServiceId::from_port(PortSpace::Tcp, port),
            address,
            backlog: 2,
        }
    }

    #[test]
    fn the_most_specific_listener_is_found() {
        let mut table = Listeners::default();
        let service = ServiceId::from_port(PortSpace::Tcp, 7);
        let exact = ListenAddress::Exactly([10, 0, 0, 1].into());
        let any = table.add(listen(7, ListenAddress::Any), 9).unwrap();
        let v4 = table.add(listen(7, ListenAddress::AnyV4), 9).unwrap();
        let one = table.add(listen(7, exact), 9).unwrap();
        assert_eq!(table.find(service, [10, 0, 0, 1].into()), Some(one));
        assert_eq!(
            table.find(service, "::ffff:10.0.0.1".parse().unwrap()),
            Some(one)
        );
        assert_eq!(table.find(service, [10, 0, 0, 2].into()), Some(v4));
        assert_eq!(table.find(service, "fe80::1".parse().unwrap()), Some(any));
        table.remove(one);
        assert_eq!(table.find(service, [10, 0, 0, 1].into()), Some(v4));
        let other = ServiceId::from_port(PortSpace::Udp, 7);
        assert_eq!(table.find(other, [10, 0, 0, 1].into()), None);
    }

    #[test]
    fn a_service_and_address_are_taken_once_and_the_table_is_bounded() {
        let mut table = Listeners::default();
        table.add(listen(1, ListenAddress::Any), 2).unwrap();
        assert_eq!(
            table.add(listen(1, ListenAddress::Any), 2),
            Err(ListenError::InUse(ServiceId::from_port(PortSpace::Tcp, 1)))
        );
        table.add(listen(1, ListenAddress::AnyV4), 2).unwrap();
        assert_eq!(
            table.add(listen(2, ListenAddress::Any), 2),
            Err(ListenError::Full(2))
        );
    }

    #[test]
    fn the_backlog_is_full_until_somebody_is_answered() {
        let mut table = Listeners::default();
        let id = table.add(listen(1, ListenAddress::Any), 2).unwrap();
        assert!(table.admit(id) && table.admit(id) && !table.admit(id));
        table.release(id);
        assert!(table.admit(id) && !table.admit(id));
    }
}
