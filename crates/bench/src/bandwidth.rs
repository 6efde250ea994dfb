//! The limit of bandwidth: what RDMA must do with payload, and nothing else.
//!
//! The sender gathers each packet from three places as the engine does (header, payload where it
//! lies, trailer), and hands as many packets to one system call as the kernel takes. The receiver
//! takes whole batches and copies each payload once, to where its header says. Nothing is computed
//! over the bytes, nothing is acknowledged but the window.

use crate::Options;
use crate::peer::{Peer, SILENCE, announce, connected_to, say};
use anyhow::{Context, Result, ensure};
use nix::sys::socket::sockopt::{RcvBuf, UdpGroSegment, UdpGsoSegment};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Payload of one packet at most: the largest path MTU of RoCE.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 4096;

/// Buffers at most.
pub(crate) const SPAN_BYTES_MAX: usize = 1 << 30;

/// Base transport header (IBTA vol. 1, section 9.2): here it carries the payload's place.
const HEADER_BYTES: usize = 12;

/// Invariant CRC (IBTA vol. 1, section 7.8.1).
const TRAILER_BYTES: usize = 4;

/// What one UDP datagram, and so one batch, can hold.
const BATCH_BYTES_MAX: usize = 65_507;

/// Segments of one batch at most (the kernel's UDP_MAX_SEGMENTS).
const BATCH_SEGMENTS_MAX: usize = 64;

/// Asked of the kernel, which cuts it to `net.core.rmem_max`.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Batches between two answers of the receiver.
const BATCHES_PER_ANSWER: u64 = 4;

/// Batches that may be under way. More would be dropped by small receive buffers, and would not
/// stay in the caches.
const WINDOW_BATCHES: u64 = 16;

/// Sends for the asked time; prints what arrived and how fast.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let mut peer = Peer::start("bandwidth-peer", options)?;
    let socket = connected_to(peer.address)?;
    let segment = HEADER_BYTES + options.payload + TRAILER_BYTES;
    setsockopt(&socket, UdpGsoSegment, &i32::try_from(segment)?).context("UDP_SEGMENT")?;
    let packets = (BATCH_BYTES_MAX / segment).min(BATCH_SEGMENTS_MAX);
    let source = filled(options.span);
    let mut sender = Sender {
        socket,
        payload: options.payload,
        packets,
        place: 0,
        sent: 0,
        answered: 0,
    };
    let started = Instant::now();
    while started.elapsed() < options.duration {
        sender.send_batch(&source)?;
        sender.wait_for_room()?;
    }
    let bytes = peer.number()?;
    let nanoseconds = peer.number()?;
    let faults = peer.number()?;
    peer.finish()?;
    ensure!(faults == 0, "{faults} payloads did not arrive as sent");
    let rate = bytes as f64 / Duration::from_nanos(nanoseconds).as_secs_f64();
    let batch_bytes = (packets * options.payload) as u64;
    let lost = (sender.sent * batch_bytes).saturating_sub(bytes);
    println!("{{\"bytes_per_second\": {rate:.0}, \"bytes\": {bytes}, \"lost_bytes\": {lost}}}");
    Ok(())
}

struct Sender {
    socket: UdpSocket,
    payload: usize,
    packets: usize,
    /// Offset of the next payload in the source.
    place: usize,
    /// Batches sent, and how many of them the receiver has told of.
    sent: u64,
    answered: u64,
}

impl Sender {
    fn send_batch(&mut self, source: &[u8]) -> Result<()> {
        let mut headers = [[0; HEADER_BYTES]; BATCH_SEGMENTS_MAX];
        let mut places = [0; BATCH_SEGMENTS_MAX];
        for (header, place) in headers.iter_mut().zip(&mut places).take(self.packets) {
            if self.place + self.payload > source.len() {
                self.place = 0;
            }
            *place = self.place;
            header[..8].copy_from_slice(&(self.place as u64).to_le_bytes());
            self.place += self.payload;
        }
        let mut slices = [IoSlice::new(&[]); 3 * BATCH_SEGMENTS_MAX];
        for (packet, slices) in slices.chunks_exact_mut(3).take(self.packets).enumerate() {
            let place = places[packet];
            slices[0] = IoSlice::new(&headers[packet]);
            slices[1] = IoSlice::new(&source[place..place + self.payload]);
            slices[2] = IoSlice::new(&[0; TRAILER_BYTES]);
        }
        let slices = &slices[..3 * self.packets];
        sendmsg::<()>(
            self.socket.as_raw_fd(),
            slices,
            &[],
            MsgFlags::empty(),
            None,
        )
        .context("sending a batch")?;
        self.sent += 1;
        Ok(())
    }

