//! Keeps VLAN tags in frames while an interface is open: AF_XDP does not see a tag in a frame's metadata.

use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use super::NicError;
use crate::bpf::XdpMode;
use crate::iface::{self, Interface, TagOffload};

/// The veth driver, which delivers frames as the far end's stack sent them, possibly with a VLAN tag in their metadata.
/// From Linux 6.8 on, it reports that tag to XDP programs.
const VETH: &str = "veth";

/// Keeps a driver configured so that received frames contain their VLAN tags: the interface's driver does not remove
/// tags or, for a veth, the far end's driver inserts them. Dropping this value restores the setting if `is_own` is
/// true.
#[derive(Debug)]
pub(super) struct TagsLeft {
    ifindex: u32,
    is_own: AtomicBool,
}

/// The treatment of VLAN tags at the far end of a veth, which matters if the kernel does not report tags in metadata.
#[derive(Debug)]
pub(super) enum VethEnd {
    /// The far end's driver already inserts tags into frames: nothing was changed.
    Never,
    /// The far end's driver was configured to insert tags into frames.
    Told(TagsLeft),
    /// The far end is in another network namespace, or cannot be configured: tags may be lost.
    Elsewhere,
}

/// Drivers of interfaces that get frames from other interfaces. The stack removes tags before frames reach such an
/// interface, so an XDP program in the stack does not see the tags.
const ABOVE_OTHERS: [&str; 6] = ["bridge", "bonding", "team", "macvlan", "ipvlan", "openvswitch"];

/// The reason why VLAN tags of received frames are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LostTags {
    /// The far end of the veth leaves tags in the metadata, and this kernel, older than Linux 6.8, does not report
    /// them.
    #[error(
        "VLAN tags that the far end leaves in the frames' metadata are lost, because this kernel is older than Linux \
         6.8: 'ethtool -K INTERFACE txvlan off' at the far end keeps them in the frames"
    )]
    FarEnd,
    /// The interface is a bridge, a bond, or similar.
    #[error(
        "frames come without their VLAN tags, which the kernel removes before frames reach such an interface: attach \
         the interfaces below it, or a TAP that is a port of it"
    )]
    AboveOthers,
}

impl LostTags {
    /// Returns [`LostTags::AboveOthers`] if tags are lost because frames arrive through other interfaces.
    pub(super) fn above_others(interface: &Interface, mode: XdpMode) -> Option<LostTags> {
        let is_above = || iface::driver(&interface.name).is_some_and(|driver| ABOVE_OTHERS.contains(&driver.as_str()));
        (mode == XdpMode::Generic && is_above()).then_some(LostTags::AboveOthers)
    }
}

/// Whether VLAN tags are in the metadata of frames, so that the XDP program must insert them into the frames.
pub(super) fn are_beside(interface: &Interface) -> bool {
    is_veth(&interface.name)
}

fn is_veth(name: &str) -> bool {
    iface::driver(name).as_deref() == Some(VETH)
}

impl VethEnd {
    /// Configures the far end to insert tags into its frames.
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

    /// Configures the driver to leave tags in received frames. Returns `None` if the driver does not remove tags, or
    /// the interface is a veth.
    ///
    /// # Errors
    /// [`NicError::Tags`] if the driver refuses.
    pub(super) fn ask(interface: &Interface) -> Result<Option<TagsLeft>, NicError> {
        let name = &interface.name;
        if are_beside(interface) || !iface::has_offload(name, TagOffload::Received) {
            return Ok(None);
        }
        let told = iface::set_offload(name, TagOffload::Received, false);
        told.map_err(|source| NicError::Tags { name: name.clone(), source })?;
        Ok(Some(TagsLeft::of(interface)))
    }

    /// Returns the guard for a driver that the predecessor configured and may still need. Dropping it changes nothing
    /// before [`TagsLeft::own`].
    pub(super) fn continued(ifindex: u32) -> TagsLeft {
        TagsLeft { ifindex, is_own: AtomicBool::new(false) }
    }

    pub(super) fn own(&self) {
        self.is_own.store(true, Ordering::Relaxed);
    }

    /// The name of the configured interface and its changed offload; `None` if the interface is gone.
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
