//! The limit of packets without batching: one datagram, one system call at each end, as a device
//! that hands every packet to the network by itself would do.

use crate::peer::{Peer, SILENCE, announce, connected_to, say};
use crate::{DATAGRAM_BYTES_MAX, Options};
use anyhow::{Context, Result};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBuf;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Asked of the kernel, which cuts it to `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Datagrams between two looks at the clock.
const DATAGRAMS_PER_LOOK: u32 = 64;

/// Sends for the asked time; prints what arrived, each second.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let mut peer = Peer::start("rate-peer", options)?;
    let socket = connected_to(peer.address)?;
    let datagram = vec![1; options.size];
    let started = Instant::now();
    let mut sent = 0_u64;
    while started.elapsed() < options.duration {
        for _ in 0..DATAGRAMS_PER_LOOK {
            socket.send(&datagram)?;
        }
        sent += u64::from(DATAGRAMS_PER_LOOK);
    }
    let packets = peer.number()?;
    let time = Duration::from_nanos(peer.number()?);
    peer.finish()?;
    let rate = packets as f64 / time.as_secs_f64();
    println!(
        "{{\"packets_per_second\": {rate:.0}, \"packets\": {packets}, \"lost\": {}}}",
        sent.saturating_sub(packets + 1)
    );
    Ok(())
}

/// As the peer: counts until nothing comes any more.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let socket = announce()?;
    setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER_BYTES).context("SO_RCVBUF")?;
    socket.set_read_timeout(Some(SILENCE.max(options.duration)))?;
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    socket.recv(&mut datagram).context("nothing arrived")?;
    socket.set_read_timeout(Some(SILENCE))?;
    let first = Instant::now();
    let mut last = first;
    let mut packets = 0;
    loop {
        match socket.recv(&mut datagram) {
            Ok(_) => packets += 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
        if packets % u64::from(DATAGRAMS_PER_LOOK) == 0 {
            last = Instant::now();
        }
    }
    say(packets - packets % u64::from(DATAGRAMS_PER_LOOK))?;
    say(u64::try_from((last - first).as_nanos())?)
}
