//! A run: hosts with their endpoints on a network, flows, and time.

use crate::endpoint::{Endpoint, EndpointStatistics, FlowId, FlowSetup, Report, Role, Uplink};
use crate::fault::Fault;
use crate::frame::Frame;
use crate::ledger::{FlowRecord, FlowResult, Violation};
use crate::network::{Event, Network};
use crate::random::mix;
use crate::{ChannelId, EventQueue, HostId, Random, Span, Time, Topology};

/// What the messages of a flow do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// RDMA WRITE: the requester's bytes go to the responder.
    Write,
    /// SEND into a posted receive.
    Send,
    /// RDMA READ: the responder's bytes go to the requester.
    Read,
}

/// A flow of equal messages. As many as `depth` are posted at the start, and one more for each
/// that completes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The host that posts.
    pub requester: HostId,
    /// The other one.
    pub responder: HostId,
    /// What they do.
    pub operation: Operation,
    /// Bytes of each message.
    pub message_bytes: u32,
    /// Messages in all.
    pub messages: u64,
    /// Most messages posted and not completed.
    pub depth: u32,
    /// When the first ones are posted.
    pub start: Time,
}

impl Flow {
    /// One WRITE of `bytes`, at the start of the run.
    pub const fn write(requester: HostId, responder: HostId, bytes: u32) -> Self {
        Self {
            requester,
            responder,
            operation: Operation::Write,
            message_bytes: bytes,
            messages: 1,
            depth: 1,
            start: Time::ZERO,
        }
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u64 {
        self.message_bytes as u64 * self.messages
    }
}

/// Series over time, a value per interval.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Time between two samples.
    pub interval: Span,
    /// Per flow: payload bytes placed up to each sample.
    pub placed: Vec<Vec<u64>>,
    /// Per watched channel: bytes waiting at each sample.
    pub queued: Vec<Vec<u64>>,
    watched: Vec<ChannelId>,
}

struct Host {
    endpoint: Box<dyn Endpoint>,
    ports: Vec<ChannelId>,
    /// The earliest timer event under way, and its number.
    armed: Option<Time>,
    armed_number: u32,
}

/// A run in progress.
pub struct World {
    now: Time,
    events: EventQueue<Event>,
    network: Network,
    hosts: Vec<Host>,
    flows: Vec<FlowRecord>,
    flows_open: usize,
    faults: Vec<Fault>,
    samples: Samples,
    uplink: Uplink,
    reports: Vec<Report>,
    /// Where the UDP payload of an arriving packet is laid out.
    scratch: Vec<u8>,
    handled: u64,
    hash: u64,
    random: Random,
    replay: String,
    /// Packets that a host's port holds besides the one it sends.
    port_depth: u32,
}

/// The world's own stream of random numbers.
const STREAM_WORLD: u64 = 4 << 32;

/// The longest UDP payload.
const DATAGRAM_MAX: usize = 16 << 10;

impl World {
    /// A network with an endpoint on every host, made by `endpoint`. `replay` is the command
    /// that runs this again; violations print it.
    pub fn new(
        topology: Topology,
        seed: u64,
        replay: &str,
        mut endpoint: impl FnMut(HostId) -> Box<dyn Endpoint>,
    ) -> Self {
        let hosts = (0..topology.host_count()).map(|id| Host {
            endpoint: endpoint(HostId(id)),
            ports: topology.ports[id as usize].clone(),
            armed: None,
            armed_number: 0,
        });
        Self {
            now: Time::ZERO,
            events: EventQueue::new(seed),
            hosts: hosts.collect(),
            network: Network::new(topology, seed),
            flows: Vec::new(),
            flows_open: 0,
            faults: Vec::new(),
            samples: Samples::default(),
            uplink: Uplink::new(),
            reports: Vec::new(),
            scratch: vec![0; DATAGRAM_MAX],
            handled: 0,
            hash: mix(seed),
            random: Random::new(seed, STREAM_WORLD),
            replay: replay.to_owned(),
            port_depth: 0,
        }
    }

