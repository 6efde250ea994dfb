//! The queue pairs of the device under test, and who they are connected to.

use super::host::FuzzHost;
use super::{SRQ, XRCD};
use feroce_proto::{
    AttributeMask, CqId, Instant, Mtu, Nic, Path, PdId, QpAttributes, QpCapabilities, QpInit,
    QpState, QpType, SrqId, XrcdId,
};
use feroce_wire::{Psn, Qpn, Service};
use std::net::{IpAddr, Ipv4Addr};

pub(super) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// An address that no queue pair is connected to.
pub(super) const FOREIGN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

pub(super) const PD: PdId = PdId(1);
pub(super) const SENDS: CqId = CqId(1);
pub(super) const RECEIVES: CqId = CqId(2);
pub(super) const QKEY: u32 = 0x1111_1111;

/// One queue pair.
#[derive(Debug)]
pub(super) struct PairOf {
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    srq: Option<SrqId>,
    xrcd: Option<XrcdId>,
    /// What peers may do, as `ibv_access_flags`.
    access_flags: u32,
}

/// Local write, remote write, read and atomics, flush.
const ALL: u32 = 0x30f;

/// May be reached by SENDs only.
pub(super) const CLOSED: Qpn = Qpn::new(23);

const fn pair(qpn: u32, qp_type: QpType) -> PairOf {
    PairOf {
        qpn: Qpn::new(qpn),
        qp_type,
        srq: None,
        xrcd: None,
        access_flags: ALL,
    }
}

pub(super) const QPS: [PairOf; 7] = [
    pair(17, QpType::Rc),
    pair(18, QpType::Uc),
    pair(19, QpType::Ud),
    PairOf {
        srq: Some(SRQ),
        ..pair(20, QpType::Rc)
    },
    pair(21, QpType::XrcSend),
    PairOf {
        xrcd: Some(XRCD),
        ..pair(22, QpType::XrcRecv)
    },
    PairOf {
        access_flags: 0,
        ..pair(CLOSED.value(), QpType::Rc)
    },
];

/// The queue pair that a byte stands for.
pub(super) fn pick(number: u8) -> &'static PairOf {
    static ALL_QPS: [PairOf; 7] = QPS;
    &ALL_QPS[usize::from(number) % ALL_QPS.len()]
}

/// Whether packets for a queue pair may come from anywhere.
pub(super) fn is_datagram(qpn: Qpn) -> bool {
    QPS.iter()
        .any(|qp| qp.qpn == qpn && qp.qp_type == QpType::Ud)
}

impl PairOf {
    pub(super) const fn service(&self) -> Service {
        match self.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
            QpType::XrcSend | QpType::XrcRecv => Service::Xrc,
        }
    }

    /// Creates the queue pair and takes it to RTS.
    pub(super) fn connect(&self, nic: &mut Nic, host: &mut FuzzHost, now: Instant, mtu: Mtu) {
        let init = QpInit {
            qp_type: self.qp_type,
            pd: PD,
            send_cq: SENDS,
            recv_cq: RECEIVES,
            srq: self.srq,
            xrcd: self.xrcd,
            capabilities: QpCapabilities {
                max_send_wr: 8,
                max_recv_wr: 8,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            signal_all: true,
        };
        nic.create_qp(self.qpn, init).expect("a free number");
        let attributes = QpAttributes {
            access_flags: self.access_flags,
            qkey: QKEY,
            path: Some(path(PEER)),
            path_mtu: mtu,
            timeout: 10,
            retry_count: 3,
            rnr_retry: 2,
            rq_psn: Psn::new(0xff_fff0),
            sq_psn: Psn::new(0xff_fff8),
            max_rd_atomic: 2,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 1,
            dest_qpn: Qpn::new(self.qpn.value() + 100),
            ..QpAttributes::default()
        };
        for (state, mask) in self.steps() {
            let attributes = QpAttributes {
                state,
                ..attributes
            };
            nic.modify_qp(now, self.qpn, &attributes, mask, host)
                .expect("a step of the table");
        }
    }

    /// The attributes that each step to RTS needs (`ibv_modify_qp(3)`).
    fn steps(&self) -> [(QpState, AttributeMask); 3] {
        type M = AttributeMask;
        let reliable_target = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let reliable_source =
            M::TIMEOUT | M::RETRY_COUNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC | M::SQ_PSN;
        let connect = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let (init, receive, send) = match self.qp_type {
            QpType::Rc => (M::ACCESS_FLAGS, connect | reliable_target, reliable_source),
            QpType::Uc => (M::ACCESS_FLAGS, connect, M::SQ_PSN),
            QpType::Ud => (M::QKEY, M::default(), M::SQ_PSN),
            QpType::XrcSend => (M::ACCESS_FLAGS, connect, reliable_source),
            QpType::XrcRecv => (
                M::ACCESS_FLAGS,
                connect | reliable_target,
                M::TIMEOUT | M::SQ_PSN,
            ),
        };
        [
            (QpState::Init, M::STATE | M::PKEY_INDEX | M::PORT | init),
            (QpState::ReadyToReceive, M::STATE | receive),
            (QpState::ReadyToSend, M::STATE | send),
        ]
    }
}

/// From us to `destination`.
pub(super) const fn path(destination: IpAddr) -> Path {
    Path {
        source: HERE,
        destination,
        traffic_class: 2,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        source_gid_index: 0,
    }
}
