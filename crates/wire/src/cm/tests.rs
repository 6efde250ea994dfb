//! Messages byte by byte: each field at the place that IBTA chapter 12 gives it.

use super::{
    Apr, AprStatus, AttributeId, CmMad, Drep, Dreq, Ece, Lap, Message, MessageError, Mra,
    PathFields, Rej, RejectReason, RejectedMessage, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq,
    SidrStatus, Transport, private_data_max,
};
use crate::mad::{MAD_LEN, Mad};
use crate::{Psn, Qpn};
use std::vec::Vec;

/// Encodes, checks that it parses to the same, and that the bytes at the given places behind the
/// header are these and all others zero.
#[track_caller]
fn check(message: Message, fields: &[(usize, &[u8])]) {
    let mad = CmMad {
        transaction_id: 0x1122_3344_5566_7788,
        message,
    };
    let bytes = mad.encode();
    let mut expected: Mad = [0; MAD_LEN];
    expected[..4].copy_from_slice(&[1, 7, 2, 3]);
    expected[8..16].copy_from_slice(&0x1122_3344_5566_7788_u64.to_be_bytes());
    expected[16..18].copy_from_slice(&(message.id() as u16).to_be_bytes());
    expected[20..24].copy_from_slice(&message.ece().options.to_be_bytes());
    for (at, field) in fields {
        expected[24 + at..24 + at + field.len()].copy_from_slice(field);
    }
    let different: Vec<_> = (0..MAD_LEN)
        .filter(|&at| bytes[at] != expected[at])
        .map(|at| (at as isize - 24, bytes[at], expected[at]))
        .collect();
    assert!(
        different.is_empty(),
        "(place, is, should be): {different:x?}"
    );
    assert_eq!(CmMad::parse(&bytes), Ok(mad));
}

const LOCAL: u32 = 0xa1a2_a3a4;
const REMOTE: u32 = 0xb1b2_b3b4;
const IDS: (usize, &[u8]) = (0, &[0xa1, 0xa2, 0xa3, 0xa4, 0xb1, 0xb2, 0xb3, 0xb4]);

fn path() -> PathFields {
    PathFields {
        local_lid: 0xffff,
        remote_lid: 0xfffe,
        local_gid: [0x11; 16],
        remote_gid: [0x22; 16],
        flow_label: 0x5_f9bb,
        packet_rate: 0x03,
        traffic_class: 0x68,
        hop_limit: 0x40,
        service_level: 0x5,
        subnet_local: true,
        local_ack_timeout: 0x11,
    }
}

fn path_bytes() -> [u8; 44] {
    let mut bytes = [0; 44];
    bytes[..4].copy_from_slice(&[0xff, 0xff, 0xff, 0xfe]);
    bytes[4..20].fill(0x11);
    bytes[20..36].fill(0x22);
    bytes[36..].copy_from_slice(&[0x5f, 0x9b, 0xb0, 0x03, 0x68, 0x40, 0x58, 0x88]);
    bytes
}

fn req() -> Req {
    Req {
        local_comm_id: LOCAL,
        ece: Ece {
            vendor_id: 0x15_b3aa,
            options: 0x0102_0304,
        },
        service_id: ServiceId(0x0000_0000_0106_1c06),
        local_ca_guid: 0x0200_00ff_fe00_0001,
        local_qkey: 0x8000_0001,
        local_qpn: Qpn::new(0x11_1213),
        responder_resources: 0x14,
        local_eecn: 0x21_2223,
        initiator_depth: 0x24,
        remote_eecn: 0x31_3233,
        remote_cm_response_timeout: 0x14,
        transport: Transport::Xrc,
        flow_control: true,
        starting_psn: Psn::new(0x41_4243),
        local_cm_response_timeout: 0x15,
        retry_count: 6,
        pkey: 0xffff,
        path_mtu: 5,
        rdc_exists: true,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: true,
        primary: path(),
        alternate: PathFields::default(),
        private_data: [0x77; 92],
    }
}

