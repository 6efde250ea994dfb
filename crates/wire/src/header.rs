//! Header views: the bytes as they lie on the wire. Every bit pattern is a valid view.
//!
//! Meaning is checked later, by [`Packet::parse`](crate::Packet::parse).

use crate::{Msn, Opcode, Psn, Qpn};
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

macro_rules! view {
    ($name:ident, $len:expr) => {
        impl $name {
            /// Length on the wire, in bytes.
            pub const LEN: usize = $len;
        }
        const _: () = assert!(size_of::<$name>() == $name::LEN && align_of::<$name>() == 1);
    };
}

/// Base transport header (IBTA 9.2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bth {
    opcode: u8,
    flags: u8, // se:1 migreq:1 padcnt:2 tver:4
    pkey: U16,
    dest_qp: U32, // fecn:1 becn:1 resv6:6 dest_qp:24
    psn: U32,     // ackreq:1 resv7:7 psn:24
}
view!(Bth, 12);

impl Bth {
    const SOLICITED: u8 = 0x80;
    const MIGRATED: u8 = 0x40;
    const FECN: u32 = 1 << 31;
    const BECN: u32 = 1 << 30;
    const ACK_REQUEST: u32 = 1 << 31;

    /// A header with the flags that every packet of ours has: migrated, version 0.
    pub const fn new(opcode: Opcode, dest_qp: Qpn, psn: Psn) -> Self {
        Self {
            opcode: opcode.0,
            flags: Self::MIGRATED,
            pkey: U16::new(crate::DEFAULT_PKEY),
            dest_qp: U32::new(dest_qp.value()),
            psn: U32::new(psn.value()),
        }
    }

    /// Opcode.
    pub const fn opcode(&self) -> Opcode {
        Opcode(self.opcode)
    }

    /// Destination queue pair.
    pub const fn dest_qp(&self) -> Qpn {
        Qpn::new(self.dest_qp.get())
    }

    /// Packet sequence number.
    pub const fn psn(&self) -> Psn {
        Psn::new(self.psn.get())
    }

    /// Partition key.
    pub const fn pkey(&self) -> u16 {
        self.pkey.get()
    }

    /// Sets the partition key.
    pub const fn set_pkey(&mut self, pkey: u16) {
        self.pkey = U16::new(pkey);
    }

    /// Pad bytes after the payload, 0..=3.
    pub const fn pad_count(&self) -> usize {
        ((self.flags >> 4) & 3) as usize
    }

    /// Sets the pad count (its low two bits).
    pub const fn set_pad_count(&mut self, count: u8) {
        self.flags = (self.flags & !0x30) | ((count & 3) << 4);
    }

    /// Transport version; only 0 exists.
    pub const fn version(&self) -> u8 {
        self.flags & 0x0f
    }

    /// Solicited event.
    pub const fn solicited(&self) -> bool {
        self.flags & Self::SOLICITED != 0
    }

    /// Sets the solicited-event bit.
    pub const fn set_solicited(&mut self, on: bool) {
        self.flags = (self.flags & !Self::SOLICITED) | if on { Self::SOLICITED } else { 0 };
    }

    /// Migration state; 1 is the default state.
    pub const fn migrated(&self) -> bool {
        self.flags & Self::MIGRATED != 0
    }

    /// Whether the sender wants an acknowledge.
    pub const fn ack_request(&self) -> bool {
        self.psn.get() & Self::ACK_REQUEST != 0
    }

    /// Sets the acknowledge request.
    pub const fn set_ack_request(&mut self, on: bool) {
        let psn = self.psn.get() & !Self::ACK_REQUEST;
        self.psn = U32::new(if on { psn | Self::ACK_REQUEST } else { psn });
    }

    /// Forward congestion notification.
    pub const fn fecn(&self) -> bool {
        self.dest_qp.get() & Self::FECN != 0
    }

    /// Backward congestion notification.
    pub const fn becn(&self) -> bool {
        self.dest_qp.get() & Self::BECN != 0
    }

    /// Sets backward congestion notification.
    pub const fn set_becn(&mut self, on: bool) {
        let word = self.dest_qp.get() & !Self::BECN;
        self.dest_qp = U32::new(if on { word | Self::BECN } else { word });
    }
}

/// RDMA extended transport header: where a WRITE or READ goes (IBTA 9.3.3).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RethView {
    /// Virtual address.
    pub virtual_address: U64,
    /// Remote key.
    pub rkey: U32,
    /// Length of the whole operation in bytes.
    pub length: U32,
}
view!(RethView, 16);

/// Atomic extended transport header (IBTA 9.3.4).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicEth {
    /// Virtual address, a multiple of 8.
    pub virtual_address: U64,
    /// Remote key.
    pub rkey: U32,
    /// Swap or add operand.
    pub swap_or_add: U64,
    /// Compare operand.
    pub compare: U64,
}
view!(AtomicEth, 28);

/// Acknowledge extended transport header (IBTA 9.3.5).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AethView {
    word: U32, // syndrome:8 msn:24
}
view!(AethView, 4);

impl AethView {
    /// Puts the word together.
    pub fn new(syndrome: u8, msn: Msn) -> Self {
        Self {
            word: U32::new(u32::from(syndrome) << 24 | msn.value()),
        }
    }

    /// Syndrome byte; see [`crate::aeth::Syndrome`].
    pub const fn syndrome(&self) -> u8 {
        self.word.get().to_be_bytes()[0]
    }

    /// Message sequence number.
    pub const fn msn(&self) -> Msn {
        Msn::new(self.word.get())
    }
}

/// Atomic acknowledge extended transport header: the original value (IBTA 9.5.3).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicAckEth {
    /// The value before the operation.
    pub original: U64,
}
view!(AtomicAckEth, 8);

/// Datagram extended transport header (IBTA 9.3.2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Deth {
    /// Queue key.
    pub qkey: U32,
    source_qp: U32,
}
view!(Deth, 8);

impl Deth {
    /// Puts the header together.
    pub const fn new(qkey: u32, source_qp: Qpn) -> Self {
        Self {
            qkey: U32::new(qkey),
            source_qp: U32::new(source_qp.value()),
        }
    }

    /// The sending queue pair.
    pub const fn source_qp(&self) -> Qpn {
        Qpn::new(self.source_qp.get())
    }
}

/// Immediate data or the key to invalidate: one word in network order (IBTA 9.3.6, 9.3.7).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WordEth {
    /// The word.
    pub word: U32,
}
view!(WordEth, 4);

/// XRC extended transport header: the shared receive queue (annex A14).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XrcEth {
    /// Reserved byte and the SRQ number.
    pub srqn: U32,
}
view!(XrcEth, 4);

/// FLUSH extended transport header: placement type and selectivity (annex A19).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FlushEth {
    /// Reserved 26 bits, selectivity level 2 bits, placement type 4 bits.
    pub word: U32,
}
view!(FlushEth, 4);
