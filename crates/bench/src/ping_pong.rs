//! The limit of latency: one small datagram there and back, both ends spinning or both sleeping.

use crate::peer::{Peer, SILENCE, announce, connected_to};
use crate::{DATAGRAM_BYTES_MAX, Options};
use anyhow::{Context, Result, ensure};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// Rounds before the measurement.
const WARM_UP: usize = 200;

/// Samples kept at most; later ones are not taken.
const SAMPLES_MAX: usize = 1 << 20;

/// Rounds that a spinning end tries before it lets another thread run.
const SPINS_PER_YIELD: u32 = 100_000;

/// Sends and waits for the answer for the asked time; prints half of the round trips.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let mut peer = Peer::start("ping-pong-peer", options)?;
    let socket = connected_to(peer.address)?;
    prepare(&socket, options)?;
    let mut datagram = vec![0; options.size];
    for _ in 0..WARM_UP {
        round(&socket, &mut datagram, options.spin)?;
    }
    let mut samples = Vec::with_capacity(SAMPLES_MAX);
    let started = Instant::now();
    let mut before = started;
    while before - started < options.duration && samples.len() < SAMPLES_MAX {
        round(&socket, &mut datagram, options.spin)?;
        let now = Instant::now();
        samples.push(now - before);
        before = now;
    }
    // An empty datagram ends the peer.
    socket.send(&[])?;
    let answered = peer.number()?;
    peer.finish()?;
    ensure!(answered > 0, "the peer answered nothing");
    samples.sort_unstable();
    let one_way = |share: f64| {
        let index = ((samples.len() - 1) as f64 * share) as usize;
        samples[index].as_secs_f64() / 2.0
    };
    println!(
        "{{\"seconds\": {:.9}, \"minimum\": {:.9}, \"p99\": {:.9}, \"rounds\": {}}}",
        one_way(0.5),
        one_way(0.0),
        one_way(0.99),
        samples.len()
    );
    Ok(())
}

fn round(socket: &UdpSocket, datagram: &mut [u8], spin: bool) -> Result<()> {
    socket.send(datagram)?;
    receive(socket, datagram, spin)
        .map(drop)
        .context("waiting for an answer")
}

/// As the peer: answers until an empty datagram comes.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let socket = announce()?;
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (length, from) = socket.recv_from(&mut datagram)?;
    socket.connect(from)?;
    prepare(&socket, options)?;
    socket.send(&datagram[..length])?;
    let mut answered = 1;
    loop {
        let length = receive(&socket, &mut datagram, options.spin)?;
        if length == 0 {
            break;
        }
        socket.send(&datagram[..length])?;
        answered += 1;
    }
    crate::peer::say(answered)
}

fn prepare(socket: &UdpSocket, options: &Options) -> Result<()> {
    socket.set_nonblocking(options.spin)?;
    if !options.spin {
        socket.set_read_timeout(Some(SILENCE * 10))?;
    }
    Ok(())
}

fn receive(socket: &UdpSocket, datagram: &mut [u8], spin: bool) -> Result<usize> {
    let mut tries = 0_u32;
    let mut waits = 0_u32;
    loop {
        match socket.recv(datagram) {
            Err(error) if spin && error.kind() == ErrorKind::WouldBlock => tries += 1,
            other => return Ok(other?),
        }
        if tries == SPINS_PER_YIELD {
            tries = 0;
            waits += 1;
            ensure!(waits < 1000, "the other end is silent");
            std::thread::yield_now();
        }
    }
}
