//! Tests of MetaRoCE: two endpoints, a network in between, packets told in a few words.

mod basic;
mod pair;
mod random;
