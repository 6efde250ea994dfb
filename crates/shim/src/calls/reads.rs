//! The calls that read from a descriptor. They go to the next definition unchanged; a port
//! counter is brought up to date before ([`counter::before_read`]).

use core::ffi::{c_int, c_long, c_void};

use crate::counter;
use crate::sys::{self, number};

macro_rules! interpose_reads {
    ($(
        fn $name:ident($($argument:ident: $kind:ty),*), at: $offset:expr, absent: $absent:expr;
    )*) => {
        mod next {
            #![allow(non_upper_case_globals, reason = "one for each C name, under that name")]
            $(pub(super) static $name: crate::next::Next =
                crate::next::Next::new(concat!(stringify!($name), "\0"));)*
        }

        /// Looks up every next definition.
        pub(super) fn resolve_all() {
            $(next::$name.resolve();)*
        }

        $(
            /// # Safety
            /// The contract of the C call of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[cfg_attr(test, allow(dead_code, reason = "a test executable keeps its own calls"))]
            unsafe extern "C" fn $name(descriptor: c_int $(, $argument: $kind)*) -> isize {
                type Call = unsafe extern "C" fn(c_int $(, $kind)*) -> isize;
                counter::before_read(descriptor, $offset);
                let address = next::$name.address();
                if address.is_null() {
                    return kernel!($absent, descriptor $(, $argument)*) as isize;
                }
                // SAFETY: the definition found under the same name has the same type; the
                // arguments are the caller's.
                unsafe {
                    let next = core::mem::transmute::<*mut c_void, Call>(address);
                    next(descriptor $(, $argument)*)
                }
            }
        )*
    };
}

interpose_reads! {
    fn read(buffer: *mut c_void, length: usize), at: None, absent: number::READ;
    fn __read_chk(buffer: *mut c_void, length: usize, size: usize),
        at: None, absent: number::READ;
    fn pread(buffer: *mut c_void, length: usize, offset: c_long),
        at: Some(offset), absent: number::PREAD64;
    fn pread64(buffer: *mut c_void, length: usize, offset: c_long),
        at: Some(offset), absent: number::PREAD64;
    fn __pread_chk(buffer: *mut c_void, length: usize, offset: c_long, size: usize),
        at: Some(offset), absent: number::PREAD64;
    fn __pread64_chk(buffer: *mut c_void, length: usize, offset: c_long, size: usize),
        at: Some(offset), absent: number::PREAD64;
}
