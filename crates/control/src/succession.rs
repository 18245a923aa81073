//! Messages on the attach socket from a daemon's successor, which takes over in an upgrade.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::attach::{BadMessage, MessageHead, read};

/// Version of the handed-over state. A successor continues only the state of a daemon with the same version.
pub const VERSION: u32 = 4;

/// Length of a [`Succession`] in bytes.
pub const SUCCESSION_LEN: usize = size_of::<SuccessionWire>();

pub(crate) const HELLO_MAGIC: u32 = u32::from_le_bytes(*b"NVsc");
pub(crate) const BEGIN_MAGIC: u32 = u32::from_le_bytes(*b"NVsb");

/// A [`Succession`] on the wire: its magic number selects the variant.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SuccessionWire {
    head: MessageHead,
    unused_6: U16,
    version: U32,
}

/// A message of the successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Succession {
    /// The successor supports states of this version. The answer is an attach reply.
    Hello(u32),
    /// The successor is ready to receive the state.
    Begin,
}

impl Succession {
    /// Encodes the message.
    pub fn encode(self) -> [u8; SUCCESSION_LEN] {
        let (magic, version) = match self {
            Succession::Hello(version) => (HELLO_MAGIC, version),
            Succession::Begin => (BEGIN_MAGIC, 0),
        };
        transmute!(SuccessionWire { head: MessageHead::new(magic), unused_6: 0.into(), version: version.into() })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the bytes are not one of these messages.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        if MessageHead::magic_of(bytes) == Some(BEGIN_MAGIC) {
            return read::<SuccessionWire>(bytes, BEGIN_MAGIC).map(|_| Succession::Begin);
        }
        read::<SuccessionWire>(bytes, HELLO_MAGIC).map(|m| Succession::Hello(m.version.get()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::MessageKind;

    proptest! {
        /// Objective: no bytes make the decoder panic, and each message reads back unchanged.
        #[test]
        fn each_message_reads_back(bytes in proptest::collection::vec(any::<u8>(), 0..40), version in any::<u32>()) {
            let _ = Succession::decode(&bytes);
            for message in [Succession::Hello(version), Succession::Begin] {
                prop_assert_eq!(MessageKind::of(&message.encode()), MessageKind::Succession);
                prop_assert_eq!(Succession::decode(&message.encode()), Ok(message));
            }
        }
    }
}
