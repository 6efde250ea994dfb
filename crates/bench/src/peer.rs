//! The second process of a measurement: started, found and asked for its result.

use crate::Options;
use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How long a receiver waits for the next datagram before it takes the measurement for ended.
pub(crate) const SILENCE: Duration = Duration::from_millis(200);

/// A started peer.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Where it receives.
    pub(crate) address: SocketAddr,
}

impl Peer {
    /// Starts the peer named `role` and waits until it can receive.
    pub(crate) fn start(role: &str, options: &Options) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(role)
            .args(options.to_arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the peer")?;
        let output = child.stdout.take().context("the peer has no output")?;
        let mut peer = Self {
            child,
            output: BufReader::new(output),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
        };
        let port = peer.number()?;
        peer.address.set_port(u16::try_from(port)?);
        Ok(peer)
    }

    /// Waits for the next number that the peer prints.
    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        line.trim()
            .parse()
            .with_context(|| format!("the peer said {line:?}"))
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.child.wait()?;
        ensure!(status.success(), "the peer ended with {status}");
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // After `finish` there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// As the peer: a socket, whose port the starter is told.
pub(crate) fn announce() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    say(u64::from(socket.local_addr()?.port()))?;
    Ok(socket)
}

/// As the peer: tells the starter a number.
pub(crate) fn say(number: u64) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{number}")?;
    output.flush()?;
    Ok(())
}

/// A socket that sends to the peer only.
pub(crate) fn connected_to(address: SocketAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect(address)?;
    Ok(socket)
}
