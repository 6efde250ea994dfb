//! Every packet of docs/spec/metaroce/packets.md, and packets that are none.

use super::*;
use std::net::IpAddr;
use std::string::String;
use std::vec::Vec;
use std::{assert_eq, format, matches};
use zerocopy::byteorder::network_endian::U32;

/// The specification, with its byte examples.
const SPECIFICATION: &str = include_str!("../../../../docs/spec/metaroce/packets.md");

/// The bytes of an example: pairs of hexadecimal digits before any `;`, in the fenced block behind
/// the line `Example NAME:`.
fn example(name: &str) -> Vec<u8> {
    let start = SPECIFICATION
        .find(&format!("Example `{name}`"))
        .unwrap_or_else(|| panic!("packets.md has no example {name}"));
    let block = SPECIFICATION[start..].split("```").nth(1).unwrap();
    let mut bytes = Vec::new();
    for line in block.lines().skip(1) {
        let digits: String = line.split(';').next().unwrap().split_whitespace().collect();
        for pair in digits.as_bytes().chunks(2) {
            let pair = std::str::from_utf8(pair).unwrap();
            bytes.push(u8::from_str_radix(pair, 16).expect("a hexadecimal byte"));
        }
    }
    bytes
}

fn datagram(frame: &Frame<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Headers::new(frame).as_bytes().to_vec();
    bytes.extend_from_slice(payload);
    let mut sum = check::Sum::new();
    sum.update(&bytes);
    bytes.extend_from_slice(&sum.trailer());
    bytes
}

fn frame(body: Body<'_>) -> Frame<'_> {
    Frame {
        flags: Flags::default(),
        path: 3,
        epoch: Epoch(1),
        connection: ConnectionId(0x0102_0304_0506_0708),
        number: PacketNumber(0x0000_2a2b),
        body,
    }
}

const fn request(opcode: RequestOpcode, length: u32, payload: &[u8]) -> Request<'_> {
    Request {
        opcode,
        solicited: false,
        stream: 0x1234,
        message: MessageNumber(7),
        offset: 0,
        length,
        receive: ReceiveNumber(0),
        remote: Remote { address: 0, key: 0 },
        atomic: Atomic {
            operand: 0,
            compare: 0,
        },
        datagram: Datagram { key: 0, source: 0 },
        word: 0,
        payload,
    }
}

fn handshake() -> Handshake {
    let planes = ["10.0.0.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
    Handshake {
        source: ConnectionId(0x1112_1314_1516_1718),
        nonce: 0x2122_2324_2526_2728,
        cookie: 0,
        target: 0x1234,
        origin: 0x5678,
        versions: (0, 0),
        segment: 4096,
        features: 0,
        line_rate: 12_500_000,
        message_window: 256,
        paths: 8,
        planes: Planes::new(&planes),
    }
}

/// The example in the specification is exactly this packet, and is read as it.
#[track_caller]
fn check(name: &str, frame: &Frame<'_>, payload: &[u8]) {
    let bytes = datagram(frame, payload);
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let written = example(name);
    assert_eq!(
        written,
        bytes,
        "packets.md should say in `{name}`: {}",
        hex.join(" ")
    );
    let packet = check::verify(&bytes).unwrap();
    assert_eq!(Frame::parse(packet), Ok(*frame), "{name}");
    for cut in 0..packet.len() - payload.len() {
        assert!(Frame::parse(&packet[..cut]).is_err(), "{name} cut to {cut}");
    }
}

//= MR-PKT-001 type=test
//= MR-PKT-002 type=test
//= MR-CON-001 type=test
#[test]
fn examples_of_the_handshake() {
    let hello = Frame {
        path: 0,
        epoch: Epoch(0),
        connection: ConnectionId(0),
        number: PacketNumber(0),
        ..frame(Body::Hello(handshake()))
    };
    check("hello", &hello, b"");
    let to_initiator = Frame {
        connection: ConnectionId(0x1112_1314_1516_1718),
        ..hello
    };
    let retry = Retry {
        nonce: 0x2122_2324_2526_2728,
        cookie: 0x3132_3334_3536_3738,
        versions: (0, 0),
    };
    check(
        "retry",
        &Frame {
            body: Body::Retry(retry),
            ..to_initiator
        },
        b"",
    );
    let accept = Handshake {
        source: ConnectionId(0x0102_0304_0506_0708),
        target: 0x5678,
        origin: 0x1234,
        planes: Planes::new(&["10.0.0.2".parse().unwrap()]),
        ..handshake()
    };
    let accept = Frame {
        body: Body::Accept(accept),
        ..to_initiator
    };
    check("accept", &accept, b"");
    let refuse = Refuse {
        nonce: 0x2122_2324_2526_2728,
        code: RefuseCode::NoTarget,
    };
    let refuse = Frame {
        body: Body::Refuse(refuse),
        ..to_initiator
    };
    check("refuse", &refuse, b"");
}

//= MR-PKT-003 type=test
//= MR-PKT-004 type=test
#[test]
fn examples_of_requests() {
    let write = Request {
        offset: 4096,
        remote: Remote {
            address: 0x7f00_0000_1000,
            key: 0x00ab_cd01,
        },
        ..request(RequestOpcode::Write, 4100, b"last")
    };
    let write = Frame {
        flags: Flags::ACK_REQUEST.with(Flags::DRAINED),
        ..frame(Body::Request(write))
    };
    check("write", &write, b"last");
    let send = Request {
        solicited: true,
        receive: ReceiveNumber(5),
        word: 0xdead_beef,
        ..request(RequestOpcode::SendImmediate, 2, b"hi")
    };
    check("send with immediate", &frame(Body::Request(send)), b"hi");
    let read = Request {
        remote: Remote {
            address: 0x7f00_0000_2000,
            key: 0x00ab_cd02,
        },
        ..request(RequestOpcode::Read, 1 << 20, b"")
    };
    check("read", &frame(Body::Request(read)), b"");
    let atomic = Request {
        remote: Remote {
            address: 0x7f00_0000_3000,
            key: 0x00ab_cd02,
        },
        atomic: Atomic {
            operand: 2,
            compare: 1,
        },
        ..request(RequestOpcode::CompareSwap, 8, b"")
    };
    check("compare and swap", &frame(Body::Request(atomic)), b"");
    let datagram = Request {
        datagram: Datagram {
            key: 0x1111,
            source: 0x5678,
        },
        ..request(RequestOpcode::Datagram, 3, b"abc")
    };
    check("datagram", &frame(Body::Request(datagram)), b"abc");
}

fn response(opcode: ResponseOpcode) -> Response<'static> {
    Response {
        opcode,
        stream: 0x5678,
        message: MessageNumber(7),
        offset: 0,
        length: 0,
        original: 0,
        refusal: None,
        payload: b"",
    }
}