    /// Adds a flow; both ends get ready for it now.
    ///
    /// # Panics
    /// If a host does not exist, or both are the same.
    pub fn add_flow(&mut self, flow: &Flow) -> FlowId {
        assert_ne!(flow.requester, flow.responder, "a flow needs two hosts");
        let id = FlowId(self.flows.len() as u32);
        let topology = self.network.topology();
        let ports = topology.port_count(flow.requester);
        let mut setup = FlowSetup {
            flow: id,
            role: Role::Responder,
            local: flow.responder,
            peer: flow.requester,
            ports: ports.min(topology.port_count(flow.responder)),
            operation: flow.operation,
            message_bytes: flow.message_bytes,
            messages: flow.messages,
            depth: flow.depth,
        };
        let now = self.now.instant();
        self.hosts[flow.responder.0 as usize]
            .endpoint
            .open(now, &setup);
        setup = FlowSetup {
            role: Role::Requester,
            local: flow.requester,
            peer: flow.responder,
            ..setup
        };
        self.hosts[flow.requester.0 as usize]
            .endpoint
            .open(now, &setup);
        self.flows.push(FlowRecord::new(setup));
        self.flows_open += 1;
        self.events
            .push(flow.start.max(self.now), Event::Begin(id.0));
        id
    }

    /// Adds a fault to the schedule.
    pub fn add_fault(&mut self, fault: Fault) {
        self.events.push(
            fault.at.max(self.now),
            Event::Fault(self.faults.len() as u32),
        );
        self.faults.push(fault);
    }

    /// Takes samples from now on: of all flows, and of the queues of some channels.
    pub fn sample_every(&mut self, interval: Span, watched: &[ChannelId]) {
        self.samples.interval = interval;
        self.samples.watched = watched.to_vec();
        self.samples.queued = vec![Vec::new(); watched.len()];
        self.events.push(self.now + interval, Event::Sample);
    }

    /// Lets ports hold more packets than the one they send, so that a protocol can fill several
    /// ports with one call.
    pub const fn set_port_depth(&mut self, packets: u32) {
        self.port_depth = packets;
    }

    /// Runs until every flow is over, `limit` is reached or nothing is left to happen. Returns
    /// whether every flow is over.
    ///
    /// # Errors
    /// The first [`Violation`] of what must hold. Flows that are not over although nothing is
    /// left to happen are one.
    pub fn run(&mut self, limit: Time) -> Result<bool, Violation> {
        while self.flows_open > 0 {
            if !self.step(limit)? {
                break;
            }
        }
        self.check_conservation()?;
        if self.flows_open > 0 && self.is_quiet() {
            self.check_end()?;
        }
        Ok(self.flows_open == 0)
    }

    /// Runs until nothing is left to happen, or until `limit`; then everything must have ended
    /// well.
    ///
    /// # Errors
    /// The first [`Violation`] of what must hold.
    pub fn run_until_quiet(&mut self, limit: Time) -> Result<(), Violation> {
        while self.step(limit)? {}
        self.check_conservation()?;
        self.check_end()
    }

    /// Runs for as long as the limit says, whatever the flows do.
    ///
    /// # Errors
    /// The first [`Violation`] of what must hold.
    pub fn run_until(&mut self, limit: Time) -> Result<(), Violation> {
        while self.step(limit)? {}
        self.now = self.now.max(limit);
        self.check_conservation()
    }

