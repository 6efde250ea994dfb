//! Packets to start from: one of every opcode, and a network around them.

use feroce_wire::header::Bth;
use feroce_wire::icrc::{self, Flow, Seed};
use feroce_wire::{AtomicOperands, Extensions, Headers, Msn, Opcode, Psn, Qpn, ROCE_V2_PORT, Reth};

/// BTH to pad of one packet of every opcode.
pub(crate) fn bodies() -> Vec<Vec<u8>> {
    let opcodes = (0..=255).map(Opcode);
    opcodes
        .filter_map(|opcode| Some(body(opcode, opcode.info()?.payload)))
        .collect()
}

fn body(opcode: Opcode, has_payload: bool) -> Vec<u8> {
    let payload: &[u8] = if has_payload { b"seven b" } else { b"" };
    let mut bth = Bth::new(opcode, Qpn::new(17), Psn::new(1000));
    bth.set_ack_request(true);
    let headers = Headers::new(bth, &extensions(), payload.len());
    let mut bytes = [headers.as_bytes(), payload].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn extensions() -> Extensions {
    Extensions {
        datagram: Some((0x1111_1111, Qpn::new(18))),
        xrc_srqn: Some(5),
        flush: Some(0x11),
        reth: Some(Reth {
            virtual_address: 0x1000,
            rkey: 0x100,
            length: 7,
        }),
        atomic: Some(AtomicOperands {
            virtual_address: 0x1000,
            rkey: 0x100,
            swap_or_add: 1,
            compare: 2,
        }),
        aeth: Some((0x1f, Msn::new(3))),
        atomic_ack: Some(4),
        immediate: Some(5),
        invalidate: Some(0x100),
    }
}

/// A flow of IPv4.
pub(crate) fn flow() -> Flow {
    Flow {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 50_000,
        destination_port: ROCE_V2_PORT,
        ipv4_id: 7,
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    }
}

/// BTH to ICRC of one packet of every opcode.
pub(crate) fn sealed() -> Vec<Vec<u8>> {
    let seal = |mut body: Vec<u8>| {
        let icrc = Seed::new(&flow(), body.len() + icrc::LEN).of(&body);
        body.extend(icrc);
        body
    };
    bodies().into_iter().map(seal).collect()
}
