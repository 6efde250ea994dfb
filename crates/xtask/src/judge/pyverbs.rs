//! rdma-core's own tests, as Debian ships them (`python3-pyverbs`, tests in `rdma-core`).

use super::pair::Running;
use super::programs::Stage;
use super::{Outcome, Tally, find_program};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where Debian's `rdma-core` keeps the tests, some of them compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Debian's own Python: the module is built for it.
const PYTHON: &str = "/usr/bin/python3";

/// How long the whole suite may take.
const LIMIT: Duration = Duration::from_secs(600);

/// Tests that must pass at least; soft-RoCE of Linux 6.1 passes 86.
const PASSED_MIN: usize = 140;

/// What the suite said.
#[derive(Debug, Default)]
struct Results {
    passed: usize,
    bad: Vec<String>,
    skipped: BTreeMap<String, usize>,
}

/// Runs the suite (or the tests that `filter` names) and judges it.
pub(crate) fn run(stage: &Stage, filter: &str) -> Tally {
    let mut tally = Tally::default();
    let outcome = match missing() {
        Some(what) => Outcome::Skipped(what),
        None => judge(stage, filter).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
    };
    tally.note("rdma-core's own tests (pyverbs)", &outcome);
    tally
}

fn missing() -> Option<String> {
    if !Path::new(TESTS).is_dir() {
        return Some("rdma-core with its tests is not installed".into());
    }
    if find_program("gunzip").is_none() {
        return Some("gzip is not installed".into());
    }
    let imports = Command::new(PYTHON).args(["-c", "import pyverbs"]).status();
    if !imports.is_ok_and(|status| status.success()) {
        return Some("python3-pyverbs is not installed".into());
    }
    None
}

fn judge(stage: &Stage, filter: &str) -> Result<Outcome> {
    let folder = stage.scratch.join("pyverbs");
    unpack(&folder)?;
    if !stage.has_connection_manager() {
        skip_connection_manager(&folder)?;
    }
    let statistics = stage.scratch.join("pyverbs-statistics");
    let mut command = stage.command(PYTHON, &statistics);
    command.arg(folder.join("tests/run_tests.py"));
    command.args(["-v", "--dev", &stage.device, "--gid", &stage.gid]);
    if !filter.is_empty() {
        command.args(["-k", filter]);
    }
    command
        .current_dir(&folder)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = Running::start(command, &stage.scratch, "pyverbs")?.finish(Instant::now() + LIMIT);
    let results = read(&ended.output);
    println!(
        "pyverbs: {} passed, {} skipped",
        results.passed,
        results.skipped.values().sum::<usize>()
    );
    for (reason, count) in &results.skipped {
        println!("pyverbs: {count:4} skipped: {reason}");
    }
    if ended.status.is_none() || !results.bad.is_empty() {
        return Ok(Outcome::Failed(format!(
            "{}\n{}",
            results.bad.join("\n"),
            ended.describe()
        )));
    }
    if filter.is_empty() && results.passed < PASSED_MIN {
        return Ok(Outcome::Failed(format!(
            "{} tests passed, fewer than {PASSED_MIN}\n{}",
            results.passed,
            ended.describe()
        )));
    }
    Ok(Outcome::Passed)
}

fn unpack(folder: &Path) -> Result<()> {
    let tests = folder.join("tests");
    fs::create_dir_all(&tests)?;
    for entry in fs::read_dir(TESTS).context(TESTS)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if let Some(plain) = name.strip_suffix(".gz") {
            let output = Command::new("gunzip").arg("-c").arg(&path).output()?;
            if !output.status.success() {
                bail!("gunzip refused {}", path.display());
            }
            fs::write(tests.join(plain), output.stdout)?;
        } else if path.is_file() {
            fs::copy(&path, tests.join(name))?;
        }
    }
    Ok(())
}

/// Has the tests of rdma_cm skipped: without a library of ours they would use the system's, which
/// talks to a kernel module that has no part in this.
fn skip_connection_manager(folder: &Path) -> Result<()> {
    let file = folder.join("tests/test_rdmacm.py");
    let text = fs::read_to_string(&file)?;
    let class = "\nclass CMTestCase(";
    if text.matches(class).count() != 1 {
        bail!("{} has no class CMTestCase to skip", file.display());
    }
    let skip = format!("\n@unittest.skip('Feroce has no librdmacm.so.1 here'){class}");
    Ok(fs::write(&file, text.replace(class, &skip))?)
}

/// Reads unittest's verbose lines: `name (module.Class.name) ... ok`. The verdict may stand on a
/// later line when the test itself prints something.
fn read(output: &str) -> Results {
    let mut results = Results::default();
    let mut open: Option<&str> = None;
    for line in output.lines() {
        let verdict = match line.rsplit_once(" ... ") {
            Some((name, verdict)) => {
                open = Some(name);
                verdict
            }
            None => line,
        };
        let Some(name) = open else { continue };
        if verdict == "ok" {
            results.passed += 1;
        } else if let Some(reason) = verdict.strip_prefix("skipped ") {
            *results
                .skipped
                .entry(reason.trim_matches(['\'', '"']).to_owned())
                .or_default() += 1;
        } else if verdict == "FAIL" || verdict == "ERROR" {
            results.bad.push(format!("{verdict}: {name}"));
        } else {
            continue;
        }
        open = None;
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbose_output_is_understood() {
        let results = read(
            "test_a (tests.test_x.X.test_a) ... ok\n\
             test_b (tests.test_x.X.test_b) ... skipped 'no device'\n\
             test_c (tests.test_x.X.test_c)\n\
             What it does ... ERROR\n\
             test_d (tests.test_x.X.test_d) ... noise\nok\n\
             Ran 4 tests in 1.0s\n",
        );
        assert_eq!(results.passed, 2);
        assert_eq!(results.skipped.get("no device"), Some(&1));
        assert_eq!(results.bad.len(), 1);
    }
}
