//! The controller, [`E1000`]: its register space, and operations on descriptors for the code that moves frames.
//!
//! This module does not touch guest memory. The caller reads descriptors at the addresses of the rings
//! ([`CardRing::address`]), and writes back their status.

use serde::{Deserialize, Serialize};

use crate::causes::Causes;
use crate::direction::CardDirection;
use crate::eeprom::Eeprom;
use crate::filter::AddressFilter;
use crate::phy::{INTERRUPT, Phy};
use crate::regs::*;
use crate::ring::{CardRing, RingRegister};
use crate::stats::Stats;
use crate::tx::{Assembler, DescResult, RawDesc, TxReport};

/// The configuration of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Ethernet address.
    pub mac: [u8; 6],
    /// PCI subsystem device ID.
    pub subsystem: u16,
    /// Value of ITR that overrides the driver's value; `None` leaves ITR to the driver.
    pub forced_interval: Option<u16>,
}

/// Actions that are due after a register access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Whether there may be packets to send.
    pub sends: bool,
    /// Whether there may be room for received frames.
    pub receives: bool,
}

/// Plain registers, which only store the driver's value, with their writable bits: flow control, gaps between frames,
/// LEDs, thresholds, wake-up, management.
const PLAIN: [(u32, u32); 24] = [
    (FCAL, !0),
    (FCAH, 0xffff),
    (FCT, 0xffff),
    (0x0170, 0xffff),
    (0x0178, 0xc000_ffff),
    (0x0180, !0),
    (0x0410, 0x3fff_ffff),
    (0x0458, !0),
    (0x0e00, !0),
    (PBA, !0),
    (0x2160, 0x8000_fff8),
    (0x2168, 0x0000_fff8),
    (0x2828, !0),
    (0x3828, !0),
    (0x3830, !0),
    (0x5800, !0),
    (0x5808, !0),
    (0x5810, !0),
    (0x5820, !0),
    (0x5838, !0),
    (0x0008_0000, !0),
    (0x0008_0004, !0),
    (0x5900, !0),
    (0x5a00, !0),
];
/// Reset value of PBA: kilobytes of packet buffer for transmission (upper half) and for reception (§13.4.49).
const PBA_RESET: u32 = 0x0010_0030;

/// An 82540EM controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct E1000 {
    card: Card,
    eeprom: Eeprom,
    phy: Phy,
    filter: AddressFilter,
    stats: Stats,
    /// Interrupt causes, mask and timers.
    pub causes: Causes,
    pub(crate) tx: CardRing,
    pub(crate) rx: CardRing,
    pub(crate) assembler: Assembler,
    ctrl: u32,
    ctrl_ext: u32,
    rctl: u32,
    tctl: u32,
    rxcsum: u32,
    vet: u16,
    small: u16,
    plain: [u32; PLAIN.len()],
    /// Guest address of the status block ([`crate::paravirt`]); zero without one.
    csb: u64,
    /// Whether there are received frames that are not reported yet.
    received: bool,
    /// Whether a frame of at most RSRPD bytes is among the received frames that are not reported yet.
    received_small: bool,
    /// Whether few receive descriptors were left at the last check (RCTL.RDMTS).
    few: bool,
    /// Number of resets of the card.
    resets: u64,
}

impl E1000 {
    /// Creates a card with a cable plugged in.
    pub fn new(card: Card) -> E1000 {
        let eeprom = Eeprom::new(card.mac, card.subsystem);
        let phy = Phy::new(true);
        Self::powered_up(card, eeprom, phy, Causes::new(card.forced_interval))
    }

    fn powered_up(card: Card, eeprom: Eeprom, phy: Phy, causes: Causes) -> E1000 {
        E1000 {
            card,
            eeprom,
            phy,
            filter: AddressFilter::new(card.mac),
            stats: Stats::default(),
            causes,
            tx: CardRing::default(),
            rx: CardRing::default(),
            assembler: Assembler::default(),
            // Full duplex, speed detected, 1,000 Mbit/s.
            ctrl: 1 | 1 << 5 | 0b10 << 8,
            ctrl_ext: 0,
            rctl: 0,
            tctl: 0,
            rxcsum: 0,
            vet: 0x8100,
            small: 0,
            plain: PLAIN.map(|(at, _)| if at == PBA { PBA_RESET } else { 0 }),
            csb: 0,
            received: false,
            received_small: false,
            few: false,
            resets: 0,
        }
    }

