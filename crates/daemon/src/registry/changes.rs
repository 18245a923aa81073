//! Pending changes to the state that the service manager keeps. With many ports a full scan takes long, so requests
//! that change one or two things note them here, and registries note which.

use std::collections::BTreeSet;

/// Changes since the last save.
#[derive(Debug, Default)]
pub struct Changes {
    /// Whether anything may have changed.
    pub everything: bool,
    /// Connections whose requests may have changed their holds, and objects that the registries noted.
    pub clients: BTreeSet<u64>,
}

impl Changes {
    /// Whether nothing is pending.
    pub fn are_none(&self) -> bool {
        !self.everything && self.clients.is_empty()
    }
}
