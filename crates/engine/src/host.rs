//! The protocol's host: checks claims against the memory table, gathers packets into batches, shows
//! completions. It borrows from the device what one call of the protocol needs.

use crate::batch::{Batch, Form, STAGE_MAX, Shape};
use crate::core::Counters;
use crate::cq::{Cq, Shown, Stamped};
use crate::device::DeviceEvent;
use crate::gsi::Inbox;
use feroce_mem as mem;
use feroce_netio::{Destination, Net, SendError};
use feroce_obs::pcapng::{Capture, Direction};
use feroce_proto::{
    AsyncEvent, AtomicOperation, BindRequest, Completion, CqId, Envelope, Host, LocalFault,
    MAD_LEN, Payload, PdId, RemoteAccess, RemoteFault, RemoteRange, Sge, TransmitError,
};
use feroce_wire::{Address, Headers, MULTICAST_QPN, Qpn, ROCE_V2_PORT, icrc, pad_len};
use slab::Slab;
use std::sync::Arc;
use std::time::Duration;

/// How long a round waits, in all, for room in a socket's send buffer before packets are dropped
/// (and repaired like any loss).
const SEND_WAIT_MAX: Duration = Duration::from_millis(20);

/// The protocol's host: borrows what one call needs.
pub(crate) struct Effects<'t, 'c> {
    pub(crate) mem: &'t mem::Table,
    pub(crate) cqs: &'c Slab<Arc<Cq>>,
    pub(crate) events: &'c mut Vec<DeviceEvent>,
    pub(crate) fired: &'c mut u32,
    pub(crate) management: &'c mut Inbox,
    pub(crate) shown: &'c mut u32,
    /// When completions of this call are shown: read once, since a call takes some microseconds
    /// and reading the clock for each took a tenth of the time of a small message.
    pub(crate) realtime_nanos: Option<u64>,
    pub(crate) wire: Option<Wire<'t, 'c>>,
}

/// The sending side of a host.
pub(crate) struct Wire<'t, 'c> {
    pub(crate) net: &'c mut Net,
    pub(crate) batch: Batch<'t>,
    pub(crate) counters: &'c mut Counters,
    pub(crate) capture: Option<&'c mut Capture>,
    pub(crate) waited: Duration,
}

