//! What several CM messages have in common.

/// What kind of connection is asked for (IBTA 12.7.13 and annex A14).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the specification's own names")]
pub enum Transport {
    Rc,
    Uc,
    Rd,
    Xrc,
    /// Type 3 with an extended type that is not defined.
    Reserved(u8),
}

impl Transport {
    /// Transport service type and extended transport type.
    pub(super) const fn codes(self) -> (u8, u8) {
        match self {
            Self::Rc => (0, 0),
            Self::Uc => (1, 0),
            Self::Rd => (2, 0),
            Self::Xrc => (3, 1),
            Self::Reserved(extended) => (3, extended),
        }
    }

    pub(super) const fn from_codes(service: u8, extended: u8) -> Self {
        match (service, extended) {
            (0, _) => Self::Rc,
            (1, _) => Self::Uc,
            (2, _) => Self::Rd,
            (_, 1) => Self::Xrc,
            (_, extended) => Self::Reserved(extended),
        }
    }
}

/// Enhanced connection establishment: who offers which options of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ece {
    /// Vendor, 24 bits.
    pub vendor_id: u32,
    /// Options as the vendor defines them; they travel in the attribute modifier.
    pub options: u32,
}

/// A path between two ports as a REQ describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathFields {
    /// LID of the sender's port; 0xffff on Ethernet.
    pub local_lid: u16,
    /// LID of the receiver's port; 0xffff on Ethernet.
    pub remote_lid: u16,
    /// GID of the sender's port.
    pub local_gid: [u8; 16],
    /// GID of the receiver's port.
    pub remote_gid: [u8; 16],
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Static rate, 6 bits, as `ibv_rate`.
    pub packet_rate: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Service level, 4 bits.
    pub service_level: u8,
    /// Both ports are on one subnet.
    pub subnet_local: bool,
    /// Code of the local ACK timeout, 5 bits; see [`crate::timing::ack_timeout`].
    pub local_ack_timeout: u8,
}

/// The message that a MRA or REJ is about (IBTA 12.6.6, 12.6.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the specification's own names")]
pub enum RejectedMessage {
    Req = 0,
    Rep = 1,
    /// REJ: none of the others. MRA: a LAP.
    Other = 2,
    Reserved = 3,
}

impl RejectedMessage {
    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }
}
