//! From reset to running (§14).

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::ram::Ram;
use super::rx::RxRing;
use super::tx::TxRing;
use super::{DriverOptions, Registers};
use crate::direction::Direction;
use crate::paravirt::{RX_AT, TX_AT};
use crate::regs::*;

/// Time limit of the card's reset.
const LIMIT: Duration = Duration::from_secs(2);
/// Auto-negotiation decides the speed.
const CTRL_ASDE: u32 = 1 << 5;
/// Collision threshold and distance (§13.4.33), meaningless with full duplex; gaps between frames (§13.4.34).
const TCTL_COLLISIONS: u32 = 0x0f << 4 | 0x40 << 12;
const TIPG: u32 = 0x0410;
const GAPS: u32 = 10 | 8 << 10 | 6 << 20;

/// An error starting a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotStarted {
    /// The reset bit does not clear.
    #[error("the card does not end its reset")]
    Reset,
    /// The number of slots is invalid.
    #[error("a ring has a power of two of 8 to 4096 descriptors, not {0}")]
    Slots(u32),
}

/// A running card.
pub struct Started {
    /// Its transmit ring.
    pub tx: TxRing,
    /// Its receive ring.
    pub rx: RxRing,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Whether it has a status block.
    pub has_block: bool,
}

/// Resets the card and starts both rings for all frames: the card becomes a port.
///
/// # Errors
/// [`NotStarted`] if the card does not finish its reset, or the number of slots is not a power of two from 8 to 4096.
pub fn start(registers: &Arc<dyn Registers>, ram: &Arc<Ram>, options: DriverOptions) -> Result<Started, NotStarted> {
    let slots = ram.slots();
    if !slots.is_power_of_two() || !(8..=4096).contains(&slots) {
        return Err(NotStarted::Slots(slots));
    }
    reset(&**registers)?;
    let write = |at, value| registers.write(at, value);
    let mac = address(registers.read(RA.start), registers.read(RA.start + 4));
    MTA.step_by(4).for_each(|at| write(at, 0));
    for (direction, low, high, length) in
        [(Direction::Transmit, TDBAL, TDBAH, TDLEN), (Direction::Receive, RDBAL, RDBAH, RDLEN)]
    {
        write(low, ram.ring(direction) as u32);
        write(high, (ram.ring(direction) >> 32) as u32);
        write(length, slots * crate::ring::DESCRIPTOR as u32);
    }
    let has_block = options.csb && find_block(&**registers, ram);
    let csb = |at| ram.csb(at).filter(|_| has_block);
    write(TIPG, GAPS);
    write(RCTL, RCTL_EN | RCTL_UPE | RCTL_MPE | RCTL_BAM | RCTL_SECRC);
    write(TCTL, TCTL_EN | TCTL_PSP | TCTL_COLLISIONS);
    let tx = TxRing::new(ram, registers, csb(TX_AT), options.combine);
    let rx = RxRing::new(ram, registers, csb(RX_AT), options.combine > 0);
    write(IMS, RxRing::causes(has_block));
    // Posted writes may be in flight: a read completes after them (PCI 3.0 §3.2.5).
    registers.read(STATUS);
    Ok(Started { tx, rx, mac, has_block })
}

fn reset(registers: &dyn Registers) -> Result<(), NotStarted> {
    registers.write(IMC, u32::MAX);
    registers.write(CTRL, CTRL_RST);
    let began = Instant::now();
    while registers.read(CTRL) & CTRL_RST != 0 {
        if began.elapsed() > LIMIT {
            return Err(NotStarted::Reset);
        }
        std::thread::yield_now();
    }
    registers.write(IMC, u32::MAX);
    registers.read(ICR);
    registers.write(CTRL, CTRL_SLU | CTRL_ASDE);
    Ok(())
}

fn address(low: u32, high: u32) -> [u8; 6] {
    let l = low.to_le_bytes();
    let h = high.to_le_bytes();
    [l[0], l[1], l[2], l[3], h[0], h[1]]
}

/// Writes the status block's address to the card. Returns whether it was accepted: without the extension, the register
/// reads as zero.
fn find_block(registers: &dyn Registers, ram: &Ram) -> bool {
    ram.clear_block();
    registers.write(CSBAH, (ram.block() >> 32) as u32);
    registers.write(CSBAL, ram.block() as u32);
    // The low half may be zero anyway.
    registers.read(CSBAH) == (ram.block() >> 32) as u32
}
