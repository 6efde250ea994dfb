//! Capture files, read as a stream of link-layer frames: classic pcap and pcapng.
//!
//! What it is not: it does not look into frames, [`crate::frame`] does; it keeps neither names
//! nor statistics. Read draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng first.

use crate::pcapng::Direction;
use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

/// How the first bytes of a captured frame are to be read (the registry of link types).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet, without preamble and frame check sequence.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6, no link layer.
    pub const RAW: Self = Self(101);
    /// Linux "cooked" capture, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4, no link layer.
    pub const IPV4: Self = Self(228);
    /// IPv6, no link layer.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link type {}", self.0)
    }
}

/// One captured frame.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Time since 1970, or `None` where the file holds none.
    pub time: Option<Duration>,
    /// What `bytes` begin with.
    pub link_type: LinkType,
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Bytes the frame had on the wire; more than were captured if it was cut.
    pub original_len: u32,
    /// Which way it went, where the file tells.
    pub direction: Option<Direction>,
    /// A remark of the file's writer.
    pub comment: Option<&'a str>,
}

/// Why a capture cannot be read, or not further. Always the fault of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The operating system refused.
    Io(io::Error),
    /// The file begins like neither format; holds its first four bytes.
    NotACapture([u8; 4]),
    /// The file ends within a record, as when its writer was killed.
    CutShort {
        /// Where the record begins, in bytes.
        offset: u64,
    },
    /// The file breaks a rule of its format.
    Damaged {
        /// Where the record begins, in bytes.
        offset: u64,
        /// The rule.
        what: &'static str,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotACapture(start) => {
                write!(
                    f,
                    "neither pcap nor pcapng: the file begins with {start:02x?}"
                )
            }
            Self::CutShort { offset } => {
                write!(f, "the file ends within the record at byte {offset}")
            }
            Self::Damaged { offset, what } => write!(f, "damaged record at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads the records of one capture, one after the other.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    format: Format,
    body: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a capture. Give it a buffered `input`: it reads in small pieces.
    ///
    /// # Errors
    /// [`ReadError`], when the input is no capture or cannot be read.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut input = Input {
            inner: input,
            offset: 0,
            record_at: 0,
        };
        let magic: [u8; 4] = input.array()?;
        let format = if magic == PCAPNG_SECTION.to_be_bytes() {
            let order = section(&mut input)?;
            Format::Pcapng {
                order,
                interfaces: Vec::new(),
            }
        } else {
            Format::Pcap(Pcap::head(magic, &mut input)?)
        };
        Ok(Self {
            input,
            format,
            body: Vec::new(),
        })
    }

    /// The next frame, or `None` at the end of the file. After an error there is nothing more.
    ///
    /// # Errors
    /// [`ReadError`], when the file is cut short or damaged.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.input, &mut self.body),
            Format::Pcapng { order, interfaces } => {
                next_packet(&mut self.input, &mut self.body, order, interfaces)
            }
        }
    }
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng {
        order: Order,
        interfaces: Vec<Interface>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Big => u16::from_be_bytes(bytes),
            Self::Little => u16::from_le_bytes(bytes),
        }
    }

    fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    fn u64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Big => u64::from_be_bytes(bytes),
            Self::Little => u64::from_le_bytes(bytes),
        }
    }
}

/// What every record of a classic pcap shares.
#[derive(Debug)]
struct Pcap {
    order: Order,
    nanoseconds: bool,
    link_type: LinkType,
}

impl Pcap {
    fn head<R: Read>(magic: [u8; 4], input: &mut Input<R>) -> Result<Self, ReadError> {
        let (order, nanoseconds) = match u32::from_be_bytes(magic) {
            PCAP_MICROS => (Order::Big, false),
            PCAP_NANOS => (Order::Big, true),
            swapped if swapped.swap_bytes() == PCAP_MICROS => (Order::Little, false),
            swapped if swapped.swap_bytes() == PCAP_NANOS => (Order::Little, true),
            _ => return Err(ReadError::NotACapture(magic)),
        };
        // Version, time zone, accuracy and snap length say nothing that we need.
        input.skip(16)?;
        // The upper bits tell of a frame check sequence, which no Ethernet capture of note has.
        let [.., high, low] = order.u32(input.array()?).to_be_bytes();
        Ok(Self {
            order,
            nanoseconds,
            link_type: LinkType(u16::from_be_bytes([high, low])),
        })
    }

    fn next<'b, R: Read>(
        &self,
        input: &mut Input<R>,
        body: &'b mut Vec<u8>,
    ) -> Result<Option<Record<'b>>, ReadError> {
        let Some(seconds) = input.first_of_record()? else {
            return Ok(None);
        };
        let seconds = self.order.u32(seconds);
        let fraction = self.order.u32(input.array()?);
        let captured_len = self.order.u32(input.array()?);
        let original_len = self.order.u32(input.array()?);
        let fraction =
            Duration::from_nanos(u64::from(fraction)) * if self.nanoseconds { 1 } else { 1000 };
        input.body(captured_len, body)?;
        Ok(Some(Record {
            time: Some(Duration::from_secs(u64::from(seconds)) + fraction),
            link_type: self.link_type,
            bytes: body,
            original_len,
            direction: None,
            comment: None,
        }))
    }
}

