//! Devices: listing, opening, closing.
//!
//! A device, once listed, lives as long as the process: programs keep pointers to it beyond
//! `ibv_free_device_list`, and there are only as many as there are interface addresses.
//! Not here: what a device can do ([`crate::query`]).

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use feroce_verbs::{Context, OpenError};
use feroce_verbs_abi as abi;

use crate::context::{self, ContextState};
use crate::fork;
use crate::guard::{self, Failure};
use crate::handle;
use crate::share::Family;

/// What a program can read off a device without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Description {
    /// `roce_eth0`: what `ibv_get_device_name` returns and programs select by.
    pub(crate) name: String,
    /// Node GUID as it stands in memory, most significant byte first.
    pub(crate) guid: [u8; 8],
    /// Position in the list of all devices, what `ibv_get_device_index` returns.
    pub(crate) index: c_int,
}

/// The Rust part of an `ibv_device`.
#[derive(Debug)]
struct DeviceState {
    name: String,
    guid: [u8; 8],
    index: c_int,
}

/// Addresses of `ibv_device`; a raw pointer is not `Send`.
static DEVICES: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Access to the devices that were listed.
pub(crate) type DevicesGuard = MutexGuard<'static, BTreeMap<String, usize>>;

/// Waits for access to the devices that were listed.
pub(crate) fn devices() -> DevicesGuard {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pointer that programs get for a device of this name: the same at every call.
pub(crate) fn intern(description: &Description) -> *mut abi::ibv_device {
    let mut devices = devices();
    let address = devices.entry(description.name.clone()).or_insert_with(|| {
        let state = DeviceState {
            name: description.name.clone(),
            guid: description.guid,
            index: description.index,
        };
        handle::create::<abi::ibv_device, _>(c_struct(description), state).expose_provenance()
    });
    ptr::with_exposed_provenance_mut(*address)
}

fn c_struct(description: &Description) -> abi::verbs_device {
    let mut device = abi::ibv_device {
        node_type: abi::IBV_NODE_CA,
        transport_type: abi::IBV_TRANSPORT_IB,
        ..Default::default()
    };
    let name = &description.name;
    let uverbs = format!("uverbs{}", description.index);
    fill(&mut device.name, name);
    fill(&mut device.dev_name, &uverbs);
    fill(
        &mut device.dev_path,
        &format!("/sys/class/infiniband_verbs/{uverbs}"),
    );
    fill(
        &mut device.ibdev_path,
        &format!("/sys/class/infiniband/{name}"),
    );
    abi::verbs_device {
        device,
        ops: ptr::from_ref(&OPERATIONS).cast(),
        ..Default::default()
    }
}

/// libmlx5 and libefa compare the address in `verbs_device.ops` with that of their own operations,
/// for every device of a process; this one is nobody's. They read nothing behind it.
static OPERATIONS: [u8; 8] = *b"feroce\0\0";

/// Copies as much as fits and leaves the terminator.
fn fill<const SIZE: usize>(field: &mut [c_char; SIZE], text: &str) {
    for (target, byte) in field[..SIZE - 1].iter_mut().zip(text.bytes()) {
        *target = byte as c_char;
    }
}

/// # Safety
/// `device` is null or came from `ibv_get_device_list`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut abi::ibv_device) -> *const c_char {
    guard::pointer("ibv_get_device_name", || {
        let device = guard::not_null(device, "device")?;
        // SAFETY: the caller's contract; devices live as long as the process.
        Ok(unsafe { &raw mut (*device).name }.cast())
    })
}

/// The GUID in network byte order, 0 for a null pointer.
///
/// # Safety
/// `device` is null or came from `ibv_get_device_list`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut abi::ibv_device) -> abi::__be64 {
    let mut guid = 0;
    guard::nothing("ibv_get_device_guid", || {
        // SAFETY: the caller's contract; devices live as long as the process.
        guid = u64::from_ne_bytes(unsafe { handle::inheritable::<_, DeviceState>(device) }?.guid);
        Ok(())
    });
    guid
}

