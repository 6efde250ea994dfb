//! The few C library calls and constants the shim uses itself. None of them is one that it
//! interposes: those would come straight back to it.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};

// A variadic `open` is defined here with fixed arguments, which is right where variadic integers
// travel in the same registers as named ones. Both of these do that on Linux.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the shim knows the calling convention and system calls of x86_64 and aarch64 only");

unsafe extern "C" {
    #[cfg(all(panic = "abort", not(test)))]
    pub(crate) fn abort() -> !;
    pub(crate) fn close(descriptor: c_int) -> c_int;
    pub(crate) fn dlclose(library: *mut c_void) -> c_int;
    pub(crate) fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    pub(crate) fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut c_void;
    pub(crate) fn getenv(name: *const c_char) -> *const c_char;
    pub(crate) fn lseek(descriptor: c_int, offset: c_long, whence: c_int) -> c_long;
    pub(crate) fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

/// Sets the C library's `errno` of this thread.
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: the address is this thread's `errno`, valid as long as the thread runs.
    unsafe { *__errno_location() = value };
}

/// Reads the C library's `errno` of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: as in `set_errno`.
    unsafe { *__errno_location() }
}

pub(crate) const AT_FDCWD: c_int = -100;
pub(crate) const AT_SYMLINK_NOFOLLOW: c_int = 0x100;
pub(crate) const ENAMETOOLONG: c_int = 36;
pub(crate) const ENOSYS: c_int = 38;
pub(crate) const MFD_CLOEXEC: c_uint = 1;
pub(crate) const O_ACCMODE: c_int = 3;
pub(crate) const O_CLOEXEC: c_int = 0o2_000_000;
/// Longest path the kernel takes, its NUL included.
pub(crate) const PATH_MAX: usize = 4096;
pub(crate) const RTLD_LAZY: c_int = 1;
pub(crate) const RTLD_NOLOAD: c_int = 4;
pub(crate) const SEEK_CUR: c_int = 1;

/// The handle that asks `dlsym` for any definition in the global scope.
pub(crate) const RTLD_DEFAULT: *mut c_void = core::ptr::null_mut();
/// The handle that asks `dlsym` for the definition after the caller's own.
pub(crate) const RTLD_NEXT: *mut c_void = core::ptr::without_provenance_mut(usize::MAX);

/// System call numbers, for the time before `dlsym` answers.
#[cfg(target_arch = "x86_64")]
pub(crate) mod number {
    use core::ffi::c_long;
    pub(crate) const READ: c_long = 0;
    pub(crate) const PREAD64: c_long = 17;
    pub(crate) const PWRITE64: c_long = 18;
    pub(crate) const FTRUNCATE: c_long = 77;
    pub(crate) const OPENAT: c_long = 257;
    pub(crate) const NEWFSTATAT: c_long = 262;
    pub(crate) const READLINKAT: c_long = 267;
    pub(crate) const FACCESSAT: c_long = 269;
    pub(crate) const MEMFD_CREATE: c_long = 319;
    pub(crate) const STATX: c_long = 332;
}

/// System call numbers, for the time before `dlsym` answers.
#[cfg(target_arch = "aarch64")]
pub(crate) mod number {
    use core::ffi::c_long;
    pub(crate) const FTRUNCATE: c_long = 46;
    pub(crate) const FACCESSAT: c_long = 48;
    pub(crate) const OPENAT: c_long = 56;
    pub(crate) const READ: c_long = 63;
    pub(crate) const PREAD64: c_long = 67;
    pub(crate) const PWRITE64: c_long = 68;
    pub(crate) const READLINKAT: c_long = 78;
    pub(crate) const NEWFSTATAT: c_long = 79;
    pub(crate) const MEMFD_CREATE: c_long = 279;
    pub(crate) const STATX: c_long = 291;
}
