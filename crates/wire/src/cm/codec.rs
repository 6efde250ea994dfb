//! The fields of every CM message, from and to its view: the only place that knows which bits of
//! a packed word mean what.

use super::fields::{Ece, PathFields, RejectedMessage, Transport};
use super::message::{
    Apr, AttributeId, Drep, Dreq, Lap, Message, Mra, Rej, Rep, Req, Rtu, SidrRep, SidrReq,
};
use super::reason::{AprStatus, RejectReason, SidrStatus};
use super::service::ServiceId;
use super::view::{
    AprView, Cut, DrepView, DreqView, LapView, MraView, PathView, RejView, RepView, ReqView,
    RtuView, SidrRepView, SidrReqView, Split24,
};
use crate::mad::MAD_DATA_LEN;
use crate::{Psn, Qpn};
use zerocopy::FromBytes;
use zerocopy::byteorder::network_endian::{U16, U32, U64};

impl Message {
    /// `None` only if `data` has a wrong length.
    pub(super) fn read(id: AttributeId, options: u32, data: &[u8]) -> Option<Self> {
        Some(match id {
            AttributeId::Req => Self::Req(Req::read(ReqView::ref_from_bytes(data).ok()?, options)),
            AttributeId::Mra => Self::Mra(Mra::read(MraView::ref_from_bytes(data).ok()?)),
            AttributeId::Rej => Self::Rej(Rej::read(RejView::ref_from_bytes(data).ok()?)),
            AttributeId::Rep => Self::Rep(Rep::read(RepView::ref_from_bytes(data).ok()?, options)),
            AttributeId::Rtu => Self::Rtu(Rtu::read(RtuView::ref_from_bytes(data).ok()?)),
            AttributeId::Dreq => Self::Dreq(Dreq::read(DreqView::ref_from_bytes(data).ok()?)),
            AttributeId::Drep => Self::Drep(Drep::read(DrepView::ref_from_bytes(data).ok()?)),
            AttributeId::SidrReq => {
                Self::SidrReq(SidrReq::read(SidrReqView::ref_from_bytes(data).ok()?))
            }
            AttributeId::SidrRep => Self::SidrRep(SidrRep::read(
                SidrRepView::ref_from_bytes(data).ok()?,
                options,
            )),
            AttributeId::Lap => Self::Lap(Lap::read(LapView::ref_from_bytes(data).ok()?)),
            AttributeId::Apr => Self::Apr(Apr::read(AprView::ref_from_bytes(data).ok()?)),
        })
    }

    pub(super) fn write(&self) -> [u8; MAD_DATA_LEN] {
        match self {
            Self::Req(req) => zerocopy::transmute!(req.write()),
            Self::Mra(mra) => zerocopy::transmute!(mra.write()),
            Self::Rej(rej) => zerocopy::transmute!(rej.write()),
            Self::Rep(rep) => zerocopy::transmute!(rep.write()),
            Self::Rtu(rtu) => zerocopy::transmute!(rtu.write()),
            Self::Dreq(dreq) => zerocopy::transmute!(dreq.write()),
            Self::Drep(drep) => zerocopy::transmute!(drep.write()),
            Self::SidrReq(req) => zerocopy::transmute!(req.write()),
            Self::SidrRep(rep) => zerocopy::transmute!(rep.write()),
            Self::Lap(lap) => zerocopy::transmute!(lap.write()),
            Self::Apr(apr) => zerocopy::transmute!(apr.write()),
        }
    }
}

impl PathFields {
    fn read(view: &PathView) -> Self {
        let word = view.flow_label_and_rate.get();
        Self {
            local_lid: view.local_lid.get(),
            remote_lid: view.remote_lid.get(),
            local_gid: view.local_gid,
            remote_gid: view.remote_gid,
            flow_label: word >> 12,
            packet_rate: word.to_be_bytes()[3] & 0x3f,
            traffic_class: view.traffic_class,
            hop_limit: view.hop_limit,
            service_level: view.service_level.high(),
            subnet_local: view.service_level.low() & 8 != 0,
            local_ack_timeout: view.local_ack_timeout.high(),
        }
    }

    fn write(&self) -> PathView {
        PathView {
            local_lid: U16::new(self.local_lid),
            remote_lid: U16::new(self.remote_lid),
            local_gid: self.local_gid,
            remote_gid: self.remote_gid,
            flow_label_and_rate: U32::new(
                self.flow_label << 12 | u32::from(self.packet_rate & 0x3f),
            ),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            service_level: Cut::new(self.service_level, u8::from(self.subnet_local) << 3),
            local_ack_timeout: Cut::new(self.local_ack_timeout, 0),
        }
    }
}

