//! Why a responder does not execute a request, and what everyone sees of it (IBTA 9.9.3).

use crate::{AsyncEvent, CompletionStatus};
use feroce_wire::Qpn;
use feroce_wire::aeth::NakCode;

/// A request that is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The packet does not follow the one before it.
    OpcodeSequence,
    /// A length that its place in the message or its RETH forbids.
    Length,
    /// The queue pair does not allow the operation.
    NotAllowed,
    /// An atomic whose address is no multiple of eight.
    Misaligned,
    /// More READs and atomics in progress than agreed.
    TooManyReads,
    /// XRC: no such shared receive queue in the domain.
    UnknownSrq,
    /// The remote key does not grant the access.
    RemoteAccess,
    /// The same, for the packet of a WRITE that carries immediate data.
    RemoteAccessImmediate,
    /// The key of a SEND with invalidate may not be invalidated.
    Invalidate,
    /// A SEND longer than the receive it met.
    ReceiveTooShort,
    /// A local key of the receive does not grant writing.
    LocalFault,
}

impl Refusal {
    /// What the peer is told; `None`: to try again later.
    pub(crate) const fn nak(self) -> Option<NakCode> {
        Some(match self {
            Self::NotReady => return None,
            Self::OpcodeSequence
            | Self::Length
            | Self::NotAllowed
            | Self::Misaligned
            | Self::TooManyReads
            | Self::UnknownSrq
            | Self::ReceiveTooShort => NakCode::InvalidRequest,
            Self::RemoteAccess | Self::RemoteAccessImmediate | Self::Invalidate => {
                NakCode::RemoteAccess
            }
            Self::LocalFault => NakCode::RemoteOperational,
        })
    }

    /// How the receive in use completes; `None`: it is flushed like those behind it.
    pub(crate) const fn receive_status(self) -> Option<CompletionStatus> {
        match self {
            Self::ReceiveTooShort => Some(CompletionStatus::LocalLength),
            Self::LocalFault => Some(CompletionStatus::LocalProtection),
            Self::RemoteAccessImmediate => Some(CompletionStatus::LocalAccess),
            Self::Invalidate => Some(CompletionStatus::LocalQpOperation),
            _ => None,
        }
    }

    /// The event of an error that no completion shows (W10, C9-222.1.1).
    pub(crate) const fn event(self, qpn: Qpn) -> Option<AsyncEvent> {
        match self {
            Self::RemoteAccess => Some(AsyncEvent::QpAccessError(qpn)),
            Self::OpcodeSequence
            | Self::Length
            | Self::NotAllowed
            | Self::Misaligned
            | Self::TooManyReads
            | Self::UnknownSrq => Some(AsyncEvent::QpRequestError(qpn)),
            Self::NotReady
            | Self::RemoteAccessImmediate
            | Self::Invalidate
            | Self::ReceiveTooShort
            | Self::LocalFault => None,
        }
    }
}
