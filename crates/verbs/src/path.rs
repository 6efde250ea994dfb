//! From the GIDs and GRH fields of an address vector to a path.

use feroce_engine::{Device, gid_address};
use feroce_proto::Path;
use std::net::IpAddr;

/// An address vector, as programs give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathRequest {
    /// Destination GID.
    pub destination: [u8; 16],
    /// Index of the source GID.
    pub source_gid_index: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Service level.
    pub service_level: u8,
}

/// Why an address vector leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// No GRH given.
    #[error("RoCE needs a GRH: set ah_attr.is_global and ah_attr.grh (with GID index and dgid)")]
    NoGrh,
    /// The table has no entry there.
    #[error("source GID index {0} is empty; `feroce devices` lists the GIDs")]
    NoSuchGid(u8),
    /// IPv4 on one side, IPv6 on the other.
    #[error("source GID {source_gid} and destination GID {destination} are of two families")]
    TwoFamilies {
        /// Address of the source GID.
        source_gid: IpAddr,
        /// Address of the destination GID.
        destination: IpAddr,
    },
    /// The destination is no address a packet can be sent to.
    #[error("destination GID {0} is no unicast or multicast address")]
    Unspecified(IpAddr),
}

/// Hop limit for programs that give 0, with which no packet would leave (RFC 1122's default).
const HOP_LIMIT_DEFAULT: u8 = 64;

pub(crate) fn resolve(device: &Device, request: &PathRequest) -> Result<Path, PathError> {
    let source = device
        .gid(usize::from(request.source_gid_index))
        .ok_or(PathError::NoSuchGid(request.source_gid_index))?;
    let destination = gid_address(request.destination);
    if destination.is_unspecified() {
        return Err(PathError::Unspecified(destination));
    }
    if source.is_ipv4() != destination.is_ipv4() {
        return Err(PathError::TwoFamilies {
            source_gid: source,
            destination,
        });
    }
    Ok(Path {
        source,
        destination,
        traffic_class: request.traffic_class,
        hop_limit: if request.hop_limit == 0 {
            HOP_LIMIT_DEFAULT
        } else {
            request.hop_limit
        },
        flow_label: request.flow_label & 0x000f_ffff,
        service_level: request.service_level,
        source_gid_index: request.source_gid_index,
    })
}
