//! Tests of the controller as a driver sees it.

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 1, 2, 3];

fn card() -> E1000 {
    E1000::new(Card { mac: MAC, subsystem: 0x001e, forced_interval: None })
}

/// Sets up a working card as a driver does.
fn up(e: &mut E1000) {
    e.write(CTRL, CTRL_RST);
    e.write(CTRL, CTRL_SLU);
    for (at, value) in [(TDBAL, 0x1000), (TDLEN, 256), (RDBAL, 0x2000), (RDLEN, 256)] {
        e.write(at, value);
    }
    e.write(IMS, ICR_TXDW | ICR_RXT0 | ICR_RXDMT0 | ICR_LSC);
    e.write(RCTL, RCTL_EN | RCTL_BAM);
    e.write(TCTL, TCTL_EN);
}

/// Objective: after a reset, registers have the manual's values, and the link is down until the driver sets the link
/// up, which sets a cause.
#[test]
fn registers_have_the_manuals_values_after_a_reset() {
    let mut e = card();
    assert_eq!((e.read(STATUS) & STATUS_LU, e.read(PBA), e.read(VET)), (0, PBA_RESET, 0x8100));
    up(&mut e);
    assert!(e.is_linked() && e.read(STATUS) & STATUS_LU != 0);
    assert_eq!(e.read(ICR), ICR_LSC);
    e.set_cable(false);
    assert_eq!((e.read(ICR), e.read(STATUS) & STATUS_LU, e.tx_owned()), (ICR_LSC, 0, 0));
    e.set_cable(true);
    e.write(RA.start + 8, 7);
    e.write(TDT, 5);
    e.write(CTRL, CTRL_RST | CTRL_SLU);
    let zero = [TDT, TDLEN, IMS, RCTL, TCTL, RA.start + 8, ICR];
    assert_eq!(zero.map(|at| e.read(at)), [0; 7]);
    assert_eq!(e.read(CTRL) & CTRL_RST, 0, "the reset bit must clear itself");
    assert_eq!(e.read(RA.start), 0x0100_0002, "the address must be loaded again");
}

/// Objective: writing the tail sends packets; descriptors written back set a cause, immediately or after the delay; an
/// empty ring sets another cause.
#[test]
fn writing_the_tail_sends_packets() {
    let mut e = card();
    up(&mut e);
    e.read(ICR);
    assert_eq!(e.write(TDT, 2), Effects { sends: true, receives: false });
    assert_eq!((e.tx_owned(), e.tx.address(1)), (2, Some(0x1010)));
    let raw = |command: u64| [0x5000, 60 | command << 24];
    assert!(e.tx_step(raw(0b1001)).ends && e.assembler.packet().len == 60);
    e.tx.advance(1);
    e.tx_report(TxReport::Immediate, 0);
    assert_eq!(e.read(ICR), ICR_TXDW);
    e.write(TIDV, 8);
    e.tx.advance(1);
    e.tx_report(TxReport::Delayed, 1000);
    assert_eq!((e.read(ICR), e.read(TDH)), (ICR_TXQE, 2));
    e.causes.update(1000 + 8 * 1024);
    assert_eq!(e.read(ICR), ICR_TXDW);
    e.sent([0xff; 6], 60, true);
    assert_eq!((e.read(0x4080), e.read(0x40f8)), (1, 1));
}

/// Objective: received frames fill descriptors; few remaining descriptors set a cause once, and an empty ring sets
/// another cause; buffers have the sizes in RCTL.
#[test]
fn received_frames_fill_descriptors() {
    let mut e = card();
    up(&mut e);
    e.read(ICR);
    assert_eq!(e.write(RDT, 12), Effects { sends: false, receives: true });
    let head: [u8; 18] = std::array::from_fn(|i| MAC.get(i).copied().unwrap_or(0));
    assert!(e.takes(&head, 60));
    let causes: Vec<u32> = (0..12)
        .map(|_| {
            e.rx_done(1, MAC, 60);
            e.rx_report(true, 0);
            e.read(ICR)
        })
        .collect();
    assert_eq!(causes.iter().filter(|c| **c & ICR_RXDMT0 != 0).count(), 1);
    assert!(causes.iter().all(|c| *c & ICR_RXT0 != 0) && e.rx.owned() == 0);
    e.rx_missed();
    assert_eq!((e.read(ICR), e.read(0x4010)), (ICR_RXO, 1));
    for (bits, size) in [(0, 2048), (1 << 16, 1024), (3 << 16, 256), (RCTL_BSEX | 1 << 16, 16_384)] {
        e.write(RCTL, RCTL_EN | bits);
        assert_eq!(e.rx_buffer(), size);
    }
    e.write(RCTL, RCTL_EN | RCTL_BSEX | 3 << 16 | RCTL_SECRC);
    assert_eq!((e.rx_buffer(), e.rx_crc()), (4096, 0));
}

/// Objective: small frames are reported without delay, other frames after the delay timers.
#[test]
fn small_frames_do_not_wait_for_the_delay() {
    let mut e = card();
    up(&mut e);
    e.write(RDT, 10);
    e.write(RDTR, 100);
    e.write(RSRPD, 128);
    e.read(ICR);
    let received = |e: &mut E1000| e.read(ICR) & ICR_RXT0 != 0;
    e.rx_done(1, MAC, 1500);
    e.rx_report(true, 0);
    assert!(!received(&mut e));
    e.rx_done(1, MAC, 100);
    e.rx_report(true, 0);
    assert!(received(&mut e));
    e.rx_done(1, MAC, 1500);
    e.rx_report(true, 0);
    assert!(!received(&mut e));
    e.write(RDTR, 100 | RDTR_FPD);
    assert!(received(&mut e));
}

/// Objective: no register access panics, and a reset restores the registers.
#[test]
fn no_access_changes_more_than_registers() {
    let mut e = card();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..200_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = (state >> 40) as u32 & (SPACE - 1) & !3;
        let value = state as u32;
        if state & 1 == 0 {
            e.write(at, value);
        } else {
            e.read(at);
        }
        e.causes.update(state >> 20);
        assert!(e.tx_owned() < 0x1_0000 && e.rx.owned() < 0x1_0000 && e.rx_buffer() >= 256);
    }
    up(&mut e);
    assert!(e.is_linked() || e.read(CTRL) != 0);
    assert_eq!((e.read(RDLEN), e.read(VET)), (256, 0x8100));
}
