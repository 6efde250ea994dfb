//! `ibv_get_cq_event`, in which programs (rping) cancel threads that wait.
//!
//! `pthread_cancel` unwinds the thread's stack, and no frame of Rust may be on it then: this
//! library is built to abort rather than unwind. So the frame between the program and
//! `pthread_testcancel` is one of assembly, which holds nothing. On other processors than these a
//! thread that waits is not cancelled before it has its event.

use core::ffi::{c_int, c_void};
use feroce_verbs_abi as abi;

use crate::cq::{WAITS_ON, next_event};

/// # Safety
/// As for [`next_event`].
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut abi::ibv_comp_channel,
    cq: *mut *mut abi::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    unsafe extern "C" {
        /// `pthread_testcancel(3)`.
        fn pthread_testcancel();
    }
    // The System V calling convention: three arguments in registers, kept in 24 bytes of stack
    // that also align it, for as many calls as it takes.
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 24",
        ".cfi_adjust_cfa_offset 24",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "2:",
        "call {next_event}",
        "cmp eax, {waits_on}",
        "jne 3f",
        "call {testcancel}",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "jmp 2b",
        "3:",
        "add rsp, 24",
        ".cfi_adjust_cfa_offset -24",
        "ret",
        ".cfi_endproc",
        next_event = sym next_event,
        testcancel = sym pthread_testcancel,
        waits_on = const WAITS_ON,
    )
}

/// # Safety
/// As for [`next_event`].
#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut abi::ibv_comp_channel,
    cq: *mut *mut abi::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        // SAFETY: the caller's contract.
        let result = unsafe { next_event(channel, cq, cq_context) };
        if result != WAITS_ON {
            return result;
        }
    }
}
