//! `test-targets`: fails if a crate has more than one integration test program.
//!
//! Each such program is linked with all dependencies of the crate. A crate's tests must therefore be modules of one
//! program: `tests/it/main.rs`, or the only file in `tests`.

use std::fs;
use std::path::Path;

use crate::{Findings, files};

/// Checks the crates below `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let mut findings = Vec::new();
    for folder in files::crate_folders(root)? {
        let tests = format!("{folder}/tests");
        let targets = targets(&root.join(&tests));
        if targets.len() > 1 {
            let list = targets.join(", ");
            findings.push(format!("{tests}: expected one test program, found {list}: make them modules of tests/it"));
        }
    }
    Ok(findings)
}

/// Returns the programs that Cargo builds from a folder of tests.
fn targets(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_target = |path: &Path| path.join("main.rs").exists() || path.extension().is_some_and(|end| end == "rs");
    let paths = entries.filter(|path| is_target(path));
    let mut names: Vec<_> = paths.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: files, and folders with a main file, are programs; other folders are modules of these programs.
    #[test]
    fn programs_are_counted() {
        let root = std::env::temp_dir().join(format!("xtask-targets-{}", std::process::id()));
        let tests = root.join("crates/a/tests");
        fs::create_dir_all(tests.join("it")).unwrap();
        fs::write(root.join("crates/a/Cargo.toml"), "").unwrap();
        fs::create_dir_all(tests.join("data")).unwrap();
        fs::write(tests.join("it/main.rs"), "").unwrap();
        assert_eq!(run(&root), Ok(vec![]));
        fs::write(tests.join("more.rs"), "").unwrap();
        assert_eq!(targets(&tests), ["it", "more.rs"]);
        let findings = run(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert!(
            findings[0].starts_with("crates/a/tests: expected one test program, found it, more.rs"),
            "{findings:?}"
        );
    }
}
