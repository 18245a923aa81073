//! Tests of the comparison, and of the path from files and commits to findings.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::*;

const ATTACH: &str = "kinds! { Tap \"tap\" tap [Tap] }\n";

fn site(file: &str, line: usize, what: &str) -> CountedSite {
    CountedSite { file: file.into(), line, what: what.into() }
}

/// A small tree in its own folder, which is removed at the end.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("netvale-xtask-{name}-{}", std::process::id()));
        let tree = Self(root);
        tree.write(crate::glossary::GLOSSARY, "# Glossary\n\n| noun | what |\n|---|---|\n| **ring, slot** | x |\n");
        tree.write("crates/kinds/portspec/src/kinds/mod.rs", ATTACH);
        tree.write("xtask/src/main.rs", "fn main() {}\n");
        tree.write("fuzz/a.rs", "");
        for page in ["README.md", "CONTRIBUTING.md", "Makefile"] {
            tree.write(page, "");
        }
        tree
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn numbers(&self, tuples: u64) {
        let value = |name: &str| match name {
            "tuple-assignments" => tuples,
            "glossary-nouns" => 2,
            _ => 0,
        };
        let names = COUNTED.iter().chain(&times::LIMITS);
        self.write(FILE, &names.map(|name| format!("{name} = {}\n", value(name))).collect::<String>());
    }

    fn git(&self, arguments: &[&str]) {
        let who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let done = Command::new("git").args(who).args(arguments).current_dir(&self.0).output().expect("git");
        assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=x"]);
    }

    fn findings(&self) -> Findings {
        run(&self.0).expect("the check runs")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Objective: an equal number is no finding; a lower count must be recorded; a higher count is reported with its new
/// places.
#[test]
fn numbers_only_fall() {
    let sites = [site("a.rs", 1, "x"), site("a.rs", 2, "y")];
    assert_eq!(compare(survey::LONG_LINES, 2, &sites, None), None);
    let fell = compare(survey::LONG_LINES, 3, &sites, None).expect("a finding");
    assert!(fell.contains("fell from 3 to 2: write 2 in xtask/counters.toml"), "{fell}");
    let new = Sites::from([(survey::LONG_LINES, vec![site("a.rs", 2, "y")])]);
    let rose = compare(survey::LONG_LINES, 1, &sites, Some(&new)).expect("a finding");
    assert!(rose.contains("rose from 1 to 2") && rose.contains("new: a.rs:2: y") && !rose.contains("a.rs:1"), "{rose}");
    let rose = compare(survey::LONG_LINES, 1, &sites, None).expect("a finding");
    assert!(rose.contains("a.rs: 2 of them"), "{rose}");
}

/// Objective: only names that two files define are counted and shown.
#[test]
fn shared_names_are_shown() {
    let sites = [site("a.rs", 1, "A"), site("b.rs", 2, "A"), site("b.rs", 3, "B")];
    let new = Sites::from([(SHARED_TYPE_NAMES, sites[1..].to_vec())]);
    assert_eq!(compare(SHARED_TYPE_NAMES, 1, &sites, Some(&new)), None);
    let rose = compare(SHARED_TYPE_NAMES, 0, &sites, Some(&new)).expect("a finding");
    assert!(rose.contains("new: b.rs:2: A") && !rose.contains(": B"), "{rose}");
}

/// Objective: places that were only moved, within a file or to another file, are not new; if there are now two equal
/// places instead of one, the second is new.
#[test]
fn moved_places_are_old() {
    let mut sites = vec![site("b.rs", 7, "x"), site("b.rs", 9, "x"), site("b.rs", 10, "y")];
    remove_old(&mut sites, &[site("a.rs", 1, "x"), site("a.rs", 2, "z")]);
    assert_eq!(sites, [site("b.rs", 9, "x"), site("b.rs", 10, "y")]);
}

/// Objective: without git, the counts are compared with the file, and not with its history.
#[test]
fn without_git_the_tree_is_counted() {
    let tree = Tree::new("no-git");
    tree.numbers(0);
    assert_eq!(tree.findings(), Findings::new());
    tree.write("crates/x/src/a.rs", "fn f() {\n    let (a, b) = (1, 2);\n}\n");
    let found = tree.findings();
    assert!(found.len() == 1 && found[0].contains("tuple-assignments rose from 0 to 1"), "{found:?}");
}

/// Objective: a raised number is found both before and after its commit, and so are the places that raised a count.
#[test]
fn history_is_compared() {
    let tree = Tree::new("git");
    tree.git(&["init", "--quiet"]);
    for tuples in [1, 0] {
        tree.numbers(tuples);
        tree.commit();
    }
    assert_eq!(tree.findings(), Findings::new());
    tree.write("crates/x/src/a.rs", "fn f() {\n    let (a, b) = (1, 2);\n}\n");
    let found = tree.findings();
    assert!(found.len() == 1 && found[0].contains("new: crates/x/src/a.rs:2: let (a, b) = (1, 2);"), "{found:?}");
    tree.commit();
    assert_eq!(tree.findings(), found);
    tree.numbers(1);
    let raised = tree.findings();
    assert!(raised.len() == 1 && raised[0].contains("raised from 0 (commit "), "{raised:?}");
    tree.commit();
    assert_eq!(tree.findings(), raised);
}

/// Objective: a shallow clone in which the commits with a lower number are missing passes the check.
#[test]
fn shallow_clones_pass() {
    let tree = Tree::new("whole");
    tree.write(FILE, "tuple-assignments = 0\n");
    tree.git(&["init", "--quiet"]);
    tree.commit();
    tree.write("crates/x/src/a.rs", "fn f() {\n    let (a, b) = (1, 2);\n}\n");
    tree.numbers(1);
    tree.commit();
    assert_eq!(tree.findings().len(), 1);
    let clone = Tree(tree.0.with_extension("shallow"));
    let from = format!("file://{}", tree.0.display());
    tree.git(&["clone", "--quiet", "--depth=1", &from, &clone.0.display().to_string()]);
    assert_eq!(clone.findings(), Findings::new());
}

/// Objective: a line has at most 120 columns, in characters; tests may name kinds and share names of types.
#[test]
fn a_line_has_at_most_120_columns() {
    let tree = Tree::new("lines");
    tree.numbers(0);
    let fits = format!("// {}\n", "ä".repeat(117));
    tree.write("crates/x/tests/a.rs", &format!("{fits}struct A; struct TapPort;"));
    tree.write("crates/y/src/tests.rs", &format!("{fits}struct A; struct TapPort;"));
    assert_eq!(tree.findings(), Findings::new());
    tree.write("crates/x/target/a.rs", &"x".repeat(200));
    tree.write("fuzz/a.rs", &fits.replace("// ", "//  "));
    let found = tree.findings();
    assert!(found.len() == 1 && found[0].contains("long-lines rose from 0 to 1"), "{found:?}");
}
