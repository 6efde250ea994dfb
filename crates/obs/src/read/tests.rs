use super::*;

const FRAME: &[u8] = b"sixteen bytes ..";

/// A classic pcap head, in big-endian.
fn pcap_head(magic: u32) -> Vec<u8> {
    let mut file = magic.to_be_bytes().to_vec();
    file.extend([0, 2, 0, 4]);
    file.extend([0; 12]);
    file.extend(1_u32.to_be_bytes());
    file
}

fn pcap_record(file: &mut Vec<u8>, seconds: u32, fraction: u32, original_len: u32) {
    let captured_len = u32::try_from(FRAME.len()).unwrap();
    for word in [seconds, fraction, captured_len, original_len] {
        file.extend(word.to_be_bytes());
    }
    file.extend(FRAME);
}

/// A pcapng block in little-endian.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let padded = body.len().next_multiple_of(4);
    let len = u32::try_from(padded + 12).unwrap();
    let mut block = [kind.to_le_bytes(), len.to_le_bytes()].concat();
    block.extend(body);
    block.resize(8 + padded, 0);
    block.extend(len.to_le_bytes());
    block
}

fn section_block() -> Vec<u8> {
    let mut body = PCAPNG_BYTE_ORDER.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend([0xff; 8]);
    block(PCAPNG_SECTION, &body)
}

/// An interface of Ethernet with these options.
fn interface_block(options: &[u8]) -> Vec<u8> {
    let mut body = vec![1, 0, 0, 0, 8, 0, 0, 0];
    body.extend(options);
    block(BLOCK_INTERFACE, &body)
}

fn enhanced_block(interface: u32, units: u64, original_len: u32) -> Vec<u8> {
    let captured_len = u32::try_from(FRAME.len()).unwrap();
    let (high, low) = (units >> 32, units & 0xffff_ffff);
    let mut body = Vec::new();
    for word in [
        interface,
        u32::try_from(high).unwrap(),
        u32::try_from(low).unwrap(),
        captured_len,
        original_len,
    ] {
        body.extend(word.to_le_bytes());
    }
    body.extend(FRAME);
    block(BLOCK_ENHANCED, &body)
}

/// Time and original length of a record.
type Summary = (Option<Duration>, u32);

/// All records, and how the file ended.
fn read_all(file: &[u8]) -> (Vec<Summary>, Result<(), String>) {
    let mut records = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Err(error.to_string())),
    };
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                assert_eq!(record.link_type, LinkType::ETHERNET);
                assert!(FRAME.starts_with(record.bytes));
                records.push((record.time, record.original_len));
            }
            Ok(None) => return (records, Ok(())),
            Err(error) => return (records, Err(error.to_string())),
        }
    }
}

#[test]
fn classic_in_both_orders_and_resolutions() {
    for (magic, nanos) in [(PCAP_MICROS, 7_000), (PCAP_NANOS, 7)] {
        let mut file = pcap_head(magic);
        pcap_record(&mut file, 5, 7, 16);
        pcap_record(&mut file, 6, 0, 4000);
        let expected = vec![
            (Some(Duration::new(5, nanos)), 16),
            (Some(Duration::from_secs(6)), 4000),
        ];
        assert_eq!(read_all(&file), (expected.clone(), Ok(())));

        // The same file from a machine of the other byte order: everything but the frames swaps.
        let mut swapped = file.clone();
        swapped[4..8].copy_from_slice(&[2, 0, 4, 0]);
        for at in [0, 20, 24, 28, 32, 36, 56, 60, 64, 68] {
            swapped[at..at + 4].reverse();
        }
        assert_eq!(read_all(&swapped), (expected, Ok(())));
    }
}

