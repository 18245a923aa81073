//! Ethernet II frames and VLAN tags (IEEE 802.3 §3, IEEE 802.1Q §9).

use core::borrow::{Borrow, BorrowMut};

use crate::mac::MacAddr;
use crate::{MalformedPacket, field};

/// Offsets of the fields, in bytes from the start of the frame.
mod at {
    pub const DST: usize = 0;
    pub const SRC: usize = 6;
    pub const ETHERTYPE: usize = 12;
}

/// Length of an Ethernet header without tags, bytes.
pub const HEADER_LEN: usize = 14;
/// Length of a VLAN tag, bytes.
pub const VLAN_TAG_LEN: usize = 4;
/// Maximum number of VLAN tags that [`network`] skips. For a frame with more tags, [`network`] returns the EtherType of
/// the third tag.
pub const MAX_VLAN_TAGS: usize = 2;
/// Minimum length of a frame without the frame check sequence, bytes (IEEE 802.3 §3.2.8).
pub const MIN_FRAME_LEN: usize = 60;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// EtherType of a customer VLAN tag (802.1Q).
pub const VLAN: u16 = 0x8100;
/// EtherType of a service VLAN tag (802.1ad).
pub const SERVICE_VLAN: u16 = 0x88a8;

/// The header of a frame: its first 14 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Header<B>(B);

impl<'a> Header<&'a [u8; HEADER_LEN]> {
    /// Creates a view of the header of `frame`.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, MalformedPacket> {
        frame.first_chunk().map(Self).ok_or(MalformedPacket::Truncated)
    }
}

impl<'a> Header<&'a mut [u8; HEADER_LEN]> {
    /// Creates a writable view of the header of `frame`.
    #[inline]
    pub fn parse_mut(frame: &'a mut [u8]) -> Result<Self, MalformedPacket> {
        frame.first_chunk_mut().map(Self).ok_or(MalformedPacket::Truncated)
    }
}

impl<B: Borrow<[u8; HEADER_LEN]>> Header<B> {
    field::reads! {
        /// Destination address.
        dst: MacAddr = at::DST;
        /// Source address.
        src: MacAddr = at::SRC;
        /// The field after the addresses: an EtherType, which may announce a VLAN tag, or (below 1536) an 802.3 length.
        ethertype: u16 = at::ETHERTYPE;
    }
}

impl<B: BorrowMut<[u8; HEADER_LEN]>> Header<B> {
    field::stores! {
        /// Stores the destination address.
        set_dst: MacAddr = at::DST;
        /// Stores the source address.
        set_src: MacAddr = at::SRC;
        /// Stores the EtherType.
        set_ethertype: u16 = at::ETHERTYPE;
    }

    /// Exchanges the source and the destination address, as a reply needs.
    #[inline]
    pub fn swap_addrs(&mut self) {
        let dst = self.dst();
        let src = self.src();
        self.set_dst(src);
        self.set_src(dst);
    }
}

/// Returns the EtherType of the network protocol of `frame`, and the offset of that protocol's header in bytes, after
/// up to [`MAX_VLAN_TAGS`] tags.
#[inline]
pub fn network(frame: &[u8]) -> Result<(u16, usize), MalformedPacket> {
    let mut ethertype = Header::parse(frame)?.ethertype();
    let mut offset = HEADER_LEN;
    for _ in 0..MAX_VLAN_TAGS {
        if ethertype != VLAN && ethertype != SERVICE_VLAN {
            break;
        }
        let tag: &[u8; VLAN_TAG_LEN] =
            frame.get(offset..).and_then(<[u8]>::first_chunk).ok_or(MalformedPacket::Truncated)?;
        ethertype = field::get16(tag, 2);
        offset += VLAN_TAG_LEN;
    }
    Ok((ethertype, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapping_addresses_leaves_the_ethertype() {
        let mut frame = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x06];
        Header::parse_mut(&mut frame).unwrap().swap_addrs();
        assert_eq!(frame, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 0x08, 0x06]);
    }

    /// Objective: one or two tags are skipped; the EtherType of a third tag is returned; a truncated tag is an error.
    #[test]
    fn vlan_tags_are_skipped() {
        let frame = |types: &[u16]| {
            let mut bytes = std::vec![0; 12];
            for (n, ethertype) in types.iter().enumerate() {
                if n > 0 {
                    bytes.extend([0, 7]);
                }
                bytes.extend(ethertype.to_be_bytes());
            }
            bytes
        };
        assert_eq!(network(&frame(&[IPV4])), Ok((IPV4, 14)));
        assert_eq!(network(&frame(&[VLAN, IPV6])), Ok((IPV6, 18)));
        assert_eq!(network(&frame(&[SERVICE_VLAN, VLAN, ARP])), Ok((ARP, 22)));
        assert_eq!(network(&frame(&[VLAN, VLAN, VLAN, IPV4])), Ok((VLAN, 22)));
        assert_eq!(network(&frame(&[VLAN])), Err(MalformedPacket::Truncated));
        assert_eq!(network(&[0; 13]), Err(MalformedPacket::Truncated));
    }
}
