//! The guest's kernel and first file system.
//!
//! The kernel is Debian's own package, unpacked and cached in `target/rxe-vm`. The first file
//! system (busybox, modules, `tests/rxe-vm/init`) is put together at each build from what is there.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::kernel;
use crate::cargo;

/// The package that depends on Debian's current kernel.
const KERNEL_PACKAGE: &str = "linux-image-amd64";
const INIT: &str = include_str!("../../../../tests/rxe-vm/init");

/// Programs needed, and the Debian packages that have them.
const TOOLS: [(&str, &str); 5] = [
    ("apt-get", "apt"),
    ("busybox", "busybox-static"),
    ("dpkg-deb", "dpkg"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("rdma", "iproute2"),
];

/// A bootable kernel and its first file system.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
}

impl Image {
    /// Builds the image, fetching the kernel if it is not there yet.
    ///
    /// # Errors
    /// If a tool is missing (see [`missing_tools`]), the package cannot be had or does not hold
    /// what it should.
    pub(crate) fn build() -> Result<Self> {
        let missing = missing_tools();
        ensure!(missing.is_empty(), "the guest needs {}", missing.join(", "));
        let folder = cargo::target_folder()?.join("rxe-vm");
        fs::create_dir_all(&folder)?;
        let unpacked = match unpacked_kernel(&folder)? {
            Some(unpacked) => unpacked,
            None => fetch_kernel(&folder)?,
        };
        let version = only_entry(&unpacked.join("lib/modules"))?;
        let kernel = unpacked
            .join("boot")
            .join(format!("vmlinuz-{}", file_name(&version)));
        ensure!(kernel.is_file(), "{} is missing", kernel.display());
        let initrd = folder.join("initrd");
        // Several harnesses may run at once: put a finished file in place.
        let fresh = folder.join(format!("initrd.{}", std::process::id()));
        write_initrd(&fresh, &version).context("writing the first file system")?;
        fs::rename(&fresh, &initrd)?;
        Ok(Self { kernel, initrd })
    }
}

/// What has to be installed first, as `PROGRAM (apt-get install PACKAGE)`.
pub(crate) fn missing_tools() -> Vec<String> {
    let absent = TOOLS
        .iter()
        .filter(|(program, _)| find_program(program).is_none());
    absent
        .map(|(program, package)| format!("{program} (apt-get install {package})"))
        .collect()
}

pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Tools of the administrator may be off a user's path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

fn unpacked_kernel(folder: &Path) -> Result<Option<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && file_name(&path).starts_with("linux-image-") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found.pop())
}

fn fetch_kernel(folder: &Path) -> Result<PathBuf> {
    let mut package = kernel_package()?;
    println!("guest: fetching {package}, about 70 MB");
    let work = folder.join(format!("fetch.{}", std::process::id()));
    fs::create_dir_all(&work)?;
    let mut fetched = fetch_into(&work, &package);
    if fetched.is_err() {
        // The lists may name a version that has been replaced since.
        update_lists()?;
        package = kernel_package()?;
        fetched = fetch_into(&work, &package);
    }
    let unpacked = folder.join(&package);
    let result = fetched.and_then(|()| Ok(fs::rename(work.join("unpacked"), &unpacked)?));
    fs::remove_dir_all(&work)?;
    result.map(|()| unpacked)
}

/// The versioned package: `linux-image-6.1.0-57-amd64`. Asks for Debian's lists if there are none.
fn kernel_package() -> Result<String> {
    let look = || -> Result<Option<String>> {
        let text = output(Command::new("apt-cache").args(["depends", KERNEL_PACKAGE]));
        let package = |line: &str| line.trim().strip_prefix("Depends: ").map(str::to_owned);
        Ok(text.unwrap_or_default().lines().find_map(package))
    };
    if let Some(package) = look()? {
        return Ok(package);
    }
    update_lists()?;
    look()?.with_context(|| format!("Debian's lists have no {KERNEL_PACKAGE}"))
}

fn update_lists() -> Result<()> {
    output(Command::new("apt-get").args(["update", "-qq"])).map(|_| ())
}

fn fetch_into(work: &Path, package: &str) -> Result<()> {
    let mut download = Command::new("apt-get");
    output(
        download
            .args(["download", "-qq", package])
            .current_dir(work),
    )?;
    let archive = only_entry(work)?;
    output(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(&archive)
            .arg(work.join("unpacked")),
    )?;
    Ok(fs::remove_file(archive)?)
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry?.path()),
        _ => bail!("{} should hold one entry", folder.display()),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Runs a command for its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().display().to_string();
    let output = command.output().with_context(|| name.clone())?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write_initrd(path: &Path, modules: &Path) -> Result<()> {
    const TOOLS: [&str; 9] = [
        "sh", "mount", "insmod", "ip", "chroot", "poweroff", "mkdir", "hostname", "echo",
    ];
    let mut archive = Archive {
        out: BufWriter::new(File::create(path)?),
        inode: 0,
        length: 0,
    };
    for folder in ["bin", "dev", "proc", "sys", "host", "modules"] {
        archive.add(folder, FOLDER, b"")?;
    }
    let busybox = find_program("busybox").context("no busybox")?;
    archive.add("bin/busybox", PROGRAM, &fs::read(busybox)?)?;
    for tool in TOOLS {
        archive.add(&format!("bin/{tool}"), LINK, b"busybox")?;
    }
    let mut order = String::new();
    for module in kernel::load_order(modules)? {
        let name = file_name(&module);
        archive.add(&format!("modules/{name}"), FILE, &fs::read(&module)?)?;
        order += &format!("{name}\n");
    }
    archive.add("modules/order", FILE, order.as_bytes())?;
    archive.add("init", PROGRAM, INIT.as_bytes())?;
    archive.add("TRAILER!!!", 0, b"")?;
    Ok(archive.out.flush()?)
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// Writes the "newc" cpio format, as the kernel's initramfs documentation describes it: a header of
/// hexadecimal fields, the name with its NUL, the data; name and data padded to four bytes.
struct Archive<W> {
    out: W,
    inode: u32,
    length: usize,
}

impl<W: Write> Archive<W> {
    fn add(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let links = 1;
        let size = u32::try_from(data.len()).map_err(io::Error::other)?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        let fields = [
            self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0,
        ];
        let fields = fields.map(|field| format!("{field:08X}")).concat();
        self.put(format!("070701{fields}{name}\0").as_bytes())?;
        self.put(data)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.length += bytes.len();
        let padding = self.length.next_multiple_of(4) - self.length;
        self.length += padding;
        self.out.write_all(&[0; 4][..padding])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_what_cpio_reads() {
        let mut archive = Archive {
            out: Vec::new(),
            inode: 0,
            length: 0,
        };
        archive.add("d", FOLDER, b"").unwrap();
        archive.add("d/file", FILE, b"hello").unwrap();
        archive.add("d/link", LINK, b"file").unwrap();
        archive.add("TRAILER!!!", 0, b"").unwrap();
        let bytes = archive.out;
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        // Header 110 bytes, `d` and its NUL: 112, then the next header at once.
        assert_eq!(&text[112..118], "070701");
        let file = &text[112..];
        assert_eq!(&file[6 + 6 * 8..6 + 7 * 8], "00000005", "size of the data");
        assert_eq!(
            &file[6 + 11 * 8..6 + 12 * 8],
            "00000007",
            "size of the name"
        );
        assert_eq!(&file[110..128], "d/file\0\0\0\0hello\0\0\0");
    }
}
