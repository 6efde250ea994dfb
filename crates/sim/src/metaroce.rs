//! MetaRoCE on a host: `proto`'s metaroce [`Endpoint`](Metaroce) with a stream per flow.
//!
//! Both ends of flow *f* use the stream number of RoCEv2's queue pair for it. The requester opens
//! the connection; the responder connects its streams when a connection from that host opens.

use crate::endpoint::{Endpoint, EndpointStatistics, FlowId, FlowSetup, Report, Role, Uplink};
use crate::frame::{FRAMING_BYTES, Frame, FrameBytes};
use crate::host::{RECEIVES_AHEAD, SimHost, init_of, qpn, receive, request};
use crate::random::mix;
use crate::topology::{address, place_of};
use crate::{HostId, Operation, Rate, Topology};
use core::time::Duration;
use feroce_proto::metaroce::{
    Endpoint as Metaroce, EndpointConfig, Event, Port, Route, StreamTarget,
};
use feroce_proto::{Instant, Payload, TransmitError};
use feroce_wire::Address;
use feroce_wire::metaroce::{Headers, MessageNumber, check};
use std::collections::BTreeMap;

/// Remote read, write and atomics, local write.
const ALL_ACCESS: u32 = 0xf;

/// How MetaRoCE is set up in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaroceSettings {
    /// Constants of the endpoint; planes, secret and number of paths are each host's own.
    pub config: EndpointConfig,
    /// Paths in each plane.
    pub paths_per_plane: u8,
    /// Payloads are real bytes with a real check sum, and compared.
    pub is_checked: bool,
}

impl MetaroceSettings {
    /// Packets of 4 KiB, eight paths per plane, and the constants of the specification for
    /// hardware: no time passes in hosts, so timers may be fine.
    pub fn new(line_rate: Rate) -> Self {
        let config = EndpointConfig {
            line_rate: line_rate.bits_per_second() / 8,
            wire_overhead: FRAMING_BYTES,
            rtt_initial: Duration::from_micros(50),
            timer_grain: Duration::from_micros(1),
            ack_delay_max: Duration::from_micros(2),
            ..EndpointConfig::default()
        };
        Self {
            config,
            paths_per_plane: 8,
            is_checked: false,
        }
    }

    /// With this change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

/// A host that speaks MetaRoCE.
pub struct MetaroceHost {
    endpoint: Metaroce,
    host: SimHost,
    flows: BTreeMap<FlowId, MetaroceFlow>,
    /// Flows of which we are the responder and whose stream is not connected yet.
    pending: Vec<FlowId>,
    marked: u64,
    corrupt: u64,
}

struct MetaroceFlow {
    setup: FlowSetup,
    /// Receives posted so far.
    receives: u64,
}

impl MetaroceHost {
    /// An endpoint without flows on a host of a topology.
    pub fn new(settings: &MetaroceSettings, topology: &Topology, host: HostId, seed: u64) -> Self {
        let secret = [0, 1].map(|word| mix(seed ^ mix(u64::from(host.0) * 2 + word + 1)));
        let planes = topology.addresses(host);
        let count = u8::try_from(planes.len()).unwrap_or(u8::MAX);
        let config = EndpointConfig {
            paths: settings.paths_per_plane.saturating_mul(count),
            planes,
            secret,
            ..settings.config.clone()
        };
        Self {
            endpoint: Metaroce::new(config),
            host: SimHost::new(settings.is_checked),
            flows: BTreeMap::new(),
            pending: Vec::new(),
            marked: 0,
            corrupt: 0,
        }
    }

    /// The endpoint.
    pub const fn endpoint(&self) -> &Metaroce {
        &self.endpoint
    }

    fn connect(&mut self, now: Instant, flow: FlowId) {
        let Some(state) = self.flows.get(&flow) else {
            return;
        };
        let target = StreamTarget {
            peer: address(state.setup.peer, 0),
            qpn: qpn(flow),
            send_number: MessageNumber(0),
            receive_number: MessageNumber(0),
            access_flags: ALL_ACCESS,
            ..StreamTarget::default()
        };
        if self
            .endpoint
            .connect_stream(now, qpn(flow), target)
            .is_err()
        {
            self.host.memory.reports.push(Report::Completed {
                flow,
                message: 0,
                error: Some("could not be connected"),
            });
        }
    }

