//! `unsafe-gate`: restricts `unsafe` to listed files, and requires a comment at each use.
//!
//! Three rules over `crates/**/*.rs` and the crates' manifests:
//! 1. a file that uses `unsafe`, or allows the lint against it, is on the allow-list with a reason;
//! 2. each `unsafe` block, implementation, function, trait, extern block and attribute has a `// SAFETY:` comment (or a
//!    `# Safety` section of its doc comment) directly above;
//! 3. each crate inherits the workspace's lints.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Findings;
use crate::files::{entries, files_below, read};
use crate::source::{SourceFile, is_word, whole_words};

/// The allow-list: one file per line, its path and the reason.
const ALLOW_LIST: &str = "xtask/unsafe-allowed.txt";

/// Checks the workspace at `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let allow_list = read(root, ALLOW_LIST)?;
    let (allowed, mut findings) = parse_allow_list(&allow_list);
    let mut used = Vec::new();
    for name in files_below(root, "crates")? {
        if name.ends_with(".rs") {
            let source = SourceFile::split(&read(root, &name)?).map_err(|e| format!("{name}: {e}"))?;
            if uses_unsafe(&source) {
                used.push(name.clone());
            }
            findings.extend(uncommented(&name, &source));
        } else if name.ends_with("/Cargo.toml") && !inherits_lints(&read(root, &name)?) {
            findings.push(format!("{name}: add `[lints]` with `workspace = true`"));
        }
    }
    findings.extend(compare(&allowed, &used));
    Ok(findings)
}

/// Parses the allow-list into a map from path to reason. Lines without a reason are findings.
fn parse_allow_list(text: &str) -> (BTreeMap<&str, &str>, Findings) {
    let mut allowed = BTreeMap::new();
    let mut findings = Vec::new();
    for line in entries(text) {
        match line.split_once(char::is_whitespace) {
            Some((path, reason)) => drop(allowed.insert(path, reason.trim())),
            None => findings.push(format!("{ALLOW_LIST}: {line} has no reason; write it after the path")),
        }
    }
    (allowed, findings)
}

/// Returns findings for files that use `unsafe` but are not listed, and for files that are listed but do not use
/// `unsafe`.
fn compare(allowed: &BTreeMap<&str, &str>, used: &[String]) -> Findings {
    let unlisted = used.iter().filter(|name| !allowed.contains_key(name.as_str()));
    let unlisted = unlisted.map(|name| {
        format!(
            "{name} uses `unsafe` and is not in {ALLOW_LIST}. Prefer safe code (rustix, zerocopy, \
             netvale-mem); if there is none, keep it in one small module with `#![allow(unsafe_code)]` \
             at its top, and add a line to that list: {name} REASON"
        )
    });
    let stale = allowed.keys().filter(|path| !used.iter().any(|name| name == *path));
    let stale = stale.map(|path| format!("{ALLOW_LIST}: {path} uses no `unsafe`; remove its line"));
    unlisted.chain(stale).collect()
}

fn uses_unsafe(source: &SourceFile) -> bool {
    let lifts_lint = |line: &String| {
        let levels = ["allow(", "expect(", "warn("];
        !whole_words(line, "unsafe_code").is_empty() && levels.iter().any(|level| line.contains(level))
    };
    let keyword = |line: &String| !whole_words(line, "unsafe").is_empty();
    source.code.iter().any(|line| keyword(line) || lifts_lint(line))
}

/// Returns a finding for each use of `unsafe` in `source` that needs a safety comment but has none.
fn uncommented(name: &str, source: &SourceFile) -> Findings {
    let mut findings = Vec::new();
    for (index, line) in source.code.iter().enumerate() {
        for at in whole_words(line, "unsafe") {
            let rest = source.code.iter().skip(index + 1).map(String::as_str);
            let tail = line.split_at(at + "unsafe".len()).1;
            let what = classify(&std::iter::once(tail).chain(rest.take(3)).collect::<Vec<_>>().join(" "));
            if let Some(what) = what.filter(|_| !has_comment(source, index)) {
                findings.push(format!(
                    "{name}:{}: {what} without a `// SAFETY:` comment (or `# Safety` section) directly \
                     above; list there what makes it sound",
                    index + 1
                ));
            }
        }
    }
    findings
}

/// Returns what the `unsafe` before `tail` introduces; `None` if the `unsafe` is only part of a function pointer's
/// type.
fn classify(tail: &str) -> Option<&'static str> {
    let tail = tail.trim_start();
    let word: String = tail.chars().take_while(|&c| is_word(c)).collect();
    let after = tail.strip_prefix(word.as_str()).unwrap_or(tail).trim_start();
    match word.as_str() {
        "fn" if after.starts_with('(') => None,
        "fn" => Some("unsafe function"),
        "extern" if after.starts_with('{') => Some("unsafe extern block"),
        "extern" => classify(after),
        "impl" => Some("unsafe implementation"),
        "trait" => Some("unsafe trait"),
        "" if after.starts_with('(') => Some("unsafe attribute"),
        _ => Some("unsafe block"),
    }
}

