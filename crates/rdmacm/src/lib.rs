//! `librdmacm.so.1`: connections by IP address, for programs that were linked against rdma-core.
//!
//! An entry point states its contract, converts, calls safe code, converts back. The messages on
//! the wire and their states are `feroce_proto::cm`; datagrams and ports come from our own
//! `libibverbs.so.1` (`feroce_verbs_abi::gsi`), and so do queue pairs, through the plain C
//! interface. cargo builds a static archive; `cargo xtask dist` links the library from it, with the
//! names and versions of `symbols.txt`.
//!
//! | module | what it holds |
//! |---|---|
//! | `id`, `connect`, `answer`, `channel`, `queue`, `endpoint` | entry points |
//! | `addrinfo`, `multicast`, `listing`, `name` | more of them |
//! | `world` | everything behind one lock, and the thread that keeps it going |
//! | `happen` | what an event on the wire, or of the interfaces, does to identifiers |
//! | `again` | asking again where nobody listens for a moment |
//! | `device`, `route`, `address`, `sys` | devices, ways, addresses, system calls |
//! | `state` | what is known of an identifier, an event, a channel |
//! | `guard` | what surrounds every entry point |
//! | `rsocket` | sockets calls over queue pairs |
//!
//! Read first: rdma_cm(7), and `rdma_cma.h`, whose names the modules keep.

mod address;
mod addrinfo;
mod again;
mod answer;
mod channel;
mod connect;
mod device;
mod endpoint;
mod guard;
mod happen;
mod id;
mod listing;
mod multicast;
mod name;
mod queue;
mod route;
mod rsocket;
mod state;
mod sys;
mod world;
