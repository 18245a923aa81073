//! Saved state of a card, which is checked when it comes from another process.
//!
//! The parts of a card are serialized field by field. `E1000::is_possible` and the checks of the parts ensure that the
//! registers of a restored card have only valid bits.

use serde::{Deserialize, Serialize};

/// Version of a port's state.
pub const VERSION: u32 = 1;

/// State of a card's core, without the guest's memory and interrupt.
#[derive(Serialize, Deserialize)]
pub struct CoreState {
    /// The controller.
    pub(crate) e1000: crate::device::E1000,
    /// Nanoseconds since the card's creation, on which its timers are based.
    pub(crate) now: u64,
    /// Whether the driver has a status block.
    pub(crate) has_block: bool,
    /// The causes that were last written to the status block.
    pub(crate) told: u32,
    /// Whether the hypervisor has unmasked the interrupt pin since the last interrupt.
    pub(crate) pin_ready: bool,
}
