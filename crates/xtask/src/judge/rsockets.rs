//! rsockets: rdma-core's own programs over them, and ordinary programs of TCP under its preload
//! library, on one address and between two network namespaces, over IPv4 and IPv6.
//!
//! Everything runs as an unprivileged user. An exit status of 0 proves little where a program may
//! have used TCP after all: the packets of our device are counted too.

use super::pair::{Ended, Running};
use super::programs::Stage;
use super::statistics::Packets;
use super::{NOBODY, Outcome, Tally, find_program, is_root};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a case may take: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// How long a server may take to end after its client.
const GRACE: Duration = Duration::from_secs(20);

/// Where Debian has rdma-core's preload library.
const PRELOAD: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so",
    "/usr/lib/aarch64-linux-gnu/rsocket/librspreload.so",
    "/usr/lib/riscv64-linux-gnu/rsocket/librspreload.so",
];

/// What the preload library leaves behind when it forks. It belongs to whoever came first, and
/// keeps all others from connecting.
const FORK_SEMAPHORE: &str = "/dev/shm/sem.rsocket_fork";

/// A server and a client. `PORT`, `ADDRESS`, `SCRATCH` stand for what the ground has.
struct Case {
    server: &'static str,
    client: &'static str,
    /// What else must hold.
    check: Check,
    /// How programs that know nothing of rsockets are brought to them.
    preload: Preload,
    /// Whether the server goes on serving and has to be stopped.
    serves_on: bool,
}

/// The preload library, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Preload {
    /// None: the program calls rsockets.
    Without,
    /// Sockets are rsockets from the beginning.
    Plain,
    /// Sockets are TCP's until the process that was forked for a connection uses it.
    Forking,
}

/// What tells that the data was right.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The program itself.
    Status,
    /// The file that was sent and the one that was written.
    SameFile,
    /// A line that the client prints.
    Prints(&'static str),
}

/// Where a server and a client run.
struct Ground {
    name: &'static str,
    /// The address of the server.
    address: &'static str,
    /// The network namespaces of both; `None`: where we are.
    namespaces: Option<[String; 2]>,
    devices: [String; 2],
}

impl Ground {
    fn is_ipv6(&self) -> bool {
        self.address.contains(':')
    }
}

/// Runs all cases whose text contains `filter`.
pub(crate) fn run(stage: &Stage, filter: &str, quick: bool) -> Tally {
    let mut tally = Tally::default();
    if let Err(error) = write_files(stage) {
        let outcome = Outcome::Failed(format!("{error:#}"));
        tally.note("rsockets: files for the programs", &outcome);
        return tally;
    }
    let here = |address| Ground {
        name: "one address",
        address,
        namespaces: None,
        devices: [stage.device.clone(), stage.device.clone()],
    };
    run_ground(stage, &here("127.0.0.1"), filter, quick, &mut tally);
    run_ground(stage, &here("::1"), filter, true, &mut tally);
    if !is_root() || find_program("ip").is_none() || find_program("setpriv").is_none() {
        let why = "needs root, ip and setpriv".to_owned();
        tally.note("rsockets between namespaces", &Outcome::Skipped(why));
        return tally;
    }
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(error) => {
            let outcome = Outcome::Failed(format!("{error:#}"));
            tally.note("rsockets: two namespaces", &outcome);
            return tally;
        }
    };
    for address in [IPV4[0], IPV6[0]] {
        let ground = Ground {
            name: "two namespaces",
            address,
            namespaces: Some(namespaces.names.clone()),
            devices: INTERFACES.map(|interface| format!("roce_{interface}")),
        };
        run_ground(stage, &ground, filter, true, &mut tally);
    }
    tally
}

fn run_ground(stage: &Stage, ground: &Ground, filter: &str, quick: bool, tally: &mut Tally) {
    for case in cases(quick) {
        // Its colon is that of the file's name.
        if ground.is_ipv6() && case.check == Check::SameFile {
            continue;
        }
        let preload = match case.preload {
            Preload::Without => "",
            Preload::Plain => "preload: ",
            Preload::Forking => "preload, RDMAV_FORK_SAFE=1: ",
        };
        let name = format!(
            "{preload}{} ({}, {})",
            case.client, ground.name, ground.address
        );
        if !name.contains(filter) {
            continue;
        }
        let outcome = run_case(stage, ground, &case);
        let outcome = outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        tally.note(&name, &outcome);
    }
}

