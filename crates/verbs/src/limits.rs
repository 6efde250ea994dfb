//! What a device can do at most: the numbers behind `ibv_query_device`.

/// Limits of a device; all of them hold per process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Requests in one queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries of one request.
    pub max_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Completions in one queue.
    pub max_cqe: u32,
    /// Memory regions and windows.
    pub max_mr: u32,
    /// Bytes of one region.
    pub max_mr_size: u64,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics a queue pair answers, or has outstanding, at once.
    pub max_rd_atomic: u8,
    /// Address handles.
    pub max_ah: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// Multicast groups.
    pub max_mcast_groups: u32,
    /// Queue pairs attached to one group.
    pub max_mcast_qp_attach: u32,
    /// Bytes of one message.
    pub max_message: u32,
    /// Bytes of device memory.
    pub max_dm_size: u64,
}

impl Limits {
    /// The limits of every Feroce device.
    pub const DEVICE: Self = Self {
        // Index part of a queue pair number, less the two reserved ones.
        max_qp: 16_382,
        max_qp_wr: 32_768,
        max_sge: 32,
        // What fits one 1,024-byte packet; programs that search for the limit find it by EINVAL.
        max_inline_data: 1024,
        max_cq: 65_536,
        // libfabric's rxm asks for 262,144 by default. Rings grow on demand.
        max_cqe: 4_194_303,
        max_mr: 1 << 20,
        max_mr_size: u64::MAX,
        max_pd: 65_536,
        // perftest asks for 128 where it may.
        max_rd_atomic: 128,
        max_ah: 1 << 20,
        max_srq: 65_536,
        max_srq_wr: 32_768,
        max_mcast_groups: 8192,
        max_mcast_qp_attach: 1024,
        max_message: 1 << 31,
        max_dm_size: 16 << 20,
    };
}
