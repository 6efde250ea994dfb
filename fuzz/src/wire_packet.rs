//! Any bytes as a RoCE packet: parse, print, build again, parse again.

use crate::{Features, magnitude, packets};
use feroce_wire::header::Bth;
use feroce_wire::{Headers, Packet, ParseError, icrc, pad_len};

/// Parses `input`; what parses must mean the same after it was built again.
pub fn run(input: &[u8]) -> Features {
    let packet = match Packet::parse(input) {
        Ok(packet) => packet,
        Err(error) => {
            return Features::of(match error {
                ParseError::TooShort { .. } => 0,
                ParseError::UnknownOpcode(_) => 1,
                ParseError::Version(_) => 2,
                ParseError::UnexpectedPayload { .. } => 3,
                _ => 4,
            });
        }
    };
    assert!(packet.to_string().starts_with(&packet.opcode.to_string()));
    assert!(packet.payload.len() + Bth::LEN + icrc::LEN <= input.len());
    let built = build(&packet);
    let again = Packet::parse(&built).expect("what was parsed can be built");
    assert_eq!(meaning(&packet), meaning(&again));
    assert_eq!(build(&again), built, "building settles");

    let mut features = Features::of(0x100 | u32::from(packet.opcode.0));
    features.add(0x200 | magnitude(packet.payload.len()));
    features
}

/// Everything that a packet says, but for FECN, which is not ours to set.
fn meaning(packet: &Packet<'_>) -> impl PartialEq + std::fmt::Debug {
    let flags = (packet.solicited, packet.ack_request, packet.becn);
    let numbers = (packet.opcode, packet.dest_qp, packet.psn, packet.pkey);
    (numbers, flags, packet.extensions, packet.payload.to_vec())
}

fn build(packet: &Packet<'_>) -> Vec<u8> {
    let mut bth = Bth::new(packet.opcode, packet.dest_qp, packet.psn);
    bth.set_pkey(packet.pkey);
    bth.set_solicited(packet.solicited);
    bth.set_ack_request(packet.ack_request);
    bth.set_becn(packet.becn);
    let headers = Headers::new(bth, &packet.extensions, packet.payload.len());
    let mut bytes = [headers.as_bytes(), packet.payload].concat();
    let pad = usize::from(pad_len(packet.payload.len()));
    bytes.resize(bytes.len() + pad + icrc::LEN, 0);
    bytes
}

/// One packet of every opcode, the 48 bytes of W1 and the pad of W2 (see `FACTS` §5).
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = packets::sealed();
    seeds.push(vec![0xff; 48]);
    seeds.push([&[0x04, 0x70][..], &[0; 14]].concat());
    seeds
}
