//! What surrounds every entry point: the call's name for messages, errno (set here and nowhere
//! else), and the abort when Feroce itself is at fault.
//!
//! Calls of librdmacm report failure in two ways, each a function here: -1 and errno ([`zero`]), or
//! a null pointer and errno ([`pointer()`]); some cannot report it ([`nothing`]). A panic never
//! crosses into C: the hook names the call and aborts. Not here: which errno a mistake gets.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Once;

/// Why a call refuses: an errno for the program, a sentence for the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) reason: Cow<'static, str>,
}

impl Failure {
    /// `reason` names the argument, limit or address at fault and what to do.
    pub(crate) fn new(errno: c_int, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            errno,
            reason: reason.into(),
        }
    }

    /// The caller gave something that cannot be.
    pub(crate) fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(libc::EINVAL, reason)
    }

    /// This library does not do that.
    pub(crate) fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(libc::EOPNOTSUPP, reason)
    }

    /// What the C library or a verb just reported in errno; `what` names the call.
    pub(crate) fn last(what: &str) -> Self {
        let error = std::io::Error::last_os_error();
        let errno = error.raw_os_error().filter(|&errno| errno != 0);
        Self::new(errno.unwrap_or(libc::EIO), format!("{what}: {error}"))
    }

    /// What a call returned as an errno value; `what` names it.
    pub(crate) fn of(errno: c_int, what: &str) -> Self {
        let error = std::io::Error::from_raw_os_error(errno);
        Self::new(errno, format!("{what}: {error}"))
    }
}

/// A call that returns 0, or -1 and errno.
pub(crate) fn zero(call: &'static str, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    enter(call);
    match body() {
        Ok(()) => 0,
        Err(failure) => {
            report(call, &failure);
            -1
        }
    }
}

/// A call that returns a number that is not negative, or -1 and errno.
pub(crate) fn number(call: &'static str, body: impl FnOnce() -> Result<isize, Failure>) -> isize {
    enter(call);
    body().unwrap_or_else(|failure| {
        report(call, &failure);
        -1
    })
}

/// A call that returns an object: null and errno on failure.
pub(crate) fn pointer<T>(
    call: &'static str,
    body: impl FnOnce() -> Result<*mut T, Failure>,
) -> *mut T {
    enter(call);
    body().unwrap_or_else(|failure| {
        report(call, &failure);
        ptr::null_mut()
    })
}

/// A call that cannot say that it failed. errno stays as it is.
pub(crate) fn nothing(call: &'static str, body: impl FnOnce() -> Result<(), Failure>) {
    enter(call);
    if let Err(failure) = body() {
        log::error!("{call}: {}", failure.reason);
    }
}

/// Refuses a null pointer; `what` names the argument.
pub(crate) fn not_null<T>(pointer: *mut T, what: &str) -> Result<*mut T, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is a null pointer")));
    }
    Ok(pointer)
}

fn report(call: &str, failure: &Failure) {
    log::debug!("{call}: {}", failure.reason);
    // SAFETY: the C library keeps one errno per thread, at this address, while the thread lives.
    unsafe { *libc::__errno_location() = failure.errno };
}

thread_local! {
    /// The call that this thread is in, or was in last.
    static CALL: Cell<&'static str> = const { Cell::new("a thread of its own") };
}

fn enter(call: &'static str) {
    static ONCE: Once = Once::new();
    CALL.set(call);
    if !ONCE.is_completed() {
        ONCE.call_once(|| {
            feroce_obs::init_logging();
            // Tests want to see panics as panics.
            if !cfg!(test) {
                abort_on_panic();
            }
        });
    }
}

/// Makes a panic anywhere in the library an abort that names the call. The hook is that of our own
/// copy of the standard library: a Rust program's is another.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let call = CALL.get();
        eprintln!("feroce: internal error in {call}, please report it: {panic}");
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn each_kind_fails_in_its_own_way_and_sets_errno() {
        let failure = || Failure::invalid("backlog is negative");
        assert_eq!(zero("rdma_a", || Err(failure())), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert!(pointer::<u8>("rdma_b", || Err(Failure::unsupported("no"))).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!(zero("rdma_c", || Ok(())), 0);
    }
}
