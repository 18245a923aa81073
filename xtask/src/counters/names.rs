//! Names of types, and the number of files that define each name.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenTree;

use super::survey::CountedSite;
use super::tokens::TokenLevel;

/// Keywords that define a type.
const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "union", "type"];

/// Returns the types that a level of tokens defines, each with its line. An associated type does not count, because its
/// trait names it.
pub fn definitions(level: &TokenLevel) -> Vec<(usize, String)> {
    let pairs = level.tokens.windows(2).filter_map(|pair| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)] => Some((keyword.to_string(), name)),
        _ => None,
    });
    let defines = |keyword: &str| KEYWORDS.contains(&keyword) && !(keyword == "type" && level.members);
    let defined = pairs.filter(|(keyword, _)| defines(keyword));
    defined.map(|(_, name)| (name.span().start().line, name.to_string())).collect()
}

/// Returns the names that two or more files define.
pub fn shared(definitions: &[CountedSite]) -> BTreeSet<&str> {
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for site in definitions {
        files.entry(&site.what).or_default().insert(&site.file);
    }
    files.into_iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| name).collect()
}

/// Returns the number of different names.
pub fn distinct(definitions: &[CountedSite]) -> usize {
    definitions.iter().map(|site| site.what.as_str()).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::tokens::{Scope, levels};

    fn names(text: &str) -> Vec<String> {
        let levels = levels(text, Scope::Shipped).expect("tokens");
        levels.iter().flat_map(definitions).map(|(_, name)| name).collect()
    }

    /// Objective: every kind of type definition counts, even in a function or a module; members of traits, tests, uses
    /// of a name, strings and comments do not.
    #[test]
    fn definitions_count() {
        let text = "pub struct A<T>(T); enum B {} pub(crate) trait C { type X; } union D { a: u8 } type E = A<u8>;
                    mod m { fn f() { struct F; } } impl C for A<u8> { type X = u8; fn g() { type G = u8; } }";
        let mut found = names(text);
        found.sort();
        assert_eq!(found, ["A", "B", "C", "D", "E", "F", "G"]);
        for text in
            ["#[cfg(test)] mod t { struct A; }", "/// struct A;\nfn f() { g(\"struct A;\") } // enum B", "use a::B;"]
        {
            assert!(names(text).is_empty(), "{text}");
        }
    }

    /// Objective: a name is shared when two files define it, regardless of how often each file defines it.
    #[test]
    fn names_of_two_files_are_shared() {
        let site = |file: &str, what: &str| CountedSite { file: file.into(), line: 1, what: what.into() };
        let sites = [site("a", "A"), site("a", "A"), site("a", "B"), site("b", "B"), site("c", "B"), site("c", "C")];
        assert_eq!(shared(&sites).into_iter().collect::<Vec<_>>(), ["B"]);
        assert_eq!(distinct(&sites), 3);
    }
}
