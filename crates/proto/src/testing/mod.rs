//! What the tests of this crate share: a seeded PRNG, toy hosts, two devices joined by a wire.

mod random;

pub(crate) use random::Random;
