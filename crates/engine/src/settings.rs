//! What the environment asks of a device, and what the protocol is told of its interface.

use crate::device::OpenError;
use crate::discover::Candidate;
use feroce_netio::lossy::Impairment;
use feroce_proto::{CongestionControl, DcqcnParameters, NicConfig};

/// The protocol's settings for an interface.
pub(crate) fn nic_config(
    candidate: &Candidate,
    receive_buffer: usize,
) -> Result<NicConfig, OpenError> {
    Ok(NicConfig {
        path_mtu_max: candidate.port().mtu,
        congestion: congestion()?,
        read_window: read_window(receive_buffer as u64),
        ..NicConfig::default()
    })
}

/// Bytes of READ responses under way to us: an eighth of the receive buffer, where a packet counts
/// about twice and other traffic needs room, but never less than what the smallest buffer holds.
fn read_window(receive_buffer: u64) -> u64 {
    let NicConfig {
        read_window: least,
        window_max: most,
        ..
    } = NicConfig::default();
    (receive_buffer / 8).clamp(least, most)
}

/// The congestion control that `FEROCE_CC` asks for: `none` (the default) or `dcqcn`.
fn congestion() -> Result<CongestionControl, OpenError> {
    match std::env::var("FEROCE_CC").unwrap_or_default().trim() {
        "" | "none" => Ok(CongestionControl::None),
        "dcqcn" => Ok(CongestionControl::Dcqcn(DcqcnParameters::default())),
        other => Err(OpenError::Congestion(other.to_owned())),
    }
}

/// The bad link that `FEROCE_LINK` asks for, if it does.
pub(crate) fn impairment() -> Result<Option<Impairment>, OpenError> {
    match std::env::var("FEROCE_LINK") {
        Ok(text) if !text.trim().is_empty() => text
            .parse()
            .map(Some)
            .map_err(|error| OpenError::Link(format!("{error}"))),
        _ => Ok(None),
    }
}
