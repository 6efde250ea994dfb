//! The built-in fuzzer as a program, for `cargo xtask fuzz`, which tells what the arguments are.

use feroce_fuzz::driver::{self, Options};
use feroce_fuzz::{TARGETS, Target};
use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
list | seeds FOLDER TARGET | replay FILE TARGET | search FOLDER SEED SECONDS TARGET";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> Result<String, String> {
    match *arguments {
        ["list"] => Ok(TARGETS.map(|target| target.name).join("\n")),
        ["seeds", folder, name] => {
            fs::create_dir_all(folder).map_err(|error| format!("{folder}: {error}"))?;
            let seeds = (target(name)?.seeds)();
            for (number, seed) in seeds.iter().enumerate() {
                let path = Path::new(folder).join(format!("seed-{number}"));
                fs::write(&path, seed).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Ok(format!("{name}: {} seeds", seeds.len()))
        }
        ["replay", file, name] => {
            let input = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            let features = (target(name)?.run)(&input);
            Ok(format!("{name}: {file} passes: {features:?}"))
        }
        ["search", failures, seed, seconds, name] => {
            let target = target(name)?;
            let options = Options {
                seed: number(seed)?,
                time: Duration::from_secs(number(seconds)?),
                runs: u64::MAX,
                failures: failures.into(),
            };
            match driver::search(target, &options) {
                Ok(tally) => Ok(format!(
                    "{name}: {} inputs, {} kept, none fails",
                    tally.runs, tally.kept
                )),
                Err(failure) => {
                    let message = format!("input {}: {}", failure.runs, failure.message);
                    Err(driver::report(
                        name,
                        &message,
                        &failure.input,
                        &options.failures,
                    ))
                }
            }
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn target(name: &str) -> Result<&'static Target, String> {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.ok_or_else(|| {
        let names = TARGETS.map(|target| target.name).join(", ");
        format!("no fuzz target {name}; there are {names}")
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("{text}: expected a number"))
}
