//! `cargo xtask abi`: are our `libibverbs.so.1` and `librdmacm.so.1` the libraries that programs
//! were linked against?
//!
//! Five looks, each skipped loudly when the machine lacks what it compares with:
//! [`symbols`] (our table, our library, the installed library), [`layout`] (the C headers),
//! [`lookups`] (what NCCL does at run time), [`answers`] (functions without a device) and
//! [`programs`] (what the loader does).
//! Not here: behaviour, which the stock programs judge.

use anyhow::{Result, bail};
use lexopt::Parser;
use lexopt::prelude::{Long, ValueExt};

use crate::{cargo, dist};

mod answers;
mod bindings;
mod layout;
mod lookups;
mod programs;
mod symbols;

pub(crate) fn run(mut arguments: Parser) -> Result<()> {
    let mut profile = "release".to_owned();
    let mut include = "/usr/include".to_owned();
    let (mut regenerate, mut build) = (false, true);
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("regenerate") => regenerate = true,
            Long("include") => include = arguments.value()?.string()?,
            Long("profile") => profile = arguments.value()?.string()?,
            Long("no-build") => build = false,
            _ => bail!(argument.unexpected()),
        }
    }
    if regenerate {
        return bindings::regenerate(&include);
    }
    let folder = cargo::target_folder()?.join("feroce");
    if build {
        dist::build(&profile, &folder)?;
    }
    let library = folder.join("lib/libibverbs.so.1");
    let mut report = Report::default();
    symbols::check(&library, "ibverbs", "libibverbs1", &mut report)?;
    let manager = folder.join("lib/librdmacm.so.1");
    symbols::check(&manager, "rdmacm", "librdmacm1", &mut report)?;
    layout::check(&include, &mut report)?;
    lookups::check(&library, &mut report)?;
    answers::check(&library, &mut report)?;
    programs::check(&library, &mut report)?;
    report.finish()
}

/// What was looked at and what was found wrong.
#[derive(Debug, Default)]
struct Report {
    checks: usize,
    skipped: Vec<String>,
    faults: Vec<String>,
}

impl Report {
    fn passed(&mut self, what: &str) {
        self.checks += 1;
        println!("ok       {what}");
    }

    fn skip(&mut self, what: String) {
        println!("SKIPPED  {what}");
        self.skipped.push(what);
    }

    fn fault(&mut self, what: String) {
        println!("WRONG    {what}");
        self.faults.push(what);
    }

    /// Counts a check as passed unless it added a fault since `faults_before`.
    fn conclude(&mut self, faults_before: usize, what: &str) {
        if self.faults.len() == faults_before {
            self.passed(what);
        }
    }

    fn finish(self) -> Result<()> {
        let Self {
            checks,
            skipped,
            faults,
        } = self;
        println!(
            "abi: {checks} passed, {} failed, {} skipped",
            faults.len(),
            skipped.len()
        );
        if faults.is_empty() {
            Ok(())
        } else {
            bail!("the ABI differs in {} places", faults.len())
        }
    }
}
