//! The files that stand in for `/sys/class/infiniband`, `/sys/class/infiniband_verbs` and
//! `/dev/infiniband`: what the kernel would show for these devices.
//!
//! Only text and links are made here, from plain data. Which devices there are is the verbs
//! library's business, how programs get to see the files the shim's.
//!
//! The shape is that of a real host adapter: `/sys/class/infiniband/NAME` is a link to
//! `FUNCTION/infiniband/NAME`, so that `NAME/../..` and `NAME/device` are the function the device
//! belongs to, with its network interface under `net` and its place in the machine beside it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;

/// What programs can read about one device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceView {
    /// The verbs name, such as `roce_lo`.
    pub(crate) name: String,
    /// EUI-64 of the device.
    pub(crate) node_guid: [u8; 8],
    /// The network interface.
    pub(crate) interface: String,
    /// Whether the only port is up.
    pub(crate) active: bool,
    /// Speed and width as the kernel words them, such as `100 Gb/sec (4X EDR)`.
    pub(crate) rate: String,
    /// Version of the software that is the device.
    pub(crate) firmware: String,
    /// The filled entries of the GID table.
    pub(crate) gids: Vec<GidView>,
    /// Size of the GID table.
    pub(crate) gid_table_len: usize,
    /// Names of the files in `/sys/class/infiniband/NAME/ports/1/counters`. The values come from
    /// the process that uses the device; the files say 0.
    pub(crate) counters: Vec<String>,
    /// Those in `hw_counters`.
    pub(crate) hardware_counters: Vec<String>,
}

/// One filled entry of a GID table.
#[derive(Clone, Debug)]
pub(crate) struct GidView {
    pub(crate) index: usize,
    pub(crate) bytes: [u8; 16],
    /// `RoCE v2`, as the kernel spells it.
    pub(crate) kind: String,
    /// The network interface that has the address.
    pub(crate) interface: String,
}

/// The version of the user-space interface that the kernel reports.
const ABI_VERSION: &str = "6";
/// The node that every device node stands for: readable, writable, harmless.
const NODE: &str = "/dev/null";
/// The node of the connection manager, which belongs to no device. librdmacm takes one that is
/// there for a kernel's, and would wait for its answers for ever: it stands only beside a library
/// of ours.
pub(crate) const CONNECTION_MANAGER: &str = "rdma_cm";

/// Writes the view of `devices` below `root`, which exists and is empty, and of nodes that belong
/// to no device. Those of devices are numbered in
/// the order of `devices`, which is the order in which the verbs library lists them to the program.
///
/// # Errors
/// Of the file system, with the file's name.
pub(crate) fn write(
    root: &Path,
    devices: &[DeviceView],
    common_nodes: &[&str],
    cpus: usize,
) -> io::Result<()> {
    let tree = Tree { root };
    tree.folder("sys/class/infiniband")?;
    tree.file("sys/class/infiniband_verbs/abi_version", ABI_VERSION)?;
    for node in common_nodes {
        tree.link(&format!("dev/infiniband/{node}"), NODE)?;
    }
    for (index, device) in devices.iter().enumerate() {
        write_device(&tree, device, &format!("uverbs{index}"), cpus)?;
    }
    Ok(())
}

fn write_device(tree: &Tree<'_>, device: &DeviceView, node: &str, cpus: usize) -> io::Result<()> {
    let name = &device.name;
    let function = format!("sys/devices/feroce/{name}");
    // A software device is equally near to every processor, as the kernel words that.
    tree.file(&format!("{function}/numa_node"), "-1")?;
    tree.file(&format!("{function}/local_cpus"), &cpu_mask(cpus))?;
    tree.file(&format!("{function}/local_cpulist"), &cpu_list(cpus))?;
    let interface = &device.interface;
    let network = format!("/sys/class/net/{interface}");
    tree.link(&format!("{function}/net/{interface}"), &network)?;

    let uverbs = format!("{function}/infiniband_verbs/{node}");
    tree.file(&format!("{uverbs}/ibdev"), name)?;
    tree.file(&format!("{uverbs}/abi_version"), "1")?;
    tree.link(&format!("{uverbs}/device"), "../..")?;
    let target = format!("../../devices/feroce/{name}/infiniband_verbs/{node}");
    tree.link(&format!("sys/class/infiniband_verbs/{node}"), &target)?;
    tree.link(&format!("dev/infiniband/{node}"), NODE)?;

    let verbs = format!("{function}/infiniband/{name}");
    let guid = groups(&device.node_guid);
    for (file, text) in [
        ("node_guid", guid.as_str()),
        ("sys_image_guid", &guid),
        ("node_type", "1: CA"),
        ("node_desc", name),
        ("fw_ver", &device.firmware),
        ("board_id", "feroce"),
        ("hca_type", "feroce"),
        ("hw_rev", "0"),
    ] {
        tree.file(&format!("{verbs}/{file}"), text)?;
    }
    tree.link(&format!("{verbs}/device"), "../..")?;
    write_port(tree, &format!("{verbs}/ports/1"), device)?;
    let target = format!("../../devices/feroce/{name}/infiniband/{name}");
    tree.link(&format!("sys/class/infiniband/{name}"), &target)
}

