//! `libibverbs.so.1`: the C entry points of verbs over the safe Rust API, for programs that were
//! linked against rdma-core.
//!
//! An entry point states its contract, converts, calls safe code, converts back; protocol logic is
//! not here. cargo builds a static archive; `cargo xtask dist` links the library from it, with the
//! names and versions of `symbols.txt`.
//!
//! | module | what it holds |
//! |---|---|
//! | `device`, `query`, `event`, `counter` | entry points and table operations of a context |
//! | `pd`, `mr`, `mw`, `dm`, `cq`, `cq_ex`, `qp`, `qp_ex`, `srq`, `xrcd`, `ah` | … of one object |
//! | `context` | the tables through which verbs.h's inline functions call |
//! | `share` | contexts that were imported from each other, and their objects |
//! | `handle` | how a C struct lies in memory with its Rust part behind it |
//! | `convert` | flags, masks, attributes, work requests, completions: C to Rust and back |
//! | `guard` | what surrounds every entry point: errno, the abort on a panic |
//! | `name`, `rate`, `fork`, `sysfs`, `marshal` | entry points that need no device |
//! | `gsi` | what `librdmacm.so.1` asks of this library |
//! | `private`, `old` | names that exist so that programs load; they refuse |
//! | `versions` | aliases with versions, from `symbols.txt` |
//!
//! Read first: verbs.h, for which half of the interface is inline C that calls through
//! `ibv_context.ops` and `verbs_context`.

mod ah;
mod cancel;
mod context;
mod convert;
mod counter;
mod cq;
mod cq_ex;
mod device;
mod dm;
mod event;
mod fork;
mod gsi;
mod guard;
mod handle;
mod marshal;
mod mr;
mod mw;
mod name;
mod old;
mod pd;
mod private;
mod qp;
mod qp_ex;
mod query;
mod rate;
mod share;
mod srq;
mod sysfs;
#[cfg(not(test))]
mod versions;
mod xrcd;

#[cfg(test)]
mod objects;
#[cfg(test)]
mod signatures;
