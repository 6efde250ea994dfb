//! The static rates of address vectors: enumeration value, multiple of 2.5 Gb/s, Mb/s.
//!
//! The two scales do not cover the same rates: those whose lanes run at 14, 25 or 28 Gb/s are no
//! multiple of 2.5, and of them only 28 and 50 Gb/s have a rounded one by convention.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

/// (rate, multiple of 2.5 Gb/s, Mb/s)
const RATES: &[(abi::ibv_rate, Option<c_int>, c_int)] = &[
    (abi::IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (abi::IBV_RATE_5_GBPS, Some(2), 5_000),
    (abi::IBV_RATE_10_GBPS, Some(4), 10_000),
    (abi::IBV_RATE_14_GBPS, None, 14_062),
    (abi::IBV_RATE_20_GBPS, Some(8), 20_000),
    (abi::IBV_RATE_25_GBPS, None, 25_781),
    (abi::IBV_RATE_28_GBPS, Some(11), 28_125),
    (abi::IBV_RATE_30_GBPS, Some(12), 30_000),
    (abi::IBV_RATE_40_GBPS, Some(16), 40_000),
    (abi::IBV_RATE_50_GBPS, Some(20), 53_125),
    (abi::IBV_RATE_56_GBPS, None, 56_250),
    (abi::IBV_RATE_60_GBPS, Some(24), 60_000),
    (abi::IBV_RATE_80_GBPS, Some(32), 80_000),
    (abi::IBV_RATE_100_GBPS, None, 103_125),
    (abi::IBV_RATE_112_GBPS, None, 112_500),
    (abi::IBV_RATE_120_GBPS, Some(48), 120_000),
    (abi::IBV_RATE_168_GBPS, None, 168_750),
    (abi::IBV_RATE_200_GBPS, None, 206_250),
    (abi::IBV_RATE_300_GBPS, None, 309_375),
    (abi::IBV_RATE_400_GBPS, Some(160), 425_000),
    (abi::IBV_RATE_600_GBPS, Some(240), 637_500),
    (abi::IBV_RATE_800_GBPS, Some(320), 850_000),
    (abi::IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

/// Multiple of 2.5 Gb/s, or -1.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rate_to_mult(rate: abi::ibv_rate) -> c_int {
    RATES
        .iter()
        .find(|entry| entry.0 == rate)
        .and_then(|entry| entry.1)
        .unwrap_or(-1)
}

/// The rate, or `IBV_RATE_MAX`.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mult_to_ibv_rate(multiple: c_int) -> abi::ibv_rate {
    RATES
        .iter()
        .find(|entry| entry.1 == Some(multiple))
        .map_or(abi::IBV_RATE_MAX, |entry| entry.0)
}

/// Mb/s, or -1.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_rate_to_mbps(rate: abi::ibv_rate) -> c_int {
    RATES
        .iter()
        .find(|entry| entry.0 == rate)
        .map_or(-1, |entry| entry.2)
}

/// The rate, or `IBV_RATE_MAX`.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> abi::ibv_rate {
    RATES
        .iter()
        .find(|entry| entry.2 == mbps)
        .map_or(abi::IBV_RATE_MAX, |entry| entry.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_survives_the_way_there_and_back() {
        // SAFETY: no contract.
        unsafe {
            for rate in abi::IBV_RATE_2_5_GBPS..=abi::IBV_RATE_1200_GBPS {
                assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
                let multiple = ibv_rate_to_mult(rate);
                assert!(multiple == -1 || mult_to_ibv_rate(multiple) == rate);
            }
        }
    }

    #[test]
    fn lanes_of_two_and_a_half_gigabit_are_whole_multiples() {
        // SAFETY: no contract.
        unsafe {
            assert_eq!(ibv_rate_to_mult(abi::IBV_RATE_5_GBPS), 2);
            assert_eq!(ibv_rate_to_mult(abi::IBV_RATE_120_GBPS), 48);
            assert_eq!(ibv_rate_to_mult(abi::IBV_RATE_1200_GBPS), 480);
            assert_eq!(ibv_rate_to_mult(abi::IBV_RATE_100_GBPS), -1);
        }
    }

    #[test]
    fn what_is_no_rate_is_minus_one_or_the_maximum() {
        // SAFETY: no contract.
        unsafe {
            for rate in [abi::IBV_RATE_MAX, 1, 25, u32::MAX] {
                assert_eq!(ibv_rate_to_mult(rate), -1);
                assert_eq!(ibv_rate_to_mbps(rate), -1);
            }
            for number in [0, -1, 3, 2_501, c_int::MAX] {
                assert_eq!(mult_to_ibv_rate(number), abi::IBV_RATE_MAX);
                assert_eq!(mbps_to_ibv_rate(number), abi::IBV_RATE_MAX);
            }
        }
    }
}
