//! `layers`: fails if a crate of the workspace uses another crate of the workspace although the layer table does not
//! allow it.
//!
//! Normal and build dependencies count. Development dependencies do not, because a test may drive a lower layer from a
//! higher one.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::Findings;
use crate::layer_table::{LAYERS, SIBLINGS, TABLE_FILE};

/// An edge of the crate graph, in short names: `.0` uses `.1`.
type CrateEdge = (String, String);

/// Reads `cargo metadata` of the workspace at `root` and checks its edges.
pub fn run(root: &Path) -> Result<Findings, String> {
    let metadata = cargo_metadata(root)?;
    let (crates, edges) = graph(&metadata)?;
    Ok(check(&crates, &edges))
}

fn cargo_metadata(root: &Path) -> Result<Value, String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

/// Returns the workspace's crates and the edges between them, from `cargo metadata --no-deps`.
fn graph(metadata: &Value) -> Result<(Vec<String>, Vec<CrateEdge>), String> {
    let packages = array(metadata, "packages")?;
    let mut short = BTreeMap::new();
    for package in packages {
        let name = text(package, "name")?;
        short.insert(name, short_name(name).to_owned());
    }
    let mut edges = Vec::new();
    for package in packages {
        let from = short_name(text(package, "name")?);
        for dependency in array(package, "dependencies")? {
            let development = dependency["kind"] == "dev";
            if let (false, Some(to)) = (development, short.get(text(dependency, "name")?)) {
                edges.push((from.to_owned(), to.clone()));
            }
        }
    }
    Ok((short.into_values().collect(), edges))
}

fn array<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>, String> {
    value[key].as_array().ok_or_else(|| format!("cargo metadata: expected a list {key:?}"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, String> {
    value[key].as_str().ok_or_else(|| format!("cargo metadata: expected a string {key:?}"))
}

fn short_name(package: &str) -> &str {
    match package {
        "netvale" => "client",
        other => other.strip_prefix("netvale-").unwrap_or(other),
    }
}

/// Returns a finding for each crate without a row, and for each edge that no row allows.
fn check(crates: &[String], edges: &[CrateEdge]) -> Findings {
    let without_row = crates.iter().filter(|name| allowed(name).is_none());
    let mut findings: Findings = without_row
        .map(|name| format!("crate {name} has no row in the layer table; add one in {TABLE_FILE}"))
        .collect();
    for (from, to) in edges {
        if let Some(row) = allowed(from).filter(|row| !row.contains(&to.as_str())) {
            findings.push(describe(from, to, &row));
        }
    }
    findings
}

fn allowed(name: &str) -> Option<Vec<&'static str>> {
    LAYERS.iter().find(|(row, _)| *row == name).map(|(_, uses)| uses.split_whitespace().collect())
}

fn describe(from: &str, to: &str, row: &[&str]) -> String {
    let rule = if SIBLINGS.contains(&from) && SIBLINGS.contains(&to) {
        format!("the siblings {} must not use one another", SIBLINGS.join(", "))
    } else if row.is_empty() {
        format!("{from} may not use any workspace crate")
    } else {
        format!("{from} may use only {}", row.join(", "))
    };
    format!("forbidden edge {from} → {to}: {rule} ({TABLE_FILE})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn edge(from: &str, to: &str) -> CrateEdge {
        (from.to_owned(), to.to_owned())
    }

    /// Returns metadata in cargo's format, reduced to the fields that the check reads.
    fn metadata() -> Value {
        json!({"packages": [
            {"name": "netvale-abi", "dependencies": []},
            {"name": "netvale-mem", "dependencies": [
                {"name": "netvale-abi", "kind": null},
                {"name": "netvale-daemon", "kind": "dev"},
                {"name": "libc", "kind": null}]},
            {"name": "netvale", "dependencies": [{"name": "netvale-mem", "kind": "build"}]},
            {"name": "netvale-daemon", "dependencies": [{"name": "netvale", "kind": null}]},
        ]})
    }

    /// Objective: the graph has only crates of the workspace, under short names, without development edges.
    #[test]
    fn graph_keeps_normal_and_build_edges_of_the_workspace() {
        let (crates, edges) = graph(&metadata()).unwrap_or_default();
        assert_eq!(crates, ["client", "abi", "daemon", "mem"]);
        assert_eq!(edges, [edge("mem", "abi"), edge("client", "mem"), edge("daemon", "client")]);
    }

    /// Objective: the only forbidden edge in the graph of [`metadata`] is reported with the rule that it violates.
    #[test]
    fn forbidden_edge_is_named() {
        let (crates, edges) = graph(&metadata()).unwrap_or_default();
        let findings = check(&crates, &edges);
        assert_eq!(findings.len(), 1, "{findings:?}");
        let start = "forbidden edge daemon → client: daemon may use only abi, mem";
        assert!(findings.iter().all(|f| f.starts_with(start)), "{findings:?}");
    }

    /// Objective: an edge between siblings is reported as an edge between siblings.
    #[test]
    fn sideways_edge_names_the_siblings() {
        let findings = check(&[], &[edge("tap", "switch")]);
        let rule = "the siblings switch, tap, pcapport";
        assert!(findings.iter().any(|f| f.contains(rule)), "{findings:?}");
    }

    /// Objective: a crate missing from the table is a finding, so that the table stays complete.
    #[test]
    fn unknown_crate_needs_a_row() {
        let findings = check(&["newcomer".to_owned()], &[]);
        assert!(findings.iter().any(|f| f.contains("crate newcomer has no row")), "{findings:?}");
    }

    /// Objective: in the table, the row of every used crate is above the rows of its users, so there is no cycle.
    #[test]
    fn table_is_ordered() {
        for (index, (name, uses)) in LAYERS.iter().enumerate() {
            for used in uses.split_whitespace() {
                let place = LAYERS.iter().position(|(row, _)| *row == used);
                assert!(place.is_some_and(|p| p < index), "{name} uses {used}");
            }
        }
    }

    /// Objective: the table has no edge between siblings.
    #[test]
    fn table_keeps_siblings_apart() {
        for (name, uses) in LAYERS.iter().filter(|(name, _)| SIBLINGS.contains(name)) {
            assert!(!uses.split_whitespace().any(|used| SIBLINGS.contains(&used)), "{name}");
        }
    }
}
