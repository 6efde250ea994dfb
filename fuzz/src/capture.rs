//! Any bytes as a capture file: every record, frame and packet in it, up to its end.

use crate::{Features, packets};
use feroce_obs::frame::{Frame, Icrc, NotRoce};
use feroce_obs::pcapng::{Direction, Packet as Written, Writer};
use feroce_obs::read::{ReadError, Reader};
use feroce_wire::Packet;

/// Reads `input` to its end or its first error.
pub fn run(input: &[u8]) -> Features {
    let mut features = Features::default();
    let mut reader = match Reader::new(input) {
        Ok(reader) => reader,
        Err(error) => {
            features.add(kind(&error));
            return features;
        }
    };
    // Every record takes bytes of the file, so this ends.
    for _ in 0..=input.len() {
        let record = match reader.next_record() {
            Ok(Some(record)) => record,
            Ok(None) => return features,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                features.add(kind(&error));
                return features;
            }
        };
        assert!(record.bytes.len() <= input.len());
        features.add(8 + u32::from(record.time.is_some()));
        match Frame::parse(record.link_type, record.bytes) {
            Ok(frame) => {
                assert!(frame.roce.len() <= frame.roce_len);
                features.add(10 + u32::from(frame.is_whole()));
                features.add(12 + u32::from(frame.icrc() == Icrc::Right));
                features.add(14 + u32::from(Packet::parse(frame.roce).is_ok()));
            }
            Err(error) => features.add(reason(error)),
        }
    }
    panic!("more records than bytes");
}

fn kind(error: &ReadError) -> u32 {
    match error {
        ReadError::Io(_) => 2,
        ReadError::NotACapture(_) => 3,
        ReadError::CutShort { .. } => 4,
        ReadError::Damaged { .. } => 5,
        _ => 6,
    }
}

fn reason(error: NotRoce) -> u32 {
    match error {
        NotRoce::LinkType(_) => 16,
        NotRoce::OtherProtocol => 17,
        NotRoce::Fragment => 18,
        NotRoce::Ipv4Options => 19,
        NotRoce::Damaged => 20,
        _ => 21,
    }
}

/// A pcapng of ours, and the same packets as a classic pcap.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut pcapng = Vec::new();
    let flow = packets::flow();
    let mut pcap = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0xffff, 101] {
        pcap.extend(word.to_le_bytes());
    }
    let mut writer = Writer::new(&mut pcapng, "fuzz").expect("memory");
    for roce in packets::sealed().iter().step_by(7) {
        let written = Written {
            time_ns: 1_000_000_007,
            direction: Direction::In,
            flow: &flow,
            traffic_class: 3,
            hop_limit: 64,
            roce: &[roce],
            comment: Some("seen"),
        };
        writer.packet(&written).expect("memory");
        let len = u8::try_from(roce.len() + 28).expect("a small packet");
        let mut ip = vec![0x45, 0, 0, len, 0, 7, 0x40, 0, 64, 17, 0, 0];
        ip.extend([
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
            0xc3,
            0x50,
            0x12,
            0xb7,
            0,
            len - 20,
            0,
            0,
        ]);
        ip.extend(roce);
        for word in [5, 6, u32::from(len), u32::from(len)] {
            pcap.extend(word.to_le_bytes());
        }
        pcap.extend(ip);
    }
    vec![pcapng, pcap]
}
