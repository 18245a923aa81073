//! The driver's transmit ring.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use netvale_mem::csb::Csb;
use netvale_mem::notify::wanted;

use super::ram::{BUF, Ram};
use super::{COMMAND, DONE, DeviceViolation, Registers};
use crate::direction::Direction;
use crate::regs::TDT;

/// A running transmit ring.
pub struct TxRing {
    ram: Arc<Ram>,
    registers: Arc<dyn Registers>,
    csb: Option<Csb>,
    /// Descriptors from `done` up to `next` are the card's, or about to be published to it.
    next: u32,
    done: u32,
    /// Last value written to TDT.
    told: u32,
    /// Whether the card may not have seen the last written TDT.
    on_way: bool,
    /// Packets that may wait for earlier ones to be sent.
    combine: u32,
    /// Whether the card violated the protocol: the ring is out of use.
    pub is_broken: bool,
}

impl TxRing {
    /// Creates an empty ring.
    pub fn new(ram: &Arc<Ram>, registers: &Arc<dyn Registers>, csb: Option<Csb>, combine: u32) -> TxRing {
        let ram = Arc::clone(ram);
        let registers = Arc::clone(registers);
        TxRing { ram, registers, csb, next: 0, done: 0, told: 0, on_way: false, combine, is_broken: false }
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

    /// Takes back sent descriptors.
    ///
    /// # Errors
    /// [`DeviceViolation::Head`] if the card claims descriptors that it was not given.
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), DeviceViolation> {
        let Some(csb) = &self.csb else {
            while self.done != self.told && self.word(self.done) & DONE != 0 {
                self.done = (self.done + 1) & (self.ram.slots() - 1);
            }
            return Ok(());
        };
        let head = csb.hwtail();
        if head >= self.ram.slots() || self.distance(self.done, head) > self.distance(self.done, self.next) {
            return Err(DeviceViolation::Head(head));
        }
        self.done = head;
        Ok(())
    }

    fn word(&self, i: u32) -> u64 {
        self.ram.word(Direction::Transmit, i, 1).load(Ordering::Acquire)
    }

    /// The next free buffer.
    #[inline]
    pub fn buffer(&self) -> Option<*mut u8> {
        (self.free() > 0).then(|| self.ram.buffer(Direction::Transmit, self.next).as_ptr())
    }

    /// Pushes that buffer with a frame of `len` bytes.
    #[inline]
    pub fn push(&mut self, len: usize) {
        let word = len.min(BUF) as u64 | COMMAND;
        self.ram.word(Direction::Transmit, self.next, 1).store(word, Ordering::Relaxed);
        self.next = (self.next + 1) & (self.ram.slots() - 1);
    }

    /// Publishes pushed frames to the card when due.
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

    /// Whether a kick is pending: the card has not reached the tail of the last one. It then takes all descriptors
    /// present, and checks again before it sleeps. Called each time, before indices can wrap around.
    fn is_kicked(&self, csb: &Csb) -> bool {
        // Its position after its wish to sleep: the card writes them in the other order.
        fence(Ordering::Acquire);
        let head = csb.hwtail();
        let ahead = self.distance(head, self.told);
        ahead > 0 && ahead <= self.distance(head, self.next)
    }

    /// Send Combining: due once the card has sent all it knows of, or too many packets wait.
    fn is_time(&self) -> bool {
        if self.combine == 0 || self.distance(self.told, self.next) > self.combine || self.told == self.done {
            return true;
        }
        self.word(self.told.wrapping_sub(1)) & DONE != 0
    }

    fn write_tail(&mut self) {
        // Descriptors before the register, which may reach a device by another path.
        fence(Ordering::SeqCst);
        self.told = self.next;
        self.on_way = true;
        self.registers.write(TDT, self.next);
    }
}
