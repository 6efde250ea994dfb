//! Types, states, capacities and attributes of queue pairs. Not here: which attributes a
//! transition needs or allows; that is the state table of the protocol.

use std::ffi::c_int;

use feroce_verbs::{AttributeMask, Mtu, Path, QpAttributes, QpCapabilities, QpState, QpType};
use feroce_verbs::{Psn, Qpn};
use feroce_verbs_abi as abi;

use super::address;
use crate::guard::Failure;

/// The services that Feroce's device offers.
pub(crate) fn qp_type(value: abi::ibv_qp_type) -> Result<QpType, Failure> {
    Ok(match value {
        abi::IBV_QPT_RC => QpType::Rc,
        abi::IBV_QPT_UC => QpType::Uc,
        abi::IBV_QPT_UD => QpType::Ud,
        abi::IBV_QPT_XRC_SEND => QpType::XrcSend,
        abi::IBV_QPT_XRC_RECV => QpType::XrcRecv,
        abi::IBV_QPT_RAW_PACKET | abi::IBV_QPT_DRIVER => {
            return Err(Failure::unsupported(format!(
                "qp_type {value} is not offered: RC, UC, UD and XRC are"
            )));
        }
        _ => return Err(Failure::invalid(format!("qp_type {value} does not exist"))),
    })
}

/// A state; `field` names it in the message.
pub(crate) fn state(value: abi::ibv_qp_state, field: &str) -> Result<QpState, Failure> {
    Ok(match value {
        abi::IBV_QPS_RESET => QpState::Reset,
        abi::IBV_QPS_INIT => QpState::Init,
        abi::IBV_QPS_RTR => QpState::ReadyToReceive,
        abi::IBV_QPS_RTS => QpState::ReadyToSend,
        abi::IBV_QPS_SQD => QpState::SqDrained,
        abi::IBV_QPS_SQE => QpState::SqError,
        abi::IBV_QPS_ERR => QpState::Error,
        _ => return Err(Failure::invalid(format!("{field} {value} does not exist"))),
    })
}

/// The C name of a state.
pub(crate) const fn state_to_c(state: QpState) -> abi::ibv_qp_state {
    match state {
        QpState::Reset => abi::IBV_QPS_RESET,
        QpState::Init => abi::IBV_QPS_INIT,
        QpState::ReadyToReceive => abi::IBV_QPS_RTR,
        QpState::ReadyToSend => abi::IBV_QPS_RTS,
        QpState::SqDrained => abi::IBV_QPS_SQD,
        QpState::SqError => abi::IBV_QPS_SQE,
        QpState::Error => abi::IBV_QPS_ERR,
    }
}

