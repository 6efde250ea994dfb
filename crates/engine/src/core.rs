//! The part of a device that lives under its lock: protocol, memory, sockets and one round of work.

use crate::batch::{Batch, Storage};
use crate::cq::Cq;
use crate::device::DeviceEvent;
use crate::gsi::Gsi;
use crate::host::{Effects, Wire};
use crate::piggyback::Piggyback;
use feroce_mem as mem;
use feroce_netio::{Datagram, Destination, Net, Verdict};
use feroce_obs::pcapng::{Capture, Direction};
use feroce_proto::{Instant, Nic, Path};
use feroce_wire::{Address, MULTICAST_QPN, Packet, Qpn, ROCE_V2_PORT, icrc};
use slab::Slab;
use std::sync::Arc;
use std::time::Duration;

/// Packets that one round hands to the wire before others get a turn at the lock.
const ROUND_PACKETS: usize = 256;

/// How often a round looks for more packets before it lets a timer fire, at most: some
/// milliseconds of work.
const LOOKS_MAX: u32 = 128;

/// How soon the network is asked again after it would not take a packet. What makes room arrives
/// as a packet does and is looked at then; this is for the case that nothing comes. Longer than
/// the service thread stays away from a polling program, so as not to wake it each time.
const BUSY_RETRY: Duration = Duration::from_millis(2);

/// Everything under the device's lock.
pub(crate) struct Core {
    pub(crate) nic: Nic,
    pub(crate) mem: mem::Table,
    pub(crate) net: Net,
    pub(crate) cqs: Slab<Arc<Cq>>,
    pub(crate) events: Vec<DeviceEvent>,
    /// Events of completion queues raised since the last look: that many wishes are fulfilled.
    pub(crate) fired: u32,
    /// When to try again what the network would not take.
    retry_at: Option<Instant>,
    piggyback: Piggyback,
    pub(crate) counters: Counters,
    pub(crate) capture: Option<Capture>,
    pub(crate) slot: u16,
    /// The device's name.
    pub(crate) name: String,
    /// The general service interface.
    pub(crate) gsi: Gsi,
    storage: Storage,
}

/// What the engine itself counts; packets and bytes of all kinds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// RoCE packets handed to the network.
    pub sent_packets: u64,
    /// Bytes of those, BTH to ICRC.
    pub sent_bytes: u64,
    /// RoCE packets received whole and for this process.
    pub received_packets: u64,
    /// Bytes of those.
    pub received_bytes: u64,
    /// Packets whose ICRC was wrong.
    pub icrc_errors: u64,
    /// Packets that do not parse.
    pub malformed: u64,
    /// Packets the network would not take.
    pub send_errors: u64,
    /// Packets dropped because a send buffer stayed full.
    pub send_dropped: u64,
    /// Management datagrams answered with a refusal because nobody wants them.
    pub mads_refused: u64,
    /// Management datagrams dropped because queues were full.
    pub mads_dropped: u64,
}

impl Counters {
    /// Names and values.
    pub const fn fields(&self) -> [(&'static str, u64); 10] {
        [
            ("sent_packets", self.sent_packets),
            ("sent_bytes", self.sent_bytes),
            ("received_packets", self.received_packets),
            ("received_bytes", self.received_bytes),
            ("icrc_errors", self.icrc_errors),
            ("malformed_packets", self.malformed),
            ("send_errors", self.send_errors),
            ("send_dropped", self.send_dropped),
            ("mads_refused", self.mads_refused),
            ("mads_dropped", self.mads_dropped),
        ]
    }
}

impl Core {
    pub(crate) fn new(
        name: String,
        nic: Nic,
        net: Net,
        slot: u16,
        capture: Option<Capture>,
    ) -> Self {
        Self {
            nic,
            mem: mem::Table::new(),
            net,
            cqs: Slab::new(),
            events: Vec::new(),
            fired: 0,
            retry_at: None,
            piggyback: Piggyback::new(),
            counters: Counters::default(),
            capture,
            slot,
            name,
            gsi: Gsi::default(),
            storage: Storage::default(),
        }
    }

    /// Runs a call of the protocol that may need memory and completions, but sends nothing.
    pub(crate) fn with_nic<R>(
        &mut self,
        call: impl FnOnce(&mut Nic, &mut Effects<'_, '_>) -> R,
    ) -> R {
        let mut effects = Effects {
            mem: &self.mem,
            cqs: &self.cqs,
            events: &mut self.events,
            fired: &mut self.fired,
            management: &mut self.gsi.inbox,
            wire: None,
        };
        call(&mut self.nic, &mut effects)
    }

    /// One round: receive, timers, transmit. Returns whether anything arrived or left. Without
    /// `everywhere` it looks at all sockets only now and then.
    pub(crate) fn round(&mut self, now: Instant, everywhere: bool) -> bool {
        let received = self.receive(now, everywhere);
        if self.is_due(now) {
            // A process that did not get to run for a while finds a lot in its sockets: what a
            // timer waits for may be among it.
            let mut looks = 1..LOOKS_MAX;
            while self.is_due(now) && self.receive(now, true) && looks.next().is_some() {}
            self.with_nic(|nic, effects| nic.handle_timeout(now, effects));
        }
        self.route_management(now);
        if received && self.piggyback.heard(now) {
            self.nic.hold_acknowledges(true);
        } else if let Some(until) = self.piggyback.until()
            && (now >= until || !everywhere && !received)
        {
            // A program that polls on has nothing to answer.
            self.release_acknowledges();
        }
        let sent = self.transmit(now);
        received || sent
    }

