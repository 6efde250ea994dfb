//! One connection: what is known of it, where it stands, and the messages it sends.

use super::types::{CmError, CmEvent, ConnectionId, ConnectionState, ListenerId, Reject, Route};
use crate::Instant;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::time::Duration;
use feroce_wire::Qpn;
use feroce_wire::cm::{
    AttributeId, CmMad, Drep, Dreq, Message, Mra, Rej, RejectReason, RejectedMessage, Rtu,
    Transport, private_data_max,
};
use feroce_wire::mad::Mad;

/// A message that waits for its answer.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) mad: Box<Mad>,
    /// Repetitions that are left.
    pub(crate) retries: u8,
}

/// Where a connection stands, with what only that state needs.
#[derive(Clone, Debug)]
pub(crate) enum State {
    ReqSent(Waiting),
    ReqReceived,
    RepReceived,
    RepSent(Waiting),
    /// `ready` is the RTU of the active side: a repeated REP means that it was lost.
    Established {
        ready: Option<Box<Mad>>,
    },
    DreqSent(Waiting),
    /// `last` is the REJ that the peer gets again if it repeats itself.
    Timewait {
        last: Option<Box<Mad>>,
    },
}

/// The other end of a connection: its device and queue pair.
pub(crate) type Peer = (u64, Qpn);

#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) id: u32,
    pub(crate) remote_id: Option<u32>,
    pub(crate) route: Route,
    /// Of the REQ; everything until the connection is established carries it.
    pub(crate) transaction: u64,
    pub(crate) transport: Transport,
    /// Invalid until the program has named it (passive side).
    pub(crate) local_qpn: Qpn,
    pub(crate) peer: Option<Peer>,
    /// Passive: the peer's device, which with its id names the request.
    pub(crate) request: Option<(u64, u32)>,
    /// Passive: the listener whose backlog counts this connection.
    pub(crate) pending_at: Option<ListenerId>,
    /// How long an answer may take.
    pub(crate) response_time: Duration,
    pub(crate) max_retries: u8,
    pub(crate) timewait: Duration,
    /// The peer has a REP of this side (passive), or cannot miss one (active).
    pub(crate) confirmed: bool,
    /// Active: how often the request was repeated although it was refused.
    pub(crate) chances: u8,
    /// The program has been told of the end of an established connection.
    pub(crate) told: bool,
    /// The program wants to hear no more.
    pub(crate) silent: bool,
    pub(crate) state: State,
    pub(crate) deadline: Option<Instant>,
    /// Place among those that are over.
    pub(crate) closed: Option<u64>,
}

/// What a message or a time-out does to a connection.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) send: Option<Mad>,
    pub(crate) events: ArrayVec<CmEvent, 2>,
    pub(crate) next: Next,
}

/// The part of a [`Step`] that changes the connection itself.
#[derive(Debug, Default)]
pub(crate) enum Next {
    #[default]
    Stay,
    /// The peer wants more time before the next repetition.
    Prolong(Duration),
    Enter(State),
}

impl Step {
    pub(crate) fn ignore() -> Self {
        Self::default()
    }

    pub(crate) fn send(mad: Mad) -> Self {
        Self {
            send: Some(mad),
            ..Self::default()
        }
    }

    pub(crate) fn enter(state: State) -> Self {
        Self {
            next: Next::Enter(state),
            ..Self::default()
        }
    }

    /// The connection is over; `last` goes out and answers repetitions.
    pub(crate) fn close(last: Option<Mad>) -> Self {
        Self {
            send: last,
            ..Self::enter(State::Timewait {
                last: last.map(Box::new),
            })
        }
    }

    pub(crate) fn and_send(mut self, mad: Mad) -> Self {
        self.send = Some(mad);
        self
    }

    pub(crate) fn and_tell(mut self, event: CmEvent) -> Self {
        self.events.push(event);
        self
    }
}

impl State {
    pub(crate) const fn public(&self) -> ConnectionState {
        match self {
            Self::ReqSent(_) => ConnectionState::ReqSent,
            Self::ReqReceived => ConnectionState::ReqReceived,
            Self::RepReceived => ConnectionState::RepReceived,
            Self::RepSent(_) => ConnectionState::RepSent,
            Self::Established { .. } => ConnectionState::Established,
            Self::DreqSent(_) => ConnectionState::DreqSent,
            Self::Timewait { .. } => ConnectionState::Timewait,
        }
    }

    /// Whether the peer's queue pair belongs to this connection and to no other. One that is
    /// ending or over has no claim: the peer may use its queue pair anew at once.
    pub(crate) const fn holds_peer(&self) -> bool {
        matches!(
            self,
            Self::ReqReceived | Self::RepReceived | Self::RepSent(_) | Self::Established { .. }
        )
    }
}

impl Connection {
    pub(crate) const fn name(&self) -> ConnectionId {
        ConnectionId(self.id)
    }

    pub(crate) const fn wrong_state(&self, operation: &'static str) -> CmError {
        CmError::WrongState {
            operation,
            state: self.state.public(),
        }
    }

    /// How long the state `next` lasts if nothing happens.
    pub(crate) const fn patience(&self, next: &State) -> Option<Duration> {
        match next {
            State::ReqSent(_) | State::RepSent(_) | State::DreqSent(_) => Some(self.response_time),
            State::Timewait { .. } => Some(self.timewait),
            State::ReqReceived | State::RepReceived | State::Established { .. } => None,
        }
    }

