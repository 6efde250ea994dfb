//! Time encodings: the RNR NAK table and the local ACK timeout.

use core::time::Duration;

/// RNR NAK timer values in units of 10 µs, by their 5-bit code (IBTA table 45).
const RNR_TENS_OF_MICROS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// How long a requester waits after an RNR NAK that carries `code` (its low five bits count).
pub const fn rnr_delay(code: u8) -> Duration {
    Duration::from_micros(RNR_TENS_OF_MICROS[(code & 0x1f) as usize] as u64 * 10)
}

/// The local ACK timeout 4.096 µs · 2^`code` (IBTA 9.9.2.1.1), `None` for code 0: no timeout.
/// The code has five bits.
pub const fn ack_timeout(code: u8) -> Option<Duration> {
    let code = code & 0x1f;
    if code == 0 {
        None
    } else {
        Some(Duration::from_nanos(4096 << code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        assert_eq!(rnr_delay(0), Duration::from_micros(655_360));
        assert_eq!(rnr_delay(1), Duration::from_micros(10));
        assert_eq!(rnr_delay(12), Duration::from_micros(640));
        assert_eq!(rnr_delay(25), Duration::from_micros(61_440));
        assert_eq!(rnr_delay(31), Duration::from_micros(491_520));
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
    }
}
