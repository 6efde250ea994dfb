//! Queue pairs, shared receive queues and XRC domains.

use crate::completion::CompletionQueue;
use crate::context::Context;
use crate::memory::ProtectionDomain;
use crate::{Limits, PostListError, QpError};
use feroce_proto::{
    AttributeMask, CreateError, Mtu, Path, QpAttributes, QpCapabilities, QpInit, QpState, QpType,
    RecvRequest, SendRequest, SrqAttributes, SrqId, SrqInit, XrcdId,
};
use feroce_wire::{Psn, Qpn};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// How a queue pair is made.
#[derive(Clone, Debug)]
pub struct QpOptions {
    /// Type.
    pub qp_type: QpType,
    /// Queue for completions of send requests.
    pub send_cq: CompletionQueue,
    /// Queue for completions of receive requests.
    pub recv_cq: CompletionQueue,
    /// Shared receive queue, if any.
    pub srq: Option<SharedReceiveQueue>,
    /// XRC domain of an XRC target.
    pub xrc_domain: Option<XrcDomain>,
    /// Depths and limits.
    pub capabilities: QpCapabilities,
    /// Every send request completes visibly.
    pub signal_all: bool,
}

impl QpOptions {
    /// Small queues: 128 requests each way, 4 entries a request, 64 bytes inline.
    pub fn new(qp_type: QpType, send_cq: &CompletionQueue, recv_cq: &CompletionQueue) -> Self {
        Self {
            qp_type,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            xrc_domain: None,
            capabilities: QpCapabilities {
                max_send_wr: 128,
                max_recv_wr: 128,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            signal_all: false,
        }
    }
}

/// Why a queue could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateQpError {
    /// A number is above a limit of the device.
    #[error("{what} {asked} is above the limit of {limit}")]
    Limit {
        /// Which number.
        what: &'static str,
        /// What was asked for.
        asked: u32,
        /// The limit.
        limit: u32,
    },
    /// The device refused.
    #[error(transparent)]
    Qp(#[from] QpError),
    /// The protocol refused.
    #[error(transparent)]
    Create(#[from] CreateError),
}

/// A queue pair; destroyed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct QueuePair {
    inner: Arc<QpInner>,
}

#[derive(Debug)]
struct QpInner {
    pd: ProtectionDomain,
    qpn: Qpn,
    options: QpOptions,
}

impl Drop for QpInner {
    fn drop(&mut self) {
        if let Err(error) = self.pd.inner.context.inner.device.destroy_qp(self.qpn) {
            log::error!("{error}");
        }
    }
}

impl QueuePair {
    pub(crate) fn new(pd: &ProtectionDomain, options: QpOptions) -> Result<Self, CreateQpError> {
        let limits = Limits::DEVICE;
        let caps = &options.capabilities;
        for (what, asked, limit) in [
            ("max_send_wr", caps.max_send_wr, limits.max_qp_wr),
            ("max_recv_wr", caps.max_recv_wr, limits.max_qp_wr),
            ("max_send_sge", caps.max_send_sge, limits.max_sge),
            ("max_recv_sge", caps.max_recv_sge, limits.max_sge),
            (
                "max_inline_data",
                caps.max_inline_data,
                limits.max_inline_data,
            ),
        ] {
            if asked > limit {
                return Err(CreateQpError::Limit { what, asked, limit });
            }
        }
        let context = &pd.inner.context.inner;
        let init = QpInit {
            qp_type: options.qp_type,
            pd: pd.inner.id,
            send_cq: options.send_cq.id(),
            recv_cq: options.recv_cq.id(),
            srq: options.srq.as_ref().map(SharedReceiveQueue::id),
            xrcd: options.xrc_domain.as_ref().map(XrcDomain::id),
            capabilities: options.capabilities,
            signal_all: options.signal_all,
        };
        let qpn = context.device.create_qp(init, &context.events)?;
        Ok(Self {
            inner: Arc::new(QpInner {
                pd: pd.clone(),
                qpn,
                options,
            }),
        })
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.qpn
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// How it was made.
    pub fn options(&self) -> &QpOptions {
        &self.inner.options
    }

    /// Changes attributes that `mask` names.
    ///
    /// # Errors
    /// [`QpError::Modify`] names the attribute or transition at fault.
    pub fn modify(&self, attributes: &QpAttributes, mask: AttributeMask) -> Result<(), QpError> {
        self.device().modify_qp(self.inner.qpn, attributes, mask)
    }

    /// Its attributes.
    ///
    /// # Errors
    /// [`QpError::Unknown`], which cannot happen while it lives.
    pub fn query(&self) -> Result<QpAttributes, QpError> {
        Ok(self.device().query_qp(self.inner.qpn)?.0)
    }

    /// Posts send requests in order.
    ///
    /// # Errors
    /// [`PostListError`] names the first that was refused; earlier ones are posted.
    #[inline]
    pub fn post_send(
        &self,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<(), PostListError> {
        self.device().post_send(self.inner.qpn, requests)
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// [`PostListError`] names the first that was refused; earlier ones are posted.
    #[inline]
    pub fn post_recv(
        &self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<(), PostListError> {
        self.device().post_recv(self.inner.qpn, requests)
    }

    /// Whether it has joined multicast groups.
    pub fn is_attached(&self) -> bool {
        self.device()
            .with_nic(|nic| nic.is_attached(self.inner.qpn))
    }

    /// Joins a multicast group (UD).
    ///
    /// # Errors
    /// What the kernel said to the join.
    pub fn attach_multicast(&self, group: IpAddr) -> io::Result<()> {
        self.device().attach_multicast(self.inner.qpn, group)
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// If it was not joined.
    pub fn detach_multicast(&self, group: IpAddr) -> io::Result<()> {
        self.device().detach_multicast(self.inner.qpn, group)
    }

    /// Brings a connected queue pair from RESET to RTS in one call, with usual attributes.
    ///
    /// # Errors
    /// [`QpError::Modify`], as [`modify`](Self::modify) gives it.
    pub fn connect(&self, peer: &Peer) -> Result<(), QpError> {
        use AttributeMask as Mask;
        let rc = self.inner.options.qp_type != QpType::Uc;
        let mut attributes = QpAttributes {
            state: QpState::Init,
            access_flags: peer.access_flags,
            path: Some(peer.path),
            path_mtu: peer.path_mtu,
            dest_qpn: peer.qpn,
            rq_psn: peer.rq_psn,
            sq_psn: peer.sq_psn,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            ..QpAttributes::default()
        };
        self.modify(
            &attributes,
            Mask::STATE | Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS,
        )?;
        attributes.state = QpState::ReadyToReceive;
        let mut mask = Mask::STATE | Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
        if rc {
            mask = mask | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER;
        }
        self.modify(&attributes, mask)?;
        attributes.state = QpState::ReadyToSend;
        let mut mask = Mask::STATE | Mask::SQ_PSN;
        if rc {
            mask =
                mask | Mask::TIMEOUT | Mask::RETRY_COUNT | Mask::RNR_RETRY | Mask::MAX_QP_RD_ATOMIC;
        }
        self.modify(&attributes, mask)
    }

    fn device(&self) -> &feroce_engine::Device {
        &self.inner.pd.inner.context.inner.device
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// How to reach it.
    pub path: Path,
    /// Its queue pair.
    pub qpn: Qpn,
    /// First PSN that it sends.
    pub rq_psn: Psn,
    /// First PSN that we send.
    pub sq_psn: Psn,
    /// Path MTU, equal on both sides.
    pub path_mtu: Mtu,
    /// What the peer may do to our memory, `ibv_access_flags` bits.
    pub access_flags: u32,
}

/// How a shared receive queue is made.
#[derive(Clone, Debug)]
pub struct SrqOptions {
    /// Depth, entries per request, limit.
    pub attributes: SrqAttributes,
    /// For XRC: the domain and the queue for completions.
    pub xrc: Option<(XrcDomain, CompletionQueue)>,
}

/// A shared receive queue; destroyed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue {
    inner: Arc<SrqInner>,
}

#[derive(Debug)]
struct SrqInner {
    pd: ProtectionDomain,
    id: SrqId,
    options: SrqOptions,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let device = &self.pd.inner.context.inner.device;
        device.forget_srq(self.id);
        if device.with_nic(|nic| nic.destroy_srq(self.id)).is_err() {
            log::error!("shared receive queue {:#x} is still in use", self.id.0);
        }
    }
}

impl SharedReceiveQueue {
    pub(crate) fn new(pd: &ProtectionDomain, options: SrqOptions) -> Result<Self, CreateQpError> {
        let limits = Limits::DEVICE;
        for (what, asked, limit) in [
            ("max_wr", options.attributes.max_wr, limits.max_srq_wr),
            ("max_sge", options.attributes.max_sge, limits.max_sge),
        ] {
            if asked > limit {
                return Err(CreateQpError::Limit { what, asked, limit });
            }
        }
        let init = SrqInit {
            pd: pd.inner.id,
            attributes: options.attributes,
            xrc: options
                .xrc
                .as_ref()
                .map(|(domain, cq)| (domain.id(), cq.id())),
        };
        let context = &pd.inner.context.inner;
        let id = context.device.create_srq(init, &context.events)?;
        Ok(Self {
            inner: Arc::new(SrqInner {
                pd: pd.clone(),
                id,
                options,
            }),
        })
    }

    /// Its number.
    pub fn id(&self) -> SrqId {
        self.inner.id
    }

    /// Its protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// How it was made.
    pub fn options(&self) -> &SrqOptions {
        &self.inner.options
    }

    /// Whether queue pairs still use it.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// [`PostListError`] names the first that was refused; earlier ones are posted.
    pub fn post_recv(
        &self,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<(), PostListError> {
        self.inner
            .pd
            .inner
            .context
            .inner
            .device
            .post_srq_recv(self.inner.id, requests)
    }

    /// Its attributes.
    pub fn query(&self) -> SrqAttributes {
        let device = &self.inner.pd.inner.context.inner.device;
        device
            .with_nic(|nic| nic.query_srq(self.inner.id))
            .unwrap_or_default()
    }

    /// Changes the depth, or arms the limit event.
    ///
    /// # Errors
    /// [`CreateError`] when the new depth is below what is posted, or above the limit.
    pub fn modify(
        &self,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), feroce_proto::SrqError> {
        let device = &self.inner.pd.inner.context.inner.device;
        device.with_nic(|nic| nic.modify_srq(self.inner.id, max_wr, limit))
    }
}

/// An XRC domain. Clones are one.
#[derive(Clone, Debug)]
pub struct XrcDomain {
    inner: Arc<XrcInner>,
}

#[derive(Debug)]
struct XrcInner {
    context: Context,
    id: XrcdId,
}

impl XrcDomain {
    pub(crate) fn new(context: &Context) -> Self {
        let id = context.inner.device.alloc_xrcd();
        Self {
            inner: Arc::new(XrcInner {
                context: context.clone(),
                id,
            }),
        }
    }

    /// Its id towards the device.
    pub fn id(&self) -> XrcdId {
        self.inner.id
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Whether queues in it still live.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }
}
