//! VLANs: the VLAN of a port's frame, and its tag behind another port (IEEE 802.1Q §6.9, 802.1ad).
//!
//! As on a Linux bridge with `vlan_filtering`: a port is a member of VLANs; frames without a tag belong to its native
//! VLAN (`pvid`) and leave it without one, all others have their tag. By default a port is a member of VLAN 1, without
//! tags.
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
//! assert!(trunk.of(&untagged).is_err(), "a trunk without a native VLAN takes tagged frames only");
//! ```

use std::fmt;
use std::str::FromStr;

/// Number of a VLAN, 1 to 4094.
pub type VlanId = u16;

/// The VLAN of ports without VLAN settings.
pub const DEFAULT_VLAN: VlanId = 1;
/// The largest number; 4095 is reserved.
pub const MAX_VLAN: VlanId = 4094;

const WORDS: usize = 64;
const AT_TYPE: usize = 12;
/// Minimum bytes of a tagged frame of either protocol: as on Linux, the inner EtherType and two bytes behind it count
/// as part of the tag.
const LEAST_TAGGED: usize = 20;

/// Why VLAN settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadVlans {
    /// A text that is not a number in range.
    #[error("{0:?} is no VLAN: it is a number from 1 to {MAX_VLAN}")]
    Number(String),
    /// A range ends before it begins.
    #[error("{0:?} ends before it begins")]
    Range(String),
    /// An unknown protocol.
    #[error("{0:?} is no VLAN protocol: it is 802.1q or 802.1ad")]
    Protocol(String),
    /// An access port with a trunk's words.
    #[error("a port is an access port of one VLAN or a trunk of several: a trunk's VLAN without a tag is 'native'")]
    AccessAndTrunk,
    /// A native VLAN without a trunk.
    #[error("'native' is the VLAN of a trunk's frames without a tag; a port of one VLAN has 'access'")]
    NativeAlone,
    /// A protocol without VLANs.
    #[error("a VLAN protocol without a VLAN: say 'access' or 'trunk', too")]
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

/// Reads a VLAN's number.
///
/// # Errors
/// [`BadVlans::Number`] if the text is not a number from 1 to [`MAX_VLAN`].
pub fn vlan_id(text: &str) -> Result<VlanId, BadVlans> {
    let id = text.trim().parse().ok().filter(|id| (1..=MAX_VLAN).contains(id));
    id.ok_or_else(|| BadVlans::Number(text.trim().chars().take(20).collect()))
}

/// Numbers and ranges, separated by commas: `10,20-30`; `all`; `none`.
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

/// The EtherType of tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// 0x8100.
    #[default]
    Dot1q,
    /// 0x88a8: service tags; a customer's own tags are payload.
    Dot1ad,
}

impl Protocol {
    /// The EtherType in wire order.
    #[must_use]
    pub const fn bytes(self) -> [u8; 2] {
        match self {
            Protocol::Dot1q => [0x81, 0x00],
            Protocol::Dot1ad => [0x88, 0xa8],
        }
    }
}

impl FromStr for Protocol {
    type Err = BadVlans;

    fn from_str(text: &str) -> Result<Protocol, BadVlans> {
        match text.to_ascii_lowercase().as_str() {
            "802.1q" => Ok(Protocol::Dot1q),
            "802.1ad" => Ok(Protocol::Dot1ad),
            _ => Err(BadVlans::Protocol(text.chars().take(20).collect())),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Dot1q => "802.1q",
            Protocol::Dot1ad => "802.1ad",
        })
    }
}

/// The VLAN of a frame sent by a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// Its number.
    pub id: VlanId,
    /// Priority and drop eligibility, in the four upper bits of a tag's control information.
    pub priority: u16,
    /// Whether the frame came with a tag of the port's protocol.
    pub tagged: bool,
    /// Whether that tag also gives the VLAN, and not only a priority.
    pub stays: bool,
}

impl Vlan {
    /// The tag for a frame of this VLAN.
    #[must_use]
    pub const fn tag(self, protocol: Protocol) -> [u8; 4] {
        let [a, b] = protocol.bytes();
        let [c, d] = (self.priority | self.id).to_be_bytes();
        [a, b, c, d]
    }
}

/// Why a frame belongs to none of its port's VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The port is not a member of the VLAN, or takes no untagged frames.
    NoMember,
    /// The tag is truncated, or has the reserved number.
    BadTag,
}

