//! Checks the tables of kinds in the README and the reference, and each kind's page, against the kinds' definitions.

use std::collections::BTreeSet;
use std::path::Path;

use netvale_portspec::AttachSpec;
use netvale_portspec::kinds::SpecKind;

const README: &str = include_str!("../../../../../README.md");
const NAMES: &str = include_str!("../../../../../docs/reference/port-names.md");
/// The page with the reference's table, which is also the page of kinds without a page of their own.
const PAGE_OF_NAMES: &str = "reference/port-names.md";

/// Returns the rows of the table of ports.
fn rows(text: &str) -> Vec<&str> {
    let begins = |line: &&str| !line.starts_with("| port | what it is |");
    text.lines().skip_while(begins).skip(2).take_while(|line| line.starts_with("| ")).collect()
}

/// Returns the prefix of the kind's names; empty for local ports.
fn prefix(kind: &SpecKind) -> &'static str {
    AttachSpec::parse(kind.example).expect("an example").prefix()
}

/// Returns the row whose first cell has ports of this kind.
fn row_of<'a>(rows: &[&'a str], kind: &SpecKind, local: &str) -> Option<&'a str> {
    let written = if prefix(kind).is_empty() { local.to_owned() } else { format!("`{}:", prefix(kind)) };
    rows.iter().find(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&written))).copied()
}

/// Objective: the reference's table has exactly one row for each kind, with a link to its page.
#[test]
fn reference_has_each_kind() {
    let rows = rows(NAMES);
    for kind in SpecKind::ALL {
        let row = row_of(&rows, kind, "`NAME`").unwrap_or_else(|| panic!("no row for {kind}"));
        let name = kind.page.split_once('/').map_or(kind.page, |(_, name)| name);
        assert!(kind.page == PAGE_OF_NAMES || row.contains(name), "{kind}: {} is not linked in {row}", kind.page);
    }
    let first = rows.iter().filter_map(|row| row.split('|').nth(1));
    let named = first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(|name| name.split_once(':'));
    let named: BTreeSet<_> = named.map(|(word, _)| word).collect();
    let known: BTreeSet<_> = AttachSpec::PREFIXES.iter().copied().filter(|prefix| !prefix.is_empty()).collect();
    assert_eq!(named, known);
}

/// Objective: the README's table has each kind that has a page of its own.
#[test]
fn readme_has_each_kind() {
    let rows = rows(README);
    for kind in SpecKind::ALL.iter().filter(|kind| kind.page != PAGE_OF_NAMES) {
        assert!(row_of(&rows, kind, "`vale0:a`").is_some(), "no row for {kind}");
    }
}

/// Objective: each kind's page exists and shows a port of that kind.
#[test]
fn pages_are_there() {
    for kind in SpecKind::ALL {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(kind.page);
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{kind}: {}: {e}", file.display()));
        assert!(text.contains(&format!("{}:", prefix(kind))), "{kind}: {} has no such port", kind.page);
    }
}

/// Objective: the example patch that adds a kind applies to this tree.
#[test]
fn the_example_of_a_kind_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    if root.join("crates/kinds/portspec/src/kinds/looped.rs").exists() {
        return; // This is a tree with the patch applied.
    }
    let patch = std::fs::read_to_string(root.join("docs/internals/loop.patch")).expect("the patch");
    for file in patch.split("diff --git a/").skip(1).filter(|file| !file.contains("\nnew file")) {
        let name = file.split(' ').next().expect("a name");
        let text = std::fs::read_to_string(root.join(name)).expect(name);
        for hunk in file.split("\n@@ ").skip(1) {
            let before = hunk.lines().skip(1).filter_map(|line| line.strip_prefix([' ', '-']));
            let before = before.collect::<Vec<_>>().join("\n");
            assert!(text.contains(&before), "{name} lacks the context of the patch:\n{before}");
        }
    }
}
