//! Who hears of which event.

use crate::device::{Device, DeviceEvent, DeviceEvents};
use feroce_proto::{AsyncEvent, CqId, SrqId};
use feroce_wire::Qpn;
use std::collections::BTreeMap;
use std::sync::Weak;

/// The event queues of the contexts on a device.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) all: Vec<Weak<DeviceEvents>>,
    pub(crate) by_qp: BTreeMap<Qpn, Weak<DeviceEvents>>,
    pub(crate) by_srq: BTreeMap<SrqId, Weak<DeviceEvents>>,
    pub(crate) by_cq: BTreeMap<CqId, Weak<DeviceEvents>>,
}

impl Device {
    pub(crate) fn deliver(&self, event: DeviceEvent) {
        let listeners = self.listeners();
        let one = match event {
            DeviceEvent::Affiliated(event) => match affiliation(&event) {
                Ok(qpn) => listeners.by_qp.get(&qpn),
                Err(srq) => listeners.by_srq.get(&srq),
            },
            DeviceEvent::CqError(cq) => listeners.by_cq.get(&cq),
            _ => {
                listeners
                    .all
                    .iter()
                    .filter_map(Weak::upgrade)
                    .for_each(|queue| queue.push(event));
                return;
            }
        };
        if let Some(queue) = one.and_then(Weak::upgrade) {
            queue.push(event);
        }
    }
}

const fn affiliation(event: &AsyncEvent) -> Result<Qpn, SrqId> {
    match *event {
        AsyncEvent::QpFatal(qpn)
        | AsyncEvent::QpRequestError(qpn)
        | AsyncEvent::QpAccessError(qpn)
        | AsyncEvent::CommunicationEstablished(qpn)
        | AsyncEvent::SqDrained(qpn)
        | AsyncEvent::PathMigrated(qpn)
        | AsyncEvent::QpLastWqeReached(qpn) => Ok(qpn),
        AsyncEvent::SrqLimitReached(srq) | AsyncEvent::SrqError(srq) => Err(srq),
    }
}

/// Whether an event is one of a queue pair.
pub(crate) fn concerns_qp(event: &DeviceEvent, qpn: Qpn) -> bool {
    matches!(event, DeviceEvent::Affiliated(event) if affiliation(event) == Ok(qpn))
}
