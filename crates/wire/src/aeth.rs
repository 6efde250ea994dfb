//! The AETH syndrome: acknowledge with credits, RNR NAK, NAK (IBTA tables 43 to 46).

/// Why a responder refuses (IBTA table 46).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A PSN that comes after the expected one: packets are missing.
    SequenceError = 0,
    /// The request breaks a rule of the transport.
    InvalidRequest = 1,
    /// The R_Key does not allow the access.
    RemoteAccess = 2,
    /// The responder could not execute a valid request.
    RemoteOperational = 3,
    /// Reliable datagram only.
    InvalidRdRequest = 4,
}

/// The meaning of the syndrome byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syndrome {
    /// Positive acknowledge. The credit count code is 0..=30, or 31: no credit limit.
    Ack {
        /// Five-bit credit count code.
        credits: u8,
    },
    /// Receiver not ready: try again after the time of the 5-bit timer code.
    RnrNak {
        /// Code for [`crate::timing::rnr_delay`].
        timer: u8,
    },
    /// Negative acknowledge.
    Nak(NakCode),
}

impl Syndrome {
    /// Acknowledge without a credit limit.
    pub const ACK_UNLIMITED: Self = Self::Ack {
        credits: CREDITS_UNLIMITED,
    };

    /// The wire byte.
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits & 0x1f,
            Self::RnrNak { timer } => 0x20 | (timer & 0x1f),
            Self::Nak(code) => 0x60 | code as u8,
        }
    }

    /// Reads the wire byte; `None` for reserved values.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        let value = byte & 0x1f;
        match byte >> 5 {
            0 => Some(Self::Ack { credits: value }),
            1 => Some(Self::RnrNak { timer: value }),
            3 => Some(Self::Nak(match value {
                0 => NakCode::SequenceError,
                1 => NakCode::InvalidRequest,
                2 => NakCode::RemoteAccess,
                3 => NakCode::RemoteOperational,
                4 => NakCode::InvalidRdRequest,
                _ => return None,
            })),
            _ => None,
        }
    }
}

/// The credit code that means: the responder does not limit the requester.
pub const CREDITS_UNLIMITED: u8 = 31;

/// Credit counts by their code (IBTA table 44); code 31 is "no limit" and not in the table.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768,
];

/// The number of credits of a 5-bit code, `None`: no limit.
pub const fn credits_of_code(code: u8) -> Option<u32> {
    let code = (code & 0x1f) as usize;
    if code < CREDITS.len() {
        Some(CREDITS[code])
    } else {
        None
    }
}

/// The code of the largest table value that is not above `credits`.
pub const fn code_of_credits(credits: u32) -> u8 {
    let mut code: u8 = 30;
    while code > 0 && CREDITS[code as usize] > credits {
        code -= 1;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips_or_is_reserved() {
        for byte in 0..=255u8 {
            if let Some(syndrome) = Syndrome::from_byte(byte) {
                assert_eq!(syndrome.to_byte(), byte);
            }
        }
        assert_eq!(
            Syndrome::from_byte(0x60),
            Some(Syndrome::Nak(NakCode::SequenceError))
        );
        assert_eq!(Syndrome::from_byte(0x1f), Some(Syndrome::ACK_UNLIMITED));
        assert_eq!(Syndrome::from_byte(0x40), None);
    }

    #[test]
    fn credit_codes_never_promise_too_much() {
        for credits in [0, 1, 5, 7, 100, 32_768, u32::MAX] {
            let code = code_of_credits(credits);
            assert!(credits_of_code(code).unwrap() <= credits);
        }
        assert_eq!(credits_of_code(CREDITS_UNLIMITED), None);
    }
}
