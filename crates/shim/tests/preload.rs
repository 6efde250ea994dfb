//! The shim as a program meets it: this executable runs itself again with the library preloaded
//! and a hand-made view, and makes C library calls there.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io::{Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::{env, fs, ptr};

const DEVICE: &str = "roce_x";
const STATE: &CStr = c"/sys/class/infiniband/roce_x/ports/1/state";
const STATE_TEXT: &str = "4: ACTIVE\n";
const COUNTER: &str = "/sys/class/infiniband/roce_x/ports/1/hw_counters/rcvd_pkts";
const NODE: &CStr = c"/dev/infiniband/uverbs0";

/// Set in the inner process, to the folder of the view.
const INNER: &str = "FEROCE_SHIM_TEST_INNER";

/// A view as `feroce run` makes it, with one device; removed when dropped.
struct View {
    root: PathBuf,
}

impl View {
    fn new(test: &str) -> Self {
        let root = env::temp_dir().join(format!("feroce-shim-{test}-{}", std::process::id()));
        let function = root.join("sys/devices/feroce/function0");
        let port = function.join("infiniband").join(DEVICE).join("ports/1");
        fs::create_dir_all(port.join("hw_counters")).unwrap();
        fs::write(port.join("state"), STATE_TEXT).unwrap();
        fs::write(port.join("hw_counters/rcvd_pkts"), "0\n").unwrap();
        fs::write(function.join("numa_node"), "-1\n").unwrap();
        symlink(
            "../..",
            function.join("infiniband").join(DEVICE).join("device"),
        )
        .unwrap();
        let class = root.join("sys/class/infiniband");
        fs::create_dir_all(&class).unwrap();
        let target = format!("../../devices/feroce/function0/infiniband/{DEVICE}");
        symlink(target, class.join(DEVICE)).unwrap();
        let nodes = root.join("dev/infiniband");
        fs::create_dir_all(&nodes).unwrap();
        symlink("/dev/null", nodes.join("uverbs0")).unwrap();
        Self { root }
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", shim())
            .env("FEROCE_VIEW", &self.root);
        command
    }

    fn shell(&self, script: &str) -> Output {
        self.command("/bin/sh")
            .args(["-c", script])
            .output()
            .unwrap()
    }

    /// Runs the test of this name in a process with the shim, where it finds `inner()`.
    #[track_caller]
    fn run_inner(&self, test: &str, configure: impl FnOnce(&mut Command)) {
        let mut command = self.command(env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture"])
            .env(INNER, &self.root);
        configure(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{test} with the shim:\n{text}\n{errors}"
        );
        assert!(
            text.contains("1 passed"),
            "{test} did not run inside:\n{text}\n{errors}"
        );
    }
}

impl Drop for View {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

/// The library as it ships. Cargo builds no cdylib for a test, so the test asks it to; the release
/// profile is the one without std.
fn shim() -> &'static Path {
    static LIBRARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--manifest-path"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status()
            .unwrap();
        assert!(status.success(), "cargo build of the shim");
        target.join("release/libferoce_shim.so")
    });
    &LIBRARY
}

/// The view's folder, in the inner process only.
fn inner() -> Option<PathBuf> {
    env::var_os(INNER).map(PathBuf::from)
}

fn read_descriptor(descriptor: c_int) -> String {
    assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
    let mut buffer = [0_u8; 64];
    // SAFETY: the buffer is writable for its length; the descriptor was just opened here.
    let length = unsafe {
        let length = libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(descriptor);
        length
    };
    String::from_utf8(buffer[..usize::try_from(length).unwrap()].to_vec()).unwrap()
}

fn read_stream(stream: *mut libc::FILE) -> String {
    assert!(!stream.is_null(), "{}", std::io::Error::last_os_error());
    let mut buffer = [0_u8; 64];
    // SAFETY: the buffer is writable for its length; the stream was just opened here.
    let length = unsafe {
        let length = libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), stream);
        libc::fclose(stream);
        length
    };
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

