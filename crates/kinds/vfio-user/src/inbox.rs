//! Received bytes that are not parsed yet. A client's writes that need no answer arrive in groups, and one read returns
//! a whole group.

use std::os::fd::OwnedFd;

use crate::ended::ConnectionEnd;
use crate::wire::{HEADER, MAX_FDS, MAX_MESSAGE, VfioHeader, VfioMessage};

/// Received bytes, and the descriptors that arrived with them.
#[derive(Default)]
pub struct SocketInbox {
    bytes: Vec<u8>,
    /// Number of bytes at the start of `bytes` that are parsed.
    seen: usize,
    /// Descriptors, each set with the offset in `bytes` of the message that carried it.
    fds: Vec<(usize, Vec<OwnedFd>)>,
}

impl SocketInbox {
    /// Returns whether all bytes are parsed and no part of a message is left.
    pub fn is_empty(&self) -> bool {
        self.seen == self.bytes.len()
    }

    /// Restores a predecessor's unparsed bytes. Returns `None` if the state is inconsistent: more bytes or descriptors
    /// than are ever read ahead, or descriptors without a message.
    pub fn restore(bytes: Vec<u8>, fds: Vec<(usize, Vec<OwnedFd>)>) -> Option<SocketInbox> {
        let this = SocketInbox { bytes, seen: 0, fds };
        let count = this.fds.iter().map(|(_, fds)| fds.len()).sum::<usize>();
        let fits = this.bytes.len() <= 2 * MAX_MESSAGE && count <= MAX_FDS;
        (fits && this.fds.iter().all(|(at, _)| *at < this.bytes.len())).then_some(this)
    }

    /// Appends the unparsed bytes to `bytes`. Returns the descriptors that arrived with the unparsed bytes, each set
    /// with the offset of its message.
    pub fn left<'a>(&'a self, bytes: &mut Vec<u8>) -> impl Iterator<Item = (usize, &'a Vec<OwnedFd>)> {
        bytes.extend_from_slice(self.bytes.get(self.seen..).unwrap_or_default());
        self.fds.iter().map(|(at, fds)| (at.saturating_sub(self.seen), fds))
    }

    /// Returns a buffer for `bytes` more bytes. After reading into it, the caller must call [`SocketInbox::came`].
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        self.bytes.drain(..self.seen);
        self.fds.iter_mut().for_each(|(at, _)| *at = at.saturating_sub(self.seen));
        self.seen = 0;
        let had = self.bytes.len();
        self.bytes.resize(had + bytes, 0);
        self.bytes.get_mut(had..).unwrap_or_default()
    }

    /// Records that a read filled the first `bytes` bytes of the buffer from [`SocketInbox::room`], which has `room`
    /// bytes, and returned `fds`. The kernel ends a read after bytes that carry descriptors, so `fds` belong to the
    /// last message of which the read returned the start.
    ///
    /// # Errors
    /// [`ConnectionEnd::Descriptors`] if too many descriptors arrived; [`ConnectionEnd::Length`] if the length in a
    /// header is out of range.
    pub fn came(&mut self, room: usize, bytes: usize, fds: Vec<OwnedFd>) -> Result<(), ConnectionEnd> {
        self.bytes.truncate(self.bytes.len() - room + bytes);
        if fds.is_empty() {
            return Ok(());
        }
        let count = fds.len() + self.fds.iter().map(|(_, fds)| fds.len()).sum::<usize>();
        let mut at = 0;
        while let Some(end) = self.end(at)?.filter(|end| *end < self.bytes.len()) {
            at = end;
        }
        self.fds.push((at, fds));
        if count > MAX_FDS { Err(ConnectionEnd::Descriptors) } else { Ok(()) }
    }

    /// Returns the offset of the end of the message that begins at offset `at`; `None` if the message's header is
    /// incomplete.
    fn end(&self, at: usize) -> Result<Option<usize>, ConnectionEnd> {
        let Some(header) = self.header(at) else { return Ok(None) };
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        if (HEADER..=MAX_MESSAGE).contains(&size) {
            Ok(Some(at + size))
        } else {
            Err(ConnectionEnd::Length(header.size))
        }
    }

    fn header(&self, at: usize) -> Option<VfioHeader> {
        self.bytes.get(at..)?.first_chunk::<HEADER>().map(VfioHeader::parse)
    }

    /// Takes the next message; returns `None` if it is incomplete.
    ///
    /// # Errors
    /// [`ConnectionEnd::Length`] if the length in the header is out of range.
    pub fn take(&mut self) -> Result<Option<VfioMessage>, ConnectionEnd> {
        let at = self.seen;
        let (Some(header), Some(end)) = (self.header(at), self.end(at)?) else { return Ok(None) };
        let Some(payload) = self.bytes.get(at + HEADER..end).map(<[u8]>::to_vec) else { return Ok(None) };
        self.seen = end;
        let own = self.fds.extract_if(.., |(of, _)| *of == at);
        let fds = own.flat_map(|(_, fds)| fds).collect();
        Ok(Some(VfioMessage { header, payload, fds }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn put(inbox: &mut SocketInbox, bytes: &[u8], fds: usize) -> Result<(), ConnectionEnd> {
        let fds = (0..fds).map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap()).collect();
        inbox.room(4096)[..bytes.len()].copy_from_slice(bytes);
        inbox.came(4096, bytes.len(), fds)
    }

    fn message(id: u16, payload: usize) -> Vec<u8> {
        VfioHeader { id, ..VfioHeader::default() }.question(&vec![id as u8; payload])
    }

    /// Objective: messages come out unchanged however the bytes are cut, each with the descriptors that arrived with
    /// its first bytes.
    #[test]
    fn messages_cut_anywhere_come_out_unchanged() {
        let counts = [0, 2, 0, 0, 1, 3, 0];
        let all: Vec<_> = (0u16..7).map(|i| message(i, usize::from(i) * 40)).collect();
        for cut in 1..200 {
            let mut inbox = SocketInbox::default();
            let mut got = 0;
            for (bytes, fds) in all.iter().zip(counts) {
                for (k, piece) in bytes.chunks(cut).enumerate() {
                    put(&mut inbox, piece, if k == 0 { fds } else { 0 }).unwrap();
                    // Parses only after some of the reads, so that several reads may precede a parse.
                    while cut % 3 != 0
                        && let Some(m) = inbox.take().unwrap()
                    {
                        assert_eq!(
                            (usize::from(m.header.id), m.payload.len(), m.fds.len()),
                            (got, got * 40, counts[got])
                        );
                        got += 1;
                    }
                }
            }
            while let Some(m) = inbox.take().unwrap() {
                assert_eq!((usize::from(m.header.id), m.fds.len()), (got, counts[got]), "{cut}");
                got += 1;
            }
            assert!(got == 7 && inbox.is_empty());
        }
    }

    /// Objective: lengths out of range and too many descriptors are refused.
    #[test]
    fn impossible_lengths_and_descriptors_are_refused() {
        let mut inbox = SocketInbox::default();
        put(&mut inbox, &[0xff; 16], 0).unwrap();
        assert!(matches!(inbox.take(), Err(ConnectionEnd::Length(u32::MAX))));
        let mut inbox = SocketInbox::default();
        assert!(matches!(put(&mut inbox, &message(1, 0), MAX_FDS + 1), Err(ConnectionEnd::Descriptors)));
    }
}
