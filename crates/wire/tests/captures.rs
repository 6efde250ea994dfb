//! Captures that others made: every ICRC verifies, every packet parses and prints.
//!
//! The folder is `FEROCE_CAPTURES` or, when that is not set, `../shared/pcap` beside the workspace.
//! The captures are not ours to republish; where they are absent these tests say so and pass.

use feroce_obs::frame::{Encapsulation, Frame, Icrc};
use feroce_obs::read::Reader;
use feroce_wire::aeth::Syndrome;
use feroce_wire::cm::{AttributeId, CmMad, Message, PortSpace};
use feroce_wire::mad::{GSI_QKEY, GSI_QPN};
use feroce_wire::{Operation, Packet, Psn, Qpn, Service};
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::{BufReader, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of captures, or `None` after a loud word.
fn folder(test: &str) -> Option<PathBuf> {
    let folder = env::var_os("FEROCE_CAPTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/pcap"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    skip(
        test,
        &format!("no folder {}: set FEROCE_CAPTURES", folder.display()),
    );
    None
}

/// Writes past the test harness, which would swallow what a passing test prints.
fn skip(test: &str, why: &str) {
    // In one piece and on a line of its own, whatever other tests print at the same time.
    let line = format!("\nSKIPPED {test}: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Hands every RoCE frame of a capture to `each`, with its number from 1 and its time. Returns
/// the number of frames.
fn frames(path: &Path, mut each: impl FnMut(usize, Duration, &Frame<'_>)) -> usize {
    let file = BufReader::new(File::open(path).expect("opens"));
    let mut reader = Reader::new(file).expect("a capture");
    let mut number = 0;
    while let Some(record) = reader.next_record().expect("undamaged") {
        number += 1;
        if let Ok(frame) = Frame::parse(record.link_type, record.bytes) {
            each(number, record.time.unwrap_or_default(), &frame);
        }
    }
    number
}

#[test]
fn every_icrc_verifies_and_every_packet_parses_and_prints() {
    let Some(folder) = folder("captures") else {
        return;
    };
    let mut captures = 0;
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("readable").path();
        let extension = path.extension().unwrap_or_default();
        if extension != "pcap" && extension != "pcapng" {
            continue;
        }
        let mut roce = 0;
        frames(&path, |number, _, frame| {
            let place = format!("{}: frame {number}", path.display());
            assert_eq!(frame.icrc(), Icrc::Right, "{place}");
            let packet = Packet::parse(frame.roce).unwrap_or_else(|e| panic!("{place}: {e}"));
            let line = packet.to_string();
            assert!(
                line.starts_with(&packet.opcode.to_string()),
                "{place}: {line}"
            );
            roce += 1;
        });
        assert_ne!(roce, 0, "no RoCE in {}", path.display());
        captures += 1;
    }
    assert_ne!(captures, 0, "a folder without captures");
}

#[test]
fn the_five_vectors_are_what_they_are_said_to_be() {
    let Some(path) = capture("the_five_vectors", "roce-scapy-vectors.pcap") else {
        return;
    };
    let mut lines = Vec::new();
    frames(&path, |_, _, frame| {
        let version = match frame.encapsulation {
            Encapsulation::V1 { .. } => 1,
            Encapsulation::V2 { .. } => 2,
        };
        let packet = Packet::parse(frame.roce).expect("parses");
        let [.., a, b, c, d] = *frame.roce else {
            panic!("no ICRC")
        };
        let icrc = u32::from_be_bytes([a, b, c, d]);
        lines.push(format!("v{version} {} icrc {icrc:08x}", packet.opcode));
    });
    let expected = [
        "v2 UC SEND ONLY icrc 78f353f3",
        "v2 CNP icrc 82fd002a",
        "v1 RC RDMA WRITE ONLY icrc e3d856bb",
        "v1 RC ACKNOWLEDGE icrc 25f0c038",
        "v2 UC SEND ONLY icrc 3e5b743b",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn every_cm_message_means_what_its_bytes_say() {
    let file = "rocev2-rxe-smbdirect-read-retry.pcap";
    let Some(path) = capture("every_cm_message", file) else {
        return;
    };
    let mut ids = BTreeMap::new();
    let mut first = None;
    frames(&path, |number, _, frame| {
        let packet = Packet::parse(frame.roce).expect("parses");
        let Some((GSI_QKEY, GSI_QPN)) = packet.extensions.datagram else {
            return;
        };
        let mad = CmMad::parse(packet.payload).unwrap_or_else(|e| panic!("frame {number}: {e}"));
        assert_eq!(mad.encode()[..], *packet.payload, "frame {number}: {mad}");
        *ids.entry(mad.message.id()).or_insert(0) += 1;
        first.get_or_insert(mad);
    });
    let expected = [
        (AttributeId::Req, 4),
        (AttributeId::Rep, 4),
        (AttributeId::Rtu, 4),
        (AttributeId::Dreq, 3),
        (AttributeId::Drep, 3),
    ];
    assert_eq!(ids, BTreeMap::from(expected));
    // The first is worked out by hand in ORIGIN.md.
    let Some(Message::Req(req)) = first.map(|mad| mad.message) else {
        panic!("{first:?}");
    };
    assert_eq!(
        req.service_id.port(),
        Some((PortSpace::Tcp, 5445)),
        "SMB Direct"
    );
    let numbers = (req.retry_count, req.rnr_retry_count, req.path_mtu);
    assert_eq!(numbers, (6, 0, 5));
    let depths = (req.responder_resources, req.initiator_depth);
    assert_eq!(depths, (32, 0));
    assert_eq!(req.primary.local_ack_timeout, 17);
    let ip = req.ip_header().expect("a header");
    assert_eq!(ip.source, IpAddr::from([192, 168, 6, 2]));
    assert_eq!(ip.destination, IpAddr::from([192, 168, 6, 1]));
}

/// When each READ request, by queue pair, PSN and length, was sent.
type Sendings = BTreeMap<(Qpn, u32, u32), Vec<Duration>>;

#[test]
fn the_smb_direct_failure_is_as_worked_out_by_hand() {
    let file = "rocev2-rxe-smbdirect-read-retry.pcap";
    let Some(path) = capture("the_smb_direct_failure", file) else {
        return;
    };
    let (mut acknowledges, mut datagrams) = (0, 0);
    let mut reads = Sendings::new();
    let total = frames(&path, |number, time, frame| {
        let packet = Packet::parse(frame.roce).expect("parses");
        let e = packet.extensions;
        match packet.info.operation {
            Operation::Acknowledge => {
                acknowledges += 1;
                let syndrome = e.aeth.map(|(syndrome, _)| syndrome);
                assert_eq!(
                    syndrome,
                    Some(Syndrome::ACK_UNLIMITED.to_byte()),
                    "frame {number}"
                );
            }
            Operation::ReadRequest => {
                let reth = e.reth.expect("a READ has one");
                let key = (packet.dest_qp, packet.psn.value(), reth.length);
                reads.entry(key).or_default().push(time);
            }
            _ if packet.info.service == Service::Ud => {
                datagrams += 1;
                assert!(packet.ack_request, "frame {number}: the known fault W13");
            }
            _ => assert_eq!(packet.info.operation, Operation::Send, "frame {number}"),
        }
    });
    assert_eq!((total, acknowledges, datagrams), (227, 93, 18));
    expect_reads(&reads);
}

fn expect_reads(reads: &Sendings) {
    let expected = [
        (17, 15_792_355, 7, 369),
        (18, 12_440_625, 7, 410),
        (19, 8_641_796, 7, 276),
        (20, 3_631_633, 2, 385),
    ];
    assert_eq!(reads.len(), expected.len());
    for ((key, times), (qpn, psn, sendings, first_retry_ms)) in reads.iter().zip(expected) {
        assert_eq!(*key, (Qpn::new(qpn), Psn::new(psn).value(), 16_384));
        assert_eq!(times.len(), sendings, "{key:?}");
        let gap_ms = |pair: &[Duration]| ((pair[1] - pair[0]).as_micros() + 500) / 1000;
        let gaps: Vec<_> = times.windows(2).map(gap_ms).collect();
        assert_eq!(gaps[0], first_retry_ms, "{key:?}");
        assert!(
            gaps[1..].iter().all(|gap| (575..=577).contains(gap)),
            "{gaps:?}"
        );
    }
}

/// A file of the folder, or `None` after a loud word.
fn capture(test: &str, file: &str) -> Option<PathBuf> {
    let path = folder(test)?.join(file);
    if path.is_file() {
        return Some(path);
    }
    skip(test, &format!("no {}", path.display()));
    None
}
