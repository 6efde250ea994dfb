//! RoCEv2 on a host: `proto`'s [`Nic`] with an RC queue pair per flow.
//!
//! Both ends of flow *f* use queue pair number `FIRST_QPN + f`, and are connected before the run:
//! the connection manager is not part of it.

use crate::Operation;
use crate::Rate;
use crate::endpoint::{Endpoint, EndpointStatistics, FlowId, FlowSetup, Report, Role, Uplink};
use crate::host::{RECEIVES_AHEAD, SimHost, init_of, qpn, receive, request};
use crate::topology::address;
use core::time::Duration;
use feroce_proto::{
    AttributeMask, CongestionControl, DcqcnParameters, Instant, Mtu, Nic, NicConfig, Path,
    QpAttributes, QpState,
};
use feroce_wire::{Address, Packet, Psn, icrc};
use std::collections::BTreeMap;

/// ECN-capable transport, ECT(0) (RFC 3168).
const ECT: u8 = 2;
/// Remote read, write and atomics.
const ALL_ACCESS: u32 = 0xe;
/// How RoCEv2 is set up in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoceSettings {
    /// Payload bytes per packet.
    pub mtu: Mtu,
    /// Bytes in flight to one peer, at the start and at most. A NIC in hardware has no such
    /// window: let it be large.
    pub window: u64,
    /// The ACK timeout's code: 4.096 µs · 2^n.
    pub timeout: u8,
    /// Times a request is tried again before its queue pair fails, up to 7.
    pub retry_count: u8,
    /// DCQCN, or nothing.
    pub congestion: CongestionControl,
    /// Payloads are real bytes with a real ICRC, and compared at the end.
    pub is_checked: bool,
}

impl RoceSettings {
    /// Packets of 4 KiB, no window, an ACK timeout of 524 µs, and DCQCN with the published
    /// parameters scaled to `line_rate` (FACTS 4.4).
    pub fn new(line_rate: Rate) -> Self {
        let bytes = line_rate.bits_per_second() / 8;
        let dcqcn = DcqcnParameters {
            line_rate: bytes,
            // 5 and 50 Mb/s per 25 Gb/s.
            additive_increase: bytes / 5000,
            hyper_increase: bytes / 500,
            ..DcqcnParameters::default()
        };
        Self {
            mtu: Mtu::Mtu4096,
            window: 1 << 30,
            timeout: 7,
            retry_count: 7,
            congestion: CongestionControl::Dcqcn(dcqcn),
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

/// A host that speaks RoCEv2.
pub struct Roce {
    settings: RoceSettings,
    nic: Nic,
    host: SimHost,
    flows: BTreeMap<FlowId, RoceFlow>,
    corrupt: u64,
}

struct RoceFlow {
    setup: FlowSetup,
    /// Receives posted so far.
    receives: u64,
}

impl Roce {
    /// A device without flows.
    pub fn new(settings: RoceSettings) -> Self {
        let config = NicConfig {
            window_initial: settings.window,
            window_max: settings.window,
            read_window: settings.window,
            window_hold: Duration::ZERO,
            read_chunk_max: 1 << 20,
            quantum: 1,
            congestion: settings.congestion,
            ..NicConfig::default()
        };
        Self {
            settings,
            nic: Nic::new(config),
            host: SimHost::new(settings.is_checked),
            flows: BTreeMap::new(),
            corrupt: 0,
        }
    }

    /// The device.
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    fn attributes(&self, setup: &FlowSetup) -> QpAttributes {
        // One queue pair takes one plane; flows take turns.
        let port = setup.flow.0 % setup.ports.max(1);
        let path = Path {
            source: address(setup.local, port),
            destination: address(setup.peer, port),
            traffic_class: ECT,
            hop_limit: 64,
            flow_label: 0,
            service_level: 0,
            source_gid_index: 0,
        };
        QpAttributes {
            access_flags: ALL_ACCESS,
            path: Some(path),
            path_mtu: self.settings.mtu,
            timeout: self.settings.timeout,
            retry_count: self.settings.retry_count,
            rnr_retry: 7,
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 1,
            dest_qpn: qpn(setup.flow),
            ..QpAttributes::default()
        }
    }

    fn post_receives(&mut self, now: Instant, flow: FlowId, wanted: u64) {
        let Some(state) = self.flows.get_mut(&flow) else {
            return;
        };
        let setup = state.setup;
        while state.receives < wanted.min(setup.messages) {
            let request = receive(&setup, state.receives);
            let posted = self.nic.post_recv(now, qpn(flow), request, &mut self.host);
            if posted.is_err() {
                return;
            }
            state.receives += 1;
        }
    }
}

/// The masks of each step up, as `ibv_modify_qp` demands them for RC.
const STEPS: [(QpState, AttributeMask); 3] = [
    (QpState::Init, AttributeMask(0x39)),
    (QpState::ReadyToReceive, AttributeMask(0x12_9181)),
    (QpState::ReadyToSend, AttributeMask(0x1_2e01)),
];

impl Endpoint for Roce {
    fn open(&mut self, now: Instant, setup: &FlowSetup) {
        let number = qpn(setup.flow);
        self.nic
            .create_qp(number, init_of(setup))
            .expect("flows have numbers of their own");
        let attributes = self.attributes(setup);
        for (state, mask) in STEPS {
            let step = QpAttributes {
                state,
                ..attributes
            };
            self.nic
                .modify_qp(now, number, &step, mask, &mut self.host)
                .expect("a step that the verbs manual allows");
        }
        let flow = RoceFlow {
            setup: *setup,
            receives: 0,
        };
        self.flows.insert(setup.flow, flow);
        if setup.role == Role::Responder && setup.operation == Operation::Send {
            self.post_receives(now, setup.flow, u64::from(setup.depth) + RECEIVES_AHEAD);
        }
    }

    fn post(&mut self, now: Instant, flow: FlowId, message: u64) {
        let Some(state) = self.flows.get(&flow) else {
            return;
        };
        let request = request(&state.setup, message);
        let posted = self.nic.post_send(now, qpn(flow), request, &mut self.host);
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
        destination_port: u16,
        bytes: &[u8],
        is_corrupt: bool,
    ) {
        let flow = icrc::Flow {
            source: from.source,
            destination: from.destination,
            source_port: from.source_port,
            destination_port,
            ipv4_id: 0,
            ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
        };
        let is_wrong = self.settings.is_checked && icrc::check(&flow, bytes) != icrc::Verdict::Good;
        match Packet::parse(bytes) {
            Ok(packet) if !is_corrupt && !is_wrong => {
                self.nic.handle_packet(now, from, &packet, &mut self.host);
            }
            _ => self.corrupt += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.nic.handle_timeout(now, &mut self.host);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.nic.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, uplink: &mut Uplink) {
        let budget = self.host.offer(uplink);
        let _progress = self.nic.poll_transmit(now, budget, &mut self.host);
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
        let counters = self.nic.counters();
        EndpointStatistics {
            sent: counters.tx_packets,
            retransmitted: counters.retransmissions,
            timeouts: counters.local_ack_timeout_err,
            duplicates: counters.duplicate_request,
            marked: counters.np_ecn_marked_roce_packets,
            corrupt: self.corrupt,
        }
    }
}
