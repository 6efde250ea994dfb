//! What an endpoint counts. Counting never changes behaviour.

/// Event counts since the endpoint was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
//= MR-CNT-001
#[expect(
    missing_docs,
    reason = "the specification, part 10, has a table of them"
)]
pub struct EndpointCounters {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub retransmissions: u64,
    pub acks_sent: u64,
    pub acks_received: u64,
    pub probes_sent: u64,
    pub dropped_malformed: u64,
    pub dropped_unknown_connection: u64,
    pub dropped_duplicate: u64,
    pub dropped_old_epoch: u64,
    pub dropped_address: u64,
    pub dropped_resources: u64,
    pub dropped_violation: u64,
    pub duplicate_segments: u64,
    pub duplicate_messages: u64,
    pub bad_cookies: u64,
    pub retries_sent: u64,
    pub refused_not_ready: u64,
    pub refused: u64,
    pub request_errors: u64,
    pub flushed: u64,
    pub connections_opened: u64,
    pub connections_failed: u64,
    pub paths_suspected: u64,
    pub paths_rebound: u64,
    pub atomics_executed: u64,
    pub reads_executed: u64,
}
