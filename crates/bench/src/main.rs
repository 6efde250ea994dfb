//! What sockets of this machine can carry at best, with what RDMA must do on top and nothing else:
//! the limits that `cargo xtask bench` compares Feroce's figures with.
//!
//! Every measurement is made between two processes over loopback: this one starts a second one of
//! the same program as its peer. One line of JSON is the result. Not here: Feroce; no crate of it
//! is used, so that a slip in one of them cannot shift the limit as well.

mod bandwidth;
mod peer;
mod ping_pong;
mod rate;

use anyhow::{Result, bail};
use lexopt::prelude::{Long, Value, ValueExt};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
feroce-bench MEASUREMENT [OPTIONS]

  bandwidth   gather-send in batches, receive in batches, one copy into place (bytes/s)
  rate        one datagram for each packet, one system call each (packets/s)
  ping-pong   one way of a small datagram (seconds), half of the median round trip

  --span BYTES      bandwidth: buffers that data comes from and goes to (default 65536)
  --payload BYTES   bandwidth: of one packet (default 4096)
  --size BYTES      rate, ping-pong: of a datagram (default 40)
  --spin            ping-pong: both ends spin instead of sleeping
  --seconds N       how long to measure (default 1)
";

/// What is measured, and how.
#[derive(Clone, Debug)]
struct Options {
    /// Bytes of the buffers that data comes from and goes to.
    span: usize,
    /// Bytes of memory that one packet carries.
    payload: usize,
    /// Bytes of one datagram.
    size: usize,
    spin: bool,
    duration: Duration,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("feroce-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = lexopt::Parser::from_env();
    let mut options = Options {
        span: 65_536,
        payload: 4096,
        size: 40,
        spin: false,
        duration: Duration::from_secs(1),
    };
    let mut name = None;
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("span") => options.span = arguments.value()?.parse()?,
            Long("payload") => options.payload = arguments.value()?.parse()?,
            Long("size") => options.size = arguments.value()?.parse()?,
            Long("spin") => options.spin = true,
            Long("seconds") => {
                options.duration = Duration::try_from_secs_f64(arguments.value()?.parse()?)?;
            }
            Value(text) if name.is_none() => name = Some(text.string()?),
            other => bail!("{}\n\n{USAGE}", other.unexpected()),
        }
    }
    options.check()?;
    match name.as_deref() {
        Some("bandwidth") => bandwidth::measure(&options),
        Some("rate") => rate::measure(&options),
        Some("ping-pong") => ping_pong::measure(&options),
        Some("bandwidth-peer") => bandwidth::serve(&options),
        Some("rate-peer") => rate::serve(&options),
        Some("ping-pong-peer") => ping_pong::serve(&options),
        _ => bail!("which measurement?\n\n{USAGE}"),
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        if !(1..=DATAGRAM_BYTES_MAX).contains(&self.size) {
            bail!("--size: a datagram has 1 to {DATAGRAM_BYTES_MAX} bytes");
        }
        if !(1..=bandwidth::PAYLOAD_BYTES_MAX).contains(&self.payload) {
            bail!(
                "--payload: a packet carries 1 to {} bytes",
                bandwidth::PAYLOAD_BYTES_MAX
            );
        }
        if self.span < self.payload || self.span > bandwidth::SPAN_BYTES_MAX {
            bail!(
                "--span: buffers hold at least one payload, and at most {} bytes",
                bandwidth::SPAN_BYTES_MAX
            );
        }
        Ok(())
    }

    /// The arguments that give a peer the same options.
    fn to_arguments(&self) -> Vec<String> {
        let mut list = Vec::new();
        for (name, value) in [
            ("--span", self.span.to_string()),
            ("--payload", self.payload.to_string()),
            ("--size", self.size.to_string()),
            ("--seconds", self.duration.as_secs_f64().to_string()),
        ] {
            list.extend([name.to_owned(), value]);
        }
        if self.spin {
            list.push("--spin".to_owned());
        }
        list
    }
}

/// The largest datagram that IPv4 carries.
const DATAGRAM_BYTES_MAX: usize = 65_507;
