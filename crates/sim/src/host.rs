//! The host below a protocol: memory that is not there, the ports of one call, and what the
//! protocol reported.

use crate::Operation;
use crate::endpoint::{FlowId, FlowSetup, Report, Uplink};
use crate::frame::{Frame, FrameBytes};
use crate::memory::{KEY, Memory};
use crate::topology::place_of;
use core::net::IpAddr;
use feroce_proto::{
    AsyncEvent, AtomicOperation, BindRequest, Completion, CompletionStatus, CqId, Data, Envelope,
    Host, LocalFault, Payload, PdId, QpCapabilities, QpInit, QpType, RecvRequest, Remote,
    RemoteAccess, RemoteFault, RemoteRange, SendFlags, SendOperation, SendRequest, Sge,
    TransmitError,
};
use feroce_wire::{Address, Headers, Qpn, ROCE_V2_PORT, icrc, pad_len};

/// The queue pair number of flow 0.
const FIRST_QPN: u32 = 0x100;
const SEND_CQ: CqId = CqId(0);
const RECV_CQ: CqId = CqId(1);

/// Receives that are posted ahead of the messages that may be under way.
pub(crate) const RECEIVES_AHEAD: u64 = 64;

/// What protocols are given as their host.
#[derive(Default)]
pub(crate) struct SimHost {
    pub(crate) memory: Memory,
    room: Vec<u32>,
    frames: Vec<(u32, Frame)>,
}

impl SimHost {
    pub(crate) fn new(is_checked: bool) -> Self {
        Self {
            memory: Memory {
                is_checked,
                ..Memory::default()
            },
            ..Self::default()
        }
    }

    /// Takes over what ports have room for; returns the sum.
    pub(crate) fn offer(&mut self, uplink: &Uplink) -> usize {
        self.room.clear();
        self.room.extend(uplink.rooms());
        self.room.iter().sum::<u32>() as usize
    }

    /// Hands on the packets that the protocol sent.
    pub(crate) fn hand_on(&mut self, uplink: &mut Uplink) {
        for (port, frame) in self.frames.drain(..) {
            uplink.send(port, frame);
        }
    }

    /// Room for one packet on the port that has an address.
    pub(crate) fn take_room(&mut self, source: IpAddr) -> Result<u32, TransmitError> {
        let port = place_of(source).map_or(0, |(_, port)| port);
        match self.room.get_mut(port as usize) {
            Some(room) if *room > 0 => {
                *room -= 1;
                Ok(port)
            }
            _ => Err(TransmitError::Busy),
        }
    }

    /// A packet that [`take_room`](Self::take_room) had room for.
    pub(crate) fn push(&mut self, port: u32, frame: Frame) {
        self.frames.push((port, frame));
    }

    /// Completed receives since the last look, as flow and number.
    pub(crate) fn received(&self) -> Vec<(FlowId, u64)> {
        let reports = self.memory.reports.iter();
        let received = reports.filter_map(|report| match *report {
            Report::Received { flow, message, .. } => Some((flow, message)),
            _ => None,
        });
        received.collect()
    }
}

/// How the queue pair of a flow is created.
pub(crate) const fn init_of(setup: &FlowSetup) -> QpInit {
    let queue = setup.depth.saturating_add(RECEIVES_AHEAD as u32);
    QpInit {
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
    }
}

/// What a flow asks for as message number `message`.
pub(crate) fn request(setup: &FlowSetup, message: u64) -> SendRequest {
    let local = sge(setup, message);
    let remote = Remote {
        address: local.address,
        rkey: KEY,
    };
    SendRequest {
        wr_id: message,
        operation: match setup.operation {
            Operation::Write => SendOperation::Write(remote),
            Operation::Send => SendOperation::Send,
            Operation::Read => SendOperation::Read(remote),
        },
        data: Data::Gather([local].into_iter().collect()),
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        target: None,
        xrc_srqn: 0,
    }
}

/// The receive for message number `message` of a flow.
pub(crate) fn receive(setup: &FlowSetup, message: u64) -> RecvRequest {
    RecvRequest {
        wr_id: message,
        sges: [sge(setup, message)].into_iter().collect(),
    }
}

pub(crate) const fn qpn(flow: FlowId) -> Qpn {
    Qpn::new(FIRST_QPN + flow.0)
}

pub(crate) const fn sge(setup: &FlowSetup, message: u64) -> Sge {
    Sge {
        address: message * setup.stride(),
        length: setup.message_bytes,
        lkey: KEY,
    }
}

impl Host for SimHost {
    fn transmit(
        &mut self,
        to: &Envelope,
        headers: &Headers,
        payload: Payload<'_>,
    ) -> Result<(), TransmitError> {
        let port = self.take_room(to.source)?;
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
        self.push(port, frame);
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
