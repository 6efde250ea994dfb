//! The check sum behind every packet: CRC-32 of Ethernet (IEEE 802.3) over all bytes before it,
//! sent as a little-endian word. It covers no address and no port, so a packet that a host hands on
//! to another process keeps its sum; what a packet is for is said by its connection id.

use crc32fast::Hasher;

/// Length of the check sum, in bytes.
pub const LEN: usize = 4;

/// A running sum.
#[derive(Clone, Debug, Default)]
pub struct Sum(Hasher);

impl Sum {
    /// The sum of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The trailer of what was summed.
    #[must_use]
    pub fn trailer(self) -> [u8; LEN] {
        self.0.finalize().to_le_bytes()
    }
}

/// The packet without its trailer, if the trailer fits.
//= MR-PKT-002
pub fn verify(datagram: &[u8]) -> Option<&[u8]> {
    let (packet, trailer) = datagram.split_last_chunk::<LEN>()?;
    let mut sum = Sum::new();
    sum.update(packet);
    (sum.trailer() == *trailer).then_some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sum_and_every_flipped_bit_is_seen() {
        let mut sum = Sum::new();
        sum.update(b"123456789");
        assert_eq!(u32::from_le_bytes(sum.trailer()), 0xcbf4_3926);
        let mut datagram = *b"123456789\x26\x39\xf4\xcb";
        assert_eq!(verify(&datagram), Some(&b"123456789"[..]));
        for bit in 0..datagram.len() * 8 {
            datagram[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verify(&datagram), None, "bit {bit}");
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(verify(b"abc"), None);
    }
}
