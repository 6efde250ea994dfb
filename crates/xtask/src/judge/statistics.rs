//! What the processes of a case said about their packets (`feroce run --stats`), one line each.

use super::Outcome;

/// The packets of all processes.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// Processes that used the device at all.
    pub(super) users: usize,
    /// Those of them that sent and received.
    pub(super) both_ways: usize,
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Packets {
    /// Reads the lines; what is no such line fails the case.
    pub(super) fn read(lines: &str) -> Result<Self, Outcome> {
        let mut packets = Self::default();
        for line in lines.lines() {
            let report: serde_json::Value = serde_json::from_str(line)
                .map_err(|_| Outcome::Failed(format!("statistics are not JSON: {line}")))?;
            let count = |name: &str| report[name].as_u64().unwrap_or(0);
            let (sent, received) = (count("sent_packets"), count("received_packets"));
            packets.users += usize::from(sent + received > 0);
            packets.both_ways += usize::from(sent > 0 && received > 0);
            packets.sent += sent;
            packets.received += received;
        }
        Ok(packets)
    }
}
