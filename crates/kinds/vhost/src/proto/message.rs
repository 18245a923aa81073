//! vhost-user messages: a header of 12 bytes, a payload, and descriptors.

use std::os::fd::OwnedFd;

use netvale_mem::lent::InUse;
use netvale_virtio::memory::RegionSpec;
use thiserror::Error;

/// Size in bytes of a header, which consists of the request, the flags and the size of the payload.
pub const HEADER: usize = 12;
/// Maximum size of a payload in bytes.
pub const MAX_PAYLOAD: usize = 4096;
/// Maximum number of descriptors per message.
pub const MAX_FDS: usize = 32;

/// Version of the protocol, in the lowest two bits of the flags.
const VERSION: u32 = 1;
/// Flag of an answer.
const REPLY: u32 = 4;
/// Flag that requests an answer in any case, even if the request succeeds (`REPLY_ACK`).
const NEED_REPLY: u32 = 8;

/// Requests of a front end.
#[allow(missing_docs)]
pub mod request {
    pub const GET_FEATURES: u32 = 1;
    pub const SET_FEATURES: u32 = 2;
    pub const SET_OWNER: u32 = 3;
    pub const RESET_OWNER: u32 = 4;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_LOG_FD: u32 = 7;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const GET_VRING_BASE: u32 = 11;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const GET_PROTOCOL_FEATURES: u32 = 15;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const GET_QUEUE_NUM: u32 = 17;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const SEND_RARP: u32 = 19;
    pub const NET_SET_MTU: u32 = 20;
    pub const GET_CONFIG: u32 = 24;
    pub const SET_CONFIG: u32 = 25;
    pub const GET_INFLIGHT_FD: u32 = 31;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const RESET_DEVICE: u32 = 34;
    pub const GET_MAX_MEM_SLOTS: u32 = 36;
    pub const ADD_MEM_REG: u32 = 37;
    pub const REM_MEM_REG: u32 = 38;
    pub const SET_STATUS: u32 = 39;
    pub const GET_STATUS: u32 = 40;
}

/// Protocol features, in addition to virtio's.
#[allow(missing_docs)]
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const RARP: u64 = 1 << 2;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const MTU: u64 = 1 << 4;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
}

/// The reason why a message is refused. A refused message ends the connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrontEndViolation {
    /// The flags contain another version of the protocol.
    #[error("message flags {0:#x} are not version 1: expected 1 in the lowest two bits")]
    Version(u32),
    /// An answer arrived instead of a request.
    #[error("an answer to request {0}, which was not sent")]
    Unasked(u32),
    /// The payload is longer than [`MAX_PAYLOAD`].
    #[error("request {request} has a payload of {size} bytes: expected at most {MAX_PAYLOAD}")]
    TooLarge {
        /// The request.
        request: u32,
        /// Size of the payload in bytes.
        size: u32,
    },
    /// The predecessor's unread bytes are not the start of a message.
    #[error("{0} unread bytes: expected less than a message")]
    Unread(usize),
    /// The position of a predecessor's queue is unknown.
    #[error("the position of packed queue {0} is unknown: its front end keeps no in-flight record")]
    Position(usize),
    /// The payload has the wrong size for this request.
    #[error("request {0} has a payload of the wrong size")]
    Size(u32),
    /// The message has the wrong number of descriptors.
    #[error("request {request} has the wrong number of descriptors: {fds}")]
    Fds {
        /// The request.
        request: u32,
        /// Number of descriptors.
        fds: usize,
    },
    /// A descriptor for kicks, calls or errors is not an eventfd.
    #[error("request {0} has a descriptor that is not an eventfd")]
    NoEventfd(u32),
    /// The request is unknown, or needs a feature that was not offered.
    #[error("request {0} is unknown, or needs a feature that was not offered")]
    Unknown(u32),
    /// A queue must be removed or changed, but a worker holds it.
    #[error("queue {queue}: {why}")]
    InUse {
        /// The queue.
        queue: usize,
        /// The reason why the queue cannot be removed or changed.
        why: InUse,
    },
    /// The queue does not exist.
    #[error("queue {0} does not exist")]
    NoQueue(u32),
    /// The request is only valid while the queue is stopped, or only while it runs.
    #[error("request {request} is not allowed in the current state of queue {queue}")]
    Time {
        /// The request.
        request: u32,
        /// The queue.
        queue: u32,
    },
    /// The driver acknowledged features that were not offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// A value is out of range.
    #[error("request {0} has a value out of range")]
    Value(u32),
    /// The rings are outside the guest's memory or misaligned, or the queue's setup is incomplete or invalid.
    #[error("queue {0} is outside the guest's memory or has an invalid size")]
    Ring(u32),
    /// The memory cannot be mapped.
    #[error(transparent)]
    Memory(#[from] netvale_virtio::memory::MemoryError),
    /// A system call failed.
    #[error("{0}")]
    System(rustix::io::Errno),
}

/// A vhost-user message.
#[derive(Debug, Default)]
pub struct VhostMessage {
    /// Number of the request.
    pub request: u32,
    /// Protocol version, and flags.
    pub flags: u32,
    /// The bytes after the header, at most [`MAX_PAYLOAD`].
    pub payload: Vec<u8>,
    /// The descriptors sent with the message, at most [`MAX_FDS`].
    pub fds: Vec<OwnedFd>,
}

