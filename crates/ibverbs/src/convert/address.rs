//! GIDs and address vectors. A RoCE GID *is* an IP address; IPv4 lies in it as `::ffff:a.b.c.d`.
//! Not here: which addresses are ours (the device resolves the index of a source GID).

use std::net::{IpAddr, Ipv6Addr};

use feroce_proto::Path;
use feroce_verbs_abi as abi;

/// The address in a GID.
pub(crate) fn address(gid: &abi::ibv_gid) -> IpAddr {
    // SAFETY: every member of the union is 16 plain bytes.
    Ipv6Addr::from(unsafe { gid.raw }).to_canonical()
}

/// The GID of an address.
pub(crate) fn gid(address: IpAddr) -> abi::ibv_gid {
    let raw = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    abi::ibv_gid { raw }
}

/// The address vector that a path came from, for queries.
pub(crate) fn ah_attr(path: &Path, port_num: u8) -> abi::ibv_ah_attr {
    abi::ibv_ah_attr {
        grh: abi::ibv_global_route {
            dgid: gid(path.destination),
            flow_label: path.flow_label,
            sgid_index: path.source_gid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
        },
        sl: path.service_level,
        is_global: 1,
        port_num,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_way_into_a_gid_and_back() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "fe80::1",
            "2001:db8::1",
            "239.1.2.3",
        ] {
            let ip: IpAddr = text.parse().unwrap();
            assert_eq!(address(&gid(ip)), ip);
        }
    }

    #[test]
    fn ipv4_lies_in_the_last_four_bytes() {
        // SAFETY: every member of the union is 16 plain bytes.
        let raw = unsafe { gid("10.1.2.3".parse().unwrap()).raw };
        assert_eq!(raw[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(raw[12..], [10, 1, 2, 3]);
    }
}
