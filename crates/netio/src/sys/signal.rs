//! What signals do to a call that waits.

/// Whether the kernel would start a call again that a signal interrupted: every handler of the
/// process was installed with `SA_RESTART` (`sigaction(2)`, `signal(7)`).
pub fn interrupted_calls_restart() -> bool {
    (1..=libc::SIGRTMAX()).all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: only asks; the answer goes to a live place of the right type. For numbers that
        // are no signals to ask about it fails and the place stays zero, which is a valid value.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    })
}
