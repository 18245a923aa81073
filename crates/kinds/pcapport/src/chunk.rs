//! Frames back to back in one buffer, passed between the packet path and the thread that reads or writes the file.

use std::time::Duration;

/// A frame's position in its chunk, its length and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    start: usize,
    pub(crate) len: usize,
    /// Length on the wire in bytes.
    pub(crate) orig_len: u32,
    /// Replay: time to send it, since the start. Capture: time of arrival, since 1970.
    pub(crate) time: Duration,
}

/// A buffer of fixed size for several frames. It never allocates after its creation.
///
/// The bytes are in a `Vec`, not a `Box`: pointers into them stay valid when the chunk is moved.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    used: usize,
    entries: Vec<Entry>,
    most: usize,
}

impl Chunk {
    /// Creates a chunk with room for `bytes` bytes in at most `frames` frames.
    pub(crate) fn new(bytes: usize, frames: usize) -> Self {
        Chunk { bytes: vec![0; bytes], used: 0, entries: Vec::with_capacity(frames), most: frames }
    }

    /// Bytes that fit an empty chunk.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a frame; the caller fills the returned bytes. `None` if it does not fit.
    pub(crate) fn add(&mut self, len: usize, orig_len: u32, time: Duration) -> Option<&mut [u8]> {
        if self.entries.len() == self.most {
            return None;
        }
        let place = self.bytes.get_mut(self.used..)?.get_mut(..len)?;
        self.entries.push(Entry { start: self.used, len, orig_len, time });
        self.used += len;
        Some(place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn frames(&self) -> usize {
        self.entries.len()
    }

    /// Frame `i`.
    pub(crate) fn get(&self, i: usize) -> Option<(Entry, &[u8])> {
        let entry = *self.entries.get(i)?;
        Some((entry, self.bytes.get(entry.start..entry.start + entry.len)?))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Entry, &[u8])> {
        (0..self.entries.len()).map_while(|i| self.get(i))
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.used = 0;
    }
}
