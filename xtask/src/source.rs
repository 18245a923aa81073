//! Rust source split into code and comments, line by line.
//!
//! A simple scan, not a parser: it recognizes line comments and nested block comments, plain, raw, byte and C strings,
//! and distinguishes character literals from lifetimes. That is enough to decide whether a keyword is code.

/// A source file in two views with the same lines and columns (in characters). Each view has blanks where the other
/// view has text, and the two views have blanks inside literals.
pub struct SourceFile {
    /// Code without comments and without the text of strings and characters.
    pub code: Vec<String>,
    /// Comments only, with their slashes.
    pub comments: Vec<String>,
}

impl SourceFile {
    /// Splits `text` into code and comments.
    pub fn split(text: &str) -> Self {
        let mut scan = Scan { chars: text.chars().collect(), at: 0, code: String::new(), comments: String::new() };
        while scan.at < scan.chars.len() {
            scan.step();
        }
        let lines = |view: &str| view.split('\n').map(str::to_owned).collect();
        Self { code: lines(&scan.code), comments: lines(&scan.comments) }
    }
}

/// The kind of a run of characters.
#[derive(Clone, Copy)]
enum RunKind {
    Code,
    Comment,
    Literal,
}

struct Scan {
    chars: Vec<char>,
    at: usize,
    code: String,
    comments: String,
}

impl Scan {
    /// Consumes one character of code, or one whole comment or literal.
    fn step(&mut self) {
        match (self.peek(0), self.peek(1)) {
            ('/', '/') => self.take(self.line_comment(), RunKind::Comment),
            ('/', '*') => self.take(self.block_comment(), RunKind::Comment),
            ('"', _) => self.take(self.quoted('"'), RunKind::Literal),
            ('\'', next) if next == '\\' || self.peek(2) == '\'' => self.take(self.quoted('\''), RunKind::Literal),
            ('r', '"' | '#') => match self.raw_string() {
                Some(length) => self.take(length, RunKind::Literal),
                None => self.take(1, RunKind::Code),
            },
            _ => self.take(1, RunKind::Code),
        }
    }

    /// Returns the character `ahead` positions after the current one; NUL past the end.
    fn peek(&self, ahead: usize) -> char {
        self.chars.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn remaining(&self) -> usize {
        self.chars.len() - self.at
    }

    /// Writes `length` characters to the view of `kind`, and blanks to the other; line feeds are written to both.
    fn take(&mut self, length: usize, kind: RunKind) {
        for &c in self.chars.iter().skip(self.at).take(length) {
            let (code, comment) = match (c, kind) {
                ('\n', _) => ('\n', '\n'),
                (c, RunKind::Code) => (c, ' '),
                (c, RunKind::Comment) => (' ', c),
                (_, RunKind::Literal) => (' ', ' '),
            };
            self.code.push(code);
            self.comments.push(comment);
        }
        self.at += length.max(1);
    }

    fn line_comment(&self) -> usize {
        (0..self.remaining()).find(|&n| self.peek(n) == '\n').unwrap_or(self.remaining())
    }

    fn block_comment(&self) -> usize {
        let mut depth = 1;
        let mut n = 2;
        while depth > 0 && n < self.remaining() {
            let step = match (self.peek(n), self.peek(n + 1)) {
                ('/', '*') => (1, 2),
                ('*', '/') => (-1, 2),
                _ => (0, 1),
            };
            depth += step.0;
            n += step.1;
        }
        n.min(self.remaining())
    }

    /// Returns the length of a literal that ends at the first `quote` without a backslash before it.
    fn quoted(&self, quote: char) -> usize {
        let mut n = 1;
        while n < self.remaining() && self.peek(n) != quote {
            n += if self.peek(n) == '\\' { 2 } else { 1 };
        }
        (n + 1).min(self.remaining())
    }

    /// Returns the length of the raw string that starts at this `r`, if one does.
    fn raw_string(&self) -> Option<usize> {
        if self.in_word() {
            return None;
        }
        let hashes = (1..self.remaining()).take_while(|&n| self.peek(n) == '#').count();
        if self.peek(1 + hashes) != '"' {
            return None;
        }
        let closes = |&n: &usize| self.peek(n) == '"' && (1..=hashes).all(|h| self.peek(n + h) == '#');
        let end = (2 + hashes..self.remaining()).find(closes);
        Some(end.map_or(self.remaining(), |n| n + 1 + hashes))
    }

    /// Returns whether the current `r` is part of a longer word, other than the prefixes `br` and `cr`.
    fn in_word(&self) -> bool {
        let before = |n: usize| self.at.checked_sub(n).and_then(|i| self.chars.get(i)).copied();
        let prefixed = matches!(before(1), Some('b' | 'c'));
        let neighbour = if prefixed { before(2) } else { before(1) };
        neighbour.is_some_and(is_word)
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
        SourceFile::split(text).code.join("\n")
    }

    /// Objective: comments of both kinds are blank in the code view, and at their columns in the comment view.
    #[test]
    fn comments_are_split_off() {
        let source = SourceFile::split("a // unsafe\nb /* x /* y\n */ */ c");
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

    /// Objective: a file that ends inside a literal or comment ends the scan, which neither hangs nor fails.
    #[test]
    fn unterminated_text_ends() {
        for text in ["\"abc\\", "/* abc", "r##\"abc\"#", "'\\", "// abc", ""] {
            assert_eq!(SourceFile::split(text).code.len(), 1, "{text}");
        }
    }

    /// Objective: only whole words are found.
    #[test]
    fn words_are_whole() {
        assert_eq!(whole_words("unsafe { not_unsafe; unsafe_code } unsafe", "unsafe"), [0, 35]);
    }
}
