//! CM messages as they lie on the wire, behind the header of the datagram. Every bit pattern is a
//! valid view; each is exactly as long as a datagram's data.

#![allow(
    unnameable_types,
    reason = "the derives inside a macro make types of their own"
)]

use crate::mad::MAD_DATA_LEN;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A 24-bit number and the eight bits behind it, in one word.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Split24 {
    word: U32,
}

impl Split24 {
    /// Puts the low 24 bits of `number` before `byte`.
    pub fn new(number: u32, byte: u8) -> Self {
        Self {
            word: U32::new(number << 8 | u32::from(byte)),
        }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.word.get() >> 8
    }

    /// The byte behind it.
    pub const fn byte(self) -> u8 {
        self.word.get().to_be_bytes()[3]
    }
}

/// A byte cut in two: `LOW` bits at the low end, the others above them.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cut<const LOW: u32> {
    byte: u8,
}

impl<const LOW: u32> Cut<LOW> {
    /// Puts the two parts together; bits that have no room are dropped.
    pub const fn new(high: u8, low: u8) -> Self {
        Self {
            byte: high << LOW | (low & ((1 << LOW) - 1)),
        }
    }

    /// As it lies in another field.
    pub const fn from_byte(byte: u8) -> Self {
        Self { byte }
    }

    /// The whole byte.
    pub const fn byte(self) -> u8 {
        self.byte
    }

    /// The upper part.
    pub const fn high(self) -> u8 {
        self.byte >> LOW
    }

    /// The lower part.
    pub const fn low(self) -> u8 {
        self.byte & ((1 << LOW) - 1)
    }
}

macro_rules! views {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(
                Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
            )]
            #[repr(C)]
            #[allow(missing_docs, reason = "the specification's own names")]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
        )*
    };
}

macro_rules! whole_messages {
    ($($name:ident)*) => {
        $(const _: () = assert!(size_of::<$name>() == MAD_DATA_LEN && align_of::<$name>() == 1);)*
    };
}

