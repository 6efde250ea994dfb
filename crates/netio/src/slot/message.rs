//! What is said between slots, as bytes.
//!
//! Little-endian, behind a header with a version, since processes on one host may run different
//! builds. A message is believed no further than its sender's user (checked by the caller) and
//! parsed as strictly as a packet from the network.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

const MAGIC: [u8; 2] = *b"Fe";
/// Also raised when marks or bundles change: whoever answers a question for a port takes both.
const VERSION: u8 = 3;
const HEADER_BYTES: usize = 4;

/// Misdirected packets.
pub(crate) const KIND_PACKETS: u8 = 0;
const KIND_QUERY: u8 = 1;
const KIND_ANSWER: u8 = 2;
/// A message of the layers above.
pub(crate) const KIND_CALLER: u8 = 3;

/// Length of the record before each run of packets.
pub(crate) const RECORD_BYTES: usize = 52;

/// Runs of packets in one message.
pub(crate) const RUNS_MAX: usize = 32;

/// Packet bytes in one message: one receive batch of joined datagrams (at most 65,535 bytes).
const PACKET_BYTES_MAX: usize = 64 * 1024;

/// Longest message.
pub(crate) const BYTES_MAX: usize = HEADER_BYTES + RUNS_MAX * RECORD_BYTES + PACKET_BYTES_MAX;

/// The header of a message of this kind.
pub(crate) const fn header(kind: u8) -> [u8; HEADER_BYTES] {
    [MAGIC[0], MAGIC[1], VERSION, kind]
}

/// Datagrams of one flow, all of `segment_len` bytes but the last, with what their headers said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    pub(crate) source: SocketAddr,
    pub(crate) destination: IpAddr,
    pub(crate) destination_port: u16,
    pub(crate) tclass: u8,
    pub(crate) hop_limit: u8,
    pub(crate) segment_len: usize,
    pub(crate) bytes: &'a [u8],
}

impl Run<'_> {
    pub(crate) fn datagrams(&self) -> usize {
        self.bytes.len().div_ceil(self.segment_len.max(1))
    }

    pub(crate) fn encode(&self) -> [u8; RECORD_BYTES] {
        let scope = match self.source {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        };
        let mut record = [0; RECORD_BYTES];
        let mut writer = Writer(&mut record);
        writer.put(&(self.bytes.len() as u32).to_le_bytes());
        writer.put(&(self.segment_len as u32).to_le_bytes());
        writer.put(&[self.tclass, self.hop_limit]);
        writer.put(&self.destination_port.to_le_bytes());
        writer.put(&wide(self.source.ip()));
        writer.put(&self.source.port().to_le_bytes());
        writer.put(&[0; 2]);
        writer.put(&scope.to_le_bytes());
        writer.put(&wide(self.destination));
        record
    }
}

/// How many of `runs` go into one message; at least one.
pub(crate) fn runs_that_fit(runs: &[Run<'_>]) -> usize {
    let mut bytes = 0;
    let fit = runs.iter().take(RUNS_MAX).take_while(|run| {
        bytes += run.bytes.len();
        bytes <= PACKET_BYTES_MAX
    });
    fit.count().max(1)
}

/// "Which private UDP port do you own for this address, if you serve this port on it?"
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

const QUERY_BYTES: usize = HEADER_BYTES + 18;

impl Query {
    pub(crate) fn encode(&self) -> [u8; QUERY_BYTES] {
        let mut bytes = [0; QUERY_BYTES];
        let mut writer = Writer(&mut bytes);
        writer.put(&header(KIND_QUERY));
        writer.put(&wide(self.address));
        writer.put(&self.port.to_le_bytes());
        bytes
    }
}

/// The answer to a [`Query`], which it repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) query: Query,
    /// The private port; 0 if the address is not served.
    pub(crate) private_port: u16,
    /// Receive buffer of the private socket, in the kernel's accounting.
    pub(crate) buffer: u32,
}

const ANSWER_BYTES: usize = QUERY_BYTES + 6;

impl Answer {
    pub(crate) fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        let mut writer = Writer(&mut bytes);
        writer.put(&header(KIND_ANSWER));
        writer.put(&wide(self.query.address));
        writer.put(&self.query.port.to_le_bytes());
        writer.put(&self.private_port.to_le_bytes());
        writer.put(&self.buffer.to_le_bytes());
        bytes
    }
}

/// A message from another slot.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Answer(Answer),
    Caller { kind: u8, payload: &'a [u8] },
    Packets(Packets<'a>),
    Query(Query),
}

impl<'a> Incoming<'a> {
    /// Parses a message; `None` if it is not one of ours.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let [first, second, version, kind] = *reader.take::<HEADER_BYTES>()?;
        if [first, second] != MAGIC || version != VERSION {
            return None;
        }
        match kind {
            KIND_PACKETS => Some(Self::Packets(Packets(reader))),
            KIND_QUERY => Some(Self::Query(Query {
                address: narrow(*reader.take()?),
                port: reader.u16()?,
            })),
            KIND_ANSWER => Some(Self::Answer(Answer {
                query: Query {
                    address: narrow(*reader.take()?),
                    port: reader.u16()?,
                },
                private_port: reader.u16()?,
                buffer: reader.u32()?,
            })),
            KIND_CALLER => {
                let (kind, payload) = reader.0.split_first()?;
                Some(Self::Caller {
                    kind: *kind,
                    payload,
                })
            }
            _ => None,
        }
    }
}

