//! VLAN tags stay in their frames while an interface is open: AF_XDP does not see what is beside a frame.

use std::sync::atomic::{AtomicBool, Ordering};

use super::NicError;
use crate::iface::{self, Interface};

/// The driver whose frames are as the far end's stack left them, maybe with the tag beside them. It says which it was.
const VETH: &str = "veth";

/// A driver that takes tags out of frames, but leaves them in until this is dropped.
#[derive(Debug)]
pub(super) struct TagsLeft {
    ifindex: u32,
    is_own: AtomicBool,
}

/// Whether tags have to be put back that are beside their frames.
pub(super) fn are_beside(interface: &Interface) -> bool {
    iface::driver(&interface.name).as_deref() == Some(VETH)
}

impl TagsLeft {
    /// Has the driver leave tags in frames. `None`: it takes none out.
    ///
    /// # Errors
    /// [`NicError::Tags`] if it cannot be told.
    pub(super) fn ask(interface: &Interface) -> Result<Option<TagsLeft>, NicError> {
        let name = &interface.name;
        if are_beside(interface) || !iface::takes_tags(name) {
            return Ok(None);
        }
        iface::take_tags(name, false).map_err(|source| NicError::Tags { name: name.clone(), source })?;
        Ok(Some(TagsLeft { ifindex: interface.index, is_own: AtomicBool::new(true) }))
    }

    /// One that another process has told, which may still need it.
    pub(super) fn continued(ifindex: u32) -> TagsLeft {
        TagsLeft { ifindex, is_own: AtomicBool::new(false) }
    }

    pub(super) fn own(&self) {
        self.is_own.store(true, Ordering::Relaxed);
    }
}

impl Drop for TagsLeft {
    fn drop(&mut self) {
        let name = if self.is_own.load(Ordering::Relaxed) { iface::name_of(self.ifindex) } else { None };
        // Fails only if the interface is gone.
        let _ = name.map(|name| iface::take_tags(&name, true));
    }
}