    /// Takes answers, and waits for one while the window is full.
    fn wait_for_room(&mut self) -> Result<()> {
        let mut answer = [0; 8];
        let mut asked = Instant::now();
        let mut polls = 0_u32;
        while self.sent - self.answered >= WINDOW_BATCHES {
            let flags = MsgFlags::MSG_DONTWAIT;
            match nix::sys::socket::recv(self.socket.as_raw_fd(), &mut answer, flags) {
                Ok(8) => self.answered = u64::from_le_bytes(answer),
                Ok(_) => {}
                Err(nix::Error::EAGAIN) => {
                    polls += 1;
                    if polls.is_multiple_of(64) {
                        std::thread::yield_now();
                    }
                    // A batch was lost: its answer will not come.
                    if asked.elapsed() > SILENCE / 4 {
                        self.answered = self.sent;
                        asked = Instant::now();
                    }
                }
                Err(error) => return Err(error).context("taking an answer"),
            }
        }
        Ok(())
    }
}

/// Bytes that follow from their place, so that the receiver can check them.
fn filled(span: usize) -> Vec<u8> {
    (0..span).map(byte_at).collect()
}

const fn byte_at(place: usize) -> u8 {
    (place.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// As the peer: takes batches until nothing comes any more.
pub(crate) fn serve(options: &Options) -> Result<()> {
    let socket = announce()?;
    setsockopt(&socket, UdpGroSegment, &true).context("UDP_GRO")?;
    setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER_BYTES).context("SO_RCVBUF")?;
    socket.set_read_timeout(Some(SILENCE.max(options.duration)))?;
    let mut target = vec![0; options.span];
    let mut batch = vec![0; BATCH_BYTES_MAX];
    let mut control = nix::cmsg_space!(i32);
    let (mut bytes, mut batches) = (0_u64, 0_u64);
    let mut first = None;
    let mut last = Instant::now();
    loop {
        let received = receive_batch(&socket, &mut batch, &mut control)?;
        let Some((length, segment, from)) = received else {
            break;
        };
        for packet in batch[..length].chunks(segment) {
            bytes += place(packet, &mut target);
        }
        batches += 1;
        last = Instant::now();
        if first.is_none() {
            // What is measured starts with the end of the first batch.
            first = Some(last);
            bytes = 0;
            socket.set_read_timeout(Some(SILENCE))?;
        }
        if batches.is_multiple_of(BATCHES_PER_ANSWER) {
            let answer = batches.to_le_bytes();
            let flags = MsgFlags::empty();
            nix::sys::socket::sendto(socket.as_raw_fd(), &answer, &from, flags)?;
        }
    }
    let first = first.context("nothing arrived")?;
    say(bytes)?;
    say(u64::try_from((last - first).as_nanos())?)?;
    let touched = target.iter().enumerate();
    let faults = touched.filter(|&(place, &byte)| byte != 0 && byte != byte_at(place));
    say(faults.count() as u64)
}

/// The bytes of a batch, the bytes of its segments, and who sent it; `None`: nothing came in time.
fn receive_batch(
    socket: &UdpSocket,
    batch: &mut [u8],
    control: &mut [u8],
) -> Result<Option<(usize, usize, nix::sys::socket::SockaddrIn)>> {
    let mut slices = [IoSliceMut::new(batch)];
    let flags = MsgFlags::empty();
    let received = recvmsg(socket.as_raw_fd(), &mut slices, Some(control), flags);
    let received = match received.map_err(std::io::Error::from) {
        Ok(received) => received,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error).context("receiving a batch"),
    };
    let segment = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::UdpGroSegments(bytes) => usize::try_from(bytes).ok(),
        _ => None,
    });
    let from = received.address.context("a datagram without a sender")?;
    let segment = segment.unwrap_or(received.bytes).max(1);
    Ok(Some((received.bytes, segment, from)))
}

/// Copies a packet's payload to where it belongs; returns its bytes.
fn place(packet: &[u8], target: &mut [u8]) -> u64 {
    let payload = packet
        .get(HEADER_BYTES..packet.len().saturating_sub(TRAILER_BYTES))
        .unwrap_or_default();
    let Some(&header) = packet.first_chunk::<8>() else {
        return 0;
    };
    let place = usize::try_from(u64::from_le_bytes(header)).unwrap_or(usize::MAX);
    let end = place.saturating_add(payload.len());
    let Some(target) = target.get_mut(place..end) else {
        return 0;
    };
    target.copy_from_slice(payload);
    payload.len() as u64
}
