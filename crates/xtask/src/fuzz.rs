//! `cargo xtask fuzz`: runs the targets of `fuzz/`, each for some seconds.
//!
//! With cargo-fuzz where it is installed (`cargo install cargo-fuzz`), which sees coverage and runs
//! under AddressSanitizer; else, and whenever a seed is given, with the driver of `fuzz/`, which
//! needs nothing but Rust. What is searched for is told in `fuzz/src/lib.rs`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use lexopt::{Arg, Parser, ValueExt};
use serde::Deserialize;

use crate::cargo;

const USAGE: &str = "\
cargo xtask fuzz [--seconds N] [--seed N] [TARGET…]   all targets, or these
cargo xtask fuzz --replay FILE TARGET                 one input that failed
cargo xtask fuzz --list                               names of the targets";

/// Seconds for each target unless asked otherwise.
const SECONDS: u64 = 10;

/// Memory of a fuzzing process, in MiB: far more than any input may cost.
const MEMORY_MIB_MAX: u64 = 1024;

/// Seconds for one input; the built-in driver has the same limit.
const INPUT_SECONDS_MAX: u64 = 10;

#[derive(Debug, Default)]
struct Options {
    seconds: Option<u64>,
    seed: Option<u64>,
    replay: Option<PathBuf>,
    list: bool,
    targets: Vec<String>,
}

impl Options {
    fn parse(mut arguments: Parser) -> Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Arg::Long("seconds") => options.seconds = Some(arguments.value()?.parse()?),
                Arg::Long("seed") => options.seed = Some(arguments.value()?.parse()?),
                Arg::Long("replay") => options.replay = Some(arguments.value()?.into()),
                Arg::Long("list") => options.list = true,
                Arg::Value(target) => options.targets.push(target.string()?),
                other => bail!("{}\n\n{USAGE}", other.unexpected()),
            }
        }
        Ok(options)
    }
}

/// Runs as the arguments say.
pub(crate) fn run(arguments: Parser) -> Result<()> {
    let options = Options::parse(arguments)?;
    let driver = Driver::build()?;
    if options.list {
        return driver.run(&["list"]);
    }
    if let Some(file) = &options.replay {
        let [target] = &options.targets[..] else {
            bail!("a replay needs one target\n\n{USAGE}");
        };
        // The caller's folder and ours may differ.
        let file = std::path::absolute(file)?.display().to_string();
        return driver.run(&["replay", &file, target]);
    }
    let all = driver.names()?;
    let targets = if options.targets.is_empty() {
        &all
    } else {
        &options.targets
    };
    for target in targets {
        ensure!(
            all.contains(target),
            "no target {target}; there are {}",
            all.join(", ")
        );
    }
    let seconds = options.seconds.unwrap_or(SECONDS);
    let cargo_fuzz = options.seed.is_none() && has_cargo_fuzz();
    let seed = options.seed.unwrap_or_else(seed_of_commit);
    let mut failed = Vec::new();
    for target in targets {
        let result = if cargo_fuzz {
            fuzz(&driver, target, seconds)
        } else {
            driver.search(target, seed, seconds)
        };
        if let Err(error) = result {
            eprintln!("{error:#}");
            failed.push(target.as_str());
        }
    }
    ensure!(
        failed.is_empty(),
        "fuzz targets failed: {}",
        failed.join(", ")
    );
    Ok(())
}

fn fuzz_folder() -> PathBuf {
    cargo::workspace().join("fuzz")
}

/// cargo in the fuzz workspace, with its own flags and nobody else's.
fn fuzz_cargo() -> Command {
    let mut command = cargo::command();
    command.current_dir(fuzz_folder());
    command
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

fn has_cargo_fuzz() -> bool {
    let output = cargo::command()
        .args(["fuzz", "--version"])
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| output.status.success())
}

/// Every commit gets inputs of its own, and the same ones on every machine.
fn seed_of_commit() -> u64 {
    let output = Command::new("git")
        .current_dir(cargo::workspace())
        .args(["rev-parse", "HEAD"])
        .output();
    let seed = output.ok().and_then(|output| {
        let hash = String::from_utf8(output.stdout).ok()?;
        u64::from_str_radix(hash.get(..16)?, 16).ok()
    });
    seed.unwrap_or(1)
}

/// Runs cargo-fuzz on one target, from our seeds and what earlier runs found.
fn fuzz(driver: &Driver, target: &str, seconds: u64) -> Result<()> {
    let corpus = fuzz_folder()
        .join("corpus")
        .join(target)
        .display()
        .to_string();
    driver.run(&["seeds", &corpus, target])?;
    let status = cargo::command()
        .args(["fuzz", "run", target, &corpus, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS_MAX}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}"))
        // Sanitizers are not stable; a stable compiler has them all the same.
        .env("RUSTC_BOOTSTRAP", "1")
        .status()
        .context("cargo fuzz")?;
    ensure!(status.success(), "{target} FAILED, see above for the input");
    Ok(())
}

/// The built-in fuzzer, a program.
struct Driver(PathBuf);

impl Driver {
    fn build() -> Result<Self> {
        #[derive(Deserialize)]
        struct Message {
            executable: Option<PathBuf>,
        }
        let mut cargo = fuzz_cargo();
        cargo.args([
            "build",
            "--release",
            "--no-default-features",
            "--example",
            "drive",
        ]);
        cargo.arg("--message-format=json-render-diagnostics");
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .context("cargo build")?;
        ensure!(output.status.success(), "the fuzz targets do not build");
        let lines = output.stdout.split(|&byte| byte == b'\n');
        let mut messages = lines.filter_map(|line| serde_json::from_slice::<Message>(line).ok());
        let program = messages.find_map(|message| message.executable);
        Ok(Self(program.context("cargo built no fuzz driver")?))
    }

    /// The program with its memory bounded: what takes more dies.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let limit = MEMORY_MIB_MAX * 1024;
        command.args(["-c", &format!("ulimit -v {limit}; exec \"$0\" \"$@\"")]);
        command.arg(&self.0).current_dir(cargo::workspace());
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<()> {
        let status = self
            .command()
            .args(arguments)
            .status()
            .context("the fuzz driver")?;
        ensure!(
            status.success(),
            "{} ended with {status}",
            arguments.join(" ")
        );
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>> {
        let output = self
            .command()
            .arg("list")
            .output()
            .context("the fuzz driver")?;
        ensure!(
            output.status.success(),
            "the fuzz driver ended with {}",
            output.status
        );
        let text = String::from_utf8(output.stdout)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    fn search(&self, target: &str, seed: u64, seconds: u64) -> Result<()> {
        println!("fuzzing {target}: seed {seed}, {seconds} s");
        let failures = Path::new("fuzz/failures");
        let mut command = self.command();
        command.arg("search").arg(failures);
        command.args([&seed.to_string(), &seconds.to_string(), target]);
        let status = command.status().context("the fuzz driver")?;
        match status.code() {
            Some(0) => Ok(()),
            Some(_) => bail!("{target} FAILED, see above"),
            None => bail!(
                "{target} FAILED: {status}, so an input took all memory or the whole stack\n\
                 replay: cargo xtask fuzz --seed {seed} --seconds {seconds} {target}"
            ),
        }
    }
}
