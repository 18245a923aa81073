//! A card that goes on in another process: what it must be for that, from wherever the state comes.
//!
//! The parts of a card are read and written field by field. A card that comes from elsewhere has only bits that its
//! registers have, which `E1000::is_possible` and the parts' own checks make sure of.

use serde::{Deserialize, Serialize};

/// Version of what a port says of itself.
pub const VERSION: u32 = 1;

/// The controller's own state, without what the guest provides.
#[derive(Serialize, Deserialize)]
pub struct CoreState {
    /// The registers.
    pub(crate) e1000: crate::device::E1000,
    /// Nanoseconds since the card was made: its timers are relative to that.
    pub(crate) now: u64,
    /// Whether the driver has a status block, and the causes that it was last given.
    pub(crate) has_block: bool,
    pub(crate) told: u32,
    /// Whether an interrupt by pin may be sent.
    pub(crate) pin_ready: bool,
}
