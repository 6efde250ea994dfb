//! Sending: one `sendmsg` per batch, to the right port, with the right source port.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use feroce_mem::Fragment;

use super::bundle::for_each_datagram;
use super::peers::Known;
use super::room::{cost_of_batch, cost_of_bundle, cost_of_singles};
use super::{ENTROPY_PORTS, Local, Net};
use crate::slot::SlotSendError;
use crate::slot::message::Query;
use crate::sys::{self, Outgoing};

/// Datagrams one send may be cut into; older kernels' `UDP_MAX_SEGMENTS`.
pub const SEGMENTS_MAX: usize = 64;

/// Bytes one send may have in all: the longest IPv4 packet without its headers.
const BYTES_MAX: usize = 65_507;

/// Bytes one batch may have in all: with its headers no more than 65,536, or the kernel cuts it
/// into datagrams that cost several hundred bytes each even if it stays on this host.
pub(super) const BATCH_BYTES_MAX: usize = 65_536 - 14 - 40 - 8;

/// Destinations remembered for which the kernel does not cut batches.
const UNSEGMENTED_MAX: usize = 1_024;

/// What the firewall of this host answers: a lost packet, which comes back as an error only here.
const FIREWALL: i32 = libc::EPERM;

/// Where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// One of the device's addresses.
    pub source: IpAddr,
    /// The peer's address or a multicast group, of the same family.
    pub destination: IpAddr,
    /// The slot in the destination queue pair number, when there is one: a peer on this host is
    /// then reached without a detour.
    pub slot: Option<u16>,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Time to live or hop limit; 0 is sent as 1.
    pub hop_limit: u8,
    /// IPv6 flow label; 0 lets the kernel choose.
    pub flow_label: u32,
    /// Picks the source port toward other hosts; equal values keep a flow in order.
    pub entropy: u16,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No room in the send buffer: try again later, see [`Net::wait_writable`].
    #[error("the send buffer is full")]
    Busy,
    /// Memory behind a fragment is not mapped.
    #[error("a buffer to send from is not mapped")]
    Fault,
    /// The source is not an address of this device (any more).
    #[error("{0} is not an address of this device")]
    NoSource(IpAddr),
    /// The caller's fault: the request contradicts itself.
    #[error("a malformed send: {0}")]
    Malformed(&'static str),
    /// A datagram exceeds the MTU of the way it would take.
    #[error("a datagram exceeds the MTU of the interface")]
    TooLarge,
    /// There is no route, or it leads nowhere; by errno.
    #[error("the destination cannot be reached (errno {0}): see `ip route get`")]
    Unreachable(i32),
    /// Anything else, by errno.
    #[error("the kernel refused to send (errno {0})")]
    Refused(i32),
}

impl SendError {
    fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error().unwrap_or(0) {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Self::Busy,
            libc::EFAULT => Self::Fault,
            libc::EMSGSIZE => Self::TooLarge,
            code @ (libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EADDRNOTAVAIL) => Self::Unreachable(code),
            code => Self::Refused(code),
        }
    }
}

/// Who owns the queue pair a datagram is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A process of another host, or nobody known.
    Elsewhere,
    /// This very device.
    Own,
    /// The process of this host with that slot.
    Slot(u16),
}

/// The socket and port a destination means at this moment.
struct Path<'a> {
    fd: BorrowedFd<'a>,
    source_port: u16,
    outgoing: Outgoing,
}

impl Net {
    /// Sends `fragments`, taken together, as `segments` datagrams of `segment_len` bytes, of which
    /// only the last may be shorter; with one system call. With more than one segment the IPv4
    /// identification of the *i*-th is *i*, otherwise it is 0.
    ///
    /// A destination for which the kernel does not cut batches gets this batch in single
    /// datagrams, all with identification 0, and [`Self::segments_max`] says 1 from then on.
    ///
    /// Nothing is held back here: see [`Self::room`].
    ///
    /// # Errors
    /// Then nothing was sent. Datagrams the firewall drops count as sent, as on any network.
    pub fn send(
        &mut self,
        to: &Destination,
        fragments: &[Fragment<'_>],
        segment_len: usize,
        segments: usize,
    ) -> Result<(), SendError> {
        let total = check_shape(fragments, segment_len, segments)?;
        let peer = self.peer(to);
        let port = self.destination_port(to, peer);
        // Bounded by BYTES_MAX, which fits.
        let cut = (segments > 1).then_some(segment_len as u16);
        if cut.is_some() && self.unsegmented.contains(&to.destination) {
            return self.send_one_by_one(to, peer, port, fragments, segment_len);
        }
        let Err(error) = self.transmit(to, port, fragments, cut)? else {
            self.counters.batches_out += u64::from(cut.is_some());
            self.count_sent(segments, total);
            let whole = cut.is_some() && total <= BATCH_BYTES_MAX;
            let cost = if whole {
                cost_of_batch(total)
            } else {
                cost_of_singles(segments, total)
            };
            self.charge(to, peer, cost);
            return Ok(());
        };
        match error.raw_os_error() {
            Some(FIREWALL) => {
                self.counters.denied += segments as u64;
                Ok(())
            }
            // What kernels answer that cannot cut for this device or route. Some also say EINVAL
            // for a segment beyond the MTU, which sending it alone tells apart.
            Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP) if cut.is_some() => {
                self.send_one_by_one(to, peer, port, fragments, segment_len)
            }
            _ => Err(self.refused(&error)),
        }
    }

