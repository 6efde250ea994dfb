//! Captures of what a device sends and receives, as pcapng files any analyser reads.
//!
//! The frames around the RoCE packets are made up, since sockets show none: Ethernet addresses are
//! derived from the IP addresses, and the UDP checksum is 0 for IPv4. Addresses, ports, DSCP, ECN,
//! hop limit, IPv4 identification and "don't fragment" are those on the wire. Nothing is read
//! here: [`crate::read`] does that. Read draft-ietf-opsawg-pcapng first.
//!
//! Every block goes out in one `write`, so a file is whole up to the last packet even when its
//! process is killed, and several processes may append to one file: each begins a section of its
//! own, and all sections describe the same interface, so it does not matter whose packets follow
//! whose header.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use feroce_wire::icrc::Flow;

/// The environment variable that asks for a capture.
pub const VARIABLE: &str = "FEROCE_PCAP";

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const LINK_TYPE_ETHERNET: u16 = 1;

const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_SECTION_APPLICATION: u16 = 4;
const OPTION_INTERFACE_NAME: u16 = 2;
const OPTION_INTERFACE_TIME_RESOLUTION: u16 = 9;
const OPTION_PACKET_FLAGS: u16 = 2;

/// Timestamps count units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;

const UDP_PROTOCOL: u8 = 17;

/// Which way a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Received.
    In,
    /// Sent.
    Out,
}

/// A RoCE packet and what its outer headers said.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Which way it went.
    pub direction: Direction,
    /// Addresses, ports and IPv4 fields.
    pub flow: &'a Flow,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// BTH to ICRC, in as many pieces as are at hand; at most 65,507 bytes in all.
    pub roce: &'a [&'a [u8]],
    /// A remark for whoever reads the capture.
    pub comment: Option<&'a str>,
}

/// Writes one pcapng section.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a section; `application` tells who wrote it.
    ///
    /// # Errors
    /// The output's.
    pub fn new(output: W, application: &str) -> io::Result<Self> {
        let mut writer = Self {
            output,
            block: Vec::new(),
        };
        writer.begin(SECTION_HEADER);
        writer.put(&BYTE_ORDER_MAGIC.to_le_bytes());
        writer.put(&1u16.to_le_bytes()); // major version
        writer.put(&0u16.to_le_bytes()); // minor version
        writer.put(&u64::MAX.to_le_bytes()); // section length: not known
        writer.option(OPTION_SECTION_APPLICATION, application.as_bytes());
        writer.option(OPTION_END, &[]);
        let mut head = writer.end();
        writer.begin(INTERFACE_DESCRIPTION);
        writer.put(&LINK_TYPE_ETHERNET.to_le_bytes());
        writer.put(&[0; 2]);
        writer.put(&0u32.to_le_bytes()); // no limit to the captured length
        writer.option(OPTION_INTERFACE_NAME, b"feroce");
        writer.option(OPTION_INTERFACE_TIME_RESOLUTION, &[NANOSECONDS]);
        writer.option(OPTION_END, &[]);
        let interface = writer.end();
        // Together, so that no packet of another process comes between them.
        head.extend(interface);
        writer.output.write_all(&head)?;
        Ok(writer)
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The output's, and `InvalidInput` for a packet that no datagram can hold.
    pub fn packet(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let headers = Headers::around(packet)?;
        let headers = headers.as_bytes();
        let roce_len: usize = packet.roce.iter().map(|piece| piece.len()).sum();
        // Bounded by `Headers::around`.
        let length = (headers.len() + roce_len) as u32;
        self.begin(ENHANCED_PACKET);
        self.put(&0u32.to_le_bytes()); // interface
        self.put(&((packet.time_ns >> 32) as u32).to_le_bytes());
        self.put(&(packet.time_ns as u32).to_le_bytes());
        self.put(&length.to_le_bytes()); // captured
        self.put(&length.to_le_bytes()); // on the wire
        self.put(headers);
        for piece in packet.roce {
            self.put(piece);
        }
        self.pad();
        let flags: u32 = match packet.direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        self.option(OPTION_PACKET_FLAGS, &flags.to_le_bytes());
        if let Some(comment) = packet.comment {
            self.option(OPTION_COMMENT, comment.as_bytes());
        }
        self.option(OPTION_END, &[]);
        let block = self.end();
        let result = self.output.write_all(&block);
        // Keep the allocation for the next packet.
        self.block = block;
        result
    }

    fn begin(&mut self, block_type: u32) {
        self.block.clear();
        self.put(&block_type.to_le_bytes());
        self.put(&[0; 4]); // the length, once it is known
    }

    fn put(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
    }

    fn pad(&mut self) {
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.put(&code.to_le_bytes());
        self.put(&(value.len() as u16).to_le_bytes());
        self.put(value);
        self.pad();
    }

    fn end(&mut self) -> Vec<u8> {
        let length = (self.block.len() as u32 + 4).to_le_bytes();
        self.put(&length);
        self.block[4..8].copy_from_slice(&length);
        std::mem::take(&mut self.block)
    }
}

