//! A network namespace of our own, with taps in it. Removed when dropped; what a killed harness
//! left behind is removed by the next one.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::image::output;

const PREFIX: &str = "feroce-";

/// A network namespace that holds nothing but loopback and what is added to it.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace named after this process.
    ///
    /// # Errors
    /// Of `ip`, which needs root.
    pub(crate) fn create() -> Result<Self> {
        sweep()?;
        let name = format!("{PREFIX}{}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// A command that runs `program` inside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Adds a tap with addresses, up.
    pub(crate) fn add_tap(&self, name: &str, addresses: &[String]) -> Result<()> {
        self.ip(&["tuntap", "add", name, "mode", "tap"])?;
        // A whole unreliable message leaves at once; an emulated peer is slow to take it.
        self.ip(&["link", "set", name, "txqueuelen", "10000"])?;
        for address in addresses {
            let unchecked: &[&str] = if address.contains(':') {
                &["nodad"]
            } else {
                &[]
            };
            self.ip(&[&["addr", "add", address, "dev", name], unchecked].concat())?;
        }
        self.ip(&["link", "set", name, "up"])
    }

    /// Sets the largest IP packet of an interface, in bytes.
    pub(crate) fn set_mtu(&self, interface: &str, mtu: u32) -> Result<()> {
        self.ip(&["link", "set", interface, "mtu", &mtu.to_string()])
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.name], arguments].concat())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "del", &self.name]) {
            eprintln!("guest: {error:#}");
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    output(Command::new("ip").args(arguments)).map(|_| ())
}

/// Removes the namespaces of processes that are gone.
fn sweep() -> Result<()> {
    let list = output(Command::new("ip").args(["netns", "list"]))?;
    for name in list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
    {
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            ip(&["netns", "del", name])?;
        }
    }
    Ok(())
}
