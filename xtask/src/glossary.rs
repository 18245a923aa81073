//! `glossary`: fails when a public type's noun is not explained.
//!
//! The noun is the last word of the type's name: the ingress of `RingIngress`. The glossary
//! (docs/internals/glossary.md) or the documentation of the type's module must explain it, unless it is a plain word.
//! Names that end in a participle (`Started`) are descriptions and need no explanation. No word has two glossary rows.

use std::collections::BTreeSet;
use std::path::Path;

use syn::{Item, Visibility};

use crate::Findings;
use crate::files::{files_below, read};
use crate::modules::text_of;
use crate::source::whole_words;

/// The page with the glossary.
pub const GLOSSARY: &str = "docs/internals/glossary.md";
/// The glossary's heading on that page.
const HEADING: &str = "# Glossary";
/// Words with their usual meaning, one per line.
const PLAIN: &str = "xtask/plain-words.txt";

/// Crates that are not checked. The types of programs are not used by other crates. The types of the other crates in
/// this list are named after what they describe: netmap.h, protocol headers, file formats, and messages that the
/// control protocol's reference explains.
const APART: [&str; 11] =
    ["abi", "bench", "capi", "cli", "cni", "control", "harness", "pcap", "soak", "system-tests", "wire"];

/// Checks all crates below `root` except [`APART`].
pub fn run(root: &Path) -> Result<Findings, String> {
    let nouns = nouns(&read(root, GLOSSARY)?)?;
    let plain = read(root, PLAIN)?;
    let plain: BTreeSet<&str> = plain.lines().filter(|line| !line.starts_with('#')).map(str::trim).collect();
    let mut findings = twice(&nouns);
    for shown in files_below(root, "crates")? {
        let of = |name: &&str| shown.contains(&format!("/{name}/src/"));
        if !shown.ends_with(".rs") || !shown.contains("/src/") || APART.iter().any(of) {
            continue;
        }
        let text = read(root, &shown)?;
        let unknown = unexplained(&text, |noun| {
            plain.contains(noun) || nouns.iter().any(|known| known.rsplit(' ').next() == Some(noun))
        });
        let unknown = unknown.map_err(|e| format!("{shown}: {e}"))?;
        findings.extend(unknown.into_iter().map(|(name, noun)| {
            format!("{shown}: {name}: explain {noun} in the glossary ({GLOSSARY}) or in the module's documentation")
        }));
    }
    Ok(findings)
}

/// Returns the words that the glossary explains: the words in bold in its rows.
pub fn nouns(text: &str) -> Result<Vec<String>, String> {
    let rows = text.split_once(HEADING).ok_or(format!("{GLOSSARY} has no heading {HEADING:?}"))?.1;
    let rows = rows.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let bold = rows.filter_map(|row| row.strip_prefix("| **")?.split_once("**"));
    Ok(bold.flat_map(|(words, _)| words.split(", ")).map(str::to_lowercase).collect())
}

fn twice(nouns: &[String]) -> Findings {
    let mut seen = BTreeSet::new();
    let again = nouns.iter().filter(|noun| !seen.insert(noun.as_str()));
    again.map(|noun| format!("{GLOSSARY}: {noun} has two lines")).collect()
}

/// Returns the public types in a file whose noun is unknown, each with its noun.
fn unexplained(text: &str, known: impl Fn(&str) -> bool) -> Result<Vec<(String, String)>, syn::Error> {
    let file = syn::parse_file(text)?;
    let lines = file.attrs.iter().filter_map(|attribute| text_of(attribute, "doc"));
    let told = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    let public = file.items.iter().filter_map(|item| match item {
        Item::Struct(item) => Some((&item.vis, &item.ident)),
        Item::Enum(item) => Some((&item.vis, &item.ident)),
        Item::Trait(item) => Some((&item.vis, &item.ident)),
        Item::Type(item) => Some((&item.vis, &item.ident)),
        _ => None,
    });
    let names =
        public.filter(|(visibility, _)| matches!(visibility, Visibility::Public(_))).map(|(_, name)| name.to_string());
    let unknown = names.filter_map(|name| {
        let noun = noun(&name);
        let is_told =
            || [&name.to_lowercase(), &noun, &plural(&noun)].iter().any(|word| !whole_words(&told, word).is_empty());
        let describes = noun.ends_with("ed") || noun.ends_with("ing");
        (!describes && !known(&noun) && !known(&singular(&noun)) && !is_told()).then_some((name, noun))
    });
    Ok(unknown.collect())
}

/// Returns the last word of a type's name.
fn noun(name: &str) -> String {
    let start = name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(at, _)| at).next_back();
    name[start.unwrap_or(0)..].to_lowercase()
}

fn plural(noun: &str) -> String {
    format!("{noun}s")
}

fn singular(noun: &str) -> String {
    noun.strip_suffix('s').unwrap_or(noun).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A\n\n# Glossary\n\n| noun | what |\n|---|---|\n\
                        | **ring, slot** | x |\n| **wake set** | y |\n\n| **other** | z |\n";

    /// Objective: the words, including pairs of words, are taken from the first table below the heading.
    #[test]
    fn nouns_are_read() {
        assert_eq!(nouns(TEXT), Ok(["ring", "slot", "wake set"].map(str::to_owned).to_vec()));
        assert!(nouns("no heading").is_err());
        assert_eq!(twice(&["a".into(), "b".into(), "a".into()]), [format!("{GLOSSARY}: a has two lines")]);
    }

    /// Objective: public types are checked by their last word; nouns that the module explains, and private types, pass.
    #[test]
    fn nouns_need_an_explanation() {
        let text = "//! Gadgets turn.\n pub struct BigRing; pub enum Rings {} pub struct MyGadget; \
                    pub trait Widget {} pub enum Refused {} struct Hidden; pub(crate) struct Own;";
        let found = unexplained(text, |noun| noun == "ring").expect("Rust");
        assert_eq!(found, [("Widget".to_owned(), "widget".to_owned())]);
    }
}
