//! Management datagrams: 256 bytes between the queue pairs 1 of two ports.
//!
//! Only what every class has in common is here; the messages of the connection manager are in
//! [`crate::cm`]. Read IBTA volume 1, section 13.4 first.

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of every management datagram, in bytes.
pub const MAD_LEN: usize = 256;

/// Bytes behind the common header.
pub const MAD_DATA_LEN: usize = MAD_LEN - MadHeader::LEN;

/// A management datagram as it lies in the payload of a UD packet.
pub type Mad = [u8; MAD_LEN];

/// The queue pair that general management datagrams come from and go to (IBTA 13.5.1).
pub const GSI_QPN: crate::Qpn = crate::Qpn::new(1);

/// The queue key of queue pair 1 (IBTA 10.2.5).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// Version of the common header; there is no other.
pub const BASE_VERSION: u8 = 1;

/// The header of every management datagram (IBTA 13.4.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MadHeader {
    /// Version of this header; see [`BASE_VERSION`].
    pub base_version: u8,
    /// Management class.
    pub class: u8,
    /// Version of the class's own format.
    pub class_version: u8,
    /// Response bit and method.
    pub method: u8,
    /// Status of a response.
    pub status: U16,
    /// Meaning depends on the class.
    pub class_specific: U16,
    /// Pairs a request with its response; repetitions carry it unchanged.
    pub transaction_id: U64,
    /// What the data is.
    pub attribute_id: U16,
    /// Reserved.
    pub reserved: U16,
    /// More about what the data is.
    pub attribute_modifier: U32,
}

impl MadHeader {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 24;
}
const _: () = assert!(size_of::<MadHeader>() == MadHeader::LEN && align_of::<MadHeader>() == 1);