    fn post_receives(&mut self, now: Instant, flow: FlowId, wanted: u64) {
        let Some(state) = self.flows.get_mut(&flow) else {
            return;
        };
        let setup = state.setup;
        while state.receives < wanted.min(setup.messages) {
            let request = receive(&setup, state.receives);
            let posted = self
                .endpoint
                .post_recv(now, qpn(flow), request, &mut self.host);
            if posted.is_err() {
                return;
            }
            state.receives += 1;
        }
    }

    /// A connection from a host has opened: our ends of its flows are connected.
    fn accept(&mut self, now: Instant, peer: HostId) {
        let (ready, pending) = core::mem::take(&mut self.pending)
            .into_iter()
            .partition(|flow| self.flows[flow].setup.peer == peer);
        self.pending = pending;
        let ready: Vec<FlowId> = ready;
        for flow in ready {
            self.connect(now, flow);
        }
    }
}

impl Endpoint for MetaroceHost {
    fn open(&mut self, now: Instant, setup: &FlowSetup) {
        self.endpoint
            .create_stream(qpn(setup.flow), init_of(setup))
            .expect("flows have numbers of their own");
        let flow = MetaroceFlow {
            setup: *setup,
            receives: 0,
        };
        self.flows.insert(setup.flow, flow);
        match setup.role {
            Role::Requester => self.connect(now, setup.flow),
            Role::Responder => self.pending.push(setup.flow),
        }
        if setup.role == Role::Responder && setup.operation == Operation::Send {
            self.post_receives(now, setup.flow, u64::from(setup.depth) + RECEIVES_AHEAD);
        }
    }

    fn post(&mut self, now: Instant, flow: FlowId, message: u64) {
        let Some(state) = self.flows.get(&flow) else {
            return;
        };
        let request = request(&state.setup, message);
        let posted = self
            .endpoint
            .post_send(now, qpn(flow), request, &mut self.host);
        if posted.is_err() {
            let error = Some("could not be posted");
            self.host.memory.reports.push(Report::Completed {
                flow,
                message,
                error,
            });
        }
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        from: &Address,
        _destination_port: u16,
        bytes: &[u8],
        is_corrupt: bool,
    ) {
        let packet = if self.host.memory.is_checked {
            check::verify(bytes)
        } else {
            bytes.len().checked_sub(check::LEN).map(|end| &bytes[..end])
        };
        let Some(packet) = packet.filter(|_| !is_corrupt) else {
            self.corrupt += 1;
            return;
        };
        self.marked += u64::from(from.congestion_experienced());
        self.endpoint
            .handle_packet(now, from, packet, &mut self.host);
        while let Some(event) = self.endpoint.poll_event() {
            if let (Event::Open(_), Some((peer, _))) = (event, place_of(from.source)) {
                self.accept(now, peer);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now, &mut self.host);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, uplink: &mut Uplink) {
        let budget = self.host.offer(uplink);
        let _progress = self.endpoint.poll_transmit(now, budget, &mut self.host);
        self.host.hand_on(uplink);
    }

    fn take_reports(&mut self, now: Instant, into: &mut Vec<Report>) {
        for (flow, message) in self.host.received() {
            let wanted = message + u64::from(self.flows[&flow].setup.depth) + RECEIVES_AHEAD;
            self.post_receives(now, flow, wanted);
        }
        into.append(&mut self.host.memory.reports);
    }

    fn statistics(&self) -> EndpointStatistics {
        let counters = self.endpoint.counters();
        EndpointStatistics {
            sent: counters.tx_packets,
            retransmitted: counters.retransmissions,
            timeouts: counters.probes_sent,
            duplicates: counters.duplicate_segments + counters.dropped_duplicate,
            marked: self.marked,
            corrupt: self.corrupt,
        }
    }
}

impl Port for SimHost {
    fn send(
        &mut self,
        route: &Route,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        let port = self.take_room(route.source)?;
        let mut bytes = FrameBytes::from_slice(headers.as_bytes());
        let phantom = self.memory.append(payload, &mut bytes);
        let mut frame = Frame {
            address: Address {
                source: route.source,
                destination: route.destination,
                source_port: route.source_port,
                traffic_class: route.traffic_class,
                hop_limit: 64,
            },
            destination_port: route.destination_port,
            bytes,
            phantom: phantom + check::LEN as u32,
        };
        if self.memory.is_checked {
            let mut sum = check::Sum::new();
            sum.update(&frame.bytes);
            frame.bytes.extend_from_slice(&sum.trailer());
            frame.phantom = 0;
        }
        self.push(port, frame);
        Ok(())
    }
}