/// The tag of a VLAN's frames when they leave a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// No tag.
    Plain,
    /// A tag of this protocol.
    Tagged(Protocol),
}

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlans {
    members: VlanSet,
    native: Option<VlanId>,
    /// The protocol of its tags.
    pub protocol: Protocol,
}

impl Default for Vlans {
    /// The VLANs of a port without VLAN settings.
    fn default() -> Vlans {
        Vlans::with(VlanSet::default(), Some(DEFAULT_VLAN))
    }
}

impl Vlans {
    fn with(mut members: VlanSet, native: Option<VlanId>) -> Vlans {
        native.iter().for_each(|&vlan| members.insert(vlan));
        Vlans { members, native, protocol: Protocol::default() }
    }

    /// The VLANs of an access port: one, without tags.
    ///
    /// # Errors
    /// [`BadVlans::Number`] if there is no such VLAN.
    pub fn access(vlan: VlanId) -> Result<Vlans, BadVlans> {
        Ok(Vlans::with(VlanSet::default(), Some(vlan_id(&vlan.to_string())?)))
    }

    /// The VLANs of a trunk: with tags; untagged frames belong to `native`, if set.
    ///
    /// # Errors
    /// [`BadVlans::Number`] if there is no such VLAN.
    pub fn trunk(vlans: VlanSet, native: Option<VlanId>) -> Result<Vlans, BadVlans> {
        let native = native.map(|vlan| vlan_id(&vlan.to_string())).transpose()?;
        Ok(Vlans::with(vlans, native))
    }

    /// Whether the port's VLANs are a subset of those of `most`.
    #[must_use]
    pub fn are_among(&self, most: &Vlans) -> bool {
        self.members.0.iter().zip(&most.members.0).all(|(is, most)| is & !most == 0)
    }

    /// The VLAN of untagged frames, if they are allowed.
    #[must_use]
    pub fn untagged(&self) -> Option<VlanId> {
        self.native
    }

    /// The same with tags of another protocol.
    #[must_use]
    pub fn with_protocol(self, protocol: Protocol) -> Vlans {
        Vlans { protocol, ..self }
    }

