//! Parses the lines of management commands, e.g. `port/setvlan 7 10`, as VDE does.

/// A command line, split into the command and its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdeCommand<'a> {
    /// The command's path, e.g. `port/setvlan`.
    pub path: &'a str,
    /// The rest of the line, trimmed: the arguments.
    pub rest: &'a str,
}

impl<'a> VdeCommand<'a> {
    /// Parses a line; `None` for an empty line or a comment.
    pub fn read(line: &'a str) -> Option<VdeCommand<'a>> {
        // A client written in C may send a string with the terminating NUL byte.
        let line = line.split('\0').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (path, rest) = line.split_at(end);
        Some(VdeCommand { path, rest: rest.trim() })
    }
}

/// Returns the number at the start of a text, or 0 if there is none, as atoi(3) does.
pub fn number(text: &str) -> i32 {
    leading(text).map_or(0, |(number, _)| number)
}

/// Parses two numbers, as scanf(3) does; `None` if the text has fewer numbers.
pub fn two_numbers(text: &str) -> Option<(i32, i32)> {
    let (first, rest) = leading(text)?;
    let (second, _) = leading(rest)?;
    Some((first, second))
}

/// Parses three numbers; `None` if the text has fewer numbers.
pub fn three_numbers(text: &str) -> Option<(i32, i32, i32)> {
    let (first, rest) = leading(text)?;
    let (second, third) = two_numbers(rest)?;
    Some((first, second, third))
}

/// Parses a number and the word after it; `None` if the number or the word is missing.
pub fn number_and_word(text: &str) -> Option<(i32, &str)> {
    let (number, rest) = leading(text)?;
    rest.split_whitespace().next().map(|word| (number, word))
}

/// Splits off the number at the start of a text; `None` if there is none.
fn leading(text: &str) -> Option<(i32, &str)> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let len = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if len == 0 {
        return None;
    }
    let (number, rest) = text.split_at(text.len() - digits.len() + len);
    // An overflowing number becomes the largest or smallest `i32`, which no port or VLAN has.
    Some((number.parse().unwrap_or(if number.starts_with('-') { i32::MIN } else { i32::MAX }), rest))
}

/// Splits a byte stream into lines. The bytes of one read may contain several lines, or only a part of a line.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Whether the current line is too long, so that bytes are skipped until its end.
    is_skipped: bool,
}

/// Maximum length of a line in bytes, without its newline.
const LONGEST: usize = 1023;

/// A line that a [`LineBuffer`] has split off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadLine {
    /// A line, without its newline.
    Whole(String),
    /// A line of more than 1023 bytes, whose text is discarded.
    TooLong,
}

impl LineBuffer {
    /// Adds bytes. Returns the lines that these bytes complete. A line that is too long is returned as soon as it
    /// exceeds the limit.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<ReadLine> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let is_end = piece.ends_with(b"\n");
            if !self.is_skipped {
                self.bytes.extend_from_slice(piece);
            }
            if !self.is_skipped && self.bytes.len() > LONGEST + 1 {
                self.is_skipped = true;
                self.bytes.clear();
                lines.push(ReadLine::TooLong);
            }
            if is_end {
                lines.extend((!self.is_skipped).then(|| self.line()));
                self.is_skipped = false;
            }
        }
        lines
    }

    /// Must be called at the end of the stream. Returns the last line if it has no newline; otherwise `None`.
    pub fn end(&mut self) -> Option<ReadLine> {
        (!self.bytes.is_empty()).then(|| self.line())
    }

    fn line(&mut self) -> ReadLine {
        let bytes = std::mem::take(&mut self.bytes);
        ReadLine::Whole(String::from_utf8_lossy(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Objective: a line is split into path and arguments at any white space; empty lines and comments are no commands.
    #[test]
    fn lines_are_commands() {
        let read = |line| VdeCommand::read(line).map(|command| (command.path, command.rest));
        assert_eq!(read("port/setvlan  7\t10 "), Some(("port/setvlan", "7\t10")));
        assert_eq!(read("  showinfo\r"), Some(("showinfo", "")));
        assert_eq!(read("showinfo\0rest"), Some(("showinfo", "")));
        for line in ["", " \t\r", "# port/create 1", "  #", "\0x"] {
            assert_eq!(read(line), None, "{line:?}");
        }
    }

    /// Objective: numbers are parsed as atoi(3) and scanf(3) do; numbers that are too large or too small become the
    /// largest or smallest value.
    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, expected) in [
            ("12", 12),
            (" 12abc", 12),
            ("-1", -1),
            ("+5", 5),
            ("x", 0),
            ("", 0),
            ("-", 0),
            ("99999999999", i32::MAX),
            ("-99999999999", i32::MIN),
        ] {
            assert_eq!(number(text), expected, "{text:?}");
        }
        assert_eq!(two_numbers("1  2"), Some((1, 2)));
        assert_eq!(two_numbers("1\t-2x"), Some((1, -2)));
        assert_eq!(two_numbers("1-2"), Some((1, -2)));
        for text in ["", "1", "1 x", "x 1"] {
            assert_eq!(two_numbers(text), None, "{text:?}");
        }
        assert_eq!((three_numbers("1 2 3"), three_numbers("1 2")), (Some((1, 2, 3)), None));
        assert_eq!((number_and_word("1 root x"), number_and_word("1 ")), (Some((1, "root")), None));
    }

    fn whole(text: &str) -> ReadLine {
        ReadLine::Whole(text.to_owned())
    }

    /// Objective: each line is returned once, whether one read has several lines or a line takes several reads.
    #[test]
    fn lines_in_any_pieces_are_each_read_once() {
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.push(b"a\nb\n\nc"), [whole("a"), whole("b"), whole("")]);
        assert_eq!(buffer.push(b"d"), []);
        assert_eq!(buffer.push(b"\n"), [whole("cd")]);
        assert_eq!(buffer.push(b"\xff\ne"), [whole("\u{fffd}")]);
        assert_eq!((buffer.end(), buffer.end()), (Some(whole("e")), None));
    }

    proptest! {
        /// Objective: arbitrary bytes yield the same lines, regardless of how reads divide the bytes.
        #[test]
        fn cuts_change_nothing(bytes in vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..3000), cut in 0..3000_usize) {
            let read = |pieces: &[&[u8]]| {
                let mut buffer = LineBuffer::default();
                let mut lines: Vec<ReadLine> = pieces.iter().flat_map(|piece| buffer.push(piece)).collect();
                lines.extend(buffer.end());
                lines
            };
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let lines = read(&[head, tail]);
            prop_assert_eq!(&lines, &read(&[&bytes]));
            for line in lines {
                if let ReadLine::Whole(line) = line {
                    let read = VdeCommand::read(&line);
                    prop_assert!(read.is_none_or(|command| !command.path.contains(char::is_whitespace)));
                }
            }
        }
    }

    /// Objective: a line that exceeds the limit uses no more memory, is reported once, and does not affect the line
    /// after it.
    #[test]
    fn a_line_that_is_too_long_is_skipped_whole() {
        let mut buffer = LineBuffer::default();
        assert_eq!(buffer.push(&[b'x'; LONGEST]), []);
        assert_eq!(buffer.push(b"\n"), [whole(&"x".repeat(LONGEST))]);
        assert_eq!(buffer.push(&[b'x'; LONGEST + 2]), [ReadLine::TooLong]);
        for _ in 0..100 {
            assert_eq!(buffer.push(&[b'x'; 1000]), []);
        }
        assert!(buffer.bytes.is_empty());
        assert_eq!(buffer.push(b"rest\nshowinfo\n"), [whole("showinfo")]);
    }
}
