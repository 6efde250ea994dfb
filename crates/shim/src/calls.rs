//! The file calls that are exported in the C library's place.
//!
//! Each one maps its path argument if that lies in the view and then calls the next definition;
//! nothing else of its contract is touched. Calls that glibc makes inside itself do not pass here,
//! which is why its own path walkers (`realpath`, `scandir`, `fopen`) are in the list; `glob`,
//! `nftw` and `fts_open` are not, no known RDMA program walks these folders with them.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;

use crate::counter;
use crate::next::Next;
use crate::path::Place;
use crate::sys::{self, AT_FDCWD, AT_SYMLINK_NOFOLLOW, PATH_MAX, number};
use crate::view::{self, Target};

/// What a call answers when it fails; `errno` says why.
trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for isize {
    const FAILURE: Self = -1;
}

impl<T> Failure for *mut T {
    const FAILURE: Self = ptr::null_mut();
}

/// Makes `call` with the path that `path` stands for. For a path in the view, `first` may answer
/// without a call.
///
/// # Safety
/// `path` is null or NUL-terminated: the contract of every call in this file.
#[inline]
unsafe fn redirect<R: Failure>(
    path: *const c_char,
    first: impl FnOnce(&Place<'_>) -> Option<R>,
    call: impl FnOnce(*const c_char) -> R,
) -> R {
    // SAFETY: the caller's contract.
    match unsafe { place(path) } {
        None => call(path),
        Some(place) => redirect_to_view(&place, path, first, call),
    }
}

/// # Safety
/// `path` is null or NUL-terminated.
#[inline(never)]
unsafe fn place<'a>(path: *const c_char) -> Option<Place<'a>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's contract; the text outlives the call that uses it.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    // A program that follows the links itself (`realpath`) comes back with a path of the disk.
    Place::of(path).or_else(|| Place::of(view::inside(path)?))
}

/// Kept apart so that the buffer below costs stack only for paths in the view.
#[cold]
#[inline(never)]
fn redirect_to_view<R: Failure>(
    place: &Place<'_>,
    own: *const c_char,
    first: impl FnOnce(&Place<'_>) -> Option<R>,
    call: impl FnOnce(*const c_char) -> R,
) -> R {
    let mut buffer = [0; PATH_MAX];
    match view::locate(place, &mut buffer) {
        Target::Own => call(own),
        Target::View => match first(place) {
            Some(answer) => answer,
            None => call(buffer.as_ptr().cast()),
        },
        Target::TooLong => {
            sys::set_errno(sys::ENAMETOOLONG);
            R::FAILURE
        }
    }
}

/// For calls that only the next definition can answer.
fn nothing<R>(_: &Place<'_>) -> Option<R> {
    None
}

fn counter_descriptor(place: &Place<'_>, flags: c_int) -> Option<c_int> {
    let counter = place.counter()?;
    let reads = flags & sys::O_ACCMODE == 0;
    reads.then(|| counter::open(&counter, flags & sys::O_CLOEXEC != 0))?
}

/// # Safety
/// `mode` is null or NUL-terminated.
unsafe fn counter_stream(place: &Place<'_>, mode: *const c_char) -> Option<*mut c_void> {
    let counter = place.counter()?;
    if mode.is_null() {
        return None;
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(mode) }.to_bytes();
    if text.first() != Some(&b'r') || text.contains(&b'+') {
        return None;
    }
    let descriptor = counter::open(&counter, text.contains(&b'e'))?;
    // SAFETY: the descriptor is ours and `mode` NUL-terminated; on success the stream owns it.
    unsafe {
        let stream = sys::fdopen(descriptor, mode);
        if stream.is_null() {
            sys::close(descriptor);
            return None;
        }
        Some(stream)
    }
}

/// The answer where no next definition exists: an old or small C library.
fn unsupported<R: Failure>() -> R {
    sys::set_errno(sys::ENOSYS);
    R::FAILURE
}

/// Makes a system call whose answer fits an `int`.
macro_rules! kernel {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: the arguments are those of the C call, which has the same contract as the
        // system call; the kernel checks every pointer.
        (unsafe { sys::syscall($number $(, $argument)*) }) as c_int
    };
}

