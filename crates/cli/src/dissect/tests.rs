use super::*;
use feroce_obs::pcapng::{self, Direction, Writer};
use feroce_wire::header::Bth;
use feroce_wire::icrc::{Flow, IPV4_DONT_FRAGMENT, LEN, Seed};
use feroce_wire::{Extensions, Headers, Opcode, Psn, Qpn, ROCE_V2_PORT};

const FLOW: Flow = Flow {
    source: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    destination: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
    source_port: 50_000,
    destination_port: ROCE_V2_PORT,
    ipv4_id: 7,
    ipv4_fragment: IPV4_DONT_FRAGMENT,
};

/// BTH to ICRC of a packet without payload.
fn roce(opcode: u8, psn: u32) -> Vec<u8> {
    let bth = Bth::new(Opcode(opcode), Qpn::new(17), Psn::new(psn));
    let mut bytes = Headers::new(bth, &Extensions::default(), 0)
        .as_bytes()
        .to_vec();
    let icrc = Seed::new(&FLOW, bytes.len() + LEN).of(&bytes);
    bytes.extend(icrc);
    bytes
}

/// A capture of these packets, a microsecond apart.
fn capture(packets: &[(Direction, Vec<u8>)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "a test").unwrap();
    for (time_ns, (direction, roce)) in (0..).step_by(1000).zip(packets) {
        let packet = pcapng::Packet {
            time_ns,
            direction: *direction,
            flow: &FLOW,
            traffic_class: 0,
            hop_limit: 64,
            roce: &[roce],
            comment: None,
        };
        writer.packet(&packet).unwrap();
    }
    file
}

fn dissected(file: &[u8]) -> (String, Summary, Result<()>) {
    let mut output = Vec::new();
    let mut summary = Summary::default();
    let result = dissect(
        &mut Reader::new(file).unwrap(),
        &mut output,
        true,
        &mut summary,
    );
    (String::from_utf8(output).unwrap(), summary, result)
}

#[test]
fn lines_and_summary() {
    let mut broken = roce(0x04, 6);
    broken[0] = 0x05; // another opcode than the ICRC was made for, and no room for its immediate
    let mut bad = roce(0x04, 7);
    bad[7] ^= 1;
    let packets = [
        (Direction::Out, roce(0x04, 5)),
        (Direction::In, roce(0x04, 5)),
        (Direction::Out, roce(0x11, 5)),
        (Direction::Out, roce(0x11, 5)),
        (Direction::Out, roce(0x04, 5)),
        (Direction::Out, broken),
        (Direction::Out, bad),
        (Direction::Out, vec![0; ROCE_BYTES_MAX + 1]),
    ];
    let (lines, summary, result) = dissected(&capture(&packets));
    result.unwrap();
    let head = "10.0.0.1 → 10.0.0.2";
    let ack = "RC ACKNOWLEDGE QP 0x000011 psn 5 Ack { credits: 0 } msn 0  icrc ok";
    let expected = [
        format!("   0.000000000 {head} RC SEND ONLY QP 0x000011 psn 5  icrc ok"),
        format!("   0.000001000 {head} RC SEND ONLY QP 0x000011 psn 5  icrc ok"),
        format!("   0.000002000 {head} {ack}"),
        format!("   0.000003000 {head} {ack}"),
        format!("   0.000004000 {head} RC SEND ONLY QP 0x000011 psn 5  icrc ok  again"),
        format!(
            "   0.000005000 {head} MALFORMED: packet of 16 bytes is too short: its headers, pad \
             and ICRC need 20  icrc BAD"
        ),
        format!("   0.000006000 {head} RC SEND ONLY QP 0x000010 psn 7  icrc BAD"),
        format!("   0.000007000 {head} 4149 bytes, several packets in one"),
    ];
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    assert_eq!(
        summary.to_string(),
        "8 frames, 8 of RoCE\n         \
         4 RC SEND ONLY, 1 of them again\n         \
         2 RC ACKNOWLEDGE\n\
         ICRC: 5 right, 2 wrong, 0 not captured\n\
         retransmissions: 1\n\
         malformed packets: 1\n\
         datagrams of several packets: 1; they were captured before the kernel segmented them: \
         capture at the receiver, or with FEROCE_PCAP\n"
    );
    assert!(!summary.is_clean());
}

#[test]
fn a_cut_file_is_summed_up_to_its_end() {
    let file = capture(&[
        (Direction::Out, roce(0x04, 1)),
        (Direction::Out, roce(0x04, 2)),
    ]);
    let (lines, summary, result) = dissected(&file[..file.len() - 1]);
    assert_eq!(lines.lines().count(), 1);
    assert!(summary.is_clean());
    assert!(
        result
            .unwrap_err()
            .to_string()
            .starts_with("the file ends within the record")
    );
}
