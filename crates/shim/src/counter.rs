//! Port counters, read as files.
//!
//! The numbers live in the process that holds the device, in the verbs library. If that library is
//! loaded here it is asked through one C function, and the answer is served from an anonymous
//! file; a program without it (`cat` in a shell) gets the file of the view.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::path::CounterPath;
use crate::sys;

/// `int feroce_counter(const char *device, const char *name, uint64_t *value)`: 0 and the value,
/// or anything else if there is no such device or counter.
type Ask = unsafe extern "C" fn(*const c_char, *const c_char, *mut u64) -> c_int;

const SYMBOL: &CStr = c"feroce_counter";
const LIBRARY: &CStr = c"libibverbs.so.1";
/// Longest device or counter name, its NUL included (`IBV_SYSFS_NAME_MAX` of the verbs ABI).
const NAME_MAX: usize = 64;
/// Digits of the largest 64-bit number, and a line feed.
const TEXT_MAX: usize = 21;

/// A descriptor from which the counter's present value can be read as one line of text; `None` if
/// nobody in this process knows the counter.
#[inline(never)]
pub(crate) fn open(counter: &CounterPath<'_>, close_on_exec: bool) -> Option<c_int> {
    let saved = sys::errno();
    let descriptor = ask(counter).and_then(|value| anonymous_file(value, close_on_exec));
    if descriptor.is_none() {
        sys::set_errno(saved);
    }
    descriptor
}

fn ask(counter: &CounterPath<'_>) -> Option<u64> {
    let device = terminated(counter.device)?;
    let name = terminated(counter.name)?;
    // SAFETY: both names are NUL-terminated; RTLD_NOLOAD only looks at what is loaded already.
    unsafe {
        let found = sys::dlsym(sys::RTLD_DEFAULT, SYMBOL.as_ptr());
        if !found.is_null() {
            return value_of(found, &device, &name);
        }
        // Loaded by `dlopen` without RTLD_GLOBAL (UCX, Python): outside the default scope.
        let library = sys::dlopen(LIBRARY.as_ptr(), sys::RTLD_LAZY | sys::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        let found = sys::dlsym(library, SYMBOL.as_ptr());
        // The reference taken by `dlopen` keeps the function in place during the call.
        let value = if found.is_null() {
            None
        } else {
            value_of(found, &device, &name)
        };
        sys::dlclose(library);
        value
    }
}

/// # Safety
/// `function` is the address of a function of type `Ask`.
unsafe fn value_of(function: *mut c_void, device: &[u8], name: &[u8]) -> Option<u64> {
    let mut value = 0;
    // SAFETY: the caller's promise; both names end with a NUL (`terminated`).
    let status = unsafe {
        let ask = core::mem::transmute::<*mut c_void, Ask>(function);
        ask(device.as_ptr().cast(), name.as_ptr().cast(), &raw mut value)
    };
    (status == 0).then_some(value)
}

fn terminated(name: &[u8]) -> Option<[u8; NAME_MAX]> {
    let mut copy = [0; NAME_MAX];
    if name.len() >= NAME_MAX {
        return None;
    }
    copy.get_mut(..name.len())?.copy_from_slice(name);
    Some(copy)
}

fn anonymous_file(value: u64, close_on_exec: bool) -> Option<c_int> {
    let mut text = [0; TEXT_MAX];
    let line = decimal_line(value, &mut text);
    let flags = if close_on_exec { sys::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is NUL-terminated; `line` is readable for its length; the descriptor is
    // ours.
    unsafe {
        let made = sys::syscall(sys::number::MEMFD_CREATE, SYMBOL.as_ptr(), flags);
        let descriptor = c_int::try_from(made)
            .ok()
            .filter(|descriptor| *descriptor >= 0)?;
        let written = sys::write(descriptor, line.as_ptr().cast(), line.len());
        if usize::try_from(written) != Ok(line.len())
            || sys::lseek(descriptor, 0, sys::SEEK_SET) != 0
        {
            sys::close(descriptor);
            return None;
        }
        Some(descriptor)
    }
}

/// `value` in decimal and a line feed, written to the end of `text`.
fn decimal_line(mut value: u64, text: &mut [u8; TEXT_MAX]) -> &[u8] {
    let mut start = TEXT_MAX;
    let mut digits = text.iter_mut().rev();
    if let Some(last) = digits.next() {
        *last = b'\n';
        start -= 1;
    }
    for digit in digits {
        // A remainder of 10 fits a byte.
        *digit = b'0' + (value % 10) as u8;
        start -= 1;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.get(start..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_lines() {
        for (value, line) in [
            (0, "0\n"),
            (7, "7\n"),
            (10, "10\n"),
            (u64::MAX, "18446744073709551615\n"),
        ] {
            assert_eq!(decimal_line(value, &mut [0; TEXT_MAX]), line.as_bytes());
        }
    }

    #[test]
    fn names_longer_than_the_abi_allows_are_unknown() {
        assert!(terminated(&[b'x'; NAME_MAX - 1]).is_some());
        assert!(terminated(&[b'x'; NAME_MAX]).is_none());
    }
}
