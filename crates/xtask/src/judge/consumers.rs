//! Libraries and programs that stand on verbs: UCX, libfabric, Open MPI and MPICH over both,
//! NetPIPE, qperf, fio. They run as users run them; the only variables are those by which a
//! transport or provider is chosen.
//!
//! Some of them fall back to TCP or shared memory without a word, so that an exit status of 0
//! proves nothing: each case also counts the packets of our device, and looks for the line that
//! the program prints when its data was right.

use super::pair::{Running, next_port, wait_for_listener};
use super::programs::Stage;
use super::statistics::Packets;
use super::{Outcome, Tally, find_program};
use crate::cargo;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a case may take: the machine may be busy.
const LIMIT: Duration = Duration::from_secs(90);

/// How long a server may take to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);

/// How long a server may take to end after its client; some go on serving.
const GRACE: Duration = Duration::from_secs(5);

/// What a case runs. `PORT`, `ADDRESS`, `DEVICE` and `SCRATCH` stand for what the stage has.
enum Kind {
    /// One program that lists what it finds.
    Lists,
    /// A server and a client of one program, and what each gets in addition.
    Pair {
        server: &'static str,
        client: &'static str,
        wait: Wait,
    },
    /// A program that starts its own processes.
    Group { processes: usize },
}

/// What tells that a server is ready.
#[derive(Clone, Copy)]
enum Wait {
    /// A TCP port of its own, for the exchange before RDMA.
    Tcp,
    /// A port of the connection manager.
    Claim,
}

struct Case {
    words: &'static str,
    kind: Kind,
    /// Variables that choose a transport or provider.
    environment: &'static [(&'static str, &'static str)],
    /// What the program must print.
    expect: &'static str,
    /// Packets that must have left the device, over all processes.
    packets: u64,
}

/// Runs all cases whose text contains `filter`: on a pair of virtual interfaces, or else on
/// `stage`.
pub(crate) fn run(stage: &Stage, filter: &str, quick: bool) -> Tally {
    let mut tally = Tally::default();
    let on_interface = virtual_interface(stage);
    if let Err(error) = &on_interface {
        println!(
            "no virtual interface ({error:#}): on {} instead",
            stage.device
        );
    }
    let has_interface = on_interface.is_ok();
    let stage = on_interface.as_ref().unwrap_or(stage);
    let compiled = Compiled::new(stage);
    for case in cases(quick) {
        let variables = case.environment.iter();
        let variables = variables.map(|(name, value)| format!("{name}={value} "));
        let name = format!("{}{}", variables.collect::<String>(), case.words);
        if !name.contains(filter) {
            continue;
        }
        if !has_interface && case.words.contains("verbs") && case.words.starts_with("fi_") {
            let why = "libfabric takes no device on lo, and there is no other interface";
            tally.note(&name, &Outcome::Skipped(why.to_owned()));
            continue;
        }
        let outcome = prepare(&case, &compiled)
            .map(|missing| missing.map_or_else(|| run_case(stage, &case), Ok))
            .and_then(std::convert::identity);
        let outcome = outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        tally.note(&name, &outcome);
    }
    tally
}