#[test]
fn opened_files_are_the_views() {
    if inner().is_none() {
        return View::new("open").run_inner("opened_files_are_the_views", |_| {});
    }
    let path = STATE.as_ptr();
    // SAFETY: NUL-terminated paths and modes; every descriptor and stream is read and closed.
    unsafe {
        assert_eq!(
            read_descriptor(libc::open(path, libc::O_RDONLY)),
            STATE_TEXT
        );
        assert_eq!(
            read_descriptor(libc::open64(path, libc::O_RDONLY)),
            STATE_TEXT
        );
        assert_eq!(
            read_descriptor(libc::openat(libc::AT_FDCWD, path, 0)),
            STATE_TEXT
        );
        assert_eq!(
            read_descriptor(libc::openat64(libc::AT_FDCWD, path, 0)),
            STATE_TEXT
        );
        assert_eq!(read_stream(libc::fopen(path, c"re".as_ptr())), STATE_TEXT);
        assert_eq!(read_stream(libc::fopen64(path, c"r".as_ptr())), STATE_TEXT);
    }
    for name in [c"__open_2", c"__open64_2"] {
        // SAFETY: the C library exports both with this type.
        let opened = unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            type Open2 = unsafe extern "C" fn(*const c_char, c_int) -> c_int;
            std::mem::transmute::<*mut c_void, Open2>(found)(path, libc::O_RDONLY)
        };
        assert_eq!(read_descriptor(opened), STATE_TEXT, "{name:?}");
    }
}

#[test]
fn device_nodes_are_character_devices() {
    if inner().is_none() {
        return View::new("nodes").run_inner("device_nodes_are_character_devices", |_| {});
    }
    let node = NODE.as_ptr();
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    let mut expect = |what: &str, call: &dyn Fn(*mut libc::stat) -> c_int| {
        assert_eq!(
            call(status.as_mut_ptr()),
            0,
            "{what}: {}",
            std::io::Error::last_os_error()
        );
        // SAFETY: zeroed above and filled by the call: plain integers throughout.
        let mode = unsafe { status.assume_init() }.st_mode;
        assert_eq!(mode & libc::S_IFMT, libc::S_IFCHR, "{what}");
    };
    // SAFETY: a NUL-terminated path and a buffer of the right type in every call.
    unsafe {
        expect("stat", &|status| libc::stat(node, status));
        expect("lstat", &|status| libc::lstat(node, status));
        expect("stat64", &|status| libc::stat64(node, status.cast()));
        expect("lstat64", &|status| libc::lstat64(node, status.cast()));
        let nofollow = libc::AT_SYMLINK_NOFOLLOW;
        expect("fstatat", &|status| {
            libc::fstatat(libc::AT_FDCWD, node, status, nofollow)
        });
        expect("fstatat64", &|status| {
            libc::fstatat64(libc::AT_FDCWD, node, status.cast(), 0)
        });
        type OldStat = unsafe extern "C" fn(c_int, *const c_char, *mut libc::stat) -> c_int;
        for name in [c"__xstat", c"__lxstat", c"__xstat64", c"__lxstat64"] {
            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            let call = std::mem::transmute::<*mut c_void, OldStat>(found);
            // The version of the struct: 1 on x86_64, 0 elsewhere.
            let version = c_int::from(cfg!(target_arch = "x86_64"));
            expect(&name.to_string_lossy(), &|status| {
                call(version, node, status)
            });
        }
        let both = libc::R_OK | libc::W_OK;
        assert_eq!(libc::access(node, both), 0);
        assert_eq!(libc::eaccess(node, both), 0);
        assert_eq!(libc::euidaccess(node, both), 0);
        assert_eq!(libc::faccessat(libc::AT_FDCWD, node, both, 0), 0);
    }
    use std::os::unix::fs::FileTypeExt;
    // std asks by statx.
    let kind = fs::symlink_metadata("/dev/infiniband/uverbs0")
        .unwrap()
        .file_type();
    assert!(kind.is_char_device());
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/infiniband/uverbs0")
        .unwrap();
}

#[test]
fn real_paths_lead_into_the_view() {
    let Some(view) = inner() else {
        return View::new("realpath").run_inner("real_paths_lead_into_the_view", |_| {});
    };
    let function = view
        .canonicalize()
        .unwrap()
        .join("sys/devices/feroce/function0");
    let resolve = |call: &dyn Fn(*const c_char) -> *mut c_char| {
        let found = call(c"/sys/class/infiniband/roce_x/../..".as_ptr());
        assert!(!found.is_null(), "{}", std::io::Error::last_os_error());
        // SAFETY: these calls answer a NUL-terminated string from malloc.
        unsafe {
            let path = CStr::from_ptr(found).to_str().unwrap().to_owned();
            libc::free(found.cast());
            PathBuf::from(path)
        }
    };
    // SAFETY: NUL-terminated paths, no buffer.
    unsafe {
        assert_eq!(
            resolve(&|path| libc::realpath(path, ptr::null_mut())),
            function
        );
        unsafe extern "C" {
            fn canonicalize_file_name(path: *const c_char) -> *mut c_char;
        }
        assert_eq!(resolve(&|path| canonicalize_file_name(path)), function);
    }
    // The way Mooncake goes on from there.
    assert_eq!(
        fs::read_to_string(function.join("numa_node")).unwrap(),
        "-1\n"
    );
    let link = fs::read_link("/sys/class/infiniband/roce_x").unwrap();
    assert!(link.ends_with("infiniband/roce_x"), "{}", link.display());
}

