//! rsockets: the calls of sockets over queue pairs.
//!
//! They are built like a program, on the C interfaces of `rdma_cma.h` and `verbs.h` only
//! (`feroce_verbs_abi::functions`), and speak the protocol of rdma-core's own on the wire.
//!
//! | module | what it holds |
//! |---|---|
//! | `entry` | the C entry points |
//! | `table` | which descriptor is which socket; forks |
//! | `socket`, `service` | streams: connecting, accepting, waiting; idle work |
//! | `connection` | a connected stream over its queue pair |
//! | `stream`, `ring` | the protocol of streams, without I/O |
//! | `datagram`, `peers` | datagram sockets, and what they know of others |
//! | `polling` | `rpoll` and `rselect` |
//! | `wire` | formats of both |
//! | `options`, `gather`, `wait`, `verbs`, `sys` | settings, buffers, wake-ups, objects, calls |
//!
//! Read first: rsocket(7).

mod connection;
mod datagram;
mod entry;
mod gather;
mod options;
mod peers;
mod polling;
mod ring;
mod service;
mod socket;
mod stream;
mod sys;
mod table;
mod verbs;
mod wait;
mod wire;
