//! `feroce run -- PROGRAM ARGUMENTS…`: the program finds Feroce where it looks for RDMA devices.
//!
//! This process prepares the environment and then *becomes* the program (`exec`). Staying behind as
//! a parent would have to relay signals, terminal control and exit states, could not relay
//! `kill -9`, and would show up in every process listing; this way the process one starts, watches
//! and kills is the program itself. The price is that nobody is left to remove the view's files
//! when the program ends: `folder` says how that is done.
//!
//! What the program is given: `LD_LIBRARY_PATH` (our `libibverbs.so.1` first), `LD_PRELOAD` (the
//! shim last), `FEROCE_VIEW` (the files the shim shows), and the settings below.

pub(crate) mod folder;
mod libraries;
mod listing;
mod program;
pub(crate) mod view;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use feroce_netio::lossy::{Impairment, ImpairmentError};

use folder::RunFolder;
use libraries::Libraries;
use listing::Listing;
use view::DeviceView;

/// Exit status when Feroce itself failed, so that it is not taken for the program's.
const FAILURE: u8 = 125;

/// Run a program with Feroce's RDMA devices
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Exit status: the program's own; 125 if Feroce could not prepare it, 126 if it \
                  cannot be executed, 127 if it does not exist."
)]
pub(crate) struct Arguments {
    /// Show the program only this device; may be given again (`feroce devices` lists all)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    device: Vec<String>,
    /// Impair what the program sends, for tests, such as loss=1%,delay=1ms
    #[arg(long, value_name = "SPEC", value_parser = link)]
    link: Option<String>,
    /// Capture every frame into this pcapng file
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Say on standard error what Feroce does
    #[arg(long, value_name = "LEVEL",
          value_parser = PossibleValuesParser::new(["error", "warn", "info", "debug", "trace"]))]
    log: Option<String>,
    /// Write the counters into this file when the program ends
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// A link that the library will accept, as it was written.
fn link(text: &str) -> Result<String, ImpairmentError> {
    text.parse::<Impairment>().map(|_| text.to_owned())
}

/// Becomes the program; returns only if that failed.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let [name, rest @ ..] = arguments.command.as_slice() else {
        return fail(FAILURE, "no program was named");
    };
    let path = match program::find(name) {
        Ok(path) => path,
        Err(reason) => return fail(reason.status, &reason.message),
    };
    if let Some(obstacle) = program::obstacle(&path) {
        warn(&format!("{} {obstacle}", name.display()));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(rest);
    let folder = match prepare(arguments, &mut command) {
        Ok(folder) => folder,
        Err(error) => return fail(FAILURE, &format!("{error:#}")),
    };
    let error = command.exec();
    if let Some(folder) = folder {
        folder.remove();
    }
    // The file itself was there a moment ago.
    let reason = match error.kind() {
        ErrorKind::NotFound => "its interpreter or loader does not exist".to_owned(),
        _ => error.to_string(),
    };
    fail(126, &format!("{}: {reason}", name.display()))
}

/// Sets the environment, and makes the view if there can be one.
fn prepare(arguments: &Arguments, command: &mut Command) -> Result<Option<RunFolder>> {
    let libraries = Libraries::find()?;
    command.env(
        "LD_LIBRARY_PATH",
        libraries.library_path(env::var_os("LD_LIBRARY_PATH")),
    );
    command.env("LD_PRELOAD", libraries.preload(env::var_os("LD_PRELOAD")));
    set_options(arguments, command)?;
    let devices = Listing::take()?.select(&arguments.device)?;
    let nodes: &[&str] = match libraries.have_connection_manager() {
        true => &[view::CONNECTION_MANAGER],
        false => &[],
    };
    let view = make_view(&bases(), &devices, nodes);
    match view {
        Ok(folder) => {
            command.env("FEROCE_VIEW", folder.path());
            Ok(Some(folder))
        }
        Err(reason) => {
            command.env_remove("FEROCE_VIEW");
            warn(&format!(
                "no view of /sys/class/infiniband could be made ({reason}); going on without: \
                 programs that read it (UCX, Mooncake, perftest -W) find no device"
            ));
            Ok(None)
        }
    }
}

fn set_options(arguments: &Arguments, command: &mut Command) -> Result<()> {
    if !arguments.device.is_empty() {
        command.env("FEROCE_DEVICE", arguments.device.join(","));
    }
    if let Some(link) = &arguments.link {
        command.env("FEROCE_LINK", link);
    }
    if let Some(level) = &arguments.log {
        command.env("FEROCE_LOG", level);
    }
    for (variable, file) in [
        ("FEROCE_PCAP", &arguments.pcap),
        ("FEROCE_STATS", &arguments.stats),
    ] {
        if let Some(file) = file {
            // The program may change its folder before the file is opened.
            let file = std::path::absolute(file).with_context(|| file.display().to_string())?;
            command.env(variable, file);
        }
    }
    Ok(())
}

/// Where the folder may be: where the user wants temporary files, else in memory, else on disk.
fn bases() -> Vec<PathBuf> {
    let named = env::var_os("TMPDIR")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from);
    let usual = ["/dev/shm", "/tmp"].map(PathBuf::from);
    named
        .into_iter()
        .chain(usual)
        .filter(|base| base.is_absolute())
        .collect()
}

fn make_view(
    bases: &[PathBuf],
    devices: &[DeviceView],
    nodes: &[&str],
) -> Result<RunFolder, String> {
    let folder = RunFolder::create(bases)?;
    let made =
        view::write(folder.path(), devices, nodes, processors()).and_then(|()| folder.hand_over());
    match made {
        Ok(heirloom) => {
            heirloom.keep();
            Ok(folder)
        }
        Err(error) => {
            let reason = format!("{}: {error}", folder.path().display());
            folder.remove();
            Err(reason)
        }
    }
}

/// Processors of the machine, as a count.
fn processors() -> usize {
    // Such as `0-1`; unlike the scheduler's answer it does not depend on this process' affinity.
    let present = fs::read_to_string(Path::new("/sys/devices/system/cpu/present"));
    let last = present
        .ok()
        .and_then(|text| text.trim().rsplit(['-', ',']).next()?.parse().ok());
    last.map_or(1, |last: usize| last.saturating_add(1))
}

fn warn(message: &str) {
    eprintln!("feroce run: warning: {message}");
}

fn fail(status: u8, message: &str) -> ExitCode {
    eprintln!("feroce run: {message}");
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_that_cannot_be_made_says_where_it_was_tried() {
        let error = make_view(&["/nonexistent".into()], &[], &[]).unwrap_err();
        assert!(error.starts_with("/nonexistent: "), "{error}");
    }

    #[test]
    fn this_machine_has_processors() {
        assert!(processors() >= std::thread::available_parallelism().unwrap().get());
    }
}
