//! Constants and limits of an [`Endpoint`](super::Endpoint). Every default has its reason in
//! docs/spec/metaroce/congestion.md and paths.md.

use crate::NicConfig;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use feroce_wire::metaroce::DEFAULT_PORT;

/// Which congestion control the connections of an endpoint use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WindowRule {
    /// The one of the specification: ECN, delay, and the share the receiver grants.
    #[default]
    Specified,
    /// A window that never changes, in bytes per connection; for tests.
    Fixed(u64),
}

/// Constants and limits of one endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Limits that MetaRoCE shares with the other services: depths, entries, inline bytes.
    pub limits: NicConfig,
    /// Local addresses, one for every plane; the first names the endpoint.
    pub planes: Vec<IpAddr>,
    /// UDP destination port.
    pub port: u16,
    /// Random bits, known to no one else: cookies, connection ids and source ports come from them.
    pub secret: [u64; 2],
    /// A stream number shifted right by this tells the process it belongs to.
    pub process_shift: u32,
    /// Connections at the same time.
    pub max_connections: usize,
    /// Paths of a connection, over all planes, 1..=255.
    pub paths: u8,
    /// Longest payload of a packet, in bytes.
    pub segment: u16,
    /// Unconfirmed messages per stream.
    pub message_window: u16,
    /// Bandwidth of one plane in each direction, bytes per second; 0: unknown, nothing is paced and
    /// no share is granted.
    pub line_rate: u64,
    /// Bytes on the wire of each packet besides those of the UDP datagram's content.
    pub wire_overhead: u32,
    /// Bytes that may be sent back to back before pacing sets in.
    pub pacing_burst: u64,
    /// Traffic class of packets: DSCP, and ECT(0) in the low two bits.
    pub traffic_class: u8,
    /// Congestion control.
    pub windows: WindowRule,
    /// Window of a connection before the first round trip is known, in bytes.
    pub window_initial: u64,
    /// Bytes in flight on one connection, at most.
    pub window_max: u64,
    /// An acknowledgement nobody asked for waits no longer than this.
    pub ack_delay_max: Duration,
    /// Packets of a path after which an acknowledgement is due at once.
    pub ack_packets_max: u32,
    /// What a round trip may vary by without meaning anything: the grain of timers and scheduling.
    pub timer_grain: Duration,
    /// Round trip assumed before the first sample.
    pub rtt_initial: Duration,
    /// Longest time between two probes of a suspect path.
    pub probe_interval_max: Duration,
    /// Unanswered probes after which a path changes its port.
    pub probes_before_rebind: u32,
    /// A connection that waits and hears nothing for this long is dead.
    pub dead_after: Duration,
    /// Out-of-order segments that a connection tracks, in words of 64.
    pub reorder_words_max: usize,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            limits: NicConfig::default(),
            planes: Vec::new(),
            port: DEFAULT_PORT,
            secret: [0; 2],
            process_shift: 14,
            max_connections: 65_536,
            paths: 8,
            segment: 4096,
            message_window: 256,
            line_rate: 0,
            wire_overhead: 66,
            pacing_burst: 2 * 4200,
            traffic_class: 2,
            windows: WindowRule::Specified,
            window_initial: 64 << 10,
            window_max: 1 << 30,
            ack_delay_max: Duration::from_micros(10),
            ack_packets_max: 16,
            timer_grain: Duration::from_micros(5),
            rtt_initial: Duration::from_millis(1),
            probe_interval_max: Duration::from_millis(100),
            probes_before_rebind: 3,
            dead_after: Duration::from_secs(4),
            reorder_words_max: 4096,
        }
    }
}
