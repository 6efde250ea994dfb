//! CM messages as meaning, from and to the bytes of a datagram.

use super::fields::{Ece, PathFields, RejectedMessage, Transport};
use super::ip::{IP_CM_HEADER_LEN, IpCmHeader};
use super::reason::{AprStatus, RejectReason, SidrStatus};
use super::service::ServiceId;
use super::{CM_CLASS, CM_CLASS_VERSION, CM_METHOD_SEND};
use crate::mad::{BASE_VERSION, MAD_LEN, Mad, MadHeader};
use crate::{Psn, Qpn};
use core::fmt;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Which message a datagram holds (IBTA 12.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
#[expect(missing_docs, reason = "the specification's own names")]
pub enum AttributeId {
    Req = 0x10,
    Mra = 0x11,
    Rej = 0x12,
    Rep = 0x13,
    Rtu = 0x14,
    Dreq = 0x15,
    Drep = 0x16,
    SidrReq = 0x17,
    SidrRep = 0x18,
    Lap = 0x19,
    Apr = 0x1a,
}

impl AttributeId {
    const ALL: [Self; 11] = [
        Self::Req,
        Self::Mra,
        Self::Rej,
        Self::Rep,
        Self::Rtu,
        Self::Dreq,
        Self::Drep,
        Self::SidrReq,
        Self::SidrRep,
        Self::Lap,
        Self::Apr,
    ];

    /// From the number on the wire.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|&id| id as u16 == number)
    }
}

/// Bytes of private data that a message has room for.
pub const fn private_data_max(message: AttributeId) -> usize {
    match message {
        AttributeId::Req => 92,
        AttributeId::Mra => 222,
        AttributeId::Rej | AttributeId::Apr => 148,
        AttributeId::Rep => 196,
        AttributeId::Rtu | AttributeId::Drep => 224,
        AttributeId::Dreq => 220,
        AttributeId::SidrReq => 216,
        AttributeId::SidrRep => 136,
        AttributeId::Lap => 168,
    }
}

/// REQ: request for communication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Req {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// Enhanced connection establishment.
    pub ece: Ece,
    /// What is asked for.
    pub service_id: ServiceId,
    /// The sender's channel adapter.
    pub local_ca_guid: u64,
    /// Queue key (RD only).
    pub local_qkey: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// READs and atomics that the sender takes at once.
    pub responder_resources: u8,
    /// The sender's end-to-end context (RD only).
    pub local_eecn: u32,
    /// READs and atomics that the sender wants to have under way.
    pub initiator_depth: u8,
    /// The receiver's end-to-end context (RD only).
    pub remote_eecn: u32,
    /// Code of the time in which the receiver should answer.
    pub remote_cm_response_timeout: u8,
    /// Kind of connection.
    pub transport: Transport,
    /// The sender gives end-to-end credits.
    pub flow_control: bool,
    /// The first PSN that the sender uses.
    pub starting_psn: Psn,
    /// Code of the time in which the sender will answer.
    pub local_cm_response_timeout: u8,
    /// Transport retries, 0 to 7.
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU, code as `ibv_mtu`; 0 and codes above 5 are not defined.
    pub path_mtu: u8,
    /// A reliable datagram channel exists.
    pub rdc_exists: bool,
    /// RNR retries, 7: without end.
    pub rnr_retry_count: u8,
    /// How often the sender repeats a message.
    pub max_cm_retries: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The path.
    pub primary: PathFields,
    /// Another path, all zero if there is none.
    pub alternate: PathFields,
    /// The program's.
    pub private_data: [u8; 92],
}

/// MRA: message receipt acknowledgement. The sender needs more time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The message that was received.
    pub message: RejectedMessage,
    /// Code of the time that the sender needs.
    pub service_timeout: u8,
    /// The program's.
    pub private_data: [u8; 222],
}

/// REJ: reject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rej {
    /// The sender's name for the connection, 0 if it has none.
    pub local_comm_id: u32,
    /// The receiver's name for it, 0 if it is not known.
    pub remote_comm_id: u32,
    /// The message that is rejected.
    pub message: RejectedMessage,
    /// Bytes of `information` that count.
    pub information_len: u8,
    /// Why.
    pub reason: RejectReason,
    /// More about the reason.
    pub information: [u8; 72],
    /// The program's.
    pub private_data: [u8; 148],
}

/// REP: reply to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rep {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// Queue key (RD only).
    pub local_qkey: u32,
    /// The sender's queue pair.
    pub local_qpn: Qpn,
    /// The sender's end-to-end context; for XRC its queue pair.
    pub local_eecn: u32,
    /// Vendor id of enhanced connection establishment, and its options.
    pub ece: Ece,
    /// The first PSN that the sender uses.
    pub starting_psn: Psn,
    /// READs and atomics that the sender takes at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender wants to have under way.
    pub initiator_depth: u8,
    /// Code of the longest time between a request and its acknowledge in the sender.
    pub target_ack_delay: u8,
    /// 0: an alternate path is accepted; 1: not supported; 2: not wanted.
    pub failover_accepted: u8,
    /// The sender gives end-to-end credits.
    pub flow_control: bool,
    /// RNR retries, 7: without end.
    pub rnr_retry_count: u8,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// The sender's channel adapter.
    pub local_ca_guid: u64,
    /// The program's.
    pub private_data: [u8; 196],
}

