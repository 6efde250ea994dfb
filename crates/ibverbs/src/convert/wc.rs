//! Completions, as `ibv_poll_cq` returns them.

use std::net::IpAddr;

use feroce_verbs::{Completion, CompletionStatus};
use feroce_verbs_abi as abi;

/// The C form. Fields that InfiniBand has and RoCE lacks (LIDs) are 0.
pub(crate) fn to_c(completion: &Completion) -> abi::ibv_wc {
    let mut wc = abi::ibv_wc {
        wr_id: completion.wr_id,
        status: completion.status as abi::ibv_wc_status,
        opcode: completion.opcode as abi::ibv_wc_opcode,
        vendor_err: completion.vendor_error,
        qp_num: completion.qpn.value(),
        ..Default::default()
    };
    if completion.status != CompletionStatus::Success {
        return wc;
    }
    wc.byte_len = completion.byte_len;
    wc.src_qp = completion.source_qpn.value();
    if let Some(immediate) = completion.immediate {
        wc.wc_flags |= abi::IBV_WC_WITH_IMM;
        wc.__bindgen_anon_1.imm_data = immediate.to_be();
    } else if let Some(key) = completion.invalidated {
        wc.wc_flags |= abi::IBV_WC_WITH_INV;
        wc.__bindgen_anon_1.invalidated_rkey = key;
    }
    if let Some(source) = completion.source {
        wc.wc_flags |= abi::IBV_WC_GRH;
        wc.sl = service_level(source);
    }
    wc
}

/// The service level of a received datagram. RoCEv2 has none; UCX before 1.19 reads here which
/// network header lies in the buffer: bit 3 says UDP, the low bits 1 for IPv6 or 2 for IPv4.
pub(crate) const fn service_level(source: IpAddr) -> u8 {
    match source {
        IpAddr::V4(_) => 0b1010,
        IpAddr::V6(_) => 0b1001,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_verbs::CompletionOpcode;
    use feroce_verbs::Qpn;

    fn receive() -> Completion {
        Completion {
            wr_id: 42,
            status: CompletionStatus::Success,
            opcode: CompletionOpcode::Receive,
            byte_len: 1064,
            immediate: None,
            invalidated: None,
            qpn: Qpn::new(0x1_0002),
            source_qpn: Qpn::new(0x2_0003),
            source: None,
            solicited: false,
            vendor_error: 0,
        }
    }

    #[test]
    fn a_receive_with_immediate_data_carries_it_in_network_order() {
        let wc = to_c(&Completion {
            immediate: Some(0x0102_0304),
            opcode: CompletionOpcode::ReceiveWithImmediate,
            ..receive()
        });
        assert_eq!((wc.wr_id, wc.byte_len, wc.qp_num), (42, 1064, 0x1_0002));
        assert_eq!((wc.opcode, wc.wc_flags), (129, abi::IBV_WC_WITH_IMM));
        // SAFETY: both members of the union are numbers of 32 bits.
        let immediate = unsafe { wc.__bindgen_anon_1.imm_data };
        assert_eq!(immediate.to_ne_bytes(), [1, 2, 3, 4]);
    }

    #[test]
    fn an_invalidated_key_is_in_host_order() {
        let wc = to_c(&Completion {
            invalidated: Some(0x0102_0304),
            ..receive()
        });
        assert_eq!(wc.wc_flags, abi::IBV_WC_WITH_INV);
        // SAFETY: both members of the union are numbers of 32 bits.
        assert_eq!(unsafe { wc.__bindgen_anon_1.invalidated_rkey }, 0x0102_0304);
    }

    #[test]
    fn a_datagram_says_which_network_header_it_brings() {
        let ipv4 = to_c(&Completion {
            source: "10.0.0.1".parse().ok(),
            ..receive()
        });
        let ipv6 = to_c(&Completion {
            source: "fe80::1".parse().ok(),
            ..receive()
        });
        assert_eq!((ipv4.wc_flags, ipv4.sl & 7), (abi::IBV_WC_GRH, 2));
        assert_eq!((ipv6.wc_flags, ipv6.sl & 7), (abi::IBV_WC_GRH, 1));
        assert_eq!(ipv4.src_qp, 0x2_0003);
    }

    #[test]
    fn an_error_says_only_what_counts() {
        let status = CompletionStatus::RetryExceeded;
        let wc = to_c(&Completion {
            status,
            vendor_error: 3,
            immediate: Some(1),
            ..receive()
        });
        assert_eq!((wc.status, wc.vendor_err), (abi::IBV_WC_RETRY_EXC_ERR, 3));
        assert_eq!((wc.byte_len, wc.wc_flags), (0, 0));
    }

    #[test]
    fn numbers_of_both_sides_agree() {
        assert_eq!(CompletionStatus::General as u32, abi::IBV_WC_GENERAL_ERR);
        assert_eq!(
            CompletionStatus::RnrRetryExceeded as u32,
            abi::IBV_WC_RNR_RETRY_EXC_ERR
        );
        assert_eq!(
            CompletionOpcode::AtomicWrite as u32,
            abi::IBV_WC_ATOMIC_WRITE
        );
        assert_eq!(CompletionOpcode::Flush as u32, abi::IBV_WC_FLUSH);
        assert_eq!(CompletionOpcode::Receive as u32, abi::IBV_WC_RECV);
    }
}
