//! What a device can do: attributes, ports, GIDs, P_Keys, clocks. Not here: opening it.

use std::ffi::c_int;

use feroce_verbs_abi as abi;

use crate::guard::unfilled;

unfilled! {
    export status fn ibv_query_device(
        context: *mut abi::ibv_context,
        device_attr: *mut abi::ibv_device_attr,
    ) -> c_int;
    export status fn ibv_query_port(
        context: *mut abi::ibv_context,
        port_num: u8,
        port_attr: *mut abi::_compat_ibv_port_attr,
    ) -> c_int;
    export status fn ibv_query_port_speed(
        context: *mut abi::ibv_context,
        port_num: u32,
        port_speed: *mut u64,
    ) -> c_int;
    export minus_one fn ibv_query_gid(
        context: *mut abi::ibv_context,
        port_num: u8,
        index: c_int,
        gid: *mut abi::ibv_gid,
    ) -> c_int;
    export status fn _ibv_query_gid_ex(
        context: *mut abi::ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut abi::ibv_gid_entry,
        flags: u32,
        entry_size: usize,
    ) -> c_int;
    export minus_errno fn _ibv_query_gid_table(
        context: *mut abi::ibv_context,
        entries: *mut abi::ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
    export minus_one fn ibv_query_pkey(
        context: *mut abi::ibv_context,
        port_num: u8,
        index: c_int,
        pkey: *mut abi::__be16,
    ) -> c_int;
    export minus_one fn ibv_get_pkey_index(
        context: *mut abi::ibv_context,
        port_num: u8,
        pkey: abi::__be16,
    ) -> c_int;
    export minus_one fn feroce_query_gid_type(
        context: *mut abi::ibv_context,
        port_num: u8,
        index: u32,
        gid_type: *mut u32,
    ) -> c_int;
    ,
    operation status fn query_device_ex(
        context: *mut abi::ibv_context,
        input: *const abi::ibv_query_device_ex_input,
        attr: *mut abi::ibv_device_attr_ex,
        attr_size: usize,
    ) -> c_int;
    operation status fn query_port(
        context: *mut abi::ibv_context,
        port_num: u8,
        port_attr: *mut abi::ibv_port_attr,
        port_attr_len: usize,
    ) -> c_int;
    operation status fn query_rt_values(
        context: *mut abi::ibv_context,
        values: *mut abi::ibv_values_ex,
    ) -> c_int;
}
