//! The paravirtual extension: a communication status block (CSB) in the guest's memory, in which driver and controller
//! publish their progress. Registers are written and interrupts sent only if the other side sleeps.
//!
//! The block contains netmap's status block ([`Csb`]) for each direction. `head` replaces TDT and RDT; `hwcur` and
//! `hwtail` replace TDH and RDH: descriptors before them are done. Writing TDT is a kick, which the driver sends while
//! `kern_need_kick` is set. A direction interrupts while its `appl_need_kick` is set, as ITR and the delay timers
//! allow. After a message interrupt, the driver need not read ICR: events visible in the block do not stay set as
//! causes, and other causes are published at [`CAUSES_AT`].
//!
//! | offset | bytes | content |
//! |---|---|---|
//! | 0 | 64 | `nm_csb_atok` of the transmit ring, written by the driver |
//! | 64 | 64 | `nm_csb_atok` of the receive ring |
//! | 128 | 64 | `nm_csb_ktoa` of the transmit ring, written by the controller |
//! | 192 | 64 | `nm_csb_ktoa` of the receive ring |
//! | 256 | 4 | causes that are set and unmasked; if not zero, the driver must read ICR |

use std::sync::Arc;

use netvale_mem::Mapping;
use netvale_mem::csb::Csb;
use netvale_mem::notify::{arm, disarm, wanted};
use netvale_mem::words::Words;

/// PCI subsystem device ID of a card with this extension, under Intel's vendor ID. An earlier extension of this kind
/// has another ID (0x1101) and another layout.
pub const SUBSYSTEM: u16 = 0x1103;
/// Size of the block in bytes. The block begins at a multiple of 64.
pub const BYTES: u64 = 320;
/// Offset of the causes.
pub const CAUSES_AT: u64 = 256;
/// Offsets of the transmit ring's halves, written by the driver and by the controller.
pub const TX_AT: (u64, u64) = (0, 128);
/// Offsets of the receive ring's halves, written by the driver and by the controller.
pub const RX_AT: (u64, u64) = (64, 192);

/// The controller's end of a status block.
#[derive(Debug)]
pub struct Paravirt {
    /// Status block of the transmit ring.
    tx: Csb,
    /// Status block of the receive ring.
    rx: Csb,
    causes: Words,
}

impl Paravirt {
    /// Initialises the block at `offset` of a guest's memory for rings with these heads; `None` if the block does not
    /// fit.
    pub fn new(map: &Arc<Mapping>, offset: u64, tx_head: u32, rx_head: u32) -> Option<Paravirt> {
        let this = Self::at(map, offset)?;
        this.tx.publish_tail(tx_head, tx_head);
        this.rx.publish_tail(rx_head, rx_head);
        this.causes.store(0, 0);
        // The egress polls for room and needs no kicks; the ingress arms kicks before it sleeps.
        disarm(this.rx.kern_need_kick());
        this.disarm();
        Some(this)
    }

    /// Opens a block that is in use, without writing to it; `None` if the block does not fit.
    pub fn at(map: &Arc<Mapping>, offset: u64) -> Option<Paravirt> {
        let csb = |(atok, ktoa): (u64, u64)| Csb::new(map, offset.checked_add(atok)?, offset.checked_add(ktoa)?);
        let causes = Words::new(map, offset.checked_add(CAUSES_AT)?, 1)?;
        Some(Paravirt { tx: csb(TX_AT)?, rx: csb(RX_AT)?, causes })
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

    /// Publishes the descriptors before `head` as sent. Returns whether the driver wants an interrupt.
    #[inline]
    pub fn sent(&self, head: u32) -> bool {
        self.tx.publish_tail(head, head);
        wanted(self.tx.appl_need_kick())
    }

    /// Publishes the descriptors before `head` as filled. Returns whether the driver wants an interrupt.
    #[inline]
    pub fn received(&self, head: u32) -> bool {
        self.rx.publish_tail(head, head);
        wanted(self.rx.appl_need_kick())
    }

    /// Requests a kick (a write of TDT) with the next packet.
    pub fn arm(&self) {
        arm(self.tx.kern_need_kick());
    }

    /// Withdraws the request for kicks.
    pub fn disarm(&self) {
        disarm(self.tx.kern_need_kick());
    }

    /// Publishes the causes that are set and unmasked.
    pub fn write_causes(&self, causes: u32) {
        self.causes.store(0, causes);
    }
}
