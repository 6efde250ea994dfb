//! Whose a management datagram is, and what to answer if nobody's: the few bytes of connection
//! management (IBTA 12.6) that routing needs.

use super::Mad;
use feroce_netio::{SLOTS, Service};

/// Management class "communication management" and its version (IBTA 12.6.1).
const CLASS: [u8; 3] = [1, 0x07, 2];

/// Attributes that ask for a service (IBTA 12.6, table of attributes).
const CONNECT_REQUEST: u16 = 0x0010;
const SERVICE_ID_REQUEST: u16 = 0x0017;
/// Attributes that name an id the receiver once gave.
const MESSAGE_RECEIPT: u16 = 0x0011;
const ALTERNATE_PATH_RESPONSE: u16 = 0x001a;
/// Of those, the one whose only id is ours.
const SERVICE_ID_REPLY: u16 = 0x0018;

const ATTRIBUTE: usize = 16;
const FIRST_ID: usize = 24;
const SECOND_ID: usize = 28;
const SERVICE_ID: usize = 32;

/// Bits of an id below the slot.
const ID_INDEX_BITS: u32 = 22;

/// Who should get a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// Some process that knows the peer, if any: it names none.
    Anyone,
    /// It is of a kind that is not served.
    Nobody,
    /// Whoever listens on this.
    Service(Service),
    /// The process with this slot.
    Slot(u16),
}

impl Owner {
    pub(super) fn of(mad: &Mad) -> Self {
        if mad[..3] != CLASS {
            return Self::Nobody;
        }
        match u16::from_be_bytes([mad[ATTRIBUTE], mad[ATTRIBUTE + 1]]) {
            CONNECT_REQUEST | SERVICE_ID_REQUEST => {
                let id = mad[SERVICE_ID..].first_chunk();
                Self::Service(service_of(u64::from_be_bytes(*id.unwrap_or(&[0; 8]))))
            }
            SERVICE_ID_REPLY => owner_of(word(mad, FIRST_ID)),
            MESSAGE_RECEIPT..=ALTERNATE_PATH_RESPONSE => owner_of(word(mad, SECOND_ID)),
            _ => Self::Nobody,
        }
    }
}

fn word(mad: &Mad, at: usize) -> u32 {
    u32::from_be_bytes([mad[at], mad[at + 1], mad[at + 2], mad[at + 3]])
}

const fn owner_of(id: u32) -> Owner {
    // 32 - 22 = 10 bits.
    let slot = (id >> ID_INDEX_BITS) as u16;
    if slot == 0 || slot == SLOTS - 1 {
        Owner::Anyone
    } else {
        Owner::Slot(slot)
    }
}

/// Port spaces whose service ids are made of a port (annex A11.2, `rdma_cma.h`).
const PORT_SPACES: [u16; 4] = [0x0002, 0x0106, 0x0111, 0x013f];

/// The service a service id stands for.
pub(crate) fn service_of(id: u64) -> Service {
    let (space, port) = ((id >> 16) as u16, id as u16);
    if id >> 32 == 0 && port != 0 && PORT_SPACES.contains(&space) {
        Service::Port { space, port }
    } else {
        Service::Whole(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_proto::MAD_LEN;

    fn mad(attribute: u16) -> Mad {
        let mut mad = [0; MAD_LEN];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[ATTRIBUTE..ATTRIBUTE + 2].copy_from_slice(&attribute.to_be_bytes());
        // The sender's id, ours, and where others have a service id.
        mad[24..28].copy_from_slice(&(5 << 22 | 1u32).to_be_bytes());
        mad[28..32].copy_from_slice(&(6 << 22 | 1u32).to_be_bytes());
        mad[32..40].copy_from_slice(&0x0000_0000_0106_1234_u64.to_be_bytes());
        mad
    }

    #[test]
    fn requests_name_a_service_and_answers_a_process() {
        let port = Service::Port {
            space: 0x0106,
            port: 0x1234,
        };
        let table = [
            (0x0010, Owner::Service(port)),
            (0x0011, Owner::Slot(6)),
            (0x0012, Owner::Slot(6)),
            (0x0013, Owner::Slot(6)),
            (0x0014, Owner::Slot(6)),
            (0x0015, Owner::Slot(6)),
            (0x0016, Owner::Slot(6)),
            (0x0017, Owner::Service(port)),
            (0x0018, Owner::Slot(5)),
            (0x0019, Owner::Slot(6)),
            (0x001a, Owner::Slot(6)),
            (0x001b, Owner::Nobody),
            (0x0001, Owner::Nobody),
        ];
        for (attribute, owner) in table {
            assert_eq!(Owner::of(&mad(attribute)), owner, "{attribute:#06x}");
        }
        let mut other = mad(0x0010);
        other[1] = 0x04;
        assert_eq!(Owner::of(&other), Owner::Nobody, "performance management");
        let mut reject = mad(0x0012);
        reject[28..32].fill(0);
        assert_eq!(Owner::of(&reject), Owner::Anyone);
    }

    #[test]
    fn service_ids_are_ports_where_they_look_like_ports() {
        let port = |space, port| Service::Port { space, port };
        assert_eq!(service_of(0x0106_0007), port(0x0106, 7));
        assert_eq!(service_of(0x0111_ffff), port(0x0111, 0xffff));
        assert_eq!(service_of(0x0002_0001), port(0x0002, 1));
        assert_eq!(service_of(0x013f_0001), port(0x013f, 1));
        assert_eq!(service_of(0x0107_0001), Service::Whole(0x0107_0001));
        assert_eq!(service_of(0x0106_0000), Service::Whole(0x0106_0000));
        let wide = 0x1_0106_0007;
        assert_eq!(service_of(wide), Service::Whole(wide));
    }
}
