//! Every byte Feroce puts on the network, and what the bytes mean.
//!
//! [`header`] holds *views*: any bit pattern is a valid view, and nothing is judged. [`Packet`]
//! is the validated meaning that protocol code works with. One table, [`Opcode`], says
//! which headers follow the BTH, whether a receive request is consumed and where in its message a
//! packet stands; parser, builder and printer all read it.
//!
//! Management datagrams are in [`mad`], the messages of the communication manager in [`cm`].
//!
//! This crate is not a protocol: it keeps no state and sends nothing. Read IBTA volume 1,
//! chapter 9 (transport) and annex A17 (RoCEv2) first.
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

#[cfg(test)]
extern crate std;

pub mod aeth;
pub mod cm;
pub mod header;
pub mod icrc;
pub mod mad;
pub mod metaroce;
mod number;
mod opcode;
mod packet;
pub mod timing;

pub use number::{Msn, Psn, Qpn};
pub use opcode::{Info, Opcode, Operation, Position, Service};
pub use packet::{
    Address, AtomicOperands, Extensions, HEADERS_MAX, Headers, Packet, ParseError, Reth, pad_len,
};

/// The UDP destination port of RoCEv2 (IBTA annex A17).
pub const ROCE_V2_PORT: u16 = 4791;

/// The QP number that a multicast packet carries (IBTA 9.2.3).
pub const MULTICAST_QPN: Qpn = Qpn::new(0xff_ffff);

/// The default partition key: full membership of the default partition.
pub const DEFAULT_PKEY: u16 = 0xffff;
