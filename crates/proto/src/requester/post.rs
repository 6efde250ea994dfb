//! Posting send requests: what is wrong with one is said here, before it is queued.

use super::{Progress, Wqe};
use crate::config::MESSAGE_BYTES_MAX;
use crate::qp::{Context, Qp};
use crate::{Data, Host, PdId, PostError, QpState, QpType, SendOperation, SendRequest, Sge};
use alloc::vec::Vec;
use smallvec::SmallVec;

impl Qp {
    /// Queues a request; in an error state it is flushed at once.
    pub(crate) fn post_send<H: Host>(
        &mut self,
        cx: &mut Context<'_, H>,
        request: SendRequest,
    ) -> Result<(), PostError> {
        let length = self.check_send(cx, &request)?;
        let wqe = Wqe {
            request,
            length,
            progress: Progress::Waiting,
            failed: None,
        };
        match self.state() {
            QpState::Error | QpState::SqError => self.flush_send(cx, &wqe),
            _ => {
                self.requester.queue.push_back(wqe);
                if self.init.qp_type == QpType::Ud {
                    cx.shared.datagrams_posted += 1;
                }
                cx.schedule();
            }
        }
        Ok(())
    }

    /// Copies the bytes of datagrams that have not left, of the last `requests` requests: a sender
    /// of datagrams that takes an answer as proof that its own has left may use the memory again
    /// before there is a completion. What `gather` cannot copy is judged when it leaves.
    pub(crate) fn keep_datagrams(
        &mut self,
        requests: usize,
        mut gather: impl FnMut(PdId, &[Sge]) -> Option<Vec<u8>>,
    ) {
        let pd = self.init.pd;
        let queue = &mut self.requester.queue;
        let first = queue.len().saturating_sub(requests);
        for wqe in queue.range_mut(first.max(self.requester.cursor).min(queue.len())..) {
            if let Data::Gather(sges) = &wqe.request.data
                && let Some(bytes) = gather(pd, sges)
            {
                wqe.request.data = Data::Inline(SmallVec::from_vec(bytes));
            }
        }
    }

    /// Judges a request; returns the bytes of its message.
    fn check_send<H: Host>(
        &self,
        cx: &Context<'_, H>,
        request: &SendRequest,
    ) -> Result<u32, PostError> {
        match self.state() {
            QpState::Reset | QpState::Init | QpState::ReadyToReceive => {
                return Err(PostError::BadState(self.state()));
            }
            _ => {}
        }
        let capabilities = &self.attributes.capabilities;
        if self.requester.queue.len() >= capabilities.max_send_wr as usize {
            return Err(PostError::QueueFull(capabilities.max_send_wr));
        }
        if !is_supported(self.init.qp_type, &request.operation) {
            return Err(PostError::OpcodeNotSupported(self.init.qp_type));
        }
        if self.init.qp_type == QpType::Ud && request.target.is_none() {
            return Err(PostError::MissingTarget);
        }
        match &request.data {
            Data::Gather(sges) if sges.len() > capabilities.max_send_sge as usize => {
                return Err(PostError::TooManySge {
                    asked: sges.len(),
                    max: capabilities.max_send_sge,
                });
            }
            Data::Inline(bytes) => {
                if !takes_inline(&request.operation) {
                    return Err(PostError::InlineNotAllowed);
                }
                let max = match request.operation {
                    // Its eight bytes are part of the request, whatever the queue pair has room
                    // for.
                    SendOperation::AtomicWrite(_) => 8,
                    _ => capabilities.max_inline_data,
                };
                if bytes.len() > max as usize {
                    return Err(PostError::InlineTooLong {
                        asked: bytes.len(),
                        max,
                    });
                }
            }
            Data::Gather(_) => {}
        }
        self.check_length(cx, request)
    }

    fn check_length<H: Host>(
        &self,
        cx: &Context<'_, H>,
        request: &SendRequest,
    ) -> Result<u32, PostError> {
        let bytes = request.data.len();
        let max = if self.init.qp_type == QpType::Ud {
            u64::from(cx.shared.config.path_mtu_max.bytes())
        } else {
            MESSAGE_BYTES_MAX
        };
        if bytes > max {
            return Err(PostError::TooLong { bytes, max });
        }
        let length = u32::try_from(bytes).map_err(|_| PostError::TooLong { bytes, max })?;
        match request.operation {
            SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } if bytes < 8 => {
                Err(PostError::AtomicLength(bytes))
            }
            SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => Ok(8),
            SendOperation::AtomicWrite(_) if bytes != 8 => Err(PostError::AtomicLength(bytes)),
            SendOperation::Flush { .. }
            | SendOperation::LocalInvalidate(_)
            | SendOperation::Bind(_) => Ok(0),
            _ => Ok(length),
        }
    }
}

/// Which services have which operations (IBTA table 79, annexes A14 and A19).
const fn is_supported(qp_type: QpType, operation: &SendOperation) -> bool {
    use SendOperation as O;
    match qp_type {
        QpType::Rc | QpType::XrcSend => true,
        QpType::Uc => matches!(
            operation,
            O::Send
                | O::SendImmediate(_)
                | O::Write(_)
                | O::WriteImmediate(..)
                | O::LocalInvalidate(_)
                | O::Bind(_)
        ),
        QpType::Ud => matches!(operation, O::Send | O::SendImmediate(_)),
        QpType::XrcRecv => false,
    }
}

const fn takes_inline(operation: &SendOperation) -> bool {
    use SendOperation as O;
    matches!(
        operation,
        O::Send
            | O::SendImmediate(_)
            | O::SendInvalidate(_)
            | O::Write(_)
            | O::WriteImmediate(..)
            | O::AtomicWrite(_)
    )
}