/// RTU: ready to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rtu {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The program's.
    pub private_data: [u8; 224],
}

/// DREQ: request for communication release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dreq {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// The program's.
    pub private_data: [u8; 220],
}

/// DREP: reply to a request for communication release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drep {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The program's.
    pub private_data: [u8; 224],
}

/// LAP: load alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lap {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
    /// Code of the time in which the receiver should answer.
    pub remote_cm_response_timeout: u8,
    /// The path to load.
    pub path: PathFields,
    /// The program's.
    pub private_data: [u8; 168],
}

/// APR: alternate path response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Apr {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// Bytes of `information` that count.
    pub information_len: u8,
    /// What became of the LAP.
    pub status: AprStatus,
    /// More about the status.
    pub information: [u8; 72],
    /// The program's.
    pub private_data: [u8; 148],
}

/// SIDR_REQ: request for the queue pair behind a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrReq {
    /// The sender's name for the request.
    pub request_id: u32,
    /// Partition key.
    pub pkey: u16,
    /// What is asked for.
    pub service_id: ServiceId,
    /// The program's.
    pub private_data: [u8; 216],
}

/// SIDR_REP: the queue pair behind a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidrRep {
    /// The receiver's name for the request.
    pub request_id: u32,
    /// Whether the rest counts.
    pub status: SidrStatus,
    /// Bytes of `information` that count.
    pub information_len: u8,
    /// Enhanced connection establishment.
    pub ece: Ece,
    /// The queue pair.
    pub qpn: Qpn,
    /// What was asked for.
    pub service_id: ServiceId,
    /// The key of the queue pair.
    pub qkey: u32,
    /// More about the status.
    pub information: [u8; 72],
    /// The program's.
    pub private_data: [u8; 136],
}

/// Any message of the communication manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is documented at its type")]
pub enum Message {
    Req(Req),
    Mra(Mra),
    Rej(Rej),
    Rep(Rep),
    Rtu(Rtu),
    Dreq(Dreq),
    Drep(Drep),
    SidrReq(SidrReq),
    SidrRep(SidrRep),
    Lap(Lap),
    Apr(Apr),
}

/// A datagram of the communication manager whose form is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CmMad {
    /// Pairs an answer with its question.
    pub transaction_id: u64,
    /// The message.
    pub message: Message,
}

/// Why bytes are no CM message. Always the sender's fault, or the network's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Shorter or longer than a management datagram.
    #[error("a management datagram has {MAD_LEN} bytes, not {0}")]
    Length(usize),
    /// A version of the common header that does not exist.
    #[error("base version {0}, only {BASE_VERSION} is defined")]
    BaseVersion(u8),
    /// Not a datagram of the communication manager.
    #[error("management class {0:#04x} is not that of the communication manager")]
    Class(u8),
    /// A version of its messages that is not known.
    #[error("class version {0}, only {CM_CLASS_VERSION} is known")]
    ClassVersion(u8),
    /// A method that the communication manager does not use.
    #[error("method {0:#04x}: the communication manager's messages are sent with Send")]
    Method(u8),
    /// Not one of its messages.
    #[error("attribute {0:#06x} is no message of the communication manager")]
    Attribute(u16),
}

impl CmMad {
    /// Reads a datagram.
    ///
    /// # Errors
    /// If it is none of the communication manager's messages.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let mad: &Mad = bytes
            .try_into()
            .map_err(|_| MessageError::Length(bytes.len()))?;
        let (header, data) =
            MadHeader::ref_from_prefix(mad).map_err(|_| MessageError::Length(bytes.len()))?;
        if header.base_version != BASE_VERSION {
            return Err(MessageError::BaseVersion(header.base_version));
        }
        if header.class != CM_CLASS {
            return Err(MessageError::Class(header.class));
        }
        if header.class_version != CM_CLASS_VERSION {
            return Err(MessageError::ClassVersion(header.class_version));
        }
        if header.method != CM_METHOD_SEND {
            return Err(MessageError::Method(header.method));
        }
        let number = header.attribute_id.get();
        let id = AttributeId::from_number(number).ok_or(MessageError::Attribute(number))?;
        let options = header.attribute_modifier.get();
        Ok(Self {
            transaction_id: header.transaction_id.get(),
            message: Message::read(id, options, data).ok_or(MessageError::Length(bytes.len()))?,
        })
    }

    /// The bytes on the wire.
    pub fn encode(&self) -> Mad {
        let header = MadHeader {
            base_version: BASE_VERSION,
            class: CM_CLASS,
            class_version: CM_CLASS_VERSION,
            method: CM_METHOD_SEND,
            status: U16::ZERO,
            class_specific: U16::ZERO,
            transaction_id: U64::new(self.transaction_id),
            attribute_id: U16::new(self.message.id() as u16),
            reserved: U16::ZERO,
            attribute_modifier: U32::new(self.message.ece().options),
        };
        let mut mad = [0; MAD_LEN];
        let (head, data) = mad.split_at_mut(MadHeader::LEN);
        head.copy_from_slice(header.as_bytes());
        data.copy_from_slice(&self.message.write());
        mad
    }
}