/// Capacities as asked for.
pub(crate) fn capabilities(cap: &abi::ibv_qp_cap) -> QpCapabilities {
    QpCapabilities {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// Capacities as granted.
pub(crate) fn capabilities_to_c(capabilities: &QpCapabilities) -> abi::ibv_qp_cap {
    abi::ibv_qp_cap {
        max_send_wr: capabilities.max_send_wr,
        max_recv_wr: capabilities.max_recv_wr,
        max_send_sge: capabilities.max_send_sge,
        max_recv_sge: capabilities.max_recv_sge,
        max_inline_data: capabilities.max_inline_data,
    }
}

/// The attribute bits that verbs.h defines.
const MASK_ALL: u32 = (abi::IBV_QP_DEST_QPN * 2 - 1) | abi::IBV_QP_RATE_LIMIT;

/// The mask of an `ibv_modify_qp`.
pub(crate) fn mask(value: c_int) -> Result<AttributeMask, Failure> {
    let mask = value.cast_unsigned();
    if mask & !MASK_ALL != 0 {
        let unknown = mask & !MASK_ALL;
        return Err(Failure::invalid(format!(
            "attr_mask has undefined bits {unknown:#x}"
        )));
    }
    Ok(AttributeMask(mask))
}

/// The attributes of an `ibv_modify_qp`. Only what the mask names is looked at: programs leave the
/// rest uninitialised. `resolve` turns the address vector into a path.
pub(crate) fn attributes(
    attr: &abi::ibv_qp_attr,
    attr_mask: c_int,
    resolve: impl FnOnce(&abi::ibv_ah_attr) -> Result<Path, Failure>,
) -> Result<(QpAttributes, AttributeMask), Failure> {
    let mask = mask(attr_mask)?;
    let names = |bit| mask.contains(bit);
    let mut attributes = QpAttributes {
        access_flags: attr.qp_access_flags,
        pkey_index: attr.pkey_index,
        port: attr.port_num,
        qkey: attr.qkey,
        timeout: attr.timeout,
        retry_count: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        rq_psn: Psn::new(attr.rq_psn & NUMBER_MAX),
        sq_psn: Psn::new(attr.sq_psn & NUMBER_MAX),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        dest_qpn: Qpn::new(attr.dest_qp_num & NUMBER_MAX),
        en_sqd_async_notify: attr.en_sqd_async_notify != 0,
        sq_draining: attr.sq_draining != 0,
        rate_limit: attr.rate_limit,
        capabilities: capabilities(&attr.cap),
        ..QpAttributes::default()
    };
    if names(AttributeMask::STATE) {
        attributes.state = state(attr.qp_state, "qp_state")?;
    }
    if names(AttributeMask::CURRENT_STATE) {
        attributes.current_state = state(attr.cur_qp_state, "cur_qp_state")?;
    }
    if names(AttributeMask::PATH_MTU) {
        attributes.path_mtu = mtu(attr.path_mtu)?;
    }
    if names(AttributeMask::DEST_QPN) && attr.dest_qp_num > NUMBER_MAX {
        let number = attr.dest_qp_num;
        return Err(Failure::invalid(format!(
            "dest_qp_num {number:#x} has more than 24 bits"
        )));
    }
    if names(AttributeMask::AV) {
        attributes.path = Some(resolve(&attr.ah_attr)?);
    }
    Ok((attributes, mask))
}

/// Queue pair and packet sequence numbers have 24 bits. Longer PSNs are cut, as NICs do: programs
/// take them from `lrand48()`.
const NUMBER_MAX: u32 = 0xff_ffff;

fn mtu(value: abi::ibv_mtu) -> Result<Mtu, Failure> {
    let code = u8::try_from(value).ok().and_then(Mtu::from_code);
    code.ok_or_else(|| {
        Failure::invalid(format!(
            "path_mtu {value} does not exist: IBV_MTU_256 to IBV_MTU_4096 do"
        ))
    })
}

/// The answer to `ibv_query_qp`.
pub(crate) fn attributes_to_c(attributes: &QpAttributes) -> abi::ibv_qp_attr {
    let port = attributes.port;
    abi::ibv_qp_attr {
        qp_state: state_to_c(attributes.state),
        cur_qp_state: state_to_c(attributes.current_state),
        path_mtu: attributes.path_mtu as abi::ibv_mtu,
        path_mig_state: abi::IBV_MIG_MIGRATED,
        qkey: attributes.qkey,
        rq_psn: attributes.rq_psn.value(),
        sq_psn: attributes.sq_psn.value(),
        dest_qp_num: attributes.dest_qpn.value(),
        qp_access_flags: attributes.access_flags,
        cap: capabilities_to_c(&attributes.capabilities),
        ah_attr: attributes
            .path
            .map(|path| address::ah_attr(&path, port))
            .unwrap_or_default(),
        pkey_index: attributes.pkey_index,
        en_sqd_async_notify: attributes.en_sqd_async_notify.into(),
        sq_draining: attributes.sq_draining.into(),
        max_rd_atomic: attributes.max_rd_atomic,
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        port_num: port,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_count,
        rnr_retry: attributes.rnr_retry,
        rate_limit: attributes.rate_limit,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> Path {
        Path {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            traffic_class: 0x68,
            hop_limit: 64,
            flow_label: 5,
            service_level: 1,
            source_gid_index: 3,
        }
    }

    fn no_path(_: &abi::ibv_ah_attr) -> Result<Path, Failure> {
        panic!("the mask names no address vector")
    }

    /// `ibv_rc_pingpong` sets exactly these on the way to RTR, on a struct from the stack.
    #[test]
    fn only_what_the_mask_names_is_judged() {
        let attr = abi::ibv_qp_attr {
            qp_state: abi::IBV_QPS_RTR,
            cur_qp_state: 0xdead_beef,
            path_mtu: abi::IBV_MTU_1024,
            dest_qp_num: 0x11,
            rq_psn: 0xffff_ffff,
            ..Default::default()
        };
        let bits = abi::IBV_QP_STATE
            | abi::IBV_QP_AV
            | abi::IBV_QP_PATH_MTU
            | abi::IBV_QP_DEST_QPN
            | abi::IBV_QP_RQ_PSN;
        let (attributes, mask) = attributes(&attr, bits.cast_signed(), |_| Ok(path())).unwrap();
        assert_eq!(mask, AttributeMask(bits));
        assert_eq!(attributes.state, QpState::ReadyToReceive);
        assert_eq!(attributes.path_mtu, Mtu::Mtu1024);
        assert_eq!(attributes.rq_psn.value(), 0xff_ffff);
        assert_eq!(attributes.path, Some(path()));
    }

    #[test]
    fn wrong_values_name_their_attribute() {
        let refused = |attr: abi::ibv_qp_attr, bits: u32| {
            attributes(&attr, bits.cast_signed(), no_path)
                .unwrap_err()
                .reason
        };
        let attr = abi::ibv_qp_attr {
            qp_state: 9,
            path_mtu: 6,
            ..Default::default()
        };
        assert_eq!(
            refused(attr, abi::IBV_QP_STATE),
            "qp_state 9 does not exist"
        );
        assert!(refused(attr, abi::IBV_QP_PATH_MTU).starts_with("path_mtu 6 does not exist"));
        assert_eq!(
            refused(attr, 1 << 22),
            "attr_mask has undefined bits 0x400000"
        );
        let attr = abi::ibv_qp_attr {
            dest_qp_num: 0x100_0000,
            ..Default::default()
        };
        assert!(refused(attr, abi::IBV_QP_DEST_QPN).contains("more than 24 bits"));
    }

    #[test]
    fn every_defined_bit_is_a_bit_of_the_mask() {
        let all = mask(MASK_ALL.cast_signed()).unwrap();
        assert!(all.contains(AttributeMask::DEST_QPN | AttributeMask::RATE_LIMIT));
        assert_eq!(AttributeMask::SQ_PSN.0, abi::IBV_QP_SQ_PSN);
        assert_eq!(AttributeMask::MIN_RNR_TIMER.0, abi::IBV_QP_MIN_RNR_TIMER);
        assert_eq!(AttributeMask::PATH_MIG_STATE.0, abi::IBV_QP_PATH_MIG_STATE);
    }

    #[test]
    fn a_query_returns_what_a_modify_set() {
        let attr = abi::ibv_qp_attr {
            qp_state: abi::IBV_QPS_RTS,
            sq_psn: 7,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 7,
            max_rd_atomic: 16,
            qp_access_flags: 0xe,
            port_num: 1,
            ..Default::default()
        };
        let bits = abi::IBV_QP_STATE | abi::IBV_QP_AV | abi::IBV_QP_SQ_PSN;
        let (attributes, _) = attributes(&attr, bits.cast_signed(), |_| Ok(path())).unwrap();
        let again = attributes_to_c(&attributes);
        assert_eq!(
            (again.qp_state, again.sq_psn, again.timeout),
            (abi::IBV_QPS_RTS, 7, 14)
        );
        assert_eq!(
            (again.retry_cnt, again.rnr_retry, again.max_rd_atomic),
            (6, 7, 16)
        );
        assert_eq!(
            (again.ah_attr.grh.sgid_index, again.ah_attr.is_global),
            (3, 1)
        );
        assert_eq!(
            address::address(&again.ah_attr.grh.dgid),
            path().destination
        );
    }

    #[test]
    fn types_and_states_are_those_of_verbs_h() {
        for (value, service) in [
            (2, QpType::Rc),
            (3, QpType::Uc),
            (4, QpType::Ud),
            (9, QpType::XrcSend),
            (10, QpType::XrcRecv),
        ] {
            assert_eq!(qp_type(value), Ok(service));
        }
        for value in abi::IBV_QPS_RESET..=abi::IBV_QPS_ERR {
            assert_eq!(state_to_c(state(value, "qp_state").unwrap()), value);
        }
        assert_eq!(
            qp_type(abi::IBV_QPT_RAW_PACKET).unwrap_err().errno,
            libc::EOPNOTSUPP
        );
        assert_eq!(qp_type(7).unwrap_err().errno, libc::EINVAL);
    }
}
