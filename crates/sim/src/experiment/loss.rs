//! Loss against goodput: one transfer over eight spines that lose packets at random.

use super::{LINE, Outcome, PerMille, ROUND_TRIP, START, Table, Transport, gigabits, rate_of};
use crate::{Action, Chance, Fabric, Fault, Flow, HostId, Impairment, LeafSpine, Time};

/// Bytes of the transfer.
const TRANSFER_BYTES: u32 = 64 << 20;

/// Ways between the two hosts.
const SPINES: u32 = 8;

/// When a transfer is given up: a hundred times what it takes without loss.
const LIMIT: Time = Time::from_micros(600_000);

/// What became of one transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossPoint {
    /// On every way, in both directions.
    pub loss: Chance,
    /// Payload bytes per second.
    pub goodput: u64,
    /// Of what the line carries of payload.
    pub of_line: PerMille,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Why it did not end, if so.
    pub error: Option<&'static str>,
}

/// One WRITE of 64 MiB between two hosts under two leaves, over eight spines, 12 µs. Every way
/// loses `loss` of the packets in either direction.
///
/// # Errors
/// A broken promise of the transport.
pub fn loss(transport: &Transport, loss: Chance, seed: u64) -> Outcome<LossPoint> {
    let fabric = two_hosts();
    let mut world = transport.world(&fabric, "loss", seed);
    for leaf in &fabric.uplinks[0] {
        for link in leaf {
            // What leaves a leaf upwards: each packet passes one such link.
            let action = Action::Impair(link.forward(), Impairment::loss(loss));
            world.add_fault(Fault {
                at: Time::ZERO,
                action,
            });
        }
    }
    let flow = world.add_flow(&Flow {
        start: START,
        ..Flow::write(HostId(0), HostId(1), TRANSFER_BYTES)
    });
    world.run(LIMIT)?;
    let result = *world.result(flow);
    let end = result.finished.unwrap_or_else(|| world.now());
    let goodput = rate_of(result.placed, end.since(result.began));
    let statistics = world.total_statistics();
    let late = result.finished.is_none().then_some("not finished");
    Ok(LossPoint {
        loss,
        goodput,
        of_line: PerMille::of(goodput, transport.payload_rate(LINE)),
        retransmitted: statistics.retransmitted,
        timeouts: statistics.timeouts,
        error: result.error.or(late),
    })
}

/// Two hosts, each under a leaf of its own, and eight spines.
pub(super) fn two_hosts() -> Fabric {
    LeafSpine::new(2, 1, LINE, ROUND_TRIP)
        .with(|shape| shape.spines = SPINES)
        .build()
}

impl LossPoint {
    /// An empty table for points.
    pub fn table() -> Table {
        Table::new(
            "Loss against goodput: a WRITE of 64 MiB, 100 Gb/s, 12 µs, 8 spines, loss on every way \
             in both directions",
            &[
                "transport",
                "loss",
                "Gb/s",
                "of the line",
                "sent again",
                "timeouts",
                "end",
            ],
        )
    }

    /// Its row.
    pub fn row(&self, transport: &Transport) -> Vec<String> {
        vec![
            transport.name().to_owned(),
            self.loss.to_string(),
            gigabits(self.goodput),
            self.of_line.to_string(),
            self.retransmitted.to_string(),
            self.timeouts.to_string(),
            self.error.unwrap_or("well").to_owned(),
        ]
    }
}