    /// The VLANs of a port's options; `None` without VLAN options.
    ///
    /// # Errors
    /// [`BadVlans`] if the options contradict each other, or are not VLANs.
    pub fn given(
        access: Option<VlanId>,
        trunk: Option<&VlanSet>,
        native: Option<VlanId>,
        protocol: Option<Protocol>,
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

    /// The VLAN of a frame that begins with `head`: its first 20 bytes or more, or all of a shorter one.
    ///
    /// A tag with number 0 gives only a priority: the frame belongs to the native VLAN.
    ///
    /// # Errors
    /// [`Refused`] if the port does not take the frame.
    #[inline]
    pub fn of(&self, head: &[u8]) -> Result<Vlan, Refused> {
        let protocol = head.get(AT_TYPE..AT_TYPE + 2).unwrap_or_default();
        if protocol != self.protocol.bytes() {
            if head.len() < LEAST_TAGGED && [Protocol::Dot1q, Protocol::Dot1ad].iter().any(|p| protocol == p.bytes()) {
                return Err(Refused::BadTag);
            }
            let id = self.native.ok_or(Refused::NoMember)?;
            return Ok(Vlan { id, priority: 0, tagged: false, stays: false });
        }
        let [_, _, a, b, _, _, _, _] = head.get(AT_TYPE..).and_then(<[u8]>::first_chunk).ok_or(Refused::BadTag)?;
        let control = u16::from_be_bytes([*a, *b]);
        let id = match control & 0xfff {
            0 => self.native.ok_or(Refused::NoMember)?,
            0xfff => return Err(Refused::BadTag),
            id if self.members.contains(id) => id,
            _ => return Err(Refused::NoMember),
        };
        Ok(Vlan { id, priority: control & 0xf000, tagged: true, stays: control & 0xfff != 0 })
    }

    /// The tagging of a VLAN's frames when they leave the port; `None` if they do not leave.
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

    fn tagged(protocol: Protocol, control: u16, len: usize) -> Vec<u8> {
        let mut frame = vec![0; 64];
        frame[12..14].copy_from_slice(&protocol.bytes());
        frame[14..16].copy_from_slice(&control.to_be_bytes());
        frame.truncate(len);
        frame
    }

    proptest! {
        /// Objective: any set reads back as written.
        #[test]
        fn sets_round_trip(vlans in proptest::collection::vec(1u16..=4094, 0..80)) {
            let mut set = VlanSet::default();
            vlans.iter().for_each(|&vlan| set.insert(vlan));
            prop_assert_eq!(set.to_string().parse::<VlanSet>().unwrap(), set.clone());
            prop_assert!((0..=4095).all(|vlan| set.contains(vlan) == vlans.contains(&vlan)));
        }

        /// Objective: whatever a frame begins with, a port assigns it to one of its own VLANs, or refuses it.
        #[test]
        fn only_members(head in proptest::collection::vec(any::<u8>(), 0..40), tag in 0u8..3) {
            let mut head = head;
            if head.len() > 13 && tag > 0 {
                head[12..14].copy_from_slice(&[Protocol::Dot1q, Protocol::Dot1ad][usize::from(tag) - 1].bytes());
            }
            for vlans in [Vlans::access(7).unwrap(), Vlans::trunk("5-9,4094".parse().unwrap(), Some(3)).unwrap()] {
                if let Ok(vlan) = vlans.of(&head) {
                    prop_assert!(vlans.tagging(vlan.id).is_some());
                }
            }
        }
    }

    /// Objective: each kind of port takes and tags frames like a Linux bridge.
    #[test]
    fn kinds_of_ports() {
        use {Protocol::*, Refused::*};
        let access = Vlans::access(10).unwrap();
        let trunk = Vlans::trunk("20,30-31".parse().unwrap(), Some(5)).unwrap();
        let service = Vlans::access(10).unwrap().with_protocol(Dot1ad);
        let of = |vlans: &Vlans, control| vlans.of(&tagged(Dot1q, control, 64)).map(|v| (v.id, v.priority, v.tagged));
        assert_eq!(access.of(&[0; 60]), Ok(Vlan { id: 10, priority: 0, tagged: false, stays: false }));
        assert_eq!(of(&access, 10), Ok((10, 0, true)));
        assert_eq!(of(&access, 0xe000), Ok((10, 0xe000, true)), "a tag that says a priority only");
        assert_eq!(of(&access, 11), Err(NoMember));
        assert_eq!(of(&trunk, 0x7000 | 31), Ok((31, 0x7000, true)));
        assert_eq!([of(&trunk, 4095), of(&trunk, 10)], [Err(BadTag), Err(NoMember)]);
        assert_eq!(trunk.of(&tagged(Dot1q, 20, 19)), Err(BadTag), "cut short");
        assert_eq!(trunk.of(&tagged(Dot1ad, 20, 16)), Err(BadTag), "cut short, of the other protocol");
        assert_eq!(of(&service, 999), Ok((10, 0, false)), "a customer's tag is payload");
        assert_eq!(service.of(&tagged(Dot1ad, 10, 64)).map(|v| v.tagged), Ok(true));
        let tagging = [5, 20, 10].map(|vlan| trunk.tagging(vlan));
        assert_eq!(tagging, [Some(Tagging::Plain), Some(Tagging::Tagged(Dot1q)), None]);
        assert_eq!(Vlans::default().tagging(1), Some(Tagging::Plain));
        assert_eq!(Vlan { id: 31, priority: 0x7000, tagged: true, stays: true }.tag(Dot1ad), [0x88, 0xa8, 0x70, 31]);
    }

    /// Objective: words that contradict each other, or are not VLANs, are refused by name.
    #[test]
    fn refused() {
        let of = Vlans::given;
        let two: VlanSet = "2".parse().unwrap();
        assert_eq!(of(None, None, None, None), Ok(None));
        assert_eq!(of(Some(1), Some(&two), None, None), Err(BadVlans::AccessAndTrunk));
        assert_eq!(of(Some(1), None, Some(2), None), Err(BadVlans::AccessAndTrunk));
        assert_eq!(of(None, None, Some(2), None), Err(BadVlans::NativeAlone));
        assert_eq!(of(None, None, None, Some(Protocol::Dot1ad)), Err(BadVlans::ProtocolAlone));
        assert_eq!(of(Some(4095), None, None, None), Err(BadVlans::Number("4095".into())));
        for text in ["", "0", "1-", "-", "5,x", "1-4095", "1 2"] {
            assert!(text.parse::<VlanSet>().is_err(), "{text:?}");
        }
        assert_eq!("9-8".parse::<VlanSet>(), Err(BadVlans::Range("9-8".into())));
        assert_eq!("all".parse::<VlanSet>().unwrap().to_string(), "1-4094");
        assert_eq!("1, 2,4-6".parse::<VlanSet>().unwrap().to_string(), "1,2,4-6");
        assert!(matches!("vlan".parse::<Protocol>(), Err(BadVlans::Protocol(_))));
    }
}
