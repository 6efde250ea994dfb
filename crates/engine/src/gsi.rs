//! The general service interface: management datagrams (MADs) on queue pair 1 of a device.
//!
//! Processes that share an address share its queue pair 1, so a datagram may land in any of them.
//! Whose it is, its own bytes say: an answer carries the number of the process it is for (the slot
//! on top of a communication id), a request names a service that some process claims and listens
//! on. What nobody wants is refused, at a bounded rate, so that peers need not wait.
//!
//! Here: sending, routing, refusing. In [`exchange`]: claims of this process. In [`agent`]: what a
//! program opens. Not here: what the connection manager says (`feroce-proto`), and the checks of
//! form (its `Nic`).

mod agent;
mod exchange;
mod format;
mod owner;

pub use agent::{Agent, AgentError};
pub use exchange::Listener;
pub(crate) use exchange::{Forking, before_fork, forget_in_child};

use crate::core::Core;
use agent::Mailbox;
use exchange::Delivery;
use feroce_mem::Fragment;
use feroce_netio::{Destination, Place, SendError, SlotSendError};
use feroce_obs::pcapng::Direction;
use feroce_proto::{GSI_QKEY, GSI_QPN, Instant, cm};
use feroce_wire::header::Bth;
use feroce_wire::{
    Address, Extensions, Headers, Opcode, Operation, Position, Psn, ROCE_V2_PORT, Service, icrc,
};
use owner::Owner;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use feroce_proto::MAD_LEN;

/// A management datagram.
pub type Mad = [u8; MAD_LEN];

/// Datagrams of one device that wait to be routed.
const ARRIVED_MAX: usize = 1_024;

/// When to try again to route what could not be: Unix sockets queue few messages.
const RETRY: Duration = Duration::from_millis(1);

/// Tries after which a datagram is dropped; peers repeat it.
const TRIES_MAX: u32 = 500;

/// Requests that may wait for their service to be listened on.
const EARLY_MAX: usize = 32;

/// Refusals per second, and at once. More than a real fabric asks for; a flood gets no more.
const REFUSALS_MAX: u32 = 1_000;

/// Marks messages between slots that hold a datagram.
const KIND_MAD: u8 = 1;

/// Hop limit for those who give 0 (RFC 1122's default).
const HOP_LIMIT: u8 = 64;

/// Between which addresses a datagram travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadAddress {
    /// Ours.
    pub local: IpAddr,
    /// The peer's.
    pub remote: IpAddr,
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Time to live or hop limit; 0 stands for 64.
    pub hop_limit: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
}

/// Why a datagram was not sent.
pub type MadSendError = SendError;

/// A datagram on its way to its owner.
#[derive(Clone, Debug)]
struct Arrived {
    from: MadAddress,
    mad: Mad,
    tries: u32,
}

/// What arrived and was not looked at.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    arrived: VecDeque<Arrived>,
    dropped: u64,
}

impl Inbox {
    pub(crate) fn push(&mut self, from: &Address, mad: &Mad) {
        let from = MadAddress {
            local: from.destination,
            remote: from.source,
            traffic_class: from.traffic_class,
            hop_limit: from.hop_limit,
            flow_label: 0,
        };
        self.keep(Arrived {
            from,
            mad: *mad,
            tries: 0,
        });
    }

    fn keep(&mut self, arrived: Arrived) {
        if self.arrived.len() < ARRIVED_MAX {
            self.arrived.push_back(arrived);
        } else {
            self.dropped += 1;
        }
    }
}

/// A device's part of the general service interface.
#[derive(Debug, Default)]
pub(crate) struct Gsi {
    pub(crate) inbox: Inbox,
    /// When to route again what could not be.
    pub(crate) retry_at: Option<Instant>,
    mailbox: Option<Arc<Mailbox>>,
    psn: Psn,
    allowance: Allowance,
}

/// How many refusals may be sent now.
#[derive(Debug)]
struct Allowance {
    left: u32,
    filled: Instant,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: REFUSALS_MAX,
            filled: Instant::ZERO,
        }
    }
}