#[test]
fn req_has_every_field_at_its_place() {
    check(
        Message::Req(req()),
        &[
            (0, &[0xa1, 0xa2, 0xa3, 0xa4, 0x00, 0x15, 0xb3, 0xaa]),
            (8, &[0, 0, 0, 0, 1, 6, 0x1c, 0x06]),
            (16, &[0x02, 0, 0, 0xff, 0xfe, 0, 0, 1]),
            (28, &[0x80, 0, 0, 1]),
            (32, &[0x11, 0x12, 0x13, 0x14]),
            (36, &[0x21, 0x22, 0x23, 0x24]),
            // Time-out 0x14, service 3, flow control.
            (40, &[0x31, 0x32, 0x33, 0b1010_0111]),
            (44, &[0x41, 0x42, 0x43, 0b1010_1110]),
            // MTU 5, RDC exists, RNR 7; 15 retries, SRQ, extended transport 1.
            (48, &[0xff, 0xff, 0b0101_1111, 0b1111_1001]),
            (52, &path_bytes()),
            (140, &[0x77; 92]),
        ],
    );
    let alternate = Req {
        primary: PathFields::default(),
        alternate: path(),
        transport: Transport::Uc,
        ..req()
    };
    let bytes = CmMad {
        transaction_id: 0,
        message: Message::Req(alternate),
    }
    .encode();
    assert_eq!(bytes[24 + 96..24 + 140], path_bytes());
    assert_eq!(bytes[24 + 43], 0b1010_0011);
    assert_eq!(bytes[24 + 51], 0b1111_1000);
}

#[test]
fn mra_and_rej_have_every_field_at_its_place() {
    let mra = Mra {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        message: RejectedMessage::Rep,
        service_timeout: 0x18,
        private_data: [0x55; 222],
    };
    let fields: [(usize, &[u8]); 3] = [IDS, (8, &[0x40, 0xc0]), (10, &[0x55; 222])];
    check(Message::Mra(mra), &fields);
    let rej = Rej {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        message: RejectedMessage::Other,
        information_len: 72,
        reason: RejectReason::CONSUMER_DEFINED,
        information: [0x66; 72],
        private_data: [0x55; 148],
    };
    check(
        Message::Rej(rej),
        &[
            IDS,
            (8, &[0x80, 0x90, 0, 28]),
            (12, &[0x66; 72]),
            (84, &[0x55; 148]),
        ],
    );
}

#[test]
fn rep_has_every_field_at_its_place() {
    let rep = Rep {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        local_qkey: 0x0102_0304,
        local_qpn: Qpn::new(0x11_1213),
        local_eecn: 0x21_2223,
        ece: Ece {
            vendor_id: 0xd1_d2d3,
            options: 9,
        },
        starting_psn: Psn::new(0x31_3233),
        responder_resources: 0x41,
        initiator_depth: 0x42,
        target_ack_delay: 0x0f,
        failover_accepted: 1,
        flow_control: true,
        rnr_retry_count: 5,
        srq: true,
        local_ca_guid: 0x0200_00ff_fe00_0001,
        private_data: [0x55; 196],
    };
    check(
        Message::Rep(rep),
        &[
            IDS,
            (8, &[1, 2, 3, 4]),
            (12, &[0x11, 0x12, 0x13, 0xd1]),
            (16, &[0x21, 0x22, 0x23, 0xd2]),
            (20, &[0x31, 0x32, 0x33, 0xd3]),
            (24, &[0x41, 0x42, 0b0111_1011, 0b1011_0000]),
            (28, &[0x02, 0, 0, 0xff, 0xfe, 0, 0, 1]),
            (36, &[0x55; 196]),
        ],
    );
    assert_eq!(rep.queue_pair(Transport::Rc), Qpn::new(0x11_1213));
    assert_eq!(rep.queue_pair(Transport::Xrc), Qpn::new(0x21_2223));
}

#[test]
fn rtu_dreq_and_drep_have_every_field_at_its_place() {
    let rtu = Rtu {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        private_data: [0x55; 224],
    };
    check(Message::Rtu(rtu), &[IDS, (8, &[0x55; 224])]);
    let dreq = Dreq {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        remote_qpn: Qpn::new(0x11_1213),
        private_data: [0x55; 220],
    };
    let fields: [(usize, &[u8]); 3] = [IDS, (8, &[0x11, 0x12, 0x13, 0]), (12, &[0x55; 220])];
    check(Message::Dreq(dreq), &fields);
    let drep = Drep {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        private_data: [0x55; 224],
    };
    check(Message::Drep(drep), &[IDS, (8, &[0x55; 224])]);
}

