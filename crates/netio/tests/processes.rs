//! Several processes on one address, several hosts (network namespaces), several users.
//!
//! Each case starts copies of this test binary that open a device and do what they are told, line
//! by line. A packet of theirs begins with the slot it is for, as the queue pair number of a real
//! one would say. What needs root or namespaces is skipped, loudly, where they are not to be had.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use feroce_mem::Fragment;
use feroce_netio::{
    Change, Datagram, Destination, Monitor, Net, NetConfig, SLOTS, SendError, Slot, Verdict,
    interfaces,
};

const CHILD: &str = "FEROCE_TEST_CHILD";
const PATIENCE: Duration = Duration::from_secs(20);

// ---- the process that does as it is told -------------------------------------------------------

/// Not a test by itself: the program the cases run.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (lines, commands) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if lines.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    let mut device = None;
    loop {
        match commands.recv_timeout(Duration::from_micros(200)) {
            Ok(line) => {
                let words: Vec<&str> = line.split_whitespace().collect();
                // Behind a mark, since the test harness prints to the same place.
                println!("@{}", obey(&mut device, &words));
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        }
        if let Some(device) = &mut device {
            device.receive();
        }
    }
}

/// A device, and what arrived for it.
struct Device {
    net: Net,
    monitor: Monitor,
    slots: Vec<u16>,
    /// Datagrams per source, and how many of them were handed on by others.
    mine: HashMap<SocketAddr, (u64, u64)>,
    classes: Vec<u8>,
    groups: u64,
    claimed: Vec<Slot>,
}

impl Device {
    fn receive(&mut self) {
        let Self {
            net,
            slots,
            mine,
            classes,
            groups,
            ..
        } = self;
        let sink = |datagram: Datagram<'_>| {
            if datagram.destination.is_multicast() {
                *groups += 1;
                return Verdict::Done;
            }
            let slot = u16::from_le_bytes(*datagram.bytes.first_chunk().unwrap());
            if !slots.contains(&slot) {
                return Verdict::Forward(slot);
            }
            let (all, forwarded) = mine.entry(datagram.source).or_default();
            *all += 1;
            *forwarded += u64::from(datagram.forwarded);
            classes.push(datagram.traffic_class);
            Verdict::Done
        };
        net.receive_ready(sink).unwrap();
    }

    fn send(&mut self, words: &[&str]) -> Result<(), SendError> {
        let [source, destination, slot, segments, length, class] = words else {
            panic!("send SOURCE DESTINATION SLOT SEGMENTS LENGTH CLASS");
        };
        let segments: usize = segments.parse().unwrap();
        let length: usize = length.parse().unwrap();
        let to = Destination {
            traffic_class: class.parse().unwrap(),
            ..destination_of(source, destination, slot)
        };
        let mut datagram = vec![0; length];
        datagram[..2].copy_from_slice(&to.slot.unwrap().to_le_bytes());
        let batch = datagram.repeat(segments);
        let fragments: Vec<_> = batch.chunks(333).map(Fragment::from).collect();
        self.net.send(&to, &fragments, length, segments)
    }
}

fn obey(device: &mut Option<Device>, words: &[&str]) -> String {
    let Some(device) = device else {
        let ["open", interface, port, addresses @ ..] = words else {
            panic!("open INTERFACE PORT ADDRESS ...");
        };
        return match open(interface, port.parse().unwrap(), addresses) {
            Ok(opened) => {
                let slot = opened.slots[0];
                *device = Some(opened);
                slot.to_string()
            }
            Err(error) => format!("error: {error}"),
        };
    };
    match words {
        ["send", rest @ ..] => match device.send(rest) {
            Ok(()) => "ok".into(),
            Err(error) => format!("error: {error}"),
        },
        ["count"] => device
            .mine
            .values()
            .map(|(all, _)| all)
            .sum::<u64>()
            .to_string(),
        ["detours"] => device
            .mine
            .values()
            .map(|(_, forwarded)| forwarded)
            .sum::<u64>()
            .to_string(),
        ["groups"] => device.groups.to_string(),
        ["classes"] => format!("{:?}", std::mem::take(&mut device.classes)),
        ["counter", name] => {
            let fields = device.net.counters().fields();
            let field = fields.iter().find(|(field, _)| field == name);
            field.unwrap().1.to_string()
        }
        ["knows", source, destination, slot] => {
            let to = destination_of(source, destination, slot);
            let ready = device.net.peer_ready(&to);
            let known = device
                .net
                .peer_buffer(to.destination, slot.parse().unwrap());
            (ready && known.is_some()).to_string()
        }
        ["claim", what] => claim(&mut device.claimed, what),
        ["writable", source, destination] => {
            let to = destination_of(source, destination, "0");
            device
                .net
                .wait_writable(&to, Duration::from_millis(10))
                .to_string()
        }
        ["join", group] => match device.net.join(group.parse().unwrap()) {
            Ok(()) => "ok".into(),
            Err(error) => format!("error: {error}"),
        },
        ["leave", group] => {
            device.net.leave(group.parse().unwrap());
            "ok".into()
        }
        ["changes"] => format!("{:?}", device.monitor.changes()),
        other => panic!("unknown command {other:?}"),
    }
}

