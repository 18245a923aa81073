//! Tests of the shipped `netvale` program and of the libraries that it preloads into other programs: its commands,
//! unmodified programs, virtual machines. The tests are in `tests/`, shared code in `tests/common`, and what runs
//! inside guests in `tests/guest`.
//!
//! Cargo builds a package's programs only for tests of the same package, and the programs under test belong to other
//! packages. Each test program therefore makes Cargo build them when it first needs them ([`programs`]), so that the
//! programs are never older than their sources, even if a test runs alone or in a clean checkout.
//! `scripts/test-system.sh` builds them once beforehand ([`BUILD`]), and sets `NETVALE_PROGRAMS`, so that the test
//! programs do not build them again.

pub mod scripts;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The arguments of Cargo. One invocation builds everything, so that nothing is built twice with different features.
pub const BUILD: [&str; 9] = [
    "build",
    "--package",
    "netvale-cli",
    "--package",
    "netvale-capi",
    "--package",
    "netvale-pcap",
    "--package",
    "netvale-cni",
];

/// Returns the folder with the programs and libraries under test: the folder in which Cargo built the test itself, with
/// the same profile. Builds them first if necessary.
///
/// # Panics
/// The programs cannot be built.
pub fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(built) = std::env::var_os("NETVALE_PROGRAMS") {
            return built.into();
        }
        let own = std::env::current_exe().expect("the test has a file");
        // The test's path is target/PROFILE/deps/TEST.
        let folder = own.ancestors().nth(2).expect("a folder of the profile").to_path_buf();
        let is_release = folder.file_name().is_some_and(|name| name == "release");
        let mut command = Command::new(env!("CARGO"));
        command.args(BUILD).arg("--quiet").args(["--profile", if is_release { "release" } else { "test" }]);
        command.arg("--target-dir").arg(folder.parent().expect("a target folder"));
        let output = command.current_dir(root()).stdin(Stdio::null()).output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    })
}

/// Returns the path of the `netvale` program.
pub fn netvale() -> PathBuf {
    programs().join("netvale")
}

/// Copies a program under test to where other users can start it. Another process makes the copy: if this process had
/// the file open for writing, programs that other threads start meanwhile would inherit the descriptor, and a file that
/// is open for writing cannot be executed.
///
/// # Panics
/// The program cannot be copied.
pub fn copy_program(name: &str, to: &Path) {
    let status = Command::new("cp").arg(programs().join(name)).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "{name} cannot be copied to {}", to.display());
}

/// Returns the root of the repository.
///
/// # Panics
/// The repository does not exist any more.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the repository")
}
