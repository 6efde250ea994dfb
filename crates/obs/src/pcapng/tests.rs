use super::*;
use feroce_wire::icrc::{IPV4_DONT_FRAGMENT, Seed};
use std::process::Command;

fn flow(source: &str, destination: &str) -> Flow {
    Flow {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: 0xc0de,
        destination_port: 4791,
        ipv4_id: 7,
        ipv4_fragment: IPV4_DONT_FRAGMENT,
    }
}

/// An RC SEND-only packet with its ICRC.
fn send_only(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let pad = payload.len().wrapping_neg() % 4;
    let mut bytes = vec![
        4,
        (pad as u8) << 4,
        0xff,
        0xff,
        0,
        0,
        0x12,
        0x34,
        0x80,
        0,
        0,
        9,
    ];
    bytes.extend(payload);
    bytes.resize(bytes.len() + pad, 0);
    let (head, rest) = bytes.split_at(12);
    let mut sum = Seed::new(flow, bytes.len() + 4).start(head);
    sum.update(rest);
    let sum = sum.finish();
    bytes.extend(sum);
    bytes
}

/// What tshark shows of a capture, a line per packet; `None`, loudly, where there is no tshark.
fn tshark(path: &Path, fields: &[&str]) -> Option<Vec<String>> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-T", "fields"]);
    // Guesses at what the payload of a SEND might be, and then finds fault with it.
    command.args(["--disable-protocol", "rpcordma"]);
    for option in ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE"] {
        command.args(["-o", option]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            eprintln!("SKIPPED: tshark cannot be run: {error}");
            return None;
        }
    };
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {complaints}");
    assert!(!complaints.contains("cut short"), "{complaints}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn tshark_agrees_with_every_header() {
    let path = crate::test_file("headers");
    let mut writer = Writer::new(File::create(&path).unwrap(), "test").unwrap();
    let flows = [
        flow("10.0.0.1", "10.0.0.2"),
        flow("fe80::1", "2001:db8::2"),
        flow("10.0.0.1", "239.129.2.3"),
    ];
    for (number, flow) in flows.iter().enumerate() {
        let roce = send_only(flow, &[0x5a; 13][..13 - number]);
        // In pieces of odd length, as a checksum over them must not mind.
        let (first, rest) = roce.split_at(11);
        let packet = Packet {
            time_ns: 1_700_000_000_123_456_789 + number as u64,
            direction: [Direction::Out, Direction::In][number % 2],
            flow,
            traffic_class: 0x6a + number as u8,
            hop_limit: 63,
            roce: &[first, &[], rest],
            comment: (number == 1).then_some("a remark"),
        };
        writer.packet(&packet).unwrap();
    }
    let fields = [
        "frame.time_epoch",
        "frame.packet_flags_direction",
        "frame.comment",
        "eth.dst",
        "ip.dsfield",
        "ip.id",
        "ip.flags.df",
        "ip.ttl",
        "ip.checksum.status",
        "ipv6.tclass",
        "ipv6.hlim",
        "udp.srcport",
        "udp.checksum.status",
        "infiniband.bth.opcode",
        "infiniband.bth.destqp",
        "_ws.malformed",
    ];
    let Some(lines) = tshark(&path, &fields) else {
        return;
    };
    // Checksum status 1 is "good", 3 is "not present" (no UDP checksum with IPv4).
    let expected = [
        "1700000000.123456789|0x00000002||02:00:0a:00:00:02|\
         0x6a|0x0007|1|63|1|||49374|3|4|0x001234|",
        "1700000000.123456790|0x00000001|a remark|02:06:00:00:00:02|\
         |||||0x0000006b|63|49374|1|4|0x001234|",
        "1700000000.123456791|0x00000002||01:00:5e:01:02:03|\
         0x6c|0x0007|1|63|1|||49374|3|4|0x001234|",
    ];
    let seen: Vec<_> = lines.iter().map(|line| line.replace('\t', "|")).collect();
    assert_eq!(seen, expected);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn our_own_reader_finds_the_same_packet_and_a_right_icrc() {
    for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("fe80::1", "fe80::2")] {
        let flow = flow(source, destination);
        let roce = send_only(&flow, b"payload");
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file, "test").unwrap();
        let packet = Packet {
            time_ns: 1_000_000_001,
            direction: Direction::In,
            flow: &flow,
            traffic_class: 1,
            hop_limit: 2,
            roce: &[&roce],
            comment: None,
        };
        writer.packet(&packet).unwrap();
        let mut reader = crate::read::Reader::new(&file[..]).unwrap();
        let record = reader.next_record().unwrap().unwrap();
        assert_eq!(record.time.unwrap().as_nanos(), 1_000_000_001);
        let frame = crate::frame::Frame::parse(record.link_type, record.bytes).unwrap();
        assert_eq!(frame.roce, roce);
        assert_eq!(frame.icrc(), crate::frame::Icrc::Right);
        assert!(reader.next_record().unwrap().is_none());
    }
}

