//! One running guest: qemu, its console, the folder it shares with us, and its agent.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::agent::Agent;
use super::image::Image;

const AGENT: &str = include_str!("../../../../tests/rxe-vm/agent.sh");
/// Boots take about 5 s alone on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// What of the console is kept for error messages.
const CONSOLE_LINES_MAX: usize = 200;

/// What a guest is connected to.
#[derive(Clone, Debug)]
pub(crate) enum Network {
    /// Nothing: eth0 is there but reaches nobody.
    None,
    /// A tap interface of the network namespace that qemu runs in.
    Tap(String),
    /// Another guest, through two datagram sockets.
    Pair {
        /// Our socket.
        local: PathBuf,
        /// The other guest's.
        remote: PathBuf,
    },
}

/// How a guest is made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) network: Network,
    pub(crate) processors: u32,
    pub(crate) memory_mib: u32,
    pub(crate) show_console: bool,
}

impl Default for Settings {
    fn default() -> Self {
        // With more virtual than real processors a busy poller starves soft-RoCE for whole ticks.
        Self {
            network: Network::None,
            processors: 2,
            memory_mib: 2048,
            show_console: false,
        }
    }
}

/// A guest. Dropping it ends qemu.
#[derive(Debug)]
pub(crate) struct Machine {
    qemu: Child,
    folder: PathBuf,
    agent: Agent,
}

impl Machine {
    /// Starts qemu and waits until the agent answers. `command` makes the command that runs a
    /// program: [`Command::new`], or one that enters a network namespace first.
    ///
    /// # Errors
    /// If qemu does not start or the guest does not come up; with the console's last lines.
    pub(crate) fn boot(
        image: &Image,
        settings: &Settings,
        command: impl FnOnce(&'static str) -> Command,
    ) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("feroce-guest-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        fs::write(folder.join("agent.sh"), AGENT)?;
        let mut qemu = command("qemu-system-x86_64");
        arguments(&mut qemu, image, settings, &folder);
        qemu.stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut qemu = qemu.spawn().context("starting qemu-system-x86_64")?;
        let console = Console::follow(&mut qemu, settings.show_console);
        match connect(&mut qemu, &folder) {
            Ok(agent) => Ok(Self {
                qemu,
                folder,
                agent,
            }),
            Err(error) => {
                stop(&mut qemu, &folder);
                Err(error.context(format!("the guest did not come up:\n{}", console.text())))
            }
        }
    }

    /// Runs commands inside.
    pub(crate) const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Copies a file into the guest, to `/run/guest/NAME`. Reading it again after a change may
    /// give the old content: use a new name.
    pub(crate) fn share(&self, file: &Path, name: &str) -> Result<()> {
        fs::copy(file, self.folder.join(name)).with_context(|| file.display().to_string())?;
        Ok(())
    }

    /// Ends the guest.
    pub(crate) fn power_off(self) {
        // Its file systems are read-only or in memory: there is nothing to save.
        drop(self);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        stop(&mut self.qemu, &self.folder);
    }
}

/// Removes the temporary files of harnesses that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let mut words = name.to_str().unwrap_or_default().split('-');
        let ours = words.next() == Some("feroce")
            && matches!(words.next(), Some("guest" | "local" | "wire"));
        let pid = words.next().and_then(|pid| pid.parse::<u32>().ok());
        let gone = pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if ours && gone {
            // Of another user, perhaps; then it is not ours to remove.
            drop(fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path())));
        }
    }
}

fn stop(qemu: &mut Child, folder: &Path) {
    // Best effort: both may be gone already.
    drop(qemu.kill());
    drop(qemu.wait());
    drop(fs::remove_dir_all(folder));
}

fn arguments(qemu: &mut Command, image: &Image, settings: &Settings, folder: &Path) {
    let share = |path: &Path, tag: &str| {
        let path = path.display().to_string().replace(',', ",,");
        format!("local,path={path},mount_tag={tag},security_model=none,readonly=on,multidevs=remap")
    };
    let network = match &settings.network {
        Network::None => "user,id=net,restrict=on".to_owned(),
        Network::Tap(name) => format!("tap,id=net,ifname={name},script=no,downscript=no"),
        Network::Pair { local, remote } => format!(
            "dgram,id=net,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            local.display(),
            remote.display()
        ),
    };
    let socket = folder.join("agent.socket").display().to_string();
    // Two guests on one network need two addresses.
    let last = folder
        .as_os_str()
        .as_encoded_bytes()
        .last()
        .copied()
        .unwrap_or_default();
    qemu.args([
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-machine",
        "q35",
        "-no-reboot",
    ]);
    qemu.args([
        "-display",
        "none",
        "-monitor",
        "none",
        "-serial",
        "stdio",
        "-nodefaults",
    ]);
    qemu.arg("-smp").arg(settings.processors.to_string());
    qemu.arg("-m").arg(settings.memory_mib.to_string());
    qemu.arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(&image.initrd);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]);
    qemu.arg("-virtfs").arg(share(Path::new("/"), "host"));
    qemu.arg("-virtfs").arg(share(folder, "job"));
    qemu.arg("-netdev").arg(network);
    qemu.arg("-device").arg(format!(
        "virtio-net-pci,netdev=net,romfile=,mac=52:54:00:09:00:{last:02x}"
    ));
    qemu.args(["-device", "virtio-serial-pci"]);
    qemu.arg("-chardev")
        .arg(format!("socket,id=agent,path={socket},server=on,wait=off"));
    qemu.args(["-device", "virtserialport,chardev=agent,name=agent"]);
}

fn connect(qemu: &mut Child, folder: &Path) -> Result<Agent> {
    let deadline = Instant::now() + BOOT_LIMIT;
    let socket = folder.join("agent.socket");
    while Instant::now() < deadline {
        if let Some(status) = qemu.try_wait()? {
            bail!("qemu ended: {status}");
        }
        if let Ok(stream) = UnixStream::connect(&socket) {
            return Agent::wait_ready(stream, deadline);
        }
        thread::sleep(Duration::from_millis(50));
    }
    bail!("qemu opened no socket within {BOOT_LIMIT:?}")
}

/// The last lines of a guest's console and of qemu's own messages.
struct Console {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Console {
    fn follow(qemu: &mut Child, show: bool) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        if let Some(out) = qemu.stdout.take() {
            Self::collect(out, Arc::clone(&lines), show);
        }
        if let Some(err) = qemu.stderr.take() {
            Self::collect(err, Arc::clone(&lines), show);
        }
        Self { lines }
    }

    fn collect(from: impl std::io::Read + Send + 'static, to: Arc<Mutex<Vec<String>>>, show: bool) {
        thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line)
                    .trim_end_matches('\r')
                    .to_owned();
                if show {
                    println!("{line}");
                }
                let mut kept = to.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push(line);
                if kept.len() > CONSOLE_LINES_MAX {
                    kept.remove(0);
                }
            }
        });
    }

    fn text(&self) -> String {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }
}
