//! Any bytes as a message from another process of this machine, which shares an address with us.

use crate::{Features, magnitude};
use feroce_netio::fuzzing::{SlotMessageKind, slot_message};

/// Parses `input`.
pub fn run(input: &[u8]) -> Features {
    match slot_message(input) {
        SlotMessageKind::Unknown => Features::of(0),
        SlotMessageKind::Caller => Features::of(1),
        SlotMessageKind::Port => Features::of(2),
        SlotMessageKind::Packets(runs, datagrams) => {
            assert!(datagrams <= input.len());
            let mut features = Features::of(0x10 | magnitude(runs));
            features.add(0x20 | magnitude(datagrams));
            features
        }
    }
}

/// A message of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let header = |kind: u8| [b'F', b'e', 1, kind];
    let record = [
        &10_u32.to_le_bytes()[..],
        &4_u32.to_le_bytes(),
        &[0, 64, 0xb7, 0x12],
        &[0; 10],
        &[0xff, 0xff, 10, 0, 0, 1, 0x50, 0xc3, 0, 0, 0, 0, 0, 0],
        &[0; 10],
        &[0xff, 0xff, 10, 0, 0, 2],
        b"ten bytes.",
    ]
    .concat();
    vec![
        [&header(0)[..], &record, &record].concat(),
        [&header(1)[..], &[7; 18]].concat(),
        [&header(2)[..], &[7; 24]].concat(),
        [&header(3)[..], b"?payload"].concat(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_messages() {
        let kinds: Vec<_> = seeds().iter().map(|seed| slot_message(seed)).collect();
        let port = SlotMessageKind::Port;
        let packets = SlotMessageKind::Packets(2, 6);
        assert_eq!(kinds, [packets, port, port, SlotMessageKind::Caller]);
    }
}
