//! Saved state of a card, and its consistency when it comes from another process.
//!
//! The parts of a card are read and written field by field. `E1000::is_possible` and the parts' own checks ensure that
//! a restored card has only bits that its registers have.

use serde::{Deserialize, Serialize};

/// Version of a port's state.
pub const VERSION: u32 = 1;

/// The controller's own state, without what the guest provides.
#[derive(Serialize, Deserialize)]
pub struct CoreState {
    /// The registers.
    pub(crate) e1000: crate::device::E1000,
    /// Nanoseconds since the card's creation, the base of its timers.
    pub(crate) now: u64,
    /// Whether the driver has a status block, and the causes last written to it.
    pub(crate) has_block: bool,
    pub(crate) told: u32,
    /// Whether a pin interrupt may be sent.
    pub(crate) pin_ready: bool,
}
