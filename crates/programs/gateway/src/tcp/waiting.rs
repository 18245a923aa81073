//! Bytes of a guest that the host's socket has not taken yet ([`WaitingBytes`]).

/// Bytes that are added at the end and removed from the beginning.
#[derive(Default, Debug)]
pub struct WaitingBytes {
    bytes: Vec<u8>,
    /// Number of bytes at the beginning that were removed. They stay in memory until they are more than half of the
    /// buffer, since moving the remaining bytes after each removal would cost more.
    gone: usize,
}

impl WaitingBytes {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    /// Returns whether no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes of memory that the buffer takes.
    pub fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes bytes from the beginning.
    pub fn remove(&mut self, count: usize) {
        self.gone += count;
        if self.is_empty() {
            *self = WaitingBytes::default();
        } else if self.gone > self.bytes.len() / 2 {
            self.bytes.drain(..self.gone);
            self.bytes.shrink_to(2 * self.bytes.len());
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_their_order_and_their_memory_goes() {
        let mut waiting = WaitingBytes::default();
        waiting.add(&(0..=255).cycle().take(10_000).collect::<Vec<u8>>());
        let mut got = Vec::new();
        while waiting.len() > 100 {
            got.extend_from_slice(&waiting.bytes()[..77]);
            waiting.remove(77);
            assert!(waiting.memory() <= 10_000);
        }
        assert!(waiting.memory() <= 1000);
        waiting.add(b"end");
        got.extend_from_slice(waiting.bytes());
        assert!(got.ends_with(b"end") && got.len() == 10_003);
        assert!(got[..10_000].iter().enumerate().all(|(at, byte)| at % 256 == usize::from(*byte)));
        waiting.remove(waiting.len());
        assert_eq!((waiting.is_empty(), waiting.memory()), (true, 0));
    }
}