#[test]
fn packets_no_datagram_can_hold_are_refused_and_leave_no_trace() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, "test").unwrap();
    let long = vec![0; 65_508];
    let mut mixed = flow("10.0.0.1", "10.0.0.2");
    mixed.destination = "::1".parse().unwrap();
    for (flow, roce) in [(flow("10.0.0.1", "10.0.0.2"), &long[..]), (mixed, b"x")] {
        let error = writer
            .packet(&Packet {
                time_ns: 0,
                direction: Direction::In,
                flow: &flow,
                traffic_class: 0,
                hop_limit: 1,
                roce: &[roce],
                comment: None,
            })
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let mut reader = crate::read::Reader::new(&file[..]).unwrap();
    assert!(reader.next_record().unwrap().is_none());
}

#[test]
fn processes_may_share_a_file() {
    let path = crate::test_file("shared");
    let flow = flow("10.0.0.1", "10.0.0.2");
    let roce = send_only(&flow, b"abcd");
    // Packets of the first follow the header of the second.
    let mut first = Capture::open(&path).unwrap();
    first.record(Direction::Out, &flow, 0, 64, &roce);
    let mut second = Capture::open(&path).unwrap();
    first.record(Direction::Out, &flow, 0, 64, &roce);
    second.record(Direction::In, &flow, 0, 64, &roce);
    first.record(Direction::Out, &flow, 0, 64, &roce);
    let bytes = std::fs::read(&path).unwrap();
    let mut reader = crate::read::Reader::new(&bytes[..]).unwrap();
    let mut count = 0;
    while reader.next_record().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 4);
    if let Some(lines) = tshark(&path, &["infiniband.bth.opcode"]) {
        assert_eq!(lines, ["4"; 4]);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_is_no_capture_is_left_alone() {
    let path = crate::test_file("precious");
    std::fs::write(&path, "precious").unwrap();
    let error = Capture::open(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}

/// Not a test by itself: the process that the next test kills.
#[test]
fn child_captures_until_it_is_killed() {
    let Some(path) = std::env::var_os("FEROCE_TEST_CAPTURE") else {
        return;
    };
    let mut capture = Capture::open(Path::new(&path)).unwrap();
    let flow = flow("10.0.0.1", "10.0.0.2");
    let roce = send_only(&flow, &[1; 1000]);
    loop {
        // Programs pause between packets: a kill in the very middle of a write may tear the last.
        std::thread::sleep(std::time::Duration::from_micros(50));
        capture.record(Direction::Out, &flow, 0, 64, &roce);
    }
}

#[test]
fn a_killed_process_leaves_a_capture_that_can_be_read() {
    for round in 0..5 {
        let path = crate::test_file(&format!("killed-{round}"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "pcapng::tests::child_captures_until_it_is_killed",
            ])
            .env("FEROCE_TEST_CAPTURE", &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while std::fs::metadata(&path).map_or(0, |file| file.len()) < 100_000 {
            assert!(std::time::Instant::now() < deadline, "nothing is written");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(lines) = tshark(&path, &["infiniband.bth.opcode"]) {
            assert!(lines.len() > 50 && lines.iter().all(|line| line == "4"));
        }
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_process_id_goes_into_the_name() {
    let id = std::process::id();
    let path = with_process_id("a%p/b%%p%p".as_ref());
    assert_eq!(path, PathBuf::from(format!("a{id}/b%{id}{id}")));
}
