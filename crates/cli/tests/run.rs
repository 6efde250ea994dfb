//! `feroce run` as a user meets it, with stand-ins for the libraries.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with `lib` (stand-ins that load) and `tmp` (for the view); removed when dropped.
struct Place {
    root: PathBuf,
}

impl Place {
    fn new(test: &str) -> Self {
        let root = std::env::temp_dir().join(format!("feroce-run-{test}-{}", std::process::id()));
        for folder in ["lib", "tmp"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for library in ["libibverbs.so.1", "libferoce_shim.so"] {
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-o"])
                .arg(root.join("lib").join(library));
            let status = cc.args(["-x", "c", "/dev/null"]).status();
            assert!(status.expect("cc, which linked this test").success());
        }
        Self { root }
    }

    fn feroce_run(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feroce"));
        command
            .env("FEROCE_LIB", self.root.join("lib"))
            .env("TMPDIR", self.root.join("tmp"));
        command
            .env_remove("LD_PRELOAD")
            .env_remove("LD_LIBRARY_PATH");
        command.arg("run").args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.feroce_run(arguments).output().unwrap()
    }

    fn shell(&self, options: &[&str], script: &str) -> String {
        let mut arguments = options.to_vec();
        arguments.extend(["--", "sh", "-c", script]);
        let output = self.run(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.root));
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn expect_failure(output: &Output, status: i32, message: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    assert!(errors.contains(message), "{errors}");
}

#[test]
fn the_loaders_variables_are_set() {
    let place = Place::new("variables");
    let lib = place.root.join("lib").display().to_string();
    let shown = place.shell(&[], "echo $LD_LIBRARY_PATH; echo $LD_PRELOAD");
    assert_eq!(shown, format!("{lib}\n{lib}/libferoce_shim.so\n"));
}

#[test]
fn options_reach_the_library() {
    let place = Place::new("options");
    let script = "cd /; echo $FEROCE_LINK $FEROCE_LOG $FEROCE_PCAP $FEROCE_STATS";
    let options = [
        "--link", "loss=1%", "--log", "debug", "--pcap", "a.pcapng", "--stats", "/s",
    ];
    let shown = place.shell(&options, script);
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        shown,
        format!("loss=1% debug {}/a.pcapng /s\n", here.display())
    );
    let link = place.run(&["--link", "los=1%", "--", "true"]);
    expect_failure(&link, 2, "los=1%");
    expect_failure(
        &place.run(&["--log", "loud", "--", "true"]),
        2,
        "[possible values: error",
    );
}

#[test]
fn this_process_becomes_the_program() {
    let place = Place::new("becomes");
    let child = place.feroce_run(&["--", "sh", "-c", "echo $$; kill -TERM $$"]);
    let child = { child }
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout).trim(), pid.to_string());
    assert_eq!(output.status.signal(), Some(15));
    assert_eq!(
        place.run(&["--", "sh", "-c", "exit 7"]).status.code(),
        Some(7)
    );
}

#[test]
fn arguments_of_the_program_are_its_own() {
    let place = Place::new("arguments");
    let output = place.run(&["printf", "%s.", "--device", "-h", "--", "x y"]);
    assert_eq!(text(&output.stdout), "--device.-h.--.x y.");
}

#[test]
fn missing_programs_are_told() {
    let place = Place::new("missing");
    expect_failure(
        &place.run(&["--", "no-such-program"]),
        127,
        "no program no-such-program",
    );
    expect_failure(
        &place.run(&["--", "/no/such"]),
        127,
        "/no/such: No such file",
    );
    expect_failure(
        &place.run(&["--", "/etc/passwd"]),
        126,
        "/etc/passwd is not executable",
    );
    expect_failure(&place.run(&[]), 2, "Usage: feroce run");
}

#[test]
fn missing_libraries_are_told() {
    let place = Place::new("libraries");
    fs::remove_file(place.root.join("lib/libferoce_shim.so")).unwrap();
    expect_failure(
        &place.run(&["--", "true"]),
        125,
        "which has no libferoce_shim.so",
    );
}

