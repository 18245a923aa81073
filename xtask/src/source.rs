//! Rust source split into code and comments, line by line.

use proc_macro2::{Span, TokenTree};

use crate::counters::tokens::{Scope, levels};

/// A source file in two views with the same lines and columns (in characters). Each view has blanks where the other
/// view has text, and the two views have blanks inside literals.
pub struct SourceFile {
    /// Code without comments and without the text of strings and characters.
    pub code: Vec<String>,
    /// Comments only, with their slashes.
    pub comments: Vec<String>,
}

impl SourceFile {
    /// Splits `text` into code and comments; the error is the message of the lexer.
    pub fn split(text: &str) -> Result<Self, String> {
        let mut comments: Vec<Vec<char>> = text.split('\n').map(|line| line.chars().collect()).collect();
        let mut code: Vec<Vec<char>> = comments.iter().map(|line| vec![' '; line.len()]).collect();
        let mut take = |span: Span, is_code: bool| {
            for line in span.start().line..=span.end().line {
                let whole = &mut comments[line - 1];
                let start = if line == span.start().line { span.start().column } else { 0 };
                let end = if line == span.end().line { span.end().column } else { whole.len() };
                for at in start..end {
                    let c = std::mem::replace(&mut whole[at], ' ');
                    code[line - 1][at] = if is_code { c } else { ' ' };
                }
            }
        };
        // Comments are no tokens, and the levels have no documentation, so what the tokens leave is comments.
        for token in levels(text, Scope::All)?.iter().flat_map(|level| &level.tokens) {
            match token {
                TokenTree::Group(group) => {
                    take(group.span_open(), true);
                    take(group.span_close(), true);
                }
                TokenTree::Literal(literal) => take(literal.span(), false),
                token => take(token.span(), true),
            }
        }
        let lines = |view: Vec<Vec<char>>| view.into_iter().map(String::from_iter).collect();
        Ok(Self { code: lines(code), comments: lines(comments) })
    }
}

/// Returns whether `c` may be part of a word (an identifier or a number).
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the byte positions of `word` in `line` as a whole word.
pub fn whole_words(line: &str, word: &str) -> Vec<usize> {
    let alone = |&(at, _): &(usize, &str)| {
        let (before, rest) = line.split_at(at);
        let after = rest.get(word.len()..).and_then(|r| r.chars().next());
        !before.chars().next_back().is_some_and(is_word) && !after.is_some_and(is_word)
    };
    line.match_indices(word).filter(alone).map(|(at, _)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        SourceFile::split(text).expect("tokens").code.join("\n")
    }

    /// Objective: comments of both kinds are blank in the code view, and at their columns in the comment view.
    #[test]
    fn comments_are_split_off() {
        let source = SourceFile::split("a // unsafe\nb /* x /* y\n */ */ c").expect("tokens");
        assert_eq!(source.code, ["a          ", "b          ", "       c"]);
        assert_eq!(source.comments, ["  // unsafe", "  /* x /* y", " */ */  "]);
    }

    /// Objective: text inside a string or a character literal neither counts as code nor starts a comment.
    #[test]
    fn literals_are_blank() {
        for literal in [
            r#""unsafe // \" unsafe""#,
            "r\"unsafe\\\"",
            "r#\"a \" unsafe\"#",
            "br##\"\"# unsafe\"##",
            "c\"unsafe\"",
            r"'\''",
            "'\"'",
        ] {
            let text = code(&format!("x({literal}) y"));
            assert!(text.starts_with("x(") && text.ends_with(") y"), "{literal}: {text:?}");
            assert!(!text.contains("unsafe") && !text.contains('"'), "{literal}: {text:?}");
        }
    }

    /// Objective: lifetimes and raw identifiers are code.
    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        for text in ["fn f<'a>(x: &'a str) {}", "r#type + bar", "'outer: loop {}"] {
            assert_eq!(code(text), text);
        }
    }

    /// Objective: a file that ends inside a literal or comment is refused.
    #[test]
    fn unterminated_text_is_refused() {
        for text in ["\"abc\\", "/* abc", "r##\"abc\"#", "'\\"] {
            assert!(SourceFile::split(text).is_err(), "{text}");
        }
    }

    /// Objective: only whole words are found.
    #[test]
    fn words_are_whole() {
        assert_eq!(whole_words("unsafe { not_unsafe; unsafe_code } unsafe", "unsafe"), [0, 35]);
    }
}