/// Takes all slots that are left, or gives them back.
fn claim(claimed: &mut Vec<Slot>, what: &str) -> String {
    if what == "none" {
        claimed.clear();
        return "ok".into();
    }
    loop {
        match Slot::claim() {
            Ok(slot) => claimed.push(slot),
            Err(error) => break format!("{} more, then: {error}", claimed.len()),
        }
    }
}

fn destination_of(source: &str, destination: &str, slot: &str) -> Destination {
    let slot = slot.parse().unwrap();
    Destination {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        slot: Some(slot),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0x1_2345,
        entropy: slot,
    }
}

fn open(interface: &str, port: u16, addresses: &[&str]) -> Result<Device, String> {
    let interfaces = interfaces().unwrap();
    let interface = interfaces.iter().find(|known| known.name == interface);
    let config = NetConfig {
        interface: interface.unwrap().index,
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        udp_port: port,
        ..NetConfig::default()
    };
    let slot = Slot::claim().map_err(|error| error.to_string())?;
    let slots = vec![slot.number()];
    Ok(Device {
        net: Net::open(config, slot).map_err(|error| error.to_string())?,
        monitor: Monitor::open().unwrap(),
        slots,
        mine: HashMap::new(),
        classes: Vec::new(),
        groups: 0,
        claimed: Vec::new(),
    })
}

// ---- the side that tells ------------------------------------------------------------------------

