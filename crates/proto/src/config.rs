//! Limits and knobs of a [`Nic`](crate::Nic).

use crate::{CreateError, Mtu, QpCapabilities};
use core::time::Duration;
use feroce_wire::DEFAULT_PKEY;

/// Most scatter/gather entries any request may have; bounds stack use per packet.
pub const SGE_MAX: u32 = 32;

/// Most READs and atomics in progress per queue pair and direction.
pub const RD_ATOMIC_MAX: u8 = 128;

/// Longest message in bytes: 2^31 (IBTA 9.7.7).
pub const MESSAGE_BYTES_MAX: u64 = 1 << 31;

/// What happens when switches mark congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CongestionControl {
    /// Marks are counted; the byte window alone limits senders.
    #[default]
    None,
    /// DCQCN: CNPs answer marks, and a rate per queue pair answers CNPs.
    Dcqcn(DcqcnParameters),
}

/// Parameters of DCQCN; the defaults follow the published "paper" preset at 25 Gb/s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DcqcnParameters {
    /// Rate of an undisturbed sender and upper bound, bytes per second.
    pub line_rate: u64,
    /// Lower bound, bytes per second.
    pub rate_min: u64,
    /// Least time between two CNPs of one queue pair (notification point).
    pub cnp_interval: Duration,
    /// Least time between two rate cuts of one queue pair.
    pub decrease_interval: Duration,
    /// Without a CNP for this long, alpha decays.
    pub alpha_interval: Duration,
    /// Time between two rate increases.
    pub increase_interval: Duration,
    /// Bytes between two rate increases.
    pub increase_bytes: u64,
    /// Alpha moves by 1/2^g_shift.
    pub g_shift: u32,
    /// Fast-recovery rounds before additive increase begins.
    pub fast_recovery_rounds: u32,
    /// Additive increase, bytes per second.
    pub additive_increase: u64,
    /// Hyper increase, bytes per second.
    pub hyper_increase: u64,
}

impl Default for DcqcnParameters {
    fn default() -> Self {
        Self {
            line_rate: 25_000_000_000 / 8,
            rate_min: 100_000_000 / 8,
            cnp_interval: Duration::from_micros(50),
            decrease_interval: Duration::from_micros(50),
            alpha_interval: Duration::from_micros(50),
            increase_interval: Duration::from_micros(55),
            increase_bytes: 10_000_000,
            g_shift: 8,
            fast_recovery_rounds: 5,
            additive_increase: 5_000_000 / 8,
            hyper_increase: 50_000_000 / 8,
        }
    }
}

/// Limits and knobs of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NicConfig {
    /// Largest path MTU that the interface carries; also the longest datagram.
    pub path_mtu_max: Mtu,
    /// The one partition key of the device.
    pub pkey: u16,
    /// Queue pairs.
    pub max_qp: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests per send, receive or shared receive queue.
    pub max_wr: u32,
    /// Entries per scatter/gather list; not above [`SGE_MAX`].
    pub max_sge: u32,
    /// Inline bytes per send request.
    pub max_inline_data: u32,
    /// READs and atomics in progress per queue pair and direction; larger wishes are clamped.
    /// Not above [`RD_ATOMIC_MAX`].
    pub max_rd_atomic: u8,
    /// Multicast attachments in all.
    pub max_multicast_attach: u32,
    /// Bytes in flight to one peer address at the start. The default fits the receive buffer
    /// that Linux gives a UDP socket by default (212,992 bytes, with room for overhead).
    pub window_initial: u64,
    /// Bytes in flight to one peer address, at most.
    pub window_max: u64,
    /// Bytes of READ responses on their way to this device, over all queue pairs, at most.
    pub read_window: u64,
    /// Counted in addition to the payload of a packet in flight: its share of a socket buffer.
    pub packet_overhead: u64,
    /// Bytes without an answer for this long are not in the peer's buffer any more, whatever
    /// became of them: their room goes to other queue pairs, and their queue pair
    /// sends nothing new until it hears from the peer. Shorter than most ACK timeouts. Zero: for
    /// ever.
    pub window_hold: Duration,
    /// How long a requester without credits waits for new ones before it tries its luck with one
    /// message (IBTA 9.7.7.2 lets it try at once, which costs an RNR wait if it fails).
    pub credit_probe: Duration,
    /// As `credit_probe`, for a peer that has told of new receives without being asked: only the
    /// loss of such news makes it necessary to try.
    pub credit_probe_told: Duration,
    /// Bytes per second that all unreliable queue pairs together send; 0: no limit. Nothing
    /// comes back from their receivers, so only this keeps buffers from overflowing.
    pub unreliable_rate: u64,
    /// A READ is asked for in pieces of at most this many bytes (rounded down to the path MTU,
    /// but one packet at least).
    pub read_chunk_max: u32,
    /// The ACK timeout is never shorter than this, whatever the attribute says. Zero: as the
    /// attribute says. Set it where scheduling is slower than a program's timeout expects.
    pub ack_timeout_min: Duration,
    /// Packets one queue pair sends before the next has its turn: one GSO batch.
    pub quantum: u32,
    /// Congestion control.
    pub congestion: CongestionControl,
}

impl NicConfig {
    /// Whether a queue pair may join `count` others and have these capabilities.
    pub(crate) fn check_create(
        &self,
        count: usize,
        asked: &QpCapabilities,
    ) -> Result<(), CreateError> {
        if count >= self.max_qp as usize {
            return Err(CreateError::DeviceFull {
                what: "queue pairs",
                max: self.max_qp,
            });
        }
        for (what, asked, max) in [
            ("max_send_wr", asked.max_send_wr, self.max_wr),
            ("max_recv_wr", asked.max_recv_wr, self.max_wr),
            ("max_send_sge", asked.max_send_sge, self.max_sge),
            ("max_recv_sge", asked.max_recv_sge, self.max_sge),
            (
                "max_inline_data",
                asked.max_inline_data,
                self.max_inline_data,
            ),
        ] {
            if asked > max {
                return Err(CreateError::TooMuch { what, asked, max });
            }
        }
        Ok(())
    }
}

impl Default for NicConfig {
    fn default() -> Self {
        Self {
            path_mtu_max: Mtu::Mtu4096,
            pkey: DEFAULT_PKEY,
            max_qp: 65_536,
            max_srq: 65_536,
            max_wr: 32_768,
            max_sge: SGE_MAX,
            max_inline_data: 1024,
            max_rd_atomic: RD_ATOMIC_MAX,
            max_multicast_attach: 65_536,
            window_initial: 128 << 10,
            window_max: 1 << 20,
            read_window: 128 << 10,
            packet_overhead: 512,
            window_hold: Duration::from_millis(20),
            credit_probe: Duration::from_micros(500),
            credit_probe_told: Duration::from_millis(20),
            unreliable_rate: 0,
            read_chunk_max: 64 << 10,
            ack_timeout_min: Duration::ZERO,
            quantum: 16,
            congestion: CongestionControl::None,
        }
    }
}
