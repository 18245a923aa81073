//! A command's words and numbers, as VDE reads them: `port/setvlan 7 10`.

/// A command and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdeCommand<'a> {
    /// Its path, e.g. `port/setvlan`.
    pub path: &'a str,
    /// The rest of the line.
    pub rest: &'a str,
}

impl<'a> VdeCommand<'a> {
    /// Reads a line; `None`: an empty one, or a comment.
    pub fn read(line: &'a str) -> Option<VdeCommand<'a>> {
        // A program may send a string with its NUL byte.
        let line = line.split('\0').next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        let (path, rest) = line.split_at(end);
        Some(VdeCommand { path, rest: rest.trim() })
    }
}

/// The number that a text begins with; 0 if it begins with none, as atoi(3) has it.
pub fn number(text: &str) -> i32 {
    leading(text).map_or(0, |(number, _)| number)
}

/// Two numbers, as scanf(3) reads them; `None` if there are fewer.
pub fn two_numbers(text: &str) -> Option<(i32, i32)> {
    let (first, rest) = leading(text)?;
    let (second, _) = leading(rest)?;
    Some((first, second))
}

/// Three numbers.
pub fn three_numbers(text: &str) -> Option<(i32, i32, i32)> {
    let (first, rest) = leading(text)?;
    let (second, third) = two_numbers(rest)?;
    Some((first, second, third))
}

/// A number and a word behind it.
pub fn number_and_word(text: &str) -> Option<(i32, &str)> {
    let (number, rest) = leading(text)?;
    rest.split_whitespace().next().map(|word| (number, word))
}

/// The number that a text begins with, and the rest.
fn leading(text: &str) -> Option<(i32, &str)> {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let len = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    if len == 0 {
        return None;
    }
    let (number, rest) = text.split_at(text.len() - digits.len() + len);
    // What is too large for a number is no number of anything.
    Some((number.parse().unwrap_or(if number.starts_with('-') { i32::MIN } else { i32::MAX }), rest))
}

/// Lines out of bytes that come in any pieces: several in one, or one in several.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// The rest of a line that is too long is skipped.
    is_skipped: bool,
}

/// Longest line.
const LONGEST: usize = 1023;

/// A line, as far as it can be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadLine {
    /// A line, without its end.
    Whole(String),
    /// One that was too long.
    TooLong,
}

impl LineBuffer {
    /// Adds bytes. Returns the lines that end in them.
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

    /// The last line, if it has no end.
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

    /// Objective: a line is a path and a rest, whatever blanks there are; an empty one and a comment are nothing.
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

    /// Objective: numbers are read as C's functions read them, and too large ones stay too large.
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

    /// Objective: several lines in one piece, and one line in several, are each read once.
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
        /// Objective: bytes of any kind are read as the same lines, wherever they are cut.
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

    /// Objective: a line without end takes no memory, is answered once, and does not swallow the next one.
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
