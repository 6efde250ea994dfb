//! Shared receive queues (IBTA 10.2.9): receives that any of several queue pairs may take.

use crate::responder::Taken;
use crate::{
    AsyncEvent, CreateError, DestroyError, NicConfig, PostError, RecvRequest, SrqAttributes,
    SrqError, SrqId, SrqInit, XrcdId,
};
use alloc::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(crate) struct Srq {
    init: SrqInit,
    queue: VecDeque<RecvRequest>,
    /// Queue pairs created on it.
    users: u32,
}

/// The shared receive queues of a device.
#[derive(Default, Debug)]
pub(crate) struct Srqs {
    queues: BTreeMap<SrqId, Srq>,
}

impl Srqs {
    pub(crate) fn create(
        &mut self,
        config: &NicConfig,
        id: SrqId,
        init: SrqInit,
    ) -> Result<(), CreateError> {
        let too_much = |what, asked, max| Err(CreateError::TooMuch { what, asked, max });
        let SrqAttributes {
            max_wr, max_sge, ..
        } = init.attributes;
        if self.queues.contains_key(&id) {
            return Err(CreateError::SrqInUse(id));
        }
        if self.queues.len() >= config.max_srq as usize {
            return Err(CreateError::DeviceFull {
                what: "shared receive queues",
                max: config.max_srq,
            });
        }
        if max_wr > config.max_wr {
            return too_much("max_wr", max_wr, config.max_wr);
        }
        if max_sge > config.max_sge {
            return too_much("max_sge", max_sge, config.max_sge);
        }
        let srq = Srq {
            init,
            queue: VecDeque::new(),
            users: 0,
        };
        self.queues.insert(id, srq);
        Ok(())
    }

    pub(crate) fn destroy(&mut self, id: SrqId) -> Result<(), DestroyError> {
        match self.queues.get(&id) {
            None => Err(DestroyError::UnknownSrq(id)),
            Some(srq) if srq.users > 0 => Err(DestroyError::SrqInUse(id)),
            Some(_) => {
                self.queues.remove(&id);
                Ok(())
            }
        }
    }

    /// Sets the size, the limit, or both.
    pub(crate) fn modify(
        &mut self,
        config: &NicConfig,
        id: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<(), SrqError> {
        let srq = self.queues.get_mut(&id).ok_or(SrqError::Unknown(id))?;
        let size = max_wr.unwrap_or(srq.init.attributes.max_wr);
        let posted = u32::try_from(srq.queue.len()).unwrap_or(u32::MAX);
        if size > config.max_wr {
            return Err(SrqError::TooLarge {
                asked: size,
                max: config.max_wr,
            });
        }
        if size < posted {
            return Err(SrqError::InUse {
                asked: size,
                posted,
            });
        }
        if let Some(limit) = limit.filter(|&limit| limit > size) {
            return Err(SrqError::Limit {
                limit,
                max_wr: size,
            });
        }
        srq.init.attributes.max_wr = size;
        if let Some(limit) = limit {
            srq.init.attributes.limit = limit;
        }
        Ok(())
    }

    pub(crate) fn query(&self, id: SrqId) -> Option<SrqInit> {
        self.queues.get(&id).map(|srq| srq.init)
    }

    /// Receives posted and not taken.
    pub(crate) fn len(&self, id: SrqId) -> Option<usize> {
        self.queues.get(&id).map(|srq| srq.queue.len())
    }

    pub(crate) fn post(&mut self, id: SrqId, request: RecvRequest) -> Result<(), PostError> {
        let srq = self.queues.get_mut(&id).ok_or(PostError::UnknownSrq(id))?;
        let SrqAttributes {
            max_wr, max_sge, ..
        } = srq.init.attributes;
        if request.sges.len() > max_sge as usize {
            return Err(PostError::TooManySge {
                asked: request.sges.len(),
                max: max_sge,
            });
        }
        if srq.queue.len() >= max_wr as usize {
            return Err(PostError::QueueFull(max_wr));
        }
        srq.queue.push_back(request);
        Ok(())
    }

    pub(crate) fn add_user(&mut self, id: SrqId) {
        if let Some(srq) = self.queues.get_mut(&id) {
            srq.users += 1;
        }
    }

    pub(crate) fn remove_user(&mut self, id: SrqId) {
        if let Some(srq) = self.queues.get_mut(&id) {
            srq.users = srq.users.saturating_sub(1);
        }
    }

    /// Whether an XRC target of `xrcd` may use it.
    pub(crate) fn is_of(&self, id: SrqId, xrcd: XrcdId) -> bool {
        self.queues
            .get(&id)
            .and_then(|srq| srq.init.xrc)
            .is_some_and(|(domain, _)| domain == xrcd)
    }

    pub(crate) fn is_empty(&self, id: SrqId) -> bool {
        self.queues.get(&id).is_none_or(|srq| srq.queue.is_empty())
    }

    /// Bytes that the oldest receive holds.
    pub(crate) fn peek_capacity(&self, id: SrqId) -> Option<u64> {
        let request = self.queues.get(&id)?.queue.front()?;
        Some(request.sges.iter().map(|sge| u64::from(sge.length)).sum())
    }

    /// Takes the oldest receive; also the event to raise when that passed the limit.
    pub(crate) fn take(&mut self, id: SrqId) -> Option<(Taken, Option<AsyncEvent>)> {
        let srq = self.queues.get_mut(&id)?;
        let request = srq.queue.pop_front()?;
        let limit = srq.init.attributes.limit as usize;
        let event = (srq.queue.len() < limit).then(|| {
            srq.init.attributes.limit = 0;
            AsyncEvent::SrqLimitReached(id)
        });
        let taken = Taken {
            request,
            pd: srq.init.pd,
            cq: srq.init.xrc.map(|(_, cq)| cq),
        };
        Some((taken, event))
    }
}
