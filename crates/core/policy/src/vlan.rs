//! VLANs: the VLAN of a frame that a port sends, and the frame's tag when the frame leaves another port (IEEE 802.1Q
//! §6.9, 802.1ad).
//!
//! The rules are those of a Linux bridge with `vlan_filtering`. A port is a member of VLANs. Frames without a tag
//! belong to the port's native VLAN (`pvid`). Frames of the native VLAN leave the port without a tag, frames of other
//! VLANs leave it with a tag. By default a port is a member of VLAN 1 only, which is its native VLAN.
//!
//! ```
//! use netvale_policy::vlan::{Tagging, Vlans};
//!
//! let (access, trunk) = (Vlans::access(10).unwrap(), Vlans::trunk("10,20-30".parse().unwrap(), None).unwrap());
//! let mut untagged = [0u8; 60];
//! let vlan = access.of(&untagged).unwrap();
//! assert_eq!((vlan.id, vlan.tagged), (10, false));
//! assert_eq!(access.tagging(vlan.id), Some(Tagging::Plain));
//! assert_eq!(trunk.tagging(vlan.id), Some(Tagging::Tagged(trunk.protocol)));
//! assert!(trunk.of(&untagged).is_err(), "a trunk without a native VLAN accepts only tagged frames");
//! ```

use std::fmt;
use std::str::FromStr;

/// The number of a VLAN, 1 to 4094.
pub type VlanId = u16;

/// The VLAN of ports without VLAN settings.
pub const DEFAULT_VLAN: VlanId = 1;
/// The largest number of a VLAN; 4095 is reserved.
pub const MAX_VLAN: VlanId = 4094;

const WORDS: usize = 64;
const AT_TYPE: usize = 12;
/// Minimum length of a tagged frame of either protocol, bytes: as in Linux, the inner EtherType and the two bytes after
/// it count as part of the tag.
const LEAST_TAGGED: usize = 20;

/// The reason why VLAN settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVlans {
    /// The text is not a number of a VLAN.
    #[error("invalid VLAN {0:?}: expected 1–{MAX_VLAN}")]
    Number(String),
    /// The end of a range is below its start.
    #[error("invalid VLAN range {0:?}: expected the lower number first")]
    Range(String),
    /// The protocol is unknown.
    #[error("invalid VLAN protocol {0:?}: expected 802.1q or 802.1ad")]
    Protocol(String),
    /// `access` is given together with `trunk` or `native`.
    #[error("'access' excludes 'trunk' and 'native': a port has either one VLAN or is a trunk")]
    AccessAndTrunk,
    /// `native` is given without `trunk`.
    #[error("'native' requires 'trunk'; use 'access' for a port with one VLAN")]
    NativeAlone,
    /// A tag protocol is given without `access` or `trunk`.
    #[error("a VLAN protocol requires 'access' or 'trunk'")]
    ProtocolAlone,
}

/// A set of VLANs.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet([u64; WORDS]);

impl Default for VlanSet {
    fn default() -> VlanSet {
        VlanSet([0; WORDS])
    }
}

impl VlanSet {
    /// Adds a VLAN.
    pub fn insert(&mut self, vlan: VlanId) {
        if let Some(word) = self.0.get_mut(usize::from(vlan / 64)) {
            *word |= 1 << (vlan % 64);
        }
    }

    /// Whether the set contains a VLAN.
    #[inline]
    #[must_use]
    pub fn contains(&self, vlan: VlanId) -> bool {
        self.0.get(usize::from(vlan / 64)).is_some_and(|word| word >> (vlan % 64) & 1 != 0)
    }

    /// The VLANs, in order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..=MAX_VLAN).filter(|&vlan| self.contains(vlan))
    }
}

/// Reads the number of a VLAN.
///
/// # Errors
/// [`BadVlans::Number`] if the text is not a number from 1 to [`MAX_VLAN`].
pub fn vlan_id(text: &str) -> Result<VlanId, BadVlans> {
    let id = text.trim().parse().ok().filter(|id| (1..=MAX_VLAN).contains(id));
    id.ok_or_else(|| BadVlans::Number(text.trim().chars().take(20).collect()))
}

/// Reads numbers and ranges, separated by commas (`10,20-30`), `all` or `none`.
impl FromStr for VlanSet {
    type Err = BadVlans;