impl Req {
    fn read(view: &ReqView, options: u32) -> Self {
        let answer = Cut::<3>::from_byte(view.remote_eecn.byte());
        let own = Cut::<3>::from_byte(view.starting_psn.byte());
        Self {
            local_comm_id: view.local_comm_id.get(),
            ece: Ece {
                vendor_id: view.vendor_id.get() & 0xff_ffff,
                options,
            },
            service_id: ServiceId(view.service_id.get()),
            local_ca_guid: view.local_ca_guid.get(),
            local_qkey: view.local_qkey.get(),
            local_qpn: Qpn::new(view.qpn.number()),
            responder_resources: view.qpn.byte(),
            local_eecn: view.local_eecn.number(),
            initiator_depth: view.local_eecn.byte(),
            remote_eecn: view.remote_eecn.number(),
            remote_cm_response_timeout: answer.high(),
            transport: Transport::from_codes(answer.low() >> 1, view.max_cm_retries.low() & 7),
            flow_control: answer.low() & 1 != 0,
            starting_psn: Psn::new(view.starting_psn.number()),
            local_cm_response_timeout: own.high(),
            retry_count: own.low(),
            pkey: view.pkey.get(),
            path_mtu: view.path_mtu.high(),
            rdc_exists: view.path_mtu.low() & 8 != 0,
            rnr_retry_count: view.path_mtu.low() & 7,
            max_cm_retries: view.max_cm_retries.high(),
            srq: view.max_cm_retries.low() & 8 != 0,
            primary: PathFields::read(&view.primary),
            alternate: PathFields::read(&view.alternate),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> ReqView {
        let (service, extended) = self.transport.codes();
        let answer = Cut::<3>::new(
            self.remote_cm_response_timeout,
            service << 1 | u8::from(self.flow_control),
        );
        let own = Cut::<3>::new(self.local_cm_response_timeout, self.retry_count);
        ReqView {
            local_comm_id: U32::new(self.local_comm_id),
            vendor_id: U32::new(self.ece.vendor_id & 0xff_ffff),
            service_id: U64::new(self.service_id.0),
            local_ca_guid: U64::new(self.local_ca_guid),
            reserved: U32::ZERO,
            local_qkey: U32::new(self.local_qkey),
            qpn: Split24::new(self.local_qpn.value(), self.responder_resources),
            local_eecn: Split24::new(self.local_eecn, self.initiator_depth),
            remote_eecn: Split24::new(self.remote_eecn, answer.byte()),
            starting_psn: Split24::new(self.starting_psn.value(), own.byte()),
            pkey: U16::new(self.pkey),
            path_mtu: Cut::new(
                self.path_mtu,
                u8::from(self.rdc_exists) << 3 | (self.rnr_retry_count & 7),
            ),
            max_cm_retries: Cut::new(
                self.max_cm_retries,
                u8::from(self.srq) << 3 | (extended & 7),
            ),
            primary: self.primary.write(),
            alternate: self.alternate.write(),
            private_data: self.private_data,
        }
    }
}

impl Mra {
    fn read(view: &MraView) -> Self {
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            message: RejectedMessage::from_bits(view.message.high()),
            service_timeout: view.service_timeout.high(),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> MraView {
        MraView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            message: Cut::new(self.message as u8, 0),
            service_timeout: Cut::new(self.service_timeout, 0),
            private_data: self.private_data,
        }
    }
}

impl Rej {
    fn read(view: &RejView) -> Self {
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            message: RejectedMessage::from_bits(view.message.high()),
            information_len: view.information_len.high(),
            reason: RejectReason(view.reason.get()),
            information: view.information,
            private_data: view.private_data,
        }
    }

    fn write(&self) -> RejView {
        RejView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            message: Cut::new(self.message as u8, 0),
            information_len: Cut::new(self.information_len, 0),
            reason: U16::new(self.reason.0),
            information: self.information,
            private_data: self.private_data,
        }
    }
}

impl Rep {
    fn read(view: &RepView, options: u32) -> Self {
        let vendor = [
            0,
            view.qpn.byte(),
            view.local_eecn.byte(),
            view.starting_psn.byte(),
        ];
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            local_qkey: view.local_qkey.get(),
            local_qpn: Qpn::new(view.qpn.number()),
            local_eecn: view.local_eecn.number(),
            ece: Ece {
                vendor_id: u32::from_be_bytes(vendor),
                options,
            },
            starting_psn: Psn::new(view.starting_psn.number()),
            responder_resources: view.responder_resources,
            initiator_depth: view.initiator_depth,
            target_ack_delay: view.target_ack_delay.high(),
            failover_accepted: view.target_ack_delay.low() >> 1,
            flow_control: view.target_ack_delay.low() & 1 != 0,
            rnr_retry_count: view.rnr_retry_count.high(),
            srq: view.rnr_retry_count.low() & 0x10 != 0,
            local_ca_guid: view.local_ca_guid.get(),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> RepView {
        let [_, high, middle, low] = self.ece.vendor_id.to_be_bytes();
        RepView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            local_qkey: U32::new(self.local_qkey),
            qpn: Split24::new(self.local_qpn.value(), high),
            local_eecn: Split24::new(self.local_eecn, middle),
            starting_psn: Split24::new(self.starting_psn.value(), low),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            target_ack_delay: Cut::new(
                self.target_ack_delay,
                (self.failover_accepted & 3) << 1 | u8::from(self.flow_control),
            ),
            rnr_retry_count: Cut::new(self.rnr_retry_count, u8::from(self.srq) << 4),
            local_ca_guid: U64::new(self.local_ca_guid),
            private_data: self.private_data,
        }
    }
}