/// # Safety
/// `device` is null or came from `ibv_get_device_list`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut abi::ibv_device) -> c_int {
    guard::minus_one("ibv_get_device_index", || {
        // SAFETY: the caller's contract; devices live as long as the process.
        Ok(unsafe { handle::inheritable::<_, DeviceState>(device) }?.index)
    })
}

/// Makes the array that `ibv_get_device_list` returns: the devices, then a null pointer.
pub(crate) fn into_list(devices: Vec<*mut abi::ibv_device>) -> *mut *mut abi::ibv_device {
    let bytes = (devices.len() + 1) * size_of::<*mut abi::ibv_device>();
    // SAFETY: any size may be asked for; the result is checked and fully written, null included
    // (calloc). malloc's heap is right because programs of old free the list themselves.
    unsafe {
        let list: *mut *mut abi::ibv_device = libc::calloc(1, bytes).cast();
        if !list.is_null() {
            ptr::copy_nonoverlapping(devices.as_ptr(), list, devices.len());
        }
        list
    }
}

/// # Safety
/// `list` is null or came from `ibv_get_device_list` and was not freed yet.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut abi::ibv_device) {
    // SAFETY: the caller's contract; `into_list` allocated it there. Null is allowed.
    unsafe { libc::free(list.cast::<c_void>()) };
}

/// # Safety
/// `num_devices` is null or points to an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_device_list(
    num_devices: *mut c_int,
) -> *mut *mut abi::ibv_device {
    guard::pointer("ibv_get_device_list", || {
        set_up();
        let candidates = feroce_verbs::candidates()
            .map_err(|error| Failure::new(errno_of(&error), error.to_string()))?;
        let devices: Vec<_> = candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.left_out.is_none())
            .map(|(index, candidate)| {
                intern(&Description {
                    name: candidate.name.clone(),
                    guid: candidate.guid(),
                    // There are never that many interfaces.
                    index: c_int::try_from(index).unwrap_or(c_int::MAX),
                })
            })
            .collect();
        // SAFETY: the caller's contract.
        if let Some(count) = unsafe { num_devices.as_mut() } {
            *count = c_int::try_from(devices.len()).unwrap_or(c_int::MAX);
        }
        Ok(into_list(devices))
    })
}

/// # Safety
/// `device` is null or came from `ibv_get_device_list`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(
    device: *mut abi::ibv_device,
) -> *mut abi::ibv_context {
    guard::pointer("ibv_open_device", || {
        // SAFETY: the caller's contract; devices live as long as the process.
        let name = unsafe { handle::inheritable::<_, DeviceState>(device) }?
            .name
            .clone();
        let context = Context::open(&name)
            .map_err(|error| Failure::new(open_errno(&error), error.to_string()))?;
        let (family, cmd) = Family::found(device.expose_provenance())
            .map_err(|error| Failure::new(errno_of(&error), error.to_string()))?;
        Ok(context::create(context, family, cmd))
    })
}

/// # Safety
/// `context` came from `ibv_open_device` and is not used afterwards.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut abi::ibv_context) -> c_int {
    let destroy = || {
        // SAFETY: the caller's contract.
        unsafe { handle::release::<_, ContextState>(context) }.map(drop)
    };
    // SAFETY: the caller's contract.
    unsafe { guard::destroy("ibv_close_device", context, destroy) }
}

fn open(device: *mut abi::ibv_device) -> Result<Context, Failure> {
    // SAFETY: every caller's contract; devices live as long as the process.
    let name = &unsafe { handle::inheritable::<_, DeviceState>(device) }?.name;
    Context::open(name).map_err(|error| Failure::new(open_errno(&error), error.to_string()))
}

