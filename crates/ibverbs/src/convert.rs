//! C to Rust and back: attributes and masks ([`qp`]), addresses ([`address`]), work requests
//! ([`wr`], and in the form of extended queue pairs [`batch`]), completions ([`wc`]).
//!
//! Converting checks what the Rust types cannot hold and what would have us read where the program
//! did not promise memory; everything else is for the protocol to judge.

pub(crate) mod address;
pub(crate) mod batch;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod wc;
pub(crate) mod wr;
