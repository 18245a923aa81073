//! Reset and start of a card (§14).

use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::ram::CardRam;
use super::rx::CardRxRing;
use super::tx::CardTxRing;
use super::{CardDriverOptions, CardRegisters};
use crate::direction::CardDirection;
use crate::regs::*;

/// Time limit for the card's reset.
const LIMIT: Duration = Duration::from_secs(2);
/// CTRL: auto-negotiation decides the speed.
const CTRL_ASDE: u32 = 1 << 5;
/// TCTL: collision threshold and distance (§13.4.33), without effect in full duplex.
const TCTL_COLLISIONS: u32 = 0x0f << 4 | 0x40 << 12;
/// Register of the gaps between frames (§13.4.34).
const TIPG: u32 = 0x0410;
/// TIPG: gap between frames, and its two parts for half duplex.
const GAPS: u32 = 10 | 8 << 10 | 6 << 20;

/// An error in starting a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CardStartError {
    /// The card does not clear the reset bit.
    #[error("the card did not finish its reset within 2 s")]
    Reset,
    /// The number of slots is invalid.
    #[error("invalid number of descriptors {0}: expected a power of two from 8 to 4096")]
    Slots(u32),
}

/// A running card.
pub struct RunningCard {
    /// The card's transmit ring.
    pub tx: CardTxRing,
    /// The card's receive ring.
    pub rx: CardRxRing,
    /// The card's Ethernet address.
    pub mac: [u8; 6],
    /// Whether card and driver use a status block ([`crate::paravirt`]).
    pub has_block: bool,
}

/// Resets the card, starts both rings, and makes the card receive all frames, as a switch's port must.
///
/// # Errors
/// [`CardStartError`] if the card does not finish its reset, or the number of slots is not a power of two from 8 to
/// 4096.
pub fn start(
    registers: &Arc<dyn CardRegisters>,
    ram: &Arc<CardRam>,
    options: CardDriverOptions,
) -> Result<RunningCard, CardStartError> {
    let slots = ram.slots();
    if !slots.is_power_of_two() || !(8..=4096).contains(&slots) {
        return Err(CardStartError::Slots(slots));
    }
    reset(&**registers)?;
    let write = |at, value| registers.write(at, value);
    let mac = address(registers.read(RA.start), registers.read(RA.start + 4));
    MTA.step_by(4).for_each(|at| write(at, 0));
    for (direction, low, high, length) in
        [(CardDirection::Transmit, TDBAL, TDBAH, TDLEN), (CardDirection::Receive, RDBAL, RDBAH, RDLEN)]
    {
        write(low, ram.ring(direction) as u32);
        write(high, (ram.ring(direction) >> 32) as u32);
        write(length, slots * crate::ring::DESCRIPTOR as u32);
    }
    let has_block = options.csb && find_block(&**registers, ram);
    let csb = |direction| ram.csb(direction).filter(|_| has_block);
    write(TIPG, GAPS);
    write(RCTL, RCTL_EN | RCTL_UPE | RCTL_MPE | RCTL_BAM | RCTL_SECRC);
    write(TCTL, TCTL_EN | TCTL_PSP | TCTL_COLLISIONS);
    let tx = CardTxRing::new(ram, registers, csb(CardDirection::Transmit), options.combine);
    let rx = CardRxRing::new(ram, registers, csb(CardDirection::Receive), options.combine > 0);
    write(IMS, CardRxRing::causes(has_block));
    // Posted writes may be in flight; a read completes after them (PCI 3.0 §3.2.5).
    registers.read(STATUS);
    Ok(RunningCard { tx, rx, mac, has_block })
}

fn reset(registers: &dyn CardRegisters) -> Result<(), CardStartError> {
    registers.write(IMC, u32::MAX);
    registers.write(CTRL, CTRL_RST);
    let began = Instant::now();
    while registers.read(CTRL) & CTRL_RST != 0 {
        if began.elapsed() > LIMIT {
            return Err(CardStartError::Reset);
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

/// Writes the status block's address to the card. Returns whether the card accepted it; without the extension, the
/// register reads as zero.
fn find_block(registers: &dyn CardRegisters, ram: &CardRam) -> bool {
    ram.clear_block();
    registers.write(CSBAH, (ram.block() >> 32) as u32);
    registers.write(CSBAL, ram.block() as u32);
    // Compare the high half, because the low half of the address is zero.
    registers.read(CSBAH) == (ram.block() >> 32) as u32
}
