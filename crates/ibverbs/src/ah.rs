//! Address handles, and the two helpers around them: the attributes for an answer, from what came
//! with a datagram, and the Ethernet address behind a GID.

use std::ffi::c_int;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use feroce_verbs::{Context, GID_TABLE_LEN, Path, ProtectionDomain, gid_address};
use feroce_verbs_abi as abi;

use crate::convert::address;
use crate::guard::{self, Failure};
use crate::{context, handle, pd};

/// The Rust part of an `ibv_ah`.
#[derive(Debug)]
pub(crate) struct AhState {
    pub(crate) path: Path,
    /// Keeps the domain: `ibv_dealloc_pd` refuses while handles live.
    _pd: ProtectionDomain,
}

/// The path behind an address handle.
///
/// # Safety
/// `ah` is null or live.
pub(crate) unsafe fn path(ah: *mut abi::ibv_ah) -> Result<Path, Failure> {
    // SAFETY: the caller's contract.
    Ok(unsafe { handle::rust::<_, AhState>(ah) }?.path)
}

/// Resolves an address vector on a device.
pub(crate) fn resolve(context: &Context, attr: &abi::ibv_ah_attr) -> Result<Path, Failure> {
    let request = address::path_request(attr)?;
    context
        .resolve(&request)
        .map_err(|error| Failure::invalid(error.to_string()))
}

/// # Safety
/// `pd` and `attr` are null or point to what their types say.
unsafe fn create(
    pd: *mut abi::ibv_pd,
    attr: *const abi::ibv_ah_attr,
) -> Result<*mut abi::ibv_ah, Failure> {
    // SAFETY: the caller's contract.
    let (domain, attr) = unsafe { (&pd::state(pd)?.pd, attr.as_ref()) };
    let attr = attr.ok_or_else(|| Failure::invalid("attr is a null pointer"))?;
    let path = resolve(domain.context(), attr)?;
    let c = abi::ibv_ah {
        // SAFETY: the caller's contract: the domain is live.
        context: unsafe { (*pd).context },
        pd,
        handle: 0,
    };
    Ok(handle::create(
        c,
        AhState {
            path,
            _pd: ProtectionDomain::clone(domain),
        },
    ))
}

/// # Safety
/// `pd` and `attr` are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah(
    pd: *mut abi::ibv_pd,
    attr: *mut abi::ibv_ah_attr,
) -> *mut abi::ibv_ah {
    // SAFETY: the caller's contract.
    guard::pointer("ibv_create_ah", || unsafe { create(pd, attr) })
}

/// The address of whoever sent the datagram of a completion.
///
/// # Safety
/// The pointers are null or point to what their types say.
unsafe fn sender(
    context: *mut abi::ibv_context,
    port_num: u8,
    wc: *const abi::ibv_wc,
    grh: *const abi::ibv_grh,
) -> Result<abi::ibv_ah_attr, Failure> {
    // SAFETY: the caller's contract; a GRH has 40 bytes.
    let (state, wc, header) = unsafe {
        (
            context::state(context)?,
            wc.as_ref(),
            grh.cast::<[u8; 40]>().as_ref(),
        )
    };
    let wc = wc.ok_or_else(|| Failure::invalid("wc is a null pointer"))?;
    let header = header.ok_or_else(|| Failure::invalid("grh is a null pointer"))?;
    if wc.wc_flags & abi::IBV_WC_GRH == 0 {
        return Err(Failure::invalid(
            "the completion has no IBV_WC_GRH: it is no datagram",
        ));
    }
    let header = ReceivedHeader::parse(header)?;
    let ours = gid_address(header.destination);
    let index = (0..GID_TABLE_LEN).find(|&index| state.context.gid(index) == Some(ours));
    // A datagram to a group names no address of ours: any of its family does.
    let index = index.or_else(|| {
        (0..GID_TABLE_LEN).find(|&index| {
            state
                .context
                .gid(index)
                .is_some_and(|gid| gid.is_ipv4() == ours.is_ipv4())
        })
    });
    let index = index.and_then(|index| u8::try_from(index).ok());
    let index = index.ok_or_else(|| {
        Failure::invalid(format!(
            "{ours}, where the datagram went, is no GID of this device"
        ))
    })?;
    Ok(header.answer(port_num, index))
}