fn write_port(tree: &Tree<'_>, port: &str, device: &DeviceView) -> io::Result<()> {
    let (state, physical) = match device.active {
        true => ("4: ACTIVE", "5: LinkUp"),
        false => ("1: DOWN", "3: Disabled"),
    };
    for (file, text) in [
        ("state", state),
        ("phys_state", physical),
        ("rate", &device.rate),
        ("link_layer", "Ethernet"),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x04010000"),
        ("pkeys/0", "0xffff"),
    ] {
        tree.file(&format!("{port}/{file}"), text)?;
    }
    for counter in &device.counters {
        tree.file(&format!("{port}/counters/{counter}"), "0")?;
    }
    for counter in &device.hardware_counters {
        tree.file(&format!("{port}/hw_counters/{counter}"), "0")?;
    }
    // The kernel shows empty entries as zeros and refuses to tell their attributes.
    for index in 0..device.gid_table_len {
        let entry = device.gids.iter().find(|gid| gid.index == index);
        let bytes = entry.map_or([0; 16], |gid| gid.bytes);
        tree.file(&format!("{port}/gids/{index}"), &groups(&bytes))?;
    }
    tree.folder(&format!("{port}/gid_attrs/types"))?;
    tree.folder(&format!("{port}/gid_attrs/ndevs"))?;
    for gid in &device.gids {
        let index = gid.index;
        tree.file(&format!("{port}/gid_attrs/types/{index}"), &gid.kind)?;
        tree.file(&format!("{port}/gid_attrs/ndevs/{index}"), &gid.interface)?;
    }
    Ok(())
}

/// Bytes as the kernel writes GUIDs and GIDs: `fe80:0000:0000:0001`.
fn groups(bytes: &[u8]) -> String {
    let group = |pair: &[u8]| {
        pair.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    bytes.chunks(2).map(group).collect::<Vec<_>>().join(":")
}

/// All of `cpus` processors as the kernel writes masks: 32 bits a word, the highest first.
fn cpu_mask(cpus: usize) -> String {
    let words = cpus.max(1).div_ceil(32);
    let word = |index: usize| match cpus.max(1) - 32 * index {
        bits @ 0..32 => (1_u32 << bits) - 1,
        _ => u32::MAX,
    };
    let words: Vec<String> = (0..words)
        .rev()
        .map(|index| format!("{:08x}", word(index)))
        .collect();
    words.join(",")
}

fn cpu_list(cpus: usize) -> String {
    match cpus {
        0 | 1 => "0".to_owned(),
        more => format!("0-{}", more - 1),
    }
}

/// Files below a folder, with the folders in between.
struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    fn folder(&self, path: &str) -> io::Result<()> {
        fs::create_dir_all(self.root.join(path)).map_err(|error| named(path, &error))
    }

    /// A file that nobody can write to, as in sysfs, of one line.
    fn file(&self, path: &str, line: &str) -> io::Result<()> {
        let target = self.prepare(path)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(target);
        file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
            .map_err(|error| named(path, &error))
    }

    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        symlink(target, self.prepare(path)?).map_err(|error| named(path, &error))
    }

    fn prepare(&self, path: &str) -> io::Result<std::path::PathBuf> {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent)?;
        }
        Ok(self.root.join(path))
    }
}

