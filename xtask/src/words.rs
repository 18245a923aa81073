//! `words`: fails if public text contains an idiom from the list, and prints a better word.
//!
//! Public text is pages and, for phrases of scope `all`, the comments, messages and help of the sources.

use std::fs;
use std::path::Path;

use crate::Findings;
use crate::files::{entries, read, tracked_files};
use crate::source::whole_words;

/// The list: `SCOPE | PHRASE | BETTER`, one phrase per line; `#` starts a comment. Scope `all` covers pages and
/// sources, `docs` only pages.
const PHRASES: &str = "xtask/phrases.txt";

/// A phrase of the list.
#[derive(Debug, PartialEq, Eq)]
struct Phrase<'a> {
    /// Whether sources are checked for the phrase, too.
    sources: bool,
    text: String,
    better: &'a str,
}

/// Checks the files that git tracks below `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let list = read(root, PHRASES)?;
    let phrases = parse(&list)?;
    let mut findings = Vec::new();
    for name in tracked_files(root)? {
        let page = name.ends_with(".md");
        let source = name.ends_with(".rs");
        // This file's tests contain phrases.
        if !(page || source) || name == "xtask/src/words.rs" {
            continue;
        }
        if let Ok(text) = fs::read_to_string(root.join(&name)) {
            let looked_for = phrases.iter().filter(|phrase| page || phrase.sources);
            findings.extend(looked_for.flat_map(|phrase| scan(&name, &text, phrase)));
        }
    }
    Ok(findings)
}

fn parse(list: &str) -> Result<Vec<Phrase<'_>>, String> {
    entries(list).map(phrase).collect()
}

fn phrase(line: &str) -> Result<Phrase<'_>, String> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    match fields.as_slice() {
        [scope @ ("all" | "docs"), text, better] if !text.is_empty() => {
            Ok(Phrase { sources: *scope == "all", text: text.to_lowercase(), better })
        }
        _ => Err(format!("{PHRASES}: expected SCOPE | PHRASE | BETTER, found {line:?}")),
    }
}

/// Returns findings for the phrase in a text. A phrase is found even if it is divided between two lines.
fn scan(name: &str, text: &str, phrase: &Phrase<'_>) -> Findings {
    let mut findings = Vec::new();
    let mut last = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = words_of(line);
        let both = format!("{last} {line}");
        // Matches within the previous line were already reported for that line.
        if whole_words(&both, &phrase.text).len() > whole_words(&last, &phrase.text).len() {
            findings.push(format!("{name}:{}: {:?}: better {}", index + 1, phrase.text, phrase.better));
        }
        last = line;
    }
    findings
}

/// Returns a line in lower case, without the characters that mark a comment, a quotation or a heading at its start.
fn words_of(line: &str) -> String {
    line.trim().trim_start_matches(['/', '!', '*', '>', '#']).trim().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: phrases are found as whole words, in upper or lower case and even across the end of a line, and the
    /// better word is printed.
    #[test]
    fn phrases_are_found() {
        let phrases = parse("# why\nall | left away | omitted\n").expect("a list");
        let [phrase] = phrases.as_slice() else { panic!("one phrase") };
        let text = "/// Left away.\n/// Fields are left\n/// away here.\nleft awayish\n";
        let better = r#""left away": better omitted"#;
        assert_eq!(scan("a.rs", text, phrase), [format!("a.rs:1: {better}"), format!("a.rs:3: {better}")]);
    }

    /// Objective: a malformed line of the list is an error, not a phrase that never matches.
    #[test]
    fn lines_that_are_no_phrases_are_refused() {
        assert!(parse("everywhere | a | b\n").is_err());
        assert!(parse("all | a\n").is_err());
    }
}