/// A running copy of this binary.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn here() -> Self {
        Self::start(&mut Command::new(std::env::current_exe().unwrap()))
    }

    fn within(namespace: &str) -> Self {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]);
        command.arg(std::env::current_exe().unwrap());
        Self::start(&mut command)
    }

    #[track_caller]
    fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.output.read_line(&mut line).unwrap();
            assert!(length > 0, "the process ended at: {command}");
            if let Some((_, answer)) = line.split_once('@') {
                return answer.trim_end().to_owned();
            }
        }
    }

    #[track_caller]
    fn open(&mut self, interface: &str, port: u16, addresses: &str) -> u16 {
        let answer = self.ask(&format!("open {interface} {port} {addresses}"));
        answer.parse().unwrap_or_else(|_| panic!("{answer}"))
    }

    #[track_caller]
    fn number(&mut self, command: &str) -> u64 {
        self.ask(command).parse().unwrap()
    }

    #[track_caller]
    fn wait_for(&mut self, command: &str, wanted: &str) {
        let start = Instant::now();
        loop {
            let answer = self.ask(command);
            if answer == wanted {
                return;
            }
            let late = start.elapsed() > PATIENCE;
            assert!(!late, "{command}: {answer} instead of {wanted}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
    probe.local_addr().unwrap().port()
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ids = status
        .lines()
        .find(|line| line.starts_with("Uid:"))
        .unwrap();
    ids.split_whitespace().nth(2) == Some("0")
}

/// Two hosts with a wire between them, gone with the value.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// `None`, loudly, where namespaces cannot be made.
    fn new(case: &str) -> Option<Self> {
        if !is_root() {
            eprintln!("SKIPPED: {case} needs root, for network namespaces");
            return None;
        }
        let id = std::process::id();
        let names = ["a", "b"].map(|side| format!("feroce-{case}-{id}-{side}"));
        let hosts = Self { names };
        for name in &hosts.names {
            if !run("ip", &["netns", "add", name]) {
                eprintln!("SKIPPED: {case}: network namespaces cannot be made");
                return None;
            }
            assert!(run("ip", &["-n", name, "link", "set", "lo", "up"]));
        }
        let [a, b] = &hosts.names;
        assert!(run(
            "ip",
            &[
                "link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns",
                b
            ]
        ));
        for (name, host) in hosts.names.iter().zip(["1", "2"]) {
            let v6 = format!("fd00::{host}/64");
            let v4 = format!("10.77.0.{host}/24");
            assert!(run("ip", &["-n", name, "addr", "add", &v4, "dev", "eth0"]));
            // Without duplicate address detection, so that it can be used at once.
            assert!(run(
                "ip",
                &["-n", name, "addr", "add", &v6, "dev", "eth0", "nodad"]
            ));
            assert!(run("ip", &["-n", name, "link", "set", "eth0", "up"]));
        }
        Some(hosts)
    }

    fn ip(&self, host: usize, arguments: &str) {
        let mut all = vec!["-n", &self.names[host]];
        all.extend(arguments.split_whitespace());
        assert!(run("ip", &all), "ip {arguments}");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            run("ip", &["netns", "delete", name]);
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

// ---- cases --------------------------------------------------------------------------------------

#[test]
fn eight_processes_on_one_address_each_get_what_is_theirs() {
    let port = free_port();
    let mut processes: Vec<_> = (0..8).map(|_| Process::here()).collect();
    let slots: Vec<u16> = processes
        .iter_mut()
        .map(|process| process.open("lo", port, "127.0.0.1"))
        .collect();
    // A program that is not one of ours, from many ports, so that the kernel spreads it.
    for flow in 0..32 {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let slot = slots[flow % 8];
        for _ in 0..10 {
            let mut packet = [0; 40];
            packet[..2].copy_from_slice(&slot.to_le_bytes());
            stranger.send_to(&packet, ("127.0.0.1", port)).unwrap();
        }
    }
    for process in &mut processes {
        process.wait_for("count", "40");
    }
    let detours: u64 = processes
        .iter_mut()
        .map(|process| process.number("detours"))
        .sum();
    assert!(detours > 100, "{detours} of 320 packets were handed on");
    // Among themselves, once acquainted, nothing takes a detour.
    for (from, process) in processes.iter_mut().enumerate() {
        let to = (from + 3) % 8;
        let peer = format!("knows 127.0.0.1 127.0.0.1 {}", slots[to]);
        process.wait_for(&peer, "true");
        for _ in 0..10 {
            let send = format!("send 127.0.0.1 127.0.0.1 {} 8 1000 0", slots[to]);
            assert_eq!(process.ask(&send), "ok");
        }
    }
    for process in &mut processes {
        process.wait_for("count", "120");
    }
    let after: u64 = processes
        .iter_mut()
        .map(|process| process.number("detours"))
        .sum();
    assert_eq!(after, detours);
}

#[test]
fn a_killed_process_frees_its_slot_and_disturbs_nobody() {
    let port = free_port();
    let (mut a, mut b, mut c) = (Process::here(), Process::here(), Process::here());
    let [_, slot_b, slot_c] =
        [&mut a, &mut b, &mut c].map(|process| process.open("lo", port, "127.0.0.1"));
    a.wait_for(&format!("knows 127.0.0.1 127.0.0.1 {slot_b}"), "true");
    b.child.kill().unwrap();
    b.child.wait().unwrap();
    // Its slot is free at once: a process with any id can be given it.
    let mut claimed = Vec::new();
    while claimed.iter().all(|slot: &Slot| slot.number() != slot_b) {
        claimed.push(Slot::claim().unwrap());
    }
    drop(claimed);
    // Sending to the dead one is no error, as on any network, and the others do not notice.
    let to_b = format!("send 127.0.0.1 127.0.0.1 {slot_b} 1 100 0");
    let to_c = format!("send 127.0.0.1 127.0.0.1 {slot_c} 1 100 0");
    for _ in 0..5 {
        assert_eq!(a.ask(&to_b), "ok");
        assert_eq!(a.ask(&to_c), "ok");
    }
    c.wait_for("count", "5");
    // What is known about the dead one is forgotten within about a second of use.
    let start = Instant::now();
    while a.ask(&format!("knows 127.0.0.1 127.0.0.1 {slot_b}")) == "true" {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn slots_are_taken_one_by_one_until_none_is_left_and_are_free_when_dropped() {
    // In a namespace of its own, or every program of this host would miss them.
    let Some(hosts) = Hosts::new("slots") else {
        return;
    };
    let mut process = Process::within(&hosts.names[0]);
    let first = process.open("lo", 4791, "127.0.0.1");
    assert!((1..SLOTS - 1).contains(&first));
    let answer = process.ask("claim all");
    let expected = "1021 more, then: all 1022 slots of this network namespace are taken";
    assert!(answer.starts_with(expected), "{answer}");
    let mut late = Process::within(&hosts.names[0]);
    let answer = late.ask("open lo 4791 127.0.0.1");
    assert!(answer.starts_with("error: all 1022 slots"), "{answer}");
    assert_eq!(process.ask("claim none"), "ok");
    assert_ne!(late.open("lo", 4791, "127.0.0.1"), first);
}

#[test]
fn another_user_is_refused_with_the_reason() {
    if !is_root() {
        eprintln!("SKIPPED: another_user_is_refused_with_the_reason needs root");
        return;
    }
    let port = free_port();
    let mut ours = Process::here();
    let slot = ours.open("lo", port, "127.0.0.1");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.uid(65534).gid(65534);
    let mut theirs = Process::start(&mut command);
    let answer = theirs.ask(&format!("open lo {port} 127.0.0.1"));
    let expected = format!(
        "error: UDP port {port} on 127.0.0.1 is in use by another user or a program that does not \
         share it"
    );
    assert!(answer.starts_with(&expected), "{answer}");
    // On a port of their own they may work, but their slot messages are not heard.
    let their_slot = theirs.open("lo", free_port(), "127.0.0.1");
    assert_ne!(their_slot, slot);
    theirs.ask(&format!("knows 127.0.0.1 127.0.0.1 {slot}"));
    ours.wait_for("counter foreign_users", "1");
    assert_eq!(
        theirs.ask(&format!("knows 127.0.0.1 127.0.0.1 {slot}")),
        "false"
    );
}

#[test]
fn remote_flows_find_their_process_and_then_stay_there() {
    let Some(hosts) = Hosts::new("flows") else {
        return;
    };
    for (from, to) in [("10.77.0.1", "10.77.0.2"), ("fd00::1", "fd00::2")] {
        let mut near = Process::within(&hosts.names[0]);
        near.open("eth0", 4791, from);
        let mut far: Vec<_> = (0..4).map(|_| Process::within(&hosts.names[1])).collect();
        let slots: Vec<u16> = far
            .iter_mut()
            .map(|process| process.open("eth0", 4791, to))
            .collect();
        let mut sent = 0;
        let mut send_to_all = |near: &mut Process, far: &mut [Process]| {
            sent += 16;
            for (process, slot) in far.iter_mut().zip(&slots) {
                let send = format!("send {from} {to} {slot} 16 1040 2");
                assert_eq!(near.ask(&send), "ok");
                process.wait_for("count", &sent.to_string());
                assert_eq!(process.ask("classes"), format!("{:?}", [2; 16]));
            }
        };
        send_to_all(&mut near, &mut far);
        let first: u64 = far
            .iter_mut()
            .map(|process| process.number("detours"))
            .sum();
        // One of four sockets is the right one by luck; that all four flows are is unlikely but
        // possible, and then there is nothing to learn from this address.
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(20));
            send_to_all(&mut near, &mut far);
        }
        let later: u64 = far
            .iter_mut()
            .map(|process| process.number("detours"))
            .sum();
        assert_eq!(
            first, later,
            "after the first round every flow has its socket"
        );
        let opened: u64 = far
            .iter_mut()
            .map(|process| process.number("counter flows_opened"))
            .sum();
        assert_eq!(opened * 16, first);
        assert_eq!(near.number("counter unsegmented"), 0);
    }
}

/// What a capture says about the headers of its packets, if tshark can tell.
fn wire_fields(capture: &std::path::Path) -> Option<String> {
    let mut tshark = Command::new("tshark");
    tshark
        .arg("-r")
        .arg(capture)
        .args(["-T", "fields", "-E", "separator=,"]);
    for field in [
        "ip.id",
        "ip.flags.df",
        "ip.dsfield",
        "ip.ttl",
        "ipv6.tclass",
        "ipv6.flow",
        "ipv6.hlim",
        "udp.dstport",
    ] {
        tshark.args(["-e", field]);
    }
    let output = tshark.stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout)
        .ok()
        .filter(|text| !text.is_empty())
}

/// What the invariant CRC of the layers above relies on.
#[test]
fn datagrams_are_numbered_within_their_batch_and_are_never_fragmented() {
    let Some(hosts) = Hosts::new("wire") else {
        return;
    };
    let [near, far] = &hosts.names;
    // Otherwise a batch crosses such a wire in one piece.
    let ethtool = [
        "netns",
        "exec",
        near,
        "ethtool",
        "-K",
        "eth0",
        "tx-udp-segmentation",
        "off",
    ];
    let segments = if run("ip", &ethtool) { 3 } else { 1 };
    let file = std::env::temp_dir().join(format!("feroce-wire-{}.pcapng", std::process::id()));
    let capture = Command::new("ip")
        .args([
            "netns", "exec", far, "dumpcap", "-q", "-i", "eth0", "-f", "udp", "-w",
        ])
        .arg(&file)
        .stderr(Stdio::null())
        .spawn();
    let mut capture = capture.unwrap();
    let mut process = Process::within(&hosts.names[0]);
    process.open("eth0", 4791, "10.77.0.1 fd00::1");
    let seen = (0..40).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        // Several entropies, so several of our sockets.
        for slot in 0..8 {
            let v4 = format!("send 10.77.0.1 10.77.0.2 {slot} {segments} 100 107");
            let v6 = format!("send fd00::1 fd00::2 {slot} 1 100 107");
            assert_eq!(process.ask(&v4), "ok");
            assert_eq!(process.ask(&v6), "ok");
        }
        capture.try_wait().unwrap().is_some()
            || std::fs::metadata(&file).is_ok_and(|file| file.len() > 10_000)
    });
    // Asked to end, as a person would, so that it writes what it has.
    run("kill", &["-INT", &capture.id().to_string()]);
    capture.wait().unwrap();
    let text = wire_fields(&file);
    let _ = std::fs::remove_file(&file);
    let Some(text) = text.filter(|_| seen) else {
        eprintln!("SKIPPED: wire needs dumpcap and tshark");
        return;
    };
    // Versions of tshark print a flow label in six or in eight digits.
    let text = text.replace("0x00012345", "0x012345");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    let expected = [
        ",,,,0x0000006b,0x012345,64,4791",
        "0x0000,1,0x6b,64,,,,4791",
        "0x0001,1,0x6b,64,,,,4791",
        "0x0002,1,0x6b,64,,,,4791",
    ];
    assert_eq!(lines, expected[..1 + segments]);
}

