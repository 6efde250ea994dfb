//! Tests of MetaRoCE: two endpoints, a network in between, packets told in a few words.

mod basic;
mod craft;
mod handshake;
mod pair;
mod random;
mod security;
