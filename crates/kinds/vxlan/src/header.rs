//! The VXLAN header (RFC 7348 §5): flags, 24 bits of VNI, and reserved bits, which are zero when sent and ignored when
//! received.

/// Size of the header in bytes.
pub const LEN: usize = 8;
/// The flag that marks the VNI as valid.
const HAS_VNI: u8 = 0x08;

/// Returns the header that precedes frames of a VNI.
#[must_use]
pub const fn encode(vni: u32) -> [u8; LEN] {
    let [_, a, b, c] = vni.to_be_bytes();
    [HAS_VNI, 0, 0, 0, a, b, c, 0]
}

/// Returns the VNI of a datagram; `None` if the datagram is shorter than a header, or its header has no valid VNI.
#[inline]
#[must_use]
pub fn decode(datagram: &[u8]) -> Option<u32> {
    let header: &[u8; LEN] = datagram.first_chunk()?;
    (header[0] & HAS_VNI != 0).then(|| u32::from_be_bytes([0, header[4], header[5], header[6]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: the header has the I flag and the VNI's offset of RFC 7348 §5, and reserved bits are ignored on
    /// receipt.
    #[test]
    fn the_header_has_the_layout_of_rfc_7348() {
        assert_eq!(encode(0x01_0203), [8, 0, 0, 0, 1, 2, 3, 0]);
        let largest = (1 << 24) - 1;
        assert_eq!(encode(largest)[4..], [0xff, 0xff, 0xff, 0]);
        assert_eq!(decode(&[0xff, 1, 2, 3, 0, 0, 42, 9, 7]), Some(42));
        assert_eq!(decode(&[0x08, 0, 0, 0, 0, 0, 42]), None, "cut short");
        assert_eq!(decode(&[0xf7, 0, 0, 0, 0, 0, 42, 0]), None, "no VNI");
        for vni in [0, 1, 77, largest] {
            assert_eq!(decode(&encode(vni)), Some(vni));
        }
    }
}
