//! Runs the scripts of a folder below `tests`, one for each feature; each script lists its requirements.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Seconds until `timeout` ends a script, and further seconds until it kills a script that has not cleaned up. A script
/// that measures takes two or three minutes, and more if other work on the machine makes it repeat measurements.
const LIMITS: [&str; 2] = ["600", "20"];
/// The exit code of a script that cannot run here.
const SKIPPED: i32 = 77;
/// The header line of scripts that may run beside others, and the header line of scripts that need the machine for
/// themselves.
const MEASURES: [&str; 2] = ["# measures: no", "# measures: yes"];

fn folder(name: &str) -> PathBuf {
    crate::root().join("tests").join(name)
}

/// Runs the script `name` of the folder `of` until it ends, and shows its output if it fails.
///
/// # Panics
/// The script fails.
pub fn run(of: &str, name: &str) {
    let [limit, grace] = LIMITS;
    let mut command = Command::new("timeout");
    command.args(["-k", grace, limit]).arg(folder(of).join(format!("{name}.sh")));
    command.env("NETVALE", crate::netvale()).stdin(Stdio::null());
    let output = command.output().expect("timeout runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => print!("{said}"),
        Some(SKIPPED) => {
            let last = said.lines().last().unwrap_or_default();
            netvale_harness::skip(last.strip_prefix("skipped: ").unwrap_or(last));
        }
        Some(124 | 137) => panic!("{name}.sh: exceeded its limit of {limit} s\n{said}{errors}"),
        code => panic!("{name}.sh: exit code {code:?}\n{said}{errors}"),
    }
}

/// Checks that `names` are all scripts of the folder `of`, except for libraries, and that each has the header line that
/// states whether it measures.
///
/// # Panics
/// A script is missing, or its header line is wrong.
pub fn are_all(of: &str, names: [&[&str]; 2]) {
    let entries = std::fs::read_dir(folder(of)).expect("a folder");
    let found = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut scripts: Vec<_> = found.filter_map(|name| Some(name.strip_suffix(".sh")?.to_owned())).collect();
    scripts.retain(|name| name != "lib" && !name.ends_with("-lib"));
    scripts.sort_unstable();
    let mut known = names.concat();
    known.sort_unstable();
    assert_eq!(scripts, known);
    for (names, line) in names.into_iter().zip(MEASURES) {
        for name in names {
            let text = std::fs::read_to_string(folder(of).join(format!("{name}.sh"))).expect("a script");
            assert!(text.lines().any(|found| found == line), "{name}.sh lacks the line \"{line}\"");
        }
    }
}

/// Creates a test for each script of a folder, and a test that no script is missing. Tests of scripts that measure are
/// in a module `measuring`, whose tests have the machine for themselves.
#[macro_export]
macro_rules! scripts {
    ($folder:literal: $($name:ident)* ; measuring: $($alone:ident)*) => {
        $(
            /// Objective: see the first lines of the script with this test's name.
            #[test]
            fn $name() {
                $crate::scripts::run($folder, stringify!($name));
            }
        )*

        mod measuring {
            $(
                /// Objective: see the first lines of the script with this test's name.
                #[test]
                fn $alone() {
                    $crate::scripts::run($folder, stringify!($alone));
                }
            )*
        }

        /// Objective: every script of the folder has a test.
        #[test]
        fn all_are_run() {
            $crate::scripts::are_all($folder, [&[$(stringify!($name)),*], &[$(stringify!($alone)),*]]);
        }
    };
}
