//! Why a peer says no: reject reasons, and the status codes of APR and SIDR_REP.

use core::fmt;

/// A reject reason (IBTA 12.6.7.2). A number of its own, because peers may send any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RejectReason(pub u16);

macro_rules! reasons {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl RejectReason {
            $(
                #[doc = concat!("Reason ", $number, ": ", $text, ".")]
                pub const $name: Self = Self($number);
            )*

            /// What it means, `None` for a number that is not defined.
            pub const fn meaning(self) -> Option<&'static str> {
                Some(match self {
                    $(Self::$name => $text,)*
                    _ => return None,
                })
            }
        }
    };
}

reasons! {
    NO_QP = 1, "no queue pair available";
    NO_EEC = 2, "no end-to-end context available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "timeout";
    UNSUPPORTED = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication id";
    INVALID_COMM_INSTANCE = 7, "invalid communication instance";
    INVALID_SERVICE_ID = 8, "invalid service id";
    INVALID_TRANSPORT_TYPE = 9, "invalid transport service type";
    STALE_CONNECTION = 10, "stale connection";
    RDC_NOT_EXIST = 11, "RDC does not exist";
    INVALID_GID = 12, "primary remote port GID rejected";
    INVALID_LID = 13, "primary remote port LID rejected";
    INVALID_SL = 14, "invalid primary service level";
    INVALID_TRAFFIC_CLASS = 15, "invalid primary traffic class";
    INVALID_HOP_LIMIT = 16, "invalid primary hop limit";
    INVALID_PACKET_RATE = 17, "invalid primary packet rate";
    INVALID_ALTERNATE_GID = 18, "alternate remote port GID rejected";
    INVALID_ALTERNATE_LID = 19, "alternate remote port LID rejected";
    INVALID_ALTERNATE_SL = 20, "invalid alternate service level";
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
    INVALID_ALTERNATE_HOP_LIMIT = 22, "invalid alternate hop limit";
    INVALID_ALTERNATE_PACKET_RATE = 23, "invalid alternate packet rate";
    PORT_CM_REDIRECT = 24, "port and CM redirection";
    PORT_REDIRECT = 25, "port redirection";
    INVALID_MTU = 26, "invalid path MTU";
    INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
    CONSUMER_DEFINED = 28, "rejected by the program";
    INVALID_RNR_RETRY = 29, "RNR retry count rejected";
    DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication id";
    INVALID_CLASS_VERSION = 31, "unsupported class version";
    INVALID_FLOW_LABEL = 32, "invalid primary flow label";
    INVALID_ALTERNATE_FLOW_LABEL = 33, "invalid alternate flow label";
    VENDOR_OPTION_NOT_SUPPORTED = 35, "vendor option not supported";
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.meaning() {
            Some(meaning) => write!(f, "{meaning} ({})", self.0),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// The answer to a LAP (IBTA 12.8.2.1). A number of its own, because peers may send any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AprStatus(pub u8);

impl AprStatus {
    /// The alternate path is loaded.
    pub const SUCCESS: Self = Self(0);
    /// No such connection.
    pub const INVALID_COMM_ID: Self = Self(1);
    /// Alternate paths are not supported.
    pub const UNSUPPORTED: Self = Self(2);
}

/// The answer to a SIDR_REQ (IBTA 12.11.2.3). A number of its own, because peers may send any.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair and its key are valid.
    pub const SUCCESS: Self = Self(0);
    /// Nobody listens on the service.
    pub const UNSUPPORTED: Self = Self(1);
    /// The program behind the service refuses.
    pub const REJECTED: Self = Self(2);
    /// No queue pair available.
    pub const NO_QP: Self = Self(3);
    /// Ask elsewhere.
    pub const REDIRECT: Self = Self(4);
    /// Unsupported version of SIDR.
    pub const UNSUPPORTED_VERSION: Self = Self(5);
}
