//! `librdmacm.so.1`: connections by IP address, for programs that were linked against rdma-core.
//!
//! An entry point states its contract, converts, calls safe code, converts back. The messages on
//! the wire and their states are `feroce_proto::cm`; datagrams and ports come from our own
//! `libibverbs.so.1` (`feroce_verbs_abi::gsi`), and so do queue pairs, through the plain C
//! interface. cargo builds a static archive; `cargo xtask dist` links the library from it, with the
//! names and versions of `symbols.txt`.
//!
//! Read first: rdma_cm(7), and `rdma_cma.h`, whose names the modules keep.

// All of it is ours to call from C; the linker keeps what symbols.txt names.
#![allow(dead_code, reason = "the skeleton: entry points follow")]

mod guard;
mod missing;
mod name;
mod rsocket;
