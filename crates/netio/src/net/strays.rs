//! Datagrams that belong to another process of this host: they go on over its slot's socket.

use std::net::IpAddr;
use std::ops::Range;

use super::Net;
use super::receive::{Datagram, MESSAGE_BYTES, Reception};
use crate::counters::Counters;
use crate::slot::Slot;
use crate::slot::message::Run;

/// Consecutive datagrams of one received message that belong to another process.
pub(super) struct Stray {
    slot: u16,
    message: usize,
    range: Range<usize>,
}

impl Net {
    /// Hands datagrams to the owner of another slot. What it cannot take is dropped and counted.
    pub fn forward(&mut self, slot: u16, datagrams: &[Datagram<'_>]) {
        let mut runs: Vec<Run<'_>> = Vec::with_capacity(datagrams.len());
        runs.extend(datagrams.iter().map(|datagram| Run {
            source: datagram.source,
            destination: datagram.destination,
            destination_port: datagram.destination_port,
            tclass: datagram.traffic_class,
            hop_limit: datagram.hop_limit,
            segment_len: datagram.bytes.len().max(1),
            bytes: datagram.bytes,
        }));
        if let Some(own) = self.slots.first() {
            hand_on(own, slot, &runs, &mut self.counters);
        }
    }
}

/// Notes a datagram for another process, together with the one before it where that went to the
/// same one.
pub(super) fn add_stray(strays: &mut Vec<Stray>, slot: u16, message: usize, range: Range<usize>) {
    if let Some(last) = strays.last_mut()
        && (last.slot, last.message, last.range.end) == (slot, message, range.start)
    {
        last.range.end = range.end;
        return;
    }
    strays.push(Stray {
        slot,
        message,
        range,
    });
}

impl Reception {
    pub(super) fn hand_on_strays(
        &mut self,
        own: &Slot,
        destination: IpAddr,
        destination_port: u16,
        counters: &mut Counters,
    ) {
        let mut runs = Vec::with_capacity(self.strays.len());
        // Grouped by owner, in order within each: what one call hands on goes in few messages.
        while let Some(slot) = self.strays.first().map(|stray| stray.slot) {
            runs.clear();
            for stray in self.strays.extract_if(.., |stray| stray.slot == slot) {
                let message = self.buffers.message(stray.message);
                let source = self.buffers.source(stray.message);
                let (Some(message), Some(source)) = (message, source) else {
                    continue;
                };
                runs.push(Run {
                    source,
                    destination,
                    destination_port,
                    tclass: message.tclass,
                    hop_limit: message.hop_limit,
                    segment_len: message.segment_len.unwrap_or(MESSAGE_BYTES),
                    bytes: &message.bytes[stray.range],
                });
            }
            hand_on(own, slot, &runs, counters);
        }
    }
}

fn hand_on(own: &Slot, slot: u16, runs: &[Run<'_>], counters: &mut Counters) {
    let outcome = own.forward(slot, runs);
    counters.forwarded_out += outcome.sent;
    counters.forward_dropped += outcome.dropped;
}
