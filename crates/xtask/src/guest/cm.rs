//! Cases of the connection manager: programs that meet over rdma_cm and nothing else.
//!
//! The kernel's rdma_cm is one side, our librdmacm the other. Also here: connections that must
//! fail, and how the program has to learn of it.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::agent::Finished;
use super::case::{Endpoint, Family};

/// What both sides run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// `rping`, which validates what it reads and writes.
    Rping,
    /// `rdma_client` and `rdma_server`: endpoints and the calls that wait.
    RdmaClient,
    /// `ucmatose`: several connections at once, from an event loop.
    Ucmatose,
    /// `udaddy`: datagram queue pairs (SIDR).
    Udaddy,
    /// `ib_write_bw -R`.
    WriteBandwidth,
    /// `ib_send_bw -R -c UD`.
    DatagramBandwidth,
    /// `rping` to a port on which nobody listens, although somebody listens on another.
    WrongPort,
    /// `rping` to an address that answers no RDMA packet at all.
    Silence,
}

/// The port of `udaddy`, which takes no other.
const UDADDY_PORT: u16 = 7174;

/// How far from the port that a client asks for a server listens on another.
const OTHER_PORT: u16 = 10_000;

impl Tool {
    /// All that work with addresses of a family; stock perftest resolves names to IPv4 only.
    pub(crate) fn all(family: Family) -> Vec<Self> {
        let both = [Self::Rping, Self::Ucmatose, Self::Udaddy, Self::WrongPort];
        match family {
            Family::V4 => {
                let more = [
                    Self::RdmaClient,
                    Self::WriteBandwidth,
                    Self::DatagramBandwidth,
                    Self::Silence,
                ];
                [both, more].concat()
            }
            Family::V6 => both.to_vec(),
        }
    }

    /// Those that are quick and different.
    pub(crate) const QUICK: [Self; 3] = [Self::Rping, Self::Udaddy, Self::WrongPort];

    /// How long a side may take.
    pub(crate) const fn limit(self) -> Duration {
        // The kernel repeats a request 15 times, with some 6 s between.
        Duration::from_secs(if matches!(self, Self::Silence) {
            200
        } else {
            60
        })
    }

    /// The port on which the server waits, `None` if there is no server.
    pub(crate) const fn serves_on(self, port: u16) -> Option<u16> {
        match self {
            Self::Silence => None,
            Self::WrongPort => Some(port + OTHER_PORT),
            Self::Udaddy => Some(UDADDY_PORT),
            _ => Some(port),
        }
    }

    /// Whether the server waits for ever, because nobody comes.
    pub(crate) const fn server_is_left_alone(self) -> bool {
        matches!(self, Self::WrongPort)
    }

    /// The command of `end`; `peer` is there for the end that connects.
    pub(crate) fn command(
        self,
        end: &Endpoint<'_>,
        peer: Option<&Endpoint<'_>>,
        port: u16,
    ) -> String {
        let prefix = end.prefix;
        let (own, ipv6) = (end.address, end.address.is_ipv6());
        let form = if ipv6 { " -f ipv6" } else { "" };
        let Some(peer) = peer else {
            let port = self.serves_on(port).unwrap_or(port);
            return match self {
                Self::Rping | Self::WrongPort | Self::Silence => {
                    format!("{prefix} rping -s -a {own} -p {port} -C 30 -S 5000 -V")
                }
                Self::RdmaClient => format!("{prefix} rdma_server -s {own} -p {port}"),
                Self::Ucmatose => {
                    format!("{prefix} ucmatose -b {own}{form} -p {port} -c 4 -C 10 -S 2000")
                }
                Self::Udaddy => {
                    format!("{prefix} udaddy -b {own}{form} -c 3 -C 10 -S 512")
                }
                Self::WriteBandwidth => format!("{prefix} {} -p {port}", WRITE_BANDWIDTH),
                Self::DatagramBandwidth => format!("{prefix} {} -p {port}", DATAGRAM_BANDWIDTH),
            };
        };
        let to = peer.address;
        match self {
            Self::Rping | Self::WrongPort => {
                format!("{prefix} rping -c -a {to} -p {port} -C 30 -S 5000 -V")
            }
            Self::Silence => format!("{prefix} rping -c -a {} -p {port} -C 1", peer.silent),
            Self::RdmaClient => format!("{prefix} rdma_client -s {to} -p {port}"),
            Self::Ucmatose => {
                format!("{prefix} ucmatose -s {to}{form} -p {port} -c 4 -C 10 -S 2000")
            }
            Self::Udaddy => format!("{prefix} udaddy -s {to}{form} -c 3 -C 10 -S 512"),
            Self::WriteBandwidth => format!("{prefix} {WRITE_BANDWIDTH} -p {port} {to}"),
            Self::DatagramBandwidth => format!("{prefix} {DATAGRAM_BANDWIDTH} -p {port} {to}"),
        }
    }

