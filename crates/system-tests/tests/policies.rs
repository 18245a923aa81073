//! The scripts of `tests/policies`, one for each feature of ports: what they ask of netvale is written there.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// They measure, and start guests: one at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Seconds until `timeout` ends a script, and then until it kills it, if it has not cleaned up by then.
const LIMITS: [&str; 2] = ["300", "20"];
/// The exit code by which a script says that it cannot run here.
const SKIPPED: i32 = 77;

macro_rules! scripts {
    ($($name:ident)+) => {
        const NAMES: &[&str] = &[$(stringify!($name)),+];

        $(
            /// Objective: what the first lines of the script of that name say.
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )+
    };
}

scripts! { vlan security guard multicast rates filters links netem tlem transparency restart }

fn folder() -> PathBuf {
    netvale_system_tests::root().join("tests/policies")
}

/// Runs a script to its end. What it said is shown when it fails.
fn run(name: &str) {
    let _one = ONE.lock();
    let [limit, grace] = LIMITS;
    let mut command = Command::new("timeout");
    command.args(["-k", grace, limit]).arg(folder().join(format!("{name}.sh")));
    command.env("NETVALE", netvale_system_tests::netvale()).stdin(Stdio::null());
    let output = command.output().expect("timeout runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => print!("{said}"),
        Some(SKIPPED) => eprintln!("{}", said.lines().last().unwrap_or("skipped")),
        Some(124 | 137) => panic!("{name}.sh: over its limit of {limit} s\n{said}{errors}"),
        code => panic!("{name}.sh: exit code {code:?}\n{said}{errors}"),
    }
}

/// Objective: no script is left out.
#[test]
fn all_are_run() {
    let entries = std::fs::read_dir(folder()).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut scripts: Vec<_> = names.filter_map(|name| Some(name.strip_suffix(".sh")?.to_owned())).collect();
    scripts.retain(|name| name != "lib");
    scripts.sort_unstable();
    let mut known = NAMES.to_vec();
    known.sort_unstable();
    assert_eq!(scripts, known);
}
