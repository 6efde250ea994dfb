//! The `feroce` command: its subcommands are thin, what they do lies in a module each.

mod dissect;
mod run;

use std::process::ExitCode;

use anyhow::{Result, bail};
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
    Dissect(dissect::Arguments),
    Run(run::Arguments),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Dissect(arguments) => dissect::run(&arguments),
        Command::Run(arguments) => run::run(&arguments, device_views),
    }
}

/// The devices of this machine, as the view shows them.
fn device_views() -> Result<Vec<run::view::DeviceView>> {
    bail!("this build cannot list devices yet")
}
