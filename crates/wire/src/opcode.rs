//! The BTH opcode table (IBTA table 38 and its extensions for XRC, FLUSH and ATOMIC WRITE).

use core::fmt;

/// The transport service, the top three bits of an opcode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Reliable datagram: in the table, never used.
    Rd = 2,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification (annex A17.9).
    Cnp = 4,
    /// Extended reliable connection (annex A14).
    Xrc = 5,
}

/// What a packet asks for or answers, whatever its place in the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Operation {
    /// SEND, consumes a receive request.
    Send,
    /// RDMA WRITE; with immediate data it consumes a receive request.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Acknowledge.
    Acknowledge,
    /// ATOMIC acknowledge.
    AtomicAcknowledge,
    /// Compare-and-swap request.
    CompareSwap,
    /// Fetch-and-add request.
    FetchAdd,
    /// FLUSH request (memory placement extensions, annex A19).
    Flush,
    /// ATOMIC WRITE request (annex A19).
    AtomicWrite,
    /// Resync (reliable datagram only).
    Resync,
    /// Congestion notification packet.
    CongestionNotification,
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether the packet begins its message.
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether the packet ends its message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// A BTH opcode. Every byte is an `Opcode`; [`info`](Self::info) tells whether it means something.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

/// One row of the opcode table: the meaning of an opcode and the headers that follow its BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Transport service.
    pub service: Service,
    /// Operation.
    pub operation: Operation,
    /// Place in the message.
    pub position: Position,
    /// An immediate-data header follows.
    pub immediate: bool,
    /// An invalidate header follows.
    pub invalidate: bool,
    /// A RETH follows.
    pub reth: bool,
    /// An AETH follows.
    pub aeth: bool,
    /// Payload may follow.
    pub payload: bool,
}

impl Info {
    /// Whether executing the packet consumes a receive request. For a SEND this holds for
    /// the packet that starts the message, for a WRITE for the one with immediate data.
    pub const fn consumes_receive(&self) -> bool {
        match self.operation {
            Operation::Send => self.position.starts(),
            Operation::Write => self.immediate,
            _ => false,
        }
    }

    /// Whether the packet travels from requester to responder.
    pub const fn is_request(&self) -> bool {
        !matches!(
            self.operation,
            Operation::ReadResponse
                | Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::CongestionNotification
        )
    }
}

const SERVICES: [Service; 6] = [
    Service::Rc,
    Service::Uc,
    Service::Rd,
    Service::Ud,
    Service::Cnp,
    Service::Xrc,
];

impl Opcode {
    /// The congestion notification packet.
    pub const CNP: Self = Self(0x81);

    /// Puts an opcode together. `None` if the service has no such packet.
    pub const fn new(
        service: Service,
        operation: Operation,
        position: Position,
        immediate: bool,
        invalidate: bool,
    ) -> Option<Self> {
        let Some(low) = low_bits(operation, position, immediate, invalidate) else {
            return None;
        };
        let opcode = if matches!(service, Service::Cnp) {
            Self::CNP
        } else {
            Self((service as u8) << 5 | low)
        };
        if opcode.info().is_some() {
            Some(opcode)
        } else {
            None
        }
    }

    /// The table row, or `None` for an opcode that no service defines.
    #[inline]
    pub const fn info(self) -> Option<&'static Info> {
        TABLE[self.0 as usize].as_ref()
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(info) = self.info() else {
            return write!(f, "unknown opcode {:#04x}", self.0);
        };
        let service = match info.service {
            Service::Rc => "RC",
            Service::Uc => "UC",
            Service::Rd => "RD",
            Service::Ud => "UD",
            Service::Cnp => return f.write_str("CNP"),
            Service::Xrc => "XRC",
        };
        let operation = match info.operation {
            Operation::Send => "SEND",
            Operation::Write => "RDMA WRITE",
            Operation::ReadRequest => return write!(f, "{service} RDMA READ REQUEST"),
            Operation::ReadResponse => "RDMA READ RESPONSE",
            Operation::Acknowledge => return write!(f, "{service} ACKNOWLEDGE"),
            Operation::AtomicAcknowledge => return write!(f, "{service} ATOMIC ACKNOWLEDGE"),
            Operation::CompareSwap => return write!(f, "{service} COMPARE SWAP"),
            Operation::FetchAdd => return write!(f, "{service} FETCH ADD"),
            Operation::Flush => return write!(f, "{service} FLUSH"),
            Operation::AtomicWrite => return write!(f, "{service} ATOMIC WRITE"),
            Operation::Resync => return write!(f, "{service} RESYNC"),
            Operation::CongestionNotification => return f.write_str("CNP"),
        };
        let position = match info.position {
            Position::First => "FIRST",
            Position::Middle => "MIDDLE",
            Position::Last => "LAST",
            Position::Only => "ONLY",
        };
        write!(f, "{service} {operation} {position}")?;
        if info.immediate {
            f.write_str(" with IMMEDIATE")?;
        }
        if info.invalidate {
            f.write_str(" with INVALIDATE")?;
        }
        Ok(())
    }
}