/// What a pcapng section says of one interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: LinkType,
    snap_len: u32,
    units_per_second: u64,
    offset_seconds: i64,
}

impl Interface {
    fn read(body: &[u8], order: Order) -> Result<Self, &'static str> {
        let mut fields = Fields { left: body, order };
        let link_type = LinkType(fields.u16()?);
        fields.u16()?;
        let mut interface = Self {
            link_type,
            snap_len: fields.u32()?,
            units_per_second: 1_000_000,
            offset_seconds: 0,
        };
        while let Some((code, value)) = fields.option()? {
            match code {
                OPTION_RESOLUTION => {
                    let code = *value.first().ok_or("an empty timestamp resolution")?;
                    interface.units_per_second = units_per_second(code)?;
                }
                OPTION_TIME_OFFSET => {
                    let value = value.first_chunk().ok_or("a short timestamp offset")?;
                    interface.offset_seconds = order.u64(*value).cast_signed();
                }
                _ => {}
            }
        }
        Ok(interface)
    }

    fn time(&self, units: u64) -> Duration {
        let whole = Duration::from_secs(units / self.units_per_second);
        let rest = u128::from(units % self.units_per_second) * 1_000_000_000;
        let nanos = rest / u128::from(self.units_per_second);
        // Below one second, so it fits.
        let fraction = Duration::from_nanos(u64::try_from(nanos).unwrap_or_default());
        let time = whole + fraction;
        let offset = Duration::from_secs(self.offset_seconds.unsigned_abs());
        if self.offset_seconds < 0 {
            time.saturating_sub(offset)
        } else {
            time.saturating_add(offset)
        }
    }
}

fn units_per_second(code: u8) -> Result<u64, &'static str> {
    let power = u32::from(code & 0x7f);
    let base = if code & 0x80 == 0 { 10_u64 } else { 2 };
    base.checked_pow(power)
        .ok_or("a timestamp resolution finer than 64 bits can count")
}

/// Reads the rest of a section header block, whose type has been read.
fn section<R: Read>(input: &mut Input<R>) -> Result<Order, ReadError> {
    let len: [u8; 4] = input.array()?;
    let order = match u32::from_be_bytes(input.array()?) {
        PCAPNG_BYTE_ORDER => Order::Big,
        swapped if swapped.swap_bytes() == PCAPNG_BYTE_ORDER => Order::Little,
        _ => return Err(input.damaged("no byte-order mark")),
    };
    let rest = order
        .u32(len)
        .checked_sub(12)
        .filter(|rest| rest % 4 == 0 && *rest >= 16);
    let rest = rest.ok_or_else(|| input.damaged("a section header of impossible length"))?;
    let major = order.u16(input.array()?);
    if major != 1 {
        return Err(input.damaged("a pcapng version other than 1"));
    }
    input.skip(u64::from(rest) - 2)?;
    Ok(order)
}

/// Reads blocks up to the next one that holds a packet.
fn next_packet<'b, R: Read>(
    input: &mut Input<R>,
    body: &'b mut Vec<u8>,
    order: &mut Order,
    interfaces: &mut Vec<Interface>,
) -> Result<Option<Record<'b>>, ReadError> {
    loop {
        let Some(kind) = input.first_of_record()? else {
            return Ok(None);
        };
        if kind == PCAPNG_SECTION.to_be_bytes() {
            *order = section(input)?;
            interfaces.clear();
            continue;
        }
        let len = order.u32(input.array()?);
        let len = len.checked_sub(12).filter(|len| len % 4 == 0);
        let len = len.ok_or_else(|| input.damaged("a block of impossible length"))?;
        let kind = order.u32(kind);
        if !matches!(
            kind,
            BLOCK_INTERFACE | BLOCK_SIMPLE | BLOCK_ENHANCED | BLOCK_PACKET
        ) {
            input.skip(u64::from(len) + 4)?;
            continue;
        }
        input.body(len, body)?;
        input.skip(4)?;
        if kind != BLOCK_INTERFACE {
            break match packet(kind, body, *order, interfaces) {
                Ok(record) => Ok(Some(record)),
                Err(what) => Err(input.damaged(what)),
            };
        }
        if interfaces.len() == INTERFACES_MAX {
            return Err(input.damaged("more interfaces than anyone has"));
        }
        let interface = Interface::read(body, *order).map_err(|what| input.damaged(what))?;
        interfaces.push(interface);
    }
}