    fn from_str(text: &str) -> Result<VlanSet, BadVlans> {
        let mut set = VlanSet::default();
        let ranges = match text.trim() {
            "none" => return Ok(set),
            "all" => "1-4094",
            ranges => ranges,
        };
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first = vlan_id(first)?;
            let last = vlan_id(last)?;
            if last < first {
                return Err(BadVlans::Range(range.trim().chars().take(20).collect()));
            }
            (first..=last).for_each(|vlan| set.insert(vlan));
        }
        Ok(set)
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut vlans = self.iter().peekable();
        let mut sep = "";
        if vlans.peek().is_none() {
            return f.write_str("none");
        }
        while let Some(first) = vlans.next() {
            let mut last = first;
            while let Some(next) = vlans.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{sep}{first}")?,
                1 => write!(f, "{sep}{first},{last}")?,
                _ => write!(f, "{sep}{first}-{last}")?,
            }
            sep = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VlanSet({self})")
    }
}

/// The protocol of tags, which determines their EtherType.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagProtocol {
    /// EtherType 0x8100: customer tags (802.1Q).
    #[default]
    Dot1q,
    /// EtherType 0x88a8: service tags (802.1ad). Customers' tags are payload.
    Dot1ad,
}

impl TagProtocol {
    /// The EtherType in wire order.
    #[must_use]
    pub const fn bytes(self) -> [u8; 2] {
        match self {
            TagProtocol::Dot1q => [0x81, 0x00],
            TagProtocol::Dot1ad => [0x88, 0xa8],
        }
    }
}

impl FromStr for TagProtocol {
    type Err = BadVlans;

    fn from_str(text: &str) -> Result<TagProtocol, BadVlans> {
        match text.to_ascii_lowercase().as_str() {
            "802.1q" => Ok(TagProtocol::Dot1q),
            "802.1ad" => Ok(TagProtocol::Dot1ad),
            _ => Err(BadVlans::Protocol(text.chars().take(20).collect())),
        }
    }
}

impl fmt::Display for TagProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TagProtocol::Dot1q => "802.1q",
            TagProtocol::Dot1ad => "802.1ad",
        })
    }
}

/// The VLAN of a frame sent by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The number of the VLAN.
    pub id: VlanId,
    /// Priority and drop eligibility, in the upper four bits as in a tag's control information.
    pub priority: u16,
    /// Whether the frame has a tag of the port's protocol.
    pub tagged: bool,
    /// Whether the frame's tag contains the VLAN's number, not only a priority.
    pub stays: bool,
}

impl Vlan {
    /// Returns the tag of a frame of this VLAN.
    #[must_use]
    pub const fn tag(self, protocol: TagProtocol) -> [u8; 4] {
        let [a, b] = protocol.bytes();
        let [c, d] = (self.priority | self.id).to_be_bytes();
        [a, b, c, d]
    }
}

/// The reason why a frame belongs to none of its port's VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanViolation {
    /// The port is not a member of the VLAN, or accepts no untagged frames.
    NoMember,
    /// The tag is truncated, or its VLAN is reserved.
    BadTag,
}

/// The tag of a VLAN's frames when they leave a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// No tag.
    Plain,
    /// A tag of this protocol.
    Tagged(TagProtocol),
}

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlans {
    members: VlanSet,
    native: Option<VlanId>,
    /// The protocol of the port's tags.
    pub protocol: TagProtocol,
}

impl Default for Vlans {
    /// Returns the VLANs of a port without VLAN settings.
    fn default() -> Vlans {
        Vlans::with(VlanSet::default(), Some(DEFAULT_VLAN))
    }
}

impl Vlans {
    fn with(mut members: VlanSet, native: Option<VlanId>) -> Vlans {
        native.iter().for_each(|&vlan| members.insert(vlan));
        Vlans { members, native, protocol: TagProtocol::default() }
    }

    /// Returns the VLANs of an access port: one VLAN, without tags.
    ///
    /// # Errors
    /// [`BadVlans::Number`] if the number is out of range.
    pub fn access(vlan: VlanId) -> Result<Vlans, BadVlans> {
        Ok(Vlans::with(VlanSet::default(), Some(vlan_id(&vlan.to_string())?)))
    }

    /// Returns the VLANs of a trunk. Frames have tags; untagged frames belong to `native`, if set.
    ///
    /// # Errors
    /// [`BadVlans::Number`] if the number is out of range.
    pub fn trunk(vlans: VlanSet, native: Option<VlanId>) -> Result<Vlans, BadVlans> {
        let native = native.map(|vlan| vlan_id(&vlan.to_string())).transpose()?;
        Ok(Vlans::with(vlans, native))
    }

