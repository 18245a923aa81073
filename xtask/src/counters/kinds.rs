//! Files that name a kind of port, outside the folders that belong to the kinds.
//!
//! The kinds are the rows of the macro `kinds!`, read from its source. Code names a kind by
//! - a string that is a kind's name, or begins with it and a colon: `"vxlan"`, `"tap:{name}"`;
//! - a variant with a kind's name, of `AttachSpec` or of an enum whose name ends in `Kind`: `AttachSpec::VirtioPci`,
//!   `PortKind::Tap`;
//! - a type that begins with a kind's name and ends in `Port`, `Info` or `Spec`: `VxlanPort`, `PtnetInfo`.
//!
//! `"netmap:…"` does not count as a string, because in netmap's API the names of all ports begin with it. Kinds may be
//! named in tests, in code that only tests, checks, fuzzes or measures, in the folders of [`OWN`], and in folders with
//! a kind's name. The file with the table of kinds is always counted, as one file.

use proc_macro2::{Delimiter, TokenTree};

use super::tokens::{Scope, TokenLevel, is_punct, is_word, levels, line};

/// Path of the list of kinds.
pub const LIST: &str = "crates/kinds/portspec/src/kinds/mod.rs";
/// Name of the macro that has a row for each kind: `Tap(TapName) "tap" tap [Tap]`.
const MACRO: &str = "kinds";
/// Folders that belong to the kinds.
const OWN: [&str; 2] = ["ports", "kinds"];
/// The kind whose name is the same as the prefix of all port names in netmap's API.
const OF_THE_API: &str = "netmap";
/// Crates for tests and measurements.
const DEVELOPMENT: [&str; 4] = ["bench", "harness", "soak", "system-tests"];
/// Suffixes of types that belong to one kind.
const ENDS: [&str; 3] = ["Port", "Info", "Spec"];

/// The names of the kinds of ports.
pub struct Kinds {
    /// The names as users write them, such as `virtio-pci`.
    names: Vec<String>,
    /// The names of the enum variants, such as `VirtioPci`.
    variants: Vec<String>,
}

impl Kinds {
    /// Parses the kinds from the text of [`LIST`].
    pub fn read(text: &str) -> Result<Self, String> {
        let levels = levels(text, Scope::Shipped).map_err(|e| format!("{LIST}: {e}"))?;
        let names = levels.iter().find_map(|level| listed(&level.tokens)).unwrap_or_default();
        if names.is_empty() {
            return Err(format!(
                "{LIST}: expected the kinds' names in a macro {MACRO}!, found none; if the list has moved, change \
                 kinds::LIST in xtask"
            ));
        }
        let variants = names.iter().map(|name| camel(name)).collect();
        Ok(Self { names, variants })
    }

    /// Returns whether a file at this path may name kinds.
    pub fn may_be_named_in(&self, path: &str) -> bool {
        let Some(below) = path.strip_prefix("crates/") else { return true };
        // A crate may be in a folder with several crates, such as `core`, which is not part of the crate's name.
        let (of_crate, inside) = below.split_once("/src/").unwrap_or((below, ""));
        let own_crate = of_crate.rsplit('/').next().unwrap_or(of_crate);
        let is_own = |folder: &str| OWN.contains(&folder) || self.names.iter().any(|name| name == folder);
        let is_rig = below.ends_with("/fuzzing.rs");
        is_rig || DEVELOPMENT.contains(&own_crate) || [own_crate].into_iter().chain(inside.split('/')).any(is_own)
    }

    /// Returns the line of the first mention of a kind on a level; `None` if there is no mention.
    pub fn mention(&self, level: &TokenLevel) -> Option<usize> {
        let tokens = &level.tokens;
        let at = (0..tokens.len()).find(|&at| self.is_mention(&tokens[..=at]))?;
        Some(line(&tokens[at]))
    }

    /// Returns whether the last of these tokens, together with the tokens before it, names a kind.
    fn is_mention(&self, tokens: &[TokenTree]) -> bool {
        match tokens {
            [.., TokenTree::Literal(literal)] => self.is_name(&literal.to_string()),
            [.., TokenTree::Ident(of), colon, _, TokenTree::Ident(variant)] if is_punct(colon, ':') => {
                let of = of.to_string();
                let lists_kinds = of == "AttachSpec" || of.ends_with("Kind");
                lists_kinds && self.variants.contains(&variant.to_string()) || self.is_type(&variant.to_string())
            }
            [.., TokenTree::Ident(name)] => self.is_type(&name.to_string()),
            _ => false,
        }
    }