impl Allowance {
    fn take(&mut self, now: Instant) -> bool {
        const SPACING: Duration = Duration::from_nanos(1_000_000_000 / REFUSALS_MAX as u64);
        let earned = now.since(self.filled).as_nanos() / SPACING.as_nanos();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(earned).min(REFUSALS_MAX);
            self.filled = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// What became of a datagram.
enum Routed {
    Done,
    /// Its service is claimed, but nobody listens yet.
    Early,
    /// Its owner's queue is full.
    Full,
    /// Nobody wants it.
    Unwanted,
}

impl Core {
    /// Takes what arrived for the general service interface to where it belongs.
    pub(crate) fn route_management(&mut self, now: Instant) {
        self.take_handed_on(now);
        if self.gsi.inbox.arrived.is_empty() {
            self.gsi.retry_at = None;
            return;
        }
        let mut early = 0;
        for _ in 0..self.gsi.inbox.arrived.len() {
            let Some(mut arrived) = self.gsi.inbox.arrived.pop_front() else {
                break;
            };
            match self.route(&arrived) {
                Routed::Done => {}
                Routed::Full if arrived.tries < TRIES_MAX => {
                    arrived.tries += 1;
                    self.gsi.inbox.keep(arrived);
                }
                Routed::Full => self.gsi.inbox.dropped += 1,
                // Programs tell peers their port and listen afterwards (qperf), which takes a
                // moment where it is the first use of the device.
                Routed::Early if early < EARLY_MAX && arrived.tries < TRIES_MAX => {
                    early += 1;
                    arrived.tries += 1;
                    self.gsi.inbox.keep(arrived);
                }
                Routed::Early | Routed::Unwanted => self.refuse(now, &arrived),
            }
        }
        self.counters.mads_dropped = self.gsi.inbox.dropped;
        let is_empty = self.gsi.inbox.arrived.is_empty();
        self.gsi.retry_at = (!is_empty).then(|| now + RETRY);
    }

    /// Datagrams that other processes received and found to be ours.
    fn take_handed_on(&mut self, now: Instant) {
        let mut unwanted = Vec::new();
        let own = self.slot;
        for message in self.net.take_messages() {
            let Some((from, _, mad)) = format::decode(&message.payload) else {
                continue;
            };
            if message.kind != KIND_MAD || message.to != own {
                continue;
            }
            let arrived = Arrived {
                from,
                mad,
                tries: 0,
            };
            match &self.gsi.mailbox {
                Some(mailbox) if mailbox.put(from, &mad) => {}
                Some(_) => self.gsi.inbox.keep(arrived),
                None => unwanted.push(arrived),
            }
        }
        for arrived in unwanted {
            self.refuse(now, &arrived);
        }
    }

    fn route(&self, arrived: &Arrived) -> Routed {
        match Owner::of(&arrived.mad) {
            Owner::Slot(slot) if slot == self.slot => self.to_own_agent(arrived),
            Owner::Slot(slot) => {
                let Some(own) = self.net.slots().first() else {
                    return Routed::Unwanted;
                };
                let message = format::encode(&arrived.from, "", &arrived.mad);
                match own.send(slot, KIND_MAD, &message) {
                    Ok(()) => Routed::Done,
                    Err(SlotSendError::Full) => Routed::Full,
                    Err(SlotSendError::Absent) => Routed::Unwanted,
                    Err(error) => {
                        log::debug!("a management datagram for slot {slot} is lost: {error}");
                        Routed::Done
                    }
                }
            }
            Owner::Service(service) => {
                let place = Place::new(arrived.from.local, self.net.interface(), false);
                match exchange::deliver(&self.name, service, place, &arrived.from, &arrived.mad) {
                    Delivery::Delivered => Routed::Done,
                    Delivery::Early => Routed::Early,
                    Delivery::Full => Routed::Full,
                    // Its agent may know the request: it may be a late copy.
                    Delivery::Nobody => self.to_own_agent(arrived),
                }
            }
            Owner::Anyone => self.to_own_agent(arrived),
            Owner::Nobody => Routed::Done,
        }
    }

    fn to_own_agent(&self, arrived: &Arrived) -> Routed {
        match &self.gsi.mailbox {
            Some(mailbox) if mailbox.put(arrived.from, &arrived.mad) => Routed::Done,
            Some(_) => Routed::Full,
            None => Routed::Unwanted,
        }
    }

    /// Tells a peer that nobody wants its datagram, where there is a way to say it.
    fn refuse(&mut self, now: Instant, arrived: &Arrived) {
        let Some(answer) = cm::refuse(&arrived.mad) else {
            return;
        };
        if !self.gsi.allowance.take(now) {
            return;
        }
        self.counters.mads_refused += 1;
        let to = MadAddress {
            hop_limit: HOP_LIMIT,
            ..arrived.from
        };
        if let Err(error) = self.send_mad(&to, &answer) {
            log::debug!("{} cannot be told that it is refused: {error}", to.remote);
        }
    }

    /// Sends a datagram from our queue pair 1 to the peer's.
    pub(crate) fn send_mad(&mut self, to: &MadAddress, mad: &Mad) -> Result<(), MadSendError> {
        let hop_limit = if to.hop_limit == 0 {
            HOP_LIMIT
        } else {
            to.hop_limit
        };
        // On this host straight to the process it is for, if the way is known: the queue pair is
        // shared, and what lands in a process that is about to end is lost.
        let slot = match Owner::of(mad) {
            Owner::Slot(slot) => Some(slot),
            _ => None,
        };
        let destination = Destination {
            source: to.local,
            destination: to.remote,
            slot,
            traffic_class: to.traffic_class,
            hop_limit,
            flow_label: to.flow_label,
            entropy: 0,
        };
        match self.send_management(&destination, mad) {
            Err(SendError::Busy) if slot.is_some() => {
                let anyone = Destination {
                    slot: None,
                    ..destination
                };
                self.send_management(&anyone, mad)
            }
            result => result,
        }
    }

    fn send_management(
        &mut self,
        destination: &Destination,
        mad: &Mad,
    ) -> Result<(), MadSendError> {
        let flow = icrc::Flow {
            source: destination.source,
            destination: destination.destination,
            source_port: self.net.source_port(destination)?,
            destination_port: ROCE_V2_PORT,
            ipv4_id: 0,
            ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
        };
        let packet = packet(&flow, self.gsi.psn, mad);
        let fragments = [Fragment::from(&packet[..])];
        self.net.send(destination, &fragments, packet.len(), 1)?;
        self.gsi.psn = self.gsi.psn.next();
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += packet.len() as u64;
        if let Some(capture) = &mut self.capture {
            let (class, hop_limit) = (destination.traffic_class, destination.hop_limit);
            capture.record(Direction::Out, &flow, class, hop_limit, &packet);
        }
        Ok(())
    }
}

/// A whole packet from queue pair 1 to queue pair 1.
fn packet(flow: &icrc::Flow, psn: Psn, mad: &Mad) -> Vec<u8> {
    let opcode = Opcode::new(Service::Ud, Operation::Send, Position::Only, false, false);
    let bth = Bth::new(opcode.expect("UD SEND ONLY exists"), GSI_QPN, psn);
    let extensions = Extensions {
        datagram: Some((GSI_QKEY, GSI_QPN)),
        ..Extensions::default()
    };
    let headers = Headers::new(bth, &extensions, mad.len());
    let len = headers.as_bytes().len() + mad.len() + icrc::LEN;
    let mut sum = icrc::Seed::new(flow, len).start(headers.as_bytes());
    sum.update(mad);
    let mut packet = Vec::with_capacity(len);
    packet.extend_from_slice(headers.as_bytes());
    packet.extend_from_slice(mad);
    packet.extend_from_slice(&sum.finish());
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use feroce_wire::Packet;

    #[test]
    fn refusals_are_bounded_per_second() {
        let mut allowance = Allowance::default();
        let start = Instant::from_nanos(5_000_000_000);
        let at_once = (0..5_000).filter(|_| allowance.take(start)).count();
        assert_eq!(at_once, REFUSALS_MAX as usize);
        let later = start + Duration::from_millis(10);
        let earned = (0..5_000).filter(|_| allowance.take(later)).count();
        assert_eq!(earned, 10);
    }

    #[test]
    fn a_datagram_is_one_packet_whose_sum_is_right() {
        let flow = icrc::Flow {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 50_000,
            destination_port: ROCE_V2_PORT,
            ipv4_id: 0,
            ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
        };
        let bytes = packet(&flow, Psn::new(7), &[9; MAD_LEN]);
        assert!(matches!(icrc::check(&flow, &bytes), icrc::Verdict::Good));
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.dest_qp, GSI_QPN);
        assert_eq!(packet.extensions.datagram, Some((GSI_QKEY, GSI_QPN)));
        assert_eq!(packet.payload, [9; MAD_LEN]);
        assert!(!packet.ack_request);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut inbox = Inbox::default();
        let from = Address {
            source: "10.0.0.1".parse().unwrap(),
            destination: "10.0.0.2".parse().unwrap(),
            source_port: 1,
            traffic_class: 0,
            hop_limit: 1,
        };
        for _ in 0..=ARRIVED_MAX {
            inbox.push(&from, &[0; MAD_LEN]);
        }
        assert_eq!((inbox.arrived.len(), inbox.dropped), (ARRIVED_MAX, 1));
    }
}
