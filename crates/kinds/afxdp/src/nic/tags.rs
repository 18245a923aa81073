//! VLAN tags stay in their frames while an interface is open: AF_XDP does not see what is beside a frame.

use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::NicError;
use crate::bpf::Mode;
use crate::iface::{self, Interface, TagOffload};

/// The driver whose frames are as the far end's stack left them, maybe with the tag beside them. It says which it was
/// (Linux 6.8).
const VETH: &str = "veth";

/// A driver that takes tags out of frames, but leaves them in until this is dropped; behind a veth, the far end's
/// driver, whose stack leaves them out.
#[derive(Debug)]
pub(super) struct TagsLeft {
    ifindex: u32,
    is_own: AtomicBool,
}

/// What becomes of tags that the far end of a veth leaves beside frames, where the kernel does not say which they were.
#[derive(Debug)]
pub(super) enum VethEnd {
    /// It leaves none beside frames.
    Never,
    /// It does not any more.
    Told(TagsLeft),
    /// It is in another network namespace: they may be lost.
    Elsewhere,
}

/// Drivers of interfaces that get their frames of other ones. The stack has taken the tags out of them by then, and a
/// program in the stack does not see that.
const ABOVE_OTHERS: [&str; 6] = ["bridge", "bonding", "team", "macvlan", "ipvlan", "openvswitch"];

/// Why VLAN tags of received frames are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LostTags {
    /// Before Linux 6.8.
    #[error(
        "VLAN tags that its other end's stack leaves beside frames are lost, as this kernel is older than Linux 6.8: \
         'ethtool -K INTERFACE txvlan off' at that end has it put them in"
    )]
    FarEnd,
    /// A bridge, a bond.
    #[error(
        "frames come without their VLAN tags, which the kernel takes out before it hands them to such an interface: \
         attach those below it, or a TAP that is a port of it"
    )]
    AboveOthers,
}

impl LostTags {
    /// Whether tags are lost because frames come by other interfaces.
    pub(super) fn above_others(interface: &Interface, mode: Mode) -> Option<LostTags> {
        let is_above = || iface::driver(&interface.name).is_some_and(|driver| ABOVE_OTHERS.contains(&driver.as_str()));
        (mode == Mode::Generic && is_above()).then_some(LostTags::AboveOthers)
    }
}

/// Whether tags have to be put back that are beside their frames.
pub(super) fn are_beside(interface: &Interface) -> bool {
    is_veth(&interface.name)
}

fn is_veth(name: &str) -> bool {
    iface::driver(name).as_deref() == Some(VETH)
}

impl VethEnd {
    /// Has the far end put tags into its frames.
    pub(super) fn ask(interface: &Interface) -> VethEnd {
        match iface::far_end(interface.index) {
            Some(name) if !iface::has_offload(&name, TagOffload::Sent) => VethEnd::Never,
            Some(name) if iface::set_offload(&name, TagOffload::Sent, false).is_ok() => {
                VethEnd::Told(TagsLeft::of(interface))
            }
            _ => VethEnd::Elsewhere,
        }
    }
}

impl TagsLeft {
    fn of(interface: &Interface) -> TagsLeft {
        TagsLeft { ifindex: interface.index, is_own: AtomicBool::new(true) }
    }

    /// Has the driver leave tags in frames. `None`: it takes none out.
    ///
    /// # Errors
    /// [`NicError::Tags`] if it cannot be told.
    pub(super) fn ask(interface: &Interface) -> Result<Option<TagsLeft>, NicError> {
        let name = &interface.name;
        if are_beside(interface) || !iface::has_offload(name, TagOffload::Received) {
            return Ok(None);
        }
        let told = iface::set_offload(name, TagOffload::Received, false);
        told.map_err(|source| NicError::Tags { name: name.clone(), source })?;
        Ok(Some(TagsLeft::of(interface)))
    }

    /// One that another process has told, which may still need it.
    pub(super) fn continued(ifindex: u32) -> TagsLeft {
        TagsLeft { ifindex, is_own: AtomicBool::new(false) }
    }

    pub(super) fn own(&self) {
        self.is_own.store(true, Ordering::Relaxed);
    }

    /// The interface whose driver was told, and what.
    fn told(&self) -> Option<(String, TagOffload)> {
        let name = iface::name_of(self.ifindex).ok()??;
        if is_veth(&name) {
            return Some((iface::far_end(self.ifindex)?, TagOffload::Sent));
        }
        Some((name, TagOffload::Received))
    }
}

impl Drop for TagsLeft {
    fn drop(&mut self) {
        let told = if self.is_own.load(Ordering::Relaxed) { self.told() } else { None };
        // Fails only if the interface is gone.
        let _ = told.map(|(name, offload)| iface::set_offload(&name, offload, true));
    }
}
