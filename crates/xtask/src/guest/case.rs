//! The cases of the interoperability matrix, as data and as command lines. Nothing runs here.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use super::cm::Tool;

/// The network layer below a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// The conditions of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) family: Family,
    /// RDMA path MTU, in bytes of payload.
    pub(crate) path_mtu: u32,
    /// Whether one packet in a hundred is lost, each way.
    pub(crate) loss: bool,
}

impl Setting {
    /// The interface MTU that gives the path MTU.
    pub(crate) const fn interface_mtu(self) -> u32 {
        if self.path_mtu > 1024 { 9000 } else { 1500 }
    }
}

/// Which end waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    OursConnects,
    OursServes,
}

/// A transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Rc,
    Uc,
    Ud,
}

impl Service {
    const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
        }
    }
}

/// What both ends run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `ibv_rc_pingpong` and its kin, which check what they receive.
    Pingpong {
        service: Service,
        size: u32,
        rounds: u32,
    },
    /// `ib_write_bw` and its kin, which check that everything completes. Atomics have no size.
    Perftest {
        name: &'static str,
        size: Option<u32>,
        rounds: u32,
    },
    /// `tests/programs/xfer.py`, which checks every byte of every operation and length.
    Transfer { service: Service },
    /// Programs that meet over the connection manager.
    Manager(Tool),
}

/// One case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) setting: Setting,
    pub(crate) direction: Direction,
    pub(crate) program: Program,
}

/// What a command line says about one end.
#[derive(Debug)]
pub(crate) struct Endpoint<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) device: &'a str,
    pub(crate) gid_index: usize,
    pub(crate) address: IpAddr,
    /// Where the programs meet; stock programs know IPv4 only.
    pub(crate) meeting: IpAddr,
    /// Where the end answers pings, but no RDMA packet.
    pub(crate) silent: IpAddr,
    pub(crate) programs: &'a Path,
}

impl Case {
    /// The time after which a side is ended. Emulated processors are slow, and recovery waits.
    pub(crate) const fn limit(&self) -> Duration {
        match self.program {
            Program::Manager(tool) => tool.limit(),
            _ => Duration::from_secs(if self.setting.loss { 150 } else { 60 }),
        }
    }

    /// The command of `end`; `peer` is there for the end that connects.
    pub(crate) fn command(
        &self,
        end: &Endpoint<'_>,
        peer: Option<&Endpoint<'_>>,
        port: u16,
    ) -> String {
        let mtu = self.setting.path_mtu;
        let Endpoint {
            prefix,
            device,
            gid_index,
            ..
        } = end;
        let host = peer
            .map(|peer| format!(" {}", peer.meeting))
            .unwrap_or_default();
        match self.program {
            Program::Manager(tool) => tool.command(end, peer, port),
            Program::Pingpong {
                service,
                size,
                rounds,
            } => {
                // The datagram program has no such option: its size is bounded by the MTU.
                let path = if service == Service::Ud {
                    String::new()
                } else {
                    format!(" -m {mtu}")
                };
                let name = service.name();
                format!(
                    "{prefix} ibv_{name}_pingpong -c -d {device} -g {gid_index} -p {port}{path} \
                     -s {size} -n {rounds}{host}"
                )
            }
            Program::Perftest { name, size, rounds } => {
                let size = size.map(|size| format!(" -s {size}")).unwrap_or_default();
                format!(
                    "{prefix} {name} -F -d {device} -x {gid_index} -p {port} -m {mtu}{size} \
                     -n {rounds}{host}"
                )
            }
            Program::Transfer { service } => {
                let script = end.programs.join("xfer.py");
                let peer = peer.map(|peer| format!(" --peer {}", peer.address));
                // Nothing holds an unreliable sender back: one message at a time.
                let depth = if service == Service::Rc {
                    ""
                } else {
                    " --depth 1"
                };
                format!(
                    "{prefix} /usr/bin/python3 {} --device {device} --address {} --port {port} \
                     --mtu {mtu} --service {}{depth}{}",
                    script.display(),
                    end.address,
                    service.name(),
                    peer.unwrap_or_default()
                )
            }
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            family,
            path_mtu,
            loss,
        } = self.setting;
        let family = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        let loss = if loss { " loss" } else { "" };
        let direction = match self.direction {
            Direction::OursConnects => "connects",
            Direction::OursServes => "serves",
        };
        write!(out, "{family} mtu{path_mtu}{loss} ours-{direction} ")?;
        match self.program {
            Program::Pingpong { service, size, .. } => {
                write!(out, "ibv_{}_pingpong {size}", service.name())
            }
            Program::Perftest {
                name,
                size: Some(size),
                ..
            } => write!(out, "{name} {size}"),
            Program::Perftest {
                name, size: None, ..
            } => out.write_str(name),
            Program::Transfer { service } => write!(out, "xfer {}", service.name()),
            Program::Manager(tool) => write!(out, "{tool}"),
        }
    }
}