    /// Whether this state, which may come from another process, is possible for a card with this configuration.
    pub(crate) fn is_possible(&self, card: &Card) -> bool {
        let plain = || self.plain.iter().zip(&PLAIN).all(|(value, (_, bits))| value & !bits == 0);
        self.card == *card
            && self.resets < u64::MAX / 2
            && self.eeprom.is_possible(card.mac, card.subsystem)
            && self.causes.are_possible(card.forced_interval)
            && self.tx.is_possible()
            && self.rx.is_possible()
            && self.small <= 0xfff
            && self.rxcsum <= 0x3ff
            && plain()
    }

    /// Number of resets of the card.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Resets to the state after CTRL.RST (§14.2). Cable, EEPROM, PHY and throttling in progress keep their state.
    pub fn reset(&mut self) {
        let mut causes = std::mem::take(&mut self.causes);
        causes.reset();
        let resets = self.resets + 1;
        *self = E1000 { resets, ..Self::powered_up(self.card, self.eeprom.clone(), self.phy.clone(), causes) };
    }

    /// Plugs the cable in (true) or unplugs it (false).
    pub fn set_cable(&mut self, cable: bool) {
        if self.phy.set_cable(cable) {
            self.causes.set(ICR_LSC);
        }
    }

    /// Whether the link is up: the cable is plugged in, and the driver has set the link up.
    pub fn is_linked(&self) -> bool {
        self.phy.is_linked() && self.ctrl & CTRL_SLU != 0
    }

    /// Whether sent frames are looped back, in the PHY or in the MAC before it (§8.6).
    pub fn is_looped(&self) -> bool {
        self.phy.is_looped() || self.rctl & RCTL_LBM == RCTL_LBM_MAC
    }

    fn status(&self) -> u32 {
        STATUS_FD | STATUS_SPEED_1000 | if self.is_linked() { STATUS_LU } else { 0 }
    }

    /// Reads a register. Missing registers read as zero.
    pub fn read(&mut self, at: u32) -> u32 {
        let of = |direction| self.causes.delays(direction);
        match at {
            CTRL => self.ctrl,
            STATUS => self.status(),
            EECD | EERD => self.eeprom.register(at),
            CTRL_EXT => self.ctrl_ext,
            MDIC => self.phy.mdic(),
            VET => self.vet.into(),
            ICR => self.causes.read(),
            ITR => self.causes.interval().into(),
            IMS => self.causes.mask(),
            RCTL => self.rctl,
            TCTL => self.tctl,
            RDTR => of(CardDirection::Receive).0.into(),
            RADV => of(CardDirection::Receive).1.into(),
            TIDV => of(CardDirection::Transmit).0.into(),
            TADV => of(CardDirection::Transmit).1.into(),
            RSRPD => self.small.into(),
            RXCSUM => self.rxcsum,
            CSBAL => self.csb as u32,
            CSBAH => (self.csb >> 32) as u32,
            RDBAL..RDTR => RingRegister::at(at - RDBAL).map_or(0, |register| self.rx.read(register)),
            TDBAL..TIDV => RingRegister::at(at - TDBAL).map_or(0, |register| self.tx.read(register)),
            at if STATISTICS.contains(&at) => self.stats.read(at),
            at => self.filter.read(at).unwrap_or_else(|| self.plain(at).map_or(0, |(register, _)| *register)),
        }
    }

    /// The plain register at the offset `at`, with its writable bits; `None` if there is none.
    fn plain(&mut self, at: u32) -> Option<(&mut u32, u32)> {
        let i = PLAIN.iter().position(|(plain, _)| *plain == at)?;
        Some((self.plain.get_mut(i)?, PLAIN.get(i)?.1))
    }

