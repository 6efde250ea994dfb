//! `feroce devices`: which devices there are, their port and GIDs, and which interfaces give none.
//!
//! Looks only: no device is opened, so it works beside running programs and tells the same to
//! every user.

use anyhow::{Context as _, Result};
use feroce_verbs::{Candidate, candidates, gid_bytes};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::process::ExitCode;

/// List devices, their ports and GIDs, and interfaces that were left out
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One interface as a device, in the form that is printed.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    interface: String,
    /// Why it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    guid: String,
    ports: Vec<Port>,
    gids: Vec<GidEntry>,
}

#[derive(Debug, Serialize)]
struct Port {
    number: u8,
    state: &'static str,
    /// The largest path MTU, in bytes.
    path_mtu: u32,
    /// The interface's MTU, in bytes.
    interface_mtu: u32,
    link_layer: &'static str,
}

#[derive(Debug, Serialize)]
struct GidEntry {
    index: usize,
    gid: String,
    address: IpAddr,
    #[serde(rename = "type")]
    kind: &'static str,
}

impl Entry {
    fn new(candidate: &Candidate) -> Self {
        let port = candidate.port();
        let gids = candidate
            .gids
            .iter()
            .enumerate()
            .map(|(index, &address)| GidEntry {
                index,
                gid: gid_text(address),
                address,
                kind: "RoCE v2",
            });
        Self {
            name: candidate.name.clone(),
            interface: candidate.interface.name.clone(),
            left_out: candidate.left_out.clone(),
            guid: guid_text(candidate.guid()),
            ports: vec![Port {
                number: 1,
                state: if port.active { "active" } else { "down" },
                path_mtu: port.mtu.bytes(),
                interface_mtu: candidate.interface.mtu,
                link_layer: "Ethernet",
            }],
            gids: gids.collect(),
        }
    }
}

/// Eight groups of four digits, as other RDMA tools print GIDs.
fn gid_text(address: IpAddr) -> String {
    let groups = Ipv6Addr::from(gid_bytes(address)).segments();
    groups.map(|group| format!("{group:04x}")).join(":")
}

fn guid_text(guid: [u8; 8]) -> String {
    let [a, b, c, d, e, f, g, h] = guid;
    format!("{a:02x}{b:02x}:{c:02x}{d:02x}:{e:02x}{f:02x}:{g:02x}{h:02x}")
}

/// Lists the devices on standard output.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match list(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("feroce devices: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list(arguments: &Arguments) -> Result<()> {
    let candidates = candidates().context("listing the interfaces")?;
    let entries: Vec<Entry> = candidates.iter().map(Entry::new).collect();
    let listing = if arguments.json {
        serde_json::to_string_pretty(&entries)? + "\n"
    } else {
        text(&entries)
    };
    let mut output = std::io::stdout().lock();
    output
        .write_all(listing.as_bytes())
        .context("writing the list")?;
    if entries.iter().all(|entry| entry.left_out.is_some()) {
        eprintln!(
            "feroce devices: no interface can be used: bring one up and give it an address, \
             such as `ip link set lo up`"
        );
    }
    Ok(())
}

fn text(entries: &[Entry]) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    for entry in entries.iter().filter(|entry| entry.left_out.is_none()) {
        let _ = writeln!(
            out,
            "{}  interface {}, GUID {}",
            entry.name, entry.interface, entry.guid
        );
        for Port {
            number,
            state,
            path_mtu,
            interface_mtu,
            ..
        } in &entry.ports
        {
            let _ = writeln!(
                out,
                "  port {number}  {state}, path MTU {path_mtu} (interface MTU {interface_mtu})"
            );
        }
        for GidEntry {
            index,
            gid,
            address,
            ..
        } in &entry.gids
        {
            let _ = writeln!(out, "  GID {index:<3} {gid}  {address}");
        }
        out.push('\n');
    }
    let mut title = "Left out:\n";
    for entry in entries {
        if let Some(reason) = &entry.left_out {
            let _ = writeln!(out, "{title}  {}: {reason}", entry.name);
            title = "";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, left_out: Option<&str>) -> Entry {
        Entry {
            name: format!("roce_{name}"),
            interface: name.into(),
            left_out: left_out.map(Into::into),
            guid: guid_text([0x02, 0x42, 0xac, 0xff, 0xfe, 0x11, 0x00, 0x02]),
            ports: vec![Port {
                number: 1,
                state: "active",
                path_mtu: 1024,
                interface_mtu: 1500,
                link_layer: "Ethernet",
            }],
            gids: vec![GidEntry {
                index: 0,
                gid: gid_text(IpAddr::from([10, 0, 0, 1])),
                address: IpAddr::from([10, 0, 0, 1]),
                kind: "RoCE v2",
            }],
        }
    }

    #[test]
    fn text_shows_usable_devices_first_and_why_others_are_left_out() {
        let entries = [
            entry("eth0", None),
            entry("eth1", Some("the interface is down")),
            entry("tun0", Some("the interface is down")),
        ];
        let expected = "\
roce_eth0  interface eth0, GUID 0242:acff:fe11:0002
  port 1  active, path MTU 1024 (interface MTU 1500)
  GID 0   0000:0000:0000:0000:0000:ffff:0a00:0001  10.0.0.1

Left out:
  roce_eth1: the interface is down
  roce_tun0: the interface is down
";
        assert_eq!(text(&entries), expected);
    }

    #[test]
    fn json_gives_a_reason_only_where_there_is_one() {
        let json = serde_json::to_value(entry("eth0", None)).unwrap();
        assert!(json.get("left_out").is_none());
        assert_eq!(json["gids"][0]["type"], "RoCE v2");
        assert_eq!(json["ports"][0]["path_mtu"], 1024);
        let json = serde_json::to_value(entry("eth1", Some("down"))).unwrap();
        assert_eq!(json["left_out"], "down");
    }
}