#[test]
fn folders_are_listed() {
    if inner().is_none() {
        return View::new("list").run_inner("folders_are_listed", |_| {});
    }
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(names("/sys/class/infiniband"), [DEVICE]);
    assert_eq!(names("/dev/infiniband/"), ["uverbs0"]);
    type Scandir =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, *mut c_void, *mut c_void) -> c_int;
    for name in [c"scandir", c"scandir64"] {
        let mut list = ptr::null_mut();
        // SAFETY: the C library exports both with this type; the list is left to the process.
        let count = unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            let call = std::mem::transmute::<*mut c_void, Scandir>(found);
            let folder = c"/sys/class/infiniband".as_ptr();
            call(folder, &raw mut list, ptr::null_mut(), ptr::null_mut())
        };
        assert_eq!(count, 3, "{name:?}: the device, `.` and `..`");
    }
}

#[test]
fn everything_else_is_the_machines() {
    if inner().is_none() {
        return View::new("else").run_inner("everything_else_is_the_machines", |_| {});
    }
    assert!(Path::new("/proc/self/status").exists());
    assert!(fs::read_to_string("/sys/class/net/lo/mtu").is_ok());
    let error = fs::read_to_string("/sys/class/infiniband/absent/state").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    let long = format!("/sys/class/infiniband/{}", "x/".repeat(2040));
    let long = CString::new(long).unwrap();
    // SAFETY: a NUL-terminated path.
    let opened = unsafe { libc::open(long.as_ptr(), libc::O_RDONLY) };
    assert_eq!(opened, -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );
    // SAFETY: a null path is answered by the kernel.
    let answer = unsafe { libc::faccessat(libc::AT_FDCWD, ptr::null(), 0, 0) };
    assert_eq!(answer, -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EFAULT)
    );
}

#[test]
fn a_program_that_wipes_its_environment_keeps_the_view() {
    if inner().is_none() {
        let name = "a_program_that_wipes_its_environment_keeps_the_view";
        return View::new("wiped").run_inner(name, |_| {});
    }
    // SAFETY: the test harness runs this one test; no other thread reads the environment now.
    unsafe { env::remove_var("FEROCE_VIEW") };
    assert!(Path::new(STATE.to_str().unwrap()).exists());
}

#[test]
fn without_a_view_the_shim_does_nothing() {
    let view = View::new("none");
    let mut command = view.command("/bin/sh");
    let command = command.args([
        "-c",
        "cat /sys/class/infiniband/roce_x/ports/1/state; echo $?",
    ]);
    for value in [None, Some("")] {
        let command = match value {
            None => command.env_remove("FEROCE_VIEW"),
            Some(value) => command.env("FEROCE_VIEW", value),
        };
        let output = command.output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "1\n",
            "FEROCE_VIEW {value:?}"
        );
    }
}