const MIB: u32 = 1 << 20;

/// All cases, or the `quick` ones; those with the same conditions together.
pub(crate) fn all(quick: bool) -> Vec<Case> {
    let setting = |family, path_mtu, loss| Setting {
        family,
        path_mtu,
        loss,
    };
    let corners = [
        setting(Family::V4, 1024, false),
        setting(Family::V6, 4096, false),
    ];
    let rest = [
        setting(Family::V6, 1024, false),
        setting(Family::V4, 4096, false),
    ];
    let lossy = corners.map(|corner| Setting {
        loss: true,
        ..corner
    });
    let settings: Vec<Setting> = match quick {
        true => [&corners[..], &lossy[..1]].concat(),
        false => [&corners[..], &rest, &lossy].concat(),
    };
    let mut cases = Vec::new();
    for setting in settings {
        let programs = match (setting.loss, quick) {
            (true, true) => lossy_programs()[..2].to_vec(),
            (true, false) => lossy_programs().to_vec(),
            (false, true) => quick_programs(setting.path_mtu).to_vec(),
            (false, false) => programs(setting.path_mtu),
        };
        let tools = match (corners.contains(&setting), quick) {
            (false, _) => Vec::new(),
            (true, true) if setting.family == Family::V6 => Vec::new(),
            (true, true) => Tool::QUICK.to_vec(),
            (true, false) => Tool::all(setting.family),
        };
        let programs = programs.into_iter();
        let programs = programs.chain(tools.into_iter().map(Program::Manager));
        for program in programs {
            for direction in [Direction::OursServes, Direction::OursConnects] {
                cases.push(Case {
                    setting,
                    direction,
                    program,
                });
            }
        }
    }
    cases
}

const fn pingpong(service: Service, size: u32) -> Program {
    Program::Pingpong {
        service,
        size,
        rounds: 100,
    }
}

fn quick_programs(mtu: u32) -> [Program; 4] {
    [
        pingpong(Service::Rc, mtu + 1),
        pingpong(Service::Ud, mtu),
        Program::Perftest {
            name: "ib_write_bw",
            size: Some(65536),
            rounds: 100,
        },
        Program::Transfer {
            service: Service::Rc,
        },
    ]
}

fn programs(mtu: u32) -> Vec<Program> {
    let mut programs = vec![
        pingpong(Service::Rc, 4096),
        pingpong(Service::Rc, mtu + 1),
        pingpong(Service::Uc, 4096),
        pingpong(Service::Ud, mtu),
    ];
    for name in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        for (size, rounds) in [(mtu + 1, 100), (MIB, 20)] {
            programs.push(Program::Perftest {
                name,
                size: Some(size),
                rounds,
            });
        }
    }
    for name in ["ib_write_lat", "ib_read_lat", "ib_send_lat"] {
        programs.push(Program::Perftest {
            name,
            size: Some(3),
            rounds: 100,
        });
    }
    for name in ["ib_atomic_bw", "ib_atomic_lat"] {
        programs.push(Program::Perftest {
            name,
            size: None,
            rounds: 100,
        });
    }
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        programs.push(Program::Transfer { service });
    }
    programs
}

