//! One end of an experiment: a guest, or the network namespace on this machine. Both run shell
//! commands the same way.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::agent::{Agent, Finished, Job};
use super::machine::Machine;
use super::network::Namespace;

/// How long a server may take until it listens; emulated programs start slowly.
const LISTEN_LIMIT: Duration = Duration::from_secs(30);
/// `timeout` ends a local command at its limit, and kills it 2 s later.
const KILL_GRACE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Where the commands of one end run.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    Guest(&'a Machine),
    Namespace(&'a Namespace),
}

/// One end: a place, and the RDMA device in it.
#[derive(Debug)]
pub(crate) struct Side<'a> {
    pub(crate) place: Place<'a>,
    /// Put before each RDMA program; empty, or a command that takes a program and its arguments.
    pub(crate) prefix: String,
    /// The RDMA device.
    pub(crate) device: String,
    /// Its addresses; each stands for a GID.
    pub(crate) addresses: [IpAddr; 2],
    /// Where nobody answers RDMA packets while no program runs.
    pub(crate) silent: IpAddr,
    /// Where the programs of `tests/programs` are.
    pub(crate) programs: PathBuf,
}

impl Side<'_> {
    /// Starts a bash command that ends by itself after `limit`.
    pub(crate) fn start(&self, command: &str, limit: Duration) -> Result<Running<'_>> {
        match self.place {
            Place::Guest(machine) => {
                let agent = machine.agent();
                Ok(Running::Guest {
                    agent,
                    job: agent.start(command, limit)?,
                })
            }
            Place::Namespace(namespace) => {
                Ok(Running::Local(Local::start(namespace, command, limit)?))
            }
        }
    }

    /// Runs a bash command to its end.
    pub(crate) fn run(&self, command: &str, limit: Duration) -> Result<Finished> {
        self.start(command, limit)?.wait()
    }

    /// Waits until something listens on a TCP port. Looking must not connect: the programs
    /// under test accept one connection and no more.
    pub(crate) fn wait_listening(&self, port: u16) -> Result<()> {
        self.wait_listening_in("", port)
    }

    /// The same in a network namespace, which the command `enter` enters.
    pub(crate) fn wait_listening_in(&self, enter: &str, port: u16) -> Result<()> {
        let command = format!(
            "until {enter} grep -qE ':{port:04X} 0+:0000 0A' /proc/net/tcp /proc/net/tcp6; \
             do sleep 0.1; done"
        );
        match self.run(&command, LISTEN_LIMIT)?.status {
            0 => Ok(()),
            _ => bail!("the server did not listen within {LISTEN_LIMIT:?}"),
        }
    }

    /// Waits until something listens on a port of the connection manager: on soft-RoCE the kernel
    /// is asked, on ours the names of the listeners' sockets tell.
    pub(crate) fn wait_managed(&self, port: u16) -> Result<()> {
        let question = match self.place {
            Place::Guest(_) => format!("rdma resource show cm_id | grep -qE 'LISTEN .*:{port} '"),
            Place::Namespace(_) => {
                format!("grep -qE '@feroce/listen/[^ ]*:{port}/' /proc/net/unix")
            }
        };
        let command = format!("until {question}; do sleep 0.1; done");
        match self.run(&command, LISTEN_LIMIT)?.status {
            0 => Ok(()),
            _ => bail!("the server did not listen within {LISTEN_LIMIT:?}"),
        }
    }

    /// The index of the GID that stands for an address, once the port is active. Asked of
    /// `ibv_devinfo`, so that it works the same on both ends.
    pub(crate) fn gid_index(&self, address: IpAddr) -> Result<usize> {
        let wanted = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let command = format!("{} ibv_devinfo -d {} -v", self.prefix, self.device);
        let deadline = Instant::now() + LISTEN_LIMIT;
        loop {
            let finished = self.run(&command, LISTEN_LIMIT)?;
            let active = finished.output.contains("PORT_ACTIVE");
            match gid_index_in(&finished.output, wanted) {
                Some(index) if active => return Ok(index),
                _ if Instant::now() > deadline => bail!(
                    "{} has no active port with a GID for {address}; `{command}` said:\n{}",
                    self.device,
                    finished.output
                ),
                _ => thread::sleep(Duration::from_millis(300)),
            }
        }
    }
}

