//! What an event of the communication manager, or of the interfaces, does to identifiers.

use std::ptr;

use feroce_proto::cm::{
    CmEvent, ConnectionId, Disconnect, ListenerId, Reject, Route, SidrId, SidrReply,
};
use feroce_verbs_abi as abi;
use feroce_wire::cm::{
    IpCmHeader, Rej, RejectReason, Rep, Req, SidrRep, SidrReq, SidrStatus, Transport,
};

use crate::address::SocketAddress;
use crate::device::{DeviceKey, IdKey, Shared};
use crate::guard::Failure;
use crate::route;
use crate::state::{
    Action, AddressHandle, Connection, Event, Id, Limits, Param, Peer, Pending, Phase,
};
use crate::world::World;

/// `status` of an event: nobody answered.
const NO_ANSWER: i32 = -libc::ETIMEDOUT;

impl World {
    /// An event of a device's communication manager.
    pub(crate) fn happen(&mut self, device: DeviceKey, event: CmEvent) {
        match event {
            CmEvent::Request {
                connection,
                listener,
                route,
                request,
            } => self.requested(device, connection, listener, route, &request),
            CmEvent::Reply { connection, reply } => self.replied(device, connection, &reply),
            CmEvent::Established { connection, .. } => {
                self.connection_event(
                    device,
                    connection,
                    Phase::Connected,
                    abi::RDMA_CM_EVENT_ESTABLISHED,
                    0,
                );
            }
            CmEvent::Rejected { connection, reject } => self.rejected(device, connection, &reject),
            CmEvent::Unreachable { connection } => self.connection_event(
                device,
                connection,
                Phase::Over,
                abi::RDMA_CM_EVENT_UNREACHABLE,
                NO_ANSWER,
            ),
            CmEvent::Disconnected { connection, how } => {
                let status = match how {
                    Disconnect::Unanswered => NO_ANSWER,
                    _ => 0,
                };
                self.connection_event(
                    device,
                    connection,
                    Phase::Over,
                    abi::RDMA_CM_EVENT_DISCONNECTED,
                    status,
                );
            }
            CmEvent::TimewaitExit { connection } => self.timewait_exit(device, connection),
            CmEvent::SidrRequest {
                request_id,
                listener,
                route,
                request,
            } => self.datagram_requested(device, request_id, listener, route, &request),
            CmEvent::SidrReply { request_id, reply } => {
                self.datagram_replied(device, request_id, &reply);
            }
            CmEvent::SidrUnreachable { request_id } => {
                if let Some(id) = self.forget_request(device, request_id) {
                    self.over(id, abi::RDMA_CM_EVENT_UNREACHABLE, NO_ANSWER, Param::None);
                }
            }
        }
    }

    fn of_connection(&self, device: DeviceKey, connection: ConnectionId) -> Option<IdKey> {
        let agent = self.devices.list[device].agent.as_ref()?;
        agent.connections.get(&connection).copied()
    }

    fn forget_request(&mut self, device: DeviceKey, request: SidrId) -> Option<IdKey> {
        let agent = self.devices.list[device].agent.as_mut()?;
        let id = agent.requests.remove(&request)?;
        self.ids.get_mut(&id)?.request = None;
        Some(id)
    }

    fn over(&mut self, id: IdKey, kind: abi::rdma_cm_event_type, status: i32, param: Param) {
        if let Some(entry) = self.ids.get_mut(&id) {
            entry.phase = Phase::Over;
        }
        self.post(id, kind, status, param, Action::Fail);
    }

    fn connection_event(
        &mut self,
        device: DeviceKey,
        connection: ConnectionId,
        phase: Phase,
        kind: abi::rdma_cm_event_type,
        status: i32,
    ) {
        let Some(id) = self.of_connection(device, connection) else {
            return;
        };
        if let Some(entry) = self.ids.get_mut(&id) {
            entry.phase = phase;
        }
        let action = match phase {
            Phase::Over => Action::Fail,
            _ => Action::Nothing,
        };
        self.post(id, kind, status, Param::None, action);
    }

