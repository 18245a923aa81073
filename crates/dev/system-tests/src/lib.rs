//! Tests of the `netvale` program as it is shipped, and of the libraries that it puts before other programs: its
//! commands, unmodified programs, virtual machines. They are in `tests/`; what they share is in `tests/common`, what
//! runs inside guests in `tests/guest`.
//!
//! Cargo builds a package's programs for that package's tests only, and these are another package's. So each test
//! program has Cargo build them when it first needs them ([`programs`]): what is tested is never older than its
//! sources, also when a test is run alone or from a clean checkout. `scripts/test-system.sh` builds them once
//! beforehand ([`BUILD`]), and says so by `NETVALE_PROGRAMS`.

pub mod scripts;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What Cargo is told to build: as one, so that nothing is built twice with other features.
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

/// The folder with the programs and libraries under test, built first if need be, where the test itself was built and
/// in its profile.
///
/// # Panics
/// They cannot be built.
pub fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        if let Some(built) = std::env::var_os("NETVALE_PROGRAMS") {
            return built.into();
        }
        let own = std::env::current_exe().expect("the test has a file");
        // target/PROFILE/deps/TEST
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

/// The `netvale` program.
pub fn netvale() -> PathBuf {
    programs().join("netvale")
}

/// Copies it to where other users can start it.
///
/// # Panics
/// It cannot be copied.
pub fn copy_netvale(to: &Path) {
    copy_program("netvale", to);
}

/// Copies a program under test to where other users can start it. Another process does that: if this one had a
/// descriptor to write the copy, whatever another thread starts meanwhile would have it, too, and a file that somebody
/// may write cannot be run.
///
/// # Panics
/// It cannot be copied.
pub fn copy_program(name: &str, to: &Path) {
    let status = Command::new("cp").arg(programs().join(name)).arg(to).status();
    assert!(status.is_ok_and(|status| status.success()), "{name} cannot be copied to {}", to.display());
}

/// The top of the repository.
///
/// # Panics
/// It is gone.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").canonicalize().expect("the repository")
}
