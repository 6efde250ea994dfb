use super::*;
use std::ptr;

const LIMITS: RequestLimits = RequestLimits {
    qp_type: QpType::Rc,
    max_sge: 2,
    max_inline_data: 8,
};

fn convert(wr: &abi::ibv_send_wr) -> Result<SendRequest, Failure> {
    convert_with(wr, &LIMITS)
}

fn convert_with(wr: &abi::ibv_send_wr, limits: &RequestLimits) -> Result<SendRequest, Failure> {
    // SAFETY: the tests keep what their requests point to.
    unsafe { send_request(wr, limits, |_| Ok(path())) }
}

fn path() -> Path {
    Path {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        service_level: 0,
        source_gid_index: 0,
    }
}

fn send(opcode: abi::ibv_wr_opcode) -> abi::ibv_send_wr {
    abi::ibv_send_wr {
        wr_id: 9,
        opcode,
        ..Default::default()
    }
}

#[test]
fn a_signaled_write_of_two_pieces() {
    let mut pieces = [
        abi::ibv_sge {
            addr: 0x1000,
            length: 64,
            lkey: 5,
        },
        abi::ibv_sge {
            addr: 0x3000,
            length: 1,
            lkey: 6,
        },
    ];
    let mut wr = send(abi::IBV_WR_RDMA_WRITE);
    (wr.sg_list, wr.num_sge) = (pieces.as_mut_ptr(), 2);
    wr.send_flags = abi::IBV_SEND_SIGNALED | abi::IBV_SEND_FENCE;
    wr.wr.rdma.remote_addr = 0xffff_0000;
    wr.wr.rdma.rkey = 0x77;
    let request = convert(&wr).unwrap();
    let remote = Remote {
        address: 0xffff_0000,
        rkey: 0x77,
    };
    assert_eq!(request.operation, SendOperation::Write(remote));
    assert_eq!(
        request.flags,
        SendFlags {
            signaled: true,
            solicited: false,
            fence: true
        }
    );
    assert_eq!(
        (request.wr_id, request.data.len(), request.target),
        (9, 65, None)
    );
}

#[test]
fn immediate_data_is_read_in_network_order_and_keys_are_not() {
    let mut wr = send(abi::IBV_WR_SEND_WITH_IMM);
    wr.__bindgen_anon_1.imm_data = 0x0102_0304_u32.to_be();
    assert_eq!(
        convert(&wr).unwrap().operation,
        SendOperation::SendImmediate(0x0102_0304)
    );
    let mut wr = send(abi::IBV_WR_SEND_WITH_INV);
    wr.__bindgen_anon_1.invalidate_rkey = 0x0102_0304;
    assert_eq!(
        convert(&wr).unwrap().operation,
        SendOperation::SendInvalidate(0x0102_0304)
    );
}

#[test]
fn atomics_have_their_own_place_for_the_remote_key() {
    let mut wr = send(abi::IBV_WR_ATOMIC_CMP_AND_SWP);
    wr.wr.atomic = abi::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr: 8,
        compare_add: 1,
        swap: 2,
        rkey: 3,
    };
    let remote = Remote {
        address: 8,
        rkey: 3,
    };
    let expected = SendOperation::CompareSwap {
        remote,
        compare: 1,
        swap: 2,
    };
    assert_eq!(convert(&wr).unwrap().operation, expected);
    wr.opcode = abi::IBV_WR_ATOMIC_FETCH_AND_ADD;
    assert_eq!(
        convert(&wr).unwrap().operation,
        SendOperation::FetchAdd { remote, add: 1 }
    );
}

#[test]
fn inline_data_is_copied_at_once() {
    let mut bytes = *b"abcdefgh";
    let address = bytes.as_mut_ptr().expose_provenance() as u64;
    let mut pieces = [
        abi::ibv_sge {
            addr: address + 4,
            length: 3,
            lkey: 0,
        },
        abi::ibv_sge {
            addr: address,
            length: 2,
            lkey: 0,
        },
    ];
    let mut wr = send(abi::IBV_WR_SEND);
    (wr.sg_list, wr.num_sge, wr.send_flags) = (pieces.as_mut_ptr(), 2, abi::IBV_SEND_INLINE);
    let request = convert(&wr).unwrap();
    bytes.fill(b'x');
    assert_eq!(request.data, Data::Inline(b"efgab".as_slice().into()));
}

#[test]
fn inline_data_above_the_limit_is_not_even_read() {
    let mut pieces = [abi::ibv_sge {
        addr: 1,
        length: u32::MAX,
        lkey: 0,
    }; 2];
    let mut wr = send(abi::IBV_WR_SEND);
    (wr.sg_list, wr.num_sge, wr.send_flags) = (pieces.as_mut_ptr(), 2, abi::IBV_SEND_INLINE);
    let failure = convert(&wr).unwrap_err();
    assert_eq!(failure.errno, libc::EINVAL);
    assert!(
        failure.reason.contains("max_inline_data is 8"),
        "{}",
        failure.reason
    );
}

