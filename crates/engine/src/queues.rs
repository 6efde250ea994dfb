//! The verbs of queue pairs and shared receive queues on a device.

use crate::core::Core;
use crate::device::{Device, DeviceEvents};
use crate::host::Effects;
use crate::listeners::concerns_qp;
use crate::{clock, ids};
use feroce_proto::{
    AttributeMask, CreateError, ModifyError, Nic, PostError, QpAttributes, QpInit, QpState,
    RecvRequest, SendRequest, SrqId, SrqInit,
};
use feroce_wire::Qpn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Why a call on a queue pair failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QpError {
    /// All numbers of this process are taken.
    #[error("the limit of {0} queue pairs of one process is reached")]
    TooMany(u32),
    /// Creation refused.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// Modification refused.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    Unknown(Qpn),
}

/// Which request of a list was refused, and why. Those before it are posted.
#[derive(Debug, thiserror::Error)]
#[error("work request {index} of the list refused: {error}")]
pub struct PostListError {
    /// Position in the list, from 0.
    pub index: usize,
    /// The reason.
    pub error: PostError,
}

impl Device {
    /// A new queue pair in state RESET.
    ///
    /// # Errors
    /// [`QpError::TooMany`] or [`QpError::Create`].
    pub fn create_qp(&self, init: QpInit, events: &Arc<DeviceEvents>) -> Result<Qpn, QpError> {
        let qpn = self
            .ids()
            .take_qpn()
            .ok_or(QpError::TooMany(ids::QPS_MAX))?;
        let created = self.lock().nic.create_qp(qpn, init);
        if let Err(error) = created {
            self.ids().give_back(qpn);
            return Err(error.into());
        }
        self.listeners().by_qp.insert(qpn, Arc::downgrade(events));
        Ok(qpn)
    }

    /// Destroys a queue pair: no completion of it appears afterwards.
    ///
    /// # Errors
    /// [`QpError::Unknown`].
    pub fn destroy_qp(&self, qpn: Qpn) -> Result<(), QpError> {
        let mut core = self.lock();
        core.send_acknowledges(clock::now());
        core.nic
            .destroy_qp(qpn)
            .map_err(|_| QpError::Unknown(qpn))?;
        core.mem.release_qp(qpn.value());
        for (_, cq) in &core.cqs {
            cq.forget(qpn);
        }
        drop(core);
        let mut listeners = self.listeners();
        if let Some(events) = listeners
            .by_qp
            .remove(&qpn)
            .and_then(|events| events.upgrade())
        {
            events.retain(|event| !concerns_qp(event, qpn));
        }
        drop(listeners);
        self.ids().give_back(qpn);
        Ok(())
    }

    /// Changes attributes of a queue pair.
    ///
    /// # Errors
    /// [`QpError::Modify`] names the attribute or transition.
    pub fn modify_qp(
        &self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), QpError> {
        let now = clock::now();
        let mut core = self.lock();
        core.send_acknowledges(now);
        let done = core.with_nic(|nic, effects| nic.modify_qp(now, qpn, attributes, mask, effects));
        if done.is_ok() && mask.contains(AttributeMask::STATE) && attributes.state == QpState::Reset
        {
            for (_, cq) in &core.cqs {
                cq.forget(qpn);
            }
        }
        if done.is_ok()
            && mask.contains(AttributeMask::AV)
            && let Some(path) = attributes.path
        {
            core.meet(&path, attributes.dest_qpn);
        }
        core.transmit(now);
        self.finish(core);
        Ok(done?)
    }

    /// Attributes of a queue pair and how it was created.
    ///
    /// # Errors
    /// [`QpError::Unknown`].
    pub fn query_qp(&self, qpn: Qpn) -> Result<(QpAttributes, QpInit), QpError> {
        self.lock().nic.query_qp(qpn).ok_or(QpError::Unknown(qpn))
    }

