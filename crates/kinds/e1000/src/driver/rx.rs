//! The driver's receive ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use netvale_mem::csb::Csb;
use netvale_mem::notify::{arm, disarm};

use super::ram::{BUF, CardRam};
use super::{CardRegisters, CardViolation, DONE, END};
use crate::direction::CardDirection;
use crate::regs::{ICR, ICR_LSC, ICR_RXT0, ICR_TXDW, IMC, IMS, RDT};

/// Number of descriptors to return before the card is notified by a register write.
const REFILL: u32 = 32;

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct RxFrameRef {
    /// Address of the first byte, in this process.
    pub at: *const u8,
    /// Length in bytes.
    pub len: u32,
    /// Whether the frame is complete. A frame longer than a buffer is incomplete; only a card that accepts long frames
    /// delivers such frames.
    pub is_whole: bool,
}

/// A running receive ring.
pub struct CardRxRing {
    ram: Arc<CardRam>,
    registers: Arc<dyn CardRegisters>,
    csb: Option<Csb>,
    /// Index of the next descriptor to read.
    next: u32,
    /// Index of the first descriptor whose frame is still in use.
    held: u32,
    /// The tail that was last published, in the status block or in RDT.
    told: u32,
    /// Without a status block: whether `causes` are unmasked.
    armed: bool,
    /// The causes that wake the worker. They are unmasked in IMS before the worker sleeps.
    causes: u32,
    /// Whether the card violated the protocol, so that the ring is not used any more.
    pub is_broken: bool,
}

impl CardRxRing {
    /// Creates a ring and passes its descriptors to the card. If `combines` is true (Send Combining), a sleeping worker
    /// is also woken when packets were sent.
    pub fn new(ram: &Arc<CardRam>, registers: &Arc<dyn CardRegisters>, csb: Option<Csb>, combines: bool) -> CardRxRing {
        let (ram, registers, told) = (Arc::clone(ram), Arc::clone(registers), ram.slots() - 1);
        let causes = ICR_RXT0 | if combines { ICR_TXDW } else { 0 };
        let this = CardRxRing { ram, registers, csb, next: 0, held: 0, told, armed: false, causes, is_broken: false };
        if let Some(csb) = &this.csb {
            csb.publish_head(told, told);
        }
        this.registers.write(RDT, told);
        this
    }

    fn ahead(&self, i: u32, by: u32) -> u32 {
        i.wrapping_add(by) & (self.ram.slots() - 1)
    }

    /// Takes the next frame, if there is one.
    ///
    /// # Errors
    /// [`CardViolation`] if the card returns descriptors that it does not own, or reports more bytes than a buffer has.
    #[inline]
    pub fn take(&mut self) -> Result<Option<RxFrameRef>, CardViolation> {
        if !self.has_news()? {
            return Ok(None);
        }
        let word = self.ram.word(CardDirection::Receive, self.next, 1).load(Ordering::Acquire);
        let len = (word & 0xffff) as u32;
        if len as usize > BUF {
            return Err(CardViolation::Length(len));
        }
        let at = self.ram.buffer(CardDirection::Receive, self.next).as_ptr().cast_const();
        self.next = self.ahead(self.next, 1);
        Ok(Some(RxFrameRef { at, len, is_whole: word & END != 0 }))
    }

    #[inline]
    fn has_news(&self) -> Result<bool, CardViolation> {
        if self.next == self.told {
            return Ok(false);
        }
        let Some(csb) = &self.csb else {
            return Ok(self.ram.word(CardDirection::Receive, self.next, 1).load(Ordering::Acquire) & DONE != 0);
        };
        let head = csb.hwtail();
        let mask = self.ram.slots() - 1;
        if head > mask || head.wrapping_sub(self.next) & mask > self.told.wrapping_sub(self.next) & mask {
            return Err(CardViolation::Head(head));
        }
        Ok(head != self.next)
    }

    /// Returns the buffers of all taken frames to the card.
    #[inline]
    pub fn give_back(&mut self) {
        while self.held != self.next {
            self.ram.word(CardDirection::Receive, self.held, 1).store(0, Ordering::Relaxed);
            self.held = self.ahead(self.held, 1);
        }
        let told = self.ahead(self.held, self.ram.slots() - 1);
        if let Some(csb) = &self.csb {
            csb.publish_head(told, told);
            self.told = told;
        } else if told.wrapping_sub(self.told) & (self.ram.slots() - 1) >= REFILL.min(self.ram.slots() / 4) {
            fence(Ordering::SeqCst);
            self.told = told;
            self.registers.write(RDT, told);
        }
    }

    /// Requests an interrupt with the next frame. Returns true if there is a frame already.
    pub fn arm(&mut self) -> bool {
        match &self.csb {
            Some(csb) => arm(csb.appl_need_kick()),
            None if !self.armed => {
                self.armed = true;
                self.registers.write(IMS, self.causes);
            }
            None => {}
        }
        self.has_news().unwrap_or(true)
    }

    /// Stops interrupts for frames.
    pub fn disarm(&mut self) {
        match &self.csb {
            Some(csb) => disarm(csb.appl_need_kick()),
            None if std::mem::take(&mut self.armed) => self.registers.write(IMC, self.causes),
            None => {}
        }
    }

    /// Handles an interrupt and returns its causes. Reads ICR, which enables the next interrupt. With a status block,
    /// reads ICR only if the block contains causes, and otherwise returns zero.
    pub fn interrupted(&mut self) -> u32 {
        let has_causes = self.csb.is_none() || self.ram.causes().is_some_and(|causes| causes.load(0) != 0);
        if has_causes { self.registers.read(ICR) } else { 0 }
    }

    /// The causes to unmask while the driver runs. With a status block, whose flags decide whether the card interrupts,
    /// these are all causes that the driver uses.
    pub fn causes(has_block: bool) -> u32 {
        ICR_LSC | if has_block { ICR_RXT0 | ICR_TXDW } else { 0 }
    }
}
