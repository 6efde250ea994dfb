//! GIDs and address vectors. A RoCE GID *is* an IP address; IPv4 lies in it as `::ffff:a.b.c.d`.
//! Not here: which addresses are ours (the device resolves the index of a source GID).

use std::net::IpAddr;

use feroce_verbs::{Path, PathError, PathRequest, gid_address, gid_bytes};
use feroce_verbs_abi as abi;

use crate::guard::Failure;

/// The address in a GID.
pub(crate) fn address(gid: &abi::ibv_gid) -> IpAddr {
    gid_address(raw(gid))
}

/// The GID of an address.
pub(crate) fn gid(address: IpAddr) -> abi::ibv_gid {
    abi::ibv_gid {
        raw: gid_bytes(address),
    }
}

fn raw(gid: &abi::ibv_gid) -> [u8; 16] {
    // SAFETY: every member of the union is 16 plain bytes.
    unsafe { gid.raw }
}

/// What an address vector asks for. RoCE has no LIDs: without a GRH it leads nowhere. LIDs and
/// static rates that programs set all the same (UCX does) are ignored.
pub(crate) fn path_request(attr: &abi::ibv_ah_attr) -> Result<PathRequest, Failure> {
    if attr.is_global == 0 {
        return Err(Failure::invalid(PathError::NoGrh.to_string()));
    }
    if attr.port_num != PORT {
        let port = attr.port_num;
        return Err(Failure::invalid(format!(
            "port_num is {port}, the device has port 1 only"
        )));
    }
    Ok(PathRequest {
        destination: raw(&attr.grh.dgid),
        source_gid_index: attr.grh.sgid_index,
        traffic_class: attr.grh.traffic_class,
        hop_limit: attr.grh.hop_limit,
        flow_label: attr.grh.flow_label,
        service_level: attr.sl,
    })
}

/// The number of every device's only port.
pub(crate) const PORT: u8 = 1;

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
        let mapped = raw(&gid("10.1.2.3".parse().unwrap()));
        assert_eq!(
            mapped,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3]
        );
    }

    #[test]
    fn an_address_vector_says_where_to_and_from_which_gid() {
        let mut attr = abi::ibv_ah_attr {
            is_global: 1,
            port_num: 1,
            ..Default::default()
        };
        attr.grh.dgid = gid("10.1.2.3".parse().unwrap());
        attr.grh.sgid_index = 2;
        attr.dlid = 0xc000;
        let request = path_request(&attr).unwrap();
        assert_eq!((request.source_gid_index, request.destination[12]), (2, 10));
    }

    /// qperf without `-cm1` does this; it fails on every RoCE device.
    #[test]
    fn without_a_grh_there_is_no_way() {
        let attr = abi::ibv_ah_attr {
            dlid: 1,
            port_num: 1,
            ..Default::default()
        };
        let failure = path_request(&attr).unwrap_err();
        assert_eq!(failure.errno, libc::EINVAL);
        assert!(failure.reason.contains("is_global"), "{}", failure.reason);
    }

    #[test]
    fn there_is_one_port() {
        let attr = abi::ibv_ah_attr {
            is_global: 1,
            port_num: 2,
            ..Default::default()
        };
        assert!(
            path_request(&attr)
                .unwrap_err()
                .reason
                .contains("port_num is 2")
        );
    }
}