fn run_case(stage: &Stage, ground: &Ground, case: &Case) -> Result<Outcome> {
    for words in [case.server, case.client] {
        let program = words.split(' ').next().unwrap_or_default();
        if find_program(program).is_none() {
            return Ok(Outcome::Skipped(format!("{program} is not installed")));
        }
    }
    let preload = PRELOAD.iter().find(|file| PathBuf::from(file).exists());
    let preload = match (case.preload, preload) {
        (Preload::Without, _) => None,
        (_, None) => return Ok(Outcome::Skipped("librspreload.so is not installed".into())),
        (_, Some(&preload)) => Some(preload),
    };
    let statistics = stage.scratch.join("statistics");
    let target = stage.scratch.join("rsockets.copy");
    for file in [&statistics, &target] {
        let _ = std::fs::remove_file(file);
    }
    let port = super::pair::next_port();
    let start = |side: usize, words: &str, label: &str| {
        let mut command = command(stage, ground, side, words, port);
        if let Some(preload) = preload {
            command.env("LD_PRELOAD", preload);
        }
        if case.preload == Preload::Forking {
            let _ = std::fs::remove_file(FORK_SEMAPHORE);
            command.env("RDMAV_FORK_SAFE", "1");
        }
        Running::start_as_we_are(command, &stage.scratch, label)
    };
    let mut server = start(0, case.server, "server")?;
    if !wait_for_server(port, &mut server) {
        let ended = server.finish(Instant::now());
        let text = format!("the server does not listen\n{}", ended.describe());
        return Ok(Outcome::Failed(text));
    }
    let client = start(1, case.client, "client")?.finish(Instant::now() + LIMIT);
    let grace = match (case.serves_on, client.is_good()) {
        (false, true) => GRACE,
        _ => Duration::from_millis(500),
    };
    let server = server.finish(Instant::now() + grace);
    if !client.is_good() || !(case.serves_on || server.is_good()) {
        return Ok(Outcome::Failed(both(&server, &client)));
    }
    let is_right = match case.check {
        Check::Status => true,
        Check::Prints(text) => client.output.contains(text),
        Check::SameFile => {
            std::fs::read(&target).ok() == std::fs::read(stage.scratch.join(SOURCE)).ok()
        }
    };
    if !is_right {
        let text = format!("the data is not right\n{}", both(&server, &client));
        return Ok(Outcome::Failed(text));
    }
    let lines = std::fs::read_to_string(&statistics).unwrap_or_default();
    // A server that is stopped tells nothing.
    Ok(judge_packets(&lines, if case.serves_on { 1 } else { 2 }))
}

fn both(server: &Ended, client: &Ended) -> String {
    format!("{}\n{}", server.describe(), client.describe())
}

/// One end of a case, as an unprivileged user under `feroce run`.
fn command(stage: &Stage, ground: &Ground, side: usize, words: &str, port: u16) -> Command {
    let fill = |word: &str| {
        word.replace("PORT", &port.to_string())
            .replace("ADDRESS", ground.address)
            .replace("SCRATCH", &stage.scratch.to_string_lossy())
    };
    let mut all: Vec<String> = Vec::new();
    if let Some(namespaces) = &ground.namespaces {
        all.extend(["ip", "netns", "exec"].map(str::to_owned));
        all.push(namespaces[side].clone());
    }
    if is_root() && find_program("setpriv").is_some() {
        let user = NOBODY.to_string();
        let words = [
            "setpriv",
            "--clear-groups",
            "--reuid",
            &user,
            "--regid",
            &user,
        ];
        all.extend(words.map(str::to_owned));
    }
    all.push(stage.feroce.to_string_lossy().into_owned());
    all.extend(["run", "--device", &ground.devices[side], "--stats"].map(str::to_owned));
    all.push(
        stage
            .scratch
            .join("statistics")
            .to_string_lossy()
            .into_owned(),
    );
    all.push("--".to_owned());
    all.extend(words.split(' ').filter(|word| !word.is_empty()).map(fill));
    if ground.is_ipv6() {
        match words.split(' ').next() {
            Some("rstream" | "riostream") => all.extend(["-f", "ipv6"].map(str::to_owned)),
            Some("iperf") => all.push("-V".to_owned()),
            _ => {}
        }
    }
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]).current_dir(&stage.scratch);
    command
}

