//! `modify_qp`: the state table (IBTA 10.3.1, table 91; the mask rules of `ibv_modify_qp(3)`) and
//! what each edge does.
//!
//! Judged first, applied after: a refused modify changes nothing.

use crate::dcqcn::Pacer;
use crate::error::Names;
use crate::qp::{Context, Qp};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::{
    AttributeMask as M, CongestionControl, Host, ModifyError, QpAttributes, QpState, QpType,
};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::IpAddr;

/// What an edge needs and what it may carry besides.
struct Edge {
    required: M,
    optional: M,
}

/// `None` where the state table has no edge.
const fn edge(qp_type: QpType, from: QpState, to: QpState) -> Option<Edge> {
    use QpState as S;
    let ud = matches!(qp_type, QpType::Ud);
    let (required, optional) = match (from, to) {
        (_, S::Reset | S::Error) => (0, 0),
        (S::Reset, S::Init) => (PKEY | PORT | if ud { QKEY } else { ACCESS }, 0),
        (S::Init, S::Init) => (0, PKEY | PORT | if ud { QKEY } else { ACCESS }),
        (S::Init, S::ReadyToReceive) => to_receive(qp_type),
        // MIN_RNR_TIMER alone, without a state, is what several programs send.
        (S::ReadyToReceive, S::ReadyToReceive) => (0, if ud { QKEY } else { MIN_RNR | ACCESS }),
        (S::ReadyToReceive, S::ReadyToSend) => to_send(qp_type),
        (S::ReadyToSend | S::SqDrained, S::ReadyToSend) => (
            0,
            CUR_STATE
                | RATE
                | if ud {
                    QKEY
                } else {
                    ALT | ACCESS | MIG | MIN_RNR
                },
        ),
        (S::ReadyToSend, S::SqDrained) => (0, NOTIFY),
        (S::SqDrained, S::SqDrained) => (0, while_drained(qp_type)),
        (S::SqError, S::ReadyToSend) => match qp_type {
            QpType::Ud => (0, CUR_STATE | QKEY),
            QpType::Uc => (0, CUR_STATE | ACCESS),
            _ => return None,
        },
        _ => return None,
    };
    Some(Edge {
        required: M(required),
        optional: M(optional),
    })
}

const fn to_receive(qp_type: QpType) -> (u32, u32) {
    const CONNECTED: u32 = AV | MTU | DEST_QPN | RQ_PSN;
    const OPTIONAL: u32 = ALT | ACCESS | PKEY;
    match qp_type {
        QpType::Ud => (0, PKEY | QKEY),
        QpType::Uc => (CONNECTED, OPTIONAL),
        // Programs set up both halves of XRC alike (perftest): what only the other half uses is
        // accepted and has no effect.
        QpType::XrcSend => (CONNECTED, OPTIONAL | MAX_DEST_RD | MIN_RNR),
        QpType::Rc | QpType::XrcRecv => (CONNECTED | MAX_DEST_RD | MIN_RNR, OPTIONAL),
    }
}

const fn to_send(qp_type: QpType) -> (u32, u32) {
    const OPTIONAL: u32 = CUR_STATE | ALT | ACCESS | MIG;
    match qp_type {
        QpType::Ud => (SQ_PSN, CUR_STATE | QKEY | RATE),
        QpType::Uc => (SQ_PSN, OPTIONAL | RATE),
        QpType::Rc => (RELIABLE_SEND, OPTIONAL | MIN_RNR | RATE),
        QpType::XrcSend => (RELIABLE_SEND, OPTIONAL | RATE),
        QpType::XrcRecv => (
            TIMEOUT | SQ_PSN,
            OPTIONAL | MIN_RNR | RETRY | RNR_RETRY | MAX_RD,
        ),
    }
}

const fn while_drained(qp_type: QpType) -> u32 {
    const CONNECTED: u32 = AV | ALT | ACCESS | PKEY | MIG;
    const SENDS: u32 = TIMEOUT | RETRY | RNR_RETRY | MAX_RD;
    match qp_type {
        QpType::Ud => PKEY | QKEY,
        QpType::Uc => CONNECTED,
        QpType::Rc => CONNECTED | PORT | SENDS | MAX_DEST_RD | MIN_RNR,
        QpType::XrcSend => CONNECTED | PORT | SENDS,
        QpType::XrcRecv => CONNECTED | PORT | TIMEOUT | MAX_DEST_RD | MIN_RNR,
    }
}

/// The ECN field of a traffic class, and its value ECT(0) (RFC 3168).
const ECN_MASK: u8 = 3;
const ECN_CAPABLE: u8 = 2;

