//! The program to be run: where it is, and whether Feroce can reach it.
//!
//! Feroce gets into a program through the loader. A program that has none (static), that tells it
//! to be careful (set-user-id and the like) or that has another kind runs without Feroce, and
//! would only say that there is no RDMA device: better to say why.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Scripts whose interpreter is a script: the kernel's own limit.
const SCRIPTS_MAX: u32 = 4;
/// The kernel reads no more of a `#!` line.
const SCRIPT_LINE_MAX: usize = 256;
/// Far more than any program has; bounds what a broken file can make us read.
const SEGMENTS_MAX: u16 = 512;

/// Why the loader will not load Feroce's libraries into a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Capabilities,
    Class32,
    Musl,
    SetId,
    Static,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Capabilities => {
                "has file capabilities, so the loader ignores the variables that bring Feroce in; \
                 run a copy without them"
            }
            Self::Class32 => "is a 32-bit program, Feroce's libraries are 64-bit",
            Self::Musl => "is built for musl, Feroce's libraries for glibc",
            Self::SetId => {
                "runs as another user or group, so the loader ignores the variables that bring \
                 Feroce in; put `feroce run` behind it instead: PROGRAM feroce run -- COMMAND"
            }
            Self::Static => {
                "is statically linked: it loads no libraries, so it gets no RDMA device from \
                 Feroce (dynamic programs that it starts do)"
            }
        })
    }
}

/// The file that `exec` would run for `name`.
///
/// # Errors
/// What there is instead.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, NotFound> {
    find_in(
        name,
        &env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()),
    )
}

/// Why a program cannot be run, with the exit status that shells use for it.
#[derive(Debug)]
pub(crate) struct NotFound {
    pub(crate) message: String,
    pub(crate) status: u8,
}

fn find_in(name: &OsStr, search: &OsStr) -> Result<PathBuf, NotFound> {
    let shown = name.display();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return match fs::metadata(&path) {
            Ok(metadata) if is_executable(&metadata) => Ok(path),
            Ok(_) => Err(NotFound {
                message: format!("{shown} is not executable"),
                status: 126,
            }),
            Err(error) => Err(NotFound {
                message: format!("{shown}: {error}"),
                status: 127,
            }),
        };
    }
    env::split_paths(search)
        .map(|folder| folder.join(name))
        .find(|path| fs::metadata(path).is_ok_and(|metadata| is_executable(&metadata)))
        .ok_or_else(|| {
            let hint = "install it or give its path";
            NotFound {
                message: format!("no program {shown} on the PATH; {hint}"),
                status: 127,
            }
        })
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
}

/// What keeps Feroce out of the program at `path`. A file that cannot be read or understood is
/// not judged: `exec` will say what is wrong with it.
pub(crate) fn obstacle(path: &Path) -> Option<Obstacle> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS_MAX {
        let mut file = File::open(&path).ok()?;
        match interpreter(&mut file).ok()? {
            // The rights of a script do not count, those of its interpreter do.
            Some(next) => path = next,
            None => {
                let metadata = file.metadata().ok()?;
                return privileged(&path, &metadata).or_else(|| binary(&mut file).ok()?);
            }
        }
    }
    None
}

/// The program that a script's first line names.
fn interpreter(file: &mut File) -> io::Result<Option<PathBuf>> {
    let mut line = Vec::new();
    file.take(SCRIPT_LINE_MAX as u64).read_to_end(&mut line)?;
    let Some(line) = line.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let path = line
        .split(|byte| byte.is_ascii_whitespace())
        .next()
        .unwrap_or_default();
    Ok(Some(PathBuf::from(OsStr::from_bytes(path))))
}

fn privileged(path: &Path, metadata: &Metadata) -> Option<Obstacle> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let mode = metadata.mode();
    if (mode & 0o4000 != 0 && metadata.uid() != user)
        || (mode & 0o2000 != 0 && metadata.gid() != group)
    {
        return Some(Obstacle::SetId);
    }
    let mut room = [0; 64];
    let gains = rustix::fs::getxattr(path, "security.capability", &mut room).is_ok();
    (gains && user != 0).then_some(Obstacle::Capabilities)
}

/// Looks for the loader in an ELF file's program headers.
fn binary(file: &mut File) -> io::Result<Option<Obstacle>> {
    const CLASS_32: u8 = 1;
    const SEGMENT_LOADER: u32 = 3;
    let mut header = [0; 64];
    file.seek(SeekFrom::Start(0))?;
    file.read_exact(&mut header)?;
    if !header.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    if header[4] == CLASS_32 {
        return Ok(Some(Obstacle::Class32));
    }
    let table = number(&header[32..40]);
    let size = number(&header[54..56]);
    let count = number(&header[56..58]).min(SEGMENTS_MAX.into());
    for index in 0..count {
        let mut segment = [0; 56];
        file.seek(SeekFrom::Start(table.saturating_add(index * size)))?;
        file.read_exact(&mut segment)?;
        if number(&segment[..4]) != u64::from(SEGMENT_LOADER) {
            continue;
        }
        let mut loader = Vec::new();
        file.seek(SeekFrom::Start(number(&segment[8..16])))?;
        let length = number(&segment[32..40]).min(SCRIPT_LINE_MAX as u64);
        file.take(length).read_to_end(&mut loader)?;
        let musl = loader.windows(7).any(|part| part == b"ld-musl");
        return Ok(musl.then_some(Obstacle::Musl));
    }
    Ok(Some(Obstacle::Static))
}

