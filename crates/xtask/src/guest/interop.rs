//! `cargo xtask guest interop`: stock RDMA programs between kernel soft-RoCE and Feroce.
//!
//! One guest runs all cases. Our end is a network namespace of this machine with a tap to the
//! guest, or, for `--self-check`, a second guest with soft-RoCE: what fails then is the harness'
//! or soft-RoCE's fault, not Feroce's.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use lexopt::Parser;
use lexopt::prelude::{Long, ValueExt};

use super::agent::Finished;
use super::case::{self, Case, Direction, Endpoint, Family, Program, Setting};
use super::cm::Tool;
use super::image::{self, Image};
use super::machine::{Machine, Network, Settings};
use super::network::Namespace;
use super::side::{Place, Side};
use crate::cargo;

const TAP: &str = "ftap0";
const GUEST_DEVICE: &str = "rxe0";
const OUR_NUMBER: u8 = 1;
const GUEST_NUMBER: u8 = 2;
/// Meeting ports of the cases, one each: no case waits for an old connection to time out.
const FIRST_PORT: u16 = 20_000;
/// For the steps between cases, such as setting up the network.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// What is shown of a failed program's output.
const OUTPUT_LINES_MAX: usize = 25;
/// Programs that the cases need, and the packages that have them.
const PROGRAMS: [(&str, &str); 4] = [
    ("ibv_rc_pingpong", "ibverbs-utils"),
    ("ib_write_bw", "perftest"),
    ("rping", "rdmacm-utils"),
    ("tc", "iproute2"),
];

#[derive(Default)]
struct Options {
    quick: bool,
    list: bool,
    self_check: bool,
    only: Vec<String>,
    ours: Option<String>,
    ours_device: Option<String>,
}

