//! Scenarios on two devices.
