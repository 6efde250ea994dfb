//! What a device counts. Counting never changes behaviour.

/// Event counts since the device was made; where a NIC driver has a name for a count in its
/// `hw_counters`, that name is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets handed in.
    pub rx_packets: u64,
    /// Payload bytes handed in.
    pub rx_bytes: u64,
    /// Packets handed to the host for sending.
    pub tx_packets: u64,
    /// Payload bytes handed to the host for sending.
    pub tx_bytes: u64,
    /// Request packets sent that had been sent before.
    pub retransmissions: u64,
    /// Requests received that had been executed before.
    pub duplicate_request: u64,
    /// Requests received ahead of the expected PSN.
    pub out_of_sequence: u64,
    /// Sequence NAKs received.
    pub packet_seq_err: u64,
    /// Responses that showed an earlier one is missing.
    pub implied_nak_seq_err: u64,
    /// ACK timeouts.
    pub local_ack_timeout_err: u64,
    /// RNR NAKs sent, and messages of unreliable services dropped, for want of a receive.
    pub out_of_buffer: u64,
    /// RNR NAKs received.
    pub rnr_nak_received: u64,
    /// Requests that failed because RNR retries ran out.
    pub rnr_nak_retry_err: u64,
    /// Requests that failed because retries ran out.
    pub req_retries_exceeded: u64,
    /// READ requests executed.
    pub rx_read_requests: u64,
    /// WRITE requests executed.
    pub rx_write_requests: u64,
    /// Atomic requests executed.
    pub rx_atomic_requests: u64,
    /// Send requests completed with an error other than flush.
    pub req_cqe_error: u64,
    /// Send requests flushed.
    pub req_cqe_flush_error: u64,
    /// Receive requests completed with an error other than flush.
    pub resp_cqe_error: u64,
    /// Receive requests flushed.
    pub resp_cqe_flush_error: u64,
    /// NAKs "remote access" received.
    pub req_remote_access_errors: u64,
    /// NAKs "invalid request" received.
    pub req_remote_invalid_request: u64,
    /// NAKs "remote access" sent.
    pub resp_remote_access_errors: u64,
    /// NAKs "invalid request" sent.
    pub resp_invalid_request: u64,
    /// Acknowledges and responses outside of what is outstanding, or malformed.
    pub unexpected_response: u64,
    /// Messages of unreliable services dropped because a packet is missing or wrong.
    pub unreliable_dropped: u64,
    /// Packets for a queue pair that does not exist.
    pub dropped_unknown_qp: u64,
    /// Packets for a queue pair in a state that takes none.
    pub dropped_state: u64,
    /// Packets from or to an address that is not the queue pair's.
    pub dropped_address: u64,
    /// Packets of another partition.
    pub dropped_pkey: u64,
    /// Packets of another transport service than the queue pair's.
    pub dropped_service: u64,
    /// Datagrams with a wrong queue key.
    pub qkey_violations: u64,
    /// Datagrams longer than the receive they met.
    pub datagram_too_long: u64,
    /// Management datagrams to the general service interface (QP 1).
    pub gsi_packets: u64,
    /// Packets to it that are no management datagrams.
    pub gsi_malformed: u64,
    /// Packets that arrived with a congestion mark.
    pub np_ecn_marked_roce_packets: u64,
    /// Congestion notification packets sent.
    pub np_cnp_sent: u64,
    /// Congestion notification packets received for a queue pair.
    pub rp_cnp_handled: u64,
}

impl Counters {
    /// Names and values, for whoever shows them.
    pub const fn fields(&self) -> [(&'static str, u64); 39] {
        [
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("retransmissions", self.retransmissions),
            ("duplicate_request", self.duplicate_request),
            ("out_of_sequence", self.out_of_sequence),
            ("packet_seq_err", self.packet_seq_err),
            ("implied_nak_seq_err", self.implied_nak_seq_err),
            ("local_ack_timeout_err", self.local_ack_timeout_err),
            ("out_of_buffer", self.out_of_buffer),
            ("rnr_nak_received", self.rnr_nak_received),
            ("rnr_nak_retry_err", self.rnr_nak_retry_err),
            ("req_retries_exceeded", self.req_retries_exceeded),
            ("rx_read_requests", self.rx_read_requests),
            ("rx_write_requests", self.rx_write_requests),
            ("rx_atomic_requests", self.rx_atomic_requests),
            ("req_cqe_error", self.req_cqe_error),
            ("req_cqe_flush_error", self.req_cqe_flush_error),
            ("resp_cqe_error", self.resp_cqe_error),
            ("resp_cqe_flush_error", self.resp_cqe_flush_error),
            ("req_remote_access_errors", self.req_remote_access_errors),
            (
                "req_remote_invalid_request",
                self.req_remote_invalid_request,
            ),
            ("resp_remote_access_errors", self.resp_remote_access_errors),
            ("resp_invalid_request", self.resp_invalid_request),
            ("unexpected_response", self.unexpected_response),
            ("unreliable_dropped", self.unreliable_dropped),
            ("dropped_unknown_qp", self.dropped_unknown_qp),
            ("dropped_state", self.dropped_state),
            ("dropped_address", self.dropped_address),
            ("dropped_pkey", self.dropped_pkey),
            ("dropped_service", self.dropped_service),
            ("qkey_violations", self.qkey_violations),
            ("datagram_too_long", self.datagram_too_long),
            ("gsi_packets", self.gsi_packets),
            ("gsi_malformed", self.gsi_malformed),
            (
                "np_ecn_marked_roce_packets",
                self.np_ecn_marked_roce_packets,
            ),
            ("np_cnp_sent", self.np_cnp_sent),
            ("rp_cnp_handled", self.rp_cnp_handled),
        ]
    }
}