/// The runs of packets in a message; ends at the first that is not whole.
#[derive(Debug)]
pub(crate) struct Packets<'a>(Reader<'a>);

impl<'a> Iterator for Packets<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let reader = &mut self.0;
        let length = reader.u32()? as usize;
        let segment_len = reader.u32()? as usize;
        let [tclass, hop_limit] = *reader.take()?;
        let destination_port = reader.u16()?;
        let source_ip = narrow(*reader.take()?);
        let source_port = reader.u16()?;
        reader.u16()?;
        let scope = reader.u32()?;
        let destination = narrow(*reader.take()?);
        let bytes = reader.split(length)?;
        if segment_len == 0 || source_ip.is_ipv4() != destination.is_ipv4() {
            return None;
        }
        let source = match source_ip {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), source_port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, source_port, 0, scope).into(),
        };
        Some(Run {
            source,
            destination,
            destination_port,
            tclass,
            hop_limit,
            segment_len,
            bytes,
        })
    }
}

/// Any address in 16 bytes. The sockets are single-family, so no real IPv6 address is mapped.
const fn wide(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

const fn narrow(bytes: [u8; 16]) -> IpAddr {
    let ip = Ipv6Addr::from_octets(bytes);
    match ip.to_ipv4_mapped() {
        Some(ip) => IpAddr::V4(ip),
        None => IpAddr::V6(ip),
    }
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (now, later) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        now.copy_from_slice(bytes);
        self.0 = later;
    }
}

#[derive(Debug)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn split(&mut self, length: usize) -> Option<&'a [u8]> {
        let (now, later) = self.0.split_at_checked(length)?;
        self.0 = later;
        Some(now)
    }

    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        self.split(N)?.first_chunk()
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(|bytes| u16::from_le_bytes(*bytes))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(|bytes| u32::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: &[u8]) -> Run<'_> {
        Run {
            source: "[fe80::2%4]:49999".parse().unwrap(),
            destination: "fe80::1".parse().unwrap(),
            destination_port: 4791,
            tclass: 0x6b,
            hop_limit: 63,
            segment_len: 4,
            bytes,
        }
    }

    fn packets(runs: &[Run<'_>]) -> Vec<u8> {
        let mut bytes = header(KIND_PACKETS).to_vec();
        for run in runs {
            bytes.extend(run.encode());
            bytes.extend(run.bytes);
        }
        bytes
    }

    /// Runs of packets in a message, 0 if it is none of that kind.
    fn packets_in(bytes: &[u8]) -> usize {
        match Incoming::parse(bytes) {
            Some(Incoming::Packets(packets)) => packets.count(),
            _ => 0,
        }
    }

    #[test]
    fn packets_survive_the_round_trip() {
        let v4 = Run {
            source: "10.1.2.3:4".parse().unwrap(),
            destination: "10.9.8.7".parse().unwrap(),
            ..run(b"abcdefghij")
        };
        let runs = [run(b"abcd"), v4, run(b"")];
        let bytes = packets(&runs);
        let Some(Incoming::Packets(packets)) = Incoming::parse(&bytes) else {
            panic!("packets");
        };
        assert_eq!(packets.collect::<Vec<_>>(), runs);
        assert_eq!(v4.datagrams(), 3);
    }

    #[test]
    fn questions_and_answers_survive_the_round_trip() {
        for address in ["127.0.0.1", "2001:db8::1"] {
            let query = Query {
                address: address.parse().unwrap(),
                port: 4791,
            };
            assert!(
                matches!(Incoming::parse(&query.encode()), Some(Incoming::Query(q)) if q == query)
            );
            let answer = Answer {
                query,
                private_port: 50_000,
                buffer: 425_984,
            };
            assert!(matches!(
                Incoming::parse(&answer.encode()),
                Some(Incoming::Answer(a)) if a == answer
            ));
        }
    }

    #[test]
    fn cut_or_lying_messages_yield_nothing_beyond_their_end() {
        let whole = packets(&[run(b"abcd"), run(b"efgh")]);
        for length in 0..whole.len() {
            assert!(packets_in(&whole[..length]) < 2, "cut at {length}");
        }
        let mut lying = whole.clone();
        lying[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(packets_in(&lying), 0);
        // A segment length of zero would never end.
        let mut endless = whole.clone();
        endless[8..12].fill(0);
        assert_eq!(packets_in(&endless), 0);
        let kinds = [
            [b'X', b'e', VERSION, 0],
            [b'F', b'e', VERSION - 1, 0],
            [b'F', b'e', VERSION, 9],
        ];
        for foreign in [&b""[..], b"Fe"]
            .into_iter()
            .chain(kinds.iter().map(|k| &k[..]))
        {
            assert!(Incoming::parse(foreign).is_none());
        }
        assert!(Incoming::parse(&header(KIND_CALLER)).is_none());
    }

    #[test]
    fn a_message_takes_as_many_runs_as_fit_and_at_least_one() {
        let large = vec![0; 65_535];
        assert_eq!(runs_that_fit(&[run(&large), run(&large)]), 1);
        assert_eq!(runs_that_fit(&[run(&large[..30_000]); 3]), 2);
        assert_eq!(runs_that_fit(&[run(b"abcd"); 100]), RUNS_MAX);
    }
}
