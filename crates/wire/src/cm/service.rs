//! Service ids, and the ports of IP that some of them stand for (annex A11).

use core::fmt;

/// What a listener listens on (IBTA 12.7.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServiceId(pub u64);

/// A number space of ports in which programs listen; values follow `rdma_port_space`.
///
/// TCP and UDP come from annex A11 (prefix 1, then the IP protocol number); the other two are
/// conventions of the rdma_cm programming interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand.
    IpOverIb = 0x0002,
    /// Reliable connections.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Any type of queue pair.
    Ib = 0x013f,
}

impl PortSpace {
    /// From the number of `rdma_port_space`.
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0x0002 => Self::IpOverIb,
            0x0106 => Self::Tcp,
            0x0111 => Self::Udp,
            0x013f => Self::Ib,
            _ => return None,
        })
    }
}

impl ServiceId {
    /// The service id of a port.
    pub const fn from_port(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// The port it stands for, `None` for any other service.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        let [0, 0, 0, 0, high, low, port_high, port_low] = self.0.to_be_bytes() else {
            return None;
        };
        match PortSpace::from_number(u16::from_be_bytes([high, low])) {
            Some(space) => Some((space, u16::from_be_bytes([port_high, port_low]))),
            None => None,
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((space, port)) => write!(f, "{space:?} port {port}"),
            None => write!(f, "service {:#018x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_services_and_other_services_are_not_ports() {
        let smb_direct = ServiceId::from_port(PortSpace::Tcp, 5445);
        assert_eq!(smb_direct, ServiceId(0x0000_0000_0106_1545));
        assert_eq!(smb_direct.port(), Some((PortSpace::Tcp, 5445)));
        assert_eq!(
            ServiceId(0x0000_0000_0111_ffff).port(),
            Some((PortSpace::Udp, 0xffff))
        );
        assert_eq!(ServiceId(0x0000_0001_0106_1545).port(), None);
        assert_eq!(ServiceId(0x0000_0000_0107_1545).port(), None);
    }
}