impl Options {
    fn parse(mut arguments: Parser) -> Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("quick") => options.quick = true,
                Long("list") => options.list = true,
                Long("self-check") => options.self_check = true,
                Long("only") => options.only.push(arguments.value()?.string()?),
                Long("ours") => options.ours = Some(arguments.value()?.string()?),
                Long("ours-device") => options.ours_device = Some(arguments.value()?.string()?),
                other => bail!("{}", other.unexpected()),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(arguments: Parser) -> Result<()> {
    let options = Options::parse(arguments)?;
    let mut cases = case::all(options.quick);
    cases.retain(|case| {
        options
            .only
            .iter()
            .all(|text| case.to_string().contains(text))
    });
    if options.list {
        cases.iter().for_each(|case| println!("{case}"));
        return Ok(());
    }
    ensure!(
        !cases.is_empty(),
        "no case has all of {:?} in its name",
        options.only
    );
    if let Some(reason) = missing(&options) {
        println!("SKIPPED guest interop: {reason}");
        println!("0 passed, 0 failed, {} skipped", cases.len());
        return Ok(());
    }
    let failed = if options.self_check {
        between_guests(&cases)?
    } else {
        against_ours(&options, &cases)?
    };
    println!(
        "{} passed, {failed} failed, 0 skipped",
        cases.len() - failed
    );
    ensure!(failed == 0, "{failed} cases failed");
    Ok(())
}

/// What this machine lacks.
fn missing(options: &Options) -> Option<String> {
    let mut tools = image::missing_tools();
    for (program, package) in PROGRAMS {
        if image::find_program(program).is_none() {
            tools.push(format!("{program} (apt-get install {package})"));
        }
    }
    if !Path::new("/usr/lib/python3/dist-packages/pyverbs").is_dir() {
        tools.push("pyverbs (apt-get install python3-pyverbs)".to_owned());
    }
    if !tools.is_empty() {
        return Some(format!("it needs {}", tools.join(", ")));
    }
    if options.self_check {
        return None;
    }
    if fs::metadata("/proc/self").map(|process| process.uid()).ok() != Some(0) {
        return Some("a network namespace with a tap needs root".to_owned());
    }
    (!Path::new("/dev/net/tun").exists()).then(|| "there is no /dev/net/tun".to_owned())
}

fn programs_folder() -> PathBuf {
    cargo::workspace().join("tests/programs")
}

/// Soft-RoCE in the guest, ours in a namespace.
fn against_ours(options: &Options, cases: &[Case]) -> Result<usize> {
    let prefix = match &options.ours {
        Some(prefix) => prefix.clone(),
        None => {
            let command = cargo::target_folder()?.join("feroce/bin/feroce");
            let hint = "run `cargo xtask dist` first, or give --ours";
            ensure!(
                command.is_file(),
                "{} is missing: {hint}",
                command.display()
            );
            format!("{} run --", command.display())
        }
    };
    let image = Image::build()?;
    let namespace = Namespace::create()?;
    let prefixes = addresses(OUR_NUMBER).map(|address| format!("{address}/{}", bits(address)));
    namespace.add_tap(TAP, &prefixes)?;
    let settings = Settings {
        network: Network::Tap(TAP.to_owned()),
        ..Settings::default()
    };
    let guest = Machine::boot(&image, &settings, |program| namespace.command(program))?;
    let ours = Side {
        place: Place::Namespace(&namespace),
        prefix,
        device: options
            .ours_device
            .clone()
            .unwrap_or_else(|| format!("roce_{TAP}")),
        addresses: addresses(OUR_NUMBER),
        // Without a process there is no device.
        silent: addresses(OUR_NUMBER)[0],
        programs: programs_folder(),
    };
    run_cases(&ours, &guest_side(&guest, GUEST_NUMBER)?, cases)
}

/// Soft-RoCE on both ends.
fn between_guests(cases: &[Case]) -> Result<usize> {
    let image = Image::build()?;
    let socket = |number: u8| {
        std::env::temp_dir().join(format!("feroce-wire-{}-{number}", std::process::id()))
    };
    let boot = |number, other| {
        let network = Network::Pair {
            local: socket(number),
            remote: socket(other),
        };
        // Two guests share this machine's processors.
        let settings = Settings {
            network,
            processors: 1,
            ..Settings::default()
        };
        Machine::boot(&image, &settings, Command::new)
    };
    let first = boot(OUR_NUMBER, GUEST_NUMBER)?;
    let second = boot(GUEST_NUMBER, OUR_NUMBER)?;
    let (ours, guest) = (
        guest_side(&first, OUR_NUMBER)?,
        guest_side(&second, GUEST_NUMBER)?,
    );
    let failed = run_cases(&ours, &guest, cases);
    // Each datagram is sent to these names: they stay as long as the guests.
    for number in [OUR_NUMBER, GUEST_NUMBER] {
        drop(fs::remove_file(socket(number)));
    }
    failed
}

fn guest_side(machine: &Machine, number: u8) -> Result<Side<'_>> {
    machine.share(&programs_folder().join("xfer.py"), "xfer.py")?;
    Ok(Side {
        place: Place::Guest(machine),
        prefix: String::new(),
        device: GUEST_DEVICE.to_owned(),
        addresses: addresses(number),
        silent: IpAddr::from([10, 9, 0, 70 + number]),
        programs: "/run/guest".into(),
    })
}

/// IPv4 and IPv6 of an end.
fn addresses(number: u8) -> [IpAddr; 2] {
    [
        IpAddr::from([10, 9, 0, number]),
        IpAddr::from([0xfd00, 9, 0, 0, 0, 0, 0, number.into()]),
    ]
}

const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv6() { 64 } else { 24 }
}