const CUR_STATE: u32 = M::CURRENT_STATE.0;
const NOTIFY: u32 = M::EN_SQD_ASYNC_NOTIFY.0;
const ACCESS: u32 = M::ACCESS_FLAGS.0;
const PKEY: u32 = M::PKEY_INDEX.0;
const PORT: u32 = M::PORT.0;
const QKEY: u32 = M::QKEY.0;
const AV: u32 = M::AV.0;
const MTU: u32 = M::PATH_MTU.0;
const TIMEOUT: u32 = M::TIMEOUT.0;
const RETRY: u32 = M::RETRY_COUNT.0;
const RNR_RETRY: u32 = M::RNR_RETRY.0;
const RQ_PSN: u32 = M::RQ_PSN.0;
const MAX_RD: u32 = M::MAX_QP_RD_ATOMIC.0;
const ALT: u32 = M::ALT_PATH.0;
const MIN_RNR: u32 = M::MIN_RNR_TIMER.0;
const SQ_PSN: u32 = M::SQ_PSN.0;
const MAX_DEST_RD: u32 = M::MAX_DEST_RD_ATOMIC.0;
const MIG: u32 = M::PATH_MIG_STATE.0;
const DEST_QPN: u32 = M::DEST_QPN.0;
const RATE: u32 = M::RATE_LIMIT.0;
const RELIABLE_SEND: u32 = TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | MAX_RD;

impl Qp {
    /// Judges a modify and applies it.
    pub(crate) fn modify<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        attributes: &QpAttributes,
        mask: M,
    ) -> Result<(), ModifyError> {
        let from = self.state();
        let to = if mask.contains(M::STATE) {
            attributes.state
        } else {
            from
        };
        self.check_mask(from, to, mask)?;
        if mask.contains(M::CURRENT_STATE) && attributes.current_state != from {
            return Err(ModifyError::CurrentState {
                said: attributes.current_state,
                is: from,
            });
        }
        check_values(attributes, mask)?;
        if mask.contains(M::PATH_MTU) && attributes.path_mtu > cx.shared.config.path_mtu_max {
            return Err(ModifyError::PathMtu {
                asked: attributes.path_mtu,
                max: cx.shared.config.path_mtu_max,
            });
        }
        self.take_over(cx, attributes, mask);
        self.change_state(cx, from, to);
        Ok(())
    }

    fn check_mask(&self, from: QpState, to: QpState, mask: M) -> Result<(), ModifyError> {
        let qp_type = self.init.qp_type;
        let edge = edge(qp_type, from, to).ok_or(ModifyError::Transition { qp_type, from, to })?;
        let missing = M(edge.required.0 & !mask.0);
        if missing.0 != 0 {
            return Err(ModifyError::Missing {
                from,
                to,
                missing: Names(missing),
            });
        }
        let extra = M(mask.0 & !(edge.required.0 | edge.optional.0 | M::STATE.0));
        if extra.0 != 0 {
            return Err(ModifyError::NotAllowed {
                from,
                to,
                extra: Names(extra),
            });
        }
        Ok(())
    }

    /// Copies what the mask names.
    fn take_over<H: Host>(&mut self, cx: &mut Context<'_, H>, new: &QpAttributes, mask: M) {
        let limit = cx
            .shared
            .config
            .max_rd_atomic
            .min(crate::config::RD_ATOMIC_MAX);
        let own = &mut self.attributes;
        let mut take = |bit: M, set: &mut dyn FnMut(&mut QpAttributes)| {
            if mask.contains(bit) {
                set(own);
            }
        };
        take(M::ACCESS_FLAGS, &mut |own| {
            own.access_flags = new.access_flags
        });
        take(M::PKEY_INDEX, &mut |own| own.pkey_index = new.pkey_index);
        take(M::PORT, &mut |own| own.port = new.port);
        take(M::QKEY, &mut |own| own.qkey = new.qkey);
        take(M::AV, &mut |own| own.path = new.path);
        take(M::PATH_MTU, &mut |own| own.path_mtu = new.path_mtu);
        take(M::TIMEOUT, &mut |own| own.timeout = new.timeout);
        take(M::RETRY_COUNT, &mut |own| own.retry_count = new.retry_count);
        take(M::RNR_RETRY, &mut |own| own.rnr_retry = new.rnr_retry);
        take(M::RQ_PSN, &mut |own| own.rq_psn = new.rq_psn);
        take(M::SQ_PSN, &mut |own| own.sq_psn = new.sq_psn);
        take(M::MAX_QP_RD_ATOMIC, &mut |own| {
            own.max_rd_atomic = new.max_rd_atomic.min(limit);
        });
        take(M::MAX_DEST_RD_ATOMIC, &mut |own| {
            own.max_dest_rd_atomic = new.max_dest_rd_atomic.min(limit);
        });
        take(M::MIN_RNR_TIMER, &mut |own| {
            own.min_rnr_timer = new.min_rnr_timer
        });
        take(M::DEST_QPN, &mut |own| own.dest_qpn = new.dest_qpn);
        take(M::RATE_LIMIT, &mut |own| own.rate_limit = new.rate_limit);
        take(M::EN_SQD_ASYNC_NOTIFY, &mut |own| {
            own.en_sqd_async_notify = new.en_sqd_async_notify;
        });
        if mask.contains(M::AV) || mask.contains(M::DEST_QPN) {
            self.follow_path(cx);
        }
        if mask.contains(M::RETRY_COUNT) || mask.contains(M::RNR_RETRY) {
            let own = &self.attributes;
            self.requester.set_retries(own.retry_count, own.rnr_retry);
        }
        if mask.contains(M::RATE_LIMIT) {
            self.set_rate(cx);
        }
    }

    /// The path has been set: the envelope of every packet, and the peer's window.
    fn follow_path<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        let Some(path) = self.attributes.path else {
            return;
        };
        self.envelope = self.envelope_to(&path, self.attributes.dest_qpn);
        if cx.shared.config.congestion != CongestionControl::None {
            self.envelope.traffic_class = self.envelope.traffic_class & !ECN_MASK | ECN_CAPABLE;
        }
        if self.is_reliable() {
            self.detach_window(cx.shared);
            self.window = Some(cx.shared.windows.attach(path.destination));
        }
    }

    /// A pacer, where a rate limit or congestion control may need one.
    fn set_rate<H: Host>(&mut self, cx: &Context<'_, H>) {
        const BYTES_PER_KILOBIT: u64 = 125;
        let limit = u64::from(self.attributes.rate_limit) * BYTES_PER_KILOBIT;
        let dcqcn = match cx.shared.config.congestion {
            CongestionControl::Dcqcn(parameters) if self.init.qp_type != QpType::Ud => {
                Some(parameters)
            }
            _ => None,
        };
        match &mut self.pacer {
            Some(pacer) => pacer.set_limit(limit),
            None if limit > 0 || dcqcn.is_some() => {
                self.pacer = Some(Box::new(Pacer::new(limit, dcqcn)));
            }
            None => {}
        }
    }

    fn change_state<H: Host>(&mut self, cx: &mut Context<'_, H>, from: QpState, to: QpState) {
        use QpState as S;
        match (from, to) {
            (_, S::Reset) => return self.reset(cx),
            (S::Error, S::Error) => {}
            (_, S::Error) => {
                self.responder.fall_silent();
                return self.enter_error(cx);
            }
            (S::Init, S::ReadyToReceive) => {
                self.established = false;
                self.responder.begin(self.attributes.rq_psn);
                self.set_rate(cx);
            }
            (S::ReadyToReceive, S::ReadyToSend) => {
                let own = &self.attributes;
                self.requester
                    .begin(own.sq_psn, own.retry_count, own.rnr_retry);
            }
            _ => {}
        }
        self.attributes.state = to;
        self.attributes.current_state = to;
        match (from, to) {
            (S::ReadyToSend, S::SqDrained) => {
                self.attributes.sq_draining = true;
                self.report_drained(cx);
            }
            (_, S::ReadyToSend) => {
                self.attributes.sq_draining = false;
                cx.schedule();
            }
            _ => {}
        }
    }

    /// Back to how it was created: requests vanish without completions (IBTA 10.3.1).
    fn reset<H: Host>(&mut self, cx: &mut Context<'_, H>) {
        self.detach_window(cx.shared);
        cx.shared.ready.remove(self.index);
        cx.shared.timers.forget(self.index);
        let groups = self.groups;
        *self = Self::new(self.index, self.qpn, self.init);
        self.groups = groups;
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.receives = VecDeque::new();
    }
}