/// A stage on an interface that is not `lo`, which libfabric ignores. Only in a network namespace
/// of our own, which ends with us.
fn virtual_interface(like: &Stage) -> Result<Stage> {
    if !super::is_inside() {
        bail!("not in a network namespace of its own");
    }
    let steps = [
        "link add feroce0 type veth peer name feroce1",
        "link set feroce0 addrgenmode none",
        "address add 10.97.0.1/24 dev feroce0",
        "link set feroce0 up",
        "link set feroce1 up",
    ];
    for step in steps {
        let output = Command::new("ip").args(step.split(' ')).output()?;
        if !output.status.success() {
            bail!(
                "ip {step}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    like.on("roce_feroce0", "10.97.0.1")
}

/// Our MPI program, as each MPI compiles it; the source is shared, the binaries are not.
struct Compiled<'a> {
    stage: &'a Stage,
}

impl<'a> Compiled<'a> {
    const fn new(stage: &'a Stage) -> Self {
        Self { stage }
    }

    /// Compiles the program for this MPI unless that was done; `None` if its compiler is missing.
    fn collectives(&self, mpi: &str) -> Result<Option<PathBuf>> {
        let target = self.stage.scratch.join(format!("collectives.{mpi}"));
        if target.exists() {
            return Ok(Some(target));
        }
        let Some(compiler) = find_program(&format!("mpicc.{mpi}")) else {
            return Ok(None);
        };
        let source = cargo::workspace().join("tests/programs/collectives.c");
        let output = Command::new(compiler)
            .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&target)
            .arg(source)
            .output()
            .context("running the compiler")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(Some(target))
    }
}

/// What is missing for a case, as its outcome; `None`: nothing.
fn prepare(case: &Case, compiled: &Compiled<'_>) -> Result<Option<Outcome>> {
    for word in case.words.split_whitespace() {
        let program = word.starts_with("NP") || Some(word) == case.words.split(' ').next();
        if program && find_program(word).is_none() {
            return Ok(Some(Outcome::Skipped(format!("{word} is not installed"))));
        }
        if let Some(mpi) = word.strip_prefix("SCRATCH/collectives.")
            && compiled.collectives(mpi)?.is_none()
        {
            return Ok(Some(Outcome::Skipped(format!("mpicc.{mpi} is missing"))));
        }
    }
    Ok(None)
}

fn run_case(stage: &Stage, case: &Case) -> Result<Outcome> {
    let statistics = stage.scratch.join("statistics");
    let _ = std::fs::remove_file(&statistics);
    let port = next_port();
    let command = |more: &str| {
        let fill = |word: &str| {
            word.replace("PORT", &port.to_string())
                .replace("ADDRESS", &stage.address)
                .replace("DEVICE", &stage.device)
                .replace("SCRATCH", &stage.scratch.to_string_lossy())
        };
        let words = case.words.replace("OMPI", OMPI);
        let mut words = words.split_whitespace().map(fill);
        let mut command = stage.command(&words.next().unwrap_or_default(), &statistics);
        command.args(words).args(more.split_whitespace().map(fill));
        command.env("HOME", &stage.scratch);
        command.envs(case.environment.iter().copied());
        command
    };
    let mut server = None;
    let client = match case.kind {
        Kind::Lists | Kind::Group { .. } => command(""),
        Kind::Pair {
            server: more,
            client,
            wait,
        } => {
            let mut running = Running::start(command(more), &stage.scratch, "server")?;
            let listening = match wait {
                Wait::Tcp => wait_for_listener(port, &mut running, LISTEN_LIMIT),
                Wait::Claim => wait_for_claim(port, &mut running),
            };
            if !listening {
                let ended = running.finish(Instant::now());
                let text = format!("the server does not listen\n{}", ended.describe());
                return Ok(Outcome::Failed(text));
            }
            server = Some(running);
            command(client)
        }
    };
    let client = Running::start(client, &stage.scratch, "client")?;
    let client = client.finish(Instant::now() + LIMIT);
    let server = server.map(|server| server.finish(Instant::now() + GRACE));
    let printed = client
        .output
        .contains(&case.expect.replace("DEVICE", &stage.device));
    if !client.is_good() || !printed {
        let server = server.map_or_else(String::new, |server| server.describe());
        let missing = if printed {
            ""
        } else {
            "what it must print is missing"
        };
        return Ok(Outcome::Failed(format!(
            "{missing}\n{}\n{server}",
            client.describe()
        )));
    }
    let lines = std::fs::read_to_string(&statistics).unwrap_or_default();
    Ok(judge_packets(case, &lines))
}

/// The packets must be those of our device.
fn judge_packets(case: &Case, lines: &str) -> Outcome {
    let users_min = match case.kind {
        Kind::Lists => return Outcome::Passed,
        // A server that serves on is stopped, and then tells nothing.
        Kind::Pair { .. } => 1,
        Kind::Group { processes } => processes,
    };
    let packets = match Packets::read(lines) {
        Ok(packets) => packets,
        Err(outcome) => return outcome,
    };
    let Packets { sent, received, .. } = packets;
    if packets.both_ways >= users_min && sent >= case.packets && received >= case.packets {
        Outcome::Passed
    } else {
        Outcome::Failed(format!(
            "{} processes used the device (at least {users_min}), {sent} packets left and \
             {received} came (at least {}):\n{lines}",
            packets.both_ways, case.packets
        ))
    }
}

/// Waits until some process listens on a port of the connection manager.
fn wait_for_claim(port: u16, server: &mut Running) -> bool {
    let deadline = Instant::now() + LISTEN_LIMIT;
    let mark = format!(":{port}/");
    while Instant::now() < deadline && !server.has_ended() {
        let names = std::fs::read("/proc/net/unix").unwrap_or_default();
        let names = String::from_utf8_lossy(&names);
        let is_listener = |line: &str| line.contains("@feroce/listen/") && line.contains(&mark);
        if names.lines().any(is_listener) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// What Open MPI needs in a network namespace that has `lo` only, on a machine of two cores.
const OMPI: &str = "--oversubscribe --bind-to none --mca plm isolated --mca oob_tcp_if_include lo";

const RC: &[(&str, &str)] = &[("UCX_TLS", "rc_verbs,ud_verbs,self")];
const UD: &[(&str, &str)] = &[("UCX_TLS", "ud_verbs,self")];

fn cases(quick: bool) -> Vec<Case> {
    let mut cases = vec![
        Case {
            words: "ucx_info -d",
            kind: Kind::Lists,
            environment: &[],
            expect: "Device: DEVICE:1",
            packets: 0,
        },
        Case {
            words: "fi_info -p verbs",
            kind: Kind::Lists,
            environment: &[],
            expect: "domain: DEVICE",
            packets: 0,
        },
    ];
    cases.extend(ucx(quick));
    cases.extend(libfabric());
    cases.extend(mpi(quick));
    cases.extend(others(quick));
    cases
}

/// UCX's own measuring program: its lower layer on one transport, its upper layer over both.
fn ucx(quick: bool) -> Vec<Case> {
    let lower = [
        "ucx_perftest -p PORT -d DEVICE:1 -x rc_verbs -t put_lat -n 1000 -s 8",
        "ucx_perftest -p PORT -d DEVICE:1 -x ud_verbs -t am_lat -n 1000 -s 8",
        "ucx_perftest -p PORT -d DEVICE:1 -x rc_verbs -t put_bw -D zcopy -n 1000 -s 65536",
        "ucx_perftest -p PORT -d DEVICE:1 -x rc_verbs -t fadd -n 1000 -s 8",
    ];
    let upper = [
        "ucx_perftest -p PORT -t tag_lat -n 1000 -s 8",
        "ucx_perftest -p PORT -t tag_bw -n 1000 -s 65536",
        "ucx_perftest -p PORT -t ucp_put_lat -n 1000 -s 8",
        "ucx_perftest -p PORT -t ucp_put_bw -n 1000 -s 65536",
    ];
    let more = [
        "ucx_perftest -p PORT -t ucp_get -n 500 -s 65536",
        "ucx_perftest -p PORT -t ucp_cswap -n 500 -s 8",
        "ucx_perftest -p PORT -t stream_bw -n 500 -s 65536",
        "ucx_perftest -p PORT -t ucp_am_bw -n 500 -s 65536",
    ];
    let case = |words, environment| Case {
        words,
        kind: Kind::Pair {
            server: "",
            client: "ADDRESS",
            wait: Wait::Tcp,
        },
        environment,
        expect: "Final:",
        packets: 500,
    };
    let none: &[(&str, &str)] = &[];
    let mut cases: Vec<_> = lower.into_iter().map(|words| case(words, none)).collect();
    cases.extend(upper.into_iter().map(|words| case(words, RC)));
    cases.extend(upper.into_iter().take(2).map(|words| case(words, UD)));
    if !quick {
        cases.extend(more.into_iter().map(|words| case(words, RC)));
        cases.extend(upper.into_iter().skip(2).map(|words| case(words, UD)));
    }
    cases
}

/// libfabric's ping-pong, with its check of data where there is one.
fn libfabric() -> Vec<Case> {
    let all = [
        "fi_pingpong -p verbs -e msg -I 100 -c",
        "fi_pingpong -p verbs -e dgram -I 100 -S 64",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -I 100 -c",
        "fi_pingpong -p verbs;ofi_rxm -e rdm -m tagged -I 100 -c",
        "fi_pingpong -p verbs;ofi_rxd -e rdm -I 100 -S 4096 -c",
    ];
    let case = |words| Case {
        words,
        kind: Kind::Pair {
            server: "-B PORT",
            client: "-P PORT ADDRESS",
            wait: Wait::Tcp,
        },
        environment: &[],
        expect: "MB/sec",
        packets: 100,
    };
    all.into_iter().map(case).collect()
}

/// Debian's configuration of Open MPI turns UCX and libfabric off, so they are named.
fn mpi(quick: bool) -> Vec<Case> {
    const COLLECTIVES: &str = "collectives ok: 4 ranks";
    let case = |words, environment, expect| Case {
        words,
        kind: Kind::Group {
            processes: if words.contains("-np 4") { 4 } else { 2 },
        },
        environment,
        expect,
        packets: 1_000,
    };
    let mut cases = vec![
        case(
            "mpirun.openmpi OMPI -np 4 --mca pml ucx --mca osc ucx \
             --mca btl ^openib,ofi,vader SCRATCH/collectives.openmpi",
            RC,
            COLLECTIVES,
        ),
        case(
            "mpirun.openmpi OMPI -np 4 --mca pml cm --mca mtl ofi \
             --mca mtl_ofi_provider_include verbs;ofi_rxm --mca btl self \
             SCRATCH/collectives.openmpi",
            &[],
            COLLECTIVES,
        ),
        case(
            "mpirun.mpich -np 4 SCRATCH/collectives.mpich",
            RC,
            COLLECTIVES,
        ),
        case(
            "mpirun.openmpi OMPI -np 2 --mca pml ucx --mca osc ucx \
             --mca btl ^openib,ofi,vader NPopenmpi -u 65536 -n 20 -o SCRATCH/np.out",
            RC,
            "Mbps",
        ),
    ];
    if !quick {
        cases.push(case(
            "mpirun.openmpi OMPI -np 4 --mca pml ucx --mca osc ucx \
             --mca btl ^openib,ofi,vader SCRATCH/collectives.openmpi",
            UD,
            COLLECTIVES,
        ));
        cases.push(case(
            "mpirun.mpich -np 4 SCRATCH/collectives.mpich",
            UD,
            COLLECTIVES,
        ));
        cases.push(case(
            "mpirun.mpich -np 2 NPmpich2 -u 65536 -n 20 -o SCRATCH/np.out",
            RC,
            "Mbps",
        ));
    }
    cases
}

fn others(quick: bool) -> Vec<Case> {
    let qperf = |client, expect| Case {
        words: "qperf -lp PORT",
        kind: Kind::Pair {
            server: "",
            client,
            wait: Wait::Tcp,
        },
        environment: &[],
        expect,
        packets: 100,
    };
    let fio = |words, client| Case {
        words,
        kind: Kind::Pair {
            server: "--rw=read",
            client,
            wait: Wait::Claim,
        },
        environment: &[],
        expect: "WRITE: bw=",
        packets: 64,
    };
    let mut cases = vec![
        qperf("-t 1 ADDRESS -cm1 rc_bw rc_lat", "rc_lat"),
        qperf(
            "-t 1 ADDRESS -cm1 ver_rc_compare_swap ver_rc_fetch_add",
            "ver_rc_fetch_add",
        ),
        fio(
            "fio --name=job --ioengine=rdma --thread=1 --port=PORT --verb=write --bs=64k \
             --size=4m --iodepth=4 --aux-path=SCRATCH",
            "--hostname=ADDRESS --rw=write",
        ),
    ];
    if !quick {
        cases.push(qperf(
            "-t 1 ADDRESS -cm1 rc_rdma_write_bw rc_rdma_read_bw rc_rdma_write_poll_lat",
            "rc_rdma_write_poll_lat",
        ));
        cases.push(fio(
            "fio --name=job --ioengine=rdma --thread=1 --port=PORT --verb=send --bs=64k \
             --size=4m --iodepth=4 --aux-path=SCRATCH",
            "--hostname=ADDRESS --rw=write",
        ));
    }
    cases
}
