//! Sequence numbers (RFC 9293 §3.4), seq for short, which begin again after 2^32.

/// A sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSeq(pub u32);

impl TcpSeq {
    /// The number `count` bytes later.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        TcpSeq(self.0.wrapping_add(count))
    }

    /// How many bytes after `earlier` this is.
    pub fn since(self, earlier: TcpSeq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this comes before another number, of which it is less than 2^31 bytes away.
    pub fn is_before(self, other: TcpSeq) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Whether this comes after another number.
    pub fn is_after(self, other: TcpSeq) -> bool {
        other.is_before(self)
    }

    /// The later of both.
    #[must_use]
    pub fn later(self, other: TcpSeq) -> Self {
        if self.is_before(other) { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_across_their_end() {
        let last = TcpSeq(u32::MAX);
        let next = last.plus(2);
        assert_eq!((next, next.since(last)), (TcpSeq(1), 2));
        assert!(last.is_before(next) && next.is_after(last) && !last.is_before(last));
        assert_eq!((last.later(next), next.later(last)), (next, next));
    }
}
