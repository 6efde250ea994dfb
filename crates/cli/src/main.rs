//! The `feroce` command.
fn main() {}