/// A little-endian number of at most eight bytes: the machines Feroce runs on.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::folder::tests::TestFolder;

    fn program(folder: &TestFolder, name: &str, mode: u32, bytes: &[u8]) -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A 64-bit ELF file with one segment, which names `loader` if there is one.
    fn elf(loader: Option<&[u8]>) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..5].copy_from_slice(b"\x7fELF\x02");
        (file[32], file[54], file[56]) = (64, 56, 1);
        file[64] = if loader.is_some() { 3 } else { 1 };
        file[64 + 8] = 120;
        if let Some(loader) = loader {
            file[64 + 32] = loader.len() as u8;
            file.extend_from_slice(loader);
        }
        file
    }

    #[test]
    fn this_dynamic_program_can_be_reached() {
        assert_eq!(obstacle(&env::current_exe().unwrap()), None);
    }

    #[test]
    fn obstacles_are_named() {
        let folder = TestFolder::new();
        let fixed = program(&folder, "fixed", 0o755, &elf(None));
        assert_eq!(obstacle(&fixed), Some(Obstacle::Static));
        let glibc = program(
            &folder,
            "glibc",
            0o755,
            &elf(Some(b"/lib64/ld-linux-x86-64.so.2\0")),
        );
        assert_eq!(obstacle(&glibc), None);
        let musl = program(
            &folder,
            "musl",
            0o755,
            &elf(Some(b"/lib/ld-musl-x86_64.so.1\0")),
        );
        assert_eq!(obstacle(&musl), Some(Obstacle::Musl));
        let mut narrow = elf(None);
        narrow[4] = 1;
        let narrow = program(&folder, "narrow", 0o755, &narrow);
        assert_eq!(obstacle(&narrow), Some(Obstacle::Class32));
    }

    #[test]
    fn scripts_are_judged_by_their_interpreter() {
        let folder = TestFolder::new();
        let fixed = program(&folder, "fixed", 0o755, &elf(None));
        let line = format!("#! {} -x\nrest", fixed.display());
        let script = program(&folder, "script", 0o755, line.as_bytes());
        assert_eq!(obstacle(&script), Some(Obstacle::Static));
        let again = format!("#!{}", script.display());
        let again = program(&folder, "again", 0o755, again.as_bytes());
        assert_eq!(obstacle(&again), Some(Obstacle::Static));
        let own = folder.path().join("endless");
        let endless = program(
            &folder,
            "endless",
            0o755,
            format!("#!{}", own.display()).as_bytes(),
        );
        assert_eq!(obstacle(&endless), None);
    }

    #[test]
    fn broken_files_are_left_to_exec() {
        let folder = TestFolder::new();
        let mut far = elf(None);
        far[32..40].fill(0xff);
        for (name, bytes) in [("empty", &b""[..]), ("text", b"hello"), ("far", &far)] {
            assert_eq!(
                obstacle(&program(&folder, name, 0o755, bytes)),
                None,
                "{name}"
            );
        }
        assert_eq!(obstacle(Path::new("/nonexistent")), None);
    }

    #[test]
    fn programs_of_another_user_are_told() {
        let folder = TestFolder::new();
        let path = program(&folder, "setid", 0o4755, &elf(None));
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(
            privileged(&path, &metadata),
            None,
            "set-user-id to oneself changes nothing"
        );
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(obstacle(&path), Some(Obstacle::SetId));
        }
    }

    #[test]
    fn programs_are_found_as_exec_finds_them() {
        let (first, second) = (TestFolder::new(), TestFolder::new());
        let search = env::join_paths([first.path(), second.path()]).unwrap();
        let tool = program(&second, "tool", 0o755, b"");
        program(&first, "tool", 0o644, b"");
        assert_eq!(find_in(OsStr::new("tool"), &search).unwrap(), tool);
        for (name, status) in [("absent", 127), ("./absent", 127)] {
            assert_eq!(
                find_in(OsStr::new(name), &search).unwrap_err().status,
                status
            );
        }
        let plain = first.path().join("tool");
        assert_eq!(find_in(plain.as_os_str(), &search).unwrap_err().status, 126);
        assert_eq!(
            find_in(first.path().as_os_str(), &search)
                .unwrap_err()
                .status,
            126
        );
    }
}
