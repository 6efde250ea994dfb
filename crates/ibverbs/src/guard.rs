//! What surrounds every entry point: the verb's name for messages, errno (set here and nowhere
//! else), and the abort when Feroce itself is at fault.
//!
//! Verbs report failure in several ways, each a function here: a null pointer and errno
//! ([`pointer()`]), an errno value as result ([`status`]), -1 and errno ([`minus_one`]), a negative
//! errno value ([`minus_errno`]), a plain no ([`answer`]), or not at all ([`nothing`]). A panic
//! never crosses into C: the hook names the verb and aborts, whatever the panic strategy. Not
//! here: which errno a mistake gets; that is said where it is found.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Once;

use crate::handle::{self, CStruct};

/// Why a verb refuses: an errno for the program, a sentence for the person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errno: c_int,
    pub(crate) reason: Cow<'static, str>,
}

impl Failure {
    /// `reason` names the attribute, limit or address at fault and what to do.
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

    /// The device does not do this.
    pub(crate) fn unsupported(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(libc::EOPNOTSUPP, reason)
    }
}

/// A verb that returns an object: null and errno on failure.
pub(crate) fn pointer<T>(
    verb: &'static str,
    body: impl FnOnce() -> Result<*mut T, Failure>,
) -> *mut T {
    enter(verb);
    body().unwrap_or_else(|failure| {
        report(verb, &failure);
        ptr::null_mut()
    })
}

/// A verb that returns 0 or an errno value. errno is set as well: many programs print it.
pub(crate) fn status(verb: &'static str, body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    enter(verb);
    match body() {
        Ok(()) => 0,
        Err(failure) => {
            report(verb, &failure);
            failure.errno
        }
    }
}

/// As [`status`], for a verb that destroys an object. What a forked child has of its parent it may
/// tidy up like a program that ends: nothing happens, to the parent above all.
///
/// # Safety
/// `pointer` is null or live.
pub(crate) unsafe fn destroy<C: CStruct>(
    verb: &'static str,
    pointer: *mut C,
    body: impl FnOnce() -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller's contract.
    if unsafe { handle::is_inherited(pointer) } {
        return 0;
    }
    status(verb, body)
}

/// A verb that returns a number that is not negative, or -1 and errno.
pub(crate) fn minus_one(
    verb: &'static str,
    body: impl FnOnce() -> Result<c_int, Failure>,
) -> c_int {
    enter(verb);
    body().unwrap_or_else(|failure| {
        report(verb, &failure);
        -1
    })
}

/// A verb that returns a count, or an errno value made negative. errno is set as well.
pub(crate) fn minus_errno(
    verb: &'static str,
    body: impl FnOnce() -> Result<usize, Failure>,
) -> isize {
    enter(verb);
    match body() {
        Ok(count) => isize::try_from(count).unwrap_or(isize::MAX),
        Err(failure) => {
            report(verb, &failure);
            // Widening: an errno value has 32 bits, the result 64.
            -(failure.errno as isize)
        }
    }
}

/// A verb that answers with a number, of which 0 means no.
pub(crate) fn answer(verb: &'static str, body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    enter(verb);
    body().unwrap_or_else(|failure| {
        report(verb, &failure);
        0
    })
}

/// A verb that cannot say that it failed. errno stays as it is.
pub(crate) fn nothing(verb: &'static str, body: impl FnOnce() -> Result<(), Failure>) {
    enter(verb);
    if let Err(failure) = body() {
        log::error!("{verb}: {}", failure.reason);
    }
}

/// Refuses a null pointer; `what` names the argument.
pub(crate) fn not_null<T>(pointer: *mut T, what: &str) -> Result<*mut T, Failure> {
    if pointer.is_null() {
        return Err(Failure::invalid(format!("{what} is a null pointer")));
    }
    Ok(pointer)
}

fn report(verb: &str, failure: &Failure) {
    log::debug!("{verb}: {}", failure.reason);
    // SAFETY: the C library keeps one errno per thread, at this address, while the thread lives.
    unsafe { *libc::__errno_location() = failure.errno };
}

thread_local! {
    /// The verb that this thread is in, or was in last.
    static VERB: Cell<&'static str> = const { Cell::new("a thread of its own") };
}

fn enter(verb: &'static str) {
    static HOOK: Once = Once::new();
    VERB.set(verb);
    // Tests want to see panics as panics.
    if !cfg!(test) && !HOOK.is_completed() {
        HOOK.call_once(abort_on_panic);
    }
}

/// Makes a panic anywhere in the library an abort that names the verb. The hook is that of our own
/// copy of the standard library: a Rust program's is another.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let verb = VERB.get();
        eprintln!("feroce: internal error in {verb}, please report it: {panic}");
        std::process::abort();
    }));
}

/// Entry points that the library must have and the device has nothing behind: they refuse with
/// EOPNOTSUPP, each in the way its kind fails, and say why.
macro_rules! refused {
    ($reason:literal;
     $($how:ident fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(
            /// # Safety
            /// None needed: it refuses without a look at its arguments.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
                $(let _ = $argument;)*
                $crate::guard::$how(stringify!($name), || {
                    Err($crate::guard::Failure::unsupported($reason))
                })
            }
        )*
    };
}
pub(crate) use refused;

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap()
    }

    #[test]
    fn each_kind_fails_in_its_own_way_and_sets_errno() {
        let failure = || Failure::invalid("port 9 does not exist");
        assert!(pointer::<u8>("ibv_a", || Err(failure())).is_null());
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!(
            status("ibv_b", || Err(Failure::unsupported("no"))),
            libc::EOPNOTSUPP
        );
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!(minus_one("ibv_c", || Err(failure())), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!(
            minus_errno("ibv_d", || Err(failure())),
            -(libc::EINVAL as isize)
        );
        assert_eq!(answer("ibv_e", || Err(failure())), 0);
    }

    #[test]
    fn success_passes_through() {
        let mut target = 7;
        let address = &raw mut target;
        assert_eq!(pointer("ibv_a", || Ok(address)), address);
        assert_eq!(status("ibv_b", || Ok(())), 0);
        assert_eq!(minus_one("ibv_c", || Ok(12)), 12);
        assert_eq!(minus_errno("ibv_d", || Ok(3)), 3);
        assert_eq!(answer("ibv_e", || Ok(1)), 1);
    }

    /// Not a test of its own: what [`a_panic_aborts_and_names_the_verb`] runs in a child.
    #[test]
    fn panic_in_a_verb() {
        if std::env::var_os("FEROCE_TEST_PANIC").is_some() {
            abort_on_panic();
            status("ibv_modify_qp", || panic!("index {} out of range", 4));
        }
    }

    #[test]
    fn a_panic_aborts_and_names_the_verb() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guard::tests::panic_in_a_verb", "--nocapture"])
            .env("FEROCE_TEST_PANIC", "1")
            .output()
            .unwrap();
        use std::os::unix::process::ExitStatusExt as _;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{errors}");
        assert!(
            errors.contains("internal error in ibv_modify_qp"),
            "{errors}"
        );
        assert!(errors.contains("index 4 out of range"), "{errors}");
    }
}
