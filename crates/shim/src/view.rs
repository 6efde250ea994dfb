//! The view's folder on disk, and the step from a program's path to a path in it.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::path::Place;
use crate::sys::{self, PATH_MAX};

/// The name of the variable by which `feroce run` tells the folder.
const VARIABLE: &CStr = c"FEROCE_VIEW";

/// `FEROCE_VIEW` as it was when the program started: programs overwrite their environment.
static FOLDER: Remembered = Remembered {
    bytes: UnsafeCell::new([0; PATH_MAX]),
    length: AtomicUsize::new(0),
};

struct Remembered {
    bytes: UnsafeCell<[u8; PATH_MAX]>,
    /// 0 until `bytes` is written, which happens once, before `main`.
    length: AtomicUsize,
}

// SAFETY: `bytes` is written only by `remember`, which the loader calls once, and read only after
// `length` was published with release and seen with acquire ordering.
unsafe impl Sync for Remembered {}

/// Copies the variable out of the environment. Called once, from the library's constructor.
pub(crate) fn remember() {
    let folder = from_environment();
    if folder.is_empty() || folder.len() > PATH_MAX {
        return;
    }
    // SAFETY: no reader looks at `bytes` before `length` is stored below; the constructor runs
    // once.
    let bytes = unsafe { &mut *FOLDER.bytes.get() };
    if let Some(target) = bytes.get_mut(..folder.len()) {
        target.copy_from_slice(folder);
        FOLDER.length.store(folder.len(), Ordering::Release);
    }
}

/// The view's folder; empty where there is none.
fn folder() -> &'static [u8] {
    match FOLDER.length.load(Ordering::Acquire) {
        // Before the constructor (or without the variable): one look into the environment.
        0 => from_environment(),
        length => {
            // SAFETY: published by `remember`; never written again.
            unsafe { &*FOLDER.bytes.get() }.get(..length).unwrap_or(&[])
        }
    }
}

fn from_environment() -> &'static [u8] {
    // SAFETY: the name is NUL-terminated.
    let value = unsafe { sys::getenv(VARIABLE.as_ptr()) };
    if value.is_null() {
        return &[];
    }
    // SAFETY: `getenv` answers a NUL-terminated string; callers use it before they return to the
    // program, which is the one that could change it.
    unsafe { CStr::from_ptr(value) }.to_bytes()
}

/// The path that a path on disk stands for, if it lies in the view's folder.
pub(crate) fn inside(path: &[u8]) -> Option<&[u8]> {
    let folder = folder();
    if folder.is_empty() {
        return None;
    }
    path.strip_prefix(folder)
}

/// What `redirect` found out about a path.
pub(crate) enum Target {
    /// Not in the view, or there is no view: the call goes on with the program's own path.
    Own,
    /// Look here instead.
    View,
    /// In the view, but the path is longer than the kernel takes.
    TooLong,
}

/// Writes the path to be used for `place` into `out`.
#[inline(never)]
pub(crate) fn locate(place: &Place<'_>, out: &mut [u8; PATH_MAX]) -> Target {
    let folder = folder();
    if folder.is_empty() {
        return Target::Own;
    }
    if place.write_to(folder, out).is_none() {
        return Target::TooLong;
    }
    if place.is_node() {
        follow(out);
    }
    Target::View
}

/// Replaces a link's path by the path it holds. Device nodes are links in the view, since making
/// a node takes privilege; `lstat`, `readlink` and `O_NOFOLLOW` must meet the node all the same.
fn follow(path: &mut [u8; PATH_MAX]) {
    let mut target = [0; PATH_MAX];
    let saved = sys::errno();
    // SAFETY: `path` is NUL-terminated, and the kernel writes at most the given length.
    let length = unsafe {
        let path: *const c_char = path.as_ptr().cast();
        let room = PATH_MAX - 1;
        sys::syscall(
            sys::number::READLINKAT,
            sys::AT_FDCWD,
            path,
            target.as_mut_ptr(),
            room,
        )
    };
    match usize::try_from(length) {
        // `target` was zeroed and one byte is kept free: it ends with a NUL.
        Ok(1..) => *path = target,
        // Not a link or not there: the call that follows finds out and says so.
        _ => sys::set_errno(saved),
    }
}
