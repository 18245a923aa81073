//! Changes that are not yet saved with the service manager. With many ports, comparing all objects takes long.
//! Therefore each request records here which connections it changes, and each registry records which of its objects
//! change.

use std::collections::BTreeSet;

/// Changes since the last save.
#[derive(Debug, Default)]
pub struct UnsavedChanges {
    /// Whether everything must be saved, because anything may have changed.
    pub everything: bool,
    /// Connections whose hold on a port may have changed. If there are any, the objects that the registries have
    /// recorded are saved as well.
    pub clients: BTreeSet<u64>,
}

impl UnsavedChanges {
    /// Whether there are no changes to save.
    pub fn are_none(&self) -> bool {
        !self.everything && self.clients.is_empty()
    }
}
