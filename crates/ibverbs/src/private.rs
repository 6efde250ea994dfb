//! The provider interface (`IBVERBS_PRIVATE_*`): real providers, which stock programs load along
//! with themselves, need its names to start and never call them here, because no device of ours is
//! theirs. Registration does nothing, everything else refuses with EOPNOTSUPP.
//!
//! `symbols.txt` says which name gets which of these. Not here: the two names that programs use
//! themselves, `ibv_query_gid_type` ([`crate::query`]) and `ibv_wr_opcode_str` ([`crate::name`]).

use std::ffi::{c_int, c_void};

use crate::guard::{self, Failure};

const VERB: &str = "a call of a foreign provider";

fn refused() -> Failure {
    Failure::unsupported("Feroce has no kernel device for a provider to drive")
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_private_errno() -> c_int {
    guard::status(VERB, || Err(refused()))
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_private_minus_one() -> c_int {
    guard::minus_one(VERB, || Err(refused()))
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_private_null() -> *mut c_void {
    guard::pointer(VERB, || Err(refused()))
}

/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_private_nothing() {}

/// A count of attributes: none.
///
/// # Safety
/// None needed, whatever the arguments: it reads none.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn feroce_private_zero() -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_refused_and_their_registration_is_ignored() {
        // SAFETY: none of them has a contract.
        unsafe {
            assert_eq!(feroce_private_errno(), libc::EOPNOTSUPP);
            assert_eq!(feroce_private_minus_one(), -1);
            assert!(feroce_private_null().is_null());
            assert_eq!(feroce_private_zero(), 0);
            feroce_private_nothing();
        }
    }
}