fn named(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::folder::tests::TestFolder;

    pub(crate) fn device(name: &str, interface: &str) -> DeviceView {
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 9, 0, 1]);
        let mut native = [0; 16];
        (native[0], native[15]) = (0xfd, 1);
        let gid = |index, bytes| GidView {
            index,
            bytes,
            kind: "RoCE v2".to_owned(),
            interface: interface.to_owned(),
        };
        DeviceView {
            name: name.to_owned(),
            node_guid: [0x50, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56],
            interface: interface.to_owned(),
            active: true,
            rate: "100 Gb/sec (4X EDR)".to_owned(),
            firmware: "0.1.0".to_owned(),
            gids: vec![gid(0, mapped), gid(2, native)],
            gid_table_len: 4,
            counters: vec!["port_rcv_data".to_owned()],
            hardware_counters: vec!["rcvd_pkts".to_owned()],
        }
    }

    fn view(devices: &[DeviceView]) -> TestFolder {
        let folder = TestFolder::new();
        write(folder.path(), devices, &[CONNECTION_MANAGER], 4).unwrap();
        folder
    }

    #[track_caller]
    fn expect(view: &TestFolder, path: &str, text: &str) {
        let found = fs::read_to_string(view.path().join(path));
        let found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(found, format!("{text}\n"), "{path}");
    }

    #[test]
    fn a_device_reads_as_in_sysfs() {
        let view = view(&[device("roce_eth0", "eth0")]);
        for (path, text) in [
            ("node_guid", "5054:00ff:fe12:3456"),
            ("node_type", "1: CA"),
            ("ports/1/state", "4: ACTIVE"),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("ports/1/link_layer", "Ethernet"),
            ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:0a09:0001"),
            ("ports/1/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("ports/1/gids/2", "fd00:0000:0000:0000:0000:0000:0000:0001"),
            ("ports/1/gid_attrs/types/2", "RoCE v2"),
            ("ports/1/gid_attrs/ndevs/2", "eth0"),
            ("ports/1/pkeys/0", "0xffff"),
            ("ports/1/counters/port_rcv_data", "0"),
            ("ports/1/hw_counters/rcvd_pkts", "0"),
            ("device/numa_node", "-1"),
            ("device/local_cpus", "0000000f"),
            // What Mooncake reads: the function by its real path.
            ("../../numa_node", "-1"),
        ] {
            expect(
                &view,
                &format!("sys/class/infiniband/roce_eth0/{path}"),
                text,
            );
        }
        expect(
            &view,
            "sys/class/infiniband_verbs/uverbs0/ibdev",
            "roce_eth0",
        );
        expect(&view, "sys/class/infiniband_verbs/abi_version", "6");
    }

    #[test]
    fn empty_gid_entries_have_no_attributes() {
        let view = view(&[device("roce_eth0", "eth0")]);
        let types = view
            .path()
            .join("sys/class/infiniband/roce_eth0/ports/1/gid_attrs/types");
        assert!(!types.join("1").exists());
        assert!(types.join("2").exists());
        assert!(
            !types.join("../../gids/4").exists(),
            "the table has four entries"
        );
    }

    #[test]
    fn the_function_names_its_interface_and_nodes() {
        let view = view(&[device("roce_lo", "lo"), device("roce_b", "b")]);
        for (device, interface, node) in [("roce_lo", "lo", "uverbs0"), ("roce_b", "b", "uverbs1")]
        {
            let class = view.path().join("sys/class/infiniband").join(device);
            let function = class.join("device");
            let link = fs::read_link(function.join("net").join(interface)).unwrap();
            assert_eq!(link, Path::new("/sys/class/net").join(interface));
            assert!(function.join("infiniband_verbs").join(node).is_dir());
            assert_eq!(
                class
                    .join("../..")
                    .canonicalize()
                    .unwrap()
                    .file_name()
                    .unwrap(),
                device
            );
            let node = view.path().join("dev/infiniband").join(node);
            assert_eq!(fs::read_link(node).unwrap(), Path::new(NODE));
        }
        assert!(fs::symlink_metadata(view.path().join("dev/infiniband/rdma_cm")).is_ok());
    }

    #[test]
    fn a_port_that_is_down_says_so() {
        let view = view(&[DeviceView {
            active: false,
            ..device("roce_x", "x")
        }]);
        expect(
            &view,
            "sys/class/infiniband/roce_x/ports/1/state",
            "1: DOWN",
        );
        expect(
            &view,
            "sys/class/infiniband/roce_x/ports/1/phys_state",
            "3: Disabled",
        );
    }

    #[test]
    fn without_devices_the_folders_are_there_and_empty() {
        let view = view(&[]);
        assert_eq!(
            fs::read_dir(view.path().join("sys/class/infiniband"))
                .unwrap()
                .count(),
            0
        );
    }

    #[test]
    fn processor_masks_have_words_of_32_bits() {
        for (cpus, mask, list) in [
            (0, "00000001", "0"),
            (1, "00000001", "0"),
            (2, "00000003", "0-1"),
            (32, "ffffffff", "0-31"),
            (33, "00000001,ffffffff", "0-32"),
            (64, "ffffffff,ffffffff", "0-63"),
        ] {
            assert_eq!(
                (cpu_mask(cpus).as_str(), cpu_list(cpus).as_str()),
                (mask, list)
            );
        }
    }
}
