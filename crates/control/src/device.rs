//! netmap's control requests on an attach connection: all `NIOCCTRL` requests that do not open a port.
//!
//! A program's `/dev/netmap` descriptor is such a connection. The bodies have netmap's layout (netmap.h, `struct
//! nmreq_*`). The daemon reads a body, executes the request, and returns the whole body as netmap would have changed
//! it.

use zerocopy::little_endian::{I32, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::attach::{BRING_MAGIC, BadMessage, MessageHead, PaddedText, REQUEST_MAGIC, read};
use crate::succession::{BEGIN_MAGIC, HELLO_MAGIC};

/// Length of a [`DeviceRequest`] and of a [`DeviceReply`] in bytes.
pub const DEVICE_LEN: usize = size_of::<DeviceRequestWire>();
/// Length of a [`HoldRequest`] in bytes.
pub const HOLDING_LEN: usize = size_of::<HoldingWire>();
/// Maximum length of a request's body in bytes: the length of the `VALE_ATTACH` body.
pub const BODY_LEN: usize = 64;

const DEVICE_MAGIC: u32 = u32::from_le_bytes(*b"NVdv");
const RESUME_MAGIC: u32 = u32::from_le_bytes(*b"NVrs");
const RELEASE_MAGIC: u32 = u32::from_le_bytes(*b"NVrl");

/// A [`DeviceRequest`] on the wire.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct DeviceRequestWire {
    head: MessageHead,
    reqtype: U16,
    status: I32,
    unused_12: U32,
    name: PaddedText<64>,
    body: [u8; BODY_LEN],
    unused_144: [U32; 4],
}

/// A [`HoldRequest`] on the wire: its magic number selects the variant.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HoldingWire {
    head: MessageHead,
    unused_6: U16,
}

/// One of netmap's control requests, or the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// Type of the request, `NETMAP_REQ_*`.
    pub reqtype: u16,
    /// In an answer: 0, or the errno that netmap would return.
    pub status: i32,
    /// Name of the port (`nr_name`), at most 63 bytes.
    pub name: String,
    /// The body, padded with zeros.
    pub body: [u8; BODY_LEN],
}

impl Default for DeviceRequest {
    fn default() -> Self {
        DeviceRequest { reqtype: 0, status: 0, name: String::new(), body: [0; BODY_LEN] }
    }
}

/// The answer to a [`DeviceRequest`], with the same fields.
pub type DeviceReply = DeviceRequest;

impl DeviceRequest {
    /// Encodes the message.
    pub fn encode(&self) -> [u8; DEVICE_LEN] {
        transmute!(DeviceRequestWire {
            head: MessageHead::new(DEVICE_MAGIC),
            reqtype: self.reqtype.into(),
            status: self.status.into(),
            unused_12: 0.into(),
            name: PaddedText::new(&self.name),
            body: self.body,
            unused_144: [0.into(); 4],
        })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the bytes are not a valid request.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let m: DeviceRequestWire = read(bytes, DEVICE_MAGIC)?;
        Ok(DeviceRequest { reqtype: m.reqtype.get(), status: m.status.get(), name: m.name.read()?, body: m.body })
    }
}

/// A request about a connection's port by the holder of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldRequest {
    /// Requests the connection's port, for a process that inherited or received the descriptor. The daemon repeats the
    /// attach reply with which the port was opened, including the descriptors.
    Resume,
    /// Releases the port; the connection stays. The answer is an empty attach reply.
    Release,
}

impl HoldRequest {
    /// Encodes the message.
    pub fn encode(self) -> [u8; HOLDING_LEN] {
        let magic = if self == HoldRequest::Resume { RESUME_MAGIC } else { RELEASE_MAGIC };
        transmute!(HoldingWire { head: MessageHead::new(magic), unused_6: 0.into() })
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`BadMessage`] if the bytes are not one of these messages.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let (magic, which) = match MessageHead::magic_of(bytes) {
            Some(RELEASE_MAGIC) => (RELEASE_MAGIC, HoldRequest::Release),
            _ => (RESUME_MAGIC, HoldRequest::Resume),
        };
        read::<HoldingWire>(bytes, magic).map(|_| which)
    }
}

/// The kind of a message on an attach connection, by its magic number. A message with an unknown magic number counts as
/// an attach request, whose decoder reports the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// [`AttachRequest`](crate::attach::AttachRequest).
    Attach,
    /// [`DeviceRequest`].
    Device,
    /// [`HoldRequest`].
    Holding,
    /// [`Succession`](crate::succession::Succession).
    Succession,
    /// [`BringRequest`](crate::attach::BringRequest).
    Bring,
}

impl MessageKind {
    /// Determines the kind from the magic number alone.
    pub fn of(bytes: &[u8]) -> MessageKind {
        match MessageHead::magic_of(bytes) {
            Some(DEVICE_MAGIC) => MessageKind::Device,
            Some(RESUME_MAGIC | RELEASE_MAGIC) => MessageKind::Holding,
            Some(HELLO_MAGIC | BEGIN_MAGIC) => MessageKind::Succession,
            Some(BRING_MAGIC) => MessageKind::Bring,
            _ => MessageKind::Attach,
        }
    }
}

const _: () = assert!(REQUEST_MAGIC != DEVICE_MAGIC && REQUEST_MAGIC != RESUME_MAGIC && REQUEST_MAGIC != BRING_MAGIC);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Objective: no bytes make the decoders panic.
        #[test]
        fn no_bytes_make_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (DeviceRequest::decode(&bytes), HoldRequest::decode(&bytes), MessageKind::of(&bytes));
        }

        /// Objective: a request is unchanged after encoding and decoding.
        #[test]
        fn a_request_survives_the_wire(
            name in "[a-z0-9:{}]{0,63}",
            reqtype in any::<u16>(),
            status in any::<i32>(),
            fill in any::<u8>(),
        ) {
            let r = DeviceRequest { reqtype, status, name, body: [fill; BODY_LEN] };
            prop_assert_eq!(MessageKind::of(&r.encode()), MessageKind::Device);
            prop_assert_eq!(DeviceRequest::decode(&r.encode()), Ok(r));
        }
    }

    /// Objective: the two hold requests are distinguished from other messages and from each other, and their version is
    /// checked.
    #[test]
    fn short_messages_are_told_apart() {
        for which in [HoldRequest::Resume, HoldRequest::Release] {
            let mut m = which.encode();
            assert_eq!((MessageKind::of(&m), HoldRequest::decode(&m)), (MessageKind::Holding, Ok(which)));
            m[4] = 77;
            assert_eq!(HoldRequest::decode(&m), Err(BadMessage::Version(77)));
        }
    }
}
