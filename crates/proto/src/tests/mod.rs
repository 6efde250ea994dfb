//! Scenarios on two devices. Each reads like a packet trace: `a` is the requester unless the
//! name says otherwise, and `a write first 0` is a packet that left `a`.

mod congestion;
mod faults;
mod hostile;
mod limits;
pub(crate) mod random;
mod recovery;
mod refusals;
mod reliable;
mod shared;
mod states;
mod unreliable;
