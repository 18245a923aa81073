//! The driver's transmit ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use netvale_mem::csb::Csb;
use netvale_mem::notify::wanted;

use super::ram::{BUF, CardRam};
use super::{COMMAND, CardRegisters, CardViolation, DONE};
use crate::direction::CardDirection;
use crate::regs::TDT;

/// A running transmit ring.
pub struct CardTxRing {
    ram: Arc<CardRam>,
    registers: Arc<dyn CardRegisters>,
    csb: Option<Csb>,
    /// Index of the next descriptor to fill.
    next: u32,
    /// Index of the first descriptor that the card has not returned.
    done: u32,
    /// Last value written to TDT.
    told: u32,
    /// Whether the card may still have to process the last write of TDT.
    on_way: bool,
    /// Send Combining: maximum number of packets that wait until earlier packets have been sent.
    combine: u32,
    /// Whether the card violated the protocol, so that the ring is not used any more.
    pub is_broken: bool,
}

impl CardTxRing {
    /// Creates an empty ring.
    pub fn new(ram: &Arc<CardRam>, registers: &Arc<dyn CardRegisters>, csb: Option<Csb>, combine: u32) -> CardTxRing {
        let ram = Arc::clone(ram);
        let registers = Arc::clone(registers);
        CardTxRing { ram, registers, csb, next: 0, done: 0, told: 0, on_way: false, combine, is_broken: false }
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & (self.ram.slots() - 1)
    }

    /// Number of descriptors that can be filled.
    #[inline]
    pub fn free(&self) -> u32 {
        self.ram.slots() - 1 - self.distance(self.done, self.next)
    }

    /// Number of descriptors that can be filled in an empty ring.
    pub fn size(&self) -> u32 {
        self.ram.slots() - 1
    }

    /// Takes back descriptors of sent packets.
    ///
    /// # Errors
    /// [`CardViolation::Head`] if the card returns descriptors that it does not own.
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), CardViolation> {
        let Some(csb) = &self.csb else {
            while self.done != self.told && self.word(self.done) & DONE != 0 {
                self.done = (self.done + 1) & (self.ram.slots() - 1);
            }
            return Ok(());
        };
        let head = csb.hwtail();
        if head >= self.ram.slots() || self.distance(self.done, head) > self.distance(self.done, self.next) {
            return Err(CardViolation::Head(head));
        }
        self.done = head;
        Ok(())
    }

    fn word(&self, i: u32) -> u64 {
        self.ram.word(CardDirection::Transmit, i, 1).load(Ordering::Acquire)
    }

    /// The next free buffer; `None` if the ring is full.
    #[inline]
    pub fn buffer(&self) -> Option<*mut u8> {
        (self.free() > 0).then(|| self.ram.buffer(CardDirection::Transmit, self.next).as_ptr())
    }

    /// Appends a frame of `len` bytes, which was written to the buffer of [`CardTxRing::buffer`].
    #[inline]
    pub fn push(&mut self, len: usize) {
        let word = len.min(BUF) as u64 | COMMAND;
        self.ram.word(CardDirection::Transmit, self.next, 1).store(word, Ordering::Relaxed);
        self.next = (self.next + 1) & (self.ram.slots() - 1);
    }

    /// Publishes appended frames to the card, unless Send Combining holds them back.
    #[inline]
    pub fn publish(&mut self) {
        if let Some(csb) = &self.csb {
            if csb.head() != self.next {
                csb.publish_head(self.next, self.next);
                let asleep = wanted(csb.kern_need_kick());
                self.on_way = self.on_way && self.is_kicked(csb);
                if asleep && !self.on_way {
                    self.write_tail();
                }
            }
        } else if self.told != self.next && self.is_time() {
            self.write_tail();
        }
    }

    /// Whether a kick is pending, because the card has not reached the tail that the last kick published. The card will
    /// then take all descriptors, and check again before it sleeps. Must be called for each publication, before indices
    /// can wrap around.
    fn is_kicked(&self, csb: &Csb) -> bool {
        // Read the card's position after its `need_kick`, because the card writes the two in the opposite order.
        fence(Ordering::Acquire);
        let head = csb.hwtail();
        let ahead = self.distance(head, self.told);
        ahead > 0 && ahead <= self.distance(head, self.next)
    }

    /// Whether Send Combining must publish: the card has sent all published packets, or too many packets wait.
    fn is_time(&self) -> bool {
        if self.combine == 0 || self.distance(self.told, self.next) > self.combine || self.told == self.done {
            return true;
        }
        self.word(self.told.wrapping_sub(1)) & DONE != 0
    }

    fn write_tail(&mut self) {
        // Descriptors must be visible before the register write, which may reach the device on another path.
        fence(Ordering::SeqCst);
        self.told = self.next;
        self.on_way = true;
        self.registers.write(TDT, self.next);
    }
}
