//! The part of a device that lives under its lock: protocol, memory, sockets and one round of work.

use crate::batch::{Batch, Storage};
use crate::cq::Cq;
use crate::device::DeviceEvent;
use crate::gsi::Gsi;
use crate::host::{self, Effects, Wire};
use crate::lateness::Lateness;
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

/// Packets that a round takes in before it answers: 256 KiB of full ones, a quarter of the largest
/// window, so that one acknowledge stands for many packets and the sender still never runs dry.
const ROUND_RECEIVES: usize = 64;

/// A look that yields so many packets comes from a sender that streams: there is more.
const STREAM_PACKETS: usize = 12;

/// Completions after which a round lets the program see them and post anew.
const ROUND_COMPLETIONS: u32 = 4;

/// With so many bytes in flight what is posted waits for the next round: a 64 KiB WRITE posted
/// alone takes two system calls, and one and a bit in a row of others.
const POST_IN_FLIGHT: u64 = 128 << 10;

/// While a program posts without polling, a round is made this often.
const ROUND_INTERVAL: Duration = Duration::from_micros(50);

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
    /// Completions shown since the round began.
    shown: u32,
    /// When the last round began.
    round_at: Instant,
    /// When to try again what the network would not take.
    retry_at: Option<Instant>,
    piggyback: Piggyback,
    lateness: Lateness,
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
            shown: 0,
            round_at: Instant::ZERO,
            retry_at: None,
            piggyback: Piggyback::new(),
            lateness: Lateness::default(),
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
            shown: &mut self.shown,
            realtime_nanos: None,
            wire: None,
        };
        call(&mut self.nic, &mut effects)
    }

    /// One round: receive, timers, transmit. Returns whether anything arrived or left. Without
    /// `everywhere` it looks at all sockets only now and then.
    pub(crate) fn round(&mut self, now: Instant, everywhere: bool) -> bool {
        self.round_at = now;
        let received = self.receive_stream(now, everywhere);
        if self.is_due(now) {
            // A process that did not get to run for a while finds a lot in its sockets: what a
            // timer waits for may be among it.
            let mut looks = 1..LOOKS_MAX;
            while self.is_due(now) && self.receive(now, true) > 0 && looks.next().is_some() {}
            self.handle_timers(now);
        } else {
            self.lateness.settle();
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

    /// Sends what the program just posted to a queue pair, and acknowledges that waited for it.
    ///
    /// While a lot is in flight to the peer this can wait for the next round, in which more
    /// leaves together: the program polls soon, or posts more, or an acknowledge has the service
    /// thread make one. A program that only posts gets a round now and then, since
    /// acknowledges make room.
    pub(crate) fn transmit_posted(&mut self, now: Instant, qpn: Qpn) {
        self.piggyback.posted(now);
        self.nic.hold_acknowledges(false);
        if self.nic.peer_bytes_in_flight(qpn) < POST_IN_FLIGHT {
            self.transmit(now);
        }
        if now.since(self.round_at) >= ROUND_INTERVAL {
            self.round(now, false);
        }
    }

    /// Keeps the bytes of datagrams that were just posted and could not leave.
    pub(crate) fn keep_datagrams(&mut self, qpn: Qpn) {
        let mem = &self.mem;
        self.nic
            .keep_datagrams(qpn, |pd, sges| host::gather(mem, pd, sges));
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

    /// Receives, and goes on while packets stream in. What answers them leaves afterwards.
    fn receive_stream(&mut self, now: Instant, everywhere: bool) -> bool {
        self.shown = 0;
        let mut total = self.receive(now, everywhere);
        let mut last = total;
        while last >= STREAM_PACKETS && total < ROUND_RECEIVES && self.shown < ROUND_COMPLETIONS {
            last = self.receive(now, false);
            total += last;
        }
        total > 0
    }

    fn handle_timers(&mut self, now: Instant) {
        let due = self.nic.poll_timeout().unwrap_or(now);
        if !self.lateness.excuses(due, now) {
            self.with_nic(|nic, effects| nic.handle_timeout(now, effects));
            self.lateness.settle();
        }
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
        let timers = self.nic.poll_timeout();
        let timers = timers.map(|due| self.lateness.until().map_or(due, |until| due.max(until)));
        let due = [timers, self.retry_at, self.gsi.retry_at];
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
            shown: &mut self.shown,
            realtime_nanos: None,
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

    fn receive(&mut self, now: Instant, everywhere: bool) -> usize {
        let Self {
            nic,
            mem,
            net,
            cqs,
            events,
            fired,
            gsi,
            shown,
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
            shown,
            realtime_nanos: None,
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
            Ok(count) => count,
            Err(error) => {
                log::warn!("receiving failed: {error}");
                0
            }
        }
    }
}

/// What one packet of a call says about the next.
#[derive(Default)]
struct Run {
    /// IPv4 identification that the next packet carries if it comes from the same GSO batch: those
    /// are 0, 1, 2, …
    next_id: u16,
    /// The sum over the pseudo header of the last packet.
    seed: Option<(icrc::Flow, usize, icrc::Seed)>,
}

impl Run {
    /// The IPv4 identification if the ICRC is right.
    fn check(&mut self, flow: &icrc::Flow, roce: &[u8]) -> Option<u16> {
        let seed = match &self.seed {
            Some((last, len, seed)) if last == flow && *len == roce.len() => seed,
            _ => {
                let seed = icrc::Seed::new(flow, roce.len());
                &self.seed.insert((*flow, roce.len(), seed)).2
            }
        };
        if seed.is_met_by(roce) {
            return Some(flow.ipv4_id);
        }
        match icrc::check(flow, roce) {
            icrc::Verdict::Good => Some(flow.ipv4_id),
            icrc::Verdict::GoodWithId(id) => Some(id),
            icrc::Verdict::Bad => None,
        }
    }
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
        ipv4_id: datagram.index.unwrap_or(run.next_id),
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    };
    let Some(id) = run.check(&flow, datagram.bytes) else {
        counters.icrc_errors += 1;
        return None;
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
