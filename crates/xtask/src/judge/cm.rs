//! Programs that connect by IP address, in pairs: those of rdmacm-utils and perftest's `-R`, on one
//! address and between two network namespaces, over IPv4 and IPv6.
//!
//! Then a driver of our own (`tests/programs/connections.c`) for what stock programs do not do:
//! reconnecting a thousand times, hundreds of connections at once, peers that die or fall silent.
//! Not here: rsockets, and the foreign peer (`guest`).

mod driver;

use super::pair::{Running, next_port};
use super::programs::Stage;
use super::statistics::Packets;
use super::{NOBODY, Outcome, Tally, find_program, is_root};

use anyhow::{Context, Result, bail};

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(90);

/// How long a server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// How long a server may take to end after its client.
const GRACE: Duration = Duration::from_secs(20);

/// Clients of one persistent server.
const CLIENTS: usize = 8;

/// Where both ends of a pair run.
struct Place {
    name: &'static str,
    /// What clients connect to; the server's address.
    address: &'static str,
    /// What the client binds to, where it is told.
    client_address: &'static str,
    server_device: &'static str,
    client_device: &'static str,
    /// The server is in a namespace of its own.
    apart: bool,
    ipv6: bool,
}

const PLACES: [Place; 4] = [
    Place {
        name: "one address, IPv4",
        address: "127.0.0.1",
        client_address: "127.0.0.1",
        server_device: "roce_lo",
        client_device: "roce_lo",
        apart: false,
        ipv6: false,
    },
    Place {
        name: "one address, IPv6",
        address: "::1",
        client_address: "::1",
        server_device: "roce_lo",
        client_device: "roce_lo",
        apart: false,
        ipv6: true,
    },
    Place {
        name: "two namespaces, IPv4",
        address: "10.77.4.2",
        client_address: "10.77.4.1",
        server_device: "roce_cm1",
        client_device: "roce_cm0",
        apart: true,
        ipv6: false,
    },
    Place {
        name: "two namespaces, IPv6",
        address: "fd77:4::2",
        client_address: "fd77:4::1",
        server_device: "roce_cm1",
        client_device: "roce_cm0",
        apart: true,
        ipv6: true,
    },
];

/// A second network namespace, joined to this one by a pair of interfaces; it ends with the value.
struct Namespace(Child);

impl Namespace {
    fn new() -> Result<Self> {
        // A process holds it; `cat` ends when its input does, which is when we do.
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("unshare")?;
        let made = Self(child);
        made.wait_until_apart()?;
        let pid = made.pid();
        let inside = |command: &str| format!("nsenter -t {pid} --net {command}");
        for command in [
            format!("ip link add cm0 type veth peer name cm1 netns {pid}"),
            "ip addr add 10.77.4.1/24 dev cm0".into(),
            "ip addr add fd77:4::1/64 dev cm0 nodad".into(),
            "ip link set cm0 up".into(),
            inside("ip addr add 10.77.4.2/24 dev cm1"),
            inside("ip addr add fd77:4::2/64 dev cm1 nodad"),
            inside("ip link set cm1 up"),
            inside("ip link set lo up"),
        ] {
            run(&command)?;
        }
        made.wait_until_up()?;
        Ok(made)
    }

