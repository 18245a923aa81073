//! Bytes on the wire: headers, checksums, the virtio-net header and segmentation.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no allocation, no `unsafe`. The crate is `no_std`
//! without an allocator and forbids unsafe code, so the compiler enforces this. All input may be hostile: a parser
//! returns a result or an error, and never panics.
//!
//! | module | content |
//! |---|---|
//! | [`ethernet`], [`arp`], [`ipv4`], [`ipv6`], [`tcp`], [`udp`] | one header each: field offsets, view of its bytes |
//! | [`layers`] | finds the layers of a frame, after VLAN tags, IPv4 options and IPv6 extension headers |
//! | [`checksum`] | the Internet checksum: sums of pieces, pseudo headers, incremental updates |
//! | [`vnet`] | the virtio-net header as bytes |
//! | [`offload`] | checks a virtio-net header against its frame, and returns the requested offload |
//! | [`segment`] | offloads in software: segmentation and checksum completion |
//! | [`merge`] | the inverse of segmentation: merges TCP segments, or UDP datagrams, into a larger one |
//! | [`flow`] | a keyed hash that is the same for both directions of a flow |
//! | [`build`] | frames for packet generators |
//! | `field` | reads and writes big-endian fields |
//! | [`mac`] | Ethernet addresses |
//! | [`unfilled`] | finds missing checksums of frames that a device marks as verified |
//! | [`half_summed`] | finds the offloads that a sender's kernel left to a network card that does not exist |
//!
//! A view such as [`ipv4::Header`] refers to an array of the header's fixed length, not to a slice. Its length is
//! checked once, in `parse`, and no accessor can be out of bounds.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod build;
pub mod checksum;
pub mod ethernet;
pub mod flow;
pub mod half_summed;
pub mod ipv4;
pub mod ipv6;
pub mod layers;
pub mod mac;
pub mod merge;
pub mod offload;
pub mod segment;
pub mod tcp;
pub mod udp;
pub mod unfilled;
pub mod vnet;

mod field;

pub use checksum::Sum;
pub use flow::FlowKey;
pub use layers::Layers;
pub use mac::MacAddr;
pub use merge::Merge;
pub use offload::{Gso, GsoKind, Offload};
pub use segment::{Segment, Segmenter};
pub use vnet::{BadVnet, VnetHdr};

/// The reason why bytes are not the expected header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedPacket {
    /// The header does not end within the given bytes.
    #[error("the header is truncated: it exceeds the given bytes")]
    Truncated,
    /// A version, length or type field has a value that is invalid for this header.
    #[error("a version, length or type field of the header has an invalid value")]
    BadField,
}
