//! Which paths belong to the view, and where in it they lie. Bytes only: no files, no calls.

use crate::sys::PATH_MAX;

/// The folders that the view stands in for, as components from the root.
const FOLDERS: [Folder; 4] = [
    Folder {
        components: &[b"sys", b"class", b"infiniband"],
        kind: Kind::Devices,
    },
    Folder {
        components: &[b"sys", b"class", b"infiniband_verbs"],
        kind: Kind::Other,
    },
    // Where the links of the class folders lead; programs that follow them by hand come here.
    Folder {
        components: &[b"sys", b"devices", b"feroce"],
        kind: Kind::Functions,
    },
    Folder {
        components: &[b"dev", b"infiniband"],
        kind: Kind::Nodes,
    },
];

struct Folder {
    components: &'static [&'static [u8]],
    kind: Kind,
}

/// What lies in a folder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// RDMA devices.
    Devices,
    /// Functions, each with its RDMA device below `infiniband`.
    Functions,
    /// Device nodes; the view holds links to a real one.
    Nodes,
    /// Other text files and links.
    Other,
}

/// A path inside the view.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    folder: &'static [&'static [u8]],
    kind: Kind,
    /// What follows the folder: empty, or it starts with a slash.
    rest: &'a [u8],
}

/// A port counter: `/sys/class/infiniband/DEVICE/ports/PORT/{counters,hw_counters}/NAME`, or the
/// same file below its function.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CounterPath<'a> {
    pub(crate) device: &'a [u8],
    pub(crate) name: &'a [u8],
}

impl<'a> Place<'a> {
    /// Where `path` lies in the view; `None` for every path outside it.
    #[inline(never)]
    pub(crate) fn of(path: &'a [u8]) -> Option<Self> {
        FOLDERS.iter().find_map(|folder| {
            let rest = strip(path, folder.components)?;
            Some(Self {
                folder: folder.components,
                kind: folder.kind,
                rest,
            })
        })
    }

    /// Whether this is a device node, or would be one.
    pub(crate) fn is_node(&self) -> bool {
        self.kind == Kind::Nodes && components(self.rest).next().is_some()
    }

    /// The same place below `view`, as a NUL-terminated path; `None` if that is too long.
    #[inline(never)]
    pub(crate) fn write_to(&self, view: &[u8], out: &mut [u8; PATH_MAX]) -> Option<()> {
        let mut writer = Writer { out, length: 0 };
        writer.put(view)?;
        for component in self.folder {
            writer.put(b"/")?;
            writer.put(component)?;
        }
        writer.put(self.rest)?;
        writer.put(b"\0")
    }

    /// The counter that this path names, if it is one.
    pub(crate) fn counter(&self) -> Option<CounterPath<'a>> {
        let mut parts = components(self.rest);
        match self.kind {
            Kind::Devices => {}
            Kind::Functions => {
                let (_function, b"infiniband") = (parts.next()?, parts.next()?) else {
                    return None;
                };
            }
            Kind::Nodes | Kind::Other => return None,
        }
        let device = parts.next()?;
        let (b"ports", Some(_port)) = (parts.next()?, parts.next()) else {
            return None;
        };
        let (b"counters" | b"hw_counters") = parts.next()? else {
            return None;
        };
        let name = parts.next()?;
        parts
            .next()
            .is_none()
            .then_some(CounterPath { device, name })
    }
}

/// What follows `wanted` in `path`; `None` if `path` does not begin with exactly these components.
fn strip<'a>(path: &'a [u8], wanted: &[&[u8]]) -> Option<&'a [u8]> {
    if !path.starts_with(b"/") {
        return None;
    }
    let mut rest = path;
    for component in wanted {
        rest = skip_separators(rest).strip_prefix(*component)?;
        if !matches!(rest, [] | [b'/', ..]) {
            return None;
        }
    }
    Some(rest)
}

/// Steps over slashes and `.` components.
fn skip_separators(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] => rest,
            [b'.'] => &[],
            [b'.', rest @ ..] if rest.starts_with(b"/") => rest,
            _ => return path,
        };
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
}

