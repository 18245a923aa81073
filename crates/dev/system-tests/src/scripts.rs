//! Scripts of a folder below `tests`, one for each feature: what they ask of netvale is written there.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Seconds until `timeout` ends a script, and then until it kills it, if it has not cleaned up by then. One that
/// measures takes two or three minutes, and more where others compute and it tries again.
const LIMITS: [&str; 2] = ["600", "20"];
/// The exit code by which a script says that it cannot run here.
const SKIPPED: i32 = 77;
/// The line in the head of a script that needs the machine for itself, and of one that does not.
const MEASURES: [&str; 2] = ["# measures: no", "# measures: yes"];

fn folder(name: &str) -> PathBuf {
    crate::root().join("tests").join(name)
}

/// Runs a script to its end. What it said is shown when it fails.
///
/// # Panics
/// It fails.
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
        Some(124 | 137) => panic!("{name}.sh: over its limit of {limit} s\n{said}{errors}"),
        code => panic!("{name}.sh: exit code {code:?}\n{said}{errors}"),
    }
}

/// Makes sure that these are all scripts of the folder, but for those that others use, and that each says in its head
/// whether it measures.
///
/// # Panics
/// One is left out, or says something else.
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
            assert!(text.lines().any(|found| found == line), "{name}.sh does not say \"{line}\"");
        }
    }
}

/// A test for each script of a folder, and one that none is left out. Those that measure are in a module of that name,
/// whose tests have the machine for themselves.
#[macro_export]
macro_rules! scripts {
    ($folder:literal: $($name:ident)* ; measuring: $($alone:ident)*) => {
        $(
            /// Objective: what the first lines of the script of that name say.
            #[test]
            fn $name() {
                $crate::scripts::run($folder, stringify!($name));
            }
        )*

        mod measuring {
            $(
                /// Objective: what the first lines of the script of that name say.
                #[test]
                fn $alone() {
                    $crate::scripts::run($folder, stringify!($alone));
                }
            )*
        }

        /// Objective: no script is left out.
        #[test]
        fn all_are_run() {
            $crate::scripts::are_all($folder, [&[$(stringify!($name)),*], &[$(stringify!($alone)),*]]);
        }
    };
}