/// # Safety
/// The pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut abi::ibv_context,
    port_num: u8,
    wc: *mut abi::ibv_wc,
    grh: *mut abi::ibv_grh,
    ah_attr: *mut abi::ibv_ah_attr,
) -> c_int {
    guard::status("ibv_init_ah_from_wc", || {
        // SAFETY: the caller's contract.
        let answer = unsafe { sender(context, port_num, wc, grh) }?;
        let target = guard::not_null(ah_attr, "ah_attr")?;
        // SAFETY: the caller's contract.
        unsafe { target.write(answer) };
        Ok(())
    })
}

/// # Safety
/// The pointers are null or point to what their types say.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut abi::ibv_pd,
    wc: *mut abi::ibv_wc,
    grh: *mut abi::ibv_grh,
    port_num: u8,
) -> *mut abi::ibv_ah {
    guard::pointer("ibv_create_ah_from_wc", || {
        // SAFETY: the caller's contract.
        unsafe {
            pd::state(pd)?;
            let attr = sender((*pd).context, port_num, wc, grh)?;
            create(pd, &raw const attr)
        }
    })
}

/// # Safety
/// `ah` is null or live, and not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut abi::ibv_ah) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, AhState>(ah) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_destroy_ah", ah, destroy) }
}

/// The network header in the first 40 bytes of a received datagram, as RoCEv2 delivers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceivedHeader {
    /// GID of the sender.
    pub(crate) source: [u8; 16],
    /// The GID of ours that it was sent to, or a multicast group.
    pub(crate) destination: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
}

impl ReceivedHeader {
    /// Reads the 40 bytes: an IPv6 header, or 20 bytes of no meaning and an IPv4 header.
    pub(crate) fn parse(bytes: &[u8; 40]) -> Result<Self, Failure> {
        let gid = |start: usize| <[u8; 16]>::try_from(&bytes[start..start + 16]);
        let mapped = |start: usize| {
            let address = <[u8; 4]>::try_from(&bytes[start..start + 4]).unwrap_or_default();
            Ipv4Addr::from(address).to_ipv6_mapped().octets()
        };
        if bytes[0] >> 4 == 6 {
            let word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            Ok(Self {
                source: gid(8).unwrap_or_default(),
                destination: gid(24).unwrap_or_default(),
                traffic_class: (word >> 20 & 0xff) as u8,
                flow_label: word & abi::IB_GRH_FLOWLABEL_MASK,
            })
        } else if bytes[20] >> 4 == 4 {
            Ok(Self {
                source: mapped(32),
                destination: mapped(36),
                traffic_class: bytes[21],
                flow_label: 0,
            })
        } else {
            Err(Failure::invalid(
                "the grh holds neither an IPv6 nor an IPv4 header",
            ))
        }
    }

    /// The attributes of an answer. `sgid_index` is that of [`Self::destination`]; an answer to a
    /// multicast goes out by any GID of the family.
    pub(crate) fn answer(&self, port_num: u8, sgid_index: u8) -> abi::ibv_ah_attr {
        abi::ibv_ah_attr {
            grh: abi::ibv_global_route {
                dgid: abi::ibv_gid { raw: self.source },
                flow_label: self.flow_label,
                sgid_index,
                // What is left of the sender's says nothing about the way back.
                hop_limit: 255,
                traffic_class: self.traffic_class,
            },
            is_global: 1,
            port_num,
            ..Default::default()
        }
    }
}

