//! The encoding of messages: a header of 16 bytes, followed by the fields of the command.

use std::os::fd::OwnedFd;

/// Size of the header in bytes.
pub const HEADER: usize = 16;
/// Maximum size in bytes of the data in one access to a region, which is announced to the client.
pub const MAX_DATA: usize = 64 * 1024;
/// Maximum size of a message in bytes: the largest access, or a version text.
pub const MAX_MESSAGE: usize = HEADER + 32 + MAX_DATA;
/// Maximum number of descriptors per message, which is announced to the client.
pub const MAX_FDS: usize = 64;

/// The commands.
#[expect(missing_docs, reason = "names and numbers of the specification")]
pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
}

const TYPE: u32 = 0xf;
const REPLY: u32 = 1;
/// Flag of a command: the client expects no answer.
pub const NO_REPLY: u32 = 1 << 4;
/// Flag of a reply: the command failed.
const ERROR: u32 = 1 << 5;

/// The header of every message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VfioHeader {
    /// Number of the message, chosen by the sender of the command and repeated in the reply.
    pub id: u16,
    /// The command.
    pub command: u16,
    /// Size of the whole message in bytes.
    pub size: u32,
    /// Flags: type of the message, whether the client expects a reply, whether the reply is an error.
    pub flags: u32,
    /// Error number; only valid in a reply that is an error.
    pub error: u32,
}

impl VfioHeader {
    /// Reads a header.
    pub fn parse(b: &[u8; HEADER]) -> VfioHeader {
        let mut r = WireReader(b);
        VfioHeader {
            id: r.u16().unwrap_or(0),
            command: r.u16().unwrap_or(0),
            size: r.u32().unwrap_or(0),
            flags: r.u32().unwrap_or(0),
            error: r.u32().unwrap_or(0),
        }
    }

    /// Returns whether the message is a command rather than a reply.
    pub fn is_command(&self) -> bool {
        self.flags & TYPE == 0
    }

    /// Returns whether the client expects an answer.
    pub fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// Returns the error number of a reply; 0 if the command succeeded.
    pub fn errno(&self) -> u32 {
        if self.flags & ERROR != 0 { self.error.max(1) } else { 0 }
    }

    /// Encodes a command with a payload; its header is this header with the right size.
    pub fn question(&self, payload: &[u8]) -> Vec<u8> {
        self.answer(self.flags, 0, payload)
    }

    /// Encodes the reply to the command with this header, with a payload.
    pub fn reply(&self, payload: &[u8]) -> Vec<u8> {
        self.answer(REPLY, 0, payload)
    }

    /// Encodes the reply to the command with this header, which failed with error number `errno`.
    pub fn failure(&self, errno: u32) -> Vec<u8> {
        self.answer(REPLY | ERROR, errno, &[])
    }

    fn answer(&self, flags: u32, error: u32, payload: &[u8]) -> Vec<u8> {
        let mut w = WireWriter(Vec::with_capacity(HEADER + payload.len()));
        w.u16(self.id).u16(self.command).u32((HEADER + payload.len()) as u32).u32(flags).u32(error);
        w.0.extend_from_slice(payload);
        w.0
    }
}

/// A message from the client.
#[derive(Debug)]
pub struct VfioMessage {
    /// The message's header.
    pub header: VfioHeader,
    /// The bytes after the header.
    pub payload: Vec<u8>,
    /// The descriptors that arrived with the message.
    pub fds: Vec<OwnedFd>,
}

/// Reads numbers from the front of bytes. Both sides run on one machine, so the protocol uses native byte order.
#[derive(Debug)]
pub struct WireReader<'a>(pub &'a [u8]);

impl<'a> WireReader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    /// Returns the next 16 bits; `None` if fewer are left.
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    /// Returns the next 32 bits; `None` if fewer are left.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    /// Returns the next 64 bits; `None` if fewer are left.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Returns all remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Appends numbers to bytes, in native byte order.
#[derive(Debug, Default)]
pub struct WireWriter(pub Vec<u8>);

impl WireWriter {
    /// Appends 16 bits.
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.0.extend_from_slice(&v.to_ne_bytes());
        self
    }

    /// Appends 32 bits.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.0.extend_from_slice(&v.to_ne_bytes());
        self
    }

    /// Appends 64 bits.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.0.extend_from_slice(&v.to_ne_bytes());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: headers decode as encoded, a reply repeats the ID and the number of its command, and a read past the
    /// end returns `None`.
    #[test]
    fn headers_decode_as_encoded() {
        let asked = VfioHeader { id: 7, command: command::REGION_READ, size: 32, flags: 0, error: 0 };
        assert!(asked.is_command() && asked.wants_reply());
        let bytes = asked.reply(&[1, 2, 3]);
        let back = VfioHeader::parse(bytes.first_chunk().unwrap());
        assert_eq!((back.id, back.command, back.size, back.flags), (7, 9, 19, REPLY));
        assert!(!back.is_command());
        let failed = VfioHeader::parse(asked.failure(22).first_chunk().unwrap());
        assert_eq!((failed.flags, failed.error, failed.size), (REPLY | ERROR, 22, 16));
        assert!(!VfioHeader { flags: NO_REPLY, ..asked }.wants_reply());
        let mut r = WireReader(&[1, 0, 2]);
        assert_eq!((r.u16(), r.u16(), r.0.len()), (Some(1), None, 1));
    }
}
