//! Counters. Those of the port are files of `/sys/class/infiniband` on a machine with a NIC; our
//! file-call shim serves them, and asks here for their values.
//!
//! Completion counters this device does not have: completions are counted by whoever polls them.
//! Counters of flow rules have no entry in the tables ([`crate::context`]): there are no rules.

use std::ffi::{CStr, c_char, c_int};

use feroce_verbs_abi as abi;

use crate::guard::{self, Failure, refused};

/// The present value of a counter of a device that this process has open: 0, or -1.
///
/// # Safety
/// `device` and `name` are null or C strings; `value` is null or points to a number.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_counter(
    device: *const c_char,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    guard::minus_one("feroce_counter", || {
        guard::not_null(device.cast_mut(), "device")?;
        guard::not_null(name.cast_mut(), "name")?;
        let target = guard::not_null(value, "value")?;
        // SAFETY: the caller's contract; null was refused.
        let (device, name) = unsafe { (CStr::from_ptr(device), CStr::from_ptr(name)) };
        let (device, name) = (device.to_string_lossy(), name.to_string_lossy());
        let count = feroce_verbs::counter(&device, &name).ok_or_else(|| {
            Failure::new(
                libc::ENOENT,
                format!("{device} is not open here, or has no counter {name}"),
            )
        })?;
        // SAFETY: the caller's contract; null was refused.
        unsafe { target.write(count) };
        Ok(0)
    })
}

refused! {
    "the device has no completion counters: poll the completion queue";
    status fn _ibv_query_comp_cntr_caps(
        context: *mut abi::ibv_context,
        caps: *mut abi::ibv_comp_cntr_caps,
        caps_size: usize,
    ) -> c_int;
    pointer fn ibv_create_comp_cntr(
        context: *mut abi::ibv_context,
        cc_attr: *mut abi::ibv_comp_cntr_init_attr,
    ) -> *mut abi::ibv_comp_cntr;
    status fn ibv_destroy_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr) -> c_int;
    status fn ibv_set_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr, value: u64) -> c_int;
    status fn ibv_set_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: u64,
    ) -> c_int;
    status fn ibv_inc_comp_cntr(comp_cntr: *mut abi::ibv_comp_cntr, amount: u64) -> c_int;
    status fn ibv_inc_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        amount: u64,
    ) -> c_int;
    status fn ibv_read_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: *mut u64,
    ) -> c_int;
    status fn ibv_read_err_comp_cntr(
        comp_cntr: *mut abi::ibv_comp_cntr,
        value: *mut u64,
    ) -> c_int;
    status fn ibv_qp_attach_comp_cntr(
        qp: *mut abi::ibv_qp,
        comp_cntr: *mut abi::ibv_comp_cntr,
        attr: *mut abi::ibv_qp_attach_comp_cntr_attr,
    ) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn a_device_that_is_not_open_has_no_counters() {
        let mut value = 7;
        let (device, name) = (c"roce_none", c"sent_pkts");
        // SAFETY: C strings and a number, or null.
        unsafe {
            assert_eq!(
                feroce_counter(device.as_ptr(), name.as_ptr(), &raw mut value),
                -1
            );
            assert_eq!(
                feroce_counter(ptr::null(), name.as_ptr(), &raw mut value),
                -1
            );
            assert_eq!(
                feroce_counter(device.as_ptr(), name.as_ptr(), ptr::null_mut()),
                -1
            );
        }
        assert_eq!(value, 7);
    }
}
