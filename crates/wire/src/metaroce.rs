//! The packets of MetaRoCE: behaviour as published by Meta, Feroce wire format v0.
//!
//! [`header`] holds views, [`Frame`] the validated meaning; [`check`] the sum behind every packet.
//! Nothing here keeps state. The format is Feroce's own and may be replaced: protocol code
//! sees [`Frame`] only. Read docs/spec/metaroce/packets.md first.

pub mod check;
mod encode;
pub mod header;
mod number;
mod packet;
mod parse;
#[cfg(test)]
mod tests;

pub use encode::{ACK_UPDATES_MAX, HEADERS_MAX, Headers, PROBE_STREAMS_MAX, UPDATES_MAX};
pub use number::{ConnectionId, Epoch, MessageNumber, PacketNumber, ReceiveNumber};
pub use packet::{
    Ack, Atomic, Body, Close, CloseCode, Datagram, Flags, Frame, Handshake, Kind, Planes, Refusal,
    RefusalCode, Refuse, RefuseCode, Remote, Request, RequestOpcode, Response, ResponseOpcode,
    Retry, Streams, Update, Updates, Vector,
};
pub use parse::ParseError;

/// The UDP port packets are sent to unless configured otherwise: one of the range that is never
/// assigned (RFC 6335), because no port is assigned to MetaRoCE.
pub const DEFAULT_PORT: u16 = 54_791;

/// The only version there is.
pub const VERSION: u8 = 0;

/// Most planes of a connection.
pub const PLANES_MAX: usize = 8;

/// Longest message in bytes: 2^31, as RoCEv2 has it (IBTA 9.7.7).
pub const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// A share without limit.
pub const SHARE_UNLIMITED: u32 = u32::MAX;
