//! Receiving datagrams (UD, IBTA 9.8.3) and the 40 bytes of "GRH" before each (IBTA 8.3).

use crate::qp::{Context, Qp};
use crate::{CompletionOpcode, CompletionStatus, Host};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use feroce_wire::header::Bth;
use feroce_wire::{Address, Extensions, Operation, Packet, icrc, pad_len};

/// Bytes before the payload of a datagram in its receive.
pub(crate) const GRH_LEN: usize = 40;

const IPV4_HEADER_LEN: usize = 20;
const UDP_HEADER_LEN: usize = 8;
const PROTOCOL_UDP: u8 = 17;

impl Qp {
    /// A datagram for this queue pair, by its number or by a group.
    pub(crate) fn handle_datagram<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        from: &Address,
        packet: &Packet<'_>,
    ) {
        let (Some((qkey, source_qpn)), Operation::Send) =
            (packet.extensions.datagram, packet.info.operation)
        else {
            cx.counters().dropped_service += 1;
            return;
        };
        if qkey != self.attributes.qkey {
            cx.counters().qkey_violations += 1;
            return;
        }
        let length = GRH_LEN as u64 + packet.payload.len() as u64;
        // W14: a datagram that does not fit is dropped; it uses no receive and harms nothing.
        match self.peek_capacity(cx) {
            None => {
                cx.counters().out_of_buffer += 1;
                return;
            }
            Some(capacity) if capacity < length => {
                cx.counters().datagram_too_long += 1;
                return;
            }
            Some(_) => {}
        }
        let Ok(taken) = self.take_receive(cx, None) else {
            return;
        };
        let (pd, sges) = (taken.pd, &taken.request.sges);
        let grh = grh(from, packet);
        let written = cx
            .host
            .scatter(pd, sges, 0, &grh)
            .and_then(|()| cx.host.scatter(pd, sges, GRH_LEN as u64, packet.payload));
        if written.is_err() {
            let status = CompletionStatus::LocalProtection;
            self.complete_receive_error(cx, &taken, status);
            self.enter_error(cx);
            return;
        }
        let mut completion = self.completion(taken.request.wr_id, CompletionOpcode::Receive);
        completion.byte_len = u32::try_from(length).unwrap_or(u32::MAX);
        completion.immediate = packet.extensions.immediate;
        completion.source_qpn = source_qpn;
        completion.source = Some(from.source);
        completion.solicited = packet.solicited;
        let cq = self.receive_cq(&taken);
        cx.host.complete(cq, completion);
    }

    /// Bytes that the oldest receive holds.
    fn peek_capacity<H: Host>(&self, cx: &Context<'_, H>) -> Option<u64> {
        match self.init.srq {
            Some(id) => cx.shared.srqs.peek_capacity(id),
            None => self.receives.front().map(|request| {
                let bytes = request.sges.iter().map(|sge| u64::from(sge.length));
                bytes.sum()
            }),
        }
    }
}

/// The IP header of a datagram as it would lie in memory: an IPv6 header, or 20 zero bytes and
/// an IPv4 header.
fn grh(from: &Address, packet: &Packet<'_>) -> [u8; GRH_LEN] {
    let roce_len = Bth::LEN
        + Extensions::len(packet.info)
        + packet.payload.len()
        + usize::from(pad_len(packet.payload.len()))
        + icrc::LEN;
    let udp_len = u16::try_from(UDP_HEADER_LEN + roce_len).unwrap_or(u16::MAX);
    let mut grh = [0; GRH_LEN];
    match (from.source, from.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = ipv4_header(from, source, destination, udp_len);
            grh[GRH_LEN - IPV4_HEADER_LEN..].copy_from_slice(&header);
        }
        (source, destination) => {
            let [high, low] = udp_len.to_be_bytes();
            grh[0] = 0x60 | from.traffic_class >> 4;
            grh[1] = from.traffic_class << 4;
            grh[4..8].copy_from_slice(&[high, low, PROTOCOL_UDP, from.hop_limit]);
            grh[8..24].copy_from_slice(&ipv6_of(source).octets());
            grh[24..].copy_from_slice(&ipv6_of(destination).octets());
        }
    }
    grh
}

const fn ipv6_of(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn ipv4_header(
    from: &Address,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    udp_len: u16,
) -> [u8; IPV4_HEADER_LEN] {
    const DONT_FRAGMENT: u8 = 0x40;
    const HEADER_BYTES: u16 = 20;
    let [high, low] = udp_len.saturating_add(HEADER_BYTES).to_be_bytes();
    let mut header = [0; IPV4_HEADER_LEN];
    header[..4].copy_from_slice(&[0x45, from.traffic_class, high, low]);
    header[6] = DONT_FRAGMENT;
    header[8] = from.hop_limit;
    header[9] = PROTOCOL_UDP;
    header[12..16].copy_from_slice(&source.octets());
    header[16..].copy_from_slice(&destination.octets());
    let checksum = internet_checksum(&header).to_be_bytes();
    header[10..12].copy_from_slice(&checksum);
    header
}

/// RFC 1071, over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let (words, _) = bytes.as_chunks::<2>();
    let sum: u32 = words
        .iter()
        .map(|&word| u32::from(u16::from_be_bytes(word)))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_a_known_header() {
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 192, 168, 0, 1, 192, 168, 0, 199,
        ];
        assert_eq!(internet_checksum(&header), 0xb861);
    }
}
