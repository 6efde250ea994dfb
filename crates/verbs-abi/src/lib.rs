//! The `repr(C)` mirror of `infiniband/verbs.h`, `rdma/rdma_cma.h` and `rdma/rsocket.h`: names,
//! layouts and values, no logic.
//!
//! It follows rdma-core 65, a superset of rdma-core 44: structs only ever grew at an end that older
//! programs do not look at, so the newest layout serves them all. `later.txt` names what
//! rdma-core 44 lacks.
//!
//! It is *not* a binding: nothing here links to a library. [`functions`] declares the public
//! entry points only so that the library that defines them can compare its signatures.
//!
//! `bindings.rs`, `layout.rs` and `functions.rs` are written by `cargo xtask abi --regenerate`;
//! `cargo xtask abi` compares them with the headers of the machine. Read the header itself first:
//! names here are its names, so that a search finds both.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the verbs ABI is mirrored for 64-bit Linux only");

/// Asserts the layout of a generated type and makes its all-zero value its default.
macro_rules! layout {
    ($name:ident: $size:literal, $align:literal { $($field:ident: $offset:literal,)* }) => {
        // `pthread_mutex_t` and `char` differ on other machines; the rest is the same everywhere.
        #[cfg(target_arch = "x86_64")]
        const _: () = {
            assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
            assert!(align_of::<$name>() == $align, concat!("alignment of ", stringify!($name)));
            $(assert!(
                core::mem::offset_of!($name, $field) == $offset,
                concat!("offset of ", stringify!($name), ".", stringify!($field))
            );)*
        };
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the generated types hold integers, raw pointers and optional function
                // pointers only, for which zero is a value (C programs set them up with memset).
                unsafe { core::mem::zeroed() }
            }
        }
    };
}

mod constants;
mod driver;

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    clippy::all,
    clippy::use_self,
    reason = "generated; the names are the C header's"
)]
mod bindings;

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::wildcard_imports,
    clippy::all,
    clippy::use_self,
    reason = "generated; the names are the C header's"
)]
pub mod functions;

#[allow(non_camel_case_types, reason = "the names are those of C structs")]
pub mod gsi;

#[allow(clippy::wildcard_imports, reason = "generated")]
mod layout;

pub use bindings::*;
pub use constants::*;
pub use driver::*;

/// A 16-bit number in network byte order.
#[expect(non_camel_case_types, reason = "the C name")]
pub type __be16 = u16;
/// A 32-bit number in network byte order.
#[expect(non_camel_case_types, reason = "the C name")]
pub type __be32 = u32;
/// A 64-bit number in network byte order.
#[expect(non_camel_case_types, reason = "the C name")]
pub type __be64 = u64;
