//! A datagram as processes of one host hand it to each other. Not the form of the network.

use super::{Mad, MadAddress};
use crate::discover::{gid_address, gid_bytes};
use feroce_proto::MAD_LEN;

const MAGIC: [u8; 2] = [b'M', 1];

/// Longest name of a device; names of interfaces have at most 15 bytes.
const NAME_LEN: usize = 32;

const ADDRESS_LEN: usize = 16;
const LEN: usize = MAGIC.len() + NAME_LEN + 2 * ADDRESS_LEN + 2 + MAD_LEN;

/// `device`: for whoever is asked about several of them.
pub(super) fn encode(from: &MadAddress, device: &str, mad: &Mad) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LEN);
    bytes.extend_from_slice(&MAGIC);
    let mut name = [0; NAME_LEN];
    for (to, from) in name.iter_mut().zip(device.bytes()) {
        *to = from;
    }
    bytes.extend_from_slice(&name);
    bytes.extend_from_slice(&gid_bytes(from.local));
    bytes.extend_from_slice(&gid_bytes(from.remote));
    bytes.extend_from_slice(&[from.traffic_class, from.hop_limit]);
    bytes.extend_from_slice(mad);
    bytes
}

/// Address, device and datagram; `None` if it is something else.
pub(super) fn decode(bytes: &[u8]) -> Option<(MadAddress, String, Mad)> {
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (name, rest) = rest.split_first_chunk::<NAME_LEN>()?;
    let (local, rest) = rest.split_first_chunk::<ADDRESS_LEN>()?;
    let (remote, rest) = rest.split_first_chunk::<ADDRESS_LEN>()?;
    let ([traffic_class, hop_limit], rest) = rest.split_first_chunk()?;
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_LEN);
    let address = MadAddress {
        local: gid_address(*local),
        remote: gid_address(*remote),
        traffic_class: *traffic_class,
        hop_limit: *hop_limit,
        flow_label: 0,
    };
    let name = std::str::from_utf8(&name[..end]).ok()?;
    Some((address, name.to_owned(), rest.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_survive_the_round_trip_and_nothing_else_is_one() {
        let from = MadAddress {
            local: "fe80::1".parse().unwrap(),
            remote: "10.0.0.2".parse().unwrap(),
            traffic_class: 3,
            hop_limit: 4,
            flow_label: 0,
        };
        let mut bytes = encode(&from, "roce_lo", &[7; MAD_LEN]);
        let decoded = decode(&bytes).unwrap();
        assert_eq!(decoded, (from, "roce_lo".to_owned(), [7; MAD_LEN]));
        assert!(decode(&bytes[1..]).is_none());
        bytes[1] = 0;
        assert!(decode(&bytes).is_none());
        assert!(decode(b"").is_none());
    }
}