#[test]
fn a_private_port_is_closed_to_other_hosts() {
    let Some(hosts) = Hosts::new("private") else {
        return;
    };
    let mut near = Process::within(&hosts.names[0]);
    let mut far = Process::within(&hosts.names[1]);
    let slot = far.open("eth0", 4791, "10.77.0.2");
    near.open("eth0", 4791, "10.77.0.1");
    let port = far_private_port(&far);
    // A second device of the near host that takes the far one's private port for the shared one.
    let mut rude = Process::within(&hosts.names[0]);
    rude.open("eth0", port, "10.77.0.1");
    let send = format!("send 10.77.0.1 10.77.0.2 {slot} 4 100 0");
    assert_eq!(rude.ask(&send), "ok");
    far.wait_for("counter strangers", "4");
    assert_eq!(far.ask("count"), "0");
}

/// The private port of a process: the one it has bound that is not the shared one.
fn far_private_port(process: &Process) -> u16 {
    let table = format!("/proc/{}/net/udp", process.child.id());
    let table = std::fs::read_to_string(table).unwrap();
    let ports = table.lines().skip(1).map(|line| {
        let local = line.split_whitespace().nth(1).unwrap();
        u16::from_str_radix(local.split_once(':').unwrap().1, 16).unwrap()
    });
    let mut ports: Vec<u16> = ports.filter(|port| *port != 4791).collect();
    ports.dedup();
    assert_eq!(ports.len(), 1);
    ports[0]
}

