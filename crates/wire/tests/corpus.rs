//! Our own corpus: one frame of every opcode, written by our encoder and checked by other means.
//!
//! The ICRC of each frame is computed a second time, bit by bit over the masked frame, by code that
//! shares nothing with `wire`; `corpus.txt` keeps the frames, so that a change of a single byte on
//! the wire is seen. `UPDATE_EXPECT=1 cargo test -p feroce-wire --test corpus` writes it again.

use feroce_obs::frame::{Frame, Icrc};
use feroce_obs::read::LinkType;
use feroce_wire::header::Bth;
use feroce_wire::icrc::{self, Flow, Seed};
use feroce_wire::{AtomicOperands, Extensions, Headers, Msn, Opcode, Packet, Psn, Qpn, Reth};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::Command;

/// How a packet travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Carrier {
    Ipv4,
    Ipv6,
    RoceV1,
}

const CARRIERS: [Carrier; 3] = [Carrier::Ipv4, Carrier::Ipv6, Carrier::RoceV1];

/// One frame of every opcode, with what it should say.
fn corpus() -> Vec<(Carrier, String, Vec<u8>)> {
    let opcodes = (0..=255)
        .map(Opcode)
        .filter(|opcode| opcode.info().is_some());
    opcodes
        .enumerate()
        .map(|(index, opcode)| {
            let carrier = CARRIERS[index % CARRIERS.len()];
            let roce = roce(opcode, index);
            let frame = frame(carrier, &roce);
            let text = Packet::parse(&frame[frame.len() - roce.len() - icrc::LEN..])
                .expect("our own packet")
                .to_string();
            (carrier, text, frame)
        })
        .collect()
}

