//! A user-space driver for the card: on a guest's PCI bus or, with other access to the registers, as a simulated guest.
//!
//! Descriptor `i` always has buffer `i` of its ring, so sending a frame takes one copy and one store. Three modes
//! ([`CardDriverOptions`]) differ in the number of register writes: one write per batch, as in usual drivers; a write
//! for the next batch only after the last batch was sent (Send Combining, from Rizzo, Lettieri and Maffione, "Speeding
//! Up Packet I/O in Virtual Machines", §4.2); or, with the status block ([`crate::paravirt`]), a write only if the card
//! sleeps. The driver checks everything that the card writes.
//!
//! | module | what it is |
//! |---|---|
//! | [`ram`] | memory of rings, buffers, status block |
//! | [`remote`] | access to a card at a vfio-user socket |
//! | [`start`] | reset and start of a card |
//! | [`tx`], [`rx`] | the transmit and receive ring |
//! | [`queues`] | the rings as a switch uses them |
//! | [`port`] | a port that drives a card on the bus |

pub mod port;
pub mod queues;
pub mod ram;
pub mod remote;
pub mod rx;
pub mod start;
pub mod tx;

use thiserror::Error;

/// Access to the card's registers.
pub trait CardRegisters: Send + Sync {
    /// Reads a register.
    fn read(&self, at: u32) -> u32;

    /// Writes a register.
    fn write(&self, at: u32, value: u32);
}

/// Options of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardDriverOptions {
    /// Number of descriptors of each ring: a power of two from 8 to 4,096.
    pub slots: u32,
    /// Whether to use a status block ([`crate::paravirt`]), if the card supports it.
    pub csb: bool,
    /// Send Combining: maximum number of packets that wait until earlier packets have been sent; zero turns Send
    /// Combining off.
    pub combine: u32,
}

impl Default for CardDriverOptions {
    fn default() -> Self {
        CardDriverOptions { slots: 1024, csb: true, combine: 0 }
    }
}

/// A protocol violation by the card, after which the card is not used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CardViolation {
    /// The status block returns descriptors that the card did not own.
    #[error("the card reports the impossible ring position {0}")]
    Head(u32),
    /// A descriptor reports more bytes than a buffer has.
    #[error("the card reports {0} bytes in a buffer, more than the buffer has")]
    Length(u32),
}

/// Command bits of all transmit descriptors: end of packet, insert CRC, report status.
const COMMAND: u64 = 0b1011 << 24;
/// Status bit: descriptor done.
const DONE: u64 = 1 << 32;
/// Status bit of a receive descriptor: end of packet.
const END: u64 = 1 << 33;
