//! Developer commands: `cargo xtask COMMAND`. Not here: what a command does; each has a module.

use std::process::ExitCode;

use anyhow::{Result, bail};

mod abi;
mod bench;
mod cargo;
mod ci;
mod dist;
mod fuzz;
mod guest;
mod instructions;
mod judge;
mod spec;
#[path = "../../ibverbs/symbols.rs"]
mod symbols;
mod tidy;

const USAGE: &str = "\
cargo xtask COMMAND

  ci                                       everything that must hold; what .ci/run calls
  packages                                 install, or name, what the checks use from Debian
  bench [--quick] [--only TEXT] [--help]   how fast, as ratios to what this machine can do
  dist [--profile NAME] [--out FOLDER]     build the programs and C libraries into target/feroce
  abi [--profile NAME] [--no-build]        compare libibverbs.so.1 with its table, headers, programs
  abi --regenerate [--include FOLDER]      write crates/verbs-abi again from the C headers
  fuzz [--seconds N] [TARGET…]             search for inputs that parsers and protocol do not bear
  guest COMMAND                            a virtual machine with soft-RoCE as a foreign peer
  instructions [--only TEXT] [--bless]     count those of the hot paths, compare with before
  judge [programs|captures|pyverbs|cm|consumers|rsockets|processes]
        [--device NAME] [--filter TEXT] [--quick]
                                           stock programs and rdma-core's own tests on the device
  spec [--write]                           the MetaRoCE specification: registry, code, tests
  tidy [--update]                          check limits of the house style; shrink tidy.allow
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = lexopt::Parser::from_env();
    let command = match arguments.next()? {
        Some(lexopt::Arg::Value(command)) => command,
        Some(lexopt::Arg::Short('h') | lexopt::Arg::Long("help")) | None => {
            print!("{USAGE}");
            return Ok(());
        }
        Some(other) => bail!("{}\n\n{USAGE}", other.unexpected()),
    };
    match command.to_str() {
        Some("ci") => ci::run(arguments),
        Some("packages") => ci::packages(arguments),
        Some("bench") => bench::run(arguments),
        Some("dist") => dist::run(arguments),
        Some("abi") => abi::run(arguments),
        Some("fuzz") => fuzz::run(arguments),
        Some("guest") => guest::run(arguments),
        Some("instructions") => instructions::run(arguments),
        Some("judge") => judge::run(arguments),
        Some("spec") => spec::run(arguments),
        Some("tidy") => tidy::run(arguments),
        _ => bail!("no command {}\n\n{USAGE}", command.display()),
    }
}
