//! The message with which a client passes the daemon a device that the client created: a TAP in a network namespace
//! that the daemon cannot enter.
//!
//! The message contains a header (magic number and version), the number of queues, and the parameters of `port.attach`
//! as JSON. It carries a socket for the answer and the device's queues as `SCM_RIGHTS`. The answer is an
//! [`AttachReply`] without descriptors; if its status is 0, its text is the port's full name. The port outlives the
//! connection.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BadMessage;
use super::wire::{self, MessageHead};
use crate::server::strict;
use crate::types::AttachParams;

/// Maximum number of queues that a client can pass: with the socket for the answer, they fit into one message.
pub const MAX_BROUGHT: usize = 128;
/// Maximum length of a [`BringRequest`] in bytes.
pub const BRING_LEN: usize = 4096;

pub(crate) const BRING_MAGIC: u32 = u32::from_le_bytes(*b"NVbr");

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BringStart {
    head: MessageHead,
    queues: U16,
}

/// A request to attach a port to the device that comes with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BringRequest {
    /// Number of the device's queues.
    pub queues: u16,
    /// The parameters of `port.attach`.
    pub params: AttachParams,
}

impl BringRequest {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let start = BringStart { head: MessageHead::new(BRING_MAGIC), queues: self.queues.into() };
        let mut bytes = start.as_bytes().to_vec();
        // Cannot fail: the parameters are texts, numbers and flags.
        bytes.extend(serde_json::to_vec(&self.params).unwrap_or_default());
        bytes
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the bytes are not a valid request.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let (start, text) = bytes.split_at_checked(size_of::<BringStart>()).ok_or(BadMessage::Length(bytes.len()))?;
        if bytes.len() > BRING_LEN {
            return Err(BadMessage::Length(bytes.len()));
        }
        let start: BringStart = wire::read(start, BRING_MAGIC)?;
        let queues = start.queues.get();
        if !(1..=MAX_BROUGHT).contains(&queues.into()) {
            return Err(BadMessage::Field("number of queues: expected 1 to 128"));
        }
        let params = strict::parse(text).and_then(serde_json::from_value);
        Ok(BringRequest { queues, params: params.map_err(|_| BadMessage::Field("`params` of port.attach"))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MessageKind;
    use crate::types::PortOptions;
    use proptest::prelude::*;

    fn request(queues: u16) -> BringRequest {
        let options = PortOptions { netns: Some("/run/netns/web".into()), ..PortOptions::default() };
        BringRequest { queues, params: AttachParams { switch: "vale0".into(), port: "tap:eth0".into(), options } }
    }

    proptest! {
        /// Objective: no bytes make the decoder panic, not even after a valid header.
        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), begin in any::<bool>()) {
            if begin && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&request(1).encode()[..8]);
            }
            let _ = BringRequest::decode(&bytes);
        }
    }

    /// Objective: a request is unchanged after encoding and decoding, and is distinguished from other messages.
    #[test]
    fn a_request_survives_the_wire() {
        let bytes = request(2).encode();
        assert_eq!(MessageKind::of(&bytes), MessageKind::Bring);
        assert_eq!(BringRequest::decode(&bytes), Ok(request(2)));
    }

    /// Objective: each fault of a message has its own error.
    #[test]
    fn refusals_are_named() {
        let with = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = request(1).encode();
            change(&mut bytes);
            BringRequest::decode(&bytes).unwrap_err()
        };
        assert_eq!(with(&|bytes| bytes[4] = 9), BadMessage::Version(9));
        assert_eq!(with(&|bytes| bytes.truncate(7)), BadMessage::Length(7));
        assert_eq!(with(&|bytes| bytes.resize(BRING_LEN + 1, b' ')), BadMessage::Length(BRING_LEN + 1));
        for queues in [0, 129] {
            assert_eq!(with(&|bytes| bytes[6] = queues), BadMessage::Field("number of queues: expected 1 to 128"));
        }
        let params = BadMessage::Field("`params` of port.attach");
        assert_eq!(with(&|bytes| bytes.truncate(20)), params);
        assert_eq!(with(&|bytes| bytes.extend(b"{}")), params);
        assert_eq!(with(&|bytes| bytes[10] = 0xff), params);
    }
}
