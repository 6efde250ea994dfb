//! What a queue pair is made of, collected from the C attributes.

use feroce_verbs::{
    CompletionQueue, CqOptions, ProtectionDomain, QpType, SharedReceiveQueue, XrcDomain,
};
use feroce_verbs_abi as abi;

use crate::guard::Failure;
use crate::{cq, pd, srq, xrcd};

/// What a queue pair is made of.
pub(super) struct Parts {
    pub(super) context: *mut abi::ibv_context,
    pub(super) pd: ProtectionDomain,
    pub(super) send_cq: CompletionQueue,
    pub(super) recv_cq: CompletionQueue,
    pub(super) srq: Option<SharedReceiveQueue>,
    pub(super) xrc_domain: Option<XrcDomain>,
}

impl Parts {
    /// # Safety
    /// What `init` points to is live.
    pub(super) unsafe fn collect(
        init: &abi::ibv_qp_init_attr_ex,
        qp_type: QpType,
    ) -> Result<Self, Failure> {
        if qp_type == QpType::XrcRecv {
            // SAFETY: the caller's contract.
            return unsafe { Self::of_xrc_target(init) };
        }
        if init.comp_mask & abi::IBV_QP_INIT_ATTR_PD == 0 {
            return Err(Failure::invalid("comp_mask lacks IBV_QP_INIT_ATTR_PD"));
        }
        // SAFETY: the caller's contract; an XRC initiator has no receive queue.
        unsafe {
            let send_cq = cq::state(init.send_cq)?.cq.clone();
            let recv_cq = if qp_type == QpType::XrcSend && init.recv_cq.is_null() {
                send_cq.clone()
            } else {
                cq::state(init.recv_cq)?.cq.clone()
            };
            let srq = if init.srq.is_null() || qp_type == QpType::XrcSend {
                None
            } else {
                Some(srq::state(init.srq)?.srq.clone())
            };
            let pd = ProtectionDomain::clone(&pd::state(init.pd)?.pd);
            let context = (*init.pd).context;
            Ok(Self {
                context,
                pd,
                send_cq,
                recv_cq,
                srq,
                xrc_domain: None,
            })
        }
    }

    /// An XRC target has neither domain nor queues: it serves every SRQ of its XRC domain. The
    /// protocol wants some, so it gets its own.
    ///
    /// # Safety
    /// What `init` points to is live.
    unsafe fn of_xrc_target(init: &abi::ibv_qp_init_attr_ex) -> Result<Self, Failure> {
        if init.comp_mask & abi::IBV_QP_INIT_ATTR_XRCD == 0 {
            return Err(Failure::invalid("comp_mask lacks IBV_QP_INIT_ATTR_XRCD"));
        }
        // SAFETY: the caller's contract.
        let (domain, context) = unsafe { (xrcd::state(init.xrcd)?.clone(), (*init.xrcd).context) };
        let unused = domain
            .context()
            .create_cq(CqOptions::with_capacity(1))
            .map_err(|error| Failure::invalid(error.to_string()))?;
        Ok(Self {
            context,
            pd: domain.context().alloc_pd(),
            send_cq: unused.clone(),
            recv_cq: unused,
            srq: None,
            xrc_domain: Some(domain),
        })
    }
}
