//! What the tests share: a connected pair of queue pairs inside this process.

use feroce_verbs::{
    Access, Buffer, CompletionQueue, CompletionStatus, Context, CqOptions, Data, Mtu, PathRequest,
    Peer, ProtectionDomain, Psn, QpOptions, QpType, QueuePair, Remote, SendFlags, SendOperation,
    SendRequest, SgeList, gid_bytes,
};
use std::time::{Duration, Instant};

/// One end.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    pub(crate) buffer: Buffer,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
}

impl End {
    /// An unconnected end with a buffer of `len` bytes.
    pub(crate) fn new(context: &Context, qp_type: QpType, len: usize) -> Self {
        let pd = context.alloc_pd();
        let cq = context.create_cq(CqOptions::with_capacity(64)).unwrap();
        let qp = pd.create_qp(QpOptions::new(qp_type, &cq, &cq)).unwrap();
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let buffer = pd.alloc_buffer(len, access).unwrap();
        Self {
            qp,
            cq,
            buffer,
            pd,
            context: context.clone(),
        }
    }

    /// Connects to `other`.
    pub(crate) fn connect(&self, other: &Self) {
        let gid = gid_bytes(other.context.gid(0).unwrap());
        let path = self
            .context
            .resolve(&PathRequest {
                destination: gid,
                source_gid_index: 0,
                traffic_class: 0,
                hop_limit: 1,
                flow_label: 0,
                service_level: 0,
            })
            .unwrap();
        let peer = Peer {
            path,
            qpn: other.qp.qpn(),
            rq_psn: Psn::new(other.qp.qpn().value()),
            sq_psn: Psn::new(self.qp.qpn().value()),
            path_mtu: Mtu::Mtu1024,
            access_flags: 0xf,
        };
        self.qp.connect(&peer).unwrap();
    }

    /// Writes the whole buffer to the same place of `other`, and waits for the completion.
    pub(crate) fn write_all(&self, other: &Self) {
        let request = SendRequest {
            wr_id: 1,
            operation: SendOperation::Write(Remote {
                address: 0,
                rkey: other.buffer.rkey(),
            }),
            data: Data::Gather(SgeList::from_slice(&[self
                .buffer
                .sge(0, u32::try_from(self.buffer.len()).unwrap())])),
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            target: None,
            xrc_srqn: 0,
        };
        self.qp.post_send([request]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(entry) = self.cq.poll_one() {
                assert_eq!(entry.completion.status, CompletionStatus::Success);
                return;
            }
            assert!(Instant::now() < deadline, "the write did not complete");
        }
    }
}
