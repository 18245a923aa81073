//! The libraries that `netvale run` puts before a program's own, built where this test was built.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use super::common::stderr;
use super::up::LIMIT;

/// The folder with the libraries, built first if need be.
pub fn dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let profile = Path::new(env!("CARGO_BIN_EXE_netvale")).parent().expect("a folder").to_path_buf();
        let mut command = Command::new(env!("CARGO"));
        command.args(["build", "--quiet", "--package", "netvale-capi", "--package", "netvale-pcap"]);
        if profile.file_name().is_some_and(|n| n == "release") {
            command.arg("--release");
        }
        command.arg("--target-dir").arg(profile.parent().expect("a target folder"));
        command.current_dir(root()).stdin(Stdio::null());
        let output = command.output().expect("cargo runs");
        assert!(output.status.success(), "{}", stderr(&output));
        profile
    })
}

/// The top of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Compiles a C program of crates/capi/tests/c as a program linked to libnetmap.
pub fn compile(name: &str, into: &Path) -> PathBuf {
    let capi = root().join("crates/capi");
    let program = into.join(name);
    // Programs find the library by its installed name.
    let _ = std::os::unix::fs::symlink(dir().join("libnetmap.so"), into.join("libnetmap.so.0"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(capi.join("include"))
        .arg(capi.join("tests/c").join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(dir())
        .args(["-lnetmap", "-lpthread"])
        .arg(format!("-Wl,-rpath,{}", into.display()))
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", stderr(&output));
    program
}

/// Compiles a program of the same kind that knows nothing of our library: it is to be preloaded.
pub fn compile_alone(source: &Path, program: &Path, libraries: &[&str]) {
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-D_FORTIFY_SOURCE=2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("crates/capi/include"))
        .arg(source)
        .arg("-o")
        .arg(program)
        .args(libraries)
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Runs to the end, within the limit.
pub fn finish(mut command: Command) -> Output {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    loop {
        if child.try_wait().expect("a child").is_some() {
            return child.wait_with_output().expect("its output");
        }
        if start.elapsed() > LIMIT * 2 {
            let _ = child.kill();
            let output = child.wait_with_output().expect("its output");
            panic!("{command:?} does not end: {}", stderr(&output));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
