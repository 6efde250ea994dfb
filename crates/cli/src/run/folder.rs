//! A private folder for one run, which is removed when nobody uses it any more.
//!
//! `feroce run` becomes the program it runs, so there is nobody left to clean up behind it. Instead
//! each folder is locked (`flock`) through a descriptor that the program inherits, and so do its
//! children: the kernel drops the lock when the last of them is gone, however it died. The next
//! `feroce run` removes every folder it can lock. At most the folders of the programs that ran
//! since then are left, never more.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// The inherited descriptor is at least one of these, the first that the limit of open files
/// allows: shell scripts number their own from 3 upwards.
const DESCRIPTORS_MIN: [i32; 3] = [700, 100, 10];
/// Runs of one process id that may still hold their folders (left by daemons).
const SAME_PID_MAX: u32 = 100;
const PREFIX: &str = "run-";

/// A folder for this run, in the possession of this process.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    lock: File,
}

impl RunFolder {
    /// Makes a folder below the first of `bases` that lets it, and removes abandoned ones there.
    ///
    /// # Errors
    /// Why each base was no good.
    pub(crate) fn create(bases: &[PathBuf]) -> Result<Self, String> {
        let mut reasons = Vec::new();
        for base in bases {
            match Self::create_in(base) {
                Ok(folder) => return Ok(folder),
                Err(error) => reasons.push(format!("{}: {error}", base.display())),
            }
        }
        Err(reasons.join("; "))
    }

    fn create_in(base: &Path) -> io::Result<Self> {
        let home = base.join(format!("feroce-{}", rustix::process::geteuid().as_raw()));
        match DirBuilder::new().mode(0o755).create(&home) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => check_ownership(&home)?,
        }
        // While this lock is held nobody sweeps: a new folder is safe until it has its own lock.
        let guard = File::open(&home)?;
        guard.lock()?;
        sweep(&home);
        let path = create_unique(&home)?;
        let lock = File::open(&path)?;
        lock.lock_shared()?;
        Ok(Self { path, lock })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the program that replaces this process, and its children, keep the folder.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub(crate) fn hand_over(&self) -> io::Result<Heirloom> {
        let copies = DESCRIPTORS_MIN.map(|min| fcntl_dupfd_cloexec(&self.lock, min));
        let copy = copies
            .into_iter()
            .find_map(Result::ok)
            .ok_or(rustix::io::Errno::MFILE)?;
        fcntl_setfd(&copy, FdFlags::empty())?;
        Ok(Heirloom(copy))
    }

    /// Removes the folder: nothing was started.
    pub(crate) fn remove(self) {
        // What cannot be removed now is swept by the next run.
        drop(fs::remove_dir_all(&self.path));
    }
}

/// The descriptor that survives `exec`.
#[derive(Debug)]
pub(crate) struct Heirloom(OwnedFd);

impl Heirloom {
    /// Never closes it in this process.
    pub(crate) fn keep(self) {
        let _: i32 = self.0.into_raw_fd();
    }
}

/// Others can make names in shared temporary folders: take none but our own.
fn check_ownership(folder: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    let ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !ours || metadata.mode() & 0o022 != 0 {
        let text = format!(
            "{} belongs to, or can be changed by, another user",
            folder.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

/// Removes every folder that no process holds.
fn sweep(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(folder) = File::open(entry.path()) else {
            continue;
        };
        match folder.try_lock() {
            Ok(()) => drop(fs::remove_dir_all(entry.path())),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}

fn create_unique(home: &Path) -> io::Result<PathBuf> {
    let pid = std::process::id();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..SAME_PID_MAX {
        let path = home.join(format!("{PREFIX}{pid}-{attempt}"));
        match DirBuilder::new().mode(0o755).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder of a test, removed when dropped.
    pub(crate) struct TestFolder(PathBuf);

    impl TestFolder {
        pub(crate) fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("feroce-test-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn create(base: &TestFolder) -> RunFolder {
        RunFolder::create(&[base.path().to_owned()]).unwrap()
    }

    /// A file in the folder: names are used again, so a path alone tells nothing.
    fn mark(run: &RunFolder) -> PathBuf {
        let mark = run.path().join("mark");
        fs::write(&mark, "").unwrap();
        mark
    }

    #[test]
    fn abandoned_folders_are_swept_and_held_ones_stay() {
        let base = TestFolder::new();
        let held = create(&base);
        let held_mark = mark(&held);
        let abandoned = create(&base);
        let abandoned_mark = mark(&abandoned);
        drop(abandoned);
        assert!(abandoned_mark.exists(), "nobody cleans up behind a program");
        let _next = create(&base);
        assert!(!abandoned_mark.exists(), "the next run does");
        assert!(held_mark.exists());
    }

    #[test]
    fn an_inherited_descriptor_keeps_the_folder() {
        let base = TestFolder::new();
        let run = create(&base);
        let mark = mark(&run);
        let heirloom = run.hand_over().unwrap();
        drop(run);
        let _next = create(&base);
        assert!(mark.exists());
        drop(heirloom);
        let _after = create(&base);
        assert!(!mark.exists());
    }

    #[test]
    fn the_first_base_that_works_is_taken() {
        let base = TestFolder::new();
        let absent = base.path().join("absent");
        let run = RunFolder::create(&[absent.clone(), base.path().to_owned()]).unwrap();
        assert!(run.path().starts_with(base.path()));
        let error = RunFolder::create(&[absent]).unwrap_err();
        assert!(
            error.contains("absent") && error.contains("No such file"),
            "{error}"
        );
    }

    #[test]
    fn folders_that_others_could_change_are_refused() {
        let base = TestFolder::new();
        let elsewhere = TestFolder::new();
        let home = base
            .path()
            .join(format!("feroce-{}", rustix::process::geteuid().as_raw()));
        symlink(elsewhere.path(), &home).unwrap();
        let error = RunFolder::create(&[base.path().to_owned()]).unwrap_err();
        assert!(error.contains("another user"), "{error}");
        fs::remove_file(&home).unwrap();
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
        let error = RunFolder::create(&[base.path().to_owned()]).unwrap_err();
        assert!(error.contains("another user"), "{error}");
    }
}
