//! Management datagrams between processes of one host: each arrives where it belongs, whichever
//! process the kernel gave it to.
//!
//! The other process is this test binary again, which does what it is told line by line.

#![allow(clippy::unwrap_used, reason = "a test and its helpers")]

use feroce_verbs::Context;
use feroce_verbs::gsi::{Agent, Listener, MAD_LEN, Mad, MadAddress, Place};
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "FEROCE_TEST_CHILD";
const PATIENCE: Duration = Duration::from_secs(20);
const TCP: u16 = 0x0106;
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A request (REQ) for a port, as far as routing looks at it.
fn request(port: u16, mark: u8) -> Mad {
    let mut mad = [0; MAD_LEN];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&0x0010_u16.to_be_bytes());
    mad[32..40].copy_from_slice(&(u64::from(TCP) << 16 | u64::from(port)).to_be_bytes());
    mad[255] = mark;
    mad
}

/// A reply (REP) to an id of the process with this slot.
fn reply(slot: u16, mark: u8) -> Mad {
    let mut mad = request(0, mark);
    mad[16..18].copy_from_slice(&0x0013_u16.to_be_bytes());
    mad[28..32].copy_from_slice(&(u32::from(slot) << 22 | 5).to_be_bytes());
    mad
}

fn to_here() -> MadAddress {
    MadAddress {
        local: HERE,
        remote: HERE,
        traffic_class: 0,
        hop_limit: 0,
        flow_label: 0,
    }
}

/// The mark of the next datagram.
fn next_mark(agent: &Agent, patience: Duration) -> Option<u8> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Some((from, mad)) = agent.receive() {
            assert_eq!((from.local, from.remote), (HERE, HERE));
            return Some(mad[255]);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Not a test by itself: the program that the cases run.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let agent = Context::open("roce_lo").unwrap().open_agent().unwrap();
    println!("@{}", agent.slot());
    let mut listeners = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, number) = line.split_once(' ').unwrap();
        let number: u16 = number.parse().unwrap();
        let answer = match verb {
            "listen" => {
                let any = Place::new([0; 4].into(), 0, false);
                match Listener::claim_port(TCP, number, any, false) {
                    Ok(listener) => {
                        listener.listen().unwrap();
                        listeners.push(listener);
                        "yes".to_owned()
                    }
                    Err(_) => "no".to_owned(),
                }
            }
            "receive" => {
                let marks = (0..number).map(|_| next_mark(&agent, PATIENCE));
                let marks: Vec<_> = marks.flatten().collect();
                format!("{marks:?}")
            }
            "reply" => {
                agent.send(&to_here(), &reply(number, 99)).unwrap();
                "sent".to_owned()
            }
            other => panic!("{other}?"),
        };
        // Behind a mark, since the test harness prints to the same place.
        println!("@{answer}");
    }
}

struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    slot: u16,
}

impl Process {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut process = Self {
            child,
            commands,
            answers,
            slot: 0,
        };
        process.slot = process.answer().parse().unwrap();
        process
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some((_, answer)) = line.split_once('@') {
                return answer.trim().to_owned();
            }
        }
    }

    fn tell(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn datagrams_find_the_process_they_are_for() {
    // Ports differ from run to run, so that two of them do not meet.
    let port = 20_000 + (std::process::id() % 10_000) as u16;
    let agent = Context::open("roce_lo").unwrap().open_agent().unwrap();
    let mut other = Process::start();
    assert_ne!(agent.slot(), other.slot);

    // By slot, to ourselves and to each other. Each has its own share of queue pair 1.
    agent.send(&to_here(), &reply(agent.slot(), 1)).unwrap();
    assert_eq!(next_mark(&agent, PATIENCE), Some(1));
    for mark in 0..50 {
        agent.send(&to_here(), &reply(other.slot, mark)).unwrap();
    }
    let marks: Vec<u8> = (0..50).collect();
    assert_eq!(sorted(&other.tell("receive 50")), format!("{marks:?}"));
    assert_eq!(other.tell(&format!("reply {}", agent.slot())), "sent");
    assert_eq!(next_mark(&agent, PATIENCE), Some(99));

    // By service: to whoever listens, many at once.
    assert_eq!(other.tell(&format!("listen {port}")), "yes");
    let any = Place::new([0; 4].into(), 0, false);
    assert!(Listener::claim_port(TCP, port, any, false).is_err());
    for mark in 0..200 {
        agent.send(&to_here(), &request(port, mark)).unwrap();
    }
    let marks: Vec<u8> = (0..200).collect();
    assert_eq!(sorted(&other.tell("receive 200")), format!("{marks:?}"));

    // A process that is killed leaves its port free.
    drop(other);
    let listener = Listener::claim_port(TCP, port, any, false).unwrap();
    listener.listen().unwrap();
    agent.send(&to_here(), &request(port, 7)).unwrap();
    assert_eq!(next_mark(&agent, PATIENCE), Some(7));
}

fn sorted(marks: &str) -> String {
    let mut marks: Vec<u8> = marks
        .trim_matches(['[', ']'])
        .split(", ")
        .map(|mark| mark.parse().unwrap())
        .collect();
    marks.sort_unstable();
    format!("{marks:?}")
}

#[test]
fn a_device_has_one_agent_per_process() {
    let context = Context::open("roce_lo").unwrap();
    let Ok(agent) = context.open_agent() else {
        // The other test of this process has it, where tests share one.
        return;
    };
    assert!(context.open_agent().is_err());
    drop(agent);
    assert!(context.open_agent().is_ok());
}
