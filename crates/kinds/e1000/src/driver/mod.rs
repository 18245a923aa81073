//! A driver of the card in user space: for a card on the bus of a guest, or, by whatever carries register accesses, in
//! a guest's place.
//!
//! Descriptor `i` always has buffer `i` of its ring, so that a frame is one copy and one store. How often registers are
//! written is what the three ways differ in ([`DriverOptions`]): for each batch of frames, as drivers do; for the next
//! batch only when the last one is sent (Send Combining, paper §4.2); or only when the card sleeps, by the status block
//! ([`crate::paravirt`]). What the card writes is as little trusted as what a driver writes is by a card.
//!
//! | module | what it is |
//! |---|---|
//! | [`ram`] | rings, buffers, status block |
//! | [`remote`] | a card at a vfio-user socket |
//! | [`start`] | from reset to running |
//! | [`tx`], [`rx`] | the rings |
//! | [`queues`] | the rings as a switch sees them |
//! | [`port`] | a port with a card on the bus |

pub mod port;
pub mod queues;
pub mod ram;
pub mod remote;
pub mod rx;
pub mod start;
pub mod tx;

use thiserror::Error;

/// Whatever reaches the card's registers.
pub trait Registers: Send + Sync {
    /// Reads one.
    fn read(&self, at: u32) -> u32;

    /// Writes one.
    fn write(&self, at: u32, value: u32);
}

/// How to drive a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverOptions {
    /// Descriptors of each ring: a power of two from 8 to 4,096.
    pub slots: u32,
    /// With a status block, where the card has one.
    pub csb: bool,
    /// Send Combining: packets that may wait for those before them to be sent. Zero: none.
    pub combine: u32,
}

impl Default for DriverOptions {
    fn default() -> Self {
        DriverOptions { slots: 1024, csb: true, combine: 0 }
    }
}

/// A protocol violation by the device, after which the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceViolation {
    /// The status block says that it is done with descriptors that it never had.
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