    /// Handles one event; false if there is none up to `limit`.
    fn step(&mut self, limit: Time) -> Result<bool, Violation> {
        if self.events.next_time().is_none_or(|time| time > limit) {
            return Ok(false);
        }
        let Some((time, event)) = self.events.pop() else {
            return Ok(false);
        };
        self.now = time;
        self.handled += 1;
        self.note(event);
        match event {
            Event::Arrive(channel, id) => {
                let arrived = self.network.arrive(time, channel, id, &mut self.events);
                if let Some((host, frame, is_corrupt)) = arrived {
                    self.deliver(host, &frame, is_corrupt)?;
                }
            }
            Event::Free(channel) => {
                if let Some(host) = self.network.free(time, channel, &mut self.events) {
                    self.pump(host);
                }
            }
            Event::Timer(host, number) => self.fire(host, number)?,
            Event::Begin(flow) => self.begin(FlowId(flow))?,
            Event::Fault(index) => self.network.apply(self.faults[index as usize].action),
            Event::Sample => self.sample(),
        }
        Ok(true)
    }

    /// Mixes an event into the hash of the run.
    fn note(&mut self, event: Event) {
        let words = match event {
            Event::Arrive(channel, id) => [1, channel.0, id],
            Event::Free(channel) => [2, channel.0, 0],
            Event::Timer(host, number) => [3, host.0, number],
            Event::Begin(flow) => [4, flow, 0],
            Event::Fault(index) => [5, index, 0],
            Event::Sample => return,
        };
        let [kind, first, second] = words.map(u64::from);
        let word = self.now.picos() ^ kind << 61 ^ first << 40 ^ second << 20;
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
    }

    fn deliver(&mut self, host: HostId, frame: &Frame, is_corrupt: bool) -> Result<(), Violation> {
        let length = frame.len().min(DATAGRAM_MAX);
        let bytes = frame.bytes.len().min(length);
        self.scratch[..bytes].copy_from_slice(&frame.bytes[..bytes]);
        // A packet of real bytes is really changed: its receiver has a checksum to find out.
        let is_whole = frame.phantom == 0 && bytes > 0;
        if is_corrupt && is_whole {
            let bit = self.random.below(bytes as u64 * 8) as usize;
            self.scratch[bit / 8] ^= 1 << (bit % 8);
        }
        let is_corrupt = is_corrupt && !is_whole;
        let now = self.now.instant();
        self.hosts[host.0 as usize].endpoint.handle_packet(
            now,
            &frame.address,
            frame.destination_port,
            &self.scratch[..length],
            is_corrupt,
        );
        self.settle(host)
    }

    fn fire(&mut self, host: HostId, number: u32) -> Result<(), Violation> {
        let state = &mut self.hosts[host.0 as usize];
        if number != state.armed_number {
            return Ok(());
        }
        state.armed = None;
        state.endpoint.handle_timeout(self.now.instant());
        self.settle(host)
    }

    fn begin(&mut self, id: FlowId) -> Result<(), Violation> {
        let flow = &mut self.flows[id.0 as usize];
        flow.result.began = self.now;
        let requester = flow.setup.local;
        let count = flow.setup.messages.min(u64::from(flow.setup.depth));
        for _ in 0..count {
            self.post_next(id);
        }
        self.settle(requester)
    }

    fn post_next(&mut self, id: FlowId) {
        let flow = &mut self.flows[id.0 as usize];
        if flow.result.posted == flow.setup.messages || flow.result.error.is_some() {
            return;
        }
        let message = flow.result.posted;
        flow.result.posted += 1;
        let endpoint = &mut self.hosts[flow.setup.local.0 as usize].endpoint;
        endpoint.post(self.now.instant(), id, message);
    }

    /// After an endpoint was called: its reports, what it sends, its timer.
    fn settle(&mut self, host: HostId) -> Result<(), Violation> {
        let mut reports = core::mem::take(&mut self.reports);
        let now = self.now.instant();
        let endpoint = &mut self.hosts[host.0 as usize].endpoint;
        endpoint.take_reports(now, &mut reports);
        for report in reports.drain(..) {
            self.handle_report(&report)?;
        }
        self.reports = reports;
        self.pump(host);
        Ok(())
    }

