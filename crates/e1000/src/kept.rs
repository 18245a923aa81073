//! The page of a card that outlives a process which is killed: the registers as they were after the last change, and
//! what was being written into the guest's rings.
//!
//! | word | what |
//! |---|---|
//! | 0, 1 | how often positions and registers were written: odd numbers are in the second half, even ones in the first |
//! | 2, 3 | the head of the receive ring, and of the transmit ring, behind the descriptor that is being marked as done, plus one; 0: none is |
//! | 4 | IOADDR |
//! | from 16, 32 | the halves of the positions ([`E1000::positions`]) |
//! | from 64 | the halves of all registers: a length, and JSON |
//!
//! A half is complete when it is counted: who is killed in the middle of writing it leaves the other one.

use std::sync::Arc;

use netvale_vfio_user::page::{DEVICE_AT, Page};

use crate::device::kept::WORDS;
use crate::device::{Card, E1000};
use crate::direction::Direction;
use crate::memory::Memory;
use crate::paravirt::Paravirt;
use crate::regs::{ICR, ICS, IMC, IMS, ITR, RDT, TDT};
use crate::state::CoreState;
use crate::tx::TxPosition;

/// Places of words.
const POSITIONS: usize = DEVICE_AT;
const REGISTERS: usize = DEVICE_AT + 1;
const RECEIVING: usize = DEVICE_AT + 2;
const SENDING: usize = DEVICE_AT + 3;
const ADDRESS: usize = DEVICE_AT + 4;
const FIRST_POSITIONS: usize = DEVICE_AT + 16;
const FIRST_REGISTERS: usize = DEVICE_AT + 64;
/// Words of a half of the registers: twice what they take.
const HALF: usize = 6 * 1024;
/// Words of a card's page.
pub const CARD_WORDS: usize = 64 + 2 * HALF;

/// Whether a register is in the positions, or is none that lasts.
pub fn is_frequent(register: u32) -> bool {
    matches!(register, TDT | RDT | ICR | ICS | IMS | IMC | ITR)
}

/// A card's page.
#[derive(Clone, Debug)]
pub struct CardPage(pub Arc<Page>);

impl CardPage {
    /// Notes positions; what was being marked as done is done.
    #[inline]
    pub fn note(&self, e1000: &E1000, settled: TxPosition) {
        let words = self.0.words();
        let count = words.load(POSITIONS).wrapping_add(1);
        let half = FIRST_POSITIONS + 16 * (count as usize & 1);
        for (i, word) in e1000.positions(settled).into_iter().enumerate() {
            words.store(half + i, word);
        }
        words.store(POSITIONS, count);
        words.store(RECEIVING, 0);
        words.store(SENDING, 0);
    }

    /// Notes all registers. The message that changed them is handled again after a kill before this.
    pub fn note_all(&self, e1000: &E1000) {
        let words = self.0.words();
        let count = words.load(REGISTERS).wrapping_add(1);
        let half = FIRST_REGISTERS + HALF * (count as usize & 1);
        // What is too long cannot be read either.
        let text = serde_json::to_vec(e1000).ok().filter(|text| text.len() <= 4 * (HALF - 1)).unwrap_or_default();
        words.store(half, text.len() as u32);
        for (i, four) in text.chunks(4).enumerate() {
            let mut word = [0; 4];
            word.iter_mut().zip(four).for_each(|(to, from)| *to = *from);
            words.store(half + 1 + i, u32::from_le_bytes(word));
        }
        words.store(REGISTERS, count);
    }

    /// The descriptor before that head is marked as done next.
    #[inline]
    pub fn marks(&self, direction: Direction, head: u32) {
        let at = if direction == Direction::Receive { RECEIVING } else { SENDING };
        self.0.words().store(at, head + 1);
    }

    /// Notes IOADDR.
    pub fn note_address(&self, address: u32) {
        self.0.words().store(ADDRESS, address);
    }