    fn rejected(&mut self, device: DeviceKey, connection: ConnectionId, reject: &Rej) {
        if let Some(id) = self.of_connection(device, connection) {
            log::debug!("rejected: {}", reject.reason);
            if reject.reason == RejectReason::INVALID_SERVICE_ID && self.try_again(id) {
                self.forget_connection(device, connection, id);
                return;
            }
            let param = Param::Connection(Connection {
                private_data: reject.private_data.to_vec(),
                ..Connection::default()
            });
            let reason = i32::from(reject.reason.0);
            self.over(id, abi::RDMA_CM_EVENT_REJECTED, reason, param);
        }
    }

    /// A request that was refused and will be made again.
    fn forget_connection(&mut self, device: DeviceKey, connection: ConnectionId, id: IdKey) {
        if let Some(agent) = &mut self.devices.list[device].agent {
            agent.connections.remove(&connection);
            agent.cm.abandon(crate::sys::now(), connection);
        }
        if let Some(entry) = self.ids.get_mut(&id) {
            entry.connection = None;
        }
    }

    fn timewait_exit(&mut self, device: DeviceKey, connection: ConnectionId) {
        let Some(agent) = &mut self.devices.list[device].agent else {
            return;
        };
        if let Some(id) = agent.connections.remove(&connection)
            && let Some(entry) = self.ids.get_mut(&id)
        {
            entry.connection = None;
            let kind = abi::RDMA_CM_EVENT_TIMEWAIT_EXIT;
            self.post(id, kind, 0, Param::None, Action::Nothing);
        }
    }

    /// The peer accepts. The program's thread does the rest, when it takes the event.
    fn replied(&mut self, device: DeviceKey, connection: ConnectionId, reply: &Rep) {
        let Some(id) = self.of_connection(device, connection) else {
            return;
        };
        self.remember_answer(id);
        let (reads, initiated) = self.device_limits(device);
        let Some(entry) = self.ids.get_mut(&id) else {
            return;
        };
        let qpn = reply.queue_pair(entry.transport).value();
        entry.remote_ece = reply.ece;
        entry.peer = Some(Peer {
            qpn,
            psn: reply.starting_psn.value(),
            rnr_retry_count: reply.rnr_retry_count,
        });
        entry.limits.initiator_depth = reply.responder_resources.min(initiated);
        entry.limits.responder_resources = reply.initiator_depth.min(reads);
        let param = Param::Connection(Connection {
            private_data: reply.private_data.to_vec(),
            responder_resources: reply.initiator_depth,
            initiator_depth: reply.responder_resources,
            flow_control: reply.flow_control.into(),
            retry_count: 0,
            rnr_retry_count: reply.rnr_retry_count,
            srq: reply.srq.into(),
            qpn,
        });
        let kind = abi::RDMA_CM_EVENT_CONNECT_RESPONSE;
        self.post(id, kind, 0, param, Action::Establish);
    }

    pub(crate) fn device_limits(&self, device: DeviceKey) -> (u8, u8) {
        let device = &self.devices.list[device];
        (device.reads_max, device.initiated_reads_max)
    }

    fn requested(
        &mut self,
        device: DeviceKey,
        connection: ConnectionId,
        listener: ListenerId,
        route: Route,
        request: &Req,
    ) {
        let header = request.ip_header();
        let port = request.service_id.port().map_or(0, |(_, port)| port);
        let child = self.child(device, listener, route, header, port);
        let (listen, mut child) = match child {
            Ok(both) => both,
            Err(failure) => {
                log::warn!("a connection request is refused: {}", failure.reason);
                self.refuse(device, connection);
                return;
            }
        };
        child.connection = Some(connection);
        child.transport = request.transport;
        child.remote_ece = request.ece;
        child.peer = Some(Peer {
            qpn: request.local_qpn.value(),
            psn: request.starting_psn.value(),
            rnr_retry_count: request.rnr_retry_count,
        });
        child.limits = Limits {
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            retry_count: request.retry_count,
        };
        if let Some(path) = &mut child.path {
            path.mtu = request.path_mtu;
            path.ack_timeout = request.primary.local_ack_timeout;
            path.route.traffic_class = request.primary.traffic_class;
        }
        let param = Param::Connection(Connection {
            private_data: request.consumer_data().to_vec(),
            responder_resources: request.initiator_depth,
            initiator_depth: request.responder_resources,
            flow_control: request.flow_control.into(),
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            srq: request.srq.into(),
            qpn: request.local_qpn.value(),
        });
        let key = self.announce(listen, child, param);
        if let Some(agent) = &mut self.devices.list[device].agent {
            agent.connections.insert(connection, key);
        }
    }