impl<'t> Wire<'t, '_> {
    pub(crate) fn flush(&mut self) {
        let Self {
            net,
            batch,
            counters,
            waited,
            ..
        } = self;
        batch.flush(|to, fragments, shape| {
            let destination = destination(to);
            let packets = shape.packets() as u64;
            loop {
                let sent = match shape {
                    Shape::Cut {
                        segment_len,
                        segments,
                    } => net.send(&destination, fragments, segment_len, segments),
                    Shape::Bundle { lengths } => net.send_bundle(&destination, fragments, lengths),
                };
                match sent {
                    Ok(()) => break,
                    Err(SendError::Busy) if *waited < SEND_WAIT_MAX => {
                        const STEP: Duration = Duration::from_millis(1);
                        let _ = net.wait_writable(&destination, STEP);
                        *waited += STEP;
                    }
                    Err(SendError::Busy) => {
                        counters.send_dropped += packets;
                        break;
                    }
                    Err(error) => {
                        counters.send_errors += packets;
                        log::debug!("sending to {} failed: {error}", to.destination);
                        break;
                    }
                }
            }
        });
    }

    fn transmit(
        &mut self,
        mem: &'t mem::Table,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        let payload_len = payload_len(&payload);
        let pad = usize::from(pad_len(payload_len));
        let len = headers.as_bytes().len() + payload_len + pad + icrc::LEN;
        let pieces = 2 + if let Payload::Gather(_, sges) = payload {
            2 * sges.len()
        } else {
            0
        };
        if !self.batch.accepts(to, len, pieces) {
            self.flush();
            self.begin(to, len)?;
        }
        let before = self.batch.mark();
        self.batch.begin_packet(len);
        let mark = self.batch.mark();
        let seed = self
            .batch
            .seed(len, |batch| icrc::Seed::new(&flow(to, batch), len));
        let mut sum = seed.start(headers.as_bytes());
        self.batch.stage(headers.as_bytes());
        if let Err(error) = self.add_payload(mem, payload, payload_len, &mut sum) {
            self.batch.rewind(before);
            return Err(error);
        }
        let padding = [0; 3];
        sum.update(&padding[..pad]);
        self.batch.stage(&padding[..pad]);
        self.batch.stage(&sum.finish());
        if let Some(capture) = &mut self.capture {
            let packet = self.batch.staged_since(mark);
            capture.record(
                Direction::Out,
                &flow(to, &self.batch),
                to.traffic_class,
                to.hop_limit,
                packet,
            );
        }
        self.batch.finish_packet(len);
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += len as u64;
        Ok(())
    }

    /// Starts a batch that begins with a packet of `len` bytes.
    fn begin(&mut self, to: &Envelope, len: usize) -> Result<(), TransmitError> {
        let destination = destination(to);
        // None before the way is known, since later packets would overtake these, and none that
        // a socket on this host might have to drop.
        let form = match self.net.bundle_room(&destination, len) {
            Some(bytes_max) => (bytes_max > 0).then_some(Form::Bundle { bytes_max }),
            None => match self.net.room(&destination, len) {
                0 => None,
                segments_max => Some(Form::Cut { segments_max }),
            },
        };
        let form = form.ok_or(TransmitError::Busy)?;
        // An address that went away: the send fails, and says so.
        let source_port = self.net.source_port(&destination).unwrap_or(0);
        self.batch.begin(to, len, form, source_port);
        Ok(())
    }

    fn add_payload(
        &mut self,
        mem: &'t mem::Table,
        payload: Payload<'_>,
        len: usize,
        sum: &mut icrc::Sum,
    ) -> Result<(), TransmitError> {
        // A capture needs the bytes in one place.
        let stage_all = len <= STAGE_MAX || self.capture.is_some();
        match payload {
            Payload::Bytes(bytes) => {
                sum.update(bytes);
                self.batch.stage(bytes);
            }
            Payload::Gather(pd, sges) => {
                for sge in sges.iter().filter(|sge| sge.length > 0) {
                    let grant = local(mem, pd, sge, 0, sge.length, mem::LocalUse::Read)
                        .map_err(TransmitError::Local)?;
                    let fragment = if stage_all { None } else { grant.fragment() };
                    if let Some(fragment) = fragment {
                        grant
                            .crc(|bytes| sum.update(bytes))
                            .map_err(|_| TransmitError::Local(LocalFault))?;
                        self.batch.in_place(fragment);
                    } else {
                        let bytes = self
                            .batch
                            .stage_with(|arena| grant.append_to(arena))
                            .map_err(|_| TransmitError::Local(LocalFault))?;
                        sum.update(bytes);
                    }
                }
            }
            Payload::Remote(range) if range.length > 0 => {
                // The program may change what a peer reads at any time: the sum must be over
                // the bytes that are sent, so they are copied first.
                let grant =
                    remote(mem, &range, mem::Access::REMOTE_READ).map_err(TransmitError::Remote)?;
                let bytes = self
                    .batch
                    .stage_with(|arena| grant.append_to(arena))
                    .map_err(|_| TransmitError::Remote(RemoteFault))?;
                sum.update(bytes);
            }
            Payload::Remote(_) => {}
        }
        Ok(())
    }
}

/// What the ICRC of the next packet of a batch covers.
fn flow(to: &Envelope, batch: &Batch<'_>) -> icrc::Flow {
    icrc::Flow {
        source: to.source,
        destination: to.destination,
        source_port: batch.source_port(),
        destination_port: ROCE_V2_PORT,
        ipv4_id: batch.next_id(),
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    }
}

