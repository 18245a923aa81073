//! `module-tables`: every table of modules at the top of a file lists exactly the modules that the file declares.
//!
//! Each module must be in the table or, in backticks, in the text around it; test modules are skipped. Each name in the
//! table's first column must be a module declared in the file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use syn::{Attribute, Item};

use crate::Findings;
use crate::files::tracked_files;

/// Checks the Rust files that git tracks below `root`.
pub fn run(root: &Path) -> Result<Findings, String> {
    let mut findings = Vec::new();
    for name in tracked_files(root)?.iter().filter(|name| name.contains("/src/") && name.ends_with(".rs")) {
        let Ok(text) = fs::read_to_string(root.join(name)) else { continue };
        let prose: String =
            text.lines().filter_map(|line| line.strip_prefix("//!")).map(|l| format!("{l}\n")).collect();
        let rows = rows(&prose);
        if rows.is_empty() {
            continue;
        }
        let syntax = syn::parse_file(&text).map_err(|e| format!("{name}: {e}"))?;
        let declared = declared(&syntax.items);
        let named = quoted(&prose);
        for module in declared.difference(&named) {
            findings.push(format!("{name}: module {module} is missing in the table of modules; add a row"));
        }
        for row in rows.difference(&declared) {
            findings.push(format!("{name}: the table of modules has {row}, which is not a module of this file"));
        }
    }
    Ok(findings)
}

/// Returns the names in the first columns of tables whose first heading is "module".
fn rows(prose: &str) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    let mut is_modules = false;
    for line in prose.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", "module", ..] => is_modules = true,
            ["", first, _, ..] if is_modules => rows.extend(quoted(first)),
            _ => is_modules = false,
        }
    }
    rows
}

/// Returns the words in backticks, without the prefix `mod@` of a link.
fn quoted(text: &str) -> BTreeSet<String> {
    let words = text.split('`').skip(1).step_by(2);
    words.map(|word| word.rsplit('@').next().unwrap_or(word).to_owned()).collect()
}

/// Returns the declared modules, except tests.
fn declared(items: &[Item]) -> BTreeSet<String> {
    let modules = items.iter().filter_map(|item| match item {
        Item::Mod(module) if !module.attrs.iter().any(is_test) => Some(&module.ident),
        _ => None,
    });
    modules.map(|ident| ident.to_string().trim_start_matches("r#").to_owned()).collect()
}

/// Returns whether an attribute is a `cfg` that mentions `test`.
fn is_test(attribute: &Attribute) -> bool {
    let tokens = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
    attribute.path().is_ident("cfg") && tokens.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: missing rows and missing modules are found; test modules, other tables and prose are not taken for
    /// rows.
    #[test]
    fn tables_are_compared_with_modules() {
        let prose = " | module | what |\n |---|---|\n | [`a`], [`mod@b`] | `c` |\n\n | word | what |\n | `d` | |\n";
        assert_eq!(rows(prose), BTreeSet::from(["a", "b"].map(str::to_owned)));
        assert!(quoted(prose).contains("d") && quoted(prose).contains("c"));
        let file = "pub mod a;\nmod r#b { mod inner {} }\n#[cfg(test)]\nmod tests;\n#[cfg(any(test, loom))]\nmod more;";
        let items = syn::parse_file(file).unwrap().items;
        assert_eq!(declared(&items), BTreeSet::from(["a", "b"].map(str::to_owned)));
    }
}
