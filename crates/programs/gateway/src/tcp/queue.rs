//! The queue of bytes that a guest has not acknowledged ([`UnackedQueue`]), in the pieces in which they were read.

use std::collections::VecDeque;

/// Maximum number of queue pieces from which one segment takes its bytes; it limits the number of parts of a frame.
pub const MAX_PARTS: usize = 8;
/// A piece is appended to the previous piece if the two together have at most this many bytes.
const SMALL: usize = 4096;

/// Bytes for a guest that are unsent or unacknowledged.
#[derive(Debug, Default)]
pub struct UnackedQueue {
    pieces: VecDeque<Vec<u8>>,
    /// Number of bytes of the first piece that the guest has acknowledged.
    start: usize,
    len: usize,
    memory: usize,
}

impl UnackedQueue {
    /// Returns the number of bytes in the queue.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of bytes of memory that the pieces take.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Appends bytes.
    pub fn push(&mut self, mut piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        self.len += piece.len();
        if let Some(last) = self.pieces.back_mut().filter(|last| last.len() + piece.len() <= SMALL) {
            self.memory -= last.capacity();
            last.extend_from_slice(&piece);
            self.memory += last.capacity();
            return;
        }
        if piece.len() < piece.capacity() / 2 {
            piece.shrink_to_fit();
        }
        self.memory += piece.capacity();
        self.pieces.push_back(piece);
    }

    /// Drops the first `count` bytes, which are acknowledged.
    pub fn drop_first(&mut self, count: usize) {
        let count = count.min(self.len);
        self.len -= count;
        self.start += count;
        while let Some(first) = self.pieces.front().filter(|first| first.len() <= self.start) {
            self.start -= first.len();
            self.memory -= first.capacity();
            self.pieces.pop_front();
        }
    }

    /// Returns how many of the `len` bytes from offset `at` fit into [`MAX_PARTS`] pieces.
    pub fn fitting(&self, at: usize, len: usize) -> usize {
        self.parts(at, len).map(<[u8]>::len).sum()
    }

    /// Returns the `len` bytes from offset `at`, as at most [`MAX_PARTS`] slices, one per piece.
    pub fn parts(&self, at: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let mut skip = self.start + at;
        let mut left = len.min(self.len.saturating_sub(at));
        let part = move |piece: &Vec<u8>| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let taken = left.min(piece.len() - skipped);
            left -= taken;
            skipped..skipped + taken
        };
        let ranges = self.pieces.iter().map(part);
        let parts = self.pieces.iter().zip(ranges).map(|(piece, range)| &piece[range]);
        parts.filter(|part| !part.is_empty()).take(MAX_PARTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_pieces_are_joined_and_memory_is_given_back() {
        let mut queue = UnackedQueue::default();
        for _ in 0..1000 {
            queue.push(b"abc".to_vec());
        }
        assert!(queue.pieces.len() <= 2 && queue.memory() >= 3000);
        queue.drop_first(5000);
        assert_eq!((queue.len(), queue.memory()), (0, 0));
    }

    proptest! {
        /// Objective: after any sequence of pushes and drops, the bytes at an offset equal the bytes at the same offset
        /// of a plain list.
        #[test]
        fn the_queue_is_the_bytes_that_were_pushed(
            steps in proptest::collection::vec((0usize..9000, 0usize..9000), 1..20), at in 0usize..4000,
        ) {
            let mut queue = UnackedQueue::default();
            let mut plain: Vec<u8> = Vec::new();
            let mut next = 0u8;
            for (pushed, dropped) in steps {
                let bytes: Vec<u8> = (0..pushed).map(|_| { next = next.wrapping_add(1); next }).collect();
                plain.extend_from_slice(&bytes);
                queue.push(bytes);
                queue.drop_first(dropped);
                plain.drain(..dropped.min(plain.len()));
                prop_assert_eq!(queue.len(), plain.len());
                let got: Vec<u8> = queue.parts(at, 5000).flatten().copied().collect();
                let end = plain.len().min(at + queue.fitting(at, 5000));
                prop_assert_eq!(&got[..], plain.get(at..end).unwrap_or_default());
                prop_assert!(got.len() == 5000.min(plain.len().saturating_sub(at)) || queue.pieces.len() >= MAX_PARTS);
            }
        }
    }
}