struct Writer<'a> {
    out: &'a mut [u8; PATH_MAX],
    length: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length.checked_add(bytes.len())?;
        self.out.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    extern crate std;

    fn mapped(path: &str) -> Option<String> {
        let mut out = [0xff; PATH_MAX];
        Place::of(path.as_bytes())?.write_to(b"/view", &mut out)?;
        let end = out.iter().position(|&byte| byte == 0).expect("a NUL");
        Some(String::from_utf8(out[..end].to_vec()).unwrap())
    }

    #[test]
    fn paths_inside_go_to_the_view() {
        for (path, expected) in [
            ("/sys/class/infiniband", "/view/sys/class/infiniband"),
            ("/sys/class/infiniband/", "/view/sys/class/infiniband/"),
            (
                "/sys/class/infiniband/a/../..",
                "/view/sys/class/infiniband/a/../..",
            ),
            (
                "/sys/class/infiniband_verbs/uverbs0",
                "/view/sys/class/infiniband_verbs/uverbs0",
            ),
            (
                "//sys/./class//infiniband//a",
                "/view/sys/class/infiniband//a",
            ),
            ("/./dev/infiniband/rdma_cm", "/view/dev/infiniband/rdma_cm"),
        ] {
            assert_eq!(mapped(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn all_other_paths_are_left_alone() {
        for path in [
            "",
            "/",
            "/s",
            "/sys",
            "/sys/class",
            "/sys/class/infiniban",
            "/sys/class/infiniband2",
            "/sys/class/infiniband_mad/abi_version",
            "/sys/class/net/lo/address",
            "/sys/devices/system/cpu/present",
            "/sys/devices/feroce2",
            "/sysx/class/infiniband",
            "/sys/.class/infiniband",
            "/dev/null",
            "/dev/infiniband2/uverbs0",
            "sys/class/infiniband",
            "./sys/class/infiniband",
            "/home/sys/class/infiniband",
            "/../sys/class/infiniband",
        ] {
            assert_eq!(mapped(path), None, "{path}");
        }
    }

    #[test]
    fn a_path_that_does_not_fit_is_refused_not_cut() {
        let prefix = "/sys/class/infiniband/";
        let fits = PATH_MAX - "/view".len() - prefix.len() - 1;
        for (length, expected) in [(fits, true), (fits + 1, false), (2 * PATH_MAX, false)] {
            let path = String::from(prefix) + &"x".repeat(length);
            assert_eq!(mapped(&path).is_some(), expected, "{length} bytes");
        }
    }

    #[test]
    fn only_entries_of_dev_infiniband_are_nodes() {
        for (path, node) in [
            ("/dev/infiniband", false),
            ("/dev/infiniband/", false),
            ("/dev/infiniband/uverbs0", true),
            ("/sys/class/infiniband/a", false),
        ] {
            assert_eq!(
                Place::of(path.as_bytes()).map(|place| place.is_node()),
                Some(node),
                "{path}"
            );
        }
    }

    #[test]
    fn counters_are_told_from_other_files() {
        let counter =
            |path: &'static str| Place::of(path.as_bytes()).and_then(|place| place.counter());
        let rcvd = Some(CounterPath {
            device: b"roce_lo",
            name: b"rcvd_pkts",
        });
        for path in [
            "/sys/class/infiniband/roce_lo/ports/1/hw_counters/rcvd_pkts",
            "/sys/class/infiniband/roce_lo/ports/1/counters/rcvd_pkts",
            "/sys/class/infiniband//roce_lo/ports//1/./counters/rcvd_pkts/",
            "/sys/devices/feroce/f0/infiniband/roce_lo/ports/1/counters/rcvd_pkts",
        ] {
            assert_eq!(counter(path), rcvd, "{path}");
        }
        for path in [
            "/sys/class/infiniband/roce_lo/ports/1/state",
            "/sys/class/infiniband/roce_lo/ports/1/counters",
            "/sys/class/infiniband/roce_lo/ports/1/counters/a/b",
            "/sys/class/infiniband_verbs/roce_lo/ports/1/counters/rcvd_pkts",
            "/sys/devices/feroce/f0/net/roce_lo/ports/1/counters/rcvd_pkts",
            "/sys/devices/feroce/roce_lo/ports/1/counters/rcvd_pkts",
            "/dev/infiniband/roce_lo/ports/1/counters/rcvd_pkts",
        ] {
            assert_eq!(counter(path), None, "{path}");
        }
    }
}