/// Each moves some thousands of packets, so that some are lost for certain; all are reliable.
fn lossy_programs() -> [Program; 6] {
    let perftest = |name, size, rounds| Program::Perftest { name, size, rounds };
    [
        Program::Transfer {
            service: Service::Rc,
        },
        perftest("ib_write_bw", Some(MIB), 20),
        perftest("ib_read_bw", Some(MIB), 20),
        perftest("ib_send_bw", Some(MIB), 20),
        perftest("ib_atomic_bw", None, 2000),
        Program::Pingpong {
            service: Service::Rc,
            size: 65536,
            rounds: 100,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn endpoint(device: &'static str, prefix: &'static str, last: u8) -> Endpoint<'static> {
        Endpoint {
            prefix,
            device,
            gid_index: 3,
            address: format!("fd00:9::{last}").parse().unwrap(),
            meeting: format!("10.9.0.{last}").parse().unwrap(),
            silent: format!("10.9.0.7{last}").parse().unwrap(),
            programs: Path::new("/programs"),
        }
    }

    #[test]
    fn command_lines_are_those_a_person_would_type() {
        let setting = Setting {
            family: Family::V6,
            path_mtu: 4096,
            loss: false,
        };
        let case = |program| Case {
            setting,
            direction: Direction::OursServes,
            program,
        };
        let (server, client) = (
            endpoint("roce_t", "feroce run --", 1),
            endpoint("rxe0", "", 2),
        );
        let pingpong = case(Program::Pingpong {
            service: Service::Uc,
            size: 7,
            rounds: 9,
        });
        assert_eq!(
            pingpong.command(&server, None, 20000),
            "feroce run -- ibv_uc_pingpong -c -d roce_t -g 3 -p 20000 -m 4096 -s 7 -n 9"
        );
        let perftest = case(Program::Perftest {
            name: "ib_atomic_bw",
            size: None,
            rounds: 9,
        });
        assert_eq!(
            perftest.command(&client, Some(&server), 20000).trim(),
            "ib_atomic_bw -F -d rxe0 -x 3 -p 20000 -m 4096 -n 9 10.9.0.1"
        );
        let transfer = case(Program::Transfer {
            service: Service::Ud,
        });
        assert_eq!(
            transfer.command(&client, Some(&server), 20000).trim(),
            "/usr/bin/python3 /programs/xfer.py --device rxe0 --address fd00:9::2 --port 20000 \
             --mtu 4096 --service ud --depth 1 --peer fd00:9::1"
        );
    }

    #[test]
    fn the_matrix_has_every_condition_in_both_directions() {
        let cases = all(false);
        let names: BTreeSet<String> = cases.iter().map(Case::to_string).collect();
        assert_eq!(names.len(), cases.len(), "names are unique");
        for family in ["ipv4", "ipv6"] {
            for mtu in [1024, 4096] {
                for direction in ["serves", "connects"] {
                    let name = format!("{family} mtu{mtu} ours-{direction} xfer rc");
                    assert!(names.contains(&name), "{name}");
                }
            }
        }
        assert!(names.contains("ipv4 mtu1024 loss ours-serves ib_send_bw 1048576"));
        let quick = all(true);
        assert!(quick.iter().all(|case| names.contains(&case.to_string())
            || matches!(case.program, Program::Perftest { .. })));
        assert!(quick.len() * 5 < cases.len());
        for direction in ["serves", "connects"] {
            for name in ["rping", "udaddy", "rejected on a wrong port"] {
                let name = format!("ipv4 mtu1024 ours-{direction} cm {name}");
                assert!(quick.iter().any(|case| case.to_string() == name), "{name}");
            }
        }
    }
}
