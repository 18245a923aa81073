//! The paravirtual extension: a communication status block (CSB) in the guest's memory, in which driver and controller tell each other how far they
//! are, so that registers are written and interrupts sent only when one side sleeps.
//!
//! It is the block that netmap's other remote users have ([`Csb`]), once for each direction. `head` takes the place of TDT and RDT, `hwcur` and
//! `hwtail` that of TDH and RDH: descriptors before them are done. Writing TDT is a kick, wanted while `kern_need_kick` says so; there are interrupts
//! for a direction while its `appl_need_kick` says so, as far as ITR and the delay timers let them. An interrupt by message needs no look at ICR:
//! what the block tells of itself no longer stands as a cause, and what else stands is told in [`CAUSES_AT`].
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 64 | `nm_csb_atok` of the transmit ring, written by the driver |
//! | 64 | 64 | `nm_csb_atok` of the receive ring |
//! | 128 | 64 | `nm_csb_ktoa` of the transmit ring, written by the controller |
//! | 192 | 64 | `nm_csb_ktoa` of the receive ring |
//! | 256 | 4 | causes that stand and are unmasked: ICR is worth a look |

use std::sync::Arc;

use netvale_mem::Mapping;
use netvale_mem::csb::Csb;
use netvale_mem::notify::{arm, disarm, wanted};
use netvale_mem::words::Words;

/// PCI subsystem device id of a card that has all this, under Intel's vendor id. It is another one than that of the cards with the first
/// paravirtual extension of this kind (0x1101), whose block is laid out differently.
pub const SUBSYSTEM: u16 = 0x1103;
/// Bytes of the block, which begins at a multiple of 64.
pub const BYTES: u64 = 320;
/// Where the causes stand.
pub const CAUSES_AT: u64 = 256;
/// Halves of the transmit ring's entry, and of the receive ring's: the driver's, the controller's.
pub const TX_AT: (u64, u64) = (0, 128);
/// See [`TX_AT`].
pub const RX_AT: (u64, u64) = (64, 192);

/// The controller's end of a block.
#[derive(Debug)]
pub struct Paravirt {
    /// Of the transmit ring.
    tx: Csb,
    /// Of the receive ring.
    rx: Csb,
    causes: Words,
}

impl Paravirt {
    /// The block at `offset` of a guest's memory, with rings that are that far; none where there is no room for one.
    pub fn new(map: &Arc<Mapping>, offset: u64, (tx_head, rx_head): (u32, u32)) -> Option<Paravirt> {
        let csb = |(atok, ktoa): (u64, u64)| Csb::new(map, offset.checked_add(atok)?, offset.checked_add(ktoa)?);
        let causes = Words::new(map, offset.checked_add(CAUSES_AT)?, 1)?;
        let this = Paravirt { tx: csb(TX_AT)?, rx: csb(RX_AT)?, causes };
        this.tx.publish_tail(tx_head, tx_head);
        this.rx.publish_tail(rx_head, rx_head);
        this.causes.store(0, 0);
        // Whoever delivers looks for room by itself; who sends says when it sleeps.
        disarm(this.rx.kern_need_kick());
        this.disarm();
        Some(this)
    }

    /// The driver's TDT.
    #[inline]
    pub fn tx_tail(&self) -> u32 {
        self.tx.head()
    }

    /// The driver's RDT.
    #[inline]
    pub fn rx_tail(&self) -> u32 {
        self.rx.head()
    }

    /// Descriptors before `head` are sent. Returns whether the driver wants to know.
    #[inline]
    pub fn sent(&self, head: u32) -> bool {
        self.tx.publish_tail(head, head);
        wanted(self.tx.appl_need_kick())
    }

    /// Descriptors before `head` have frames. Returns whether the driver wants to know.
    #[inline]
    pub fn received(&self, head: u32) -> bool {
        self.rx.publish_tail(head, head);
        wanted(self.rx.appl_need_kick())
    }

    /// The next packet needs a kick.
    pub fn arm(&self) {
        arm(self.tx.kern_need_kick());
    }

    /// It does not.
    pub fn disarm(&self) {
        disarm(self.tx.kern_need_kick());
    }

    /// Causes that stand.
    pub fn tell(&self, causes: u32) {
        self.causes.store(0, causes);
    }
}
