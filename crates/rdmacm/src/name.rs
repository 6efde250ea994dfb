//! Names of events, for messages. Not here: what an event means (`event`).

use std::ffi::{CStr, c_char};

use feroce_verbs_abi::rdma_cm_event_type;

/// The name of an event type; a text that says so for an unknown one.
///
/// # Safety
/// None needed: the argument is a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    usize::try_from(event)
        .ok()
        .and_then(|event| NAMES.get(event))
        .unwrap_or(&c"UNKNOWN EVENT")
        .as_ptr()
}

/// By number.
const NAMES: [&CStr; 20] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
    c"RDMA_CM_EVENT_INTERNAL",
];