impl Rtu {
    fn read(view: &RtuView) -> Self {
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> RtuView {
        RtuView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            private_data: self.private_data,
        }
    }
}

impl Dreq {
    fn read(view: &DreqView) -> Self {
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            remote_qpn: Qpn::new(view.remote_qpn.number()),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> DreqView {
        DreqView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            remote_qpn: Split24::new(self.remote_qpn.value(), 0),
            private_data: self.private_data,
        }
    }
}

impl Drep {
    fn read(view: &DrepView) -> Self {
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> DrepView {
        DrepView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            private_data: self.private_data,
        }
    }
}

impl Lap {
    fn read(view: &LapView) -> Self {
        let word = view.flow_label_and_class.get();
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            remote_qpn: Qpn::new(view.remote_qpn.number()),
            remote_cm_response_timeout: view.remote_qpn.byte() >> 3,
            path: PathFields {
                local_lid: view.local_lid.get(),
                remote_lid: view.remote_lid.get(),
                local_gid: view.local_gid,
                remote_gid: view.remote_gid,
                flow_label: word >> 12,
                packet_rate: view.packet_rate.low(),
                traffic_class: word.to_be_bytes()[3],
                hop_limit: view.hop_limit,
                service_level: view.service_level.high(),
                subnet_local: view.service_level.low() & 8 != 0,
                local_ack_timeout: view.local_ack_timeout.high(),
            },
            private_data: view.private_data,
        }
    }

    fn write(&self) -> LapView {
        let path = &self.path;
        LapView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            reserved: U32::ZERO,
            remote_qpn: Split24::new(
                self.remote_qpn.value(),
                self.remote_cm_response_timeout << 3,
            ),
            reserved_2: U32::ZERO,
            local_lid: U16::new(path.local_lid),
            remote_lid: U16::new(path.remote_lid),
            local_gid: path.local_gid,
            remote_gid: path.remote_gid,
            flow_label_and_class: U32::new(path.flow_label << 12 | u32::from(path.traffic_class)),
            hop_limit: path.hop_limit,
            packet_rate: Cut::new(0, path.packet_rate),
            service_level: Cut::new(path.service_level, u8::from(path.subnet_local) << 3),
            local_ack_timeout: Cut::new(path.local_ack_timeout, 0),
            private_data: self.private_data,
        }
    }
}

impl Apr {
    fn read(view: &AprView) -> Self {
        Self {
            local_comm_id: view.local_comm_id.get(),
            remote_comm_id: view.remote_comm_id.get(),
            information_len: view.information_len,
            status: AprStatus(view.status),
            information: view.information,
            private_data: view.private_data,
        }
    }

    fn write(&self) -> AprView {
        AprView {
            local_comm_id: U32::new(self.local_comm_id),
            remote_comm_id: U32::new(self.remote_comm_id),
            information_len: self.information_len,
            status: self.status.0,
            reserved: U16::ZERO,
            information: self.information,
            private_data: self.private_data,
        }
    }
}

impl SidrReq {
    fn read(view: &SidrReqView) -> Self {
        Self {
            request_id: view.request_id.get(),
            pkey: view.pkey.get(),
            service_id: ServiceId(view.service_id.get()),
            private_data: view.private_data,
        }
    }

    fn write(&self) -> SidrReqView {
        SidrReqView {
            request_id: U32::new(self.request_id),
            pkey: U16::new(self.pkey),
            reserved: U16::ZERO,
            service_id: U64::new(self.service_id.0),
            private_data: self.private_data,
        }
    }
}

impl SidrRep {
    fn read(view: &SidrRepView, options: u32) -> Self {
        let vendor_high = u32::from(view.vendor_id_high.get());
        Self {
            request_id: view.request_id.get(),
            status: SidrStatus(view.status),
            information_len: view.information_len,
            ece: Ece {
                vendor_id: vendor_high << 8 | u32::from(view.qpn.byte()),
                options,
            },
            qpn: Qpn::new(view.qpn.number()),
            service_id: ServiceId(view.service_id.get()),
            qkey: view.qkey.get(),
            information: view.information,
            private_data: view.private_data,
        }
    }

    fn write(&self) -> SidrRepView {
        let [_, high, middle, low] = self.ece.vendor_id.to_be_bytes();
        SidrRepView {
            request_id: U32::new(self.request_id),
            status: self.status.0,
            information_len: self.information_len,
            vendor_id_high: U16::new(u16::from_be_bytes([high, middle])),
            qpn: Split24::new(self.qpn.value(), low),
            service_id: U64::new(self.service_id.0),
            qkey: U32::new(self.qkey),
            information: self.information,
            private_data: self.private_data,
        }
    }
}
