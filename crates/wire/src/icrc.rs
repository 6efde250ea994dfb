//! The invariant CRC of RoCEv2 (IBTA annex A17.3.3) and of RoCE v1 (IBTA 7.8.1): an Ethernet CRC-32
//! over everything that no router may change.
//!
//! The fields that may change count as ones: IPv4 TOS, TTL and checksum; IPv6 traffic class, flow
//! label and hop limit; the UDP checksum; the BTH byte that holds FECN and BECN. Eight bytes of
//! ones stand for the absent LRH. The result is sent as a little-endian word. RoCE v1 has a
//! global routing header in the place of IP and UDP, masked like the IPv6 header.

use crate::header::Bth;
use core::net::IpAddr;
use crc32fast::Hasher;

/// Length of the ICRC on the wire, in bytes.
pub const LEN: usize = 4;

/// Length of the global routing header of RoCE v1, in bytes.
pub const GRH_LEN: usize = 40;

/// The addresses, ports and IPv4 fields that enter the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address; same family as `destination`.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// IPv4 identification; ignored for IPv6.
    pub ipv4_id: u16,
    /// IPv4 flags and fragment offset, 0x4000 when only DF is set; ignored for IPv6.
    pub ipv4_fragment: u16,
}

/// IPv4 "don't fragment", as it stands in the flags and fragment offset word.
pub const IPV4_DONT_FRAGMENT: u16 = 0x4000;

/// The running sum after the pseudo header: reusable for all packets of one flow and length.
#[derive(Clone, Debug)]
pub struct Seed(Hasher);

impl Seed {
    /// Sums the pseudo header of packets whose RoCE part, BTH to ICRC, has `roce_len` bytes.
    ///
    /// # Panics
    /// If the two addresses are not of one family: the caller made them from one socket.
    pub fn new(flow: &Flow, roce_len: usize) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&[0xff; 8]);
        let udp_len = u16::try_from(roce_len + 8).unwrap_or(u16::MAX);
        match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = [0xff; 20];
                ip[0] = 0x45;
                ip[2..4].copy_from_slice(&(udp_len.saturating_add(20)).to_be_bytes());
                ip[4..6].copy_from_slice(&flow.ipv4_id.to_be_bytes());
                ip[6..8].copy_from_slice(&flow.ipv4_fragment.to_be_bytes());
                ip[9] = UDP;
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                hasher.update(&ip);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut ip = [0xff; 40];
                ip[0] = 0x6f;
                ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
                ip[6] = UDP;
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
                hasher.update(&ip);
            }
            _ => panic!("source and destination are of two address families"),
        }
        let mut udp = [0xff; 8];
        udp[0..2].copy_from_slice(&flow.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&flow.destination_port.to_be_bytes());
        udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
        hasher.update(&udp);
        Self(hasher)
    }

    /// Sums the pseudo header of RoCE v1 packets: their global routing header.
    pub fn of_grh(grh: &[u8; GRH_LEN]) -> Self {
        let mut masked = *grh;
        masked[0] |= 0x0f;
        masked[1..4].fill(0xff);
        masked[7] = 0xff;
        let mut hasher = Hasher::new();
        hasher.update(&[0xff; 8]);
        hasher.update(&masked);
        Self(hasher)
    }

    /// Starts one packet: sums its headers, which begin with the BTH.
    ///
    /// # Panics
    /// If `headers` is shorter than a BTH.
    pub fn start(&self, headers: &[u8]) -> Sum {
        let mut hasher = self.0.clone();
        let mut bth = [0; Bth::LEN];
        bth.copy_from_slice(&headers[..Bth::LEN]);
        bth[4] = 0xff;
        hasher.update(&bth);
        hasher.update(&headers[Bth::LEN..]);
        Sum(hasher)
    }

    /// Whether the last four bytes of `roce` (BTH to ICRC) are the ICRC of the rest.
    #[inline]
    pub fn is_met_by(&self, roce: &[u8]) -> bool {
        roce.split_last_chunk::<LEN>()
            .is_some_and(|(body, stored)| body.len() >= Bth::LEN && self.of(body) == *stored)
    }

    /// The ICRC of a whole RoCE packet, BTH to pad, without its ICRC field.
    ///
    /// # Panics
    /// If `roce` is shorter than a BTH.
    pub fn of(&self, roce: &[u8]) -> [u8; LEN] {
        self.start(roce).finish()
    }
}

/// The running sum of one packet.
#[derive(Clone, Debug)]
pub struct Sum(Hasher);

impl Sum {
    /// Adds payload or pad bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The wire bytes.
    pub fn finish(self) -> [u8; LEN] {
        self.0.finalize().to_le_bytes()
    }
}

const UDP: u8 = 17;

/// What a received ICRC says about the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It matches.
    Good,
    /// It would match if the IPv4 identification were this one, which a UDP socket cannot see.
    GoodWithId(u16),
    /// It does not match.
    Bad,
}

/// Checks the last four bytes of `roce` (BTH to ICRC) against the rest.
///
/// For IPv4 the identification in `flow` is a guess. A CRC is linear: the difference
/// between the two sums tells which 16 bits of the identification would explain it, and
/// a difference that no identification explains is a corrupt packet. This still
/// rejects all but about one in 65,536 corruptions.
pub fn check(flow: &Flow, roce: &[u8]) -> Verdict {
    let Some(body_len) = roce.len().checked_sub(LEN).filter(|&len| len >= Bth::LEN) else {
        return Verdict::Bad;
    };
    let (body, stored) = roce.split_at(body_len);
    let computed = u32::from_le_bytes(Seed::new(flow, roce.len()).of(body));
    let stored = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
    let difference = computed ^ stored;
    if difference == 0 {
        return Verdict::Good;
    }
    if flow.source.is_ipv6() {
        return Verdict::Bad;
    }
    // Behind the identification: the rest of the IPv4 header (14 bytes), UDP, then the body.
    let unshifted = unshift(difference, 14 + 8 + body_len);
    match id_of_difference(unshifted) {
        Some(id) => Verdict::GoodWithId(id ^ flow.ipv4_id),
        None => Verdict::Bad,
    }
}