#[test]
fn lap_and_apr_have_every_field_at_its_place() {
    let lap = Lap {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        remote_qpn: Qpn::new(0x11_1213),
        remote_cm_response_timeout: 0x14,
        path: path(),
        private_data: [0x55; 168],
    };
    check(
        Message::Lap(lap),
        &[
            IDS,
            (12, &[0x11, 0x12, 0x13, 0xa0]),
            (20, &[0xff, 0xff, 0xff, 0xfe]),
            (24, &[0x11; 16]),
            (40, &[0x22; 16]),
            (56, &[0x5f, 0x9b, 0xb0, 0x68, 0x40, 0x03, 0x58, 0x88]),
            (64, &[0x55; 168]),
        ],
    );
    let apr = Apr {
        local_comm_id: LOCAL,
        remote_comm_id: REMOTE,
        information_len: 3,
        status: AprStatus::UNSUPPORTED,
        information: [0x66; 72],
        private_data: [0x55; 148],
    };
    let fields: [(usize, &[u8]); 4] = [IDS, (8, &[3, 2]), (12, &[0x66; 72]), (84, &[0x55; 148])];
    check(Message::Apr(apr), &fields);
}

#[test]
fn sidr_messages_have_every_field_at_its_place() {
    let request = SidrReq {
        request_id: LOCAL,
        pkey: 0xffff,
        service_id: ServiceId(0x0000_0000_0111_1c06),
        private_data: [0x55; 216],
    };
    check(
        Message::SidrReq(request),
        &[
            (0, &[0xa1, 0xa2, 0xa3, 0xa4, 0xff, 0xff]),
            (8, &[0, 0, 0, 0, 1, 0x11, 0x1c, 0x06]),
            (16, &[0x55; 216]),
        ],
    );
    let reply = SidrRep {
        request_id: LOCAL,
        status: SidrStatus::REJECTED,
        information_len: 4,
        ece: Ece {
            vendor_id: 0xd1_d2d3,
            options: 5,
        },
        qpn: Qpn::new(0x11_1213),
        service_id: ServiceId(0x0000_0000_0111_1c06),
        qkey: 0x0123_4567,
        information: [0x66; 72],
        private_data: [0x55; 136],
    };
    check(
        Message::SidrRep(reply),
        &[
            (0, &[0xa1, 0xa2, 0xa3, 0xa4, 2, 4, 0xd1, 0xd2]),
            (8, &[0x11, 0x12, 0x13, 0xd3]),
            (12, &[0, 0, 0, 0, 1, 0x11, 0x1c, 0x06]),
            (20, &[0x01, 0x23, 0x45, 0x67]),
            (24, &[0x66; 72]),
            (96, &[0x55; 136]),
        ],
    );
}

#[test]
fn what_is_no_cm_message_is_named() {
    let good = CmMad {
        transaction_id: 0,
        message: Message::Req(req()),
    }
    .encode();
    let with = |at: usize, value: u8| {
        let mut bad = good;
        bad[at] = value;
        CmMad::parse(&bad)
    };
    assert_eq!(CmMad::parse(&good[..255]), Err(MessageError::Length(255)));
    assert_eq!(with(0, 2), Err(MessageError::BaseVersion(2)));
    assert_eq!(with(1, 3), Err(MessageError::Class(3)));
    assert_eq!(with(2, 1), Err(MessageError::ClassVersion(1)));
    assert_eq!(with(3, 0x81), Err(MessageError::Method(0x81)));
    assert_eq!(with(17, 0x0f), Err(MessageError::Attribute(0x0f)));
    assert_eq!(with(17, 0x1b), Err(MessageError::Attribute(0x1b)));
}

#[test]
fn private_data_has_the_room_that_the_types_have() {
    assert_eq!(private_data_max(AttributeId::Req), req().private_data.len());
    let sum: usize = (0x10..=0x1a)
        .filter_map(AttributeId::from_number)
        .map(private_data_max)
        .sum();
    assert_eq!(
        sum,
        92 + 222 + 148 + 196 + 224 + 220 + 224 + 216 + 136 + 168 + 148
    );
}