    /// Sends a bundle to a process of this host, with one system call: `fragments` are
    /// [`HEAD`](super::bundle::HEAD), then datagrams of these lengths, each behind its
    /// [`prefix`](super::bundle::prefix). To be asked before: [`Self::bundle_room`]. Every
    /// datagram has IPv4 identification 0.
    ///
    /// Where a bundle is too long for the way, the datagrams leave one by one, and bundles are
    /// not offered from then on.
    ///
    /// # Errors
    /// As for [`Self::send`].
    pub fn send_bundle(
        &mut self,
        to: &Destination,
        fragments: &[Fragment<'_>],
        lengths: &[u16],
    ) -> Result<(), SendError> {
        if fragments.len() > sys::FRAGMENTS_MAX {
            return Err(SendError::Malformed("more than 1,024 fragments"));
        }
        let total = fragments.iter().map(Fragment::len).sum::<usize>();
        if total > BATCH_BYTES_MAX {
            return Err(SendError::Malformed("a bundle of more than 65,474 bytes"));
        }
        let peer = self.peer(to);
        let port = self.destination_port(to, peer);
        if port == self.setup.port {
            // The peer has gone since: on the shared port nobody takes bundles.
            return Err(SendError::Unreachable(libc::ECONNREFUSED));
        }
        let Err(error) = self.transmit(to, port, fragments, None)? else {
            self.counters.bundles_out += 1;
            self.count_sent(lengths.len(), total);
            self.charge(to, peer, cost_of_bundle(total));
            return Ok(());
        };
        match error.raw_os_error() {
            Some(FIREWALL) => {
                self.counters.denied += lengths.len() as u64;
                Ok(())
            }
            Some(libc::EMSGSIZE) => {
                self.unbundled.insert(to.destination);
                log::info!("datagrams to {} are not bundled", to.destination);
                self.unbundle(to, peer, port, fragments, lengths)
            }
            _ => Err(self.refused(&error)),
        }
    }

    /// Sends the datagrams of a bundle one by one. What fails is lost on the way.
    fn unbundle(
        &mut self,
        to: &Destination,
        peer: Peer,
        port: u16,
        fragments: &[Fragment<'_>],
        lengths: &[u16],
    ) -> Result<(), SendError> {
        let path = self.path(to, port)?;
        let (mut sent, mut bytes) = (0, 0);
        for_each_datagram(fragments, lengths, |datagram, length| {
            if sys::send(path.fd, &path.outgoing, datagram, None).is_ok() {
                sent += 1;
                bytes += length;
            }
        });
        self.counters.send_calls += lengths.len() as u64;
        self.counters.cut_short += (lengths.len() - sent) as u64;
        self.count_sent(sent, bytes);
        self.charge(to, peer, cost_of_singles(sent, bytes));
        Ok(())
    }

    /// How many datagrams of `segment_len` bytes one [`Self::send`] to this destination takes.
    #[must_use]
    pub fn segments_max(&self, to: &Destination, segment_len: usize) -> usize {
        if self.unsegmented.contains(&to.destination) {
            return 1;
        }
        (BATCH_BYTES_MAX / segment_len.max(1)).clamp(1, SEGMENTS_MAX)
    }

    /// The UDP source port datagrams to this destination carry. It changes only when an address
    /// is added or removed, or [`Self::refresh_host_addresses`] finds that one moved.
    ///
    /// # Errors
    /// [`SendError::NoSource`].
    pub fn source_port(&self, to: &Destination) -> Result<u16, SendError> {
        self.path(to, self.setup.port).map(|path| path.source_port)
    }

    /// Waits until the socket toward this destination takes datagrams again, at most `timeout`;
    /// returns whether it does.
    pub fn wait_writable(&self, to: &Destination, timeout: Duration) -> bool {
        self.path(to, self.setup.port)
            .is_ok_and(|path| sys::wait_writable(path.fd, timeout))
    }

    /// Whether sending now takes the way that later datagrams will take too: the peer is on
    /// another host, or its private port is known, or it is not going to tell.
    ///
    /// Datagrams sent earlier are not lost, but the first that take the short way overtake them.
    /// The first call for a peer asks it; an answer takes some microseconds from a peer that is
    /// polling, and is not waited for longer than a second.
    pub fn peer_ready(&mut self, to: &Destination) -> bool {
        let peer = self.peer(to);
        let Peer::Slot(slot) = peer else {
            return true;
        };
        self.destination_port(to, peer);
        let now_ms = sys::monotonic_coarse_ms();
        self.peers.is_settled(to.destination, slot, now_ms)
    }

    /// Forgets the private port of a same-host peer and asks for it, unless it was told just now:
    /// to be called when a connection to it is set up, because the slot may have changed hands
    /// since the last one.
    pub fn refresh_peer(&mut self, to: &Destination) {
        let peer = self.peer(to);
        if let Peer::Slot(slot) = peer {
            let now_ms = sys::monotonic_coarse_ms();
            self.peers.forget(to.destination, slot, now_ms);
            self.destination_port(to, peer);
        }
    }

    /// Receive buffer of a same-host peer's private socket, in the kernel's accounting, once it
    /// has told.
    #[must_use]
    pub fn peer_buffer(&self, destination: IpAddr, slot: u16) -> Option<usize> {
        if self.is_own(destination, slot) {
            return self.local(destination).map(|local| local.buffer as usize);
        }
        let Known { buffer, .. } = self.peers.known(destination, slot)?;
        Some(buffer as usize)
    }

    pub(super) fn peer(&self, to: &Destination) -> Peer {
        match to.slot {
            Some(slot) if self.is_own(to.destination, slot) => Peer::Own,
            Some(slot) if self.peers.is_host(to.destination) => Peer::Slot(slot),
            _ => Peer::Elsewhere,
        }
    }

    fn is_own(&self, destination: IpAddr, slot: u16) -> bool {
        self.slots.iter().any(|own| own.number() == slot) && self.local(destination).is_some()
    }

    /// The UDP port to send to; asks for it where that is due.
    pub(super) fn destination_port(&mut self, to: &Destination, peer: Peer) -> u16 {
        let slot = match peer {
            Peer::Elsewhere => return self.setup.port,
            Peer::Own => {
                let local = self.local(to.destination);
                return local.map_or(self.setup.port, |local| local.private_port);
            }
            Peer::Slot(slot) => slot,
        };
        let now_ms = sys::monotonic_coarse_ms();
        let lookup = self.peers.look_up(to.destination, slot, now_ms);
        if lookup.ask {
            self.ask(to.destination, slot);
            // The question itself may have shown that the owner is gone.
            let known = self.peers.known(to.destination, slot);
            return known.map_or(self.setup.port, |known| known.port);
        }
        lookup.port.unwrap_or(self.setup.port)
    }

    pub(super) fn ask(&mut self, address: IpAddr, slot: u16) {
        let query = Query {
            address,
            port: self.setup.port,
        };
        let Some(own) = self.slots.first() else {
            return;
        };
        self.counters.queries += 1;
        match own.ask(slot, &query) {
            Ok(()) => {}
            Err(SlotSendError::Absent) => self.peers.absent(address, slot),
            Err(error) => log::debug!("slot {slot} cannot be asked: {error}"),
        }
    }

    fn path(&self, to: &Destination, port: u16) -> Result<Path<'_>, SendError> {
        if to.source.is_ipv4() != to.destination.is_ipv4() {
            return Err(SendError::Malformed(
                "source and destination differ in family",
            ));
        }
        let local = self
            .local(to.source)
            .ok_or(SendError::NoSource(to.source))?;
        let direct = to.destination.is_multicast() || self.peers.is_host(to.destination);
        let spread = match usize::from(to.entropy) % ENTROPY_PORTS {
            0 => None,
            _ if direct => None,
            number => self.spread_socket(local, number - 1),
        };
        let (fd, source_port) =
            spread.unwrap_or_else(|| (self.sockets[local.private].fd.as_fd(), local.private_port));
        let label = if self.labels {
            to.flow_label & 0xf_ffff
        } else {
            0
        };
        Ok(Path {
            fd,
            source_port,
            outgoing: Outgoing {
                to: self.setup.socket_address(to.destination, port, label),
                tclass: to.traffic_class,
                hop_limit: to.hop_limit.max(1),
            },
        })
    }

    /// One more socket to send from; `None`, now and ever after, if it could not be made.
    fn spread_socket<'a>(&self, local: &'a Local, number: usize) -> Option<(BorrowedFd<'a>, u16)> {
        let made = local.spread[number].get_or_init(|| {
            let fd = self.setup.spread(local.ip);
            let bound = fd.and_then(|fd| {
                let address = sys::local_address(fd.as_fd())
                    .map_err(super::OpenError::io("a UDP socket cannot be examined"))?;
                Ok((fd, address.port()))
            });
            bound
                .inspect_err(|error| log::info!("{} has fewer source ports: {error}", local.ip))
                .ok()
        });
        made.as_ref().map(|(fd, port)| (fd.as_fd(), *port))
    }