/// Defines the exported calls, the memory of their next definitions, and `resolve_all`.
///
/// `fn NAME([arguments before] path [arguments after]) -> RESULT, first: …, absent: …;`
/// where `first` sees the place in the view and may answer at once, and `absent` is the answer
/// when there is no next definition.
macro_rules! interpose {
    ($(fn $name:ident(
        [$($before:ident: $before_type:ty),*] $path:ident [$($after:ident: $after_type:ty),*]
    ) -> $result:ty, first: $first:expr, absent: $absent:expr;)*) => {
        mod next {
            #![allow(non_upper_case_globals, reason = "one for each C name, under that name")]
            $(pub(super) static $name: super::Next =
                super::Next::new(concat!(stringify!($name), "\0"));)*
        }

        /// Looks up every next definition.
        pub(crate) fn resolve_all() {
            $(next::$name.resolve();)*
            reads::resolve_all();
        }

        $(
            /// # Safety
            /// The contract of the C call of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, allow(dead_code, reason = "a test executable keeps its own calls"))]
            unsafe extern "C" fn $name(
                $($before: $before_type,)* $path: *const c_char $(, $after: $after_type)*
            ) -> $result {
                type Call = unsafe extern "C" fn(
                    $($before_type,)* *const c_char $(, $after_type)*
                ) -> $result;
                let call = |$path: *const c_char| {
                    let address = next::$name.address();
                    if address.is_null() {
                        return $absent;
                    }
                    // SAFETY: the definition found under the same name has the same type; the
                    // arguments are the caller's, except for the path, which is NUL-terminated.
                    unsafe {
                        let next = core::mem::transmute::<*mut c_void, Call>(address);
                        next($($before,)* $path $(, $after)*)
                    }
                };
                // SAFETY: the caller's contract.
                unsafe { redirect($path, $first, call) }
            }
        )*
    };
}

mod reads;

/// `struct stat`, `struct stat64` or `struct statx`: passed on, never read.
type Buffer = *mut c_void;
/// `mode_t`. It is an optional argument of `open`; passing on a register the caller left alone is
/// harmless, the C library looks at it only with O_CREAT and O_TMPFILE.
type Mode = c_uint;
/// `FILE *` or `DIR *`.
type Stream = *mut c_void;
type Text = *mut c_char;
/// Arguments passed on unread: the list, filter and order of `scandir`, values of attributes.
type Pointer = *mut c_void;

