//! Splits a stream of bytes, which arrives in arbitrary pieces, into lines. Performs no I/O.

/// Maximum length of a request's line in bytes, without the newline.
pub const MAX_REQUEST_LINE: usize = 64 * 1024;
/// Maximum length in bytes of a line that root or the daemon's own user sends; their requests may carry a configuration
/// file.
pub const MAX_TRUSTED_LINE: usize = 4 << 20;

/// A line is too long. The stream becomes unreadable, since the start of the next message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line too long: expected at most {limit} bytes")]
pub struct LineTooLong {
    /// Maximum length of a line in bytes.
    pub limit: usize,
}

/// Cuts a stream into lines.
///
/// Holds at most one unfinished line and the bytes pushed since the last [`LineSplitter::next_line`].
///
/// ```
/// use netvale_control::framing::LineSplitter;
/// let mut lines = LineSplitter::new(80);
/// lines.push(b"one\ntw");
/// assert_eq!(lines.next_line(), Ok(Some(&b"one"[..])));
/// assert_eq!(lines.next_line(), Ok(None));
/// lines.push(b"o\n");
/// assert_eq!(lines.next_line(), Ok(Some(&b"two"[..])));
/// ```
#[derive(Clone, Debug)]
pub struct LineSplitter {
    bytes: Vec<u8>,
    /// Start of the first line not returned yet.
    start: usize,
    /// End of the bytes, from `start`, that are known to contain no newline.
    scanned: usize,
    limit: usize,
}

impl LineSplitter {
    /// Creates an empty splitter for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        LineSplitter { bytes: Vec::new(), start: 0, scanned: 0, limit }
    }

    /// Adds the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the bytes pushed but not returned yet.
    pub fn pending(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or(&[])
    }

    /// Returns the next whole line without its `\n`, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`LineTooLong`] as soon as a line exceeds the limit, and at every later call.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, LineTooLong> {
        let unread = self.bytes.get(self.scanned..).unwrap_or(&[]);
        let end = unread.iter().position(|&b| b == b'\n').map(|at| self.scanned + at);
        self.scanned = end.unwrap_or(self.bytes.len());
        if self.scanned - self.start > self.limit {
            return Err(LineTooLong { limit: self.limit });
        }
        let Some(end) = end else { return Ok(None) };
        let line = self.start..end;
        self.start = end + 1;
        self.scanned = self.start;
        Ok(self.bytes.get(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 8;

    /// Returns every line, and whether the stream ended in an error.
    fn read<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool) {
        let mut lines = LineSplitter::new(LIMIT);
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(chunk);
            loop {
                match lines.next_line() {
                    Ok(Some(line)) => out.push(line.to_vec()),
                    Ok(None) => break,
                    Err(_) => return (out, true),
                }
            }
        }
        (out, false)
    }

    proptest! {
        /// Objective: for any pieces, the splitter returns the same lines as a plain split, up to the first line that
        /// is too long.
        #[test]
        fn pieces_give_the_lines_of_a_plain_split(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>(), Just(b'x')], 0..60),
            size in 1..20usize,
        ) {
            let mut whole: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
            let long = whole.iter().position(|line| line.len() > LIMIT);
            whole.truncate(long.unwrap_or(whole.len() - 1));
            let (lines, failed) = read(bytes.chunks(size));
            prop_assert_eq!(lines, whole);
            prop_assert_eq!(failed, long.is_some());
        }
    }

    /// Objective: a line of exactly the limit passes; one byte more is an error, even before the newline arrives, and
    /// at each later call.
    #[test]
    fn a_line_beyond_the_limit_is_an_error() {
        assert_eq!(read([&b"12345678\n"[..]].into_iter()), (vec![b"12345678".to_vec()], false));
        let mut lines = LineSplitter::new(LIMIT);
        lines.push(b"123456789");
        assert_eq!(lines.next_line(), Err(LineTooLong { limit: LIMIT }));
        lines.push(b"\nshort\n");
        assert_eq!(lines.next_line(), Err(LineTooLong { limit: LIMIT }));
    }
}
