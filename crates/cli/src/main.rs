//! The `feroce` command: its subcommands are thin, what they do lies in a module each.

mod devices;
mod dissect;
mod perf;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// RDMA over Ethernet as software: devices for any program, without a network card or the kernel
#[derive(Debug, Parser)]
#[command(name = "feroce", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Devices(devices::Arguments),
    Dissect(dissect::Arguments),
    Perf(perf::Arguments),
    #[command(hide = true)]
    PerfServe(perf::serve::Arguments),
    Run(run::Arguments),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Dissect(arguments) => dissect::run(&arguments),
        Command::Perf(arguments) => perf::run(&arguments),
        Command::PerfServe(arguments) => perf::serve::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
    }
}
