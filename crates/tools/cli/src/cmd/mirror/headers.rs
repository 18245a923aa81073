//! The headers that precede each mirrored frame.

use netvale_vxlan::header;
use netvale_wire::ethernet;

/// TZSP header, version 1: a received packet, Ethernet, no tags.
const TZSP: [u8; 5] = [1, 0, 0, 1, 1];
/// GRE header (RFC 2890) with a sequence number, and ERSPAN as its protocol.
const GRE: [u8; 4] = [0x10, 0, 0x88, 0xbe];

/// The headers between the headers that the kernel's socket adds and the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelHeaders {
    /// TZSP, over UDP.
    Tzsp,
    /// VXLAN, with its VNI.
    Vxlan(u32),
    /// GRE and ERSPAN type II, with its session ID, up to 1023.
    Erspan(u16),
}

impl TunnelHeaders {
    /// Writes the headers of a frame. `is_cut` is set if only a part of the frame is sent. `number` is the sequence
    /// number: the number of frames that were sent before this one.
    pub fn write(self, to: &mut Vec<u8>, frame: &[u8], is_cut: bool, number: u32) {
        match self {
            TunnelHeaders::Tzsp => to.extend_from_slice(&TZSP),
            TunnelHeaders::Vxlan(vni) => to.extend_from_slice(&header::encode(vni)),
            TunnelHeaders::Erspan(session) => {
                to.extend_from_slice(&GRE);
                to.extend_from_slice(&number.to_be_bytes());
                to.extend_from_slice(&erspan(session, frame, is_cut));
            }
        }
    }
}

/// Returns the header of ERSPAN type II (draft-foschiano-erspan-03, section 4.2): version 1, VLAN 0, class 0, location
/// of VLAN tags (3: in the frame), the bit for truncated frames, the session ID, and index 0.
fn erspan(session: u16, frame: &[u8], is_cut: bool) -> [u8; 8] {
    let is_tagged = ethernet::network(frame).is_ok_and(|(_, l3)| l3 > ethernet::HEADER_LEN);
    let tags = if is_tagged { 3 << 11 } else { 0 };
    let [a, b] = (tags | u16::from(is_cut) << 10 | session & 0x3ff).to_be_bytes();
    [0x10, 0, a, b, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each kind of header has its specified bytes.
    #[test]
    fn each_header_has_its_bytes() {
        let written = |headers: TunnelHeaders, frame: &[u8], is_cut| {
            let mut to = Vec::new();
            headers.write(&mut to, frame, is_cut, 0x0102_0304);
            to
        };
        let mut plain = [0; 60];
        let mut tagged = [0; 60];
        plain[12..14].copy_from_slice(&[8, 0]);
        tagged[12..18].copy_from_slice(&[0x81, 0, 0, 5, 8, 0]);
        assert_eq!(written(TunnelHeaders::Tzsp, &plain, true), [1, 0, 0, 1, 1]);
        assert_eq!(written(TunnelHeaders::Vxlan(77), &plain, false), [8, 0, 0, 0, 0, 0, 77, 0]);
        let gre = [0x10, 0, 0x88, 0xbe, 1, 2, 3, 4];
        let erspan = |session, frame: &[u8], is_cut| written(TunnelHeaders::Erspan(session), frame, is_cut);
        assert_eq!(erspan(5, &plain, false), [gre, [0x10, 0, 0, 5, 0, 0, 0, 0]].concat());
        assert_eq!(erspan(0x3ff, &tagged, true), [gre, [0x10, 0, 0x1f, 0xff, 0, 0, 0, 0]].concat());
    }
}