#[test]
fn pcapng_with_its_time_options() {
    let nanoseconds = [9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let halves_one_hour_later = [
        &[9, 0, 1, 0, 0x81, 0, 0, 0][..],
        &[14, 0, 8, 0],
        &3600_u64.to_le_bytes(),
    ]
    .concat();
    let file = [
        section_block(),
        interface_block(&nanoseconds),
        interface_block(&halves_one_hour_later),
        interface_block(&[]),
        block(0x0bad, b"a block that nobody knows"),
        enhanced_block(0, 5_000_000_007, 16),
        enhanced_block(1, 3, 16),
        enhanced_block(2, 3_000_001, 9000),
    ]
    .concat();
    let expected = vec![
        (Some(Duration::new(5, 7)), 16),
        (Some(Duration::new(3601, 500_000_000)), 16),
        (Some(Duration::new(3, 1000)), 9000),
    ];
    assert_eq!(read_all(&file), (expected, Ok(())));
}

#[test]
fn a_simple_block_has_no_time_and_is_cut_at_the_snap_length() {
    let mut body = 1500_u32.to_le_bytes().to_vec();
    body.extend(&FRAME[..8]);
    let file = [
        section_block(),
        interface_block(&[]),
        block(BLOCK_SIMPLE, &body),
    ]
    .concat();
    assert_eq!(read_all(&file), (vec![(None, 1500)], Ok(())));
}

#[test]
fn a_new_section_forgets_the_interfaces() {
    let file = [
        section_block(),
        interface_block(&[]),
        section_block(),
        enhanced_block(0, 0, 16),
    ]
    .concat();
    let (records, end) = read_all(&file);
    assert_eq!(records, []);
    assert!(
        end.unwrap_err()
            .contains("interface that was not described")
    );
}

#[test]
fn a_cut_file_gives_what_is_there_and_says_where_it_ends() {
    let mut file = pcap_head(PCAP_MICROS);
    pcap_record(&mut file, 5, 7, 16);
    pcap_record(&mut file, 6, 0, 16);
    for cut in 1..32 {
        let (records, end) = read_all(&file[..file.len() - cut]);
        assert_eq!(records.len(), 1);
        assert_eq!(
            end.unwrap_err(),
            "the file ends within the record at byte 56"
        );
    }
}

#[test]
fn what_is_no_capture_is_named_by_its_first_bytes() {
    let (_, end) = read_all(b"GIF89a");
    assert_eq!(
        end.unwrap_err(),
        "neither pcap nor pcapng: the file begins with [47, 49, 46, 38]"
    );
}

#[test]
fn a_length_that_no_frame_has_is_refused_before_memory_is_taken() {
    let mut file = pcap_head(PCAP_MICROS);
    for word in [0, 0, u32::MAX, u32::MAX] {
        file.extend(word.to_be_bytes());
    }
    let (_, end) = read_all(&file);
    assert!(end.unwrap_err().contains("longer than any frame"));

    let mut giant = section_block();
    giant.extend(BLOCK_ENHANCED.to_le_bytes());
    giant.extend(0xffff_fffc_u32.to_le_bytes());
    assert!(
        read_all(&giant)
            .1
            .unwrap_err()
            .contains("longer than any frame")
    );
}

#[test]
fn what_our_writer_wrote_is_read() {
    use crate::frame::{Frame, Icrc};
    use crate::pcapng::{Packet, Writer};
    use feroce_wire::icrc::{Flow, IPV4_DONT_FRAGMENT, Seed};

    let flow = Flow {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 50_000,
        destination_port: feroce_wire::ROCE_V2_PORT,
        ipv4_id: 7,
        ipv4_fragment: IPV4_DONT_FRAGMENT,
    };
    let body = [0x55; 16];
    let icrc = Seed::new(&flow, body.len() + feroce_wire::icrc::LEN).of(&body);
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "a test").unwrap();
    for (time_ns, direction, comment) in [
        (1_000_000_007, Direction::Out, None),
        (2_000_000_000, Direction::In, Some("late")),
    ] {
        let packet = Packet {
            time_ns,
            direction,
            flow: &flow,
            traffic_class: 2,
            hop_limit: 64,
            roce: &[&body, &icrc],
            comment,
        };
        writer.packet(&packet).unwrap();
    }
    let mut reader = Reader::new(&file[..]).unwrap();
    let record = reader.next_record().unwrap().unwrap();
    assert_eq!(record.time, Some(Duration::new(1, 7)));
    assert_eq!(
        (record.direction, record.comment),
        (Some(Direction::Out), None)
    );
    let frame = Frame::parse(record.link_type, record.bytes).unwrap();
    assert_eq!((frame.icrc(), &frame.roce[..16]), (Icrc::Right, &body[..]));
    let record = reader.next_record().unwrap().unwrap();
    assert_eq!(record.time, Some(Duration::from_secs(2)));
    assert_eq!(
        (record.direction, record.comment),
        (Some(Direction::In), Some("late"))
    );
    assert!(reader.next_record().unwrap().is_none());
}
