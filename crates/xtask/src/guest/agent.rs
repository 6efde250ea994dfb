//! Talks to `tests/rxe-vm/agent.sh`, which runs commands inside the guest.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The agent enforces the limit itself; this much later its silence means that it is lost.
const GRACE: Duration = Duration::from_secs(20);
/// Bound on one answer's output; the agent sends less.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// How a command ended.
#[derive(Clone, Debug)]
pub(crate) struct Finished {
    /// Its exit status: 124 after a time-out.
    pub(crate) status: i32,
    /// What it wrote, to standard output and error.
    pub(crate) output: String,
}

type Waiting = Arc<Mutex<BTreeMap<u32, Sender<Finished>>>>;

/// The connection to one guest's agent.
#[derive(Debug)]
pub(crate) struct Agent {
    writer: Mutex<UnixStream>,
    waiting: Waiting,
    next: AtomicU32,
}

impl Agent {
    /// Takes over the port once the agent has said that it is ready.
    pub(crate) fn wait_ready(stream: UnixStream, deadline: Instant) -> Result<Self> {
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader
            .read_line(&mut line)
            .context("waiting for the agent")?;
        ensure!(line == "ready\n", "the agent said {line:?}");
        stream.set_read_timeout(None)?;
        let waiting = Waiting::default();
        let answers = Arc::clone(&waiting);
        thread::spawn(move || {
            // An end of the connection drops the senders: whoever waits is told.
            drop(deliver(reader, &answers));
            answers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        });
        Ok(Self {
            writer: Mutex::new(stream),
            waiting,
            next: AtomicU32::new(1),
        })
    }

    /// Starts a bash command, which ends by itself after `limit`.
    pub(crate) fn start(&self, command: &str, limit: Duration) -> Result<Job> {
        ensure!(!command.contains('\n'), "a command is one line");
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, sender);
        self.send(&format!("run {id} {} {command}\n", limit.as_secs().max(1)))?;
        Ok(Job {
            id,
            receiver,
            deadline: Instant::now() + limit + GRACE,
        })
    }

    /// Runs a bash command to its end.
    pub(crate) fn run(&self, command: &str, limit: Duration) -> Result<Finished> {
        self.start(command, limit)?.wait()
    }

    /// Ends a command early; it still has to be waited for.
    pub(crate) fn stop(&self, job: &Job) -> Result<()> {
        self.send(&format!("kill {}\n", job.id))
    }

    fn send(&self, line: &str) -> Result<()> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer
            .write_all(line.as_bytes())
            .context("the guest is gone")
    }
}

/// A command that was started in the guest.
#[derive(Debug)]
pub(crate) struct Job {
    id: u32,
    receiver: Receiver<Finished>,
    deadline: Instant,
}

impl Job {
    /// Waits for the command's end.
    pub(crate) fn wait(self) -> Result<Finished> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.receiver.recv_timeout(left) {
            Ok(finished) => Ok(finished),
            Err(RecvTimeoutError::Disconnected) => bail!("the guest is gone"),
            Err(RecvTimeoutError::Timeout) => bail!("the guest's agent does not answer"),
        }
    }
}

fn deliver(mut reader: impl BufRead, waiting: &Waiting) -> Result<()> {
    loop {
        let mut line = String::new();
        ensure!(reader.read_line(&mut line)? > 0, "closed");
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["done", id, status, length] = words[..] else {
            bail!("the agent said {line:?}");
        };
        let length: usize = length.parse()?;
        ensure!(length <= OUTPUT_BYTES_MAX, "the agent sends {length} bytes");
        let mut output = vec![0; length];
        reader.read_exact(&mut output)?;
        let output = String::from_utf8_lossy(&output).into_owned();
        let finished = Finished {
            status: status.parse()?,
            output,
        };
        let sender = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id.parse()?);
        if let Some(sender) = sender {
            // Nobody waits any more: the case was given up.
            drop(sender.send(finished));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_reach_whoever_waits_for_them() {
        let (ours, mut guest) = UnixStream::pair().unwrap();
        guest.write_all(b"ready\n").unwrap();
        let agent = Agent::wait_ready(ours, Instant::now() + Duration::from_secs(10)).unwrap();
        let first = agent
            .start("sleep 1; echo a", Duration::from_secs(7))
            .unwrap();
        let second = agent.start("echo b", Duration::from_secs(7)).unwrap();
        let mut said = BufReader::new(guest.try_clone().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "run 1 7 sleep 1; echo a\n");
        guest
            .write_all(b"done 2 0 2\nb\ndone 1 3 9\nready\nx\n\n")
            .unwrap();
        let second = second.wait().unwrap();
        assert_eq!((second.status, second.output.as_str()), (0, "b\n"));
        let first = first.wait().unwrap();
        assert_eq!((first.status, first.output.as_str()), (3, "ready\nx\n\n"));
    }

    #[test]
    fn a_lost_guest_is_told_to_whoever_waits() {
        let (ours, mut guest) = UnixStream::pair().unwrap();
        guest.write_all(b"ready\n").unwrap();
        let agent = Agent::wait_ready(ours, Instant::now() + Duration::from_secs(10)).unwrap();
        let job = agent.start("true", Duration::from_secs(60)).unwrap();
        drop(guest);
        assert_eq!(job.wait().unwrap_err().to_string(), "the guest is gone");
        assert!(agent.start("a\nb", Duration::from_secs(1)).is_err());
    }
}