/// Finds the Ethernet address that packets to `attr.grh.dgid` go to, for programs that build
/// frames themselves. `vid` is written only if the GID itself carries a VLAN.
///
/// # Safety
/// `attr` is null or points to its type; `eth_mac` is null or points to 6 bytes; `vid` is null or
/// points to a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut abi::ibv_context,
    attr: *mut abi::ibv_ah_attr,
    eth_mac: *mut u8,
    vid: *mut u16,
) -> c_int {
    guard::status("ibv_resolve_eth_l2_from_gid", || {
        guard::not_null(attr, "attr")?;
        guard::not_null(eth_mac, "eth_mac")?;
        // SAFETY: the caller's contract, null refused; every member of the union is 16 bytes.
        let gid = unsafe { (*attr).grh.dgid.raw };
        let (mac, vlan) = ethernet_address(gid, |address| {
            let table = fs::read_to_string("/proc/net/arp").unwrap_or_default();
            neighbour(&table, address)
        })?;
        // SAFETY: the caller's contract: 6 bytes, and a number or null.
        unsafe {
            ptr::copy_nonoverlapping(mac.as_ptr(), eth_mac, mac.len());
            if let (Some(vlan), false) = (vlan, vid.is_null()) {
                vid.write(vlan);
            }
        }
        Ok(())
    })
}

type Mac = [u8; abi::ETHERNET_LL_SIZE as usize];

/// The Ethernet address behind a GID, and the VLAN that a link-local GID may carry.
fn ethernet_address(
    gid: [u8; 16],
    neighbour: impl FnOnce(Ipv4Addr) -> Option<Mac>,
) -> Result<(Mac, Option<u16>), Failure> {
    let v6 = Ipv6Addr::from(gid);
    match v6.to_canonical() {
        IpAddr::V4(v4) if v4.is_multicast() => {
            // RFC 1112: the low 23 bits of the group.
            let [_, b, c, d] = v4.octets();
            Ok(([0x01, 0x00, 0x5e, b & 0x7f, c, d], None))
        }
        // RFC 2464: the low 32 bits of the group.
        IpAddr::V6(_) if v6.is_multicast() => {
            Ok(([0x33, 0x33, gid[12], gid[13], gid[14], gid[15]], None))
        }
        IpAddr::V4(v4) if v4.is_loopback() => Ok(([0; 6], None)),
        IpAddr::V6(v6) if v6.is_loopback() => Ok(([0; 6], None)),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            // The interface identifier holds the address, its universal bit inverted, and in the
            // middle either ff:fe or a VLAN.
            let mac = [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]];
            let middle = u16::from_be_bytes([gid[11], gid[12]]);
            Ok((mac, (middle <= VLAN_MAX).then_some(middle)))
        }
        IpAddr::V4(v4) => neighbour(v4).map(|mac| (mac, None)).ok_or_else(|| {
            let reason = format!("{v4} is not in the ARP table; send it a packet first");
            Failure::new(libc::EHOSTUNREACH, reason)
        }),
        IpAddr::V6(v6) => Err(Failure::unsupported(format!(
            "the Ethernet address of {v6} is not looked up; use its link-local address"
        ))),
    }
}

const VLAN_MAX: u16 = 0xfff;