//= MR-PKT-005 type=test
//= MR-PKT-006 type=test
//= MR-PKT-007 type=test
#[test]
fn examples_of_answers() {
    let data = Response {
        offset: 4096,
        length: 4099,
        payload: b"end",
        ..response(ResponseOpcode::ReadData)
    };
    check("read data", &frame(Body::Response(data)), b"end");
    let original = Response {
        length: 8,
        original: 1,
        ..response(ResponseOpcode::Original)
    };
    check("original", &frame(Body::Response(original)), b"");
    let refused = Response {
        refusal: Some(Refusal {
            code: RefusalCode::NotReady,
            delay_nanos: 640_000,
        }),
        ..response(ResponseOpcode::Refused)
    };
    check("refused", &frame(Body::Response(refused)), b"");
    let updates = [Update {
        stream: 0x5678,
        completed: MessageNumber(8),
        limit: Some(ReceiveNumber(64)),
        delay_code: 12,
    }
    .into()];
    let mut vector = Vector::default();
    vector.set(1);
    vector.set(3);
    vector.set(256);
    let ack = Ack {
        vector,
        delay_nanos: 500,
        received: 0x2a2a,
        marked: 3,
        share: 6_250_000,
        updates: Updates(&updates),
    };
    check("acknowledgement", &frame(Body::Ack(ack)), b"");
    check("update", &frame(Body::Update(Updates(&updates))), b"");
    let streams = [U32::new(0x1234), U32::new(0x1235)];
    check("probe", &frame(Body::Probe(Streams(&streams))), b"");
    let close = Close {
        source: ConnectionId(0x1112_1314_1516_1718),
        code: CloseCode::Done,
        answer: false,
    };
    check("close", &frame(Body::Close(close)), b"");
}

//= MR-PKT-008 type=test
#[test]
fn contradictions_are_no_packets() {
    let parse = |request: Request<'_>| {
        let bytes = Headers::new(&frame(Body::Request(request)));
        let bytes = [bytes.as_bytes(), request.payload].concat();
        Frame::parse(&bytes).map(drop)
    };
    let write = request(RequestOpcode::Write, 8, b"12345678");
    assert_eq!(parse(write), Ok(()));
    let beyond = Request { offset: 1, ..write };
    assert!(matches!(parse(beyond), Err(ParseError::Extent { .. })));
    let wraps = Request {
        offset: u32::MAX - 3,
        length: 1 << 31,
        ..write
    };
    assert!(matches!(parse(wraps), Err(ParseError::Extent { .. })));
    let nothing_of_something = Request {
        payload: b"",
        ..write
    };
    assert!(matches!(
        parse(nothing_of_something),
        Err(ParseError::Extent { .. })
    ));
    let read_with_payload = Request {
        opcode: RequestOpcode::Read,
        ..write
    };
    assert!(matches!(
        parse(read_with_payload),
        Err(ParseError::Extent { .. })
    ));
    let too_long = Request {
        length: MESSAGE_BYTES_MAX + 1,
        ..write
    };
    assert!(matches!(
        parse(too_long),
        Err(ParseError::OutOfRange { .. })
    ));
}