#[test]
fn a_group_reaches_every_member_on_every_host() {
    let Some(hosts) = Hosts::new("group") else {
        return;
    };
    for (a, b, group) in [
        ("10.77.0.1", "10.77.0.2", "239.1.2.3"),
        ("fd00::1", "fd00::2", "ff12::feed"),
    ] {
        let mut sender = Process::within(&hosts.names[0]);
        let mut beside = Process::within(&hosts.names[0]);
        let mut away = Process::within(&hosts.names[1]);
        let mut silent = Process::within(&hosts.names[1]);
        sender.open("eth0", 4791, a);
        beside.open("eth0", 4791, a);
        away.open("eth0", 4791, b);
        silent.open("eth0", 4791, b);
        for member in [&mut sender, &mut beside, &mut away] {
            assert_eq!(member.ask(&format!("join {group}")), "ok");
            assert_eq!(member.ask(&format!("join {group}")), "ok");
        }
        // A new IPv6 interface lets multicast through only after a while.
        let knock = format!("send {a} {group} 7 1 500 0");
        let start = Instant::now();
        while away.ask("groups") == "0" {
            assert_eq!(sender.ask(&knock), "ok");
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(50));
        let send = format!("send {a} {group} 7 8 500 0");
        let before = [&mut sender, &mut beside, &mut away].map(|member| member.number("groups"));
        assert_eq!(sender.ask(&send), "ok");
        for (member, before) in [&mut sender, &mut beside, &mut away]
            .into_iter()
            .zip(before)
        {
            member.wait_for("groups", &(before + 8).to_string());
        }
        assert_eq!(silent.ask("groups"), "0");
        // A group is left with the last leave.
        for _ in 0..2 {
            away.ask(&format!("leave {group}"));
        }
        beside.ask(&format!("leave {group}"));
        assert_eq!(sender.ask(&send), "ok");
        beside.wait_for("groups", &(before[1] + 16).to_string());
        sender.wait_for("groups", &(before[0] + 16).to_string());
        assert_eq!(away.number("groups"), before[2] + 8);
    }
}

