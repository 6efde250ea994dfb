//! Scenarios of two communication managers. Each reads like a trace: what is called, what goes
//! over the wire, what either program is told.

mod bench;
mod connecting;
mod leaving;
mod random;
mod refusing;