fn destination(to: &Envelope) -> Destination {
    Destination {
        source: to.source,
        destination: to.destination,
        slot: if to.dest_qp == MULTICAST_QPN {
            None
        } else {
            Some(crate::slot_of(to.dest_qp))
        },
        traffic_class: to.traffic_class,
        hop_limit: to.hop_limit,
        flow_label: to.flow_label,
        entropy: to.entropy,
    }
}

fn payload_len(payload: &Payload<'_>) -> usize {
    match payload {
        Payload::Bytes(bytes) => bytes.len(),
        Payload::Gather(_, sges) => sges.iter().map(|sge| sge.length as usize).sum(),
        Payload::Remote(range) => usize::try_from(range.length).unwrap_or(usize::MAX),
    }
}

/// The bytes that a list names, if its keys cover them.
pub(crate) fn gather(mem: &mem::Table, pd: PdId, sges: &[Sge]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for sge in sges.iter().filter(|sge| sge.length > 0) {
        let grant = local(mem, pd, sge, 0, sge.length, mem::LocalUse::Read).ok()?;
        grant.append_to(&mut bytes).ok()?;
    }
    Some(bytes)
}

fn local<'t>(
    mem: &'t mem::Table,
    pd: PdId,
    sge: &Sge,
    offset: u32,
    len: u32,
    access: mem::LocalUse,
) -> Result<mem::Grant<'t>, LocalFault> {
    let address = sge
        .address
        .checked_add(u64::from(offset))
        .ok_or(LocalFault)?;
    mem.local(
        mem::PdId(pd.0),
        mem::Key(sge.lkey),
        address,
        len as usize,
        access,
    )
    .map_err(|fault| {
        log::debug!("{fault}");
        LocalFault
    })
}

fn remote<'t>(
    mem: &'t mem::Table,
    range: &RemoteRange,
    access: mem::Access,
) -> Result<mem::Grant<'t>, RemoteFault> {
    let len = usize::try_from(range.length).map_err(|_| RemoteFault)?;
    let pd = mem::PdId(range.pd.0);
    mem.remote(
        pd,
        range.qpn.value(),
        mem::Key(range.rkey),
        range.address,
        len,
        access,
    )
    .map_err(|fault| {
        log::debug!("{fault}");
        RemoteFault
    })
}

const fn access_of(access: RemoteAccess) -> mem::Access {
    match access {
        RemoteAccess::Write => mem::Access::REMOTE_WRITE,
        RemoteAccess::Read => mem::Access::REMOTE_READ,
        RemoteAccess::Atomic => mem::Access::REMOTE_ATOMIC,
        RemoteAccess::FlushGlobal => mem::Access::FLUSH_GLOBAL,
        RemoteAccess::FlushPersistent => mem::Access::FLUSH_PERSISTENT,
    }
}

impl Host for Effects<'_, '_> {
    #[inline]
    fn transmit(
        &mut self,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        match &mut self.wire {
            Some(wire) => wire.transmit(self.mem, to, headers, payload),
            None => Err(TransmitError::Busy),
        }
    }

    #[inline]
    fn scatter(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        let mut skip = offset;
        let mut data = data;
        for sge in sges {
            if data.is_empty() {
                break;
            }
            if skip >= u64::from(sge.length) {
                skip -= u64::from(sge.length);
                continue;
            }
            // Below the length, which is 32 bits wide.
            let start = skip as u32;
            skip = 0;
            let room = (sge.length - start) as usize;
            let (piece, rest) = data.split_at(room.min(data.len()));
            let len = piece.len() as u32;
            local(self.mem, pd, sge, start, len, mem::LocalUse::Write)?
                .write(piece)
                .map_err(|_| LocalFault)?;
            data = rest;
        }
        if data.is_empty() {
            Ok(())
        } else {
            Err(LocalFault)
        }
    }

    fn check(&mut self, range: &RemoteRange, access: RemoteAccess) -> Result<(), RemoteFault> {
        if range.length == 0 {
            return Ok(());
        }
        remote(self.mem, range, access_of(access)).map(drop)
    }

