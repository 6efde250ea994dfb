//! What a device can do: attributes, ports, GIDs, P_Keys, clocks. Not here: opening it.

use std::ffi::c_int;

use feroce_verbs::GID_TABLE_LEN;
use feroce_verbs_abi as abi;

use crate::convert::address::PORT;
use crate::guard::{self, Failure, unfilled};

/// The P_Key table of every port: the default key at index 0. RoCE has no partitions.
const PKEY_DEFAULT: u16 = 0xffff;

/// Refuses what is no port of ours.
pub(crate) fn check_port(port_num: u8) -> Result<(), Failure> {
    if port_num == PORT {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "port_num is {port_num}, the device has port 1 only"
    )))
}

/// Writes the P_Key at `index` in network byte order. Returns 0 or -1.
///
/// # Safety
/// `pkey` is null or points to a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut abi::ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut abi::__be16,
) -> c_int {
    guard::minus_one("ibv_query_pkey", || {
        guard::not_null(context, "context")?;
        guard::not_null(pkey, "pkey")?;
        check_port(port_num)?;
        if index != 0 {
            return Err(Failure::invalid(format!(
                "index is {index}, the table has entry 0 only"
            )));
        }
        // SAFETY: the caller's contract, null refused.
        unsafe { pkey.write(PKEY_DEFAULT.to_be()) };
        Ok(0)
    })
}

/// The index of a P_Key in network byte order, or -1.
///
/// # Safety
/// None needed: the context is not looked into.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut abi::ibv_context,
    port_num: u8,
    pkey: abi::__be16,
) -> c_int {
    guard::minus_one("ibv_get_pkey_index", || {
        guard::not_null(context, "context")?;
        check_port(port_num)?;
        let pkey = u16::from_be(pkey);
        if pkey == PKEY_DEFAULT {
            return Ok(0);
        }
        Err(Failure::invalid(format!(
            "pkey {pkey:#06x} is not in the table: 0xffff is"
        )))
    })
}

/// `ibv_query_gid_type`: writes which RoCE the GID at `index` is for. Returns 0 or -1.
///
/// # Safety
/// `gid_type` is null or points to a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_query_gid_type(
    context: *mut abi::ibv_context,
    port_num: u8,
    index: u32,
    gid_type: *mut u32,
) -> c_int {
    guard::minus_one("ibv_query_gid_type", || {
        guard::not_null(context, "context")?;
        guard::not_null(gid_type, "type")?;
        check_port(port_num)?;
        if index as usize >= GID_TABLE_LEN {
            let reason = format!("index is {index}, the table has {GID_TABLE_LEN} entries");
            return Err(Failure::invalid(reason));
        }
        // SAFETY: the caller's contract, null refused.
        unsafe { gid_type.write(abi::IBV_GID_TYPE_SYSFS_ROCE_V2) };
        Ok(0)
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Not null, and nobody looks into it.
    fn context() -> *mut abi::ibv_context {
        ptr::dangling_mut()
    }

    #[test]
    fn the_default_key_is_the_only_one() {
        let mut pkey = 0;
        // SAFETY: `pkey` is a number; the context is not looked into.
        unsafe {
            assert_eq!(ibv_query_pkey(context(), 1, 0, &raw mut pkey), 0);
            assert_eq!(pkey, 0xffff);
            assert_eq!(ibv_query_pkey(context(), 1, 1, &raw mut pkey), -1);
            assert_eq!(ibv_query_pkey(context(), 2, 0, &raw mut pkey), -1);
            assert_eq!(ibv_query_pkey(ptr::null_mut(), 1, 0, &raw mut pkey), -1);
            assert_eq!(ibv_get_pkey_index(context(), 1, 0xffff), 0);
            assert_eq!(ibv_get_pkey_index(context(), 1, 0x7fff), -1);
        }
    }

    #[test]
    fn gids_are_of_roce_v2_up_to_the_end_of_the_table() {
        let mut kind = 9;
        // SAFETY: `kind` is a number; the context is not looked into.
        unsafe {
            let end = u32::try_from(GID_TABLE_LEN).unwrap();
            assert_eq!(feroce_query_gid_type(context(), 1, end, &raw mut kind), -1);
            assert_eq!(kind, 9);
            assert_eq!(
                feroce_query_gid_type(context(), 1, end - 1, &raw mut kind),
                0
            );
        }
        assert_eq!(kind, abi::IBV_GID_TYPE_SYSFS_ROCE_V2);
    }
}