impl Req {
    /// The header of annex A11, if the service is a port of IP and there is one.
    pub fn ip_header(&self) -> Option<IpCmHeader> {
        self.service_id.port()?;
        IpCmHeader::read(&self.private_data)
    }

    /// The program's part of the private data: what is behind the header, if there is one.
    pub fn consumer_data(&self) -> &[u8] {
        consumer_data(&self.private_data, self.ip_header())
    }
}

impl SidrReq {
    /// The header of annex A11, if the service is a port of IP and there is one.
    pub fn ip_header(&self) -> Option<IpCmHeader> {
        self.service_id.port()?;
        IpCmHeader::read(&self.private_data)
    }

    /// The program's part of the private data: what is behind the header, if there is one.
    pub fn consumer_data(&self) -> &[u8] {
        consumer_data(&self.private_data, self.ip_header())
    }
}

fn consumer_data(private_data: &[u8], header: Option<IpCmHeader>) -> &[u8] {
    &private_data[header.map_or(0, |_| IP_CM_HEADER_LEN)..]
}

impl Rep {
    /// The sender's queue pair. XRC names it in the field of the end-to-end context (A14).
    pub const fn queue_pair(&self, transport: Transport) -> Qpn {
        match transport {
            Transport::Xrc => Qpn::new(self.local_eecn),
            _ => self.local_qpn,
        }
    }
}

impl Rej {
    /// What counts of the additional information.
    pub fn additional_information(&self) -> &[u8] {
        &self.information[..usize::from(self.information_len).min(self.information.len())]
    }
}

impl Message {
    /// Which message it is.
    pub const fn id(&self) -> AttributeId {
        match self {
            Self::Req(_) => AttributeId::Req,
            Self::Mra(_) => AttributeId::Mra,
            Self::Rej(_) => AttributeId::Rej,
            Self::Rep(_) => AttributeId::Rep,
            Self::Rtu(_) => AttributeId::Rtu,
            Self::Dreq(_) => AttributeId::Dreq,
            Self::Drep(_) => AttributeId::Drep,
            Self::SidrReq(_) => AttributeId::SidrReq,
            Self::SidrRep(_) => AttributeId::SidrRep,
            Self::Lap(_) => AttributeId::Lap,
            Self::Apr(_) => AttributeId::Apr,
        }
    }

    /// Its enhanced connection establishment, zero for messages that have none.
    pub const fn ece(&self) -> Ece {
        match self {
            Self::Req(req) => req.ece,
            Self::Rep(rep) => rep.ece,
            Self::SidrRep(rep) => rep.ece,
            _ => Ece {
                vendor_id: 0,
                options: 0,
            },
        }
    }
}

impl fmt::Display for CmMad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Message::Req(req) => write!(
                f,
                "REQ {:#010x} {} {} psn {}",
                req.local_comm_id, req.service_id, req.local_qpn, req.starting_psn
            ),
            Message::Mra(mra) => write!(
                f,
                "MRA {:#010x} to {:#010x} timeout {}",
                mra.local_comm_id, mra.remote_comm_id, mra.service_timeout
            ),
            Message::Rej(rej) => write!(
                f,
                "REJ {:#010x} to {:#010x} {}",
                rej.local_comm_id, rej.remote_comm_id, rej.reason
            ),
            Message::Rep(rep) => write!(
                f,
                "REP {:#010x} to {:#010x} {} psn {}",
                rep.local_comm_id, rep.remote_comm_id, rep.local_qpn, rep.starting_psn
            ),
            Message::Rtu(rtu) => write!(
                f,
                "RTU {:#010x} to {:#010x}",
                rtu.local_comm_id, rtu.remote_comm_id
            ),
            Message::Dreq(dreq) => write!(
                f,
                "DREQ {:#010x} to {:#010x} {}",
                dreq.local_comm_id, dreq.remote_comm_id, dreq.remote_qpn
            ),
            Message::Drep(drep) => write!(
                f,
                "DREP {:#010x} to {:#010x}",
                drep.local_comm_id, drep.remote_comm_id
            ),
            Message::SidrReq(req) => {
                write!(f, "SIDR_REQ {:#010x} {}", req.request_id, req.service_id)
            }
            Message::SidrRep(rep) => write!(
                f,
                "SIDR_REP {:#010x} status {} {}",
                rep.request_id, rep.status.0, rep.qpn
            ),
            Message::Lap(lap) => write!(
                f,
                "LAP {:#010x} to {:#010x}",
                lap.local_comm_id, lap.remote_comm_id
            ),
            Message::Apr(apr) => write!(
                f,
                "APR {:#010x} to {:#010x} status {}",
                apr.local_comm_id, apr.remote_comm_id, apr.status.0
            ),
        }
    }
}
