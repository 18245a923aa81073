//! `circles`: fails when modules of a crate import one another in a circle.
//!
//! At each level of a crate's module tree, sibling modules, each together with all modules below it, must not use one
//! another in a circle. A module and the contents of its own folder count as one module: a file that is divided into
//! parts may refer to its parts, and the parts may refer to the file. This does not apply to the root of a crate: its
//! own definitions (except re-exports) count as a further module.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::modules::{self, Module, ModulePath};
use crate::{Findings, files};

/// The list of permitted circles, with a reason for each.
const EXCEPTIONS: &str = "xtask/circles-allowed.txt";

/// For each module at one level, the modules that it uses.
type ModuleUses = BTreeMap<String, BTreeSet<String>>;

/// Checks all crates below `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let list = files::read(root, EXCEPTIONS)?;
    let mut allowed = parse(&list)?;
    let mut findings = Vec::new();
    for folder in files::crate_folders(root)? {
        let name = folder.rsplit('/').next().unwrap_or(&folder);
        let source = root.join(&folder).join("src/lib.rs");
        let modules = if source.exists() { modules::read(&source)? } else { Vec::new() };
        for (circle, round) in circles(&modules) {
            let circle = format!("{name}: {circle}");
            if !allowed.remove(circle.as_str()) {
                findings.push(format!("{circle} import one another in a circle: {round}"));
            }
        }
    }
    findings.extend(allowed.iter().map(|gone| format!("{EXCEPTIONS}: {gone} is no longer a circle; remove the line")));
    Ok(findings)
}

/// Parses lines of the form `crate: module, module — reason`.
fn parse(list: &str) -> Result<BTreeSet<&str>, String> {
    let reasonless = |line| format!("{EXCEPTIONS}: {line}: no reason");
    files::entries(list).map(|line| Ok(line.split_once(" — ").ok_or_else(|| reasonless(line))?.0)).collect()
}

/// Returns every group of modules that reach one another: the modules' names in order, and a shortest circle through
/// them.
fn circles(modules: &[Module]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let parents: BTreeSet<&[String]> = modules.iter().filter_map(|m| m.path.split_last().map(|(_, up)| up)).collect();
    for parent in parents {
        let uses = uses_at(modules, parent);
        for group in knots(&uses) {
            let names: Vec<String> = group.iter().map(|name| full_name(parent, name)).collect();
            let round = group.iter().filter_map(|from| way_back(&uses, from)).min_by_key(Vec::len).unwrap_or_default();
            found.push((names.join(", "), round.join(" → ")));
        }
    }
    found
}

/// Returns the shortest path from a module back to itself; `None` if there is no such path.
fn way_back<'a>(uses: &'a ModuleUses, from: &'a str) -> Option<Vec<&'a str>> {
    let mut ways = VecDeque::from([vec![from]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in uses.get(*way.last()?).into_iter().flatten() {
            if next == from {
                return Some(way.into_iter().chain([from]).collect());
            }
            if seen.insert(next) {
                ways.push_back(way.iter().copied().chain([next.as_str()]).collect());
            }
        }
    }
    None
}

fn full_name(parent: &[String], name: &str) -> String {
    parent.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("::")
}

/// Returns the uses among the modules directly below `parent`, including the crate's root as `crate`.
fn uses_at(modules: &[Module], parent: &[String]) -> ModuleUses {
    let mut uses = ModuleUses::new();
    for module in modules {
        let Some(from) = side(&module.path, parent) else { continue };
        for target in &module.uses {
            if let Some(to) = side(target, parent).filter(|to| *to != from) {
                uses.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    uses
}

/// Returns the module directly below `parent` that contains a path; `None` if there is no such module.
fn side(path: &ModulePath, parent: &[String]) -> Option<String> {
    match path.strip_prefix(parent)?.first() {
        Some(name) => Some(name.clone()),
        None if parent.is_empty() => Some("crate".to_owned()),
        None => None,
    }
}

/// Returns the groups of two or more modules in which each module reaches all others.
fn knots(uses: &ModuleUses) -> Vec<BTreeSet<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|name| (name.as_str(), reached(uses, name))).collect();
    let mut groups = Vec::new();
    let mut done = BTreeSet::new();
    for (name, there) in &reach {
        if !done.insert(*name) || !there.contains(name) {
            continue;
        }
        let back = |other: &&str| reach.get(*other).is_some_and(|r| r.contains(name));
        let group: BTreeSet<&str> = there.iter().copied().filter(back).collect();
        done.extend(&group);
        groups.push(group);
    }
    groups
}

fn reached<'a>(uses: &'a ModuleUses, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(name) = open.pop() {
        for next in uses.get(name).into_iter().flatten() {
            if found.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ModulePath {
        text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    fn module(name: &str, uses: &[&str]) -> Module {
        Module { path: path(name), uses: uses.iter().map(|name| path(name)).collect() }
    }

    fn both(pair: [&str; 2]) -> (String, String) {
        let [names, round] = pair.map(str::to_owned);
        (names, round)
    }

    /// Objective: at every level, the modules in a circle are named, and their siblings outside the circle are not.
    #[test]
    fn circles_are_found_on_each_level() {
        let modules = [
            module("", &["a"]),
            module("a", &["b"]),
            module("b", &["c"]),
            module("c", &["a"]),
            module("d", &["a", "d::x"]),
            module("d::x", &["d::y"]),
            module("d::y", &["d::x", "d"]),
        ];
        assert_eq!(circles(&modules), [["a, b, c", "a → b → c → a"], ["d::x, d::y", "x → y → x"]].map(both));
    }

    /// Objective: deeper modules count as a part of the module that contains them; a file and its parts count as one
    /// module.
    #[test]
    fn folders_count_whole() {
        let apart = [module("a", &["a::x"]), module("a::x", &["a", "b"]), module("b", &[])];
        assert!(circles(&apart).is_empty());
        let back = [module("a", &[]), module("a::x", &["b"]), module("b", &["a"])];
        assert_eq!(circles(&back), [["a, b", "a → b → a"]].map(both));
    }

    /// Objective: definitions in a crate's root count as a module, too.
    #[test]
    fn the_root_counts() {
        let root = [module("", &["a"]), module("a", &[""])];
        assert_eq!(circles(&root), [["a, crate", "a → crate → a"]].map(both));
    }

    /// Objective: an exception without a reason is refused.
    #[test]
    fn exceptions_have_reasons() {
        assert_eq!(parse("# x\n\na: b, c — because\n"), Ok(BTreeSet::from(["a: b, c"])));
        assert!(parse("a: b, c\n").is_err());
    }
}
