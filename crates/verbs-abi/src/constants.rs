//! Constants that the header defines as macros over other names, which the generator cannot see.
//! Not here: everything it can see (`bindings.rs`).

use core::ffi::{c_uint, c_void};

/// `ibv_context.abi_compat` of a context that lies inside a [`crate::verbs_context`].
pub const VERBS_ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

/// What an allocator of a parent domain returns to ask for the default allocator.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = usize::MAX as *mut c_void;

/// `ibv_port_attr.flags`: the port needs a GRH in every address (always so on RoCE).
pub const IBV_QPF_GRH_REQUIRED: c_uint = 1;

/// Access flags that a device may ignore: bits 20 to 29.
pub const IBV_ACCESS_OPTIONAL_RANGE: c_uint = 0x3ff0_0000;

/// `ibv_advise_mr`: map the range for reading.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH: c_uint = 0;
/// `ibv_advise_mr`: map the range for writing.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: c_uint = 1;
/// `ibv_advise_mr`: map what is present, fault nothing in.
pub const IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: c_uint = 2;
/// `ibv_advise_mr`: return only when it is done.
pub const IBV_ADVISE_MR_FLAG_FLUSH: c_uint = 1;