    /// Writes a register. Writes to missing and read-only registers are ignored.
    pub fn write(&mut self, at: u32, value: u32) -> Effects {
        match at {
            CTRL => return self.control(value),
            EECD | EERD => self.eeprom.write(at, value),
            CTRL_EXT if value & CTRL_EXT_EE_RST != 0 => self.reset(),
            CTRL_EXT => self.ctrl_ext = value,
            MDIC => self.mdi(value),
            VET => self.vet = value as u16,
            // Hardware clears the written bits, although the manual does not mention it.
            ICR => self.acknowledge(value),
            ITR => self.causes.set_interval(value as u16),
            ICS => self.causes.set(value),
            IMS => self.causes.unmask(value),
            IMC => self.causes.mask_out(value),
            RCTL => {
                self.rctl = value;
                return Effects { receives: true, ..Effects::default() };
            }
            TCTL => {
                self.tctl = value;
                return Effects { sends: true, ..Effects::default() };
            }
            RDTR => {
                self.causes.set_relative(CardDirection::Receive, value as u16);
                if value & RDTR_FPD != 0 {
                    self.causes.flush(CardDirection::Receive);
                }
            }
            RADV => self.causes.set_absolute(CardDirection::Receive, value as u16),
            TIDV => self.causes.set_relative(CardDirection::Transmit, value as u16),
            TADV => self.causes.set_absolute(CardDirection::Transmit, value as u16),
            RSRPD => self.small = value as u16 & 0xfff,
            RXCSUM => self.rxcsum = value & 0x3ff,
            CSBAL => self.csb = self.csb & !0xffff_ffff | u64::from(value),
            CSBAH => self.csb = self.csb & 0xffff_ffff | u64::from(value) << 32,
            RDBAL..RDTR | TDBAL..TIDV => return self.ring(at, value),
            at => {
                if !self.filter.write(at, value)
                    && let Some((register, bits)) = self.plain(at)
                {
                    *register = value & bits;
                }
            }
        }
        Effects::default()
    }

    fn control(&mut self, value: u32) -> Effects {
        let before = self.is_linked();
        if value & CTRL_RST != 0 {
            self.reset();
        } else {
            if value & CTRL_PHY_RST != 0 {
                self.phy.reset();
            }
            self.ctrl = value & !CTRL_PHY_RST;
        }
        if before != self.is_linked() && value & CTRL_RST == 0 {
            self.causes.set(ICR_LSC);
        }
        Effects::default()
    }

    fn mdi(&mut self, value: u32) {
        if self.phy.access(value) {
            self.causes.set(ICR_LSC);
        }
        if value & INTERRUPT != 0 {
            self.causes.set(ICR_MDAC);
        }
    }

    fn acknowledge(&mut self, causes: u32) {
        let standing = self.causes.read();
        self.causes.set(standing & !causes);
    }

    fn ring(&mut self, at: u32, value: u32) -> Effects {
        let tail = Some(RingRegister::Tail);
        if at >= TDBAL {
            let register = RingRegister::at(at - TDBAL);
            register.into_iter().for_each(|register| self.tx.write(register, value));
            return Effects { sends: register == tail, receives: false };
        }
        let register = RingRegister::at(at - RDBAL);
        register.into_iter().for_each(|register| self.rx.write(register, value));
        Effects { receives: register == tail, sends: false }
    }

    /// Guest address of the status block; zero without one.
    pub fn csb(&self) -> u64 {
        self.csb
    }

    /// TDH and RDH: index of the first descriptor of each ring that is not done.
    pub fn heads(&self) -> (u32, u32) {
        (self.tx.read(RingRegister::Head), self.rx.read(RingRegister::Head))
    }

    /// Sets TDT. If `tail` is invalid, the ring has no descriptors to send.
    pub fn set_tx_tail(&mut self, tail: u32) {
        self.tx.write(RingRegister::Tail, tail.min(u16::MAX.into()));
    }

    /// Sets RDT. If `tail` is invalid, the ring has no descriptors to fill.
    pub fn set_rx_tail(&mut self, tail: u32) {
        self.rx.write(RingRegister::Tail, tail.min(u16::MAX.into()));
    }