    fn handle_report(&mut self, report: &Report) -> Result<(), Violation> {
        let (Report::Placed { flow, .. }
        | Report::Completed { flow, .. }
        | Report::Received { flow, .. }
        | Report::Wrong { flow, .. }) = *report;
        let record = &mut self.flows[flow.0 as usize];
        let was_over = record.result.is_over();
        if let Err(what) = record.note(self.now, report) {
            return Err(Violation::of_flow(self.now, flow, &what, &self.replay));
        }
        if record.result.is_over() && !was_over {
            self.flows_open -= 1;
        }
        if matches!(report, Report::Completed { .. }) {
            self.post_next(flow);
        }
        Ok(())
    }

    /// The host sends what its ports take; then its timer is looked at.
    fn pump(&mut self, host: HostId) {
        let now = self.now;
        let state = &mut self.hosts[host.0 as usize];
        loop {
            let (network, depth) = (&self.network, self.port_depth);
            self.uplink.offer(state.ports.iter().map(|&port| {
                if network.is_idle(port, now) {
                    1 + depth
                } else {
                    depth.saturating_sub(network.queued_packets(port))
                }
            }));
            if !self.uplink.has_any_room() {
                break;
            }
            state
                .endpoint
                .poll_transmit(now.instant(), &mut self.uplink);
            let mut sent = 0;
            for (port, frame) in self.uplink.take() {
                sent += 1;
                let channel = state.ports[port as usize];
                self.network.send(now, channel, frame, &mut self.events);
            }
            if sent == 0 {
                break;
            }
        }
        let due = state.endpoint.poll_timeout().map(Time::from_instant);
        if let Some(due) = due
            && state.armed.is_none_or(|armed| due < armed)
        {
            let due = due.max(now);
            state.armed = Some(due);
            state.armed_number = state.armed_number.wrapping_add(1);
            self.events
                .push(due, Event::Timer(host, state.armed_number));
        }
    }

    fn sample(&mut self) {
        self.samples.placed.resize(self.flows.len(), Vec::new());
        for (series, flow) in self.samples.placed.iter_mut().zip(&self.flows) {
            series.push(flow.result.placed);
        }
        for (series, &channel) in self.samples.queued.iter_mut().zip(&self.samples.watched) {
            series.push(self.network.queued(channel));
        }
        // When only samples are left, nothing more happens.
        if self.flows_open > 0 && !self.events.is_empty() {
            self.events
                .push(self.now + self.samples.interval, Event::Sample);
        }
    }

    const fn is_quiet(&self) -> bool {
        self.events.is_empty()
    }

    fn violation(&self, what: String) -> Violation {
        Violation {
            time: self.now,
            what,
            replay: self.replay.clone(),
        }
    }

    fn check_conservation(&self) -> Result<(), Violation> {
        self.network
            .check_conservation()
            .map_err(|what| self.violation(what))
    }

    fn check_end(&self) -> Result<(), Violation> {
        for flow in &self.flows {
            flow.check_end().map_err(|what| {
                Violation::of_flow(self.now, flow.setup.flow, &what, &self.replay)
            })?;
        }
        Ok(())
    }

    /// Simulated time.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The network.
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// What a flow has come to.
    pub fn result(&self, flow: FlowId) -> &FlowResult {
        &self.flows[flow.0 as usize].result
    }

    /// What all flows have come to, in order.
    pub fn results(&self) -> impl Iterator<Item = &FlowResult> {
        self.flows.iter().map(|flow| &flow.result)
    }

    /// The series.
    pub const fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The counters of a host's protocol.
    pub fn endpoint_statistics(&self, host: HostId) -> EndpointStatistics {
        self.hosts[host.0 as usize].endpoint.statistics()
    }

    /// The sum over all hosts.
    pub fn total_statistics(&self) -> EndpointStatistics {
        let mut total = EndpointStatistics::default();
        for host in &self.hosts {
            total.add(&host.endpoint.statistics());
        }
        total
    }

    /// Events handled so far.
    pub const fn events_handled(&self) -> u64 {
        self.handled
    }

    /// A hash over every event so far: equal for equal runs.
    pub const fn trace_hash(&self) -> u64 {
        self.hash
    }
}
