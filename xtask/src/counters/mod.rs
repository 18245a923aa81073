//! `counters`: compares counts of places in the sources with numbers that may only fall. The numbers are in one file,
//! `xtask/counters.toml`.
//!
//! | counter | what counts |
//! |---|---|
//! | `tuple-assignments`, `…-in-tests` | assignments of a tuple to a tuple, `let (a, b) = (x, y);` ([`tuples`]) |
//! | `tuple-parameters`, `…-in-tests` | parameters of functions whose type is a tuple ([`tuples`]) |
//! | `long-lines` | lines over 120 columns |
//! | `shared-type-names` | names of types that two or more files define ([`names`]) |
//! | `glossary-nouns` | words that the glossary explains |
//! | `files-naming-kinds` | files outside the kinds' folders that name a kind of port ([`kinds`]) |
//! | `seconds-…` | the time limit of a tier of tests ([`crate::times`]) |
//!
//! All Rust files below `crates`, `xtask` and `fuzz` are read. Shipped code is the code in a crate's `src`, without
//! files and folders named `tests` and without items under `#[cfg(test)]`. A test module in a file of another name
//! counts as shipped. Names and kinds are counted only in shipped code; tuples are counted there and, as `…-in-tests`,
//! in all other code.
//!
//! A count must equal the number in the file: a higher count is a regression, and a lower count must be recorded so
//! that it stays. The numbers are also compared with all committed versions of the file, so that no number can be
//! raised.

mod git;
mod kinds;
mod names;
mod numbers;
mod survey;
pub mod tokens;
mod tuples;

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Findings, files, times};
use numbers::{CounterNumbers, FILE};
use survey::{COUNTED, CountedSite, SHARED_TYPE_NAMES, Sites, Surveyor};

/// Maximum number of places that a finding lists.
const SHOWN: usize = 5;
/// Maximum number of characters that are shown of a place's line.
const SHOWN_COLUMNS: usize = 80;

/// Compares the tree at `root` with the numbers in the file, and these numbers with their history. Returns the
/// differences.
pub fn run(root: &Path) -> Result<Findings, String> {
    let text = files::read(root, FILE)?;
    let (numbers, mut findings) = numbers::parse(&text);
    let known: Vec<&str> = COUNTED.into_iter().chain(times::LIMITS).collect();
    findings.extend(numbers::compare_names(&numbers, &known));
    findings.extend(compare_history(root, &numbers));
    let surveyor = Surveyor::new(root)?;
    let sites = survey::survey(root, &surveyor)?;
    let new = new_sites(root, &surveyor);
    findings.extend(sites.iter().filter_map(|(counter, sites)| {
        let written = *numbers.get(*counter)?;
        compare(counter, written, sites, new.as_ref())
    }));
    findings.extend(times::check(root, &numbers)?);
    println!("counters: {}", summary(&sites));
    Ok(findings)
}

fn summary(sites: &Sites) -> String {
    let one = |(counter, sites): (&&str, &Vec<CountedSite>)| {
        let value = survey::value(counter, sites);
        if *counter != SHARED_TYPE_NAMES {
            return format!("{counter} {value}");
        }
        let all = names::distinct(sites).max(1);
        format!("{counter} {value} ({} % of {all})", 100 * value / all as u64)
    };
    sites.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns findings for numbers that are higher than in a committed version of the file.
fn compare_history(root: &Path, numbers: &CounterNumbers) -> Findings {
    let Some(versions) = git::versions(root, FILE) else {
        println!("counters: not compared with earlier versions of {FILE}: there is no git repository, or no git");
        return Findings::new();
    };
    if git::is_shallow(root) {
        println!("counters: not compared with all earlier versions of {FILE}: this clone is shallow");
    }
    numbers::raised(numbers, &versions)
}

/// Compares a counter's number in the file with the count. Returns a message if they differ, otherwise `None`. `new`
/// are the places that were added since the number was written.
fn compare(counter: &str, written: u64, sites: &[CountedSite], new: Option<&Sites>) -> Option<String> {
    let value = survey::value(counter, sites);
    if value < written {
        return Some(format!("{counter} fell from {written} to {value}: write {value} in {FILE}, so that it stays"));
    }
    if value == written {
        return None;
    }
    let shared = names::shared(sites);
    let new = new.and_then(|new| new.get(counter)).into_iter().flatten();
    let new: Vec<&CountedSite> =
        new.filter(|s| counter != SHARED_TYPE_NAMES || shared.contains(s.what.as_str())).collect();
    let places = if new.is_empty() { most_of(sites) } else { shown(&new) };
    Some(format!(
        "{counter} rose from {written} to {value}, but may only fall: remove {} of these\n{places}",
        value - written
    ))
}

fn shown(new: &[&CountedSite]) -> String {
    let line = |site: &&CountedSite| {
        let text: String = site.what.chars().take(SHOWN_COLUMNS).collect();
        format!("  new: {}:{}: {text}", site.file, site.line)
    };
    let more = new.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("  and {more} more"));
    new.iter().take(SHOWN).map(line).chain(more).collect::<Vec<_>>().join("\n")
}

/// Returns a list of the files with the most places. It is shown if the new places are unknown.
fn most_of(sites: &[CountedSite]) -> String {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for site in sites {
        *files.entry(&site.file).or_default() += 1;
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, places)| std::cmp::Reverse(*places));
    let most = files.iter().take(SHOWN).map(|(file, places)| format!("  {file}: {places} of them"));
    most.collect::<Vec<_>>().join("\n")
}

/// Returns the places in files that have changed since the numbers were last written, except places that existed before
/// in any of these files. Returns `None` without git.
fn new_sites(root: &Path, surveyor: &Surveyor) -> Option<Sites> {
    let changes = git::GitChanges::since_change_of(root, FILE)?;
    let mut before = Sites::new();
    let mut now = Sites::new();
    for file in changes.files.iter().filter(|file| survey::is_counted(file)) {
        // A version that the lexer cannot parse has no places to compare.
        if let Some(text) = changes.before(root, file) {
            let _ = surveyor.add(file, &text, &mut before);
        }
        if let Ok(text) = std::fs::read_to_string(root.join(file)) {
            let _ = surveyor.add(file, &text, &mut now);
        }
    }
    for (counter, sites) in &mut now {
        remove_old(sites, before.get(counter).map_or(&[], Vec::as_slice));
    }
    Some(now)
}

/// Removes places that existed before: of the places with the same text, as many as `before` has.
fn remove_old(sites: &mut Vec<CountedSite>, before: &[CountedSite]) {
    let mut old: BTreeMap<&str, usize> = BTreeMap::new();
    for site in before {
        *old.entry(&site.what).or_default() += 1;
    }
    sites.retain(|site| match old.get_mut(site.what.as_str()) {
        Some(left) if *left > 0 => {
            *left -= 1;
            false
        }
        _ => true,
    });
}

#[cfg(test)]
mod tests;