/// Runs the cases and prints a line for each; returns how many failed.
fn run_cases(ours: &Side<'_>, guest: &Side<'_>, cases: &[Case]) -> Result<usize> {
    let started = Instant::now();
    let mut failed = 0;
    let mut gids = None;
    let mut current: Option<Setting> = None;
    for (port, case) in (FIRST_PORT..).zip(cases) {
        if current != Some(case.setting) {
            gids = Some(set_up(ours, guest, case.setting)?);
            current = Some(case.setting);
        }
        let (our_gid, guest_gid) = gids.context("no setting")?;
        let begin = Instant::now();
        let verdict = run_case(
            case,
            &endpoint(ours, case, our_gid),
            ours,
            &endpoint(guest, case, guest_gid),
            guest,
            port,
        );
        let seconds = begin.elapsed().as_secs_f64();
        match verdict {
            Ok(()) => println!("PASS {seconds:6.1} s  {case}"),
            Err(error) => {
                failed += 1;
                println!("FAIL {seconds:6.1} s  {case}\n{error:#}");
            }
        }
    }
    println!(
        "{} cases in {:.0} s",
        cases.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(failed)
}

fn endpoint<'a>(side: &'a Side<'_>, case: &Case, gid_index: usize) -> Endpoint<'a> {
    Endpoint {
        prefix: &side.prefix,
        device: &side.device,
        gid_index,
        address: side.addresses[address_index(case.setting)],
        meeting: side.addresses[0],
        silent: side.silent,
        programs: &side.programs,
    }
}

const fn address_index(setting: Setting) -> usize {
    match setting.family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

/// Brings both ends into the conditions of a case; returns the GID indices, ours first.
fn set_up(ours: &Side<'_>, guest: &Side<'_>, setting: Setting) -> Result<(usize, usize)> {
    match ours.place {
        Place::Namespace(namespace) => namespace.set_mtu(TAP, setting.interface_mtu())?,
        Place::Guest(_) => set_up_guest(ours, setting, false)?,
    }
    set_up_guest(guest, setting, setting.loss)?;
    // The wire works before anything on it is judged.
    for address in ours.addresses {
        let answered = guest.run(&format!("busybox ping -c 3 -W 5 {address}"), STEP_LIMIT)?;
        ensure!(
            answered.status == 0,
            "{address} does not answer:\n{}",
            answered.output
        );
    }
    let index = |side: &Side<'_>| side.gid_index(side.addresses[address_index(setting)]);
    Ok((index(ours)?, index(guest)?))
}

/// Makes the guest's interface and soft-RoCE device anew.
fn set_up_guest(side: &Side<'_>, setting: Setting, loss: bool) -> Result<()> {
    let mut steps = vec![
        format!("rdma link del {GUEST_DEVICE} 2>/dev/null"),
        "tc qdisc del dev eth0 root 2>/dev/null".to_owned(),
        "tc qdisc del dev eth0 ingress 2>/dev/null".to_owned(),
        // Coming up gives the interface its link-local address, without which the kernel looks
        // for no neighbour on soft-RoCE's behalf; checking that it is unique would take a second.
        "ip link set eth0 down; ip addr flush dev eth0; set -e".to_owned(),
        "echo 0 > /proc/sys/net/ipv6/conf/eth0/accept_dad".to_owned(),
        format!("ip link set eth0 mtu {} up", setting.interface_mtu()),
    ];
    for address in side.addresses {
        let unchecked = if address.is_ipv6() { " nodad" } else { "" };
        steps.push(format!(
            "ip addr add {address}/{} dev eth0{unchecked}",
            bits(address)
        ));
    }
    // Its neighbours find it, and no RDMA device has it.
    steps.push(format!("ip addr replace {}/32 dev lo", side.silent));
    if loss {
        // A discipline thins what is sent. What arrives is sent through a device of its own first.
        steps.push("tc qdisc add dev eth0 root netem loss 1%".to_owned());
        steps.push("ip link set ifb0 mtu 9000 up".to_owned());
        steps.push("tc qdisc replace dev ifb0 root netem loss 1%".to_owned());
        steps.push("tc qdisc add dev eth0 ingress".to_owned());
        steps.push(
            "tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0"
                .to_owned(),
        );
    }
    steps.push(format!("rdma link add {GUEST_DEVICE} type rxe netdev eth0"));
    let finished = side.run(&steps.join("; "), STEP_LIMIT)?;
    ensure!(
        finished.status == 0,
        "setting up the guest failed:\n{}",
        finished.output
    );
    Ok(())
}

fn run_case(
    case: &Case,
    our_end: &Endpoint<'_>,
    ours: &Side<'_>,
    guest_end: &Endpoint<'_>,
    guest: &Side<'_>,
    port: u16,
) -> Result<()> {
    let lost_before = if case.setting.loss {
        packets_lost(guest)?
    } else {
        0
    };
    let ((server, server_end), (client, client_end)) = match case.direction {
        Direction::OursServes => ((ours, our_end), (guest, guest_end)),
        Direction::OursConnects => ((guest, guest_end), (ours, our_end)),
    };
    if let Program::Manager(tool) = case.program {
        return run_tool(case, tool, [server_end, client_end], [server, client], port);
    }
    let serving = server.start(&case.command(server_end, None, port), case.limit())?;
    let ready = server.wait_listening(port);
    let connected = match &ready {
        Ok(()) => {
            let command = case.command(client_end, Some(server_end), port);
            Some(client.run(&command, case.limit())?)
        }
        Err(_) => None,
    };
    if connected.as_ref().is_none_or(|client| client.status != 0) {
        serving.stop()?;
    }
    let served = serving.wait()?;
    if let (Ok(()), Some(Finished { status: 0, .. }), 0) = (&ready, &connected, served.status) {
        if case.setting.loss {
            let lost = packets_lost(guest)?.saturating_sub(lost_before);
            ensure!(lost > 0, "    no packet was lost, so nothing was shown");
        }
        return Ok(());
    }
    let mut report = ready
        .err()
        .map(|error| format!("    {error}\n"))
        .unwrap_or_default();
    report += &tail("server", &served);
    report += &connected
        .map(|client| tail("client", &client))
        .unwrap_or_default();
    let neighbours = guest.run("ip neigh show dev eth0", STEP_LIMIT)?;
    report += &tail("neighbours of the guest", &neighbours);
    bail!("{}", report.trim_end())
}

/// Runs programs that meet over the connection manager; some must not meet.
fn run_tool(
    case: &Case,
    tool: Tool,
    [server_end, client_end]: [&Endpoint<'_>; 2],
    [server, client]: [&Side<'_>; 2],
    port: u16,
) -> Result<()> {
    let command = case.command(client_end, Some(server_end), port);
    let Some(serves_on) = tool.serves_on(port) else {
        let client = client.run(&command, case.limit())?;
        return tool
            .judge_client(&client)
            .with_context(|| tail("client", &client));
    };
    let serving = server.start(&case.command(server_end, None, port), case.limit())?;
    let connected = server
        .wait_managed(serves_on)
        .and_then(|()| client.run(&command, case.limit()));
    let verdict = match &connected {
        Ok(client) => tool.judge_client(client),
        Err(error) => Err(anyhow!("{error:#}")),
    };
    if verdict.is_err() || tool.server_is_left_alone() {
        serving.stop()?;
    }
    let served = serving.wait()?;
    let server_failed = served.status != 0 && !tool.server_is_left_alone();
    if verdict.is_ok() && !server_failed {
        return Ok(());
    }
    let mut report = tail("server", &served);
    report += &connected
        .map(|client| tail("client", &client))
        .unwrap_or_default();
    let why = verdict
        .err()
        .map_or_else(String::new, |error| format!("    {error:#}\n"));
    bail!("{}{}", why, report.trim_end())
}

/// Packets that the guest's queueing disciplines dropped so far.
fn packets_lost(guest: &Side<'_>) -> Result<u64> {
    let command = "tc -s qdisc show dev eth0; tc -s qdisc show dev ifb0";
    Ok(sum_dropped(&guest.run(command, STEP_LIMIT)?.output))
}

/// Adds up `(dropped 12, overlimits …` of every discipline.
fn sum_dropped(text: &str) -> u64 {
    let counts = text.split("dropped ").skip(1);
    let numbers = counts.filter_map(|rest| rest.split(',').next()?.trim().parse::<u64>().ok());
    numbers.sum()
}

/// The last lines that an end printed, indented.
fn tail(end: &str, finished: &Finished) -> String {
    let meaning = if finished.status == 124 {
        " (time-out)"
    } else {
        ""
    };
    let lines: Vec<&str> = finished.output.lines().collect();
    let kept = &lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..];
    let text = kept
        .iter()
        .map(|line| format!("    | {line}\n"))
        .collect::<String>();
    format!("    {end}: status {}{meaning}\n{text}", finished.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_packets_are_added_up() {
        let text = "qdisc netem 8001: root refcnt 2 limit 1000 loss 1%\n \
                    Sent 5 bytes 1 pkt (dropped 12, overlimits 0 requeues 0)\n\
                    qdisc ingress ffff: parent ffff:fff1\n \
                    Sent 0 bytes (dropped 3, overlimits 0)\n";
        assert_eq!(sum_dropped(text), 15);
        assert_eq!(sum_dropped(""), 0);
    }

    #[test]
    fn failures_show_the_end_of_what_was_printed() {
        let output = (0..100).map(|line| format!("line {line}\n")).collect();
        let text = tail(
            "server",
            &Finished {
                status: 124,
                output,
            },
        );
        assert!(
            text.starts_with("    server: status 124 (time-out)\n    | line 75\n"),
            "{text}"
        );
    }
}
