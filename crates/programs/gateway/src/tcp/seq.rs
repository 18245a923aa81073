//! TCP sequence numbers (RFC 9293 §3.4), modulo 2^32 ([`TcpSeq`]).

/// A TCP sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSeq(pub u32);

impl TcpSeq {
    /// Returns the number `count` bytes later.
    #[must_use]
    pub fn plus(self, count: u32) -> Self {
        TcpSeq(self.0.wrapping_add(count))
    }

    /// Returns how many bytes this number is after `earlier`.
    pub fn since(self, earlier: TcpSeq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns whether this number is before `other`; both must be less than 2^31 bytes apart.
    pub fn is_before(self, other: TcpSeq) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Returns whether this number is after `other`; both must be less than 2^31 bytes apart.
    pub fn is_after(self, other: TcpSeq) -> bool {
        other.is_before(self)
    }

    /// Returns the later of the two numbers.
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