    /// Whether `most` contains all VLANs of which the port is a member.
    #[must_use]
    pub fn are_among(&self, most: &Vlans) -> bool {
        self.members.0.iter().zip(&most.members.0).all(|(is, most)| is & !most == 0)
    }

    /// The VLAN of untagged frames; `None` if the port accepts only tagged frames.
    #[must_use]
    pub fn untagged(&self) -> Option<VlanId> {
        self.native
    }

    /// Returns the same VLANs with tags of another protocol.
    #[must_use]
    pub fn with_protocol(self, protocol: TagProtocol) -> Vlans {
        Vlans { protocol, ..self }
    }

    /// Returns the VLANs that a port's options specify; `None` if there are no VLAN options.
    ///
    /// # Errors
    /// [`BadVlans`] if the options contradict each other, or are invalid.
    pub fn given(
        access: Option<VlanId>,
        trunk: Option<&VlanSet>,
        native: Option<VlanId>,
        protocol: Option<TagProtocol>,
    ) -> Result<Option<Vlans>, BadVlans> {
        let vlans = match (access, trunk, native) {
            (Some(_), None, Some(_)) | (Some(_), Some(_), _) => return Err(BadVlans::AccessAndTrunk),
            (Some(vlan), None, None) => Vlans::access(vlan)?,
            (None, Some(set), native) => Vlans::trunk(set.clone(), native)?,
            (None, None, Some(_)) => return Err(BadVlans::NativeAlone),
            (None, None, None) if protocol.is_some() => return Err(BadVlans::ProtocolAlone),
            (None, None, None) => return Ok(None),
        };
        Ok(Some(vlans.with_protocol(protocol.unwrap_or_default())))
    }

    /// Returns the VLAN of a frame that the port sends. `head` contains at least the frame's first 20 bytes, or the
    /// whole frame if the frame is shorter.
    ///
    /// A tag with number 0 contains only a priority: the frame belongs to the native VLAN.
    ///
    /// # Errors
    /// [`VlanViolation`] if the port does not accept the frame.
    #[inline]
    pub fn of(&self, head: &[u8]) -> Result<Vlan, VlanViolation> {
        let protocol = head.get(AT_TYPE..AT_TYPE + 2).unwrap_or_default();
        if protocol != self.protocol.bytes() {
            if head.len() < LEAST_TAGGED
                && [TagProtocol::Dot1q, TagProtocol::Dot1ad].iter().any(|p| protocol == p.bytes())
            {
                return Err(VlanViolation::BadTag);
            }
            let id = self.native.ok_or(VlanViolation::NoMember)?;
            return Ok(Vlan { id, priority: 0, tagged: false, stays: false });
        }
        let [_, _, a, b, _, _, _, _] =
            head.get(AT_TYPE..).and_then(<[u8]>::first_chunk).ok_or(VlanViolation::BadTag)?;
        let control = u16::from_be_bytes([*a, *b]);
        let id = match control & 0xfff {
            0 => self.native.ok_or(VlanViolation::NoMember)?,
            0xfff => return Err(VlanViolation::BadTag),
            id if self.members.contains(id) => id,
            _ => return Err(VlanViolation::NoMember),
        };
        Ok(Vlan { id, priority: control & 0xf000, tagged: true, stays: control & 0xfff != 0 })
    }

