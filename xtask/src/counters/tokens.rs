//! Rust source as trees of tokens, level by level, with helper functions for the counters.
//!
//! The lexer is the one in proc-macro2, which treats comments, strings and lifetimes as the compiler does. The bodies
//! of macros are read like other code.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

/// The tokens of one level: the tokens between two brackets, or the tokens of a file outside all brackets.
pub struct TokenLevel {
    /// The tokens, without documentation. A bracketed group is one token here.
    pub tokens: Vec<TokenTree>,
    /// Whether the tokens are the members of an `impl` or a `trait`.
    pub members: bool,
}

/// The code to inspect.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All code.
    All,
    /// All code except items under `#[cfg(test)]`.
    Shipped,
}

/// Returns the levels of `text`, outer ones first; the error is the message of the lexer.
pub fn levels(text: &str, scope: Scope) -> Result<Vec<TokenLevel>, String> {
    let stream: TokenStream = text.parse().map_err(|e| format!("expected Rust source: {e}"))?;
    let mut levels = Vec::new();
    descend(stream, false, scope, &mut levels);
    Ok(levels)
}

fn descend(stream: TokenStream, members: bool, scope: Scope, levels: &mut Vec<TokenLevel>) {
    let mut tokens = without_attributes(stream, is_doc);
    if scope == Scope::Shipped {
        tokens = without_tests(tokens);
    }
    let groups: Vec<(Group, bool)> = (0..tokens.len())
        .filter_map(|at| match &tokens[at] {
            TokenTree::Group(group) => Some((group.clone(), has_members(&tokens[..at], group))),
            _ => None,
        })
        .collect();
    levels.push(TokenLevel { tokens, members });
    for (group, members) in groups {
        descend(group.stream(), members, scope, levels);
    }
}

/// Returns whether `group`, which follows `before` on its level, is the body of an `impl` or a `trait`.
fn has_members(before: &[TokenTree], group: &Group) -> bool {
    let ends = |token: &TokenTree| is_punct(token, ';') || is_group(token, Delimiter::Brace);
    let head = || before.iter().rev().take_while(|token| !ends(token));
    let has = |word| head().any(|token| is_word(token, word));
    group.delimiter() == Delimiter::Brace && (has("impl") || has("trait")) && !has("fn")
}

fn without_attributes(stream: TokenStream, unwanted: fn(&Group) -> bool) -> Vec<TokenTree> {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in stream {
        match &token {
            TokenTree::Group(group) if unwanted(group) && after_hash(&kept) => {
                while kept.last().is_some_and(|token| is_punct(token, '#') || is_punct(token, '!')) {
                    kept.pop();
                }
            }
            _ => kept.push(token),
        }
    }
    kept
}

fn after_hash(kept: &[TokenTree]) -> bool {
    match kept {
        [.., hash, mark] if is_punct(mark, '!') => is_punct(hash, '#'),
        [.., hash] => is_punct(hash, '#'),
        [] => false,
    }
}

/// Returns whether the group is `[doc = …]`.
fn is_doc(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Bracket && first.is_some_and(|token| is_word(&token, "doc"))
}

/// Returns whether the group is `[cfg(test)]`, or has `test` as one of several conjoined conditions.
fn is_test(group: &Group) -> bool {
    let words = group.to_string().replace(' ', "");
    words == "[cfg(test)]" || words.starts_with("[cfg(all(test,")
}

/// Removes each item under `#[cfg(test)]`, up to the end of the item's body or up to its semicolon.
fn without_tests(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let mut kept: Vec<TokenTree> = Vec::new();
    let mut skips = false;
    for token in tokens {
        let starts = matches!(&token, TokenTree::Group(group) if is_test(group)) && after_hash(&kept);
        if starts {
            kept.pop();
            skips = true;
        } else if !skips {
            kept.push(token);
        } else if is_punct(&token, ';') || is_group(&token, Delimiter::Brace) {
            skips = false;
        }
    }
    kept
}

/// Returns whether `token` is the identifier or keyword `word`.
pub fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

/// Returns whether `token` is the punctuation character `sign`.
pub fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Returns whether `token` is the punctuation character `sign` and not a part of a longer operator: `=`, but not the
/// first half of `==` or `=>`.
pub fn is_alone(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign && punct.spacing() == Spacing::Alone)
}

/// Returns whether `token` is a group in brackets of the kind `delimiter`.
pub fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

/// Returns whether `token` is a tuple: parentheses that contain a comma.
pub fn is_tuple(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            group.stream().into_iter().any(|token| is_punct(&token, ','))
        }
        _ => false,
    }
}

/// Returns the line of a token's first character, counted from 1.
pub fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, scope: Scope) -> Vec<String> {
        let levels = levels(text, scope).expect("tokens");
        let all = levels.iter().flat_map(|level| &level.tokens);
        all.filter(|token| matches!(token, TokenTree::Ident(_))).map(ToString::to_string).collect()
    }

    /// Objective: documentation, comments and the text of strings yield no tokens; lifetimes and the bodies of macros
    /// do.
    #[test]
    fn documentation_is_no_code() {
        let text = "//! a b\n#![doc = \"c\"]\n/// d\nfn e<'f>(g: &'f str) { h!(i \"j\") } // k";
        assert_eq!(words(text, Scope::All), ["fn", "e", "f", "g", "f", "str", "h", "i"]);
        assert!(levels("fn f( {", Scope::All).is_err());
    }

    /// Objective: items under `#[cfg(test)]` are removed from shipped code, and the code after them stays.
    #[test]
    fn tests_are_not_shipped() {
        let text = "#[cfg(test)] mod tests { a } #[cfg(test)] #[x] use b; c #[cfg(all(test, not(d)))] fn e() {} f";
        assert_eq!(words(text, Scope::Shipped), ["c", "f"]);
        assert_eq!(words("#[cfg(not(test))] mod a { b }", Scope::Shipped), ["mod", "a", "cfg", "not", "test", "b"]);
    }

    /// Objective: only the bodies of `impl` and `trait` have members; the body of a function that returns an `impl`
    /// does not.
    #[test]
    fn members_are_of_impl_and_trait() {
        let members = |text: &str| levels(text, Scope::All).expect("tokens").iter().any(|level| level.members);
        assert!(members("impl A for B { }") && members("struct A; pub trait C { }"));
        assert!(!members("fn f() -> impl A { }") && !members("impl_it! { }") && !members("mod a { }"));
    }
}