    /// IOADDR.
    pub fn address(page: &Page) -> u32 {
        page.words().load(ADDRESS)
    }

    /// The registers of a card that was `card`, as a process that was killed left them.
    ///
    /// # Errors
    /// A sentence that says what they are not.
    pub fn core(page: &Page, card: &Card) -> Result<CoreState, String> {
        let words = page.words();
        let half = FIRST_REGISTERS + HALF * (words.load(REGISTERS) as usize & 1);
        let len = words.load(half) as usize;
        if len > 4 * (HALF - 1) {
            return Err(format!("{len} bytes of registers"));
        }
        let mut text: Vec<u8> = (0..len.div_ceil(4)).flat_map(|i| words.load(half + 1 + i).to_le_bytes()).collect();
        text.truncate(len);
        let e1000: E1000 = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let half = FIRST_POSITIONS + 16 * (words.load(POSITIONS) as usize & 1);
        let mut positions = [0; WORDS];
        positions.iter_mut().enumerate().for_each(|(i, word)| *word = words.load(half + i));
        let e1000 = e1000.after_a_kill(positions);
        if !e1000.is_possible(card) {
            return Err("no such card can have them".to_owned());
        }
        let has_block = e1000.csb() != 0;
        // Whatever the status block was told, it is told again.
        Ok(CoreState { e1000, now: 0, has_block, told: u32::MAX, pin_ready: true })
    }