/// Values that no state makes right.
fn check_values(attributes: &QpAttributes, mask: M) -> Result<(), ModifyError> {
    let in_range = |bit: M, attribute, value: u32, max: u32| {
        if mask.contains(bit) && value > max {
            return Err(ModifyError::OutOfRange {
                attribute,
                value,
                max,
            });
        }
        Ok(())
    };
    let a = attributes;
    in_range(M::PKEY_INDEX, "pkey_index", a.pkey_index.into(), 0)?;
    in_range(M::PORT, "port_num", a.port.into(), 1)?;
    in_range(M::TIMEOUT, "timeout", a.timeout.into(), 31)?;
    in_range(M::RETRY_COUNT, "retry_cnt", a.retry_count.into(), 7)?;
    in_range(M::RNR_RETRY, "rnr_retry", a.rnr_retry.into(), 7)?;
    in_range(
        M::MIN_RNR_TIMER,
        "min_rnr_timer",
        a.min_rnr_timer.into(),
        31,
    )?;
    if mask.contains(M::PORT) && a.port == 0 {
        return Err(ModifyError::OutOfRange {
            attribute: "port_num (ports count from 1)",
            value: 0,
            max: 1,
        });
    }
    let same_family = |path: crate::Path| {
        matches!(
            (path.source, path.destination),
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_))
        )
    };
    if mask.contains(M::AV) && !a.path.is_some_and(same_family) {
        return Err(ModifyError::Path);
    }
    Ok(())
}
