//! Port counters, read as files.
//!
//! The numbers live in the process that holds the device, in the verbs library. If that library is
//! loaded here it is asked through one C function, and the answer is served from an anonymous
//! file; a program without it (`cat` in a shell) gets the file of the view.
//!
//! Such a file, like one of sysfs, has a new value each time it is read from its start (perftest
//! opens once, and reads before and after its traffic): reads of the few descriptors known to be
//! counters pass here first. The file's name says which counter it is, so that a descriptor that
//! was closed and used again for something else is not mistaken.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

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

/// Descriptors of counters that may be open; 0 is a free entry. Beyond these, a counter keeps the
/// value it had when it was opened.
static OPEN: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];

/// What the names of our anonymous files begin with.
const PREFIX: &[u8] = b"feroce:";
/// How the kernel shows such a name.
const SHOWN: &[u8] = b"/memfd:feroce:";
/// What it adds, because no folder has the file.
const DELETED: &[u8] = b" (deleted)";
/// Room for the link in `/proc/self/fd` and its NUL.
const SHOWN_MAX: usize = SHOWN.len() + 2 * NAME_MAX + DELETED.len();

/// Before the program reads from `descriptor` at `offset` (`None`: where it stands): if that is the
/// start of a counter's file, writes the present value there.
#[inline]
pub(crate) fn before_read(descriptor: c_int, offset: Option<c_long>) {
    if descriptor <= 0 || matches!(offset, Some(1..)) {
        return;
    }
    // The entries are filled in order: programs without counters look at one.
    for entry in &OPEN {
        match entry.load(Ordering::Relaxed) {
            0 => return,
            open if open == descriptor => return refresh(entry, descriptor, offset),
            _ => {}
        }
    }
}

/// `-1`, which no descriptor is, keeps an entry that is not needed any more from ending the list.
const UNUSED: c_int = -1;

#[cold]
#[inline(never)]
fn refresh(entry: &AtomicI32, descriptor: c_int, offset: Option<c_long>) {
    let saved = sys::errno();
    let mut link = [0; SHOWN_MAX];
    match counter_of(descriptor, &mut link) {
        None => entry.store(UNUSED, Ordering::Relaxed),
        Some(counter) => {
            // SAFETY: the descriptor is open; its position is only asked for.
            let starts =
                offset.is_some() || unsafe { sys::lseek(descriptor, 0, sys::SEEK_CUR) } == 0;
            if let Some(value) = starts.then(|| ask(&counter)).flatten() {
                write_value(descriptor, value);
            }
        }
    }
    sys::set_errno(saved);
}

/// The counter that an open file of ours is for.
fn counter_of(descriptor: c_int, link: &mut [u8; SHOWN_MAX]) -> Option<CounterPath<'_>> {
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut text = [0; TEXT_MAX];
    let digits = decimal_line(descriptor.try_into().ok()?, &mut text);
    let digits = digits.strip_suffix(b"\n")?;
    path.get_mut(14..14 + digits.len())?.copy_from_slice(digits);
    // SAFETY: the path ends with a NUL, of which one is left; the kernel writes at most `len`.
    let length = unsafe {
        sys::syscall(
            sys::number::READLINKAT,
            sys::AT_FDCWD,
            path.as_ptr(),
            link.as_mut_ptr(),
            link.len(),
        )
    };
    let shown = link.get(..usize::try_from(length).ok()?)?;
    let names = shown.strip_prefix(SHOWN)?.strip_suffix(DELETED)?;
    let slash = names.iter().position(|&byte| byte == b'/')?;
    let (device, name) = names.split_at_checked(slash)?;
    Some(CounterPath {
        device,
        name: name.strip_prefix(b"/")?,
    })
}

/// Has reads of this descriptor pass by [`refresh`], if an entry is left.
fn remember(descriptor: c_int) {
    let known = |entry: &AtomicI32| entry.load(Ordering::Relaxed) == descriptor;
    if OPEN.iter().any(known) {
        return;
    }
    for entry in &OPEN {
        for free in [0, UNUSED] {
            let (set, seen) = (Ordering::Relaxed, Ordering::Relaxed);
            if entry.compare_exchange(free, descriptor, set, seen).is_ok() {
                return;
            }
        }
    }
}

/// A descriptor from which the counter's present value can be read as one line of text; `None` if
/// nobody in this process knows the counter.
#[inline(never)]
pub(crate) fn open(counter: &CounterPath<'_>, close_on_exec: bool) -> Option<c_int> {
    let saved = sys::errno();
    let descriptor = ask(counter).and_then(|value| anonymous_file(counter, value, close_on_exec));
    match descriptor {
        Some(descriptor) => remember(descriptor),
        None => sys::set_errno(saved),
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

fn anonymous_file(counter: &CounterPath<'_>, value: u64, close_on_exec: bool) -> Option<c_int> {
    let mut name = [0; PREFIX.len() + 2 * NAME_MAX];
    let mut rest = name.as_mut_slice();
    for part in [PREFIX, counter.device, b"/", counter.name, b"\0"] {
        let (target, after) = rest.split_at_mut_checked(part.len())?;
        target.copy_from_slice(part);
        rest = after;
    }
    let flags = if close_on_exec { sys::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is NUL-terminated.
    let made = unsafe { sys::syscall(sys::number::MEMFD_CREATE, name.as_ptr(), flags) };
    let descriptor = c_int::try_from(made)
        .ok()
        .filter(|descriptor| *descriptor >= 0)?;
    if write_value(descriptor, value) {
        return Some(descriptor);
    }
    // SAFETY: the descriptor is ours.
    unsafe { sys::close(descriptor) };
    None
}

/// Makes the file say `value`; its position stays.
fn write_value(descriptor: c_int, value: u64) -> bool {
    let mut text = [0; TEXT_MAX];
    let line = decimal_line(value, &mut text);
    // SAFETY: `line` is readable for its length.
    let written = unsafe {
        let start: c_long = 0;
        sys::syscall(
            sys::number::PWRITE64,
            descriptor,
            line.as_ptr(),
            line.len(),
            start,
        )
    };
    // SAFETY: no memory is involved.
    let cut = unsafe { sys::syscall(sys::number::FTRUNCATE, descriptor, written) };
    usize::try_from(written) == Ok(line.len()) && cut == 0
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
    fn a_file_of_ours_tells_its_counter_and_no_other_file_does() {
        let counter = CounterPath {
            device: b"roce_lo",
            name: b"sent_pkts",
        };
        let descriptor = anonymous_file(&counter, 7, true).unwrap();
        let mut link = [0; SHOWN_MAX];
        assert_eq!(counter_of(descriptor, &mut link), Some(counter));
        assert_eq!(counter_of(0, &mut link), None);
        assert_eq!(counter_of(c_int::MAX, &mut link), None);
        // SAFETY: it is ours and not used any more.
        unsafe { sys::close(descriptor) };
        assert_eq!(counter_of(descriptor, &mut link), None);
    }

    #[test]
    fn names_longer_than_the_abi_allows_are_unknown() {
        assert!(terminated(&[b'x'; NAME_MAX - 1]).is_some());
        assert!(terminated(&[b'x'; NAME_MAX]).is_none());
    }
}
