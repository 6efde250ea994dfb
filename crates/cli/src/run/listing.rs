//! From the machine's interfaces to what the view shows of them.

use anyhow::{Context as _, Result, bail};
use feroce_verbs::{
    Candidate, GID_TABLE_LEN, candidates, gid_bytes, hardware_counter_names, port_counter_names,
};

use super::view::{DeviceView, GidView};

/// What `ibv_query_port` reports as width and speed, in the kernel's words.
const RATE: &str = "100 Gb/sec (4X EDR)";
/// As the kernel spells it; programs compare the text.
const GID_KIND: &str = "RoCE v2";

/// The devices of this machine, and the interfaces that give none.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) devices: Vec<DeviceView>,
    /// Device names, and why they cannot be used.
    pub(crate) left_out: Vec<(String, String)>,
}

impl Listing {
    /// Asks the verbs library, in the order in which it lists devices.
    ///
    /// # Errors
    /// If the kernel does not tell its interfaces.
    pub(crate) fn take() -> Result<Self> {
        let mut listing = Self::default();
        for candidate in candidates().context("listing the interfaces")? {
            match candidate.left_out {
                Some(reason) => listing.left_out.push((candidate.name, reason)),
                None => listing.devices.push(device_view(&candidate)),
            }
        }
        Ok(listing)
    }

    /// The devices that the program is to see: all, or those named.
    ///
    /// # Errors
    /// If one that is named does not exist or cannot be used.
    pub(crate) fn select(self, wanted: &[String]) -> Result<Vec<DeviceView>> {
        for name in wanted {
            if self.devices.iter().any(|device| device.name == *name) {
                continue;
            }
            if let Some((_, reason)) = self.left_out.iter().find(|(other, _)| other == name) {
                bail!("device {name} cannot be used: {reason}");
            }
            let known: Vec<&str> = self.devices.iter().map(|device| &*device.name).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            bail!("there is no device {name}; there are: {known}");
        }
        let shown = |device: &DeviceView| wanted.is_empty() || wanted.contains(&device.name);
        Ok(self.devices.into_iter().filter(shown).collect())
    }
}

fn device_view(candidate: &Candidate) -> DeviceView {
    let interface = &candidate.interface.name;
    let gid = |(index, &address)| GidView {
        index,
        bytes: gid_bytes(address),
        kind: GID_KIND.to_owned(),
        interface: interface.clone(),
    };
    DeviceView {
        name: candidate.name.clone(),
        node_guid: candidate.guid(),
        interface: interface.clone(),
        active: candidate.port().active,
        rate: RATE.to_owned(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
        gids: candidate.gids.iter().enumerate().map(gid).collect(),
        gid_table_len: GID_TABLE_LEN,
        counters: owned(port_counter_names()),
        hardware_counters: owned(hardware_counter_names()),
    }
}

fn owned(names: Vec<&str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::view::tests::device;

    fn listing() -> Listing {
        Listing {
            devices: vec![device("roce_a", "a"), device("roce_b", "b")],
            left_out: vec![("roce_c".to_owned(), "the interface is down".to_owned())],
        }
    }

    fn names(devices: &[DeviceView]) -> Vec<&str> {
        devices.iter().map(|device| device.name.as_str()).collect()
    }

    #[test]
    fn all_devices_are_shown_unless_some_are_named() {
        assert_eq!(names(&listing().select(&[]).unwrap()), ["roce_a", "roce_b"]);
        assert_eq!(
            names(&listing().select(&["roce_b".to_owned()]).unwrap()),
            ["roce_b"]
        );
    }

    #[test]
    fn a_device_that_cannot_be_shown_is_an_error_that_says_why() {
        let error = |name: &str| {
            listing()
                .select(&[name.to_owned()])
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error("mlx5_0"),
            "there is no device mlx5_0; there are: roce_a, roce_b"
        );
        assert_eq!(
            error("roce_c"),
            "device roce_c cannot be used: the interface is down"
        );
        let error = Listing::default()
            .select(&["roce_a".to_owned()])
            .unwrap_err()
            .to_string();
        assert_eq!(error, "there is no device roce_a; there are: none");
    }

    #[test]
    fn the_machines_loopback_is_listed_with_its_addresses() {
        let listing = Listing::take().unwrap();
        let Some(lo) = listing
            .devices
            .iter()
            .find(|device| device.interface == "lo")
        else {
            eprintln!("SKIPPED: lo is not up here");
            return;
        };
        assert_eq!(lo.name, "roce_lo");
        let gid = lo.gids.first().expect("an address");
        assert_eq!(
            (gid.index, gid.bytes[10..13].to_vec()),
            (0, vec![0xff, 0xff, 127])
        );
    }
}
