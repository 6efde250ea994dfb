//! Any bytes as a management datagram: parse, print, encode, parse again; and the answer of a
//! device without a communication manager.

use crate::Features;
use feroce_proto::cm::refuse;
use feroce_wire::cm::{Apr, Drep, Dreq, Lap, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use feroce_wire::cm::{
    AprStatus, CmMad, Ece, IpCmHeader, Message, MessageError, PathFields, RejectReason,
    RejectedMessage, ServiceId, SidrStatus, Transport,
};
use feroce_wire::mad::MAD_LEN;
use feroce_wire::{Psn, Qpn};

/// Parses `input` as it is and at the one length that a datagram has.
pub fn run(input: &[u8]) -> Features {
    let mut features = judge(input);
    let mut whole = input.to_vec();
    whole.resize(MAD_LEN, 0);
    for feature in judge(&whole).iter() {
        features.add(feature);
    }
    features
}

fn judge(input: &[u8]) -> Features {
    let mad = match CmMad::parse(input) {
        Ok(mad) => mad,
        Err(error) => {
            assert!(refuse(input).is_none());
            return Features::of(match error {
                MessageError::Length(_) => 0,
                MessageError::BaseVersion(_) => 1,
                MessageError::Class(_) => 2,
                MessageError::ClassVersion(_) => 3,
                MessageError::Method(_) => 4,
                MessageError::Attribute(_) => 5,
                _ => 6,
            });
        }
    };
    assert!(!mad.to_string().is_empty());
    let encoded = mad.encode();
    assert_eq!(CmMad::parse(&encoded), Ok(mad), "encoding loses something");
    let mut features = Features::of(0x100 | mad.message.id() as u32);
    match &mad.message {
        Message::Req(req) => header(&mut features, req.ip_header(), req.consumer_data()),
        Message::SidrReq(request) => {
            header(&mut features, request.ip_header(), request.consumer_data());
        }
        Message::Rej(rej) => {
            assert!(rej.additional_information().len() <= 72);
            assert!(!rej.reason.to_string().is_empty());
            features.add(0x400 | u32::from(rej.reason.meaning().is_some()));
        }
        _ => {}
    }
    if let Some(answer) = refuse(input) {
        features.add(0x200);
        let parsed = CmMad::parse(&answer).expect("our own answer");
        assert_eq!(parsed.transaction_id, mad.transaction_id);
        assert!(refuse(&answer).is_none(), "an answer to an answer");
    }
    features
}

fn header(features: &mut Features, header: Option<IpCmHeader>, data: &[u8]) {
    let Some(header) = header else {
        return;
    };
    features.add(0x300 | u32::from(header.source.is_ipv4()));
    assert_eq!(IpCmHeader::read(&header.to_bytes()), Some(header));
    assert!(data.len() == 56 || data.len() == 180);
}

/// One message of every kind.
pub fn seeds() -> Vec<Vec<u8>> {
    messages()
        .into_iter()
        .map(|message| {
            CmMad {
                transaction_id: 0x0102_0304_0506_0708,
                message,
            }
            .encode()
            .to_vec()
        })
        .collect()
}

fn messages() -> [Message; 11] {
    let (local_comm_id, remote_comm_id) = (0x0040_0001, 0x0080_0002);
    let ece = Ece {
        vendor_id: 0x15b3,
        options: 0x1234_5678,
    };
    let ip = IpCmHeader {
        source: [10, 0, 0, 1].into(),
        source_port: 40_000,
        destination: [10, 0, 0, 2].into(),
    };
    let mut private_data = [0; 92];
    private_data[..36].copy_from_slice(&ip.to_bytes());
    let service_id = ServiceId(0x0106_1c06);
    [
        Message::Req(req(local_comm_id, ece, service_id, private_data)),
        Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            message: RejectedMessage::Req,
            service_timeout: 24,
            private_data: [0; 222],
        }),
        Message::Rej(Rej {
            local_comm_id,
            remote_comm_id,
            message: RejectedMessage::Rep,
            information_len: 8,
            reason: RejectReason::TIMEOUT,
            information: [7; 72],
            private_data: [0; 148],
        }),
        Message::Rep(rep(local_comm_id, remote_comm_id, ece)),
        Message::Rtu(Rtu {
            local_comm_id,
            remote_comm_id,
            private_data: [0; 224],
        }),
        Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: Qpn::new(0x22),
            private_data: [0; 220],
        }),
        Message::Drep(Drep {
            local_comm_id,
            remote_comm_id,
            private_data: [0; 224],
        }),
        Message::SidrReq(sidr_req(local_comm_id, &ip)),
        Message::SidrRep(sidr_rep(remote_comm_id, ece)),
        Message::Lap(Lap {
            local_comm_id,
            remote_comm_id,
            remote_qpn: Qpn::new(0x22),
            remote_cm_response_timeout: 20,
            path: PathFields::default(),
            private_data: [0; 168],
        }),
        Message::Apr(Apr {
            local_comm_id,
            remote_comm_id,
            information_len: 0,
            status: AprStatus::UNSUPPORTED,
            information: [0; 72],
            private_data: [0; 148],
        }),
    ]
}

