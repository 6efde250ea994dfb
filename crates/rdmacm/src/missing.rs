//! Entry points that are not written yet: they refuse with EOPNOTSUPP.

use std::ffi::{c_char, c_int, c_void};

use feroce_verbs_abi::{
    __be16, ibv_context, ibv_ece, ibv_event_type, ibv_pd, ibv_qp_attr, ibv_qp_init_attr,
    ibv_qp_init_attr_ex, ibv_srq_init_attr, ibv_srq_init_attr_ex, rdma_addrinfo, rdma_cm_event,
    rdma_cm_event_type, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_conn_param, rdma_event_channel,
    rdma_port_space,
};
use libc::sockaddr;

use crate::guard::{Failure, nothing, pointer, zero};

fn missing<T>() -> Result<T, Failure> {
    Err(Failure::unsupported("not written yet"))
}

macro_rules! missing {
    ($($how:ident fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            /// # Safety
            /// None needed: it refuses without a look at its arguments.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
                $(let _ = $argument;)*
                $how(stringify!($name), missing)
            }
        )*
    };
}

fn port(call: &'static str, body: fn() -> Result<(), Failure>) -> __be16 {
    zero(call, body);
    0
}

missing! {
    pointer fn rdma_create_event_channel() -> *mut rdma_event_channel;
    nothing fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    zero fn rdma_create_id(
        channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void,
        ps: rdma_port_space,
    ) -> c_int;
    zero fn rdma_create_ep(
        id: *mut *mut rdma_cm_id, res: *mut rdma_addrinfo, pd: *mut ibv_pd,
        qp_init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    nothing fn rdma_destroy_ep(id: *mut rdma_cm_id);
    zero fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    zero fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    zero fn rdma_resolve_addr(
        id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int;
    zero fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    zero fn rdma_create_qp(
        id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr,
    ) -> c_int;
    zero fn rdma_create_qp_ex(
        id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex,
    ) -> c_int;
    nothing fn rdma_destroy_qp(id: *mut rdma_cm_id);
    zero fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int;
    zero fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
    zero fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    zero fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int;
    zero fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int;
    zero fn rdma_reject(
        id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8,
    ) -> c_int;
    zero fn rdma_reject_ece(
        id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8,
    ) -> c_int;
    zero fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int;
    zero fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    zero fn rdma_join_multicast(
        id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void,
    ) -> c_int;
    zero fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    zero fn rdma_join_multicast_ex(
        id: *mut rdma_cm_id, mc_join_attr: *mut rdma_cm_join_mc_attr_ex, context: *mut c_void,
    ) -> c_int;
    zero fn rdma_get_cm_event(
        channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event,
    ) -> c_int;
    zero fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    port fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16;
    port fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16;
    pointer fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context;
    nothing fn rdma_free_devices(list: *mut *mut ibv_context);
    zero fn rdma_set_option(
        id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize,
    ) -> c_int;
    zero fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    zero fn rdma_getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const rdma_addrinfo,
        res: *mut *mut rdma_addrinfo,
    ) -> c_int;
    nothing fn rdma_freeaddrinfo(res: *mut rdma_addrinfo);
    zero fn rdma_init_qp_attr(
        id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int,
    ) -> c_int;
    zero fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
    zero fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
    zero fn rdma_resolve_addrinfo(
        id: *mut rdma_cm_id, node: *const c_char, service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> c_int;
    zero fn rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int;
    zero fn rdma_write_cm_event(
        id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64,
    ) -> c_int;
    zero fn rdma_create_srq(
        id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr,
    ) -> c_int;
    zero fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int;
    nothing fn rdma_destroy_srq(id: *mut rdma_cm_id);
}