/// The capture a process was asked for, if it was.
#[derive(Debug)]
pub struct Capture {
    /// `None` once it failed.
    writer: Option<Writer<File>>,
    path: PathBuf,
}

impl Capture {
    /// Opens the file `FEROCE_PCAP` names, or nothing if it is not set. A `%p` in the name becomes
    /// the process id. A failure is told on stderr, once: someone asked for the file and will
    /// look for it.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let name = std::env::var_os(VARIABLE).filter(|name| !name.is_empty())?;
        let path = with_process_id(&name);
        match Self::open(&path) {
            Ok(capture) => Some(capture),
            Err(error) => {
                crate::complain(&format!(
                    "{VARIABLE}: {} cannot be written: {error}",
                    path.display()
                ));
                None
            }
        }
    }

    /// Begins a section at the end of `path`, which is made if it does not exist.
    ///
    /// # Errors
    /// The file system's, and `InvalidData` if the file holds something that is no capture.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)?;
        let mut start = Vec::new();
        (&file).take(4).read_to_end(&mut start)?;
        if !start.is_empty() && start != SECTION_HEADER.to_le_bytes() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the file exists and is no pcapng capture; it is left as it is",
            ));
        }
        let program = crate::program_name();
        let id = std::process::id();
        let version = env!("CARGO_PKG_VERSION");
        let application = format!("Feroce {version} in {program} (process {id})");
        Ok(Self {
            writer: Some(Writer::new(file, &application)?),
            path: path.to_owned(),
        })
    }

    /// Appends a packet with the present time. `roce` is BTH to ICRC. After a failure, which is
    /// told on stderr, it does nothing: a full disk must not stop the program.
    pub fn record(
        &mut self,
        direction: Direction,
        flow: &Flow,
        traffic_class: u8,
        hop_limit: u8,
        roce: &[u8],
    ) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let result = writer.packet(&Packet {
            time_ns: since_1970.map_or(0, |time| time.as_nanos() as u64),
            direction,
            flow,
            traffic_class,
            hop_limit,
            roce: &[roce],
            comment: None,
        });
        match result {
            Ok(()) => {}
            // One packet that cannot be framed is no reason to end the capture.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                log::warn!("a packet is missing in the capture: {error}");
            }
            Err(error) => {
                self.writer = None;
                crate::complain(&format!(
                    "{VARIABLE}: the capture {} ends here: {error}",
                    self.path.display()
                ));
            }
        }
    }
}

/// `name` with the process id in place of every `%p`.
fn with_process_id(name: &std::ffi::OsStr) -> PathBuf {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let id = std::process::id().to_string();
    let mut result = Vec::new();
    let mut rest = name.as_bytes();
    while let Some(at) = rest.windows(2).position(|pair| pair == b"%p") {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(id.as_bytes());
        rest = &rest[at + 2..];
    }
    result.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(result))
}

/// Ethernet, IP and UDP headers.
struct Headers {
    bytes: [u8; Self::LEN_MAX],
    length: usize,
}