/// Looks an address up in the text of `/proc/net/arp`: address, type, flags, MAC, mask, device.
fn neighbour(table: &str, address: Ipv4Addr) -> Option<Mac> {
    const COMPLETE: u32 = 2;
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let found: Ipv4Addr = fields.next()?.parse().ok()?;
        let flags = u32::from_str_radix(fields.nth(1)?.trim_start_matches("0x"), 16).ok()?;
        if found != address || flags & COMPLETE == 0 {
            return None;
        }
        let mut mac = Mac::default();
        let mut bytes = fields.next()?.split(':');
        for byte in &mut mac {
            *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
        }
        Some(mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(address: &str) -> [u8; 16] {
        match address.parse().unwrap() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        }
    }

    fn mac_of(address: &str) -> Result<(Mac, Option<u16>), Failure> {
        ethernet_address(gid(address), |_| None)
    }

    #[test]
    fn groups_and_link_local_addresses_need_no_table() {
        assert_eq!(
            mac_of("239.129.2.3"),
            Ok(([0x01, 0x00, 0x5e, 1, 2, 3], None))
        );
        assert_eq!(mac_of("ff05::1:203"), Ok(([0x33, 0x33, 0, 1, 2, 3], None)));
        assert_eq!(mac_of("127.0.0.1"), Ok(([0; 6], None)));
        let mac = [0x52, 0x54, 0x00, 0x12, 0x34, 0x56];
        assert_eq!(mac_of("fe80::5054:ff:fe12:3456"), Ok((mac, None)));
        assert_eq!(mac_of("fe80::5054:0:6412:3456"), Ok((mac, Some(100))));
    }

    #[test]
    fn other_addresses_are_looked_up_or_refused_with_a_reason() {
        let table = "IP address  HW type  Flags  HW address         Mask  Device\n\
                     10.0.0.7    0x1      0x2    52:54:00:0a:0b:0c  *     eth0\n\
                     10.0.0.8    0x1      0x0    00:00:00:00:00:00  *     eth0\n";
        let found = ethernet_address(gid("10.0.0.7"), |address| neighbour(table, address));
        assert_eq!(found, Ok(([0x52, 0x54, 0, 0x0a, 0x0b, 0x0c], None)));
        let incomplete = ethernet_address(gid("10.0.0.8"), |address| neighbour(table, address));
        assert_eq!(incomplete.unwrap_err().errno, libc::EHOSTUNREACH);
        assert_eq!(mac_of("2001:db8::1").unwrap_err().errno, libc::EOPNOTSUPP);
    }

    #[test]
    fn the_entry_point_writes_the_address_and_leaves_the_vlan() {
        let mut attr = abi::ibv_ah_attr::default();
        attr.grh.dgid.raw = gid("239.1.2.3");
        let (mut mac, mut vid) = ([0xee_u8; 7], 0x1234);
        // SAFETY: live variables of the right sizes, or null.
        unsafe {
            let call = ibv_resolve_eth_l2_from_gid;
            let context = ptr::null_mut();
            assert_eq!(
                call(context, &raw mut attr, mac.as_mut_ptr(), &raw mut vid),
                0
            );
            assert_eq!(
                call(context, ptr::null_mut(), mac.as_mut_ptr(), &raw mut vid),
                22
            );
        }
        assert_eq!((mac, vid), ([0x01, 0x00, 0x5e, 1, 2, 3, 0xee], 0x1234));
    }

    fn ipv4_header() -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[20..24].copy_from_slice(&[0x45, 0xb8, 0, 0]);
        bytes[32..36].copy_from_slice(&[10, 0, 0, 1]);
        bytes[36..40].copy_from_slice(&[10, 0, 0, 2]);
        bytes
    }

    #[test]
    fn an_answer_goes_back_to_where_the_datagram_came_from() {
        let header = ReceivedHeader::parse(&ipv4_header()).unwrap();
        assert_eq!(
            (header.source, header.destination),
            (gid("10.0.0.1"), gid("10.0.0.2"))
        );
        let attr = header.answer(1, 3);
        // SAFETY: every member of the union is 16 plain bytes.
        assert_eq!(unsafe { attr.grh.dgid.raw }, gid("10.0.0.1"));
        assert_eq!(
            (attr.is_global, attr.port_num, attr.grh.sgid_index),
            (1, 1, 3)
        );
        assert_eq!(attr.grh.traffic_class, 0xb8);
    }

    #[test]
    fn an_ipv6_header_gives_class_and_label() {
        let mut bytes = [0; 40];
        bytes[..4].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45]);
        bytes[8..24].copy_from_slice(&gid("fe80::1"));
        bytes[24..].copy_from_slice(&gid("fe80::2"));
        let header = ReceivedHeader::parse(&bytes).unwrap();
        assert_eq!((header.traffic_class, header.flow_label), (0xab, 0x12345));
        assert_eq!(
            (header.source, header.destination),
            (gid("fe80::1"), gid("fe80::2"))
        );
    }

    #[test]
    fn bytes_that_are_no_header_are_refused() {
        assert_eq!(
            ReceivedHeader::parse(&[0; 40]).unwrap_err().errno,
            libc::EINVAL
        );
    }
}
