//! RoCEv2 on a host: `proto`'s [`Nic`] with an RC queue pair per flow.
//!
//! Both ends of flow *f* use queue pair number `FIRST_QPN + f`, and are connected before the run:
//! the connection manager is not part of it.

use crate::endpoint::{Endpoint, EndpointStatistics, FlowId, FlowSetup, Report, Role, Uplink};
use crate::frame::{Frame, FrameBytes};
use crate::memory::{KEY, Memory};
use crate::topology::{address, place_of};
use crate::{Operation, Rate};
use core::net::IpAddr;
use core::time::Duration;
use feroce_proto::{
    AsyncEvent, AtomicOperation, AttributeMask, BindRequest, Completion, CompletionStatus,
    CongestionControl, CqId, Data, DcqcnParameters, Envelope, Host, Instant, LocalFault, Mtu, Nic,
    NicConfig, Path, Payload, PdId, QpAttributes, QpCapabilities, QpInit, QpState, QpType,
    RecvRequest, Remote, RemoteAccess, RemoteFault, RemoteRange, SendFlags, SendOperation,
    SendRequest, Sge, TransmitError,
};
use feroce_wire::{Address, Headers, Packet, Psn, Qpn, ROCE_V2_PORT, icrc, pad_len};
use std::collections::BTreeMap;

/// The queue pair number of flow 0.
const FIRST_QPN: u32 = 0x100;
const SEND_CQ: CqId = CqId(0);
const RECV_CQ: CqId = CqId(1);
/// ECN-capable transport, ECT(0) (RFC 3168).
const ECT: u8 = 2;
/// Remote read, write and atomics.
const ALL_ACCESS: u32 = 0xe;
/// Receives that are posted ahead of the messages that may be under way.
const RECEIVES_AHEAD: u64 = 64;

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
    host: RoceHost,
    flows: BTreeMap<FlowId, RoceFlow>,
    corrupt: u64,
}

struct RoceFlow {
    setup: FlowSetup,
    /// Receives posted so far.
    receives: u64,
}

/// The host side of the device: memory that is not there, and the packets of one call.
#[derive(Default)]
struct RoceHost {
    memory: Memory,
    room: Vec<u32>,
    frames: Vec<(u32, Frame)>,
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
        let memory = Memory {
            is_checked: settings.is_checked,
            ..Memory::default()
        };
        Self {
            settings,
            nic: Nic::new(config),
            host: RoceHost {
                memory,
                ..RoceHost::default()
            },
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
            let request = RecvRequest {
                wr_id: state.receives,
                sges: [sge(&setup, state.receives)].into_iter().collect(),
            };
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
        let queue = setup.depth.saturating_add(RECEIVES_AHEAD as u32);
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: PdId(setup.flow.0),
            send_cq: SEND_CQ,
            recv_cq: RECV_CQ,
            srq: None,
            xrcd: None,
            capabilities: QpCapabilities {
                max_send_wr: queue,
                max_recv_wr: queue,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            signal_all: true,
        };
        let number = qpn(setup.flow);
        self.nic
            .create_qp(number, init)
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
        let local = sge(&state.setup, message);
        let remote = Remote {
            address: local.address,
            rkey: KEY,
        };
        let request = SendRequest {
            wr_id: message,
            operation: match state.setup.operation {
                Operation::Write => SendOperation::Write(remote),
                Operation::Send => SendOperation::Send,
                Operation::Read => SendOperation::Read(remote),
            },
            data: Data::Gather([local].into_iter().collect()),
            flags: SendFlags::default(),
            target: None,
            xrc_srqn: 0,
        };
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
        // What a completed receive made room for is posted before anything is answered.
        for index in 0..self.host.memory.reports.len() {
            if let Report::Received { flow, message, .. } = self.host.memory.reports[index] {
                let wanted = message + u64::from(self.flows[&flow].setup.depth) + RECEIVES_AHEAD;
                self.post_receives(now, flow, wanted);
            }
        }
        self.host.room.clear();
        self.host.room.extend(uplink.rooms());
        let budget: u32 = self.host.room.iter().sum();
        let _progress = self.nic.poll_transmit(now, budget as usize, &mut self.host);
        for (port, frame) in self.host.frames.drain(..) {
            uplink.send(port, frame);
        }
    }

