//! Fields of the fixed-size messages.

use std::ops::Range;

use super::ATTACH_VERSION;

/// What every message begins with.
const MAGIC: Range<usize> = 0..4;
const VERSION: Range<usize> = 4..6;

/// Why bytes are not a message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Wrong length.
    #[error("attach message of {0} bytes: not netvale's protocol")]
    Length(usize),
    /// Wrong magic number.
    #[error("attach message without netvale's magic number")]
    Magic,
    /// Another version.
    #[error("attach protocol version {0}; this side speaks {ATTACH_VERSION}: use client and daemon of one release")]
    Version(u16),
    /// A name or text that is not NUL-terminated UTF-8.
    #[error("attach message with a name that is not text")]
    Text,
    /// A number outside its range.
    #[error("attach message with a bad {0}")]
    Field(&'static str),
}

pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn bytes<const N: usize>(&self, at: Range<usize>) -> [u8; N] {
        self.0.get(at).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    pub(crate) fn u16(&self, at: Range<usize>) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
    pub(crate) fn u32(&self, at: Range<usize>) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    pub(crate) fn u64(&self, at: Range<usize>) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
    pub(crate) fn text(&self, at: Range<usize>) -> Result<String, BadMessage> {
        let field = self.0.get(at).unwrap_or(&[]);
        let end = field.iter().position(|&b| b == 0).ok_or(BadMessage::Text)?;
        let text = field.get(..end).unwrap_or(&[]);
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| BadMessage::Text)
    }
    pub(crate) fn magic(&self) -> u32 {
        self.u32(MAGIC)
    }
    pub(crate) fn head(&self, len: usize, magic: u32) -> Result<(), BadMessage> {
        if self.0.len() != len {
            return Err(BadMessage::Length(self.0.len()));
        }
        if self.magic() != magic {
            return Err(BadMessage::Magic);
        }
        match self.u16(VERSION) {
            ATTACH_VERSION => Ok(()),
            other => Err(BadMessage::Version(other)),
        }
    }
}

pub(crate) struct Writer<'a>(pub(crate) &'a mut [u8]);

impl Writer<'_> {
    pub(crate) fn put(&mut self, at: Range<usize>, bytes: &[u8]) {
        if let Some(place) = self.0.get_mut(at.start..at.start + bytes.len()).filter(|_| bytes.len() <= at.len()) {
            place.copy_from_slice(bytes);
        }
    }
    pub(crate) fn u32(&mut self, at: Range<usize>, v: u32) {
        self.put(at, &v.to_le_bytes());
    }
    pub(crate) fn u64(&mut self, at: Range<usize>, v: u64) {
        self.put(at, &v.to_le_bytes());
    }
    pub(crate) fn head(&mut self, magic: u32) {
        self.u32(MAGIC, magic);
        self.put(VERSION, &ATTACH_VERSION.to_le_bytes());
    }
    /// Cuts at a character boundary so that a final NUL stays.
    pub(crate) fn text(&mut self, at: Range<usize>, text: &str) {
        let most = text.len().min(at.len() - 1);
        let end = (0..=most).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        self.put(at, &text.as_bytes()[..end]);
    }
}
