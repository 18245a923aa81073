//! Changes not yet saved with the service manager. With many ports, comparing all objects takes long, so requests
//! record here which connections they change, and each registry records which of its objects change.

use std::collections::BTreeSet;

/// Changes since the last save.
#[derive(Debug, Default)]
pub struct UnsavedChanges {
    /// Whether anything may have changed.
    pub everything: bool,
    /// Connections whose hold on a port may have changed. While there are any, the objects that the registries recorded
    /// are saved, too.
    pub clients: BTreeSet<u64>,
}

impl UnsavedChanges {
    /// Whether there are no changes to save.
    pub fn are_none(&self) -> bool {
        !self.everything && self.clients.is_empty()
    }
}