/// Returns whether a safety comment is on line `index`, or above it in the same statement.
fn has_comment(source: &SourceFile, index: usize) -> bool {
    let lines = source.code.iter().zip(&source.comments).take(index + 1).rev();
    for (above, (code, comment)) in lines.enumerate() {
        let code = code.trim();
        let blank = code.is_empty() && comment.trim().is_empty();
        if above > 0 && (blank || ends_statement(code)) {
            return false;
        }
        if comment.contains("SAFETY:") || comment.contains("# Safety") {
            return true;
        }
    }
    false
}

fn ends_statement(code: &str) -> bool {
    code.ends_with([';', '{', '}']) || code.ends_with("},")
}

/// Returns whether a crate's manifest inherits the workspace's lints.
fn inherits_lints(manifest: &str) -> bool {
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        let key: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        if line.starts_with('[') {
            section = line;
        } else if (section == "[lints]" && key == "workspace=true") || key == "lints.workspace=true" {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Findings {
        uncommented("x.rs", &SourceFile::split(text).expect("tokens"))
    }

    /// Objective: a safety comment is accepted directly above, on the same line, above the statement or in the
    /// documentation.
    #[test]
    fn commented_unsafe_passes() {
        for text in [
            "// SAFETY: in range\nunsafe { p.read() }",
            "let x = unsafe { p.read() }; // SAFETY: in range",
            "// SAFETY: in range\nlet x =\n    unsafe { p.read() };",
            "/// Reads.\n///\n/// # Safety\n/// In range.\n#[inline]\npub unsafe fn f() {}",
            "// SAFETY: plain data\nunsafe impl Send for A {}",
            "type F = unsafe extern \"C\" fn(u32);",
            "type F = unsafe fn(u32);",
            "let unsafe_code = \"unsafe { }\"; // unsafe {",
        ] {
            assert_eq!(findings(text), Findings::new(), "{text}");
        }
    }

    /// Objective: an `unsafe` without a comment is reported with its line number.
    #[test]
    fn uncommented_unsafe_fails() {
        for (text, what) in [
            ("f();\nunsafe { g() }", "x.rs:2: unsafe block"),
            ("// SAFETY: a\n\nunsafe { g() }", "x.rs:3: unsafe block"),
            ("// SAFETY: a\nunsafe impl Send for A {}\nunsafe impl Sync for A {}", "x.rs:3: unsafe implementation"),
            ("/// Reads.\npub unsafe fn f() {}", "x.rs:2: unsafe function"),
            ("unsafe extern \"C\" fn f() {}", "x.rs:1: unsafe function"),
            ("unsafe extern \"C\" {\n}", "x.rs:1: unsafe extern block"),
            ("#[unsafe(no_mangle)]", "x.rs:1: unsafe attribute"),
            ("unsafe\n{ g() }", "x.rs:1: unsafe block"),
        ] {
            let found = findings(text);
            assert!(found.len() == 1 && found.iter().all(|f| f.starts_with(what)), "{text}: {found:?}");
        }
    }

    /// Objective: a file that uses `unsafe` or allows the lint against it must be in the list; a line for any other
    /// file is a finding, too.
    #[test]
    fn files_and_list_must_agree() {
        let (allowed, findings) = parse_allow_list("# list\ncrates/a.rs  maps memory\ncrates/b.rs\n");
        assert_eq!(allowed.get("crates/a.rs"), Some(&"maps memory"));
        assert!(findings.iter().any(|f| f.contains("crates/b.rs has no reason")), "{findings:?}");
        let findings = compare(&allowed, &["crates/c.rs".to_owned()]);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings.iter().any(|f| f.contains("add a line to that list: crates/c.rs REASON")));
        assert!(findings.iter().any(|f| f.contains("crates/a.rs uses no `unsafe`")));
    }

    /// Objective: a file counts as using `unsafe` if it has the keyword or allows the lint against it; a comment or
    /// `deny` does not count.
    #[test]
    fn use_is_keyword_or_lifted_lint() {
        for (text, expected) in [
            ("unsafe { }", true),
            ("#![allow(unsafe_code)]", true),
            ("#![deny(unsafe_code)]", false),
            ("// unsafe, allow(unsafe_code)", false),
        ] {
            assert_eq!(uses_unsafe(&SourceFile::split(text).expect("tokens")), expected, "{text}");
        }
    }

    /// Objective: only the two ways in which cargo inherits lints are accepted.
    #[test]
    fn lints_are_inherited() {
        for (manifest, expected) in [
            ("[package]\n[lints]\nworkspace = true\n[dependencies]", true),
            ("lints.workspace = true", true),
            ("[dependencies.lints]\nworkspace = true", false),
            ("[lints]\n[dependencies]\nworkspace = true", false),
        ] {
            assert_eq!(inherits_lints(manifest), expected, "{manifest}");
        }
    }
}
