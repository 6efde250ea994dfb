//! Random and half-right packets into live queue pairs: nothing panics, nothing is written
//! outside of what a key grants, and no more completes than was posted.

use crate::QpType;
use crate::testing::{
    BASE, Fate, Grant, KEY, PD, Random, Setup, address_of, fetch_add, read, recv, request_frame,
    send, write,
};
use feroce_wire::{Extensions, Opcode, Operation, Packet, Position, Qpn, icrc};
use std::vec::Vec;

/// W1, W2: all opcodes, short and long, with every pad count. What parses goes to a live
/// queue pair.
#[test]
fn w1_w2_every_opcode_and_length_into_every_type() {
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut parsed = 0;
        for opcode in 0..=255 {
            for length in 0..80 {
                for pad in 0..4 {
                    let mut pair = Setup::new(qp_type).with(|s| s.memory = 4096).connect();
                    let mut bytes = std::vec![0xff; length];
                    for (byte, value) in bytes.iter_mut().zip([opcode, 0x40 | pad << 4]) {
                        *byte = value;
                    }
                    let header = [0xff, 0xff, 0, 0, 1, 2, 0x80, 0, 0, 100];
                    for (byte, value) in bytes.iter_mut().skip(2).zip(header) {
                        *byte = value;
                    }
                    let Ok(packet) = Packet::parse(&bytes) else {
                        continue;
                    };
                    parsed += 1;
                    assert!(Opcode(opcode).info().is_some());
                    let from = address_of(&pair.a, &pair.b);
                    pair.b.post_recv(1, BASE, 10);
                    pair.b
                        .nic
                        .handle_packet(pair.now, &from, &packet, &mut pair.b.host);
                    let _ = pair.b.nic.poll_transmit(pair.now, 10, &mut pair.b.host);
                }
            }
        }
        assert!(parsed > 1000);
    }
}

#[test]
fn random_packets_into_live_queue_pairs() {
    for seed in 0..3000 {
        let mut random = Random::new(seed);
        let qp_type = random.pick(&[QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
        let mut pair = Setup::new(qp_type).with(|s| s.memory = 8192).connect();
        pair.script(|_, _| Fate::Drop);
        // The peer may touch the first page only; the second stays as it is.
        let grant = Grant {
            pd: PD,
            address: BASE,
            length: 4096,
            read_only: false,
        };
        pair.b.host.keys.insert(KEY, grant);
        let guard: Vec<u8> = (0..4096).map(|_| random.next() as u8).collect();
        pair.b
            .host
            .bytes_mut(BASE + 4096, 4096)
            .copy_from_slice(&guard);
        if qp_type == QpType::Rc {
            pair.b.post(write(1).len(3000));
            pair.b.post(read(2).len(3000));
            pair.b.post(fetch_add(3, BASE, 1));
            pair.b.post(send(4).len(10));
        }
        for wr_id in 10..14 {
            let length = random.below(3000) as u32;
            let request = recv(wr_id, BASE, length);
            let (now, qpn) = (pair.now, pair.b.qpn);
            pair.b
                .nic
                .post_recv(now, qpn, request, &mut pair.b.host)
                .unwrap();
        }
        for _ in 0..40 {
            let bytes = half_right(&mut random, pair.b.qpn.value());
            if let Ok(packet) = Packet::parse(&bytes) {
                let from = address_of(&pair.a, &pair.b);
                pair.b
                    .nic
                    .handle_packet(pair.now, &from, &packet, &mut pair.b.host);
            }
            pair.transmit();
        }
        assert!(pair.b.host.bytes(BASE + 4096, 4096) == guard, "seed {seed}");
        let mut done: Vec<u64> = pair.b.completions().iter().map(|c| c.0).collect();
        let count = done.len();
        done.sort_unstable();
        done.dedup();
        assert_eq!(done.len(), count, "seed {seed}: a request completed twice");
    }
}

/// A packet with plausible numbers, so that it gets past the first checks.
fn half_right(random: &mut Random, qpn: u32) -> Vec<u8> {
    let length = 16 + random.below(1200) as usize;
    let mut bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    bytes[0] = match random.below(4) {
        0 => random.next() as u8,
        1 => random.below(0x1e) as u8,
        2 => 0x20 | random.below(0x0c) as u8,
        _ => 0x64,
    };
    bytes[1] = 0x40 | (random.next() as u8 & 0x30);
    bytes[2..4].copy_from_slice(&[0xff, 0xff]);
    bytes[4..8].copy_from_slice(&qpn.to_be_bytes());
    let psn = random.pick(&[0, 0, 0, 1, 2, 3, 4, 100, 101, 103, 0xff_ffff]);
    let ack = u32::from(random.chance(1, 2)) << 31;
    bytes[8..12].copy_from_slice(&(psn | ack).to_be_bytes());
    if length >= 32 {
        if random.chance(3, 4) {
            // A RETH or AtomicETH with the right key.
            let address = BASE + random.below(6000);
            bytes[12..20].copy_from_slice(&address.to_be_bytes());
            bytes[20..24].copy_from_slice(&KEY.to_be_bytes());
            let length = random.below(5000) as u32;
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        } else {
            // An AETH.
            bytes[12] = random.pick(&[0, 0x1f, 0x21, 0x60, 0x61, 0x62, 0x63]);
        }
    }
    bytes
}

/// W15: the ICRC goes on the wire as a little-endian word, here against a sum of our own that
/// works bit by bit.
#[test]
fn w15_icrc_is_little_endian() {
    let bytes = datagram_like(&[0x11, 0x22, 0x33, 0x44]);
    let body = &bytes[..bytes.len() - 4];
    let flow = icrc::Flow {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 0xc123,
        destination_port: 4791,
        ipv4_id: 0x0102,
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    };
    let udp_len = (8 + bytes.len()) as u16;
    let mut covered: Vec<u8> = [0xff; 8].to_vec();
    covered.extend_from_slice(&[0x45, 0xff]);
    covered.extend_from_slice(&(20 + udp_len).to_be_bytes());
    covered.extend_from_slice(&[
        1, 2, 0x40, 0, 0xff, 17, 0xff, 0xff, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    covered.extend_from_slice(&[0xc1, 0x23, 0x12, 0xb7]);
    covered.extend_from_slice(&udp_len.to_be_bytes());
    covered.extend_from_slice(&[0xff, 0xff]);
    let bth = covered.len();
    covered.extend_from_slice(body);
    covered[bth + 4] = 0xff;
    let mut crc = u32::MAX;
    for byte in covered {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ 0xedb8_8320
            } else {
                crc >> 1
            };
        }
    }
    let seed = icrc::Seed::new(&flow, bytes.len());
    assert_eq!(seed.of(body), (!crc).to_le_bytes());
}

fn datagram_like(payload: &[u8]) -> Vec<u8> {
    let none = Extensions::default();
    request_frame(
        Qpn::new(0x123),
        7,
        (Operation::Send, Position::Only),
        &none,
        payload,
    )
}
