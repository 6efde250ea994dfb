//! libibverbs.so.1: C exports over the Rust verbs API
