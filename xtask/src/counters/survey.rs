//! Walks the tree and collects the counted places.

use std::collections::BTreeMap;
use std::path::Path;

use super::tokens::{Scope, TokenLevel, levels};
use super::{kinds, names, tuples};
use crate::files::{files_below, read};
use crate::glossary;

/// Counters of statements that assign a tuple to a tuple: the first for shipped code, the second for other code.
const TUPLE_ASSIGNMENTS: [&str; 2] = ["tuple-assignments", "tuple-assignments-in-tests"];
/// Counters of parameters whose type is a tuple: the first for shipped code, the second for other code.
const TUPLE_PARAMETERS: [&str; 2] = ["tuple-parameters", "tuple-parameters-in-tests"];
/// Counter of lines over [`COLUMNS`].
pub const LONG_LINES: &str = "long-lines";
/// Counter of type names that several files define.
pub const SHARED_TYPE_NAMES: &str = "shared-type-names";
/// Counter of the words that the glossary explains.
const GLOSSARY_NOUNS: &str = "glossary-nouns";
/// Counter of files that name a kind of port.
const FILES_NAMING_KINDS: &str = "files-naming-kinds";

/// All counters of this module.
pub const COUNTED: [&str; 8] = [
    TUPLE_ASSIGNMENTS[0],
    TUPLE_ASSIGNMENTS[1],
    TUPLE_PARAMETERS[0],
    TUPLE_PARAMETERS[1],
    LONG_LINES,
    SHARED_TYPE_NAMES,
    GLOSSARY_NOUNS,
    FILES_NAMING_KINDS,
];

/// Maximum length of a line in characters, equal to rustfmt's `max_width`.
pub const COLUMNS: usize = 120;
/// Folders whose Rust files are counted.
const FOLDERS: [&str; 3] = ["crates", "xtask", "fuzz"];

/// A place in the tree that a counter counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedSite {
    /// Path below the workspace's root.
    pub file: String,
    /// Line number, counted from 1.
    pub line: usize,
    /// What is counted: a name, or the text of the line.
    pub what: String,
}

/// The counted places, by counter.
pub type Sites = BTreeMap<&'static str, Vec<CountedSite>>;

/// Finds the counted places of single files.
pub struct Surveyor {
    kinds: kinds::Kinds,
}

impl Surveyor {
    /// Creates a surveyor. Reads the names of the kinds of ports from the tree at `root`.
    pub fn new(root: &Path) -> Result<Self, String> {
        Ok(Self { kinds: kinds::Kinds::read(&read(root, kinds::LIST)?)? })
    }

    /// Adds the places of one file to `sites`.
    pub fn add(&self, file: &str, text: &str, sites: &mut Sites) -> Result<(), String> {
        if file == glossary::GLOSSARY {
            sites.entry(GLOSSARY_NOUNS).or_default().extend(nouns(text)?);
            return Ok(());
        }
        let all = read_levels(file, text, Scope::All)?;
        let shipped = if is_shipped(file) { read_levels(file, text, Scope::Shipped)? } else { Vec::new() };
        let mut page = SurveyPage { file, lines: text.lines().collect(), sites };
        page.put_long_lines();
        page.put_split(TUPLE_ASSIGNMENTS, &shipped, &all, tuples::assignments);
        page.put_split(TUPLE_PARAMETERS, &shipped, &all, tuples::parameters);
        for (line, name) in shipped.iter().flat_map(names::definitions) {
            page.put(SHARED_TYPE_NAMES, line, &name);
        }
        let mention = shipped.iter().filter_map(|level| self.kinds.mention(level)).min();
        if let Some(line) = mention.filter(|_| !self.kinds.may_be_named_in(file)) {
            page.put_line(FILES_NAMING_KINDS, line);
        }
        Ok(())
    }
}

/// A file, and the map that collects its places.
struct SurveyPage<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    sites: &'a mut Sites,
}

impl SurveyPage<'_> {
    fn put(&mut self, counter: &'static str, line: usize, what: &str) {
        let site = CountedSite { file: self.file.to_owned(), line, what: what.trim().to_owned() };
        self.sites.entry(counter).or_default().push(site);
    }

    fn put_line(&mut self, counter: &'static str, line: usize) {
        let text = self.lines.get(line - 1).copied().unwrap_or_default();
        self.put(counter, line, text);
    }

    fn put_long_lines(&mut self) {
        for line in 1..=self.lines.len() {
            if self.lines[line - 1].chars().count() > COLUMNS {
                self.put_line(LONG_LINES, line);
            }
        }
    }

    /// Counts the results of `find`: results in shipped code under the first counter, results in other code under the
    /// second.
    fn put_split(
        &mut self,
        counters: [&'static str; 2],
        shipped: &[TokenLevel],
        all: &[TokenLevel],
        find: fn(&TokenLevel) -> Vec<usize>,
    ) {
        let mut in_tests: Vec<usize> = all.iter().flat_map(find).collect();
        for line in shipped.iter().flat_map(find) {
            in_tests.iter().position(|other| *other == line).map(|at| in_tests.remove(at));
            self.put_line(counters[0], line);
        }
        in_tests.into_iter().for_each(|line| self.put_line(counters[1], line));
    }
}

/// Returns whether a file belongs to a crate's shipped code.
fn is_shipped(file: &str) -> bool {
    let Some((of, below)) = file.split_once("/src/") else { return false };
    let is_crate = of == "xtask" || of.starts_with("crates/");
    is_crate && below.split('/').all(|part| part != "tests" && part != "tests.rs")
}

fn read_levels(file: &str, text: &str, scope: Scope) -> Result<Vec<TokenLevel>, String> {
    levels(text, scope).map_err(|e| format!("{file}: {e}"))
}

fn nouns(text: &str) -> Result<Vec<CountedSite>, String> {
    let line_of = |noun: &str| text.lines().position(|line| is_row_of(line, noun)).map_or(1, |index| index + 1);
    let site = |noun: String| CountedSite { file: glossary::GLOSSARY.to_owned(), line: line_of(&noun), what: noun };
    Ok(glossary::nouns(text)?.into_iter().map(site).collect())
}

fn is_row_of(line: &str, noun: &str) -> bool {
    line.starts_with("| **") && line.to_lowercase().contains(noun)
}

/// Returns whether the file at this path is counted.
pub fn is_counted(file: &str) -> bool {
    let below = |folder: &&str| file.strip_prefix(*folder).is_some_and(|rest| rest.starts_with('/'));
    file == glossary::GLOSSARY || file.ends_with(".rs") && FOLDERS.iter().any(below)
}

/// Returns all counted places of the tree at `root`.
pub fn survey(root: &Path, surveyor: &Surveyor) -> Result<Sites, String> {
    let mut sites = COUNTED.iter().map(|counter| (*counter, Vec::new())).collect();
    surveyor.add(glossary::GLOSSARY, &read(root, glossary::GLOSSARY)?, &mut sites)?;
    for folder in FOLDERS {
        for file in files_below(root, folder)?.iter().filter(|file| file.ends_with(".rs")) {
            surveyor.add(file, &read(root, file)?, &mut sites)?;
        }
    }
    Ok(sites)
}

/// Returns the value of a counter that counts these places.
pub fn value(counter: &str, sites: &[CountedSite]) -> u64 {
    let count = if counter == SHARED_TYPE_NAMES { names::shared(sites).len() } else { sites.len() };
    count as u64
}
