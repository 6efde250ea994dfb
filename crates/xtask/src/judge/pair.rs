//! Runs a server and a client of one program against each other.

use super::{NOBODY, is_root};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program started with its output going to a file.
pub(crate) struct Running {
    child: Child,
    output: PathBuf,
    label: String,
}

/// How a program ended.
pub(crate) struct Ended {
    /// Its status; `None`: it had to be stopped.
    pub(crate) status: Option<ExitStatus>,
    /// What it printed, both streams.
    pub(crate) output: String,
    label: String,
}

impl Ended {
    /// Whether it ended by itself with status 0.
    pub(crate) fn is_good(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// What happened, for people.
    pub(crate) fn describe(&self) -> String {
        let how = match self.status {
            Some(status) => status.to_string(),
            None => "stopped: it did not end in time".into(),
        };
        let Self { label, output, .. } = self;
        let tail: Vec<&str> = output.lines().rev().take(25).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        format!("{label}: {how}\n{}", tail.join("\n"))
    }
}

impl Running {
    /// Starts `command`, as an unprivileged user if we are root.
    pub(crate) fn start(mut command: Command, scratch: &Path, label: &str) -> io::Result<Self> {
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        Self::start_as_we_are(command, scratch, label)
    }

    /// Starts `command` with our own rights.
    pub(crate) fn start_as_we_are(
        mut command: Command,
        scratch: &Path,
        label: &str,
    ) -> io::Result<Self> {
        let output = scratch.join(format!("{label}.out"));
        let file = File::create(&output)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        // A group of its own, so that stopping it stops what it started.
        command.process_group(0);
        Ok(Self {
            child: command.spawn()?,
            output,
            label: label.to_owned(),
        })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)) | Err(_))
    }

    /// Waits until `deadline`, then stops it.
    pub(crate) fn finish(mut self, deadline: Instant) -> Ended {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(None) | Err(_) => {
                    self.stop();
                    break None;
                }
            }
        };
        let mut output = String::new();
        if let Ok(mut file) = File::open(&self.output) {
            let mut bytes = Vec::new();
            let _ = file.read_to_end(&mut bytes);
            output = String::from_utf8_lossy(&bytes).into_owned();
        }
        Ended {
            status,
            output,
            label: self.label,
        }
    }

    /// Kills the whole group of processes that it started.
    pub(crate) fn stop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill")
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until some process of this namespace listens on the port, of TCP or of our connection
/// manager.
pub(crate) fn wait_for_listener(port: u16, server: &mut Running, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline && !server.has_ended() {
        if is_listening(port) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    is_listening(port)
}

fn is_listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let managed = format!(":{port}/");
    if std::fs::read_to_string("/proc/net/unix")
        .unwrap_or_default()
        .lines()
        .any(|line| line.contains("@feroce/listen/") && line.contains(&managed))
    {
        return true;
    }
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| {
        std::fs::read_to_string(file)
            .unwrap_or_default()
            .lines()
            .any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let local = fields.next().unwrap_or_default();
                local.ends_with(&suffix) && fields.nth(1) == Some(LISTEN)
            })
    })
}

/// A TCP port that nobody listens on, different at each call.
pub(crate) fn next_port() -> u16 {
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Below the range that the kernel gives out itself.
    let base = 20_000 + (std::process::id() % 40) as u16 * 256;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % 2048;
        if !is_listening(port) {
            return port;
        }
    }
}