    /// Sends what the program just posted, and acknowledges that waited for it.
    pub(crate) fn transmit_posted(&mut self, now: Instant) {
        self.piggyback.posted(now);
        self.nic.hold_acknowledges(false);
        self.transmit(now);
    }

    /// Sends acknowledges that wait, since whom they wait for is about to end.
    pub(crate) fn send_acknowledges(&mut self, now: Instant) {
        if self.nic.holds_acknowledges() {
            self.release_acknowledges();
            self.transmit(now);
        }
    }

    fn release_acknowledges(&mut self) {
        self.piggyback.released(self.nic.holds_acknowledges());
        self.nic.hold_acknowledges(false);
    }

    /// Until when acknowledges wait for the program to post, if they do.
    pub(crate) const fn acknowledges_wait_until(&self) -> Option<Instant> {
        self.piggyback.until()
    }

    fn is_due(&self, now: Instant) -> bool {
        self.nic.poll_timeout().is_some_and(|due| due <= now)
    }

    /// Prepares for packets to a peer: on this host its process is asked for its own port.
    pub(crate) fn meet(&mut self, path: &Path, qpn: Qpn) {
        self.net.refresh_peer(&Destination {
            source: path.source,
            destination: path.destination,
            slot: Some(crate::slot_of(qpn)),
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
            entropy: 0,
        });
    }

    /// When the next round is due without anything arriving.
    pub(crate) fn due(&self) -> Option<Instant> {
        let due = [self.nic.poll_timeout(), self.retry_at, self.gsi.retry_at];
        due.into_iter().flatten().min()
    }

    /// Sends what the protocol has to send, up to a round's worth.
    pub(crate) fn transmit(&mut self, now: Instant) -> bool {
        let mut storage = std::mem::take(&mut self.storage);
        let batch = Batch::new(&mut storage);
        let mut effects = Effects {
            mem: &self.mem,
            cqs: &self.cqs,
            events: &mut self.events,
            fired: &mut self.fired,
            management: &mut self.gsi.inbox,
            wire: Some(Wire {
                net: &mut self.net,
                batch,
                counters: &mut self.counters,
                capture: self.capture.as_mut(),
                waited: Duration::ZERO,
            }),
        };
        let progress = self.nic.poll_transmit(now, ROUND_PACKETS, &mut effects);
        if let Some(mut wire) = effects.wire {
            wire.flush();
            self.storage = wire.batch.into_storage();
        }
        self.retry_at = progress.busy.then(|| now + BUSY_RETRY);
        progress.sent > 0
    }

    fn receive(&mut self, now: Instant, everywhere: bool) -> bool {
        let Self {
            nic,
            mem,
            net,
            cqs,
            events,
            fired,
            gsi,
            counters,
            capture,
            slot,
            ..
        } = self;
        let mut effects = Effects {
            mem,
            cqs,
            events,
            fired,
            management: &mut gsi.inbox,
            wire: None,
        };
        let mut run = Run::default();
        let sink = |datagram: Datagram<'_>| {
            let Some((address, packet)) = admit(&datagram, &mut run, counters, capture.as_mut())
            else {
                return Verdict::Done;
            };
            let owner = crate::slot_of(packet.dest_qp);
            if owner != *slot && packet.dest_qp != MULTICAST_QPN && owner != 0 {
                return Verdict::Forward(owner);
            }
            counters.received_packets += 1;
            counters.received_bytes += datagram.bytes.len() as u64;
            nic.handle_packet(now, &address, &packet, &mut effects);
            Verdict::Done
        };
        let received = if everywhere {
            net.receive_ready(sink)
        } else {
            net.receive(sink)
        };
        match received {
            Ok(count) => count > 0,
            Err(error) => {
                log::warn!("receiving failed: {error}");
                false
            }
        }
    }
}

/// Guesses IPv4 identifications: packets of a GSO batch carry 0, 1, 2, …
#[derive(Default)]
struct Run {
    next_id: u16,
}

/// Judges form and ICRC of a datagram.
fn admit<'a>(
    datagram: &Datagram<'a>,
    run: &mut Run,
    counters: &mut Counters,
    capture: Option<&mut Capture>,
) -> Option<(Address, Packet<'a>)> {
    let flow = icrc::Flow {
        source: datagram.source.ip(),
        destination: datagram.destination,
        source_port: datagram.source.port(),
        destination_port: ROCE_V2_PORT,
        ipv4_id: run.next_id,
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    };
    let id = match icrc::check(&flow, datagram.bytes) {
        icrc::Verdict::Good => run.next_id,
        icrc::Verdict::GoodWithId(id) => id,
        icrc::Verdict::Bad => {
            counters.icrc_errors += 1;
            return None;
        }
    };
    run.next_id = id.wrapping_add(1);
    if let Some(capture) = capture {
        capture.record(
            Direction::In,
            &flow_with_id(flow, id),
            datagram.traffic_class,
            datagram.hop_limit,
            datagram.bytes,
        );
    }
    let address = Address {
        source: datagram.source.ip(),
        destination: datagram.destination,
        source_port: datagram.source.port(),
        traffic_class: datagram.traffic_class,
        hop_limit: datagram.hop_limit,
    };
    match Packet::parse(datagram.bytes) {
        Ok(packet) => Some((address, packet)),
        Err(error) => {
            counters.malformed += 1;
            log::debug!("packet from {} dropped: {error}", datagram.source);
            None
        }
    }
}

const fn flow_with_id(mut flow: icrc::Flow, id: u16) -> icrc::Flow {
    flow.ipv4_id = id;
    flow
}
