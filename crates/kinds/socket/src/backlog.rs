//! The backlog of a peer: accepted data that waits for room in the peer's socket. This data is the rest of a frame of
//! which a stream socket took only a part, or the later segments of a frame that is cut into segments.

/// Maximum size of a backlog in bytes: twice the longest frame.
const MOST: usize = 128 * 1024;

/// Data accepted for a peer, which is sent before any later frame.
#[derive(Debug)]
pub struct Backlog {
    bytes: Vec<u8>,
    /// End of each message in `bytes`, as an offset.
    ends: Vec<usize>,
    /// Offset of the first unsent byte in `bytes`.
    at: usize,
    /// Number of sent messages.
    sent: usize,
}

/// Maximum number of messages in a backlog.
const MESSAGES: usize = 2048;

impl Default for Backlog {
    fn default() -> Self {
        Backlog { bytes: Vec::with_capacity(MOST), ends: Vec::with_capacity(MESSAGES), at: 0, sent: 0 }
    }
}

impl Backlog {
    /// Returns whether the backlog is empty.
    pub fn is_empty(&self) -> bool {
        self.sent == self.ends.len()
    }

    /// Discards the whole backlog.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.at = 0;
        self.sent = 0;
    }

    /// Appends a message of `len` bytes, which `fill` writes. Returns false, without calling `fill`, if there is no
    /// room.
    pub fn add(&mut self, len: usize, fill: impl FnOnce(&mut Vec<u8>)) -> bool {
        if self.is_empty() {
            self.clear();
        }
        if self.bytes.len() + len > MOST || self.ends.len() == MESSAGES {
            return false;
        }
        fill(&mut self.bytes);
        self.ends.push(self.bytes.len());
        true
    }

    /// Returns the unsent part of the first message; `None` if the backlog is empty.
    pub fn front(&self) -> Option<&[u8]> {
        let end = *self.ends.get(self.sent)?;
        self.bytes.get(self.at..end)
    }

    /// Removes `bytes` sent bytes from the front. If `is_whole`, removes the whole first message.
    pub fn sent(&mut self, bytes: usize, is_whole: bool) {
        let Some(&end) = self.ends.get(self.sent) else { return };
        self.at = if is_whole { end } else { (self.at + bytes).min(end) };
        self.sent += usize::from(self.at == end);
    }

    /// Returns the unsent parts of all messages.
    pub fn messages(&self) -> Vec<Vec<u8>> {
        let begins = std::iter::once(&self.at).chain(self.ends.get(self.sent..).unwrap_or_default());
        let ends = self.ends.get(self.sent..).unwrap_or_default();
        let of = |(begin, end): (&usize, &usize)| self.bytes.get(*begin..*end).unwrap_or_default().to_vec();
        begins.zip(ends).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(messages: &[&[u8]]) -> Backlog {
        let mut backlog = Backlog::default();
        for message in messages {
            assert!(backlog.add(message.len(), |bytes| bytes.extend_from_slice(message)));
        }
        backlog
    }

    /// Objective: messages leave in order, in parts or whole; the state for a successor contains the unsent rest.
    #[test]
    fn in_order() {
        let mut backlog = with(&[b"abc", b"", b"de"]);
        assert_eq!(backlog.front(), Some(&b"abc"[..]));
        backlog.sent(2, false);
        assert_eq!(backlog.front(), Some(&b"c"[..]));
        assert_eq!(backlog.messages(), [&b"c"[..], b"", b"de"]);
        backlog.sent(1, false);
        assert_eq!(backlog.front(), Some(&b""[..]));
        backlog.sent(0, true);
        backlog.sent(1, true);
        assert!(backlog.is_empty() && backlog.front().is_none() && backlog.messages().is_empty());
        assert!(backlog.add(1, |bytes| bytes.push(1)));
        assert_eq!(backlog.messages(), [[1]]);
    }

    /// Objective: the backlog refuses messages beyond its limits.
    #[test]
    fn limits() {
        let mut backlog = with(&[&[1; MOST - 1]]);
        assert!(!backlog.add(2, |_| panic!("there is no room")));
        assert!(backlog.add(1, |bytes| bytes.push(2)));
        let mut many = Backlog::default();
        assert_eq!((0..MESSAGES + 5).filter(|_| many.add(0, |_| ())).count(), MESSAGES);
    }
}