    /// One `sendmsg`, and another one where the first failed for the sake of a flow label. The
    /// outer result is our own verdict, the inner one the kernel's.
    fn transmit(
        &mut self,
        to: &Destination,
        port: u16,
        fragments: &[Fragment<'_>],
        cut: Option<u16>,
    ) -> Result<io::Result<()>, SendError> {
        let path = self.path(to, port)?;
        let mut calls = 1;
        let mut result = sys::send(path.fd, &path.outgoing, fragments, cut);
        let mut labels = self.labels;
        // Where some program has leased a label for itself alone, the kernel demands a lease for
        // every label. They are a hint to the network, so do without.
        if let Err(error) = &result
            && error.raw_os_error() == Some(libc::EINVAL)
            && let Some(plain) = path.outgoing.without_label()
        {
            calls += 1;
            result = sys::send(path.fd, &plain, fragments, cut);
            labels = result.is_err();
        }
        if labels != self.labels {
            self.labels = labels;
            log::info!("flow labels are not set any more: another program leased one");
        }
        self.counters.send_calls += calls;
        Ok(result)
    }

    fn send_one_by_one(
        &mut self,
        to: &Destination,
        peer: Peer,
        port: u16,
        fragments: &[Fragment<'_>],
        segment_len: usize,
    ) -> Result<(), SendError> {
        let path = self.path(to, port)?;
        let (mut calls, mut sent, mut denied, mut bytes) = (0, 0, 0, 0);
        let mut failure = None;
        sys::for_each_segment(fragments, segment_len, |segment, length| {
            // Once one failed, the rest would only overtake it.
            if failure.is_some() {
                return;
            }
            calls += 1;
            match sys::send(path.fd, &path.outgoing, segment, None) {
                Ok(()) => {
                    sent += 1;
                    bytes += length;
                }
                Err(error) if error.raw_os_error() == Some(FIREWALL) => denied += 1,
                Err(error) => failure = Some(error),
            }
        });
        self.counters.send_calls += calls;
        self.counters.denied += denied;
        self.count_sent(sent, bytes);
        self.charge(to, peer, cost_of_singles(sent, bytes));
        if let Some(error) = failure {
            if sent == 0 && denied == 0 {
                return Err(self.refused(&error));
            }
            // What did not follow is lost on the way, as far as the caller is concerned: it
            // cannot take back the part that left.
            let segments = fragments
                .iter()
                .map(Fragment::len)
                .sum::<usize>()
                .div_ceil(segment_len);
            self.counters.cut_short += (segments - sent) as u64 - denied;
        }
        if self.unsegmented.len() >= UNSEGMENTED_MAX {
            self.unsegmented.clear();
        }
        if self.unsegmented.insert(to.destination) {
            self.counters.unsegmented += 1;
            log::info!("datagrams to {} are sent one by one", to.destination);
        }
        Ok(())
    }

    fn refused(&mut self, error: &io::Error) -> SendError {
        let error = SendError::from_io(error);
        self.counters.busy += u64::from(error == SendError::Busy);
        error
    }

    const fn count_sent(&mut self, datagrams: usize, bytes: usize) {
        self.counters.datagrams_out += datagrams as u64;
        self.counters.bytes_out += bytes as u64;
    }
}

/// The bytes of the fragments, if they are what `segments` of `segment_len` can hold.
fn check_shape(
    fragments: &[Fragment<'_>],
    segment_len: usize,
    segments: usize,
) -> Result<usize, SendError> {
    if fragments.len() > sys::FRAGMENTS_MAX {
        return Err(SendError::Malformed("more than 1,024 fragments"));
    }
    let total = fragments.iter().map(Fragment::len).sum::<usize>();
    if total > BYTES_MAX {
        return Err(SendError::Malformed("more than 65,507 bytes"));
    }
    if segments == 0 || segments > SEGMENTS_MAX || segment_len == 0 {
        return Err(SendError::Malformed("no segments, or more than 64"));
    }
    if total.div_ceil(segment_len) != segments {
        return Err(SendError::Malformed(
            "the fragments do not add up to the segments",
        ));
    }
    Ok(total)
}
