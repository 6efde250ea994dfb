//! The safe Rust verbs API
