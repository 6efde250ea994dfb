//! The serving process, seen from the measuring one.

use super::protocol::{Reply, Request};
use anyhow::{Context as _, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

/// How long a reply may take: preparing and comparing a few MiB takes milliseconds.
const REPLY_WAIT: Duration = Duration::from_secs(30);

/// How long the process may take to end after its input has.
const END_WAIT: Duration = Duration::from_secs(3);

/// A serving process; dropping it ends it.
#[derive(Debug)]
pub(super) struct Partner {
    child: Child,
    /// Closing it tells the process to end.
    input: Option<ChildStdin>,
    replies: Receiver<Reply>,
}

impl Partner {
    /// Starts the process and waits until it has opened the device.
    pub(super) fn start(device: &str, gid_index: u8) -> Result<Self> {
        let program = std::env::current_exe().context("finding the program to start")?;
        let mut child = Command::new(&program)
            .args(["perf-serve", "--device", device])
            .args(["--gid-index", &gid_index.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {} as the other end", program.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take();
        let (sender, replies) = channel();
        let partner = Self {
            child,
            input,
            replies,
        };
        if let Some(output) = output {
            std::thread::spawn(move || read_replies(output, &sender));
        }
        match partner.reply()? {
            Reply::Opened => Ok(partner),
            other => bail!("the other end started with {other:?}"),
        }
    }

    /// Asks for something and waits for the reply.
    ///
    /// # Errors
    /// If the other end could not do it, ended, or takes too long.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Reply> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        let input = self.input.as_mut().context("the other end has ended")?;
        let written = input
            .write_all(line.as_bytes())
            .and_then(|()| input.flush());
        // If it has ended, its last words say why.
        if written.is_err() {
            self.reply()?;
            bail!("the other end takes no more requests");
        }
        self.reply()
    }

    /// What became of the other end, if it is not at work any more.
    pub(super) fn failure(&self) -> Option<String> {
        match self.replies.try_recv() {
            Ok(Reply::Failed { error }) => Some(format!("the other end failed: {error}")),
            Err(TryRecvError::Disconnected) => Some("the other end has ended".into()),
            Ok(_) | Err(TryRecvError::Empty) => None,
        }
    }

    fn reply(&self) -> Result<Reply> {
        match self.replies.recv_timeout(REPLY_WAIT) {
            Ok(Reply::Failed { error }) => bail!("the other end failed: {error}"),
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "the other end did not reply for {} seconds",
                    REPLY_WAIT.as_secs()
                )
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the other end has ended"),
        }
    }
}

fn read_replies(output: ChildStdout, sender: &Sender<Reply>) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        let reply = serde_json::from_str(&line).unwrap_or_else(|error| Reply::Failed {
            error: format!("reply {line:?} not understood: {error}"),
        });
        if sender.send(reply).is_err() {
            return;
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.input = None;
        const STEP: Duration = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while waited < END_WAIT {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => return,
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
