//! Runs that are judged as a whole.

mod experiments;
mod network;
mod roce;