    /// Whether the client ended as it should.
    ///
    /// # Errors
    /// If not, with what was missing.
    pub(crate) fn judge_client(self, client: &Finished) -> Result<()> {
        let event = match self {
            Self::WrongPort => "RDMA_CM_EVENT_REJECTED",
            Self::Silence => "RDMA_CM_EVENT_UNREACHABLE",
            _ => {
                ensure!(client.status == 0, "the client failed");
                return Ok(());
            }
        };
        ensure!(
            client.status != 0 && client.output.contains(event),
            "the client did not hear of {event}"
        );
        Ok(())
    }
}

const WRITE_BANDWIDTH: &str = "ib_write_bw -R -F -s 65536 -n 100";
const DATAGRAM_BANDWIDTH: &str = "ib_send_bw -R -F -c UD -s 1024 -n 100";

impl fmt::Display for Tool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Rping => "cm rping",
            Self::RdmaClient => "cm rdma_client",
            Self::Ucmatose => "cm ucmatose",
            Self::Udaddy => "cm udaddy",
            Self::WriteBandwidth => "cm ib_write_bw -R",
            Self::DatagramBandwidth => "cm ib_send_bw -R -c UD",
            Self::WrongPort => "cm rejected on a wrong port",
            Self::Silence => "cm unreachable at a silent address",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn endpoint(prefix: &'static str, address: &str) -> Endpoint<'static> {
        Endpoint {
            prefix,
            device: "roce_t",
            gid_index: 3,
            address: address.parse().unwrap(),
            meeting: "10.9.0.1".parse().unwrap(),
            silent: "10.9.0.71".parse().unwrap(),
            programs: Path::new("/programs"),
        }
    }

    #[test]
    fn command_lines_are_those_a_person_would_type() {
        let (server, client) = (
            endpoint("feroce run --", "fd00:9::1"),
            endpoint("", "fd00:9::2"),
        );
        assert_eq!(
            Tool::Udaddy.command(&server, None, 20000),
            "feroce run -- udaddy -b fd00:9::1 -f ipv6 -c 3 -C 10 -S 512"
        );
        assert_eq!(
            Tool::WrongPort.command(&server, None, 20000),
            "feroce run -- rping -s -a fd00:9::1 -p 30000 -C 30 -S 5000 -V"
        );
        assert_eq!(
            Tool::WrongPort
                .command(&client, Some(&server), 20000)
                .trim(),
            "rping -c -a fd00:9::1 -p 20000 -C 30 -S 5000 -V"
        );
    }

    #[test]
    fn a_connection_that_must_fail_fails_with_the_right_event() {
        let ended = |status, output: &str| Finished {
            status,
            output: output.to_owned(),
        };
        let rejected = ended(255, "cma event RDMA_CM_EVENT_REJECTED, error 8");
        assert!(Tool::WrongPort.judge_client(&rejected).is_ok());
        assert!(Tool::Silence.judge_client(&rejected).is_err());
        assert!(Tool::Rping.judge_client(&rejected).is_err());
        assert!(Tool::Rping.judge_client(&ended(0, "")).is_ok());
        assert!(Tool::WrongPort.judge_client(&ended(0, "")).is_err());
    }
}