/// BTH to pad, with a payload of `len` bytes where the opcode has one.
fn roce(opcode: Opcode, len: usize) -> Vec<u8> {
    let info = opcode.info().expect("an opcode of the table");
    // The CNP's payload is 16 reserved bytes (IBTA A17.9.3).
    let payload: Vec<u8> = match opcode {
        Opcode::CNP => vec![0; 16],
        _ if info.payload => (0..=250).cycle().take(len).collect(),
        _ => Vec::new(),
    };
    let psn = u32::try_from(0x0fff_fff0 + len).expect("a small number");
    let mut bth = Bth::new(opcode, Qpn::new(0x0012_3456), Psn::new(psn));
    bth.set_ack_request(len.is_multiple_of(2));
    bth.set_solicited(len.is_multiple_of(5));
    bth.set_becn(opcode == Opcode::CNP);
    let headers = Headers::new(bth, &extensions(), payload.len());
    let mut bytes = headers.as_bytes().to_vec();
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Every extension; an opcode takes those that it has.
fn extensions() -> Extensions {
    Extensions {
        datagram: Some((0x8001_0000, Qpn::new(0x00ab_cdef))),
        xrc_srqn: Some(0x0077_6655),
        flush: Some(0x12),
        reth: Some(Reth {
            virtual_address: 0x0123_4567_89ab_cdef,
            rkey: 0xcafe_f00d,
            length: 0x8000_0001,
        }),
        atomic: Some(AtomicOperands {
            virtual_address: 0xfedc_ba98_7654_3210,
            rkey: 0x0bad_cafe,
            swap_or_add: 0x1111_2222_3333_4444,
            compare: 0x5555_6666_7777_8888,
        }),
        aeth: Some((0x1f, Msn::new(0x00fe_dcba))),
        atomic_ack: Some(0x0102_0304_0506_0708),
        immediate: Some(0xdead_beef),
        invalidate: Some(0x0042_0017),
    }
}

fn flow(carrier: Carrier) -> Flow {
    let (source, destination) = match carrier {
        Carrier::Ipv4 => ("192.0.2.1", "192.0.2.254"),
        _ => ("2001:db8::1", "2001:db8::fffe"),
    };
    Flow {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        source_port: 0xc123,
        destination_port: feroce_wire::ROCE_V2_PORT,
        ipv4_id: 0x2f61,
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    }
}

/// An Ethernet frame around `roce`; its ICRC by `wire`.
fn frame(carrier: Carrier, roce: &[u8]) -> Vec<u8> {
    let flow = flow(carrier);
    let roce_len = roce.len() + icrc::LEN;
    let len = |more: usize| {
        u16::try_from(roce_len + more)
            .expect("a short frame")
            .to_be_bytes()
    };
    let (ether_type, mut network) = match (carrier, flow.source, flow.destination) {
        (Carrier::Ipv4, IpAddr::V4(source), IpAddr::V4(destination)) => {
            let id = flow.ipv4_id.to_be_bytes();
            let mut ip = [&[0x45, 0xb9][..], &len(28), &id, &[0x40, 0, 63, 17, 0, 0]].concat();
            ip.extend(source.octets());
            ip.extend(destination.octets());
            let sum = internet_checksum(&ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
            (0x0800, ip)
        }
        (_, IpAddr::V6(source), IpAddr::V6(destination)) => {
            let v1 = carrier == Carrier::RoceV1;
            let (more, next_header) = if v1 { (0, 0x1b) } else { (8, 17) };
            let start = [0x6b, 0x95, 0xbe, 0xef];
            let mut ip = [&start[..], &len(more), &[next_header, 62]].concat();
            ip.extend(source.octets());
            ip.extend(destination.octets());
            (if v1 { 0x8915_u16 } else { 0x86dd }, ip)
        }
        _ => unreachable!("the addresses are of the carrier's family"),
    };
    let seed = match carrier {
        Carrier::RoceV1 => Seed::of_grh(network.first_chunk().expect("40 bytes")),
        _ => {
            network.extend(flow.source_port.to_be_bytes());
            network.extend(flow.destination_port.to_be_bytes());
            network.extend(len(8));
            network.extend([0, 0]);
            Seed::new(&flow, roce_len)
        }
    };
    let link = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    network.extend(roce);
    network.extend(seed.of(roce));
    if carrier != Carrier::RoceV1 {
        set_udp_checksum(
            &mut network,
            usize::from(carrier == Carrier::Ipv6) * 20 + 20,
        );
    }
    [&link, &ether_type.to_be_bytes()[..], &network].concat()
}

/// Sums the pseudo header and the datagram at `udp` (RFC 768, RFC 8200 8.1).
fn set_udp_checksum(network: &mut [u8], udp: usize) {
    let addresses = if udp == 20 { 12 } else { 8 };
    let len = [network[udp + 4], network[udp + 5], 0, 17];
    let summed = [&network[addresses..], &len].concat();
    network[udp + 6..udp + 8].copy_from_slice(&internet_checksum(&summed).to_be_bytes());
}

/// The ones' complement sum (RFC 1071) of whole words.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).expect("below 2^16 after two folds")
}

/// The ICRC of an Ethernet frame without its last four bytes, from the definition: eight bytes of
/// ones, then the frame behind its Ethernet header with the fields that may change set to ones, bit
/// by bit through the reflected CRC-32.
fn icrc_by_definition(carrier: Carrier, frame: &[u8]) -> [u8; 4] {
    let mut masked = frame[14..].to_vec();
    let bth = match carrier {
        Carrier::Ipv4 => {
            for at in [1, 8, 10, 11, 26, 27] {
                masked[at] = 0xff;
            }
            28
        }
        _ => {
            masked[0] |= 0x0f;
            for at in [1, 2, 3, 7] {
                masked[at] = 0xff;
            }
            if carrier == Carrier::Ipv6 {
                masked[46..48].fill(0xff);
                48
            } else {
                40
            }
        }
    };
    masked[bth + 4] = 0xff;
    let mut state = u32::MAX;
    for byte in [0xff; 8].into_iter().chain(masked) {
        for bit in 0..8 {
            let feedback = (state ^ u32::from(byte) >> bit) & 1;
            state = (state >> 1) ^ (feedback * 0xedb8_8320);
        }
    }
    (!state).to_le_bytes()
}

#[test]
fn every_opcode_is_as_it_was_and_its_icrc_is_right_by_definition() {
    let mut text = String::from("# carrier | packet | Ethernet frame\n");
    for (carrier, packet, frame) in corpus() {
        let body = frame.len() - icrc::LEN;
        let icrc = icrc_by_definition(carrier, &frame[..body]);
        assert_eq!(icrc, frame[body..], "{carrier:?} {packet}");
        let read = Frame::parse(LinkType::ETHERNET, &frame).expect("our own frame");
        assert_eq!(read.icrc(), Icrc::Right, "{carrier:?} {packet}");
        write!(text, "{carrier:?} | {packet} | ").expect("memory");
        for byte in frame {
            write!(text, "{byte:02x}").expect("memory");
        }
        text.push('\n');
    }
    expect_test::expect_file!["corpus.txt"].assert_eq(&text);
}

#[test]
fn icrcs_of_all_lengths_are_right_by_definition() {
    let lengths = (0..40).chain([255, 256, 257, 1023, 1024, 1025, 4095, 4096]);
    for len in lengths {
        for carrier in CARRIERS {
            let frame = frame(carrier, &roce(Opcode(0x04), len));
            let body = frame.len() - icrc::LEN;
            let icrc = icrc_by_definition(carrier, &frame[..body]);
            assert_eq!(icrc, frame[body..], "{carrier:?} {len}");
        }
    }
}

#[test]
fn tshark_reads_every_frame_without_a_complaint() {
    if Command::new("tshark").arg("--version").output().is_err() {
        let _ = std::io::stderr().write_all(b"\nSKIPPED tshark: it is not installed\n");
        return;
    }
    let corpus = corpus();
    let frames: Vec<&[u8]> = corpus.iter().map(|(_, _, frame)| &frame[..]).collect();
    let path = std::env::temp_dir().join(format!("feroce-corpus-{}.pcap", std::process::id()));
    fs::write(&path, pcap(&frames)).expect("a file in the temporary folder");
    let fields = [
        "infiniband.bth.opcode",
        "infiniband.bth.psn",
        "_ws.malformed",
        "_ws.expert",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&path).args(["-T", "fields"]);
    // It would take our payload for one of these.
    for guess in ["rpcordma", "smb_direct", "iser", "nvme-rdma"] {
        tshark.args(["--disable-protocol", guess]);
    }
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("runs");
    fs::remove_file(&path).expect("our own file");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).expect("text");
    assert_eq!(lines.lines().count(), corpus.len());
    for (line, (_, text, frame)) in lines.lines().zip(&corpus) {
        let packet = Frame::parse(LinkType::ETHERNET, frame).expect("our own frame");
        let packet = Packet::parse(packet.roce).expect("our own packet");
        let expected = format!("{}\t{}\t\t", packet.opcode.0, packet.psn);
        assert_eq!(line, expected, "{text}");
    }
}

/// A classic pcap, little-endian, with no times.
fn pcap(frames: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let len = u32::try_from(frame.len()).expect("a short frame");
        for word in [0, 0, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(*frame);
    }
    file
}