#[test]
fn a_static_program_is_told_but_run() {
    let place = Place::new("static");
    let source = place.root.join("fixed.c");
    fs::write(
        &source,
        "void _start(void) { for (;;) __asm__ volatile (\"\"); }",
    )
    .unwrap();
    let mut cc = Command::new("cc");
    let fixed = place.root.join("fixed");
    cc.args(["-static", "-nostdlib", "-ffreestanding", "-o"])
        .arg(&fixed)
        .arg(&source);
    assert!(cc.status().unwrap().success());
    // It needs no end of its own: being started is what is asked.
    let mut child = place
        .feroce_run(&["--", fixed.to_str().unwrap()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let errors = child.stderr.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(errors), &mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("is statically linked"), "{line}");
}

#[test]
fn a_file_that_exec_refuses_leaves_no_view() {
    let place = Place::new("refused");
    let broken = place.root.join("broken");
    fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let output = place.run(&["--", broken.to_str().unwrap()]);
    expect_failure(
        &output,
        126,
        "broken: its interpreter or loader does not exist",
    );
    assert_eq!(views(&place.root.join("tmp")).len(), 0);
}

#[test]
fn the_view_shows_the_devices_asked_for() {
    let place = Place::new("view");
    let script = "cd $FEROCE_VIEW; echo $FEROCE_DEVICE; ls sys/class/infiniband dev/infiniband; \
                  cat sys/class/infiniband/roce_lo/ports/1/state";
    let shown = place.shell(&["--device", "roce_lo"], script);
    // Without a connection manager library there is no rdma_cm.
    let expected = "roce_lo\ndev/infiniband:\nuverbs0\n\nsys/class/infiniband:\n\
                    roce_lo\n4: ACTIVE\n";
    assert_eq!(shown, expected, "this needs lo to be up");
    let unknown = place.run(&["--device", "mlx5_0", "--", "true"]);
    expect_failure(&unknown, 125, "there is no device mlx5_0; there are: ");
}

#[test]
fn views_do_not_pile_up() {
    let place = Place::new("views");
    for _ in 0..3 {
        assert!(place.run(&["--", "true"]).status.success());
        assert_eq!(
            views(&place.root.join("tmp")).len(),
            1,
            "each run sweeps those before it"
        );
    }
}

#[test]
fn a_running_program_keeps_its_view_and_a_killed_one_does_not() {
    let place = Place::new("killed");
    let mut sleeper = place.feroce_run(&["--", "sleep", "600"]).spawn().unwrap();
    // Its view is there, and its lock held, once it has become the program.
    let name = format!("/proc/{}/comm", sleeper.id());
    while fs::read_to_string(&name).unwrap() != "sleep\n" {
        std::thread::yield_now();
    }
    let running = views(&place.root.join("tmp"));
    place.run(&["--", "true"]);
    assert!(running[0].exists());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    place.run(&["--", "true"]);
    assert!(!running[0].exists());
}

#[test]
fn without_a_place_for_the_view_the_program_runs_all_the_same() {
    let place = Place::new("nowhere");
    // A namespace of its own whose usual places cannot be written to.
    let script = "mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs -o ro none /tmp && \
                  exec \"$0\" run -- sh -c 'echo view=$FEROCE_VIEW'";
    let lib = place.root.join("lib");
    let shelter = Path::new("/run").join(place.root.file_name().unwrap());
    if !rustix::process::geteuid().is_root() || fs::create_dir(&shelter).is_err() {
        eprintln!("SKIPPED: mounting needs root");
        return;
    }
    for entry in fs::read_dir(&lib).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), shelter.join(entry.file_name())).unwrap();
    }
    let feroce = shelter.join("feroce");
    fs::copy(env!("CARGO_BIN_EXE_feroce"), &feroce).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(&feroce);
    let output = command
        .env("FEROCE_LIB", &shelter)
        .env_remove("TMPDIR")
        .output();
    fs::remove_dir_all(&shelter).unwrap();
    let output = output.unwrap();
    let errors = text(&output.stderr);
    if errors.starts_with("unshare:") || errors.starts_with("mount:") {
        eprintln!("SKIPPED: this place allows no mounts: {errors}");
        return;
    }
    assert_eq!(text(&output.stdout), "view=\n", "{errors}");
    assert!(errors.contains("Read-only file system") && errors.contains("going on without"));
}

/// The folders of runs below a base.
fn views(base: &Path) -> Vec<PathBuf> {
    let homes = fs::read_dir(base).unwrap().map(|home| home.unwrap().path());
    let runs = homes.flat_map(|home| fs::read_dir(home).unwrap());
    runs.map(|run| run.unwrap().path()).collect()
}
