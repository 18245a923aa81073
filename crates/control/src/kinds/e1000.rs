//! An e1000 device, with the data needed to attach a virtual machine.

use serde::{Deserialize, Serialize};

use crate::mac::Mac;

/// An emulated Intel 82540EM network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct E1000Info {
    /// Path of the device's socket.
    pub path: String,
    /// Ethernet address in the card's EEPROM.
    pub mac: Mac,
    /// Number of register reads by guests. Each access makes the guest exit to the hypervisor.
    pub register_reads: u64,
    /// Number of register writes by guests.
    pub register_writes: u64,
    /// Number of interrupts sent to guests.
    pub interrupts: u64,
}
