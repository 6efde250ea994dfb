//! What an endpoint needs of its host besides memory and completion queues: the wire.

use crate::{Host, Payload, TransmitError};
use core::net::IpAddr;
use feroce_wire::metaroce::Headers;

/// Where one packet goes. The source port is the path: the host uses it as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Local address: the plane it leaves on.
    pub source: IpAddr,
    /// Peer address.
    pub destination: IpAddr,
    /// UDP source port: the entropy of the path.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// DSCP in the top six bits, ECN in the low two.
    pub traffic_class: u8,
    /// A stream of the peer: tells same-host hosts which process the packet is for.
    pub stream: u32,
}

/// A [`Host`] that can send MetaRoCE packets. Its [`Host::transmit`] is never called.
pub trait Port: Host {
    /// Takes one packet for sending; the host adds the check sum
    /// ([`feroce_wire::metaroce::check`]).
    ///
    /// # Errors
    /// See [`TransmitError`]; then nothing was taken.
    fn send(
        &mut self,
        route: &Route,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError>;
}
