//! What of a card changes with every batch of frames, and with the registers that drivers write all the time, as words
//! of a page that outlives this process. What else there is of a card follows from it, or is not missed: an interrupt
//! too many is harmless.

use super::E1000;
use crate::direction::Direction;
use crate::ring::{DESCRIPTOR, Register, Ring};
use crate::tx::{Assembler, Raw, TxPosition};

/// Number of these words.
pub const WORDS: usize = 8;

/// Head and tail of a ring, in one word.
fn ends(ring: &Ring) -> u32 {
    ring.read(Register::Head) | ring.read(Register::Tail) << 16
}

fn set_ends(ring: &mut Ring, word: u32) {
    ring.write(Register::Head, word & 0xffff);
    ring.write(Register::Tail, word >> 16);
}

impl E1000 {
    /// The words, with what was settled for descriptors from the head on.
    pub(crate) fn positions(&self, settled: TxPosition) -> [u32; WORDS] {
        let [a, b, c, d] = settled.words();
        [ends(&self.tx), ends(&self.rx), self.causes.noted(), self.causes.interval().into(), a, b, c, d]
    }

    /// The card of a process that was killed, which noted these words later than the rest. All that a driver may wait
    /// for is reported once more.
    pub(crate) fn after_a_kill(mut self, words: [u32; WORDS]) -> E1000 {
        let [tx, rx, causes, interval, a, b, c, d] = words;
        set_ends(&mut self.tx, tx);
        set_ends(&mut self.rx, rx);
        self.causes.after_a_kill(causes, interval as u16);
        self.assembler = Assembler::from(TxPosition::of([a, b, c, d]));
        (self.received, self.received_small, self.few) = (false, false, false);
        self
    }

    fn ring_of(&self, direction: Direction) -> &Ring {
        match direction {
            Direction::Transmit => &self.tx,
            Direction::Receive => &self.rx,
        }
    }

    /// The number of descriptors of the device's in front of `head`; `None` if that is not among them.
    pub(crate) fn distance(&self, direction: Direction, head: u32) -> Option<u32> {
        let ring = self.ring_of(direction);
        let (n, from) = (ring.count(), ring.read(Register::Head));
        let distance = (head + n).checked_sub(from)?.checked_rem(n)?;
        (head < n && distance <= ring.owned()).then_some(distance)
    }

    /// The head that a ring will have when `count` more descriptors are done.
    pub(crate) fn head_after(&self, direction: Direction, count: u32) -> u32 {
        let ring = self.ring_of(direction);
        (ring.read(Register::Head) + count).checked_rem(ring.count()).unwrap_or(0)
    }

    /// The head that the transmit ring will have when the descriptor at that address is done.
    pub(crate) fn head_behind(&self, address: u64) -> u32 {
        let index = address.wrapping_sub(self.tx.base) / DESCRIPTOR;
        (index as u32).wrapping_add(1).checked_rem(self.tx.count()).unwrap_or(0)
    }

    /// The first `count` descriptors, which `read` reads, were done by the process before.
    pub(crate) fn skip(&mut self, direction: Direction, count: u32, mut read: impl FnMut(u64) -> Option<Raw>) {
        if direction == Direction::Receive {
            return self.rx.advance(count);
        }
        for raw in (0..count).filter_map(|k| read(self.tx_address(k)?)).collect::<Vec<_>>() {
            self.tx_step(raw);
        }
        self.tx.advance(count);
    }
}
