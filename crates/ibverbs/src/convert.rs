//! C to Rust and back.
