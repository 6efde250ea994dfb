//! Names of enumeration values, for people. The texts are those that programs and their users
//! know and search logs for. A value that has no name is "unknown", never an error.

use std::ffi::{CStr, c_char};

use feroce_verbs_abi as abi;

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_node_type_str(node_type: abi::ibv_node_type) -> *const c_char {
    name_of(NODE_TYPES, node_type)
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_port_state_str(state: abi::ibv_port_state) -> *const c_char {
    name_of(PORT_STATES, state)
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_event_type_str(event: abi::ibv_event_type) -> *const c_char {
    name_of(EVENT_TYPES, event)
}

/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_wc_status_str(status: abi::ibv_wc_status) -> *const c_char {
    name_of(WC_STATUSES, status)
}

/// `ibv_wr_opcode_str`, which rdma-core exports under its private version.
///
/// # Safety
/// None needed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_wr_opcode_str(opcode: abi::ibv_wr_opcode) -> *const c_char {
    name_of(WR_OPCODES, opcode)
}

/// The name at position `value`, or "unknown".
fn name_of(names: &[&'static CStr], value: impl TryInto<usize>) -> *const c_char {
    let name = value
        .try_into()
        .ok()
        .and_then(|index| names.get(index))
        .unwrap_or(&UNKNOWN);
    name.as_ptr()
}

const UNKNOWN: &CStr = c"unknown";

const NODE_TYPES: &[&CStr] = &[
    UNKNOWN,
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

const PORT_STATES: &[&CStr] = &[
    c"no state change (NOP)",
    c"down",
    c"init",
    c"armed",
    c"active",
    c"active defer",
];

const EVENT_TYPES: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
    c"Device link speed change",
];

const WC_STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

const WR_OPCODES: &[&CStr] = &[
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    UNKNOWN,
    UNKNOWN,
    c"flush",
    c"atomic-write",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: *const c_char) -> &'static str {
        // SAFETY: every name is a C string literal.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap()
    }

    /// The last value of each enumeration has its name: the tables have no gap before it.
    #[test]
    fn the_last_value_of_each_enumeration_has_its_name() {
        // SAFETY: no contract.
        unsafe {
            assert_eq!(
                text(ibv_node_type_str(abi::IBV_NODE_UNSPECIFIED)),
                "unspecified"
            );
            assert_eq!(
                text(ibv_port_state_str(abi::IBV_PORT_ACTIVE_DEFER)),
                "active defer"
            );
            let speed = abi::IBV_EVENT_DEVICE_SPEED_CHANGE;
            assert_eq!(text(ibv_event_type_str(speed)), "Device link speed change");
            let rendezvous = abi::IBV_WC_TM_RNDV_INCOMPLETE;
            assert_eq!(
                text(ibv_wc_status_str(rendezvous)),
                "TM software rendezvous"
            );
            assert_eq!(text(feroce_wr_opcode_str(abi::IBV_WR_FLUSH)), "flush");
            assert_eq!(
                text(feroce_wr_opcode_str(abi::IBV_WR_ATOMIC_WRITE)),
                "atomic-write"
            );
        }
    }

    #[test]
    fn values_without_a_name_are_unknown() {
        // SAFETY: no contract.
        unsafe {
            for value in [-1, 0, 8, i32::MIN, i32::MAX] {
                assert_eq!(text(ibv_node_type_str(value)), "unknown");
            }
            for value in [24, u32::MAX] {
                assert_eq!(text(ibv_port_state_str(value)), "unknown");
                assert_eq!(text(ibv_event_type_str(value)), "unknown");
                assert_eq!(text(ibv_wc_status_str(value)), "unknown");
                assert_eq!(text(feroce_wr_opcode_str(value)), "unknown");
            }
        }
    }

    #[test]
    fn errors_that_people_search_for_keep_their_words() {
        // SAFETY: no contract.
        unsafe {
            let retry = ibv_wc_status_str(abi::IBV_WC_RETRY_EXC_ERR);
            assert_eq!(text(retry), "transport retry counter exceeded");
            assert_eq!(text(ibv_port_state_str(abi::IBV_PORT_ACTIVE)), "active");
        }
    }
}
