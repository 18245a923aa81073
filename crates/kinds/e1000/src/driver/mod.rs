//! A user-space driver of the card: for a card on a guest's bus or, given access to the registers, in a guest's place.
//!
//! Descriptor `i` always has buffer `i` of its ring: sending a frame is one copy and one store. The three modes
//! ([`DriverOptions`]) differ in the number of register writes: one per batch, as in usual drivers; one for the next
//! batch only after the last is sent (Send Combining, paper §4.2); or one only if the card sleeps, with the status
//! block ([`crate::paravirt`]). The card's writes are trusted as little as a card trusts a driver's.
//!
//! | module | what it is |
//! |---|---|
//! | [`ram`] | rings, buffers, status block |
//! | [`remote`] | a card at a vfio-user socket |
//! | [`start`] | from reset to running |
//! | [`tx`], [`rx`] | the rings |
//! | [`queues`] | the rings as a switch uses them |
//! | [`port`] | a port with a card on the bus |

pub mod port;
pub mod queues;
pub mod ram;
pub mod remote;
pub mod rx;
pub mod start;
pub mod tx;

use thiserror::Error;

/// Access to the card's registers.
pub trait Registers: Send + Sync {
    /// Reads a register.
    fn read(&self, at: u32) -> u32;

    /// Writes a register.
    fn write(&self, at: u32, value: u32);
}

/// Options of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Descriptors of each ring: a power of two from 8 to 4,096.
    pub slots: u32,
    /// Uses a status block, if the card has one.
    pub csb: bool,
    /// Send Combining: packets that may wait for earlier ones to be sent. Zero turns it off.
    pub combine: u32,
}

impl Default for DriverOptions {
    fn default() -> Self {
        DriverOptions { slots: 1024, csb: true, combine: 0 }
    }
}

/// A protocol violation by the device; it ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceViolation {
    /// The status block returns descriptors that the card never had.
    #[error("the card says that it is at descriptor {0}, where it cannot be")]
    Head(u32),
    /// More bytes than a buffer has.
    #[error("the card says that it wrote {0} bytes to a buffer")]
    Length(u32),
}

/// Command of transmit descriptors: end of packet, CRC, report status.
const COMMAND: u64 = 0b1011 << 24;
/// Status of either descriptor: done; of a receive descriptor: end of packet.
const DONE: u64 = 1 << 32;
const END: u64 = 1 << 33;