/// Waits until the server listens, for connections or for datagrams, in its namespace.
fn wait_for_server(port: u16, server: &mut Running) -> bool {
    let deadline = Instant::now() + LISTEN_LIMIT;
    let claim = format!(":{port}/");
    let bound = format!(":{port:04X} ");
    while Instant::now() < deadline && !server.has_ended() {
        let lines = |file: &str| {
            let path = format!("/proc/{}/net/{file}", server.pid());
            String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
        };
        let has_tcp = ["tcp", "tcp6"].iter().any(|file| {
            lines(file)
                .lines()
                .any(|line| line.contains(&bound) && is_listener(line))
        });
        let listens = lines("unix")
            .lines()
            .any(|line| line.contains("@feroce/listen/") && line.contains(&claim));
        let has_udp = ["udp", "udp6"]
            .iter()
            .any(|file| lines(file).lines().any(|line| line.contains(&bound)));
        if listens || has_tcp || has_udp {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// Whether a line of `/proc/net/tcp` is that of a socket that listens: it has no peer.
fn is_listener(line: &str) -> bool {
    line.contains(":0000 0A ")
}

/// The packets must be those of our device.
fn judge_packets(lines: &str, users_min: usize) -> Outcome {
    let packets = match Packets::read(lines) {
        Ok(packets) => packets,
        Err(outcome) => return outcome,
    };
    // Connecting alone takes a handful.
    if packets.both_ways >= users_min && packets.sent >= 20 {
        return Outcome::Passed;
    }
    Outcome::Failed(format!(
        "{} processes used the device (at least {users_min}), {} packets left:\n{lines}",
        packets.both_ways, packets.sent
    ))
}

/// The file that is copied.
const SOURCE: &str = "rsockets.source";

/// A TCP server and client in Python that know nothing of rsockets: 1 MB there and back, compared.
/// The server accepts through `accept` of the C library: Python calls `accept4`, which the preload
/// library of rdma-core 44 does not replace.
const ECHO: &str = r#"
import ctypes, hashlib, socket, sys
role, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
s = socket.socket(family, socket.SOCK_STREAM)
if role == "server":
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(5)
    fd = ctypes.CDLL(None).accept(s.fileno(), None, None)
    c = socket.socket(family, socket.SOCK_STREAM, 0, fileno=fd)
    while True:
        data = c.recv(65536)
        if not data:
            break
        c.sendall(data)
    c.close()
    s.close()
else:
    s.connect((address, port))
    message = bytes((i * 7 + (i >> 8)) & 255 for i in range(4096)) * 256
    back = b""
    for at in range(0, len(message), 16384):
        part = message[at:at + 16384]
        s.sendall(part)
        while len(back) < at + len(part):
            data = s.recv(65536)
            if not data:
                sys.exit("the connection ended early")
            back += data
    s.shutdown(socket.SHUT_WR)
    if s.recv(1):
        sys.exit("more came than was sent")
    s.close()
    same = hashlib.md5(message).digest() == hashlib.md5(back).digest()
    print("same" if same else "different")
"#;

fn write_files(stage: &Stage) -> Result<()> {
    let bytes: Vec<u8> = (0u32..3_000_000).map(|i| (i ^ (i >> 9)) as u8).collect();
    std::fs::write(stage.scratch.join(SOURCE), bytes).context("writing a file to copy")?;
    std::fs::write(stage.scratch.join("echo.py"), ECHO).context("writing a program")
}

/// The names of both ends of the cable between the namespaces, and their addresses.
const INTERFACES: [&str; 2] = ["rs0", "rs1"];
const IPV4: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const IPV6: [&str; 2] = ["fd77::1", "fd77::2"];

/// Two network namespaces joined by a cable, removed when dropped.
struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    fn new() -> Result<Self> {
        let name = |end: &str| format!("feroce-rsockets-{}-{end}", std::process::id());
        let this = Self {
            names: [name("a"), name("b")],
        };
        for name in &this.names {
            ip(&["netns", "add", name])?;
        }
        let [a, b] = &this.names;
        let [first, second] = INTERFACES;
        ip(&[
            "link", "add", first, "netns", a, "type", "veth", "peer", "name", second, "netns", b,
        ])?;
        for (end, name) in this.names.iter().enumerate() {
            let interface = INTERFACES[end];
            let v4 = format!("{}/24", IPV4[end]);
            let v6 = format!("{}/64", IPV6[end]);
            ip(&["-n", name, "addr", "add", &v4, "dev", interface])?;
            ip(&["-n", name, "addr", "add", &v6, "dev", interface, "nodad"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", interface, "up"])?;
        }
        // A cable takes a moment to carry.
        for (end, name) in this.names.iter().enumerate() {
            let deadline = Instant::now() + LISTEN_LIMIT;
            while !is_up(name, INTERFACES[end])? {
                if Instant::now() > deadline {
                    bail!("the interface in {name} does not come up");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(this)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn is_up(namespace: &str, interface: &str) -> Result<bool> {
    let mut command = Command::new("ip");
    let output = command
        .args(["-n", namespace, "link", "show", interface])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains("state UP"))
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("ip {}: {text}", arguments.join(" "));
    }
    Ok(())
}

const fn case(server: &'static str, client: &'static str) -> Case {
    Case {
        server,
        client,
        check: Check::Status,
        preload: Preload::Without,
        serves_on: false,
    }
}

fn cases(quick: bool) -> Vec<Case> {
    let long = if quick { &[][..] } else { STREAMS_LONG };
    let mut cases: Vec<_> = STREAMS
        .iter()
        .chain(long)
        .map(|&(server, client)| case(server, client))
        .collect();
    let datagrams = DATAGRAMS.iter().map(|&(server, client)| Case {
        serves_on: true,
        ..case(server, client)
    });
    cases.extend(datagrams);
    cases.push(Case {
        check: Check::SameFile,
        serves_on: true,
        ..case(
            "rcopy -p PORT",
            "rcopy SCRATCH/rsockets.source ADDRESS:SCRATCH/rsockets.copy -p PORT",
        )
    });
    cases.extend([
        Case {
            check: Check::Prints("same"),
            preload: Preload::Plain,
            ..case(
                "python3 SCRATCH/echo.py server ADDRESS PORT",
                "python3 SCRATCH/echo.py client ADDRESS PORT",
            )
        },
        Case {
            check: Check::Prints("bits/sec"),
            preload: Preload::Plain,
            serves_on: true,
            ..case(
                "iperf -s -B ADDRESS -p PORT",
                "iperf -c ADDRESS -p PORT -t 1",
            )
        },
        Case {
            preload: Preload::Forking,
            ..case(
                "rstream -b ADDRESS -p PORT -S 65536 -C 20 -I 5 -T f",
                "rstream -s ADDRESS -p PORT -S 65536 -C 20 -I 5 -T f",
            )
        },
    ]);
    cases
}

const STREAMS: &[(&str, &str)] = &[
    (
        "rstream -b ADDRESS -p PORT -S all -C 10 -I 2 -T v",
        "rstream -s ADDRESS -p PORT -S all -C 10 -I 2 -T v",
    ),
    (
        "rstream -b ADDRESS -p PORT -S 65536 -C 50 -I 4 -T a",
        "rstream -s ADDRESS -p PORT -S 65536 -C 50 -I 4 -T a",
    ),
    (
        "riostream -b ADDRESS -p PORT -S all -C 10 -I 2 -T v",
        "riostream -s ADDRESS -p PORT -S all -C 10 -I 2 -T v",
    ),
];

const STREAMS_LONG: &[(&str, &str)] = &[
    (
        "rstream -b ADDRESS -p PORT -S all -C 5 -I 2 -T b",
        "rstream -s ADDRESS -p PORT -S all -C 5 -I 2 -T b",
    ),
    (
        "rstream -b ADDRESS -p PORT -S all -C 5 -I 2 -T n",
        "rstream -s ADDRESS -p PORT -S all -C 5 -I 2 -T n",
    ),
    (
        "rstream -b ADDRESS -p PORT -S 4096 -C 20 -I 5 -T r",
        "rstream -s ADDRESS -p PORT -S 4096 -C 20 -I 5 -T r",
    ),
    (
        "rstream -b ADDRESS -p PORT -S 4096 -C 20 -I 5 -k 1",
        "rstream -s ADDRESS -p PORT -S 4096 -C 20 -I 5 -k 1",
    ),
    (
        "riostream -b ADDRESS -p PORT -S all -C 5 -I 2 -T b",
        "riostream -s ADDRESS -p PORT -S all -C 5 -I 2 -T b",
    ),
    (
        "riostream -b ADDRESS -p PORT -S all -C 5 -I 2 -T n",
        "riostream -s ADDRESS -p PORT -S all -C 5 -I 2 -T n",
    ),
    (
        "riostream -b ADDRESS -p PORT -S 65536 -C 20 -I 5 -T a",
        "riostream -s ADDRESS -p PORT -S 65536 -C 20 -I 5 -T a",
    ),
];

const DATAGRAMS: &[(&str, &str)] = &[
    (
        "udpong -b ADDRESS -p PORT -C 200 -T a",
        "udpong -s ADDRESS -p PORT -C 200 -T a",
    ),
    (
        "udpong -b ADDRESS -p PORT -C 200 -T b",
        "udpong -s ADDRESS -p PORT -C 200 -T b",
    ),
    (
        "udpong -b ADDRESS -p PORT -C 200 -T n",
        "udpong -s ADDRESS -p PORT -C 200 -T n",
    ),
    (
        "udpong -b ADDRESS -p PORT -C 200 -T e",
        "udpong -s ADDRESS -p PORT -C 200 -T e",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_went_past_the_device_are_found_out() {
        let line = |out: u32, back: u32| {
            format!("{{\"sent_packets\": {out}, \"received_packets\": {back}}}\n")
        };
        let good = line(100, 90) + &line(90, 100);
        assert_eq!(judge_packets(&good, 2), Outcome::Passed);
        let failed = |lines: &str, users| matches!(judge_packets(lines, users), Outcome::Failed(_));
        assert!(failed("", 1));
        assert!(failed(&line(100, 90), 2));
        assert!(failed(&(line(5, 5) + &line(5, 5)), 2));
        assert!(failed("sent 5", 1));
    }
}