    fn take_reports(&mut self, into: &mut Vec<Report>) {
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

const fn qpn(flow: FlowId) -> Qpn {
    Qpn::new(FIRST_QPN + flow.0)
}

const fn sge(setup: &FlowSetup, message: u64) -> Sge {
    Sge {
        address: message * setup.stride(),
        length: setup.message_bytes,
        lkey: KEY,
    }
}

fn port_of(source: IpAddr) -> Option<u32> {
    place_of(source).map(|(_, port)| port)
}

impl Host for RoceHost {
    fn transmit(
        &mut self,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        let port = port_of(to.source).unwrap_or(0);
        let room = self
            .room
            .get_mut(port as usize)
            .ok_or(TransmitError::Busy)?;
        if *room == 0 {
            return Err(TransmitError::Busy);
        }
        *room -= 1;
        let mut bytes = FrameBytes::from_slice(headers.as_bytes());
        let start = bytes.len();
        let phantom = self.memory.append(payload, &mut bytes);
        let pad = usize::from(pad_len(bytes.len() - start + phantom as usize));
        let mut frame = Frame {
            address: Address {
                source: to.source,
                destination: to.destination,
                source_port: to.entropy | 0xc000,
                traffic_class: to.traffic_class,
                hop_limit: to.hop_limit,
            },
            destination_port: ROCE_V2_PORT,
            bytes,
            phantom: phantom + (pad + icrc::LEN) as u32,
        };
        if self.memory.is_checked {
            seal(&mut frame, pad);
        }
        self.frames.push((port, frame));
        Ok(())
    }

    fn scatter(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), LocalFault> {
        self.memory.scatter(pd, sges, offset, data)
    }

    fn check(&mut self, range: &RemoteRange, _access: RemoteAccess) -> Result<(), RemoteFault> {
        Memory::check(range)
    }

    fn write(&mut self, range: &RemoteRange, data: &[u8]) -> Result<(), RemoteFault> {
        self.memory.write(range, data)
    }

    fn atomic(&mut self, _: &RemoteRange, _: AtomicOperation) -> Result<u64, RemoteFault> {
        Err(RemoteFault)
    }

    fn atomic_write(&mut self, _: &RemoteRange, _: [u8; 8]) -> Result<(), RemoteFault> {
        Err(RemoteFault)
    }

    fn flush(&mut self, _: &RemoteRange, _: RemoteAccess, _: bool) -> Result<(), RemoteFault> {
        Err(RemoteFault)
    }

    fn remote_invalidate(&mut self, _: PdId, _: Qpn, _: u32) -> Result<(), RemoteFault> {
        Err(RemoteFault)
    }

    fn local_invalidate(&mut self, _: PdId, _: Qpn, _: u32) -> Result<(), LocalFault> {
        Err(LocalFault)
    }

    fn bind(&mut self, _: PdId, _: Qpn, _: &BindRequest) -> Result<(), LocalFault> {
        Err(LocalFault)
    }

    fn complete(&mut self, cq: CqId, completion: Completion) {
        let flow = FlowId(completion.qpn.value() - FIRST_QPN);
        let error = error_name(completion.status);
        let message = completion.wr_id;
        let report = if cq == SEND_CQ {
            Report::Completed {
                flow,
                message,
                error,
            }
        } else {
            Report::Received {
                flow,
                message,
                length: completion.byte_len,
                error,
            }
        };
        self.memory.reports.push(report);
    }

    fn event(&mut self, _event: AsyncEvent) {}
}

/// Adds pad and ICRC to a packet of real bytes.
fn seal(frame: &mut Frame, pad: usize) {
    let padded = frame.bytes.len() + pad;
    frame.bytes.resize(padded, 0);
    let flow = icrc::Flow {
        source: frame.address.source,
        destination: frame.address.destination,
        source_port: frame.address.source_port,
        destination_port: frame.destination_port,
        ipv4_id: 0,
        ipv4_fragment: icrc::IPV4_DONT_FRAGMENT,
    };
    let sum = icrc::Seed::new(&flow, padded + icrc::LEN).of(&frame.bytes);
    frame.bytes.extend_from_slice(&sum);
    frame.phantom = 0;
}

/// What went wrong, for people; `None` if nothing did.
pub(crate) const fn error_name(status: CompletionStatus) -> Option<&'static str> {
    Some(match status {
        CompletionStatus::Success => return None,
        CompletionStatus::WorkRequestFlushed => "flushed",
        CompletionStatus::RetryExceeded => "retries exceeded",
        CompletionStatus::RnrRetryExceeded => "RNR retries exceeded",
        CompletionStatus::LocalProtection => "local protection error",
        CompletionStatus::RemoteAccess => "remote access error",
        CompletionStatus::RemoteInvalidRequest => "remote invalid request",
        CompletionStatus::RemoteOperation => "remote operation error",
        _ => "another error",
    })
}