    /// Number of transmit descriptors that the card owns; zero while the transmitter is off or the link is down.
    pub fn tx_owned(&self) -> u32 {
        if self.tctl & TCTL_EN != 0 && self.is_linked() { self.tx.owned() } else { 0 }
    }

    /// Processes the next transmit descriptor.
    pub fn tx_step(&mut self, raw: RawDesc) -> DescResult {
        self.assembler.step(raw, self.ctrl & CTRL_VME != 0)
    }

    /// Whether the driver has filled the transmit ring, of which the card owns `owned` descriptors, so that it cannot
    /// add the end of a packet.
    pub fn tx_is_full(&self, owned: u32) -> bool {
        owned + 1 >= self.tx.count()
    }

    /// The Ethertype of VLAN tags.
    pub fn vlan_type(&self) -> u16 {
        self.vet
    }

    /// Reports to the driver that transmit descriptors are done, if it requested such reports.
    pub fn tx_report(&mut self, report: TxReport, now: u64) {
        match report {
            TxReport::Delayed => self.causes.event(CardDirection::Transmit, now),
            TxReport::Immediate => self.causes.set(ICR_TXDW),
            TxReport::None => {}
        }
        if self.tx.owned() == 0 {
            self.causes.set(ICR_TXQE);
        }
    }

    /// Counts a sent frame in the statistics.
    pub fn sent(&mut self, to: [u8; 6], len: usize, segmented: bool) {
        self.stats.passed(CardDirection::Transmit, to, len);
        if segmented {
            self.stats.segmented();
        }
    }

    /// Whether the receiver is on and the link is up.
    pub fn receives(&self) -> bool {
        self.is_linked() && self.rctl & RCTL_EN != 0
    }

    /// Whether the link is up and the receive filter accepts a frame that begins with `head` and has `len` bytes
    /// without CRC.
    pub fn takes(&self, head: &[u8; 18], len: usize) -> bool {
        self.is_linked() && self.filter.takes(head, len, self.rctl, self.vet)
    }

    /// Size of a receive buffer in bytes (RCTL.BSIZE, RCTL.BSEX).
    pub fn rx_buffer(&self) -> u32 {
        let size = 2048 >> (self.rctl >> 16 & 3);
        // With BSEX, the largest size is reserved; treat it as the next smaller size.
        if self.rctl & RCTL_BSEX != 0 { (size * 16).min(16_384) } else { size }
    }

    /// Number of CRC bytes that the driver expects after each frame.
    pub fn rx_crc(&self) -> u32 {
        if self.rctl & RCTL_SECRC != 0 { 0 } else { 4 }
    }

    /// Whether VLAN tags are removed from received frames.
    pub fn strips_tags(&self) -> bool {
        self.ctrl & CTRL_VME != 0
    }

    /// Marks the first `count` receive descriptors as filled with a frame of `len` bytes.
    pub fn rx_done(&mut self, count: u32, to: [u8; 6], len: usize) {
        self.rx.advance(count);
        self.stats.passed(CardDirection::Receive, to, len);
        self.received = true;
        self.received_small |= len <= usize::from(self.small);
    }

    /// Reports to the driver, if `wanted`, that the frames since the last report are in the guest's memory. Also sets
    /// the cause for few remaining descriptors.
    pub fn rx_report(&mut self, wanted: bool, now: u64) {
        let small = std::mem::take(&mut self.received_small);
        if !std::mem::take(&mut self.received) {
            return;
        }
        if wanted && small {
            self.causes.flush(CardDirection::Receive);
            self.causes.set(ICR_RXT0);
        } else if wanted {
            self.causes.event(CardDirection::Receive, now);
        }
        let least = self.rx.count() >> ((self.rctl >> 8 & 3) + 1).min(3);
        let few = self.rx.owned() <= least;
        if few && !self.few {
            self.causes.set(ICR_RXDMT0);
        }
        self.few = few;
    }

    /// Counts a received frame that is lost for lack of descriptors, and sets the cause for that.
    pub fn rx_missed(&mut self) {
        self.stats.missed();
        self.causes.set(ICR_RXO);
    }
}

#[cfg(test)]
mod tests;