/// Reads the body of a block that holds a packet.
fn packet<'b>(
    kind: u32,
    body: &'b [u8],
    order: Order,
    interfaces: &[Interface],
) -> Result<Record<'b>, &'static str> {
    let mut fields = Fields { left: body, order };
    let index = match kind {
        BLOCK_ENHANCED => fields.u32()?,
        BLOCK_PACKET => u32::from(fields.u16()?),
        _ => 0,
    };
    let interface = usize::try_from(index)
        .ok()
        .and_then(|index| interfaces.get(index));
    let interface = interface.ok_or("a packet of an interface that was not described")?;
    if kind == BLOCK_SIMPLE {
        let original_len = fields.u32()?;
        let limit = if interface.snap_len == 0 {
            u32::MAX
        } else {
            interface.snap_len
        };
        return Ok(Record {
            time: None,
            link_type: interface.link_type,
            bytes: fields.bytes(original_len.min(limit) as usize)?,
            original_len,
            direction: None,
            comment: None,
        });
    }
    if kind == BLOCK_PACKET {
        fields.u16()?; // packets dropped
    }
    let (high, low) = (fields.u32()?, fields.u32()?);
    let captured_len = fields.u32()?;
    let original_len = fields.u32()?;
    let mut record = Record {
        time: Some(interface.time(u64::from(high) << 32 | u64::from(low))),
        link_type: interface.link_type,
        bytes: fields.padded(captured_len as usize)?,
        original_len,
        direction: None,
        comment: None,
    };
    while let Some((code, value)) = fields.option()? {
        match code {
            OPTION_COMMENT => record.comment = str::from_utf8(value).ok(),
            OPTION_PACKET_FLAGS => {
                let flags = *value.first_chunk().ok_or("short packet flags")?;
                record.direction = match order.u32(flags) & 3 {
                    1 => Some(Direction::In),
                    2 => Some(Direction::Out),
                    _ => None,
                };
            }
            _ => {}
        }
    }
    Ok(record)
}

/// Splits fields off a block's body.
struct Fields<'a> {
    left: &'a [u8],
    order: Order,
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (array, left) = self.left.split_first_chunk().ok_or(TOO_SHORT)?;
        self.left = left;
        Ok(*array)
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        Ok(self.order.u16(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(self.order.u32(self.array()?))
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (bytes, left) = self.left.split_at_checked(len).ok_or(TOO_SHORT)?;
        self.left = left;
        Ok(bytes)
    }

    /// `len` bytes and what fills them up to a whole word.
    fn padded(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let bytes = self.bytes(len)?;
        self.bytes(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    /// The next option, until their end.
    fn option(&mut self) -> Result<Option<(u16, &'a [u8])>, &'static str> {
        if self.left.len() < 4 {
            return Ok(None);
        }
        let (code, len) = (self.u16()?, self.u16()?);
        let value = self.padded(usize::from(len))?;
        Ok((code != OPTION_END).then_some((code, value)))
    }
}

/// The input, and how far it was read.
#[derive(Debug)]
struct Input<R> {
    inner: R,
    offset: u64,
    record_at: u64,
}

impl<R: Read> Input<R> {
    fn damaged(&self, what: &'static str) -> ReadError {
        ReadError::Damaged {
            offset: self.record_at,
            what,
        }
    }

    /// The first four bytes of a record, or `None` if the file ends here.
    fn first_of_record(&mut self) -> Result<Option<[u8; 4]>, ReadError> {
        self.record_at = self.offset;
        let mut first = [0; 1];
        loop {
            match self.inner.read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
        self.offset += 1;
        let [second, third, fourth] = self.array()?;
        Ok(Some([first[0], second, third, fourth]))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReadError> {
        self.inner
            .read_exact(bytes)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => self.cut_short(),
                _ => ReadError::Io(error),
            })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Reads the body of a record into `body`.
    fn body(&mut self, len: u32, body: &mut Vec<u8>) -> Result<(), ReadError> {
        if len > RECORD_BYTES_MAX {
            return Err(self.damaged("a record longer than any frame"));
        }
        body.resize(len as usize, 0);
        self.fill(body)
    }

    fn skip(&mut self, len: u64) -> Result<(), ReadError> {
        let skipped = io::copy(&mut self.inner.by_ref().take(len), &mut io::sink());
        let skipped = skipped.map_err(ReadError::Io)?;
        self.offset += skipped;
        if skipped == len {
            Ok(())
        } else {
            Err(self.cut_short())
        }
    }

    fn cut_short(&self) -> ReadError {
        ReadError::CutShort {
            offset: self.record_at,
        }
    }
}

const PCAP_MICROS: u32 = 0xa1b2_c3d4;
const PCAP_NANOS: u32 = 0xa1b2_3c4d;
const PCAPNG_SECTION: u32 = 0x0a0d_0d0a;
const PCAPNG_BYTE_ORDER: u32 = 0x1a2b_3c4d;
const BLOCK_INTERFACE: u32 = 1;
const BLOCK_PACKET: u32 = 2;
const BLOCK_SIMPLE: u32 = 3;
const BLOCK_ENHANCED: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_PACKET_FLAGS: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;
const TOO_SHORT: &str = "a block shorter than its fields";

/// Longest record that is kept in memory: more than the 262,144 bytes that capture tools take.
const RECORD_BYTES_MAX: u32 = 1 << 20;

/// Interfaces of one section that are remembered.
const INTERFACES_MAX: usize = 4096;

#[cfg(test)]
mod tests;