/// Finds `GID[  1]:  ::ffff:10.9.0.2, RoCE v2`.
fn gid_index_in(text: &str, wanted: Ipv6Addr) -> Option<usize> {
    text.lines().find_map(|line| {
        let (index, rest) = line.trim().strip_prefix("GID[")?.split_once(']')?;
        let address = rest.trim_start_matches(':').split(',').next()?.trim();
        let same = address.parse::<Ipv6Addr>().ok()? == wanted;
        same.then(|| index.trim().parse().ok())?
    })
}

/// A command under way.
#[derive(Debug)]
pub(crate) enum Running<'a> {
    Guest { agent: &'a Agent, job: Job },
    Local(Local),
}

impl Running<'_> {
    /// Waits for its end.
    pub(crate) fn wait(self) -> Result<Finished> {
        match self {
            Self::Guest { job, .. } => job.wait(),
            Self::Local(local) => local.wait(),
        }
    }

    /// Ends it early; it still has to be waited for.
    pub(crate) fn stop(&self) -> Result<()> {
        match self {
            Self::Guest { agent, job } => agent.stop(job),
            Self::Local(local) => local.stop(),
        }
    }
}

/// A command in a namespace of this machine.
#[derive(Debug)]
pub(crate) struct Local {
    child: Child,
    output: PathBuf,
    deadline: Instant,
}

impl Local {
    fn start(namespace: &Namespace, command: &str, limit: Duration) -> Result<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("feroce-local-{}-{number}", std::process::id());
        let output = std::env::temp_dir().join(name);
        let file = File::create(&output).with_context(|| output.display().to_string())?;
        let mut timeout = namespace.command("timeout");
        timeout
            .arg("--kill-after=2")
            .arg(limit.as_secs().max(1).to_string());
        timeout.args(["bash", "-c", command]).stdin(Stdio::null());
        timeout.stdout(file.try_clone()?).stderr(file);
        let child = timeout.spawn().context("starting ip")?;
        Ok(Self {
            child,
            output,
            deadline: Instant::now() + limit + KILL_GRACE,
        })
    }

    fn wait(mut self) -> Result<Finished> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                let output = fs::read(&self.output)?;
                let output = String::from_utf8_lossy(&output).into_owned();
                return Ok(Finished {
                    status: status.code().unwrap_or(128),
                    output,
                });
            }
            if Instant::now() > self.deadline {
                bail!("a local command did not end");
            }
            thread::sleep(POLL);
        }
    }

    fn stop(&self) -> Result<()> {
        // `timeout` hands the signal on to the command; it may have ended by now.
        drop(
            Command::new("kill")
                .arg(self.child.id().to_string())
                .output()?,
        );
        Ok(())
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.stop());
            drop(self.child.wait());
        }
        drop(fs::remove_file(&self.output));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gids_are_found_in_devinfo() {
        let text = "\t\t\tstate:\tPORT_ACTIVE (4)\n\
                    \t\t\tGID[  0]:\t\tfe80::5054:ff:fe12:3456, RoCE v2\n\
                    \t\t\tGID[  1]:\t\t::ffff:10.9.0.2, RoCE v2\n\
                    \t\t\tGID[ 12]:\t\tfd00:0009:0000:0000:0000:0000:0000:0002\n";
        let find = |address: &str| gid_index_in(text, address.parse().unwrap());
        assert_eq!(find("::ffff:10.9.0.2"), Some(1));
        assert_eq!(find("fd00:9::2"), Some(12));
        assert_eq!(find("::1"), None);
    }
}
