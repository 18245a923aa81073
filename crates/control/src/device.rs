//! netmap's control requests on an attach connection: everything `NIOCCTRL` asks that is not opening a port.
//!
//! A program's `/dev/netmap` descriptor is such a connection. The bodies travel as netmap lays them out (netmap.h, `struct
//! nmreq_*`): the daemon reads one, carries it out, and sends the whole body back as netmap would have changed it.

use std::ops::Range;

use crate::attach::{BadMessage, REQUEST_MAGIC, Reader, Writer};

/// Length of a [`DeviceRequest`] and of a [`DeviceReply`] in bytes.
pub const DEVICE_LEN: usize = 160;
/// Length of a [`Holding`] in bytes.
pub const HOLDING_LEN: usize = 8;
/// Most bytes of a request's body: that of `VALE_ATTACH`.
pub const BODY_LEN: usize = 64;

const DEVICE_MAGIC: u32 = u32::from_le_bytes(*b"NVdv");
const RESUME_MAGIC: u32 = u32::from_le_bytes(*b"NVrs");
const RELEASE_MAGIC: u32 = u32::from_le_bytes(*b"NVrl");

const REQTYPE: Range<usize> = 6..8;
const STATUS: Range<usize> = 8..12;
const NAME: Range<usize> = 16..80;
const BODY: Range<usize> = 80..80 + BODY_LEN;

/// A request, or what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// `NETMAP_REQ_*`.
    pub reqtype: u16,
    /// Of an answer: 0, or the errno netmap would give.
    pub status: i32,
    /// `nr_name`: at most 63 bytes.
    pub name: String,
    /// The body, zeros behind it.
    pub body: [u8; BODY_LEN],
}

impl Default for DeviceRequest {
    fn default() -> Self {
        DeviceRequest { reqtype: 0, status: 0, name: String::new(), body: [0; BODY_LEN] }
    }
}

/// The answer has the same shape.
pub type DeviceReply = DeviceRequest;

impl DeviceRequest {
    /// The message.
    pub fn encode(&self) -> [u8; DEVICE_LEN] {
        let mut m = [0; DEVICE_LEN];
        let mut w = Writer(&mut m);
        w.head(DEVICE_MAGIC);
        w.put(REQTYPE, &self.reqtype.to_le_bytes());
        w.put(STATUS, &self.status.to_le_bytes());
        w.text(NAME, &self.name);
        w.put(BODY, &self.body);
        m
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let r = Reader(bytes);
        r.head(DEVICE_LEN, DEVICE_MAGIC)?;
        Ok(DeviceRequest {
            reqtype: r.u16(REQTYPE),
            status: r.u32(STATUS).cast_signed(),
            name: r.text(NAME)?,
            body: r.bytes(BODY),
        })
    }
}

/// What the holder of a connection asks of the port on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// "What does this connection hold?": asked by a process that was given the descriptor. The answer is that of the attach
    /// request that opened the port, with its descriptors.
    Resume,
    /// The port is let go; the connection stays. The answer is an empty attach reply.
    Release,
}

impl Holding {
    /// The message.
    pub fn encode(self) -> [u8; HOLDING_LEN] {
        let mut m = [0; HOLDING_LEN];
        Writer(&mut m).head(if self == Holding::Resume { RESUME_MAGIC } else { RELEASE_MAGIC });
        m
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`BadMessage`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let r = Reader(bytes);
        if r.magic() == RELEASE_MAGIC {
            return r.head(HOLDING_LEN, RELEASE_MAGIC).map(|()| Holding::Release);
        }
        r.head(HOLDING_LEN, RESUME_MAGIC).map(|()| Holding::Resume)
    }
}

/// What a message on an attach connection is, by its magic number. What is none of these is left to the attach request's decoder to
/// name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// [`AttachRequest`](crate::attach::AttachRequest).
    Attach,
    /// [`DeviceRequest`].
    Device,
    /// [`Holding`].
    Holding,
}

impl MessageKind {
    /// Looks at the magic number alone.
    pub fn of(bytes: &[u8]) -> MessageKind {
        match Reader(bytes).magic() {
            DEVICE_MAGIC => MessageKind::Device,
            RESUME_MAGIC | RELEASE_MAGIC => MessageKind::Holding,
            _ => MessageKind::Attach,
        }
    }
}

const _: () = assert!(REQUEST_MAGIC != DEVICE_MAGIC && REQUEST_MAGIC != RESUME_MAGIC);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Objective: no bytes make the decoders panic.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (DeviceRequest::decode(&bytes), Holding::decode(&bytes), MessageKind::of(&bytes));
        }

        /// Objective: a request survives the wire.
        #[test]
        fn round_trip(name in "[a-z0-9:{}]{0,63}", reqtype in any::<u16>(), status in any::<i32>(), fill in any::<u8>()) {
            let r = DeviceRequest { reqtype, status, name, body: [fill; BODY_LEN] };
            prop_assert_eq!(MessageKind::of(&r.encode()), MessageKind::Device);
            prop_assert_eq!(DeviceRequest::decode(&r.encode()), Ok(r));
        }
    }

    /// Objective: the short messages are told from the others and from each other, and their version is looked at.
    #[test]
    fn holding() {
        for which in [Holding::Resume, Holding::Release] {
            let mut m = which.encode();
            assert_eq!((MessageKind::of(&m), Holding::decode(&m)), (MessageKind::Holding, Ok(which)));
            m[4] = 77;
            assert_eq!(Holding::decode(&m), Err(BadMessage::Version(77)));
        }
    }
}