views! {
    /// One path of a REQ (IBTA 12.6.5).
    PathView {
        local_lid: U16,
        remote_lid: U16,
        local_gid: [u8; 16],
        remote_gid: [u8; 16],
        /// flow label:20 reserved:6 packet rate:6
        flow_label_and_rate: U32,
        traffic_class: u8,
        hop_limit: u8,
        /// service level:4 subnet local:1 reserved:3
        service_level: Cut<4>,
        /// local ACK timeout:5 reserved:3
        local_ack_timeout: Cut<3>,
    }

    /// REQ: request for communication (IBTA 12.6.5).
    ReqView {
        local_comm_id: U32,
        /// reserved:8 vendor id:24
        vendor_id: U32,
        service_id: U64,
        local_ca_guid: U64,
        reserved: U32,
        local_qkey: U32,
        /// local QPN:24 responder resources:8
        qpn: Split24,
        /// local EECN:24 initiator depth:8
        local_eecn: Split24,
        /// remote EECN:24 remote CM response timeout:5 transport service:2 flow control:1
        remote_eecn: Split24,
        /// starting PSN:24 local CM response timeout:5 retry count:3
        starting_psn: Split24,
        pkey: U16,
        /// path MTU:4 RDC exists:1 RNR retry count:3
        path_mtu: Cut<4>,
        /// max CM retries:4 SRQ:1 extended transport type:3
        max_cm_retries: Cut<4>,
        primary: PathView,
        alternate: PathView,
        private_data: [u8; 92],
    }

    /// MRA: message receipt acknowledgement (IBTA 12.6.6).
    MraView {
        local_comm_id: U32,
        remote_comm_id: U32,
        /// message:2 reserved:6
        message: Cut<6>,
        /// service timeout:5 reserved:3
        service_timeout: Cut<3>,
        private_data: [u8; 222],
    }

    /// REJ: reject (IBTA 12.6.7).
    RejView {
        local_comm_id: U32,
        remote_comm_id: U32,
        /// message:2 reserved:6
        message: Cut<6>,
        /// length of additional information:7 reserved:1
        information_len: Cut<1>,
        reason: U16,
        information: [u8; 72],
        private_data: [u8; 148],
    }

    /// REP: reply to a request (IBTA 12.6.8).
    RepView {
        local_comm_id: U32,
        remote_comm_id: U32,
        local_qkey: U32,
        /// local QPN:24 vendor id, bits 23 to 16:8
        qpn: Split24,
        /// local EE context:24 vendor id, bits 15 to 8:8
        local_eecn: Split24,
        /// starting PSN:24 vendor id, bits 7 to 0:8
        starting_psn: Split24,
        responder_resources: u8,
        initiator_depth: u8,
        /// target ACK delay:5 failover accepted:2 flow control:1
        target_ack_delay: Cut<3>,
        /// RNR retry count:3 SRQ:1 reserved:4
        rnr_retry_count: Cut<5>,
        local_ca_guid: U64,
        private_data: [u8; 196],
    }

    /// RTU: ready to use (IBTA 12.6.9).
    RtuView {
        local_comm_id: U32,
        remote_comm_id: U32,
        private_data: [u8; 224],
    }

    /// DREQ: request for communication release (IBTA 12.6.10).
    DreqView {
        local_comm_id: U32,
        remote_comm_id: U32,
        /// remote QPN or EECN:24 reserved:8
        remote_qpn: Split24,
        private_data: [u8; 220],
    }

    /// DREP: reply to a request for release (IBTA 12.6.11).
    DrepView {
        local_comm_id: U32,
        remote_comm_id: U32,
        private_data: [u8; 224],
    }

    /// LAP: load alternate path (IBTA 12.8.1).
    LapView {
        local_comm_id: U32,
        remote_comm_id: U32,
        reserved: U32,
        /// remote QPN or EECN:24 remote CM response timeout:5 reserved:3
        remote_qpn: Split24,
        reserved_2: U32,
        local_lid: U16,
        remote_lid: U16,
        local_gid: [u8; 16],
        remote_gid: [u8; 16],
        /// flow label:20 reserved:4 traffic class:8
        flow_label_and_class: U32,
        hop_limit: u8,
        /// reserved:2 packet rate:6
        packet_rate: Cut<6>,
        /// service level:4 subnet local:1 reserved:3
        service_level: Cut<4>,
        /// local ACK timeout:5 reserved:3
        local_ack_timeout: Cut<3>,
        private_data: [u8; 168],
    }

    /// APR: alternate path response (IBTA 12.8.2).
    AprView {
        local_comm_id: U32,
        remote_comm_id: U32,
        information_len: u8,
        status: u8,
        reserved: U16,
        information: [u8; 72],
        private_data: [u8; 148],
    }

    /// SIDR_REQ: request for the queue pair behind a service (IBTA 12.11.1).
    SidrReqView {
        request_id: U32,
        pkey: U16,
        reserved: U16,
        service_id: U64,
        private_data: [u8; 216],
    }

    /// SIDR_REP: the queue pair behind a service (IBTA 12.11.2).
    SidrRepView {
        request_id: U32,
        status: u8,
        information_len: u8,
        /// vendor id, bits 23 to 8
        vendor_id_high: U16,
        /// QPN:24 vendor id, bits 7 to 0:8
        qpn: Split24,
        service_id: U64,
        qkey: U32,
        information: [u8; 72],
        private_data: [u8; 136],
    }
}

whole_messages! {
    ReqView MraView RejView RepView RtuView DreqView DrepView LapView AprView SidrReqView
    SidrRepView
}
const _: () = assert!(size_of::<PathView>() == 44);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_cut_where_the_specification_cuts_them() {
        let split = Split24::new(0x12_3456, 0x78);
        assert_eq!(split.as_bytes(), [0x12, 0x34, 0x56, 0x78]);
        assert_eq!((split.number(), split.byte()), (0x12_3456, 0x78));
        assert_eq!(Split24::new(0xff12_3456, 0).number(), 0x12_3456);
        let cut = Cut::<3>::new(0b10001, 0b110);
        assert_eq!(cut.byte(), 0b1000_1110);
        assert_eq!((cut.high(), cut.low()), (0b10001, 0b110));
        assert_eq!(Cut::<3>::new(0b10_0001, 0b1000).byte(), 0b0000_1000);
    }
}
