//! The libraries that `netvale run` preloads, from the folder where this test was built.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use netvale_system_tests::programs;

use crate::common::stderr;
use crate::common::up::LIMIT;

/// Compiles a C program of crates/programs/capi/tests/c and links it to libnetmap.
pub fn compile(name: &str, into: &Path) -> PathBuf {
    let capi = netvale_system_tests::root().join("crates/programs/capi");
    let program = into.join(name);
    // Programs find the library by its installed name.
    let _ = std::os::unix::fs::symlink(programs().join("libnetmap.so"), into.join("libnetmap.so.0"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(capi.join("include"))
        .arg(capi.join("tests/c").join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(programs())
        .args(["-lnetmap", "-lpthread"])
        .arg(format!("-Wl,-rpath,{}", into.display()))
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", stderr(&output));
    program
}

/// Compiles a C program without linking it to netvale's library, which the test preloads.
pub fn compile_alone(source: &Path, program: &Path, libraries: &[&str]) {
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-D_FORTIFY_SOURCE=2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(netvale_system_tests::root().join("crates/programs/capi/include"))
        .arg(source)
        .arg("-o")
        .arg(program)
        .args(libraries)
        .output()
        .expect("the C compiler runs");
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Runs a command until it ends, within the limit.
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
