//! The libraries that `netvale run` preloads, from the folder where this test was built.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use netvale_system_tests::programs;

use crate::common::stderr;
use crate::common::up::Guarded;

/// Compiles a C program of crates/programs/capi/tests/c and links it to libnetmap.
pub fn compile(name: &str, into: &Path) -> PathBuf {
    let program = into.join(name);
    // Programs find the library by its installed name.
    let _ = std::os::unix::fs::symlink(programs().join("libnetmap.so"), into.join("libnetmap.so.0"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(netvale_system_tests::root().join("crates/programs/capi/include"))
        .arg(source(name))
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

/// Returns the path of the C program of that name, of crates/programs/capi/tests/c.
pub fn source(name: &str) -> PathBuf {
    netvale_system_tests::root().join(format!("crates/programs/capi/tests/c/{name}.c"))
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
    let output = Guarded::start(&mut command).output();
    assert!(output.status.code().is_some(), "{command:?} does not end: {}", stderr(&output));
    output
}
