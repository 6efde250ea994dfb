//! `cargo xtask guest …`: a virtual machine with Linux's soft-RoCE as a foreign peer.
//!
//! It needs no RDMA hardware, no driver on this machine and no KVM: qemu emulates the processor.
//! The guest sees this machine's files (read-only), so whatever is installed here runs there.
//! `tests/rxe-vm/README.md` says what it is good for and what not.

mod agent;
mod case;
mod cm;
pub(crate) mod image;
mod interop;
mod kernel;
pub(crate) mod machine;
mod network;
pub(crate) mod side;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use lexopt::Parser;
use lexopt::prelude::{Long, Short, Value, ValueExt};

use machine::{Machine, Network, Settings};

const USAGE: &str = "\
cargo xtask guest COMMAND

  build                                    fetch Debian's kernel into target/rxe-vm
  run [--tap NAME] [--limit SECONDS] SCRIPT  boot, run a bash script inside, take its status
  interop [OPTIONS]                        stock programs between soft-RoCE and Feroce
      --quick            a few cases of each kind
      --only TEXT        cases whose name contains TEXT; may be given again, all must match
      --list             name the cases and stop
      --ours COMMAND     how our end runs a program (default: target/feroce/bin/feroce run --)
      --ours-device NAME the device of our end (default: roce_ and its interface)
      --self-check       a second guest takes our place: judges this harness
";

pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let command = match arguments.next()? {
        Some(Value(command)) => command.string()?,
        Some(Short('h') | Long("help")) | None => {
            print!("{USAGE}");
            return Ok(());
        }
        Some(other) => bail!("{}\n\n{USAGE}", other.unexpected()),
    };
    match command.as_str() {
        "build" => {
            let image = image::Image::build()?;
            println!("{}", image.kernel.display());
            Ok(())
        }
        "run" => run_script(arguments),
        "interop" => interop::run(arguments),
        other => bail!("no command guest {other}\n\n{USAGE}"),
    }
}

fn run_script(mut arguments: Parser) -> Result<()> {
    let (mut network, mut limit, mut script) = (Network::None, 300, None);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("tap") => network = Network::Tap(arguments.value()?.string()?),
            Long("limit") => limit = arguments.value()?.parse()?,
            Value(path) if script.is_none() => script = Some(PathBuf::from(path)),
            other => bail!("{}\n\n{USAGE}", other.unexpected()),
        }
    }
    let script = script.with_context(|| format!("no script was named\n\n{USAGE}"))?;
    let image = image::Image::build()?;
    let settings = Settings {
        network,
        show_console: true,
        ..Settings::default()
    };
    let machine = Machine::boot(&image, &settings, Command::new)?;
    machine.share(&script, "script")?;
    // The console carries the output as it comes.
    let command = "bash /run/guest/script >/dev/console 2>&1";
    let status = machine
        .agent()
        .run(command, Duration::from_secs(limit))?
        .status;
    machine.power_off();
    ensure!(
        status == 0,
        "{} ended with status {status}",
        script.display()
    );
    Ok(())
}
