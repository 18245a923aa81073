//! The driver's receive ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use netvale_mem::csb::Csb;
use netvale_mem::notify::{arm, disarm};

use super::ram::{BUF, Ram};
use super::{DONE, DeviceViolation, END, Registers};
use crate::direction::Direction;
use crate::regs::{ICR, ICR_LSC, ICR_RXT0, ICR_TXDW, IMC, IMS, RDT};

/// Descriptors given back before the card is notified by register.
const REFILL: u32 = 32;

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its address.
    pub at: *const u8,
    /// Its length in bytes.
    pub len: u32,
    /// Whether it is complete. A frame longer than a buffer is not; only a card that accepts long frames has any.
    pub is_whole: bool,
}

/// A running receive ring.
pub struct RxRing {
    ram: Arc<Ram>,
    registers: Arc<dyn Registers>,
    csb: Option<Csb>,
    /// The next descriptor to read, and the first one whose frame is still in use.
    next: u32,
    held: u32,
    /// Last value written to RDT.
    told: u32,
    /// Whether interrupts are requested by register.
    armed: bool,
    /// The causes requested then.
    causes: u32,
    /// Whether the card violated the protocol: the ring is out of use.
    pub is_broken: bool,
}

impl RxRing {
    /// Creates a ring and gives its descriptors to the card. A sleeper on it may also wait for packets to be sent.
    pub fn new(ram: &Arc<Ram>, registers: &Arc<dyn Registers>, csb: Option<Csb>, combines: bool) -> RxRing {
        let (ram, registers, told) = (Arc::clone(ram), Arc::clone(registers), ram.slots() - 1);
        let causes = ICR_RXT0 | if combines { ICR_TXDW } else { 0 };
        let this = RxRing { ram, registers, csb, next: 0, held: 0, told, armed: false, causes, is_broken: false };
        if let Some(csb) = &this.csb {
            csb.publish_head(told, told);
        }
        this.registers.write(RDT, told);
        this
    }

    fn ahead(&self, i: u32, by: u32) -> u32 {
        i.wrapping_add(by) & (self.ram.slots() - 1)
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`DeviceViolation`] if the card claims more descriptors than it was given, or more bytes than a buffer has.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Received>, DeviceViolation> {
        if !self.has_news()? {
            return Ok(None);
        }
        let word = self.ram.word(Direction::Receive, self.next, 1).load(Ordering::Acquire);
        let len = (word & 0xffff) as u32;
        if len as usize > BUF {
            return Err(DeviceViolation::Length(len));
        }
        let at = self.ram.buffer(Direction::Receive, self.next).as_ptr().cast_const();
        self.next = self.ahead(self.next, 1);
        Ok(Some(Received { at, len, is_whole: word & END != 0 }))
    }

    #[inline]
    fn has_news(&self) -> Result<bool, DeviceViolation> {
        if self.next == self.told {
            return Ok(false);
        }
        let Some(csb) = &self.csb else {
            return Ok(self.ram.word(Direction::Receive, self.next, 1).load(Ordering::Acquire) & DONE != 0);
        };
        let head = csb.hwtail();
        let mask = self.ram.slots() - 1;
        if head > mask || head.wrapping_sub(self.next) & mask > self.told.wrapping_sub(self.next) & mask {
            return Err(DeviceViolation::Head(head));
        }
        Ok(head != self.next)
    }

    /// Returns the buffers of all frames taken to the card.
    #[inline]
    pub fn give_back(&mut self) {
        while self.held != self.next {
            self.ram.word(Direction::Receive, self.held, 1).store(0, Ordering::Relaxed);
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

    /// Asks for an interrupt with the next frame. Returns whether one is there already.
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

    /// Handles an interrupt. Reads the causes in ICR, which enables the next interrupt; with a status block only if it
    /// shows causes.
    pub fn interrupted(&mut self) -> u32 {
        let has_causes = self.csb.is_none() || self.ram.causes().is_some_and(|causes| causes.load(0) != 0);
        if has_causes { self.registers.read(ICR) } else { 0 }
    }

    /// The causes to enable while the driver runs: with a status block, which also decides on interrupts, all of them.
    pub fn causes(has_block: bool) -> u32 {
        ICR_LSC | if has_block { ICR_RXT0 | ICR_TXDW } else { 0 }
    }
}