    /// Whether a message that names the peer's id as `remote_id` can be of this connection.
    pub(crate) fn is_from(&self, remote_id: u32) -> bool {
        self.remote_id.is_none_or(|known| known == remote_id)
    }

    pub(crate) fn waiting(&self, mad: Mad) -> Waiting {
        Waiting {
            mad: Box::new(mad),
            retries: self.max_retries,
        }
    }

    fn encode(&self, transaction_id: u64, message: Message) -> Mad {
        CmMad {
            transaction_id,
            message,
        }
        .encode()
    }

    /// MRA about the message that the program has not answered.
    pub(crate) fn mra(&self, message: RejectedMessage, service_timeout: u8) -> Mad {
        let mra = Mra {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id.unwrap_or(0),
            message,
            service_timeout,
            private_data: [0; 222],
        };
        self.encode(self.transaction, Message::Mra(mra))
    }

    /// RTU.
    pub(crate) fn rtu(&self, private_data: &[u8]) -> Result<Mad, CmError> {
        let rtu = Rtu {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id.unwrap_or(0),
            private_data: private(AttributeId::Rtu, private_data)?,
        };
        Ok(self.encode(self.transaction, Message::Rtu(rtu)))
    }

    /// DREQ, in a transaction of its own.
    pub(crate) fn dreq(&self, transaction: u64, private_data: &[u8]) -> Result<Mad, CmError> {
        let dreq = Dreq {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id.unwrap_or(0),
            remote_qpn: self.peer.map_or(Qpn::new(0), |(_, qpn)| qpn),
            private_data: private(AttributeId::Dreq, private_data)?,
        };
        Ok(self.encode(transaction, Message::Dreq(dreq)))
    }

    /// DREP.
    pub(crate) fn drep(&self, transaction: u64, remote_comm_id: u32) -> Mad {
        let drep = Drep {
            local_comm_id: self.id,
            remote_comm_id,
            private_data: [0; 224],
        };
        self.encode(transaction, Message::Drep(drep))
    }

    /// REJ with what the program has to say.
    pub(crate) fn rej(
        &self,
        message: RejectedMessage,
        reject: &Reject<'_>,
    ) -> Result<Mad, CmError> {
        let information = fill(
            "additional information",
            AttributeId::Rej,
            reject.information,
        )?;
        let rej = Rej {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id.unwrap_or(0),
            message,
            information_len: u8::try_from(reject.information.len()).unwrap_or(72),
            reason: reject.reason,
            information,
            private_data: private(AttributeId::Rej, reject.private_data)?,
        };
        Ok(self.encode(self.transaction, Message::Rej(rej)))
    }

    /// REJ because the peer does not answer. What names this connection to a peer that knows no
    /// id of its own is the device's GUID (IBTA 12.6.7.2, reason 4).
    pub(crate) fn rej_timeout(&self, message: RejectedMessage, ca_guid: u64) -> Mad {
        let mut information = [0; 72];
        information[..8].copy_from_slice(&ca_guid.to_be_bytes());
        let rej = Rej {
            information_len: 8,
            information,
            ..self.plain_rej(message, RejectReason::TIMEOUT)
        };
        self.encode(self.transaction, Message::Rej(rej))
    }

    /// REJ without anything that the program had to say.
    pub(crate) fn rej_because(&self, message: RejectedMessage, reason: RejectReason) -> Mad {
        let rej = self.plain_rej(message, reason);
        self.encode(self.transaction, Message::Rej(rej))
    }

    const fn plain_rej(&self, message: RejectedMessage, reason: RejectReason) -> Rej {
        Rej {
            local_comm_id: self.id,
            remote_comm_id: match self.remote_id {
                Some(id) => id,
                None => 0,
            },
            message,
            information_len: 0,
            reason,
            information: [0; 72],
            private_data: [0; 148],
        }
    }

    /// The event of a rejection that no REJ of the peer stands for.
    pub(crate) fn rejected_because(&self, reason: RejectReason) -> CmEvent {
        let reject = Rej {
            local_comm_id: self.remote_id.unwrap_or(0),
            remote_comm_id: self.id,
            ..self.plain_rej(RejectedMessage::Req, reason)
        };
        CmEvent::Rejected {
            connection: self.name(),
            reject: Box::new(reject),
        }
    }
}

/// The program's private data, with zeros behind it.
pub(crate) fn private<const N: usize>(
    message: AttributeId,
    data: &[u8],
) -> Result<[u8; N], CmError> {
    debug_assert_eq!(N, private_data_max(message));
    fill("private data", message, data)
}

/// `data` at the start of a field of `N` bytes.
pub(crate) fn fill<const N: usize>(
    what: &'static str,
    message: AttributeId,
    data: &[u8],
) -> Result<[u8; N], CmError> {
    let mut field = [0; N];
    field
        .get_mut(..data.len())
        .ok_or(CmError::TooLong {
            what,
            message,
            len: data.len(),
            max: N,
        })?
        .copy_from_slice(data);
    Ok(field)
}

/// The header of annex A11, if there is one, and the program's data behind it.
pub(crate) fn with_header<const N: usize>(
    message: AttributeId,
    header: Option<&[u8]>,
    data: &[u8],
) -> Result<[u8; N], CmError> {
    let header = header.unwrap_or(&[]);
    let mut field = [0; N];
    let (head, rest) = field.split_at_mut(header.len());
    let max = rest.len();
    head.copy_from_slice(header);
    rest.get_mut(..data.len())
        .ok_or(CmError::TooLong {
            what: "private data",
            message,
            len: data.len(),
            max,
        })?
        .copy_from_slice(data);
    Ok(field)
}