    #[inline]
    fn write(&mut self, range: &RemoteRange, data: &[u8]) -> Result<(), RemoteFault> {
        if data.is_empty() {
            return Ok(());
        }
        remote(self.mem, range, mem::Access::REMOTE_WRITE)?
            .write(data)
            .map_err(|_| RemoteFault)
    }

    fn atomic(
        &mut self,
        range: &RemoteRange,
        operation: AtomicOperation,
    ) -> Result<u64, RemoteFault> {
        let grant = remote(self.mem, range, mem::Access::REMOTE_ATOMIC)?;
        match operation {
            AtomicOperation::CompareSwap { compare, swap } => grant.compare_swap(compare, swap),
            AtomicOperation::FetchAdd(add) => grant.fetch_add(add),
        }
        .map_err(|_| RemoteFault)
    }

    fn atomic_write(&mut self, range: &RemoteRange, value: [u8; 8]) -> Result<(), RemoteFault> {
        remote(self.mem, range, mem::Access::REMOTE_WRITE)?
            .write_u64_atomic(u64::from_ne_bytes(value))
            .map_err(|_| RemoteFault)
    }

    fn flush(
        &mut self,
        range: &RemoteRange,
        access: RemoteAccess,
        whole_region: bool,
    ) -> Result<(), RemoteFault> {
        let (pd, key) = (mem::PdId(range.pd.0), mem::Key(range.rkey));
        if whole_region {
            let grant = self
                .mem
                .remote_whole(pd, range.qpn.value(), key, access_of(access))
                .map_err(|_| RemoteFault)?;
            grant.flush();
            return Ok(());
        }
        if range.length == 0 {
            return Ok(());
        }
        remote(self.mem, range, access_of(access))?.flush();
        Ok(())
    }

    fn remote_invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), RemoteFault> {
        self.mem
            .invalidate(mem::Key(key), mem::PdId(pd.0), qpn.value())
            .map_err(|_| RemoteFault)
    }

    fn local_invalidate(&mut self, pd: PdId, qpn: Qpn, key: u32) -> Result<(), LocalFault> {
        self.mem
            .invalidate(mem::Key(key), mem::PdId(pd.0), qpn.value())
            .map_err(|_| LocalFault)
    }

    fn bind(&mut self, pd: PdId, qpn: Qpn, request: &BindRequest) -> Result<(), LocalFault> {
        let access = mem::Access::from_bits(request.access).map_err(|error| {
            log::debug!("{error}");
            LocalFault
        })?;
        let bind = mem::BindRequest {
            pd: mem::PdId(pd.0),
            qp: qpn.value(),
            window: mem::Key(request.window),
            window_type: if request.type_2 {
                mem::WindowType::Two
            } else {
                mem::WindowType::One
            },
            // The low byte of the key that the program chose.
            tag: request.window.to_le_bytes()[0],
            region: mem::Key(request.region),
            address: request.address,
            length: request.length,
            access,
        };
        self.mem.bind(&bind).map(drop).map_err(|error| {
            log::debug!("{error}");
            LocalFault
        })
    }

    fn complete(&mut self, cq: CqId, completion: Completion) {
        let Some(queue) = self.cqs.get(cq.0 as usize) else {
            return;
        };
        let entry = Stamped {
            completion,
            realtime_nanos: *self
                .realtime_nanos
                .get_or_insert_with(crate::clock::realtime_nanos),
        };
        let (shown, fired) = queue.push(entry);
        *self.shown += 1;
        *self.fired += u32::from(fired);
        if shown == Shown::Overrun {
            log::error!(
                "completion queue {} overran its {} entries",
                cq.0,
                queue.capacity()
            );
            self.events.push(DeviceEvent::CqError(cq));
        }
    }

    fn event(&mut self, event: AsyncEvent) {
        self.events.push(DeviceEvent::Affiliated(event));
    }

    fn management(&mut self, from: &Address, mad: &[u8; MAD_LEN]) {
        self.management.push(from, mad);
    }
}
