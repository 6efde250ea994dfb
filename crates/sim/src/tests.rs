//! Runs that are judged as a whole.

mod experiments;
mod metaroce;
mod network;
mod roce;
