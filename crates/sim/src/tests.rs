//! Runs that are judged as a whole.

mod network;
mod roce;
