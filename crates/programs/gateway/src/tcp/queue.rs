//! Bytes for a guest that it has not acknowledged yet, in the pieces in which they came.

use std::collections::VecDeque;

/// Pieces of one segment: a segment has no more, however small they are.
pub const MAX_PARTS: usize = 8;
/// Pieces up to this length are joined.
const SMALL: usize = 4096;

/// The bytes ([`UnackedQueue`]).
#[derive(Debug, Default)]
pub struct UnackedQueue {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that are acknowledged.
    start: usize,
    len: usize,
    memory: usize,
}

impl UnackedQueue {
    /// Bytes in the queue.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that it takes.
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

    /// How many of the `len` bytes at `at` lie in [`MAX_PARTS`] pieces.
    pub fn fitting(&self, at: usize, len: usize) -> usize {
        self.parts(at, len).map(<[u8]>::len).sum()
    }

    /// The pieces of the `len` bytes at `at`, at most [`MAX_PARTS`].
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
        /// Objective: whatever is pushed and dropped, the bytes at a place are those of a plain list.
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
