//! What the tests of this crate share: a seeded PRNG, toy hosts, two devices joined by a wire.

mod host;
mod pair;
mod random;
mod wire;

pub(crate) use host::{BASE, Grant, KEY, PD, ToyHost};
pub(crate) use pair::{
    ALL_ACCESS, End, Pair, Setup, Wr, ack_frame, address_of, atomic_frame, bring_up, fetch_add,
    flushed, frame, ok, path, read, read_from, recv, remote, request_frame, reth, send, sge, write,
    write_to,
};
pub(crate) use random::Random;
pub(crate) use wire::{Fate, Impairment};
