//! Bytes on the wire: headers, checksums, the virtio-net header and segmentation.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no allocation (the crate is `no_std` and uses no
//! allocator, so the compiler enforces this), no `unsafe`. Every byte counts as hostile: a parser returns an error or
//! an answer, and never panics.
//!
//! Where to look:
//!
//! | module | what |
//! |---|---|
//! | [`ethernet`], [`arp`], [`ipv4`], [`ipv6`], [`tcp`], [`udp`] | one header each: field offsets, then a view over exactly the header's bytes |
//! | [`layers`] | finds the layers of a frame: past VLAN tags, IPv4 options and IPv6 extension headers |
//! | [`checksum`] | the Internet checksum in pieces, pseudo headers, incremental update |
//! | [`vnet`] | the virtio-net header as bytes |
//! | [`offload`] | the virtio-net header checked against its frame, and the offload that it requests |
//! | [`segment`] | offloads in software: segmentation and checksum completion |
//! | [`merge`] | the inverse: TCP segments merged into a larger one |
//! | [`flow`] | a keyed hash that is the same for both directions of a flow |
//! | [`build`] | frames for packet generators |
//! | `field` | reading and writing big-endian fields |
//! | [`mac`] | Ethernet addresses |
//! | [`unfilled`] | fills in the checksums of frames that a device marks as verified |
//!
//! A view such as [`ipv4::Header`] lies over an array of the header's fixed length, not over a slice. So its length is
//! checked once, at `parse`, and no accessor can be out of bounds.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod build;
pub mod checksum;
pub mod ethernet;
pub mod flow;
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

/// Why bytes are not the expected header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The header does not end within the given bytes.
    #[error("the header runs past the end of the bytes given: give more of the frame")]
    Truncated,
    /// A version, length or type field has a value that is impossible for this header.
    #[error("a version, length or type field holds a value that this header cannot have")]
    BadField,
}