#[test]
fn shell_tools_see_the_view() {
    let view = View::new("shell");
    let output = view.shell(
        "set -e; cat /sys/class/infiniband/*/ports/1/state; ls /sys/class/infiniband; \
         test -c /dev/infiniband/uverbs0 && test -w /dev/infiniband/uverbs0 && echo node; \
         readlink /sys/class/infiniband/roce_x; ls -d /sys/class/net/lo; \
         ls -l /sys/class/infiniband /dev/infiniband >/dev/null; \
         realpath /sys/class/infiniband/roce_x/device",
    );
    let expected = "4: ACTIVE\nroce_x\nnode\n\
                    ../../devices/feroce/function0/infiniband/roce_x\n/sys/class/net/lo\n\
                    /sys/devices/feroce/function0\n";
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A verbs library that knows one counter, which grows with each question.
fn verbs_library(folder: &Path) -> PathBuf {
    let source = folder.join("counter.c");
    let text = "#include <string.h>\n\
                int feroce_counter(const char *device, const char *name, unsigned long *value) {\n\
                static unsigned long next = 41;\n\
                if (strcmp(device, \"roce_x\") || strcmp(name, \"rcvd_pkts\")) return 1;\n\
                *value = ++next; return 0; }\n";
    fs::write(&source, text).unwrap();
    let library = folder.join("libibverbs.so.1");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,-soname,libibverbs.so.1", "-o"])
        .args([&library, &source])
        .status()
        .expect("cc, which linking this test needed as well");
    assert!(status.success());
    library
}

#[test]
fn counters_come_from_the_verbs_library_of_the_process() {
    let Some(folder) = inner() else {
        let view = View::new("counter");
        let library = verbs_library(&view.root);
        let name = "counters_come_from_the_verbs_library_of_the_process";
        view.run_inner(name, |_| {});
        // Once more with the library in the global scope.
        return view.run_inner(name, |command| {
            command.env(
                "LD_PRELOAD",
                format!("{}:{}", shim().display(), library.display()),
            );
        });
    };
    let global = env::var("LD_PRELOAD").unwrap().contains("libibverbs");
    if !global {
        // The file of the view, while nobody in the process knows better.
        assert_eq!(fs::read_to_string(COUNTER).unwrap(), "0\n");
        let library = CString::new(folder.join("libibverbs.so.1").to_str().unwrap()).unwrap();
        // SAFETY: a NUL-terminated path.
        let loaded = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!loaded.is_null());
    }
    // The library is asked when the file is opened, and at each read of its start.
    assert_eq!(fs::read_to_string(COUNTER).unwrap(), "43\n");
    assert_eq!(fs::read_to_string(COUNTER).unwrap(), "45\n");
    let path = CString::new(COUNTER).unwrap();
    // SAFETY: NUL-terminated path and mode.
    let stream = unsafe { libc::fopen(path.as_ptr(), c"r".as_ptr()) };
    assert_eq!(read_stream(stream), "46\n");
    // By the path that the links lead to.
    let real = fs::canonicalize(COUNTER).unwrap();
    assert_eq!(fs::read_to_string(real).unwrap(), "48\n");
    let unknown = COUNTER.replace("rcvd_pkts", "unheard_of");
    assert_eq!(
        fs::read(unknown).unwrap_err().raw_os_error(),
        Some(libc::ENOENT)
    );
}

/// What perftest does, and what must not be taken for a counter afterwards.
#[test]
fn a_counter_that_stays_open_grows() {
    let Some(_) = inner() else {
        let view = View::new("grows");
        let library = verbs_library(&view.root);
        return view.run_inner("a_counter_that_stays_open_grows", |command| {
            command.env(
                "LD_PRELOAD",
                format!("{}:{}", shim().display(), library.display()),
            );
        });
    };
    let mut file = fs::File::open(COUNTER).unwrap();
    let mut text = [0; 8];
    for expected in ["43\n", "44\n"] {
        let length = file.read(&mut text).unwrap();
        assert_eq!(str::from_utf8(&text[..length]).unwrap(), expected);
        assert_eq!(file.read(&mut text).unwrap(), 0, "more than one line");
        file.seek(SeekFrom::Start(0)).unwrap();
    }
    let length = file.read_at(&mut text, 0).unwrap();
    assert_eq!(str::from_utf8(&text[..length]).unwrap(), "45\n");
    let descriptor = file.as_raw_fd();
    drop(file);
    let mut other = fs::File::open(env::current_exe().unwrap()).unwrap();
    assert_eq!(other.as_raw_fd(), descriptor, "the same number");
    other.read_exact(&mut text).unwrap();
    assert_eq!(text[..4], *b"\x7fELF");
}

#[test]
fn the_library_exports_file_calls_and_needs_no_library() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(shim())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .collect();
    assert!(names.contains(&"open64"), "{text}");
    for name in names {
        let call = [
            "open",
            "stat",
            "access",
            "read",
            "realpath",
            "scandir",
            "canonicalize",
            "xattr",
        ]
        .iter()
        .any(|part| name.contains(part));
        assert!(
            call,
            "{name} is exported, and would replace a definition of that name"
        );
    }
    let output = Command::new("readelf")
        .arg("-d")
        .arg(shim())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("SYMTAB") && !text.contains("NEEDED"),
        "{text}"
    );
}
