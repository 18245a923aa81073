//! Chunks: buffers of several frames, which are passed between the packet path and the thread that reads or writes the
//! file.

use std::time::Duration;

/// A frame in a chunk: its position, length and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkEntry {
    start: usize,
    pub(crate) len: usize,
    /// Length on the wire in bytes.
    pub(crate) orig_len: u32,
    /// For a replay, the send time since the start; for a capture, the arrival time since 1970.
    pub(crate) time: Duration,
}

/// A buffer of fixed size for several frames. It does not allocate after its creation.
///
/// The bytes are in a `Vec`, not a `Box`: pointers into them stay valid when the chunk is moved.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    used: usize,
    entries: Vec<ChunkEntry>,
    most: usize,
}

impl Chunk {
    /// Creates a chunk with room for `bytes` bytes in at most `frames` frames.
    pub(crate) fn new(bytes: usize, frames: usize) -> Self {
        Chunk { bytes: vec![0; bytes], used: 0, entries: Vec::with_capacity(frames), most: frames }
    }

    /// Size of the chunk in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a frame; the caller fills the returned bytes. `None` if the frame does not fit.
    pub(crate) fn add(&mut self, len: usize, orig_len: u32, time: Duration) -> Option<&mut [u8]> {
        if self.entries.len() == self.most {
            return None;
        }
        let place = self.bytes.get_mut(self.used..)?.get_mut(..len)?;
        self.entries.push(ChunkEntry { start: self.used, len, orig_len, time });
        self.used += len;
        Some(place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn frames(&self) -> usize {
        self.entries.len()
    }

    /// Returns frame `i`; `None` if the chunk has fewer frames.
    pub(crate) fn get(&self, i: usize) -> Option<(ChunkEntry, &[u8])> {
        let entry = *self.entries.get(i)?;
        Some((entry, self.bytes.get(entry.start..entry.start + entry.len)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ChunkEntry, &[u8])> {
        (0..self.entries.len()).map_while(|i| self.get(i))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.used = 0;
    }
}