    fn datagram_requested(
        &mut self,
        device: DeviceKey,
        request_id: SidrId,
        listener: ListenerId,
        route: Route,
        request: &SidrReq,
    ) {
        let port = request.service_id.port().map_or(0, |(_, port)| port);
        let child = self.child(device, listener, route, request.ip_header(), port);
        let (listen, mut child) = match child {
            Ok(both) => both,
            Err(failure) => {
                log::warn!("a datagram request is refused: {}", failure.reason);
                self.refuse_datagram(device, request_id);
                return;
            }
        };
        child.request = Some(request_id);
        child.datagram = true;
        let param = Param::Datagram {
            address: Box::new(AddressHandle(abi::ibv_ah_attr::default())),
            qpn: 0,
            qkey: 0,
            private_data: request.consumer_data().to_vec(),
        };
        let key = self.announce(listen, child, param);
        if let Some(agent) = &mut self.devices.list[device].agent {
            agent.requests.insert(request_id, key);
        }
    }

    fn datagram_replied(&mut self, device: DeviceKey, request_id: SidrId, reply: &SidrRep) {
        let Some(id) = self.forget_request(device, request_id) else {
            return;
        };
        if reply.status == SidrStatus::UNSUPPORTED && self.try_again(id) {
            return;
        }
        if reply.status != SidrStatus::SUCCESS {
            let status = i32::from(reply.status.0);
            self.over(id, abi::RDMA_CM_EVENT_UNREACHABLE, status, Param::None);
            return;
        }
        let Some(entry) = self.ids.get_mut(&id) else {
            return;
        };
        entry.phase = Phase::Connected;
        entry.remote_ece = reply.ece;
        entry.peer = Some(Peer {
            qpn: reply.qpn.value(),
            ..Peer::default()
        });
        let address = entry
            .path
            .map(|path| route::address_vector(&path))
            .unwrap_or_default();
        let param = Param::Datagram {
            address: Box::new(AddressHandle(address)),
            qpn: reply.qpn.value(),
            qkey: reply.qkey,
            private_data: reply.private_data.to_vec(),
        };
        let kind = abi::RDMA_CM_EVENT_ESTABLISHED;
        self.post(id, kind, 0, param, Action::Nothing);
    }

    /// The identifier of a request that came for a listener.
    fn child(
        &self,
        device: DeviceKey,
        listener: ListenerId,
        route: Route,
        header: Option<IpCmHeader>,
        port: u16,
    ) -> Result<(IdKey, Id), Failure> {
        let nobody = || Failure::new(libc::ENOENT, "nobody listens any more");
        let agent = self.devices.list[device].agent.as_ref();
        let listen = agent.and_then(|agent| agent.listeners.get(&listener).copied());
        let listen = listen.ok_or_else(nobody)?;
        let parent = self.ids.get(&listen).ok_or_else(nobody)?;
        let scoped = |ip, port| {
            let address = SocketAddress::new(ip, port);
            let scope = if address.is_link_local() {
                route.scope_id
            } else {
                0
            };
            SocketAddress { scope, ..address }
        };
        let local = header.map_or(route.local, |header| header.destination);
        let local = scoped(local, port);
        let (remote, remote_port) = header.map_or((route.remote, 0), |header| {
            (header.source, header.source_port)
        });
        let remote = scoped(remote, remote_port);
        let own = scoped(route.local, 0);
        let path = route::path(&self.devices.list[device], own, route, parent.options)?;
        let mut c = abi::rdma_cm_id::default();
        // SAFETY: the listener's struct lives as long as its entry; one word each.
        unsafe {
            c.context = (&raw const (*parent.c.0).context).read_volatile();
            c.channel = (&raw const (*parent.c.0).channel).read_volatile();
        }
        c.ps = parent.port_space.into();
        let mut child = Id::new(
            Shared(Box::into_raw(Box::new(c))),
            parent.channel,
            parent.port_space,
        );
        child.passive = true;
        child.phase = Phase::Requested;
        child.options = parent.options;
        child.local = Some(local);
        child.remote = Some(remote);
        child.device = Some(device);
        child.path = Some(path);
        Ok((listen, child))
    }

