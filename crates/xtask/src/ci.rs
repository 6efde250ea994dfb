//! `cargo xtask ci`: everything that must hold, in the order of its cost. `.ci/run` calls this and
//! nothing else, so that home and CI are the same.
//!
//! `cargo xtask packages` installs what the checks use from Debian, when we may.

use crate::judge::{self, find_program, is_root};
use crate::{abi, bench, cargo, dist, fuzz, guest, instructions, spec, tidy};
use anyhow::{Context, Result, bail};
use lexopt::Parser;
use std::process::Command;
use std::time::Instant;

/// Debian packages that the checks use, and a program or file of each that tells it is there.
const PACKAGES: &[(&str, &str)] = &[
    ("gcc", "cc"),
    ("perftest", "ib_write_bw"),
    ("iperf3", "iperf3"),
    ("linux-perf", "perf"),
    ("ibverbs-utils", "ibv_rc_pingpong"),
    ("rdmacm-utils", "rping"),
    ("libibverbs-dev", "/usr/include/infiniband/verbs.h"),
    ("librdmacm-dev", "/usr/include/rdma/rdma_cma.h"),
    ("rdma-core", "/usr/share/doc/rdma-core/tests/run_tests.py"),
    ("python3-pyverbs", "/usr/lib/python3/dist-packages/pyverbs"),
    ("tshark", "tshark"),
    ("iproute2", "ip"),
    ("qemu-system-x86", "qemu-system-x86_64"),
    ("kmod", "depmod"),
    ("cpio", "cpio"),
    ("busybox-static", "busybox"),
    ("valgrind", "valgrind"),
    ("procps", "ps"),
    ("ucx-utils", "ucx_perftest"),
    ("libfabric-bin", "fi_pingpong"),
    ("openmpi-bin", "mpirun.openmpi"),
    ("libopenmpi-dev", "mpicc.openmpi"),
    ("mpich", "mpirun.mpich"),
    ("libmpich-dev", "mpicc.mpich"),
    ("netpipe-openmpi", "NPopenmpi"),
    ("netpipe-mpich2", "NPmpich2"),
    ("qperf", "qperf"),
    ("iperf", "iperf"),
    ("fio", "fio"),
];

/// Seconds for each fuzz target.
const FUZZ_SECONDS: &str = "10";

/// Installs missing packages, or names them.
pub(crate) fn packages(mut arguments: Parser) -> Result<()> {
    if let Some(argument) = arguments.next()? {
        bail!(argument.unexpected());
    }
    install_packages();
    Ok(())
}

fn install_packages() {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, proof)| !is_there(proof))
        .map(|&(package, _)| package)
        .collect();
    if missing.is_empty() {
        return;
    }
    let list = missing.join(" ");
    if !is_root() || find_program("apt-get").is_none() {
        println!("SKIPPED packages: not installed, and we may not install them: {list}");
        println!("         as root: apt-get install --no-install-recommends {list}");
        return;
    }
    println!("installing {list}");
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .is_ok_and(|status| status.success())
    };
    apt(&["update", "-qq"]);
    // One by one: a package that this release lacks must not cost the others.
    for package in missing {
        if !apt(&["install", "-y", "-qq", "--no-install-recommends", package]) {
            println!("SKIPPED package {package}: apt-get could not install it");
        }
    }
}

fn is_there(proof: &str) -> bool {
    if proof.starts_with('/') {
        std::path::Path::new(proof).exists()
            || std::path::Path::new(&format!("{proof}.gz")).exists()
    } else {
        find_program(proof).is_some()
    }
}

/// Runs all checks.
pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    if let Some(argument) = arguments.next()? {
        bail!(argument.unexpected());
    }
    let started = Instant::now();
    install_packages();
    let mut steps = Steps::default();
    steps.cargo("format", &["fmt", "--all", "--check"])?;
    steps.cargo(
        "lints",
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ],
    )?;
    steps.step("tidy", || tidy::run(Parser::from_args([""; 0])))?;
    steps.step("specification", || spec::run(Parser::from_args([""; 0])))?;
    steps.tests()?;
    steps.cargo("doctests", &["test", "--workspace", "--doc", "--quiet"])?;
    steps.documentation()?;
    steps.step("dist", || dist::run(Parser::from_args([""; 0])))?;
    steps.step("abi", || abi::run(Parser::from_args(["--no-build"])))?;
    steps.step("instructions", || {
        instructions::run(Parser::from_args([""; 0]))
    })?;
    // Whether it still measures; no figure is judged, the machine may be busy.
    steps.step("bench", || {
        bench::run(Parser::from_args(["--quick", "--rounds", "1"]))
    })?;
    steps.step("fuzz", || {
        fuzz::run(Parser::from_args(["--seconds", FUZZ_SECONDS]))
    })?;
    steps.step("judges", || judge::run(Parser::from_args([""; 0])))?;
    steps.step("foreign peer", || {
        guest::run(Parser::from_args(["interop", "--quick"]))
    })?;
    println!("all checks took {} s", started.elapsed().as_secs());
    Ok(())
}

#[derive(Default)]
struct Steps {
    number: u32,
}

impl Steps {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.number += 1;
        println!("== {}. {name}", self.number);
        let started = Instant::now();
        work().with_context(|| name.to_owned())?;
        println!("== {name}: good, {} s", started.elapsed().as_secs());
        Ok(())
    }

    fn cargo(&mut self, name: &str, arguments: &[&str]) -> Result<()> {
        self.step(name, || {
            let mut command = cargo::command();
            command.args(arguments);
            status(command)
        })
    }

    /// With nextest where it is installed, else with cargo's own runner.
    fn tests(&mut self) -> Result<()> {
        if find_program("cargo-nextest").is_some() {
            self.cargo(
                "tests",
                &["nextest", "run", "--workspace", "--profile", "ci"],
            )
        } else {
            self.cargo(
                "tests",
                &[
                    "test",
                    "--workspace",
                    "--lib",
                    "--bins",
                    "--tests",
                    "--examples",
                ],
            )
        }
    }

    fn documentation(&mut self) -> Result<()> {
        self.step("documentation", || {
            let mut command = cargo::command();
            command.args(["doc", "--workspace", "--no-deps", "--quiet"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            status(command)
        })
    }
}

fn status(mut command: Command) -> Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("{status}");
    }
    Ok(())
}
