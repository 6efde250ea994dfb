//! Tests of MetaRoCE: two endpoints, a network in between, packets told in a few words.

mod basic;
mod congestion;
mod counters;
mod craft;
mod handshake;
mod pair;
mod paths;
mod random;
mod reliability;
mod security;
mod streams;
