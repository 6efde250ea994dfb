use super::*;
use feroce_wire::header::Bth;
use feroce_wire::icrc::Seed;
use feroce_wire::{Extensions, Headers, Opcode, Packet, Psn, Qpn};

const ROCE_LEN: usize = Bth::LEN + 4 + icrc::LEN;

fn flow(ipv6: bool) -> Flow {
    let [source, destination] = if ipv6 {
        ["fe80::1", "fe80::2"]
    } else {
        ["10.0.0.1", "10.0.0.2"]
    };
    Flow {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: 49_152,
        destination_port: ROCE_V2_PORT,
        ipv4_id: if ipv6 { 0 } else { 0x1234 },
        ipv4_fragment: if ipv6 { 0 } else { icrc::IPV4_DONT_FRAGMENT },
    }
}

/// An RC SEND ONLY of four bytes with its ICRC.
fn roce(seed: &Seed) -> Vec<u8> {
    let bth = Bth::new(Opcode(4), Qpn::new(17), Psn::new(5));
    let mut bytes = Headers::new(bth, &Extensions::default(), 4)
        .as_bytes()
        .to_vec();
    bytes.extend(b"data");
    let icrc = seed.of(&bytes);
    bytes.extend(icrc);
    bytes
}

/// From the IP header on.
fn datagram(flow: &Flow) -> Vec<u8> {
    let mut bytes = match (flow.source, flow.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = vec![0x45, 2, 0, 28 + 20, 0, 0, 0, 0, 64, 17, 0xab, 0xcd];
            ip[4..6].copy_from_slice(&flow.ipv4_id.to_be_bytes());
            ip[6..8].copy_from_slice(&flow.ipv4_fragment.to_be_bytes());
            ip.extend(source.octets());
            ip.extend(destination.octets());
            ip
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut ip = vec![0x60, 0x2f, 0xff, 0xff, 0, 28, 17, 64];
            ip.extend(source.octets());
            ip.extend(destination.octets());
            ip
        }
        _ => unreachable!(),
    };
    bytes.extend(flow.source_port.to_be_bytes());
    bytes.extend(flow.destination_port.to_be_bytes());
    bytes.extend([0, 28, 0x99, 0x99]);
    bytes.extend(roce(&Seed::new(flow, ROCE_LEN)));
    bytes
}

fn framed(link: &[u8], ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [link, &ether_type.to_be_bytes(), rest].concat()
}

#[track_caller]
fn expect_send(link_type: LinkType, bytes: &[u8]) {
    let frame = Frame::parse(link_type, bytes).unwrap();
    assert_eq!(frame.icrc(), Icrc::Right);
    let packet = Packet::parse(frame.roce).unwrap();
    assert_eq!((packet.psn, packet.payload), (Psn::new(5), &b"data"[..]));
}

#[test]
fn every_link_layer_leads_to_the_packet() {
    let vlan = [0x81, 0, 0, 5];
    for (ether_type, ipv6) in [(ETHER_IPV4, false), (ETHER_IPV6, true)] {
        let datagram = datagram(&flow(ipv6));
        expect_send(LinkType::RAW, &datagram);
        expect_send(
            LinkType::ETHERNET,
            &framed(&[0xee; 12], ether_type, &datagram),
        );
        let tagged = [&[0xee; 12][..], &vlan, &vlan].concat();
        expect_send(LinkType::ETHERNET, &framed(&tagged, ether_type, &datagram));
        expect_send(
            LinkType::LINUX_SLL,
            &framed(&[0; 14], ether_type, &datagram),
        );
        let mut cooked = framed(&[], ether_type, &[0; 18]);
        cooked.extend(&datagram);
        expect_send(LinkType::LINUX_SLL2, &cooked);
    }
}

#[test]
fn padding_of_short_ethernet_frames_is_not_payload() {
    let mut bytes = framed(&[0; 12], ETHER_IPV4, &datagram(&flow(false)));
    bytes.extend([0x55; 11]);
    expect_send(LinkType::ETHERNET, &bytes);
}

#[test]
fn roce_v1_has_its_own_sum() {
    let mut grh = [0; GRH_LEN];
    grh[0] = 0x60;
    grh[5] = u8::try_from(ROCE_LEN).unwrap();
    grh[6] = NEXT_HEADER_BTH;
    grh[7] = 64;
    grh[23] = 1;
    grh[39] = 2;
    let packet = [&grh[..], &roce(&Seed::of_grh(&grh))].concat();
    let mut bytes = framed(&[0; 12], ETHER_ROCE_V1, &packet);
    expect_send(LinkType::ETHERNET, &bytes);
    // What a router may change does not count; the rest does.
    bytes[14 + 1] = 0xff;
    bytes[14 + 7] = 1;
    expect_send(LinkType::ETHERNET, &bytes);
    bytes[14 + 39] = 3;
    let frame = Frame::parse(LinkType::ETHERNET, &bytes).unwrap();
    assert_eq!(frame.icrc(), Icrc::Wrong);
}

#[test]
fn an_icrc_that_is_not_right_says_why() {
    let mut bytes = datagram(&flow(false));
    bytes[4..6].copy_from_slice(&[0, 7]);
    let frame = Frame::parse(LinkType::RAW, &bytes).unwrap();
    assert_eq!(
        frame.icrc().to_string(),
        "icrc BAD (right for IPv4 id 0x1234)"
    );

    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let frame = Frame::parse(LinkType::RAW, &bytes).unwrap();
    assert_eq!(frame.icrc(), Icrc::Wrong);

    let frame = Frame::parse(LinkType::RAW, &bytes[..last]).unwrap();
    assert_eq!(frame.icrc(), Icrc::NotCaptured);
    assert_eq!((frame.roce.len(), frame.roce_len), (ROCE_LEN - 1, ROCE_LEN));
}

#[test]
fn what_is_not_roce_is_told_apart() {
    let good = datagram(&flow(false));
    for (at, byte, expected) in [
        (0, 0x46, NotRoce::Ipv4Options),
        (3, 49, NotRoce::Damaged),
        (6, 0x20, NotRoce::Fragment),
        (9, 6, NotRoce::OtherProtocol),
        (23, 0xb8, NotRoce::OtherProtocol),
        (25, 7, NotRoce::Damaged),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(
            Frame::parse(LinkType::RAW, &bytes).unwrap_err(),
            expected,
            "byte {at}"
        );
    }
    let unknown = LinkType(147);
    assert_eq!(
        Frame::parse(unknown, &good).unwrap_err(),
        NotRoce::LinkType(unknown)
    );
}

#[test]
fn every_cut_is_an_error_or_a_shorter_packet() {
    let bytes = framed(&[0; 12], ETHER_IPV6, &datagram(&flow(true)));
    for cut in 0..bytes.len() {
        match Frame::parse(LinkType::ETHERNET, &bytes[..cut]) {
            Ok(frame) => assert!(!frame.is_whole()),
            Err(error) => assert_eq!(error, NotRoce::Damaged),
        }
    }
}