/// UCX posts these.
#[test]
fn an_inline_write_of_nothing_is_fine() {
    let mut wr = send(abi::IBV_WR_RDMA_WRITE);
    wr.send_flags = abi::IBV_SEND_INLINE;
    assert!(convert(&wr).unwrap().data.is_empty());
    let mut empty = abi::ibv_sge::default();
    (wr.sg_list, wr.num_sge) = (&raw mut empty, 1);
    assert!(convert(&wr).unwrap().data.is_empty());
}

#[test]
fn lists_are_read_only_when_they_can_be() {
    let refused = |num_sge| {
        let wr = abi::ibv_send_wr {
            num_sge,
            ..send(abi::IBV_WR_SEND)
        };
        convert(&wr).unwrap_err().reason.into_owned()
    };
    assert_eq!(refused(3), "num_sge is 3, the limit is 2");
    assert_eq!(refused(-1), "num_sge is -1, the limit is 2");
    assert_eq!(refused(i32::MIN), "num_sge is -2147483648, the limit is 2");
    assert_eq!(refused(1), "num_sge is 1 and sg_list a null pointer");
    let wr = abi::ibv_recv_wr {
        num_sge: 3,
        ..Default::default()
    };
    // SAFETY: the list is refused before it is read.
    let failure = unsafe { recv_request(&wr, 2) }.unwrap_err();
    assert_eq!(failure.errno, libc::EINVAL);
}

#[test]
fn a_datagram_has_a_target_and_a_connected_request_none() {
    let mut wr = send(abi::IBV_WR_SEND);
    wr.wr.ud = abi::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
        ah: ptr::null_mut(),
        remote_qpn: 0xff12_3456,
        remote_qkey: 0x1111_1111,
    };
    let limits = RequestLimits {
        qp_type: QpType::Ud,
        ..LIMITS
    };
    let target = convert_with(&wr, &limits).unwrap().target.unwrap();
    assert_eq!(
        (target.qpn, target.qkey),
        (Qpn::new(0x12_3456), 0x1111_1111)
    );
    assert_eq!(convert(&wr).unwrap().target, None);
}

#[test]
fn a_bind_names_window_and_region() {
    let mut window = abi::ibv_mw {
        rkey: 0x500,
        type_: abi::IBV_MW_TYPE_2,
        ..Default::default()
    };
    let mut region = abi::ibv_mr {
        lkey: 0x700,
        ..Default::default()
    };
    let info = abi::ibv_mw_bind_info {
        mr: &raw mut region,
        addr: 0x2000,
        length: 16,
        mw_access_flags: abi::IBV_ACCESS_REMOTE_WRITE,
    };
    let mut wr = send(abi::IBV_WR_BIND_MW);
    let bind = abi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
        mw: &raw mut window,
        rkey: 0x501,
        bind_info: info,
    };
    wr.__bindgen_anon_2.bind_mw = bind;
    let expected = BindRequest {
        window: 0x501,
        region: 0x700,
        address: 0x2000,
        length: 16,
        access: abi::IBV_ACCESS_REMOTE_WRITE,
        type_2: true,
    };
    assert_eq!(
        convert(&wr).unwrap().operation,
        SendOperation::Bind(expected)
    );
    wr.__bindgen_anon_2.bind_mw = abi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
        rkey: 0x601,
        ..bind
    };
    assert!(
        convert(&wr)
            .unwrap_err()
            .reason
            .contains("in the last byte only")
    );
    wr.__bindgen_anon_2.bind_mw = abi::ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
        mw: ptr::null_mut(),
        ..bind
    };
    assert_eq!(
        convert(&wr).unwrap_err().reason,
        "bind_mw.mw is a null pointer"
    );
}

#[test]
fn what_cannot_be_posted_says_so() {
    assert_eq!(
        convert(&send(13)).unwrap_err().reason,
        "opcode 13 does not exist"
    );
    assert_eq!(
        convert(&send(abi::IBV_WR_TSO)).unwrap_err().errno,
        libc::EOPNOTSUPP
    );
    assert!(
        convert(&send(abi::IBV_WR_FLUSH))
            .unwrap_err()
            .reason
            .contains("ibv_wr_flush")
    );
    let wr = abi::ibv_send_wr {
        send_flags: 1 << 9,
        ..send(abi::IBV_WR_SEND)
    };
    assert_eq!(
        convert(&wr).unwrap_err().reason,
        "send_flags has undefined bits 0x200"
    );
    let inline = abi::IBV_SEND_INLINE;
    let wr = abi::ibv_send_wr {
        send_flags: inline,
        ..send(abi::IBV_WR_RDMA_READ)
    };
    assert!(
        convert(&wr)
            .unwrap_err()
            .reason
            .contains("SEND and RDMA WRITE only")
    );
}
