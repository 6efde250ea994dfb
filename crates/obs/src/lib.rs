//! Counters, logging and pcapng captures

pub mod frame;
pub mod read;