    /// Posts send requests in order and transmits what may be transmitted. `requests` runs under
    /// the device's lock: it must not call the device.
    ///
    /// # Errors
    /// [`PostListError`] names the first that was refused; earlier ones are posted.
    pub fn post_send(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = SendRequest>,
    ) -> Result<(), PostListError> {
        let now = clock::now();
        self.note_poll(now);
        let mut core = self.lock();
        let mut result = Ok(());
        for (index, request) in requests.into_iter().enumerate() {
            let posted = core.with_nic(|nic, effects| nic.post_send(now, qpn, request, effects));
            if let Err(error) = posted {
                result = Err(PostListError { index, error });
                break;
            }
        }
        core.transmit_posted(now, qpn);
        core.keep_datagrams(qpn);
        self.finish(core);
        result
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// [`PostListError`] names the first that was refused; earlier ones are posted.
    pub fn post_recv(
        &self,
        qpn: Qpn,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<(), PostListError> {
        let now = clock::now();
        self.post_each(requests, |nic, request, effects| {
            nic.post_recv(now, qpn, request, effects)
        })
    }

    /// Posts receive requests to a shared receive queue, in order.
    ///
    /// # Errors
    /// [`PostListError`] names the first that was refused; earlier ones are posted.
    pub fn post_srq_recv(
        &self,
        srq: SrqId,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> Result<(), PostListError> {
        self.post_each(requests, |nic, request, _| nic.post_srq_recv(srq, request))
    }

    fn post_each(
        &self,
        requests: impl IntoIterator<Item = RecvRequest>,
        mut post: impl FnMut(&mut Nic, RecvRequest, &mut Effects<'_, '_>) -> Result<(), PostError>,
    ) -> Result<(), PostListError> {
        let mut core = self.lock();
        let mut result = Ok(());
        for (index, request) in requests.into_iter().enumerate() {
            let posted = core.with_nic(|nic, effects| post(nic, request, effects));
            if let Err(error) = posted {
                result = Err(PostListError { index, error });
                break;
            }
        }
        self.finish(core);
        result
    }

    /// A new shared receive queue.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_srq(
        &self,
        init: SrqInit,
        events: &Arc<DeviceEvents>,
    ) -> Result<SrqId, CreateError> {
        let id = self.ids().take_srq();
        self.lock().nic.create_srq(id, init)?;
        self.listeners().by_srq.insert(id, Arc::downgrade(events));
        Ok(id)
    }

    /// Runs `call` on the protocol: queries and rare changes.
    pub fn with_nic<R>(&self, call: impl FnOnce(&mut Nic) -> R) -> R {
        let mut core = self.lock();
        let result = call(&mut core.nic);
        self.finish(core);
        result
    }

    /// Forgets who listens to a shared receive queue.
    pub fn forget_srq(&self, id: SrqId) {
        self.listeners().by_srq.remove(&id);
    }

    /// Joins the IP group of a multicast GID and attaches the queue pair to it.
    ///
    /// # Errors
    /// What the kernel said to the join.
    pub fn attach_multicast(&self, qpn: Qpn, group: IpAddr) -> io::Result<()> {
        let mut core = self.lock();
        let Core { nic, net, .. } = &mut *core;
        nic.attach_multicast(qpn, group).map_err(io::Error::other)?;
        if let Err(error) = net.join(group) {
            // Attached just now.
            let _ = nic.detach_multicast(qpn, group);
            return Err(io::Error::other(error));
        }
        Ok(())
    }

    /// Detaches the queue pair; leaves the IP group with the last one.
    ///
    /// # Errors
    /// If it was not attached.
    pub fn detach_multicast(&self, qpn: Qpn, group: IpAddr) -> io::Result<()> {
        let mut core = self.lock();
        let Core { nic, net, .. } = &mut *core;
        nic.detach_multicast(qpn, group).map_err(io::Error::other)?;
        net.leave(group);
        Ok(())
    }
}
