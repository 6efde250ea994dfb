//! Fuzz targets: plain functions that take any bytes and must neither panic, hang nor let a check
//! fail.
//!
//! Each returns the [`Features`] of what happened. libFuzzer has its own measure and ignores them;
//! the built-in [`driver`] keeps inputs with new ones. A target is a module with `run` and `seeds`,
//! a line in [`TARGETS`], and a program in `fuzz_targets/`.

pub mod capture;
mod choice;
pub mod cm_machine;
pub mod cm_mad;
pub mod driver;
pub mod lossy_spec;
pub mod mem_table;
mod packets;
pub mod responder;
pub mod slot_message;
pub mod wire_icrc;
pub mod wire_packet;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, also of its program.
    pub name: &'static str,
    /// Runs it once.
    pub run: fn(&[u8]) -> Features,
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Longest input worth trying, in bytes.
    pub len_max: usize,
}

/// All targets, by name.
pub const TARGETS: [Target; 9] = [
    Target {
        name: "capture",
        run: capture::run,
        seeds: capture::seeds,
        len_max: 4096,
    },
    Target {
        name: "cm_machine",
        run: cm_machine::run,
        seeds: cm_machine::seeds,
        len_max: 1024,
    },
    Target {
        name: "cm_mad",
        run: cm_mad::run,
        seeds: cm_mad::seeds,
        len_max: 300,
    },
    Target {
        name: "lossy_spec",
        run: lossy_spec::run,
        seeds: lossy_spec::seeds,
        len_max: 256,
    },
    Target {
        name: "mem_table",
        run: mem_table::run,
        seeds: mem_table::seeds,
        len_max: 1024,
    },
    Target {
        name: "responder",
        run: responder::run,
        seeds: responder::seeds,
        len_max: 1024,
    },
    Target {
        name: "slot_message",
        run: slot_message::run,
        seeds: slot_message::seeds,
        len_max: 1024,
    },
    Target {
        name: "wire_icrc",
        run: wire_icrc::run,
        seeds: wire_icrc::seeds,
        len_max: 8192,
    },
    Target {
        name: "wire_packet",
        run: wire_packet::run,
        seeds: wire_packet::seeds,
        len_max: 8192,
    },
];

/// What an input made a target do, as numbers that only mean something to that target. There
/// should be few of them, hundreds at most over all inputs, or everything looks new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features(Vec<u32>);

impl Features {
    /// A single one.
    pub fn of(feature: u32) -> Self {
        Self(vec![feature])
    }

    /// Adds one.
    pub fn add(&mut self, feature: u32) {
        if !self.0.contains(&feature) {
            self.0.push(feature);
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

/// How large a number is, in bits.
fn magnitude(number: usize) -> u32 {
    usize::BITS - number.leading_zeros()
}
