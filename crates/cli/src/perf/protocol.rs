//! What the two processes of a run tell each other: one JSON object a line, over the standard
//! input and output of the serving one. Requests and replies alternate.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// An operation that is measured.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub(super) enum Test {
    /// RDMA WRITE
    Write,
    /// RDMA READ
    Read,
    /// SEND into posted receives
    Send,
    /// fetch-and-add on eight bytes
    Atomic,
}

impl Test {
    /// All of them, in the order they are run.
    pub(super) const ALL: [Self; 4] = [Self::Write, Self::Read, Self::Send, Self::Atomic];

    /// Whether the other end answers each message of a latency measurement with one of its own.
    pub(super) const fn is_ping_pong(self) -> bool {
        matches!(self, Self::Write | Self::Send)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Send => "send",
            Self::Atomic => "atomic",
        })
    }
}

/// What is measured of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// Many messages under way.
    Bandwidth,
    /// One message at a time.
    Latency,
}

/// One measurement, as both ends must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Case {
    /// Operation.
    pub(super) test: Test,
    /// Bandwidth or latency.
    pub(super) mode: Mode,
    /// Bytes of a message.
    pub(super) size: u32,
    /// Queue pairs.
    pub(super) qps: usize,
    /// Path MTU in bytes.
    pub(super) mtu: u32,
    /// What the bytes of messages follow from.
    pub(super) seed: u64,
}

/// What one end tells the other to be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Side {
    /// Its address.
    pub(super) address: IpAddr,
    /// Its queue pairs.
    pub(super) lanes: Vec<LaneKeys>,
}

/// One queue pair and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaneKeys {
    /// Queue pair number.
    pub(super) qpn: u32,
    /// First packet sequence number that it sends.
    pub(super) psn: u32,
    /// Keys of the memory that holds messages to be read.
    pub(super) source_rkeys: Vec<u32>,
    /// Keys of the memory that messages are written to.
    pub(super) target_rkeys: Vec<u32>,
}

/// From the measuring to the serving process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    /// Make queue pairs and memory. Replied to with [`Reply::Prepared`].
    Prepare(Case),
    /// Connect them, then serve. Replied to with [`Reply::Connected`].
    Connect(Side),
    /// The run is over: look at the memory. Replied to with [`Reply::Finished`].
    Finish {
        /// Messages sent on each queue pair.
        messages: Vec<u64>,
    },
}

/// From the serving to the measuring process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(super) enum Reply {
    /// The device is open; sent unasked, first of all.
    Opened,
    /// Queue pairs and memory are there.
    Prepared(Side),
    /// Queue pairs are connected, receives are posted.
    Connected,
    /// The memory was looked at.
    Finished {
        /// What is wrong with it.
        problem: Option<String>,
        /// Packets that this end sent again.
        retransmissions: u64,
    },
    /// The request could not be met.
    Failed {
        /// Why.
        error: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_are_one_line_each_and_survive_it() {
        let case = Case {
            test: Test::Write,
            mode: Mode::Latency,
            size: 8,
            qps: 2,
            mtu: 1024,
            seed: u64::MAX,
        };
        let line = serde_json::to_string(&Request::Prepare(case)).unwrap();
        assert!(
            line.starts_with(r#"{"request":"prepare","test":"write","mode":"latency""#),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<Request>(&line).unwrap(),
            Request::Prepare(case)
        );
        let reply = Reply::Failed {
            error: "two\nlines".into(),
        };
        let line = serde_json::to_string(&reply).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Reply>(&line).unwrap(), reply);
    }
}
