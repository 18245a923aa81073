//! What may have changed that the service manager keeps. With many ports, looking at each of them takes long: requests
//! that change a thing or two say so, and registries know which.

use std::collections::BTreeSet;

/// What may have changed since it was last kept.
#[derive(Debug, Default)]
pub struct Changes {
    /// Whether anything may have.
    pub everything: bool,
    /// Connections that asked for something: what they hold may have changed, and what registries say was touched.
    pub clients: BTreeSet<u64>,
}

impl Changes {
    /// Whether there are none.
    pub fn are_none(&self) -> bool {
        !self.everything && self.clients.is_empty()
    }
}
