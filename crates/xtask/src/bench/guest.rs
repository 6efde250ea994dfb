//! Feroce against Linux's soft-RoCE: the same programs and sizes inside the same virtual machine.
//!
//! The machine's processors are emulated, so that only ratios mean something. Soft-RoCE has an
//! interface and the well-known UDP port in all of it, so Feroce has the loopback of a network
//! namespace of its own: what either sends to itself passes no interface anyway. Not here: whether
//! they understand each other (`cargo xtask guest interop`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::figures::{Figure, Target};
use super::measure::{Measure, Unit, average_bandwidth, column, rows};
use super::{Options, absent};
use crate::guest::image::{Image, missing_tools};
use crate::guest::machine::{Machine, Settings};
use crate::guest::side::{Place, Side};

/// How long one measurement may take on emulated processors.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a step of setting up may take.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// The guest's address.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

/// Where Feroce runs.
const NAMESPACE: &str = "feroce";

/// Where the programs of both ends meet.
const PORT: u16 = 18_515;

/// What `cargo xtask dist` makes and the guest needs, with the folder of each.
const FILES: [(&str, &str); 4] = [
    ("bin", "feroce"),
    ("lib", "libibverbs.so.1"),
    ("lib", "librdmacm.so.1"),
    ("lib", "libferoce_shim.so"),
];

/// A measurement in the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inside {
    pub(crate) what: Program,
    pub(crate) device: Device,
}

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// `ib_write_bw`, 64 KiB.
    WriteBandwidth,
    /// `ib_send_bw`, 64 KiB.
    SendBandwidth,
    /// `ib_write_lat`, 8 bytes.
    WriteLatency,
    /// `ib_send_lat`, 8 bytes.
    SendLatency,
}

/// Whose device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Device {
    SoftRoce,
    Feroce,
}

impl Inside {
    /// What its number counts.
    pub(crate) const fn unit(self) -> Unit {
        match self.what {
            Program::WriteBandwidth | Program::SendBandwidth => Unit::BytesPerSecond,
            Program::WriteLatency | Program::SendLatency => Unit::Seconds,
        }
    }

    /// The command without device and port.
    const fn line(self, quick: bool) -> &'static str {
        match (self.what, quick) {
            (Program::WriteBandwidth, false) => "ib_write_bw -s 65536 -n 2000",
            (Program::WriteBandwidth, true) => "ib_write_bw -s 65536 -n 300",
            (Program::SendBandwidth, false) => "ib_send_bw -s 65536 -n 2000",
            (Program::SendBandwidth, true) => "ib_send_bw -s 65536 -n 300",
            (Program::WriteLatency, false) => "ib_write_lat -s 8 -n 3000",
            (Program::WriteLatency, true) => "ib_write_lat -s 8 -n 300",
            (Program::SendLatency, false) => "ib_send_lat -s 8 -n 3000",
            (Program::SendLatency, true) => "ib_send_lat -s 8 -n 300",
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.what {
            Program::WriteBandwidth => "ib_write_bw 64 KiB",
            Program::SendBandwidth => "ib_send_bw 64 KiB",
            Program::WriteLatency => "ib_write_lat 8 B",
            Program::SendLatency => "ib_send_lat 8 B",
        };
        let device = match self.device {
            Device::SoftRoce => "soft-RoCE",
            Device::Feroce => "Feroce",
        };
        write!(f, "guest: {name}, {device}")
    }
}

/// The figures of the guest.
pub(crate) fn figures() -> Vec<Figure> {
    let inside = |what, device| Measure::Inside(Inside { what, device });
    [
        (
            "guest: RC WRITE 64 KiB ÷ soft-RoCE",
            Program::WriteBandwidth,
            Target::AtLeast(4.0),
        ),
        (
            "guest: RC SEND 64 KiB ÷ soft-RoCE",
            Program::SendBandwidth,
            Target::None,
        ),
        (
            "guest: RC WRITE 8 B latency ÷ soft-RoCE",
            Program::WriteLatency,
            Target::AtMost(1.2),
        ),
        (
            "guest: RC SEND 8 B latency ÷ soft-RoCE",
            Program::SendLatency,
            Target::AtMost(1.2),
        ),
    ]
    .into_iter()
    .map(|(name, what, target)| Figure {
        name: name.to_owned(),
        over: inside(what, Device::Feroce),
        under: Some(inside(what, Device::SoftRoce)),
        target,
    })
    .collect()
}

/// A running guest with both devices.
pub(crate) struct Guest {
    machine: Machine,
    quick: bool,
}

impl Guest {
    /// Boots it, hands the build over and makes soft-RoCE's device.
    pub(crate) fn boot(options: &Options) -> Result<Self> {
        let missing = missing_tools();
        ensure!(missing.is_empty(), "it needs {}", missing.join(", "));
        let dist = options.dist.as_deref().context("no build to measure")?;
        let image = Image::build()?;
        let machine = Machine::boot(&image, &Settings::default(), Command::new)?;
        let mut steps = vec![
            "set -e; mkdir -p /tmp/feroce/bin /tmp/feroce/lib".to_owned(),
            "ip link set eth0 mtu 9000 up".to_owned(),
            format!("ip addr add {ADDRESS}/24 dev eth0"),
            "rdma link add rxe0 type rxe netdev eth0".to_owned(),
            format!("ip netns add {NAMESPACE}; ip -n {NAMESPACE} link set lo up"),
        ];
        for (folder, name) in FILES {
            let file = dist.join(folder).join(name);
            if absent(&file) {
                continue;
            }
            machine.share(&file, name)?;
            steps.push(format!("cp /run/guest/{name} /tmp/feroce/{folder}/"));
        }
        steps.push("chmod 755 /tmp/feroce/bin/feroce".to_owned());
        let finished = machine.agent().run(&steps.join("; "), STEP_LIMIT)?;
        ensure!(finished.status == 0, "setting up: {}", finished.output);
        Ok(Self {
            machine,
            quick: options.quick,
        })
    }

    /// Makes one measurement.
    pub(crate) fn take(&self, inside: Inside) -> Result<f64> {
        let enter = format!("ip netns exec {NAMESPACE}");
        let (enter, prefix, device, address) = match inside.device {
            Device::SoftRoce => ("", String::new(), "rxe0", ADDRESS),
            Device::Feroce => {
                let prefix = format!("{enter} /tmp/feroce/bin/feroce run --");
                (enter.as_str(), prefix, "roce_lo", Ipv4Addr::LOCALHOST)
            }
        };
        let address = IpAddr::from(address);
        let side = Side {
            place: Place::Guest(&self.machine),
            prefix: prefix.clone(),
            device: device.to_owned(),
            addresses: [address; 2],
            silent: address,
            programs: "/run/guest".into(),
        };
        let gid = side.gid_index(address)?;
        let line = inside.line(self.quick);
        // The same path MTU for both: what the interface carries.
        let command = format!("{prefix} {line} -F -m 4096 -d {device} -x {gid} -p {PORT}");
        let server = side.start(&command, LIMIT)?;
        side.wait_listening_in(enter, PORT)?;
        let client = side.run(&format!("{command} {address}"), LIMIT)?;
        let server = server.wait()?;
        for ended in [&client, &server] {
            ensure!(ended.status == 0, "{command}: {}", ended.output);
        }
        let rows = rows(&client.output);
        match inside.what {
            Program::WriteBandwidth | Program::SendBandwidth => average_bandwidth(&rows),
            Program::WriteLatency | Program::SendLatency => {
                const TYPICAL: usize = 4;
                Ok(column(&rows, TYPICAL)? / 1e6)
            }
        }
    }
}