#[test]
fn interfaces_and_their_changes_are_reported() {
    let Some(hosts) = Hosts::new("changes") else {
        return;
    };
    let mut process = Process::within(&hosts.names[0]);
    process.open("eth0", 4791, "10.77.0.1");
    assert_eq!(process.ask("changes"), "[]");
    let mut expect = |what: &str, change: &str| {
        hosts.ip(0, what);
        let start = Instant::now();
        let mut seen = String::new();
        while !seen.contains(change) {
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: {change} is not in {seen}"
            );
            seen += process.ask("changes").trim_matches(['[', ']']);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    expect("link set eth0 mtu 1400", "mtu: 1400");
    expect(
        "addr add 10.78.0.1/24 dev eth0",
        "ip: 10.78.0.1, prefix_len: 24",
    );
    expect("addr del 10.78.0.1/24 dev eth0", "AddressRemoved { index: ");
    expect("link set eth0 down", "LinkDown");
    expect("link set eth0 up", "LinkUp");
    expect("link add gone0 type veth peer name gone1", "");
    expect("link set gone1 up", "");
    expect("link set gone0 up", "LinkUp");
    expect("link del gone0", "LinkRemoved");
}

#[test]
fn news_that_was_lost_is_replaced_by_a_resync() {
    let Some(hosts) = Hosts::new("resync") else {
        return;
    };
    let mut process = Process::within(&hosts.names[0]);
    process.open("eth0", 4791, "10.77.0.1");
    // More news than a default socket buffer holds, in one go.
    let mut batch = String::new();
    for _ in 0..4 {
        for n in 0..250 {
            batch += &format!("addr add 10.90.0.{n}/32 dev eth0\n");
        }
        for n in 0..250 {
            batch += &format!("addr del 10.90.0.{n}/32 dev eth0\n");
        }
    }
    let mut ip = Command::new("ip")
        .args(["-n", &hosts.names[0], "-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    ip.stdin
        .take()
        .unwrap()
        .write_all(batch.as_bytes())
        .unwrap();
    assert!(ip.wait().unwrap().success());
    let seen = process.ask("changes");
    assert!(seen.contains(&format!("{:?}", Change::Resync)), "no resync");
    hosts.ip(0, "addr add 10.91.0.1/32 dev eth0");
    assert!(process.ask("changes").contains("10.91.0.1"));
}

#[test]
fn errors_of_the_way_are_told_apart() {
    let Some(hosts) = Hosts::new("errors") else {
        return;
    };
    let mut process = Process::within(&hosts.names[0]);
    process.open("eth0", 4791, "10.77.0.1");
    let cases = [
        (
            "send 10.77.0.1 10.77.0.2 1 1 4000 0",
            "error: a datagram exceeds the MTU",
        ),
        (
            "send 10.77.0.1 10.77.0.2 1 4 4000 0",
            "error: a datagram exceeds the MTU",
        ),
        (
            "send 10.77.0.1 10.99.0.1 1 1 100 0",
            "error: the destination cannot be reached",
        ),
        (
            "send 10.77.0.1 fd00::2 1 1 100 0",
            "error: a malformed send",
        ),
        (
            "send 10.77.0.9 10.77.0.2 1 1 100 0",
            "error: 10.77.0.9 is not an address of this",
        ),
    ];
    for (send, error) in cases {
        let answer = process.ask(send);
        assert!(answer.starts_with(error), "{send}: {answer}");
    }
    // Too long a segment is no reason to believe that batches cannot be cut.
    assert_eq!(process.number("counter unsegmented"), 0);
    assert_eq!(process.ask("send 10.77.0.1 10.77.0.2 1 4 1000 0"), "ok");
    assert_eq!(process.number("counter datagrams_out"), 4);
}

#[test]
fn what_the_firewall_drops_counts_as_sent() {
    let Some(hosts) = Hosts::new("firewall") else {
        return;
    };
    let rules = "add table ip t; add chain ip t out { type filter hook output priority 0; }; \
                 add rule ip t out udp length 108 drop";
    if !run("ip", &["netns", "exec", &hosts.names[0], "nft", rules]) {
        eprintln!("SKIPPED: firewall needs nft");
        return;
    }
    let mut process = Process::within(&hosts.names[0]);
    process.open("eth0", 4791, "10.77.0.1");
    assert_eq!(process.ask("send 10.77.0.1 10.77.0.2 1 1 100 0"), "ok");
    assert_eq!(process.number("counter denied"), 1);
    assert_eq!(process.number("counter datagrams_out"), 0);
    assert_eq!(process.ask("send 10.77.0.1 10.77.0.2 1 1 101 0"), "ok");
    assert_eq!(process.number("counter datagrams_out"), 1);
}

#[test]
fn a_full_send_buffer_is_busy_and_nothing_was_sent() {
    let Some(hosts) = Hosts::new("busy") else {
        return;
    };
    // Datagrams that wait for the address of a neighbour that does not exist stay in the buffer.
    let set = "echo 100000000 > /proc/sys/net/ipv4/neigh/eth0/unres_qlen_bytes";
    let within = ["netns", "exec", &hosts.names[0], "sh", "-c", set];
    assert!(run("ip", &within));
    let mut process = Process::within(&hosts.names[0]);
    process.open("eth0", 4791, "10.77.0.1");
    // The buffer holds 8 MiB at most, a batch takes 60,000 bytes.
    let sent = (0..200)
        .take_while(|_| {
            let answer = process.ask("send 10.77.0.1 10.77.0.99 0 60 1000 0");
            assert!(answer == "ok" || answer == "error: the send buffer is full");
            answer == "ok"
        })
        .count();
    assert!((1..200).contains(&sent), "{sent} batches");
    assert_eq!(process.number("counter busy"), 1);
    assert_eq!(process.number("counter datagrams_out"), sent as u64 * 60);
    assert_eq!(process.ask("writable 10.77.0.1 10.77.0.99"), "false");
    // A neighbour that is there does not have to wait for the one that is not, by another port.
    assert_eq!(process.ask("send 10.77.0.1 10.77.0.2 1 1 100 0"), "ok");
}

#[test]
fn loopback_is_an_interface_that_is_up() {
    let interfaces = interfaces().unwrap();
    let lo = interfaces
        .iter()
        .find(|interface| interface.loopback)
        .unwrap();
    assert!(lo.up && lo.mtu >= 1280);
    let localhost = IpAddr::from([127, 0, 0, 1]);
    let address = lo.addresses.iter().find(|address| address.ip == localhost);
    assert!(address.unwrap().is_usable());
    assert_eq!(address.unwrap().prefix_len, 8);
}