/// Parses a header: request, flags, size.
///
/// # Errors
/// [`FrontEndViolation`] for an invalid version or size.
pub fn header(bytes: &[u8; HEADER]) -> Result<(u32, u32, usize), FrontEndViolation> {
    let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    let request = word(0);
    let flags = word(4);
    let size = word(8);
    if flags & 3 != VERSION {
        return Err(FrontEndViolation::Version(flags));
    }
    if size as usize > MAX_PAYLOAD {
        return Err(FrontEndViolation::TooLarge { request, size });
    }
    Ok((request, flags, size as usize))
}

impl VhostMessage {
    /// Creates a request without descriptors.
    pub fn new(request: u32, payload: Vec<u8>) -> VhostMessage {
        VhostMessage { request, flags: VERSION, payload, fds: Vec::new() }
    }

    /// Creates a request without descriptors, whose payload is numbers of 8 bytes each.
    pub fn of_words(request: u32, words: &[u64]) -> VhostMessage {
        VhostMessage::new(request, words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    /// Creates an answer to `request`.
    pub fn reply(request: u32, payload: Vec<u8>) -> VhostMessage {
        VhostMessage { request, flags: VERSION | REPLY, payload, fds: Vec::new() }
    }

    /// Makes this message request an acknowledgement even if it succeeds (`NEED_REPLY`).
    #[must_use]
    pub fn with_ack(mut self) -> VhostMessage {
        self.flags |= NEED_REPLY;
        self
    }

    /// Returns whether the message is an answer.
    pub fn is_reply(&self) -> bool {
        self.flags & REPLY != 0
    }

    /// Returns whether the message requests an acknowledgement even if it succeeds (`NEED_REPLY`).
    pub fn needs_ack(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// Returns header and payload.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.payload.len());
        for word in [self.request, self.flags, self.payload.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&self.payload);
        bytes
    }

    /// Returns the payload as one number.
    ///
    /// # Errors
    /// [`FrontEndViolation::Size`] if the payload is not a single number.
    pub fn u64(&self) -> Result<u64, FrontEndViolation> {
        match *self.payload.as_slice() {
            [a, b, c, d, e, f, g, h] => Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            _ => Err(FrontEndViolation::Size(self.request)),
        }
    }

    /// Returns the payload as a queue's index and a value.
    ///
    /// # Errors
    /// [`FrontEndViolation::Size`] for any other payload.
    pub fn vring_state(&self) -> Result<(u32, u32), FrontEndViolation> {
        let both = self.u64()?;
        Ok((both as u32, (both >> 32) as u32))
    }

    /// Returns `N` numbers from the payload, 8 bytes each, starting at byte `at`.
    ///
    /// # Errors
    /// [`FrontEndViolation::Size`] if the payload is too short.
    pub fn words<const N: usize>(&self, at: usize) -> Result<[u64; N], FrontEndViolation> {
        let mut words = [0; N];
        for (i, word) in words.iter_mut().enumerate() {
            let bytes = self.payload.get(at + 8 * i..at + 8 * i + 8).and_then(|b| b.first_chunk());
            *word = u64::from_le_bytes(*bytes.ok_or(FrontEndViolation::Size(self.request))?);
        }
        Ok(words)
    }

    /// Returns the memory region at byte `at` of the payload: guest address, size, user address, offset.
    ///
    /// # Errors
    /// [`FrontEndViolation::Size`] if the payload is too short.
    pub fn region(&self, at: usize) -> Result<RegionSpec, FrontEndViolation> {
        let [guest, size, user, offset] = self.words(at)?;
        Ok(RegionSpec { guest, size, user, offset })
    }

    /// Takes exactly `count` descriptors.
    ///
    /// # Errors
    /// [`FrontEndViolation::Fds`] if the message has more or fewer descriptors.
    pub fn take_fds(&mut self, count: usize) -> Result<Vec<OwnedFd>, FrontEndViolation> {
        if self.fds.len() == count {
            Ok(std::mem::take(&mut self.fds))
        } else {
            Err(FrontEndViolation::Fds { request: self.request, fds: self.fds.len() })
        }
    }
}

/// Appends a region in the form that [`VhostMessage::region`] reads.
pub fn put_region(payload: &mut Vec<u8>, spec: &RegionSpec) {
    for word in [spec.guest, spec.size, spec.user, spec.offset] {
        payload.extend(word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: a header that was written is read back unchanged; invalid headers are refused.
    #[test]
    fn a_written_header_reads_back() {
        let m = VhostMessage::new(request::SET_VRING_NUM, vec![1; 8]).with_ack();
        let bytes = m.bytes();
        let (r, f, n) = header(bytes[..HEADER].first_chunk().unwrap()).unwrap();
        assert_eq!((r, f, n), (request::SET_VRING_NUM, VERSION | NEED_REPLY, 8));
        let mut bad: [u8; HEADER] = *bytes.first_chunk().unwrap();
        bad[4] = 2;
        assert_eq!(header(&bad), Err(FrontEndViolation::Version(2)));
        bad[4] = 1;
        bad[9] = 0x20;
        assert!(matches!(header(&bad), Err(FrontEndViolation::TooLarge { .. })));
    }

    /// Objective: payloads of a wrong size are refused.
    #[test]
    fn payloads_of_another_size_are_refused() {
        let m = |n| VhostMessage::new(7, vec![0; n]);
        assert_eq!(m(7).u64(), Err(FrontEndViolation::Size(7)));
        assert_eq!(m(9).vring_state(), Err(FrontEndViolation::Size(7)));
        assert_eq!(m(39).region(8), Err(FrontEndViolation::Size(7)));
        assert!(m(40).region(8).is_ok());
        assert_eq!(m(0).take_fds(1).err(), Some(FrontEndViolation::Fds { request: 7, fds: 0 }));
    }
}