impl Headers {
    const ETHERNET: usize = 14;
    const IPV4: usize = 20;
    const IPV6: usize = 40;
    const UDP: usize = 8;
    const LEN_MAX: usize = Self::ETHERNET + Self::IPV6 + Self::UDP;

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// The headers around a packet.
    fn around(packet: &Packet<'_>) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let roce_len: usize = packet.roce.iter().map(|piece| piece.len()).sum();
        let udp_len = u16::try_from(Self::UDP + roce_len)
            .ok()
            .filter(|length| usize::from(*length) + Self::IPV4 <= usize::from(u16::MAX))
            .ok_or_else(|| invalid("longer than a datagram can be"))?;
        let flow = packet.flow;
        let mut headers = Self {
            bytes: [0; Self::LEN_MAX],
            length: 0,
        };
        headers.put(&ethernet_address(flow.destination));
        headers.put(&ethernet_address(flow.source));
        let pseudo = match (flow.source, flow.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                headers.put(&0x0800u16.to_be_bytes());
                headers.put_ipv4(packet, udp_len, source.octets(), destination.octets());
                None
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                headers.put(&0x86ddu16.to_be_bytes());
                headers.put_ipv6(packet, udp_len, source.octets(), destination.octets());
                Some((source.octets(), destination.octets()))
            }
            _ => return Err(invalid("source and destination differ in family")),
        };
        let udp_at = headers.length;
        headers.put(&flow.source_port.to_be_bytes());
        headers.put(&flow.destination_port.to_be_bytes());
        headers.put(&udp_len.to_be_bytes());
        headers.put(&[0; 2]);
        if let Some((source, destination)) = pseudo {
            let mut sum = Checksum::default();
            sum.add(&source);
            sum.add(&destination);
            sum.add(&u32::from(udp_len).to_be_bytes());
            sum.add(&[0, 0, 0, UDP_PROTOCOL]);
            sum.add(&headers.bytes[udp_at..headers.length]);
            packet.roce.iter().for_each(|piece| sum.add(piece));
            // 0 would say that there is none, which IPv6 does not allow.
            let sum = match sum.finish() {
                0 => u16::MAX,
                sum => sum,
            };
            headers.bytes[udp_at + 6..headers.length].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(headers)
    }

    fn put_ipv4(
        &mut self,
        packet: &Packet<'_>,
        udp_len: u16,
        source: [u8; 4],
        destination: [u8; 4],
    ) {
        let start = self.length;
        self.put(&[0x45, packet.traffic_class]);
        // Checked in `around`.
        self.put(&(Self::IPV4 as u16 + udp_len).to_be_bytes());
        self.put(&packet.flow.ipv4_id.to_be_bytes());
        self.put(&packet.flow.ipv4_fragment.to_be_bytes());
        self.put(&[packet.hop_limit, UDP_PROTOCOL, 0, 0]);
        self.put(&source);
        self.put(&destination);
        let mut sum = Checksum::default();
        sum.add(&self.bytes[start..self.length]);
        self.bytes[start + 10..start + 12].copy_from_slice(&sum.finish().to_be_bytes());
    }

    fn put_ipv6(
        &mut self,
        packet: &Packet<'_>,
        udp_len: u16,
        source: [u8; 16],
        destination: [u8; 16],
    ) {
        let first = 0x6000_0000 | u32::from(packet.traffic_class) << 20;
        self.put(&first.to_be_bytes());
        self.put(&udp_len.to_be_bytes());
        self.put(&[UDP_PROTOCOL, packet.hop_limit]);
        self.put(&source);
        self.put(&destination);
    }
}

/// A made-up Ethernet address: the true one of a multicast group, a locally administered one with
/// the last bytes of the IP address otherwise.
fn ethernet_address(ip: IpAddr) -> [u8; 6] {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            if ip.is_multicast() {
                [0x01, 0x00, 0x5e, b & 0x7f, c, d]
            } else {
                [0x02, 0x00, a, b, c, d]
            }
        }
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            if ip.is_multicast() {
                [0x33, 0x33, a, b, c, d]
            } else {
                [0x02, 0x06, a, b, c, d]
            }
        }
    }
}

/// The one's complement sum of IP and UDP.
#[derive(Default)]
struct Checksum {
    sum: u64,
    /// A byte that waits for the second half of its word.
    odd: Option<u8>,
}

impl Checksum {
    fn add(&mut self, mut bytes: &[u8]) {
        if let Some(high) = self.odd
            && let Some((low, rest)) = bytes.split_first()
        {
            self.sum += u64::from(u16::from_be_bytes([high, *low]));
            self.odd = None;
            bytes = rest;
        }
        let mut words = bytes.chunks_exact(2);
        for word in &mut words {
            self.sum += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [high] = words.remainder() {
            self.odd = Some(*high);
        }
    }

    fn finish(mut self) -> u16 {
        self.add(&[0]);
        let mut sum = self.sum;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

#[cfg(test)]
mod tests;