    /// Tells the listener of a request.
    fn announce(&mut self, listen: IdKey, child: Id, param: Param) -> IdKey {
        let device = child.device.map(|device| &self.devices.list[device]);
        // SAFETY: the struct is fresh; the program does not know it yet.
        let c = unsafe { &mut *child.c.0 };
        if let Some(device) = device {
            route::attach(c, device);
        }
        c.qp_type = match (child.datagram, child.transport) {
            (true, _) => abi::IBV_QPT_UD,
            (_, Transport::Uc) => abi::IBV_QPT_UC,
            (_, Transport::Xrc) => abi::IBV_QPT_XRC_RECV,
            _ => abi::IBV_QPT_RC,
        };
        route::write_addresses(c, child.local, child.remote);
        if let Some(path) = &child.path {
            route::write_path(c, path);
        }
        let mut event = Event::new(child.c, abi::RDMA_CM_EVENT_CONNECT_REQUEST, 0, param);
        let parent = self.ids.get(&listen).map(|parent| parent.c.0);
        event.c.listen_id = parent.unwrap_or(ptr::null_mut());
        let (key, channel) = (child.c.0.addr(), child.channel);
        self.ids.insert(key, child);
        let pending = Pending {
            event,
            owner: listen,
            action: Action::Nothing,
        };
        self.enqueue(channel, pending);
        key
    }

    /// Says no, for want of something.
    pub(crate) fn refuse(&mut self, device: DeviceKey, connection: ConnectionId) {
        if let Some(agent) = &mut self.devices.list[device].agent {
            let reject = Reject {
                reason: RejectReason::NO_RESOURCES,
                information: &[],
                private_data: &[],
            };
            let now = crate::sys::now();
            if let Err(error) = agent.cm.reject(now, connection, &reject) {
                log::debug!("{error}");
            }
        }
    }

    fn refuse_datagram(&mut self, device: DeviceKey, request: SidrId) {
        if let Some(agent) = &mut self.devices.list[device].agent {
            let reply = SidrReply::rejected(&[]);
            if let Err(error) = agent.cm.sidr_reply(crate::sys::now(), request, &reply) {
                log::debug!("{error}");
            }
        }
    }

    /// Interfaces have come, gone, or changed their addresses.
    pub(crate) fn interfaces_changed(&mut self) {
        let Ok(addresses) = crate::sys::interface_addresses() else {
            return;
        };
        for device in &mut self.devices.list {
            let mut own = addresses.iter();
            device.removed = !own.any(|own| own.interface == device.interface);
        }
        let mut told = Vec::new();
        for (&key, entry) in &mut self.ids {
            let (Some(device), Some(path)) = (entry.device, &entry.path) else {
                continue;
            };
            let removed = self.devices.list[device].removed;
            let there = addresses
                .iter()
                .any(|own| own.address.ip == path.route.local);
            if there && !removed {
                entry.address_lost = false;
            } else if !entry.address_lost {
                entry.address_lost = true;
                told.push((key, removed));
            }
        }
        for (id, removed) in told {
            let kind = if removed {
                abi::RDMA_CM_EVENT_DEVICE_REMOVAL
            } else {
                abi::RDMA_CM_EVENT_ADDR_CHANGE
            };
            self.post(id, kind, 0, Param::None, Action::Nothing);
        }
    }
}