/// Checks the last four bytes of a RoCE v1 packet, `roce` (BTH to ICRC), against the rest and its
/// global routing header. Never [`Verdict::GoodWithId`]: everything that counts is visible.
pub fn check_v1(grh: &[u8; GRH_LEN], roce: &[u8]) -> Verdict {
    if Seed::of_grh(grh).is_met_by(roce) {
        Verdict::Good
    } else {
        Verdict::Bad
    }
}

const POLYNOMIAL: u32 = 0xedb8_8320;

/// Undoes the effect on a CRC state of `zeros` zero bytes.
fn unshift(state: u32, zeros: usize) -> u32 {
    let mut result = state;
    let mut power = 0;
    let mut left = zeros;
    while left != 0 {
        if left & 1 == 1 {
            result = UNSHIFT[power].apply(result);
        }
        left >>= 1;
        power += 1;
    }
    result
}

/// Which identification bits give this difference of CRC states right behind them.
fn id_of_difference(state: u32) -> Option<u16> {
    // Feeding two bytes whose difference is d into equal states gives a state difference that is
    // linear in d. Undoing 16 steps leaves the input difference in the low 16 bits.
    let back = UNSHIFT[1].apply(state);
    if back >> 16 != 0 {
        return None;
    }
    let bytes = back.to_le_bytes();
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// A linear map on CRC states, by the images of single bits.
#[derive(Clone, Copy)]
struct Map([u32; 32]);

impl Map {
    const fn apply(&self, state: u32) -> u32 {
        let mut result = 0;
        let mut bit = 0;
        while bit < 32 {
            if state >> bit & 1 == 1 {
                result ^= self.0[bit];
            }
            bit += 1;
        }
        result
    }
}

/// `UNSHIFT[k]` undoes 2^k zero bytes.
static UNSHIFT: [Map; 16] = unshift_maps();

const fn unshift_maps() -> [Map; 16] {
    let mut maps = [Map([0; 32]); 16];
    let mut bit = 0;
    while bit < 32 {
        maps[0].0[bit] = unshift_one_byte(1 << bit);
        bit += 1;
    }
    let mut power = 1;
    while power < 16 {
        let mut bit = 0;
        while bit < 32 {
            maps[power].0[bit] = maps[power - 1].apply(maps[power - 1].0[bit]);
            bit += 1;
        }
        power += 1;
    }
    maps
}

const fn unshift_one_byte(mut state: u32) -> u32 {
    let mut step = 0;
    while step < 8 {
        // A forward step is (s >> 1) ^ (low bit ? POLYNOMIAL : 0); the polynomial's top bit is
        // set, so the top bit after it tells whether it was applied.
        state = if state >> 31 == 1 {
            ((state ^ POLYNOMIAL) << 1) | 1
        } else {
            state << 1
        };
        step += 1;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use std::vec::Vec;

    fn flow(id: u16) -> Flow {
        Flow {
            source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
            source_port: 50_000,
            destination_port: crate::ROCE_V2_PORT,
            ipv4_id: id,
            ipv4_fragment: IPV4_DONT_FRAGMENT,
        }
    }

    fn packet(id: u16, len: usize) -> Vec<u8> {
        let mut roce: Vec<u8> = (0..len + Bth::LEN)
            .map(|i| u8::try_from(i * 7 % 251).unwrap())
            .collect();
        let icrc = Seed::new(&flow(id), roce.len() + LEN).of(&roce);
        roce.extend_from_slice(&icrc);
        roce
    }

    #[test]
    fn state_after_the_leading_ones() {
        let mut hasher = Hasher::new();
        hasher.update(&[0xff; 8]);
        assert_eq!(!hasher.finalize(), 0xdebb_20e3);
    }

    #[test]
    fn unknown_identification_is_solved_for() {
        for len in [0, 1, 100, 4096] {
            for id in [0, 1, 77, 0x8000, 0xffff] {
                let roce = packet(id, len);
                let expected = if id == 0 {
                    Verdict::Good
                } else {
                    Verdict::GoodWithId(id)
                };
                assert_eq!(check(&flow(0), &roce), expected);
                let guess = check(&flow(5), &roce);
                let right = if id == 5 {
                    Verdict::Good
                } else {
                    Verdict::GoodWithId(id)
                };
                assert_eq!(guess, right);
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_bad() {
        let mut roce = packet(9, 64);
        let mut accepted = 0;
        for bit in 0..roce.len() * 8 {
            if bit / 8 == 4 {
                continue; // the byte that routers may change
            }
            roce[bit / 8] ^= 1 << (bit % 8);
            accepted += usize::from(check(&flow(0), &roce) != Verdict::Bad);
            roce[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(
            accepted, 0,
            "no single-bit error looks like another identification"
        );
    }

    #[test]
    fn too_short_is_bad() {
        for len in 0..Bth::LEN + LEN {
            assert_eq!(check(&flow(0), &packet(0, 4)[..len]), Verdict::Bad);
        }
    }
}