//= MR-PKT-009 type=test
#[test]
fn versions_and_types_that_do_not_exist_are_no_packets() {
    let mut bytes = [0; 64];
    bytes[0] = 0x14;
    assert_eq!(Frame::parse(&bytes), Err(ParseError::Version(1)));
    bytes[0] = 0x0a;
    let unknown = ParseError::Unknown {
        what: "packet type",
        value: 10,
    };
    assert_eq!(Frame::parse(&bytes), Err(unknown));
    bytes[0] = 0x04;
    bytes[16] = 12;
    assert!(matches!(
        Frame::parse(&bytes),
        Err(ParseError::Unknown { .. })
    ));
}

//= MR-PKT-007 type=test
//= MR-PKT-011 type=test
#[test]
fn lists_have_limits() {
    // Type, place of the count, bytes before the list, bytes of an entry, most entries.
    for (kind, place, start, entry, max) in [
        (Kind::Ack, 67, 68, 16, 16),
        (Kind::Probe, 19, 20, 4, 16),
        (Kind::Update, 19, 20, 16, 16),
        (Kind::Hello, 63, 64, 16, 8),
    ] {
        let mut bytes = [0; 2048];
        bytes[0] = kind as u8;
        // A hello names a path, too.
        bytes[62] = 1;
        for count in 1..=max + 1 {
            bytes[place] = count;
            let end = start + entry * usize::from(count);
            let parsed = Frame::parse(&bytes[..end]);
            if count <= max {
                assert!(parsed.is_ok(), "{kind:?} {count}");
                let short = Frame::parse(&bytes[..end - 1]);
                assert_eq!(short, Err(ParseError::TooShort { len: end - 1 }));
            } else {
                assert!(matches!(parsed, Err(ParseError::OutOfRange { .. })));
            }
        }
    }
    // More than fit are cut by who sends.
    let streams = [U32::new(1); 40];
    let probe = Headers::new(&frame(Body::Probe(Streams(&streams))));
    let Body::Probe(sent) = Frame::parse(probe.as_bytes()).unwrap().body else {
        panic!("a probe");
    };
    assert_eq!(sent.iter().count(), 16);
}

//= MR-PKT-010 type=test
#[test]
fn reserved_fields_are_zero_and_ignored() {
    // Reserved bytes of each example behind the common header, and undefined bits of its flags.
    let cases: [(&str, &[usize], usize, u8); 9] = [
        ("retry", &[34, 35], 0, 0),
        ("write", &[18, 19], 17, 0x7f),
        ("datagram", &[18, 19], 17, 0x7f),
        ("original", &[18, 19], 0, 0),
        ("refused", &[18, 19], 0, 0),
        ("acknowledgement", &[64, 65, 66, 82, 83], 81, 0x7f),
        ("update", &[16, 17, 18, 34, 35], 33, 0x7f),
        ("probe", &[16, 17, 18], 0, 0),
        ("close", &[], 27, 0xff),
    ];
    for (name, reserved, place, undefined) in cases {
        let written = example(name);
        let packet = check::verify(&written).unwrap();
        let mut other = packet.to_vec();
        for &place in reserved {
            assert_eq!(packet[place], 0, "{name} {place}");
            other[place] = 0xff;
        }
        assert_eq!(packet[place] & undefined, 0, "{name} {place}");
        other[place] |= undefined;
        other[1] |= 0x1f;
        let (plain, changed) = (Frame::parse(packet).unwrap(), Frame::parse(&other).unwrap());
        assert_eq!(
            format!("{:?}", meaning(&plain)),
            format!("{:?}", meaning(&changed))
        );
    }
}

/// What a packet means: lists are views of its bytes, so they are looked at entry by entry.
fn meaning<'a>(frame: &'a Frame<'_>) -> (Frame<'a>, Vec<Update>) {
    let mut updates = Vec::new();
    let mut plain = *frame;
    plain.flags = Flags(frame.flags.0 & 0xe0);
    match &mut plain.body {
        Body::Ack(Ack { updates: list, .. }) | Body::Update(list) => {
            updates.extend(list.iter());
            *list = Updates(&[]);
        }
        _ => {}
    }
    (plain, updates)
}

//= MR-PKT-012 type=test
#[test]
fn four_types_are_numbered() {
    let numbered = Kind::ALL.into_iter().filter(|kind| kind.is_numbered());
    let numbered: Vec<u8> = numbered.map(|kind| kind as u8).collect();
    assert_eq!(numbered, [4, 5, 7, 8]);
}

#[test]
fn a_vector_tells_of_256_packets() {
    let mut vector = Vector::default();
    for back in [0, 1, 8, 9, 256, 257] {
        vector.set(back);
    }
    let told: Vec<u32> = (0..300).filter(|&back| vector.has(back)).collect();
    assert_eq!(told, [0, 1, 8, 9, 256]);
}

#[test]
fn numbers_wrap() {
    assert_eq!(PacketNumber(1).distance_from(PacketNumber(u32::MAX)), 2);
    assert_eq!(MessageNumber(u32::MAX).distance_from(MessageNumber(0)), -1);
    assert_eq!(Epoch(0).distance_from(Epoch(255)), 1);
    assert_eq!(PacketNumber(u32::MAX).next(), PacketNumber(0));
}