    /// The pair carries traffic a moment after both ends are up.
    fn wait_until_up(&self) -> Result<()> {
        let shows = |pid: u32, name: &str| {
            let output = Command::new("nsenter")
                .args(["-t", &pid.to_string(), "--net", "ip", "link", "show", name])
                .output();
            output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("LOWER_UP"))
        };
        let deadline = Instant::now() + LISTEN_LIMIT;
        while Instant::now() < deadline {
            if shows(std::process::id(), "cm0") && shows(self.pid(), "cm1") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the interfaces did not come up")
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn wait_until_apart(&self) -> Result<()> {
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let deadline = Instant::now() + LISTEN_LIMIT;
        while Instant::now() < deadline {
            let other = std::fs::read_link(format!("/proc/{}/ns/net", self.pid()));
            if other.is_ok_and(|other| other != own) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("unshare made no namespace")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", "cm0"]).status();
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(command: &str) -> Result<()> {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .output()
        .with_context(|| command.to_owned())?;
    if !output.status.success() {
        bail!("{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A server and its client. `ADDRESS`, `OWN` (the client's address), `PORT` and `GROUP` stand for
/// what the place has.
struct Case {
    server: &'static str,
    client: &'static str,
    /// The server goes on serving after its client.
    stays: bool,
    /// How many clients the server has.
    clients: usize,
    /// Runs in the quick selection too.
    quick: bool,
}

const fn pair(server: &'static str, client: &'static str) -> Case {
    Case {
        server,
        client,
        stays: false,
        clients: 1,
        quick: false,
    }
}

const fn quick(case: Case) -> Case {
    Case {
        quick: true,
        ..case
    }
}

const fn staying(clients: usize, case: Case) -> Case {
    Case {
        stays: true,
        clients,
        ..case
    }
}

const CASES: &[Case] = &[
    quick(pair(
        "rping -s -a ADDRESS -p PORT -C 10 -V",
        "rping -c -a ADDRESS -p PORT -C 10 -V",
    )),
    pair(
        "rping -s -a ADDRESS -p PORT -C 10 -V -S 23",
        "rping -c -a ADDRESS -p PORT -C 10 -V -S 23",
    ),
    pair(
        "rping -s -a ADDRESS -p PORT -C 20 -V -S 65535",
        "rping -c -a ADDRESS -p PORT -C 20 -V -S 65535",
    ),
    pair(
        "rping -s -a ADDRESS -p PORT -C 10 -q",
        "rping -c -a ADDRESS -p PORT -C 10 -q",
    ),
    staying(
        CLIENTS,
        quick(pair(
            "rping -s -P -a ADDRESS -p PORT",
            "rping -c -a ADDRESS -p PORT -C 20 -V -S 4096",
        )),
    ),
    quick(pair("ucmatose -p PORT", "ucmatose -s ADDRESS -p PORT")),
    pair(
        "ucmatose -p PORT -c 16 -C 10 -S 4096",
        "ucmatose -s ADDRESS -p PORT -c 16 -C 10 -S 4096",
    ),
    pair(
        "ucmatose -p PORT -c 4 -C 10 -S 2000 -m",
        "ucmatose -s ADDRESS -p PORT -c 4 -C 10 -S 2000 -m",
    ),
    pair(
        "ucmatose -p PORT -P ib -c 2",
        "ucmatose -s ADDRESS -p PORT -P ib -c 2",
    ),
    pair(
        "ucmatose -p PORT -a 18",
        "ucmatose -s ADDRESS -p PORT -a 18 -t 96",
    ),
    quick(pair("udaddy", "udaddy -s ADDRESS")),
    pair(
        "udaddy -c 4 -C 5 -S 512",
        "udaddy -s ADDRESS -c 4 -C 5 -S 512",
    ),
    quick(pair(
        "mckey -m GROUP -b ADDRESS",
        "mckey -s -m GROUP -b OWN",
    )),
    staying(
        1,
        quick(pair(
            "cmtime -b ADDRESS -p PORT",
            "cmtime -s ADDRESS -b OWN -p PORT -c 50",
        )),
    ),
    quick(pair(
        "rdma_server -s ADDRESS -p PORT",
        "rdma_client -s ADDRESS -p PORT",
    )),
    quick(pair(
        "rdma_xserver -p PORT -c r",
        "rdma_xclient -s ADDRESS -p PORT -c r",
    )),
    quick(pair(
        "rdma_xserver -p PORT -c x",
        "rdma_xclient -s ADDRESS -p PORT -c x",
    )),
    quick(pair(
        "ib_write_bw -R -F -n 500 -p PORT",
        "ib_write_bw -R -F -n 500 -p PORT ADDRESS",
    )),
    pair(
        "ib_write_lat -R -F -n 500 -p PORT",
        "ib_write_lat -R -F -n 500 -p PORT ADDRESS",
    ),
    pair(
        "ib_read_bw -R -F -n 500 -p PORT",
        "ib_read_bw -R -F -n 500 -p PORT ADDRESS",
    ),
    pair(
        "ib_read_lat -R -F -n 500 -p PORT",
        "ib_read_lat -R -F -n 500 -p PORT ADDRESS",
    ),
    quick(pair(
        "ib_send_bw -R -F -n 500 -q 4 -p PORT",
        "ib_send_bw -R -F -n 500 -q 4 -p PORT ADDRESS",
    )),
    pair(
        "ib_send_lat -R -F -n 500 -p PORT",
        "ib_send_lat -R -F -n 500 -p PORT ADDRESS",
    ),
    quick(pair(
        "ib_send_bw -R -F -c UD -s 1024 -n 500 -p PORT",
        "ib_send_bw -R -F -c UD -s 1024 -n 500 -p PORT ADDRESS",
    )),
    pair(
        "ib_send_lat -R -F -c UD -s 64 -n 500 -p PORT",
        "ib_send_lat -R -F -c UD -s 64 -n 500 -p PORT ADDRESS",
    ),
    pair(
        "ib_atomic_bw -R -F -n 500 -p PORT",
        "ib_atomic_bw -R -F -n 500 -p PORT ADDRESS",
    ),
    pair(
        "ib_atomic_lat -R -F -n 500 -p PORT",
        "ib_atomic_lat -R -F -n 500 -p PORT ADDRESS",
    ),
    pair(
        "ib_write_bw -z -F -n 500 -p PORT",
        "ib_write_bw -z -F -n 500 -p PORT ADDRESS",
    ),
    pair(
        "ib_write_bw -R -T 96 -F -n 500 -p PORT",
        "ib_write_bw -R -T 96 -F -n 500 -p PORT ADDRESS",
    ),
];

/// Runs all cases whose text contains `filter`, at all places.
pub(crate) fn run_all(stage: &Stage, filter: &str, quick: bool) -> Tally {
    let mut tally = Tally::default();
    if !stage.has_connection_manager() {
        let why = "this build has no librdmacm.so.1".to_owned();
        tally.note("connection manager", &Outcome::Skipped(why));
        return tally;
    }
    let namespace = if is_root() && find_program("nsenter").is_some() {
        Namespace::new().map_err(|error| format!("{error:#}"))
    } else {
        Err("two namespaces need root, and nsenter of util-linux".to_owned())
    };
    for place in &PLACES {
        let cases = CASES.iter().filter(|case| !quick || case.quick);
        for case in cases {
            let name = format!("{}: {}", place.name, case.client);
            if !name.contains(filter) {
                continue;
            }
            let outcome = match (&namespace, missing(case, place)) {
                (_, Some(why)) => Outcome::Skipped(why),
                (Err(why), None) if place.apart => Outcome::Skipped(why.clone()),
                (namespace, None) => run_case(stage, place, case, namespace.as_ref().ok())
                    .unwrap_or_else(|error| Outcome::Failed(format!("{error:#}"))),
            };
            tally.note(&name, &outcome);
        }
    }
    tally.add(driver::run(stage, filter, quick, namespace.as_ref().ok()));
    tally
}

fn missing(case: &Case, place: &Place) -> Option<String> {
    let program = first_word(case.client);
    if find_program(program).is_none() {
        return Some(format!("{program} is not installed"));
    }
    let why = match program {
        _ if !place.ipv6 => return None,
        "rdma_xclient" => "rdma_xserver cannot be bound, and listens for IPv4",
        "mckey" if !place.apart => "lo has no route for groups of IPv6",
        program if program.starts_with("ib_") => "this perftest connects to IPv4 addresses only",
        _ => return None,
    };
    Some(why.to_owned())
}

fn first_word(words: &str) -> &str {
    words.split_whitespace().next().unwrap_or_default()
}

/// One end of a pair, ready to be started.
fn command(
    stage: &Stage,
    words: &str,
    device: &str,
    statistics: &str,
    apart: Option<&Namespace>,
) -> Command {
    let mut command = match apart {
        Some(namespace) => {
            let mut command = Command::new("nsenter");
            let user = NOBODY.to_string();
            command.args(["-t", &namespace.pid().to_string(), "--net"]);
            command
                .args(["-S", &user, "-G", &user, "--"])
                .arg(&stage.feroce);
            command
        }
        None => Command::new(&stage.feroce),
    };
    command
        .args(["run", "--device", device, "--stats"])
        .arg(stage.scratch.join(statistics))
        .arg("--")
        .args(words.split_whitespace())
        .current_dir(&stage.scratch)
        .env("TMPDIR", &stage.scratch);
    command
}

fn start(stage: &Stage, command: Command, label: &str, apart: bool) -> std::io::Result<Running> {
    if apart {
        // nsenter gives up root itself, after it has entered.
        Running::start_as_we_are(command, &stage.scratch, label)
    } else {
        Running::start(command, &stage.scratch, label)
    }
}

fn run_case(
    stage: &Stage,
    place: &Place,
    case: &Case,
    namespace: Option<&Namespace>,
) -> Result<Outcome> {
    let apart = namespace.filter(|_| place.apart);
    let port = next_port();
    for file in ["statistics", "statistics-server"] {
        let _ = std::fs::remove_file(stage.scratch.join(file));
    }
    let fill = |words: &str| fill(words, place, port);
    let server = command(
        stage,
        &fill(case.server),
        place.server_device,
        "statistics-server",
        apart,
    );
    let mut server = start(stage, server, "server", apart.is_some())?;
    let inside = apart.map_or_else(std::process::id, Namespace::pid);
    if !wait_until_ready(inside, place, case, port, &mut server) {
        let ended = server.finish(Instant::now());
        return Ok(Outcome::Failed(format!(
            "the server does not listen\n{}",
            ended.describe()
        )));
    }
    let mut clients = Vec::new();
    // One after the other: rping's server keeps one request in mind at a time.
    for _ in 0..case.clients {
        let words = fill(case.client);
        let client = command(stage, &words, place.client_device, "statistics", None);
        let client = start(stage, client, "client", false)?;
        clients.push(client.finish(Instant::now() + LIMIT));
    }
    let good = clients.iter().all(|client| client.is_good());
    let grace = if case.stays || !good {
        Duration::from_millis(100)
    } else {
        GRACE
    };
    let served_on = case.stays && !server.has_ended();
    let server = server.finish(Instant::now() + grace);
    if !good || !(server.is_good() || served_on) {
        let mut text = server.describe();
        for client in clients.iter().filter(|client| !client.is_good()) {
            text.push('\n');
            text.push_str(&client.describe());
        }
        return Ok(Outcome::Failed(text));
    }
    let read = |file: &str| std::fs::read_to_string(stage.scratch.join(file)).unwrap_or_default();
    let mut lines = read("statistics");
    let mut users = case.clients;
    if !served_on {
        // One that is stopped tells nothing.
        lines.push_str(&read("statistics-server"));
        users += 1;
    }
    Ok(judge_packets(&lines, users))
}

/// The packets must be those of our device, at every end.
fn judge_packets(lines: &str, users_min: usize) -> Outcome {
    match Packets::read(lines) {
        Ok(packets) if packets.users >= users_min => Outcome::Passed,
        Ok(packets) => Outcome::Failed(format!(
            "only {} of {users_min} processes used the device:\n{lines}",
            packets.users
        )),
        Err(outcome) => outcome,
    }
}

fn fill(words: &str, place: &Place, port: u16) -> String {
    let mut words = words
        .replace("ADDRESS", place.address)
        .replace("OWN", place.client_address)
        .replace("PORT", &port.to_string())
        .replace("GROUP", group(place));
    if place.ipv6 {
        match first_word(&words) {
            // Unbound, they listen for IPv4.
            "ucmatose" | "udaddy" if !words.contains(" -s ") => {
                words.push_str(" -b ");
                words.push_str(place.address);
            }
            _ => {}
        }
    }
    words
}

const fn group(place: &Place) -> &'static str {
    if place.ipv6 {
        "ff15::7704"
    } else {
        "239.77.4.9"
    }
}

/// Waits until the server has bound its port, or joined its group.
fn wait_until_ready(pid: u32, place: &Place, case: &Case, port: u16, server: &mut Running) -> bool {
    let (file, mark) = match (first_word(case.server), place.ipv6) {
        ("mckey", false) => ("igmp", "09044DEF".to_owned()),
        ("mckey", true) => ("igmp6", "ff150000000000000000000000007704".to_owned()),
        // Its port is its own.
        ("udaddy", _) => ("unix", ":7174/".to_owned()),
        _ => ("unix", format!(":{port}/")),
    };
    let is_it =
        |line: &str| line.contains(&mark) && (file != "unix" || line.contains("@feroce/listen/"));
    let deadline = Instant::now() + LISTEN_LIMIT;
    while Instant::now() < deadline && !server.has_ended() {
        let text = std::fs::read(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
        if String::from_utf8_lossy(&text).lines().any(is_it) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}