    /// Returns the tagging of a VLAN's frames when they leave the port; `None` if the port is not a member.
    #[inline]
    #[must_use]
    pub fn tagging(&self, vlan: VlanId) -> Option<Tagging> {
        match self.native {
            Some(native) if native == vlan => Some(Tagging::Plain),
            _ if self.members.contains(vlan) => Some(Tagging::Tagged(self.protocol)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tagged(protocol: TagProtocol, control: u16, len: usize) -> Vec<u8> {
        let mut frame = vec![0; 64];
        frame[12..14].copy_from_slice(&protocol.bytes());
        frame[14..16].copy_from_slice(&control.to_be_bytes());
        frame.truncate(len);
        frame
    }

    proptest! {
        /// Objective: a printed set reads back as the same set.
        #[test]
        fn any_set_reads_back_as_written(vlans in proptest::collection::vec(1u16..=4094, 0..80)) {
            let mut set = VlanSet::default();
            vlans.iter().for_each(|&vlan| set.insert(vlan));
            prop_assert_eq!(set.to_string().parse::<VlanSet>().unwrap(), set.clone());
            prop_assert!((0..=4095).all(|vlan| set.contains(vlan) == vlans.contains(&vlan)));
        }

        /// Objective: whatever its first bytes, a frame is assigned to one of its port's VLANs, or refused.
        #[test]
        fn frames_get_only_vlans_of_their_port(head in proptest::collection::vec(any::<u8>(), 0..40), tag in 0u8..3) {
            let mut head = head;
            if head.len() > 13 && tag > 0 {
                head[12..14].copy_from_slice(&[TagProtocol::Dot1q, TagProtocol::Dot1ad][usize::from(tag) - 1].bytes());
            }
            for vlans in [Vlans::access(7).unwrap(), Vlans::trunk("5-9,4094".parse().unwrap(), Some(3)).unwrap()] {
                if let Ok(vlan) = vlans.of(&head) {
                    prop_assert!(vlans.tagging(vlan.id).is_some());
                }
            }
        }
    }

    /// Objective: each kind of port accepts and tags frames like a port of a Linux bridge.
    #[test]
    fn ports_take_and_tag_frames_like_a_linux_bridge() {
        use {TagProtocol::*, VlanViolation::*};
        let access = Vlans::access(10).unwrap();
        let trunk = Vlans::trunk("20,30-31".parse().unwrap(), Some(5)).unwrap();
        let service = Vlans::access(10).unwrap().with_protocol(Dot1ad);
        let of = |vlans: &Vlans, control| vlans.of(&tagged(Dot1q, control, 64)).map(|v| (v.id, v.priority, v.tagged));
        assert_eq!(access.of(&[0; 60]), Ok(Vlan { id: 10, priority: 0, tagged: false, stays: false }));
        assert_eq!(of(&access, 10), Ok((10, 0, true)));
        assert_eq!(of(&access, 0xe000), Ok((10, 0xe000, true)), "a tag that contains only a priority");
        assert_eq!(of(&access, 11), Err(NoMember));
        assert_eq!(of(&trunk, 0x7000 | 31), Ok((31, 0x7000, true)));
        assert_eq!([of(&trunk, 4095), of(&trunk, 10)], [Err(BadTag), Err(NoMember)]);
        assert_eq!(trunk.of(&tagged(Dot1q, 20, 19)), Err(BadTag), "a truncated tag");
        assert_eq!(trunk.of(&tagged(Dot1ad, 20, 16)), Err(BadTag), "a truncated tag of the other protocol");
        assert_eq!(of(&service, 999), Ok((10, 0, false)), "a customer's tag is payload");
        assert_eq!(service.of(&tagged(Dot1ad, 10, 64)).map(|v| v.tagged), Ok(true));
        let tagging = [5, 20, 10].map(|vlan| trunk.tagging(vlan));
        assert_eq!(tagging, [Some(Tagging::Plain), Some(Tagging::Tagged(Dot1q)), None]);
        assert_eq!(Vlans::default().tagging(1), Some(Tagging::Plain));
        assert_eq!(Vlan { id: 31, priority: 0x7000, tagged: true, stays: true }.tag(Dot1ad), [0x88, 0xa8, 0x70, 31]);
    }

    /// Objective: options that contradict each other, or are not VLANs, are refused, each for its own reason.
    #[test]
    fn contradictory_or_invalid_words_are_refused_by_name() {
        let of = Vlans::given;
        let two: VlanSet = "2".parse().unwrap();
        assert_eq!(of(None, None, None, None), Ok(None));
        assert_eq!(of(Some(1), Some(&two), None, None), Err(BadVlans::AccessAndTrunk));
        assert_eq!(of(Some(1), None, Some(2), None), Err(BadVlans::AccessAndTrunk));
        assert_eq!(of(None, None, Some(2), None), Err(BadVlans::NativeAlone));
        assert_eq!(of(None, None, None, Some(TagProtocol::Dot1ad)), Err(BadVlans::ProtocolAlone));
        assert_eq!(of(Some(4095), None, None, None), Err(BadVlans::Number("4095".into())));
        for text in ["", "0", "1-", "-", "5,x", "1-4095", "1 2"] {
            assert!(text.parse::<VlanSet>().is_err(), "{text:?}");
        }
        assert_eq!("9-8".parse::<VlanSet>(), Err(BadVlans::Range("9-8".into())));
        assert_eq!("all".parse::<VlanSet>().unwrap().to_string(), "1-4094");
        assert_eq!("1, 2,4-6".parse::<VlanSet>().unwrap().to_string(), "1,2,4-6");
        assert!(matches!("vlan".parse::<TagProtocol>(), Err(BadVlans::Protocol(_))));
    }
}