fn sidr_req(request_id: u32, ip: &IpCmHeader) -> SidrReq {
    let mut private_data = [0; 216];
    private_data[..36].copy_from_slice(&ip.to_bytes());
    SidrReq {
        request_id,
        pkey: 0xffff,
        service_id: ServiceId(0x0111_1c06),
        private_data,
    }
}

fn sidr_rep(request_id: u32, ece: Ece) -> SidrRep {
    SidrRep {
        request_id,
        status: SidrStatus::SUCCESS,
        information_len: 0,
        ece,
        qpn: Qpn::new(0x33),
        service_id: ServiceId(0x0111_1c06),
        qkey: 0x0123_4567,
        information: [0; 72],
        private_data: [0; 136],
    }
}

fn req(local_comm_id: u32, ece: Ece, service_id: ServiceId, private_data: [u8; 92]) -> Req {
    Req {
        local_comm_id,
        ece,
        service_id,
        local_ca_guid: 0x0200_00ff_fe00_0001,
        local_qkey: 0,
        local_qpn: Qpn::new(0x11),
        responder_resources: 16,
        local_eecn: 0,
        initiator_depth: 16,
        remote_eecn: 0,
        remote_cm_response_timeout: 20,
        transport: Transport::Rc,
        flow_control: true,
        starting_psn: Psn::new(0x00ab_cdef),
        local_cm_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: true,
        primary: PathFields {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            local_gid: [1; 16],
            remote_gid: [2; 16],
            flow_label: 0x000f_ffff,
            packet_rate: 0x3f,
            traffic_class: 0x40,
            hop_limit: 64,
            service_level: 3,
            subnet_local: true,
            local_ack_timeout: 17,
        },
        alternate: PathFields::default(),
        private_data,
    }
}

fn rep(local_comm_id: u32, remote_comm_id: u32, ece: Ece) -> Rep {
    Rep {
        local_comm_id,
        remote_comm_id,
        local_qkey: 0,
        local_qpn: Qpn::new(0x22),
        local_eecn: 0,
        ece,
        starting_psn: Psn::new(5),
        responder_resources: 1,
        initiator_depth: 2,
        target_ack_delay: 15,
        failover_accepted: 1,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: 0x0200_00ff_fe00_0002,
        private_data: [0; 196],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_wire::cm::AttributeId;

    #[test]
    fn there_is_a_seed_of_every_message() {
        let ids: Vec<_> = messages().iter().map(Message::id).collect();
        for number in 0x10..=0x1a {
            let id = AttributeId::from_number(number).unwrap();
            assert!(ids.contains(&id), "{id:?}");
        }
    }
}
