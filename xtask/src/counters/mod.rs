//! `counters`: numbers that may only fall, in one file, `xtask/counters.toml`.
//!
//! | counter | what counts |
//! |---|---|
//! | `tuple-assignments`, `…-in-tests` | assignments of a tuple to a tuple, `let (a, b) = (x, y);` ([`tuples`]) |
//! | `tuple-parameters`, `…-in-tests` | parameters of functions whose type is a tuple ([`tuples`]) |
//! | `long-lines` | lines over 120 columns |
//! | `shared-type-names` | names of types that two or more files define ([`names`]) |
//! | `glossary-nouns` | words that the glossary explains |
//! | `files-naming-kinds` | files outside the kinds' folders that name a kind of port ([`kinds`]) |
//! | `seconds-…` | the most that a tier of tests may take ([`crate::times`]) |
//!
//! All Rust files below `crates`, `xtask` and `fuzz` are read. Shipped code is what lies in `src` of a crate, without
//! files and folders called `tests`, and without items under `#[cfg(test)]`. Names and kinds are counted there alone,
//! tuples there and in the rest (`…-in-tests`). A test module in a file of another name counts as shipped.
//!
//! What counts must be exactly what the file says: more is a step back, and less must be written down so that it stays.
//! The file's own numbers are compared with all that it has held before, so that nobody writes a higher one.

mod git;
mod kinds;
mod names;
mod numbers;
mod survey;
mod tokens;
mod tuples;

use std::collections::BTreeMap;
use std::path::Path;

use crate::Findings;
use crate::times;
use numbers::{FILE, Numbers};
use survey::{COUNTED, SHARED_TYPE_NAMES, Site, Sites, Surveyor};

/// Places that a finding names, at most.
const SHOWN: usize = 5;
/// Characters of a place's line that are shown.
const SHOWN_COLUMNS: usize = 80;

/// Compares the tree at `root`, and the history of its numbers, with the file.
pub fn run(root: &Path) -> Result<Findings, String> {
    let text = std::fs::read_to_string(root.join(FILE)).map_err(|e| format!("{FILE}: {e}"))?;
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
    let one = |(counter, sites): (&&str, &Vec<Site>)| {
        let value = survey::value(counter, sites);
        if *counter != SHARED_TYPE_NAMES {
            return format!("{counter} {value}");
        }
        let all = names::distinct(sites).max(1);
        format!("{counter} {value} ({} % of {all})", 100 * value / all as u64)
    };
    sites.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Findings for numbers that are higher than in a committed version of the file.
fn compare_history(root: &Path, numbers: &Numbers) -> Findings {
    let Some(versions) = git::versions(root, FILE) else {
        println!("counters: not compared with earlier versions of {FILE}: there is no git repository, or no git");
        return Findings::new();
    };
    if git::is_shallow(root) {
        println!("counters: not compared with all earlier versions of {FILE}: this clone is shallow");
    }
    numbers::raised(numbers, &versions)
}

/// What a counter's number, as it is written, says of what counts. `new` are the places that were not there before.
fn compare(counter: &str, written: u64, sites: &[Site], new: Option<&Sites>) -> Option<String> {
    let value = survey::value(counter, sites);
    if value < written {
        return Some(format!("{counter} fell from {written} to {value}: write {value} in {FILE}, so that it stays"));
    }
    if value == written {
        return None;
    }
    let shared = names::shared(sites);
    let new = new.and_then(|new| new.get(counter)).into_iter().flatten();
    let new: Vec<&Site> = new.filter(|s| counter != SHARED_TYPE_NAMES || shared.contains(s.what.as_str())).collect();
    let places = if new.is_empty() { most_of(sites) } else { shown(&new) };
    Some(format!(
        "{counter} rose from {written} to {value}, and may only fall: take {} out again\n{places}",
        value - written
    ))
}

fn shown(new: &[&Site]) -> String {
    let line = |site: &&Site| {
        let text: String = site.what.chars().take(SHOWN_COLUMNS).collect();
        format!("  new: {}:{}: {text}", site.file, site.line)
    };
    let more = new.len().checked_sub(SHOWN).filter(|more| *more > 0).map(|more| format!("  and {more} more"));
    new.iter().take(SHOWN).map(line).chain(more).collect::<Vec<_>>().join("\n")
}

/// The files with most places, where it is not known which places are new.
fn most_of(sites: &[Site]) -> String {
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for site in sites {
        *files.entry(&site.file).or_default() += 1;
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(_, places)| std::cmp::Reverse(*places));
    let most = files.iter().take(SHOWN).map(|(file, places)| format!("  {file}: {places} of them"));
    most.collect::<Vec<_>>().join("\n")
}

/// The places in files that have changed since the numbers were last written, without those that were there before, in
/// whichever of these files. `None` if git cannot say.
fn new_sites(root: &Path, surveyor: &Surveyor) -> Option<Sites> {
    let changes = git::Changes::since_change_of(root, FILE)?;
    let mut before = Sites::new();
    let mut now = Sites::new();
    for file in changes.files.iter().filter(|file| survey::is_counted(file)) {
        // A version that the lexer does not understand has no places to compare.
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

/// Takes as many places out of `sites` as `before` has with the same text.
fn remove_old(sites: &mut Vec<Site>, before: &[Site]) {
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