    /// Goes on behind the descriptors that the guest has seen done: those that its status block says, or, without one,
    /// those up to the one that was marked last, or was about to be, which is marked now.
    pub fn catch_up(&self, e1000: &mut E1000, memory: &Memory, block: Option<&Paravirt>) {
        let heads = block.map(|block| {
            e1000.set_tx_tail(block.tx_tail());
            e1000.set_rx_tail(block.rx_tail());
            block.heads()
        });
        let marked = |at| self.0.words().load(at).checked_sub(1);
        let (tx, rx) = match heads {
            Some((tx, rx)) => (Some(tx), Some(rx)),
            None => (marked(SENDING), marked(RECEIVING)),
        };
        let mut finder = memory.finder();
        for (direction, head) in [(Direction::Transmit, tx), (Direction::Receive, rx)] {
            let done = head.and_then(|head| e1000.distance(direction, head)).unwrap_or(0);
            let address = |k: u32| match direction {
                Direction::Transmit => e1000.tx_address(k),
                Direction::Receive => e1000.rx_address(k),
            };
            // The first one last, as always.
            (0..done).rev().filter_map(address).for_each(|at| finder.complete(direction, at));
            e1000.skip(direction, done, |at| finder.descriptor(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use netvale_mem::mapping::{Pages, sealed_memfd};
    use netvale_mem::words::Words;
    use netvale_vfio_user::dma::{Dma, Place};

    use super::*;
    use crate::memory::RX_DONE;
    use crate::regs::{CTRL, CTRL_SLU, ICR_LSC, RDBAL, RDLEN, TCTL, TCTL_EN, TDBAL, TDLEN};

    const CARD: Card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: 0, forced_interval: None };
    /// Where the transmit ring lies, of 16 descriptors.
    const RING: u64 = 0x1000;

    fn page() -> CardPage {
        CardPage(Arc::new(Page::new(CARD_WORDS).unwrap()))
    }

    fn card() -> E1000 {
        let mut e1000 = E1000::new(CARD);
        let rings = [(TDBAL, 0x1000), (TDLEN, 256), (TDT, 5), (RDBAL, 0x2000), (RDLEN, 256), (RDT, 15)];
        for (at, value) in rings.into_iter().chain([(CTRL, CTRL_SLU), (TCTL, TCTL_EN), (IMS, 0x84), (ITR, 9)]) {
            e1000.write(at, value);
        }
        e1000
    }

    /// Objective: a card is what was noted last, positions later than registers; a half that was being written when the
    /// process was killed does not count; all that drivers wait for is reported again.
    #[test]
    fn noted() {
        let (page, mut e1000) = (page(), card());
        page.note_all(&e1000);
        page.note(&e1000, e1000.tx_position());
        e1000.tx_step([14 | 24 << 8, 9000 | 1 << 29 | 54 << 40 | 1460 << 48]);
        e1000.tx_done(3);
        e1000.write(IMC, 4);
        page.note(&e1000, e1000.tx_position());
        let core = CardPage::core(&page.0, &CARD).unwrap();
        let mut found = core.e1000;
        assert_eq!((found.heads(), found.read(TDT), found.read(RDT)), ((3, 0), 5, 15));
        assert_eq!((found.read(IMS), found.read(ITR), found.read(TCTL)), (0x80, 9, TCTL_EN));
        assert_eq!(format!("{:?}", found.tx_position()), format!("{:?}", e1000.tx_position()));
        assert_eq!(found.read(ICR) & 0x87, 0x85);
        // The other half, as far as it came.
        let words = page.0.words();
        let half = FIRST_POSITIONS + 16 * ((words.load(POSITIONS) as usize + 1) & 1);
        (0..4).for_each(|i| words.store(half + i, 0xffff_ffff));
        let half = FIRST_REGISTERS + HALF * ((words.load(REGISTERS) as usize + 1) & 1);
        (0..100).for_each(|i| words.store(half + i, 0xffff_ffff));
        assert_eq!(CardPage::core(&page.0, &CARD).unwrap().e1000.heads(), (3, 0));
    }

    /// Objective: that the link has changed is reported again until the driver has certainly heard of it, and then no
    /// more: neither what it looks at meanwhile nor what was noted before says so.
    #[test]
    fn the_link_is_reported_once() {
        let (page, mut e1000) = (page(), card());
        let again = |e1000: &E1000| {
            page.note(e1000, e1000.tx_position());
            CardPage::core(&page.0, &CARD).unwrap().e1000.read(ICR) & ICR_LSC
        };
        e1000.write(ICS, ICR_LSC);
        page.note_all(&e1000);
        assert_eq!(again(&e1000), ICR_LSC);
        assert_eq!(e1000.read(ICR) & ICR_LSC, ICR_LSC);
        assert_eq!(again(&e1000), ICR_LSC, "its answer may be missing");
        e1000.read(CTRL);
        assert_eq!(again(&e1000), 0);
    }

    /// Objective: what cannot be a card's is refused.
    #[test]
    fn forged() {
        let (page, e1000) = (page(), card());
        page.note_all(&e1000);
        page.note(&e1000, e1000.tx_position());
        let words = page.0.words();
        let (half, positions) = (FIRST_REGISTERS + HALF * (words.load(REGISTERS) as usize & 1), FIRST_POSITIONS + 16);
        let len = words.load(half);
        let refused = |at: usize, value: u32, why: &str| {
            let before = words.load(at);
            words.store(at, value);
            let refused = CardPage::core(&page.0, &CARD).map(drop).unwrap_err();
            assert!(refused.contains(why), "{at}: {refused}");
            words.store(at, before);
        };
        refused(half, u32::MAX, "bytes of registers");
        refused(half, len - 1, "EOF");
        refused(half, 0, "EOF");
        refused(half + 3, 0, "column");
        refused(positions + 2, u32::MAX, "no such card");
        refused(REGISTERS, words.load(REGISTERS) + 1, "EOF");
        let other = Card { mac: [4; 6], ..CARD };
        assert!(CardPage::core(&page.0, &other).is_err());
        assert!(CardPage::core(&page.0, &CARD).is_ok());
    }

    /// Objective: descriptors that were announced as done when the process was killed are marked; those that are
    /// marked, and those that the driver has used again since, stay as they are.
    #[test]
    fn announced() {
        let (fd, map, _) = sealed_memfd("guest", 1 << 16, Pages::Ordinary).unwrap();
        let mut dma = Dma::default();
        dma.map(Place { flags: 3, offset: 0, address: 0, size: 1 << 16 }, Some(&fd)).unwrap();
        let (memory, ram) = (Memory::of(&dma), Words::new(&Arc::new(map), 0, 1 << 14).unwrap());
        let (page, mut e1000) = (page(), card());
        let (mut finder, command) = (memory.finder(), 60 | 9 << 24);
        let word = |ring: u64, i: u64| (ring / 8 + 2 * i + 1) as usize * 2;
        finder.will_be_sent(RING, [0, command]);
        finder.sent(RING, [0, command]);
        ram.store_wide(word(RING, 1), command);
        finder.will_be_sent(RING + 32, [0, command]);
        page.marks(Direction::Transmit, 3);
        // Two pieces of a frame of three, of which the last one is marked.
        let pieces =
            [(1 << 32 | 1 << 34), (1 << 32 | 1 << 34), 1 << 32 | 1 << 33 | 1 << 34].map(|status: u64| status | 1000);
        for (i, status) in (0..).zip(pieces) {
            finder.received(0x2000 + 16 * i, status & if i == 2 { !0 } else { !RX_DONE });
        }
        page.marks(Direction::Receive, 4);
        page.catch_up(&mut e1000, &memory, None);
        let sent = [0, 1, 2].map(|i| ram.load_wide(word(RING, i)));
        assert_eq!(sent, [command | 1 << 32, command, command | 1 << 32]);
        assert_eq!([0, 1, 2].map(|i| ram.load_wide(word(0x2000, i))), pieces);
        assert_eq!(ram.load_wide(word(0x2000, 3)), 0, "the driver has taken it, and given it back");
        assert_eq!(e1000.heads(), (3, 4));
    }

    /// Objective: a card goes on behind the descriptor that was marked last when the process was killed in the middle
    /// of that, with the contexts up to there; heads that cannot be are ignored.
    #[test]
    fn marked() {
        let (fd, map, _) = sealed_memfd("guest", 1 << 16, Pages::Ordinary).unwrap();
        let mut dma = Dma::default();
        dma.map(Place { flags: 3, offset: 0, address: 0, size: 1 << 16 }, Some(&fd)).unwrap();
        let (memory, ram) = (Memory::of(&dma), Words::new(&Arc::new(map), 0, 1 << 14).unwrap());
        // A context, then packets.
        let word = |i: usize| RING as usize / 4 + 4 * i;
        ram.store_wide(word(0), 14 | 24 << 8);
        ram.store(word(0) + 2, 9000 | 1 << 29);
        (1..5).for_each(|i| ram.store(word(i) + 2, 60 | 1 << 24));
        for (sent, received, expected) in [
            (None, None, (0, 0)),
            (Some(3), Some(8), (3, 8)),
            (Some(5), Some(15), (5, 15)),
            (Some(6), Some(16), (0, 0)),
        ] {
            let (page, mut e1000) = (page(), card());
            sent.into_iter().for_each(|head| page.marks(Direction::Transmit, head));
            received.into_iter().for_each(|head| page.marks(Direction::Receive, head));
            page.catch_up(&mut e1000, &memory, None);
            assert_eq!(e1000.heads(), expected, "{sent:?} {received:?}");
            let payload = format!("{:?}", e1000.tx_position()).contains("payload: 9000");
            assert_eq!(payload, expected.0 > 0);
            page.note(&e1000, e1000.tx_position());
            page.catch_up(&mut e1000, &memory, None);
            assert_eq!(e1000.heads(), expected, "nothing is being marked any more");
        }
        let (page, mut empty) = (page(), E1000::new(CARD));
        page.marks(Direction::Receive, 3);
        page.catch_up(&mut empty, &memory, None);
        page.catch_up(&mut empty, &Memory::default(), None);
        assert_eq!(empty.heads(), (0, 0));
        assert_eq!((card().head_after(Direction::Receive, 17), card().head_behind(RING + 15 * 16)), (1, 0));
    }
}
