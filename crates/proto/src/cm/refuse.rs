//! Answers that need no memory of anything: nobody listens, nothing is connected.

use feroce_wire::Qpn;
use feroce_wire::cm::{
    Apr, AprStatus, CmMad, Drep, Ece, Message, Rej, RejectReason, RejectedMessage, Req, SidrRep,
    SidrReq, SidrStatus,
};
use feroce_wire::mad::Mad;

/// The answer of a device without a communication manager: nobody listens, nothing is connected.
/// `None` if the datagram needs no answer, or is none of the communication manager's.
pub fn refuse(mad: &[u8]) -> Option<Mad> {
    let mad = CmMad::parse(mad).ok()?;
    let message = match &mad.message {
        Message::Req(req) => Message::Rej(rej_of_req(req, RejectReason::INVALID_SERVICE_ID)),
        Message::SidrReq(request) => {
            Message::SidrRep(sidr_refusal(request, SidrStatus::UNSUPPORTED))
        }
        other => unknown_connection(other)?,
    };
    Some(answer(mad.transaction_id, message))
}

/// The answer to a message of a connection that does not exist. A DREQ is agreed to, so that the
/// peer need not wait; what is itself an answer gets none.
pub(crate) fn unknown_connection(message: &Message) -> Option<Message> {
    Some(match message {
        Message::Rep(rep) => Message::Rej(Rej {
            local_comm_id: rep.remote_comm_id,
            remote_comm_id: rep.local_comm_id,
            message: RejectedMessage::Rep,
            ..plain(RejectReason::INVALID_COMM_ID)
        }),
        Message::Dreq(dreq) => Message::Drep(Drep {
            local_comm_id: dreq.remote_comm_id,
            remote_comm_id: dreq.local_comm_id,
            private_data: [0; 224],
        }),
        Message::Lap(lap) => apr(
            lap.remote_comm_id,
            lap.local_comm_id,
            AprStatus::INVALID_COMM_ID,
        ),
        _ => return None,
    })
}

/// The refusal of a LAP.
pub(crate) const fn apr(local_comm_id: u32, remote_comm_id: u32, status: AprStatus) -> Message {
    Message::Apr(Apr {
        local_comm_id,
        remote_comm_id,
        information_len: 0,
        status,
        information: [0; 72],
        private_data: [0; 148],
    })
}

/// REJ of a request that becomes no connection.
pub(crate) const fn rej_of_req(req: &Req, reason: RejectReason) -> Rej {
    Rej {
        remote_comm_id: req.local_comm_id,
        ..plain(reason)
    }
}

/// SIDR_REP with nothing but a status.
pub(crate) const fn sidr_refusal(request: &SidrReq, status: SidrStatus) -> SidrRep {
    SidrRep {
        request_id: request.request_id,
        status,
        information_len: 0,
        ece: Ece {
            vendor_id: 0,
            options: 0,
        },
        qpn: Qpn::new(0),
        service_id: request.service_id,
        qkey: 0,
        information: [0; 72],
        private_data: [0; 136],
    }
}

pub(crate) fn answer(transaction_id: u64, message: Message) -> Mad {
    CmMad {
        transaction_id,
        message,
    }
    .encode()
}

const fn plain(reason: RejectReason) -> Rej {
    Rej {
        local_comm_id: 0,
        remote_comm_id: 0,
        message: RejectedMessage::Req,
        information_len: 0,
        reason,
        information: [0; 72],
        private_data: [0; 148],
    }
}
