//! `names`: fails if a tracked file contains a word from the list of forbidden words.
//!
//! The list has words that mark unfinished work. Such work belongs in the issue tracker and not in the tree.

use std::fs;
use std::path::Path;

use crate::Findings;
use crate::files::{entries, read, tracked_files};
use crate::source::whole_words;

/// The list: one word per line; `#` starts a comment.
const WORD_LIST: &str = "xtask/forbidden-words.txt";

/// Checks the files that git tracks below `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let list = read(root, WORD_LIST)?;
    let words: Vec<&str> = entries(&list).collect();
    let mut findings = Vec::new();
    for name in tracked_files(root)?.iter().filter(|name| *name != WORD_LIST) {
        // A file that is not text, or that was deleted without a commit, has no words.
        if let Ok(text) = fs::read_to_string(root.join(name)) {
            findings.extend(scan(name, &text, &words));
        }
    }
    Ok(findings)
}

fn scan(name: &str, text: &str, words: &[&str]) -> Findings {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| !whole_words(line, word).is_empty()) {
            findings.push(format!("{name}:{}: forbidden word {word} ({WORD_LIST})", index + 1));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: words are found only as whole words, and are reported with their line number.
    #[test]
    fn whole_words_are_found() {
        let words: Vec<_> = entries("# marks\nLATER # why\n\nBROKEN\n").collect();
        assert_eq!(words, ["LATER", "BROKEN"]);
        let findings = scan("a.rs", "fine\n// LATER: x\nLATERAL UNBROKEN later\n", &words);
        assert_eq!(findings, [format!("a.rs:2: forbidden word LATER ({WORD_LIST})")]);
    }
}
