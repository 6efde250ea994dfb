//! The verbs: streams, shared receive queues, work requests.

use super::{
    CompletionStatus, Connection, Context, CreateError, DestroyError, Endpoint, Handle, Host,
    Instant, ModifyError, PostError, QpInit, QpState, Qpn, RecvRequest, SendRequest, SrqId,
    SrqInit, StreamTarget,
};

impl Endpoint {
    /// Creates a stream under a number of the host's choice.
    ///
    /// # Errors
    /// [`CreateError`]: the number is taken, or a capacity is above the endpoint's.
    pub fn create_stream(&mut self, qpn: Qpn, init: QpInit) -> Result<(), CreateError> {
        if self.streams.by_number(qpn.value()).is_some() {
            return Err(CreateError::QpnInUse(qpn));
        }
        let limits = &self.config.limits;
        limits.check_create(self.streams.len(), &init.capabilities)?;
        if let Some(id) = init.srq {
            if self.srqs.query(id).is_none() {
                return Err(CreateError::UnknownSrq(id));
            }
            self.srqs.add_user(id);
        }
        self.streams.insert(qpn, init);
        Ok(())
    }

    /// Connects a stream to one of a peer; opens a connection to its process if there is none.
    ///
    /// # Errors
    /// [`ModifyError`]: there is no such stream, or it is connected already.
    pub fn connect_stream(
        &mut self,
        now: Instant,
        qpn: Qpn,
        target: StreamTarget,
    ) -> Result<Handle, ModifyError> {
        let stream = self.streams.by_number(qpn.value());
        let stream = stream.ok_or(ModifyError::UnknownQp(qpn))?;
        if stream.state != QpState::Init {
            return Err(ModifyError::Transition {
                qp_type: stream.init.qp_type,
                from: stream.state,
                to: QpState::ReadyToSend,
            });
        }
        let handle = self
            .connect(now, target.peer, target.qpn, qpn)
            .map_err(|_| ModifyError::Path)?;
        let connection = self.connections.get_mut(handle.0 as usize);
        let stream = self.streams.by_number_mut(qpn.value());
        if let (Some(connection), Some(stream)) = (connection, stream) {
            stream.target = target;
            stream.state = QpState::ReadyToSend;
            stream.connection = Some(handle.0);
            stream.requester.begin(target.send_number);
            stream.responder.begin(target.receive_number);
            connection.streams.push(stream.reference);
            if !stream.receives.is_empty() {
                connection.tell(now, stream);
            }
        }
        self.schedule(handle.0);
        Ok(handle)
    }

    /// Destroys a stream; what was posted vanishes without completions.
    ///
    /// # Errors
    /// [`DestroyError`]: unknown.
    pub fn destroy_stream(&mut self, qpn: Qpn) -> Result<(), DestroyError> {
        let stream = self.streams.remove(qpn);
        let stream = stream.ok_or(DestroyError::UnknownQp(qpn))?;
        if let Some(id) = stream.init.srq {
            self.srqs.remove_user(id);
        }
        let connection = stream.connection;
        let connection = connection.and_then(|index| self.connections.get_mut(index as usize));
        if let Some(connection) = connection {
            connection.forget_stream(&stream);
        }
        Ok(())
    }

    /// Moves a stream to the error state: everything posted completes as flushed.
    pub fn fail_stream<H: Host>(&mut self, now: Instant, qpn: Qpn, host: &mut H) {
        let Some(stream) = self.streams.by_number_mut(qpn.value()) else {
            return;
        };
        let mut cx = Context {
            now,
            config: &self.config,
            counters: &mut self.counters,
            srqs: &mut self.srqs,
            host,
        };
        stream.enter_error(&mut cx, CompletionStatus::WorkRequestFlushed);
    }

    /// State of a stream.
    pub fn stream_state(&self, qpn: Qpn) -> Option<QpState> {
        Some(self.streams.by_number(qpn.value())?.state)
    }

    /// Send requests of a stream that are not completed.
    pub fn send_queue_len(&self, qpn: Qpn) -> Option<usize> {
        Some(self.streams.by_number(qpn.value())?.requester.len())
    }

    /// Receives of a stream that no message has used up.
    pub fn recv_queue_len(&self, qpn: Qpn) -> Option<usize> {
        Some(self.streams.by_number(qpn.value())?.receives.len())
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_srq(&mut self, id: SrqId, init: SrqInit) -> Result<(), CreateError> {
        self.srqs.create(&self.config.limits, id, init)
    }

    /// Posts to a shared receive queue.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post_srq_recv(&mut self, id: SrqId, request: RecvRequest) -> Result<(), PostError> {
        self.srqs.post(id, request)
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// [`PostError`] says what is wrong with it; nothing was queued.
    pub fn post_send<H: Host>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: SendRequest,
        host: &mut H,
    ) -> Result<(), PostError> {
        let stream = self.streams.by_number_mut(qpn.value());
        let stream = stream.ok_or(PostError::UnknownQp(qpn))?;
        let connection = stream.connection;
        let connection = connection.and_then(|index| self.connections.get_mut(index as usize));
        let segment = connection
            .as_deref()
            .map_or_else(|| u32::from(self.config.segment), Connection::segment);
        let (wr_id, failed) = (request.wr_id, stream.state == QpState::Error);
        stream.post_send(request, segment)?;
        if failed {
            stream.flush_posted(host, wr_id);
            return Ok(());
        }
        let _ = now;
        if let Some(connection) = connection {
            connection.mark_ready(stream);
            let index = connection.index;
            self.schedule(index);
        }
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`] says what is wrong with it; nothing was queued.
    pub fn post_recv<H: Host>(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: RecvRequest,
        host: &mut H,
    ) -> Result<(), PostError> {
        let stream = self.streams.by_number_mut(qpn.value());
        let stream = stream.ok_or(PostError::UnknownQp(qpn))?;
        stream.post_recv(request, host)?;
        let connection = stream.connection;
        let connection = connection.and_then(|index| self.connections.get_mut(index as usize));
        if let Some(connection) = connection
            && stream.has_news_of_receives()
        {
            connection.tell(now, stream);
            let index = connection.index;
            self.schedule(index);
        }
        Ok(())
    }
}
