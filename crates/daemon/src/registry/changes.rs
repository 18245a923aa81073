//! Changes not yet saved with the service manager. With many ports, a full scan takes long, so requests that change one
//! or two objects record them here, and registries record which of theirs changed.

use std::collections::BTreeSet;

/// Changes since the last save.
#[derive(Debug, Default)]
pub struct UnsavedChanges {
    /// Whether anything may have changed.
    pub everything: bool,
    /// Connections whose requests may have changed their hold, and objects that the registries recorded.
    pub clients: BTreeSet<u64>,
}

impl UnsavedChanges {
    /// Whether there are no changes to save.
    pub fn are_none(&self) -> bool {
        !self.everything && self.clients.is_empty()
    }
}