/// The low five bits of the opcode that all services share.
const fn low_bits(
    operation: Operation,
    position: Position,
    immediate: bool,
    invalidate: bool,
) -> Option<u8> {
    use Operation as O;
    use Position as P;
    Some(match (operation, position, immediate, invalidate) {
        (O::Send, P::First, false, false) => 0x00,
        (O::Send, P::Middle, false, false) => 0x01,
        (O::Send, P::Last, false, false) => 0x02,
        (O::Send, P::Last, true, false) => 0x03,
        (O::Send, P::Only, false, false) => 0x04,
        (O::Send, P::Only, true, false) => 0x05,
        (O::Write, P::First, false, false) => 0x06,
        (O::Write, P::Middle, false, false) => 0x07,
        (O::Write, P::Last, false, false) => 0x08,
        (O::Write, P::Last, true, false) => 0x09,
        (O::Write, P::Only, false, false) => 0x0a,
        (O::Write, P::Only, true, false) => 0x0b,
        (O::ReadRequest, P::Only, false, false) => 0x0c,
        (O::ReadResponse, P::First, false, false) => 0x0d,
        (O::ReadResponse, P::Middle, false, false) => 0x0e,
        (O::ReadResponse, P::Last, false, false) => 0x0f,
        (O::ReadResponse, P::Only, false, false) => 0x10,
        (O::Acknowledge, P::Only, false, false) => 0x11,
        (O::AtomicAcknowledge, P::Only, false, false) => 0x12,
        (O::CompareSwap, P::Only, false, false) => 0x13,
        (O::FetchAdd, P::Only, false, false) => 0x14,
        (O::Resync, P::Only, false, false) => 0x15,
        (O::Send, P::Last, false, true) => 0x16,
        (O::Send, P::Only, false, true) => 0x17,
        (O::Flush, P::Only, false, false) => 0x1c,
        (O::AtomicWrite, P::Only, false, false) => 0x1d,
        (O::CongestionNotification, P::Only, false, false) => 0x01,
        _ => return None,
    })
}

const fn row(service: Service, low: u8) -> Option<Info> {
    use Operation as O;
    use Position as P;
    let (operation, position, immediate, invalidate) = match low {
        0x00 => (O::Send, P::First, false, false),
        0x01 => (O::Send, P::Middle, false, false),
        0x02 => (O::Send, P::Last, false, false),
        0x03 => (O::Send, P::Last, true, false),
        0x04 => (O::Send, P::Only, false, false),
        0x05 => (O::Send, P::Only, true, false),
        0x06 => (O::Write, P::First, false, false),
        0x07 => (O::Write, P::Middle, false, false),
        0x08 => (O::Write, P::Last, false, false),
        0x09 => (O::Write, P::Last, true, false),
        0x0a => (O::Write, P::Only, false, false),
        0x0b => (O::Write, P::Only, true, false),
        0x0c => (O::ReadRequest, P::Only, false, false),
        0x0d => (O::ReadResponse, P::First, false, false),
        0x0e => (O::ReadResponse, P::Middle, false, false),
        0x0f => (O::ReadResponse, P::Last, false, false),
        0x10 => (O::ReadResponse, P::Only, false, false),
        0x11 => (O::Acknowledge, P::Only, false, false),
        0x12 => (O::AtomicAcknowledge, P::Only, false, false),
        0x13 => (O::CompareSwap, P::Only, false, false),
        0x14 => (O::FetchAdd, P::Only, false, false),
        0x15 => (O::Resync, P::Only, false, false),
        0x16 => (O::Send, P::Last, false, true),
        0x17 => (O::Send, P::Only, false, true),
        0x1c => (O::Flush, P::Only, false, false),
        0x1d => (O::AtomicWrite, P::Only, false, false),
        _ => return None,
    };
    let defined = match service {
        Service::Rc | Service::Xrc => !matches!(operation, O::Resync),
        Service::Uc => low <= 0x0b,
        Service::Ud => matches!(low, 0x04 | 0x05),
        Service::Rd | Service::Cnp => false,
    };
    if !defined {
        return None;
    }
    let reth = match operation {
        O::Write => position.starts(),
        O::ReadRequest | O::Flush | O::AtomicWrite => true,
        _ => false,
    };
    let aeth = match operation {
        O::ReadResponse => !matches!(position, P::Middle),
        O::Acknowledge | O::AtomicAcknowledge => true,
        _ => false,
    };
    let payload = matches!(
        operation,
        O::Send | O::Write | O::ReadResponse | O::AtomicWrite
    );
    Some(Info {
        service,
        operation,
        position,
        immediate,
        invalidate,
        reth,
        aeth,
        payload,
    })
}

static TABLE: [Option<Info>; 256] = build_table();

#[expect(clippy::cast_possible_truncation, reason = "five bits fit a byte")]
const fn build_table() -> [Option<Info>; 256] {
    let mut table = [None; 256];
    let mut code = 0;
    while code < 256 {
        let service = code >> 5;
        if service < SERVICES.len() {
            table[code] = row(SERVICES[service], (code & 0x1f) as u8);
        }
        code += 1;
    }
    table[0x81] = Some(Info {
        service: Service::Cnp,
        operation: Operation::CongestionNotification,
        position: Position::Only,
        immediate: false,
        invalidate: false,
        reth: false,
        aeth: false,
        payload: true,
    });
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn building_and_reading_an_opcode_agree() {
        let mut defined = 0;
        for code in 0..=255u8 {
            let Some(info) = Opcode(code).info() else {
                continue;
            };
            defined += 1;
            let again = Opcode::new(
                info.service,
                info.operation,
                info.position,
                info.immediate,
                info.invalidate,
            );
            assert_eq!(again, Some(Opcode(code)), "{}", Opcode(code));
        }
        assert_eq!(defined, 25 + 12 + 2 + 1 + 25);
    }

    #[test]
    fn known_codes() {
        assert_eq!(Opcode(0x0a).to_string(), "RC RDMA WRITE ONLY");
        assert_eq!(Opcode(0x64).to_string(), "UD SEND ONLY");
        assert_eq!(Opcode(0x17).to_string(), "RC SEND ONLY with INVALIDATE");
        assert_eq!(Opcode(0xff).info(), None);
        assert_eq!(Opcode(0x2c).info(), None, "UC has no READ");
    }
}
