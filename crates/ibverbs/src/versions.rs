//! Defines the names that are not plainly a Rust function under its default version: older twins,
//! the provider interface under several nodes. `build.rs` writes the text from `symbols.txt`.
//! Not in test programs, which have no version nodes.

core::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/aliases.s")));
