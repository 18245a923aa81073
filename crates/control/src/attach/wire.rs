//! The messages on the wire: integers are little-endian, nothing is aligned, unused bytes are zero.

use zerocopy::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{ATTACH_VERSION, NOTE_LEN};

/// The reason why bytes are not a message of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// The message has this unexpected length, in bytes.
    #[error("invalid attach message of {0} bytes: the peer does not use netvale's protocol")]
    Length(usize),
    /// Wrong magic number.
    #[error("the attach message lacks netvale's magic number")]
    Magic,
    /// The message has this unknown version.
    #[error("attach protocol version {0}: expected {ATTACH_VERSION}; use client and daemon of one release")]
    Version(u16),
    /// A name or text that is not NUL-terminated UTF-8.
    #[error("the attach message has a name that is not NUL-terminated UTF-8")]
    Text,
    /// The field with this name is out of range.
    #[error("the attach message has an invalid {0}")]
    Field(&'static str),
}

/// Header of every message.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct MessageHead {
    magic: U32,
    version: U16,
}

impl MessageHead {
    pub(crate) fn new(magic: u32) -> MessageHead {
        MessageHead { magic: magic.into(), version: ATTACH_VERSION.into() }
    }

    /// Returns the magic number at the start of `bytes`; `None` if there are fewer than 4 bytes.
    pub(crate) fn magic_of(bytes: &[u8]) -> Option<u32> {
        U32::read_from_prefix(bytes).ok().map(|(magic, _)| magic.get())
    }
}

/// Reads a message of the type `T`, and checks its length, magic number and version.
pub(crate) fn read<T: FromBytes>(bytes: &[u8], magic: u32) -> Result<T, BadMessage> {
    let wrong_length = || BadMessage::Length(bytes.len());
    let message = T::read_from_bytes(bytes).map_err(|_| wrong_length())?;
    let (head, _) = MessageHead::read_from_prefix(bytes).map_err(|_| wrong_length())?;
    if head.magic.get() != magic {
        return Err(BadMessage::Magic);
    }
    match head.version.get() {
        ATTACH_VERSION => Ok(message),
        other => Err(BadMessage::Version(other)),
    }
}

/// NUL-terminated text, padded with zeros.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub(crate) struct PaddedText<const N: usize>([u8; N]);

impl<const N: usize> PaddedText<N> {
    /// Creates the text, truncated at a character boundary to leave room for a final NUL.
    pub(crate) fn new(text: &str) -> Self {
        let end = text.floor_char_boundary(N - 1);
        let mut field = [0; N];
        field.iter_mut().zip(&text.as_bytes()[..end]).for_each(|(place, byte)| *place = *byte);
        PaddedText(field)
    }

    pub(crate) fn read(&self) -> Result<String, BadMessage> {
        let text = std::ffi::CStr::from_bytes_until_nul(&self.0).map_err(|_| BadMessage::Text)?;
        text.to_str().map(str::to_owned).map_err(|_| BadMessage::Text)
    }
}

/// Wire format of an [`AttachRequest`](super::AttachRequest).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct AttachRequestWire {
    pub(crate) head: MessageHead,
    pub(crate) unused_6: U16,
    pub(crate) flags: U32,
    pub(crate) tx_rings: U32,
    pub(crate) rx_rings: U32,
    pub(crate) tx_slots: U32,
    pub(crate) rx_slots: U32,
    pub(crate) buf_size: U32,
    pub(crate) extra_bufs: U32,
    pub(crate) hdr_len: U32,
    pub(crate) pipes: U32,
    /// Number and size of `netmap_if`s, rings and buffers.
    pub(crate) pools: [[U32; 2]; 3],
    pub(crate) note: [u8; NOTE_LEN],
    pub(crate) host_tx_rings: U32,
    pub(crate) host_rx_rings: U32,
    pub(crate) mem_id: U32,
    /// Number of bits of the offsets plus one; 0 if no offsets are requested.
    pub(crate) offset_bits: U32,
    pub(crate) max_offset: U32,
    pub(crate) initial_offset: U32,
    pub(crate) unused_124: U32,
    pub(crate) name: PaddedText<128>,
    pub(crate) file_offset: U64,
    pub(crate) file_len: U64,
}

/// Wire format of an [`AttachReply`](super::AttachReply).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct AttachReplyWire {
    pub(crate) head: MessageHead,
    pub(crate) role: U16,
    pub(crate) status: I32,
    pub(crate) unused_12: U32,
    pub(crate) memsize: U64,
    pub(crate) nifp: U64,
    pub(crate) csb_atok: U64,
    pub(crate) csb_ktoa: U64,
    pub(crate) csb_first: U32,
    pub(crate) peer_csb_first: U32,
    pub(crate) ring_pool: U64,
    pub(crate) ring_size: U32,
    pub(crate) unused_68: U32,
    pub(crate) buf_pool: U64,
    pub(crate) num_bufs: U32,
    pub(crate) buf_size: U32,
    pub(crate) tx_rings: U32,
    pub(crate) rx_rings: U32,
    pub(crate) tx_slots: U32,
    pub(crate) rx_slots: U32,
    pub(crate) extra_bufs: U32,
    pub(crate) hdr_len: U32,
    pub(crate) mem_id: U32,
    /// Index of the first tx ring bound to the client, and the number of bound tx rings; `rx_bound` is the same for rx
    /// rings.
    pub(crate) tx_bound: [U32; 2],
    pub(crate) rx_bound: [U32; 2],
    pub(crate) note: [u8; NOTE_LEN],
    pub(crate) unused_164: [U32; 3],
    pub(crate) if_pool: U64,
    pub(crate) if_size: U32,
    pub(crate) num_ifs: U32,
    pub(crate) num_rings: U32,
    pub(crate) alone: U32,
    pub(crate) unused_200: U32,
    pub(crate) nic_entries: U32,
    pub(crate) nic_flags: U32,
    pub(crate) nic_ifindex: U32,
    pub(crate) nic_mtu: U32,
    pub(crate) max_offset: U32,
    pub(crate) port_flags: U32,
    pub(crate) unused_228: [U32; 2],
    pub(crate) host_tx_rings: U32,
    pub(crate) host_rx_rings: U32,
    pub(crate) file_offset: U64,
    pub(crate) unused_252: U32,
    pub(crate) text: PaddedText<256>,
}