    /// Returns whether a literal, as written in the source, is a string that names a kind.
    fn is_name(&self, literal: &str) -> bool {
        let Some((_, text)) = literal.split_once('"') else { return false };
        self.names.iter().filter(|name| *name != OF_THE_API || !text.contains(':')).any(|name| {
            text.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with(':') || rest.starts_with('"'))
        })
    }

    fn is_type(&self, name: &str) -> bool {
        let of = |variant: &String| name.strip_prefix(variant.as_str()).is_some_and(|end| ENDS.contains(&end));
        self.variants.iter().any(of)
    }
}

/// Returns the words in the rows of the macro that lists the kinds, if this level calls the macro, otherwise `None`.
fn listed(tokens: &[TokenTree]) -> Option<Vec<String>> {
    let rows = tokens.windows(3).find_map(|tokens| match tokens {
        [name, bang, TokenTree::Group(rows)] if is_word(name, MACRO) && is_punct(bang, '!') => Some(rows.stream()),
        _ => None,
    })?;
    let rows: Vec<TokenTree> = rows.into_iter().collect();
    let words = rows.windows(3).filter_map(|tokens| match tokens {
        [TokenTree::Literal(word), TokenTree::Ident(_), TokenTree::Group(types)] => {
            (types.delimiter() == Delimiter::Bracket).then(|| word.to_string())
        }
        _ => None,
    });
    let words = words.filter_map(|text| Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned()));
    Some(words.filter(|word| !word.is_empty()).collect())
}

/// Converts a name such as `virtio-pci` to a variant's name, `VirtioPci`.
fn camel(name: &str) -> String {
    let mut starts = true;
    let mut camel = String::new();
    for c in name.chars() {
        match c {
            '-' => starts = true,
            c if std::mem::take(&mut starts) => camel.extend(c.to_uppercase()),
            c => camel.push(c),
        }
    }
    camel
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTACH: &str = "kinds! { /// A port.\n Local(LocalPort) \"\" local [Local] Local \"local\" \
        Tap(TapName) \"tap\" tap [Tap] Tap \"tap\"
        Netmap \"netmap\" netmap [Netmap] Nic \"nic\" VirtioPci \"virtio-pci\" virtio_pci [VirtioPci]
        E1000 \"e1000\" e1000 [E1000] opened: Pipe \"pipe\" }";

    fn mentions(text: &str) -> bool {
        let kinds = Kinds::read(ATTACH).expect("kinds");
        levels(text, Scope::Shipped).expect("tokens").iter().any(|level| kinds.mention(level).is_some())
    }

    /// Objective: the kinds are taken from the rows, except the row with the empty name; a source without the macro is
    /// an error.
    #[test]
    fn kinds_are_read_from_the_source() {
        let kinds = Kinds::read(ATTACH).expect("kinds");
        assert_eq!(kinds.names, ["tap", "netmap", "virtio-pci", "e1000"]);
        assert_eq!(kinds.variants, ["Tap", "Netmap", "VirtioPci", "E1000"]);
        assert!(Kinds::read("const A: u8 = 1;").is_err());
    }

    /// Objective: strings, variants and types that name a kind are found, even in macros.
    #[test]
    fn mentions_are_found() {
        for code in
            ["\"tap\"", "\"tap:{name}\"", "format!(\"e1000:{}\")", "AttachSpec::VirtioPci(a)", "PortKind::Netmap"]
        {
            assert!(mentions(&format!("fn f() {{ {code} }}")), "{code}");
        }
        assert!(mentions("use a::TapPort;") && mentions("struct E1000Info;") && mentions("b\"netmap\""));
    }

    /// Objective: similar words do not count, nor do comments, documentation and tests.
    #[test]
    fn others_are_no_mentions() {
        for code in
            ["\"taps\"", "\"a tap:\"", "\"netmap:vale0\"", "tap", "tap::open()", "Tap", "Other::Tap", "TapDevice"]
        {
            assert!(!mentions(&format!("fn f() {{ {code} }}")), "{code}");
        }
        assert!(!mentions("/// `\"tap:\"`\nfn f() {} // \"tap\""));
        assert!(!mentions("#[cfg(test)] mod tests { fn f() { \"tap\"; } }"));
    }

    /// Objective: files in the kinds' own folders, and in the folders of tests and tools, may name kinds.
    #[test]
    fn own_folders_may_name_kinds() {
        let kinds = Kinds::read(ATTACH).expect("kinds");
        for path in [
            "crates/daemon/src/ports/a.rs",
            "crates/tools/x/src/kinds/a.rs",
            "crates/kinds/tap/src/a.rs",
            "xtask/src/a.rs",
            "crates/dev/bench/src/a.rs",
        ] {
            assert!(kinds.may_be_named_in(path), "{path}");
        }
        for path in
            ["crates/kinds/portspec/src/attach.rs", "crates/tools/cli/src/tap.rs", "crates/daemon/src/bench/a.rs"]
        {
            assert!(!kinds.may_be_named_in(path), "{path}");
        }
    }
}