interpose! {
    fn open([] path [flags: c_int, mode: Mode]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, AT_FDCWD, path, flags, mode);
    fn open64([] path [flags: c_int, mode: Mode]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, AT_FDCWD, path, flags, mode);
    fn __open_2([] path [flags: c_int]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, AT_FDCWD, path, flags, 0);
    fn __open64_2([] path [flags: c_int]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, AT_FDCWD, path, flags, 0);
    fn openat([directory: c_int] path [flags: c_int, mode: Mode]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, directory, path, flags, mode);
    fn openat64([directory: c_int] path [flags: c_int, mode: Mode]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, directory, path, flags, mode);
    fn __openat_2([directory: c_int] path [flags: c_int]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, directory, path, flags, 0);
    fn __openat64_2([directory: c_int] path [flags: c_int]) -> c_int,
        first: |place| counter_descriptor(place, flags),
        absent: kernel!(number::OPENAT, directory, path, flags, 0);
    fn fopen([] path [mode: *const c_char]) -> Stream,
        first: |place| counter_stream(place, mode), absent: unsupported();
    fn fopen64([] path [mode: *const c_char]) -> Stream,
        first: |place| counter_stream(place, mode), absent: unsupported();

    fn stat([] path [buffer: Buffer]) -> c_int,
        first: nothing, absent: kernel!(number::NEWFSTATAT, AT_FDCWD, path, buffer, 0);
    fn stat64([] path [buffer: Buffer]) -> c_int,
        first: nothing, absent: kernel!(number::NEWFSTATAT, AT_FDCWD, path, buffer, 0);
    fn lstat([] path [buffer: Buffer]) -> c_int,
        first: nothing,
        absent: kernel!(number::NEWFSTATAT, AT_FDCWD, path, buffer, AT_SYMLINK_NOFOLLOW);
    fn lstat64([] path [buffer: Buffer]) -> c_int,
        first: nothing,
        absent: kernel!(number::NEWFSTATAT, AT_FDCWD, path, buffer, AT_SYMLINK_NOFOLLOW);
    fn fstatat([directory: c_int] path [buffer: Buffer, flags: c_int]) -> c_int,
        first: nothing, absent: kernel!(number::NEWFSTATAT, directory, path, buffer, flags);
    fn fstatat64([directory: c_int] path [buffer: Buffer, flags: c_int]) -> c_int,
        first: nothing, absent: kernel!(number::NEWFSTATAT, directory, path, buffer, flags);
    fn statx([directory: c_int] path [flags: c_int, mask: c_uint, buffer: Buffer]) -> c_int,
        first: nothing, absent: kernel!(number::STATX, directory, path, flags, mask, buffer);
    // What programs linked before glibc 2.33 call.
    fn __xstat([version: c_int] path [buffer: Buffer]) -> c_int,
        first: nothing, absent: unsupported();
    fn __xstat64([version: c_int] path [buffer: Buffer]) -> c_int,
        first: nothing, absent: unsupported();
    fn __lxstat([version: c_int] path [buffer: Buffer]) -> c_int,
        first: nothing, absent: unsupported();
    fn __lxstat64([version: c_int] path [buffer: Buffer]) -> c_int,
        first: nothing, absent: unsupported();
    fn __fxstatat([version: c_int, directory: c_int] path [buffer: Buffer, flags: c_int]) -> c_int,
        first: nothing, absent: unsupported();
    fn __fxstatat64([version: c_int, directory: c_int] path [buffer: Buffer, flags: c_int])
        -> c_int, first: nothing, absent: unsupported();

    fn access([] path [mode: c_int]) -> c_int,
        first: nothing, absent: kernel!(number::FACCESSAT, AT_FDCWD, path, mode);
    fn eaccess([] path [mode: c_int]) -> c_int, first: nothing, absent: unsupported();
    fn euidaccess([] path [mode: c_int]) -> c_int, first: nothing, absent: unsupported();
    fn faccessat([directory: c_int] path [mode: c_int, flags: c_int]) -> c_int,
        first: nothing, absent: unsupported();

    fn readlink([] path [text: Text, room: usize]) -> isize,
        first: nothing,
        absent: kernel!(number::READLINKAT, AT_FDCWD, path, text, room) as isize;
    fn readlinkat([directory: c_int] path [text: Text, room: usize]) -> isize,
        first: nothing,
        absent: kernel!(number::READLINKAT, directory, path, text, room) as isize;
    fn __readlink_chk([] path [text: Text, room: usize, size: usize]) -> isize,
        first: nothing, absent: unsupported();
    fn __readlinkat_chk([directory: c_int] path [text: Text, room: usize, size: usize]) -> isize,
        first: nothing, absent: unsupported();
    fn realpath([] path [resolved: Text]) -> Text, first: nothing, absent: unsupported();
    fn __realpath_chk([] path [resolved: Text, room: usize]) -> Text,
        first: nothing, absent: unsupported();
    fn canonicalize_file_name([] path []) -> Text, first: nothing, absent: unsupported();

    // `ls -l` asks for access lists.
    fn getxattr([] path [name: *const c_char, value: Pointer, size: usize]) -> isize,
        first: nothing, absent: unsupported();
    fn lgetxattr([] path [name: *const c_char, value: Pointer, size: usize]) -> isize,
        first: nothing, absent: unsupported();
    fn listxattr([] path [list: Text, size: usize]) -> isize,
        first: nothing, absent: unsupported();
    fn llistxattr([] path [list: Text, size: usize]) -> isize,
        first: nothing, absent: unsupported();

    fn opendir([] path []) -> Stream, first: nothing, absent: unsupported();
    fn scandir([] path [list: Pointer, filter: Pointer, order: Pointer]) -> c_int,
        first: nothing, absent: unsupported();
    fn scandir64([] path [list: Pointer, filter: Pointer, order: Pointer]) -> c_int,
        first: nothing, absent: unsupported();
}
