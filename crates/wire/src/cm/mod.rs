//! Messages of the communication manager: how two queue pairs learn of each other.
//!
//! [`view`] holds the messages as they lie on the wire, [`Message`] their meaning. Bits that are
//! reserved are zero when sent and ignored when received; a value that the peer may not have
//! chosen, but that a REJ can name, is kept for the protocol to judge.
//!
//! This module keeps no state and knows no timer: the protocol is `feroce_proto::cm`. Read IBTA
//! volume 1, chapter 12, and annex A11 (the IP CM service) first.

mod codec;
mod fields;
mod ip;
mod message;
mod reason;
mod service;
#[cfg(test)]
#[allow(clippy::cast_possible_wrap, reason = "places in 256 bytes")]
mod tests;
pub mod view;

pub use fields::{Ece, PathFields, RejectedMessage, Transport};
pub use ip::{IP_CM_HEADER_LEN, IpCmHeader};
pub use message::{
    Apr, AttributeId, CmMad, Drep, Dreq, Lap, Message, MessageError, Mra, Rej, Rep, Req, Rtu,
    SidrRep, SidrReq, private_data_max,
};
pub use reason::{AprStatus, RejectReason, SidrStatus};
pub use service::{PortSpace, ServiceId};

/// The management class of the communication manager.
pub const CM_CLASS: u8 = 0x07;

/// The version of its messages.
pub const CM_CLASS_VERSION: u8 = 2;

/// The only method of its messages: Send.
pub const CM_METHOD_SEND: u8 = 0x03;
