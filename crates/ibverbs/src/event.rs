//! Asynchronous events of a context. Not here: completion events ([`crate::cq`]).

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export minus_one fn ibv_get_async_event(
        context: *mut abi::ibv_context,
        event: *mut abi::ibv_async_event,
    ) -> c_int;
    export nothing fn ibv_ack_async_event(event: *mut abi::ibv_async_event);
}
