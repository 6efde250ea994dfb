//! Asking cargo: where things are, and building packages. Not here: what is done with the results.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The folder of the root `Cargo.toml`.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap_or_default()
}

/// The cargo that runs us, or the one on the path.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace());
    command
}

/// The target folder, wherever the environment or a configuration file put it.
pub(crate) fn target_folder() -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let output = command()
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed");
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    Ok(metadata.target_directory)
}

/// What cargo built: one file of one target.
#[derive(Debug)]
pub(crate) struct Artifact {
    /// `bin`, `staticlib`, `cdylib`, …
    pub(crate) kind: String,
    /// The package's name.
    pub(crate) package: String,
    pub(crate) path: PathBuf,
}

/// Builds `packages` and returns every file that came out.
pub(crate) fn build(packages: &[&str], profile: &str) -> Result<Vec<Artifact>> {
    #[derive(Deserialize)]
    struct Target {
        kind: Vec<String>,
    }
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        manifest_path: Option<PathBuf>,
        target: Option<Target>,
        #[serde(default)]
        filenames: Vec<PathBuf>,
    }
    let mut cargo = command();
    cargo.args([
        "build",
        "--message-format=json-render-diagnostics",
        "--profile",
        profile,
    ]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build")?;
    if !output.status.success() {
        bail!("cargo build failed");
    }
    let mut artifacts = Vec::new();
    for line in output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let message: Message = serde_json::from_slice(line).context("cargo's messages")?;
        let (Some(manifest), Some(target)) = (message.manifest_path, message.target) else {
            continue;
        };
        if message.reason != "compiler-artifact" {
            continue;
        }
        let folder = manifest
            .parent()
            .and_then(Path::file_name)
            .unwrap_or_default();
        let package = format!("feroce-{}", folder.display());
        for path in message.filenames {
            let kind = target.kind.first().cloned().unwrap_or_default();
            artifacts.push(Artifact {
                kind,
                package: package.clone(),
                path,
            });
        }
    }
    Ok(artifacts)
}