/// What a process needs once: log lines, and counters written at its end.
fn set_up() {
    extern "C" fn at_exit() {
        feroce_verbs::before_exit();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        feroce_obs::init_logging();
        fork::watch();
        // SAFETY: a function without arguments that does not unwind: a panic aborts. The library
        // is never unloaded before the process ends, since its threads may run.
        unsafe { libc::atexit(at_exit) };
    });
}

fn open_errno(error: &OpenError) -> c_int {
    match error {
        OpenError::Unknown { .. } | OpenError::LeftOut { .. } => libc::ENODEV,
        OpenError::Slot(_) => libc::ENOSPC,
        OpenError::Net(_) => libc::EADDRINUSE,
        OpenError::System(error) => errno_of(error),
        _ => libc::EIO,
    }
}

/// The errno of a system error.
pub(crate) fn errno_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Another context on the device of the one whose `cmd_fd` is given, possibly duplicated; the
/// descriptor belongs to the new context from then on.
///
/// # Safety
/// `cmd_fd` is not used by the program afterwards unless the call fails.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut abi::ibv_context {
    guard::pointer("ibv_import_device", || {
        let family = Family::find(cmd_fd)?;
        let device = ptr::with_exposed_provenance_mut(family.device);
        let context = open(device)?;
        // SAFETY: `find` saw that it is open; the caller's contract.
        let cmd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
        Ok(context::create(context, family, cmd))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn description(name: &str) -> Description {
        Description {
            name: name.to_owned(),
            guid: [2, 0, 0, 0xff, 0xfe, 0, 0, 9],
            index: 3,
        }
    }

    fn text(field: &[c_char]) -> &str {
        // SAFETY: `fill` leaves a terminator in the array.
        unsafe { CStr::from_ptr(field.as_ptr()) }.to_str().unwrap()
    }

    #[test]
    fn a_device_answers_for_itself() {
        let device = intern(&description("roce_a"));
        assert_eq!(
            intern(&description("roce_a")),
            device,
            "listed anew at every call"
        );
        // SAFETY: `device` is a device.
        unsafe {
            assert_eq!(CStr::from_ptr(ibv_get_device_name(device)), c"roce_a");
            assert_eq!(
                ibv_get_device_guid(device).to_ne_bytes(),
                [2, 0, 0, 0xff, 0xfe, 0, 0, 9]
            );
            assert_eq!(ibv_get_device_index(device), 3);
            assert_eq!(text(&(*device).dev_name), "uverbs3");
            assert_eq!(text(&(*device).ibdev_path), "/sys/class/infiniband/roce_a");
        }
    }

    #[test]
    fn a_foreign_provider_reads_its_test_and_says_no() {
        let device = intern(&description("roce_b"));
        let verbs_device: *mut abi::verbs_device = device.cast();
        // SAFETY: every device is allocated as a `verbs_device`.
        let operations = unsafe { (*verbs_device).ops };
        assert!(!operations.is_null());
        assert_eq!(operations, ptr::from_ref(&OPERATIONS).cast());
    }

    #[test]
    fn a_long_name_is_cut_and_still_ends() {
        let device = c_struct(&description(&"x".repeat(100)));
        assert_eq!(
            text(&device.device.name).len(),
            abi::IBV_SYSFS_NAME_MAX as usize - 1
        );
    }

    #[test]
    fn null_devices_are_refused() {
        // SAFETY: null is allowed.
        unsafe {
            assert!(ibv_get_device_name(ptr::null_mut()).is_null());
            assert_eq!(ibv_get_device_guid(ptr::null_mut()), 0);
            assert_eq!(ibv_get_device_index(ptr::null_mut()), -1);
            ibv_free_device_list(ptr::null_mut());
        }
    }

    #[test]
    fn the_list_ends_with_null() {
        let device = intern(&description("roce_c"));
        let list = into_list(vec![device, device]);
        // SAFETY: three entries, freed once.
        unsafe {
            assert_eq!(
                std::slice::from_raw_parts(list, 3),
                [device, device, ptr::null_mut()]
            );
            ibv_free_device_list(list);
        }
    }
}
