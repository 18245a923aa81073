//! Tests of the driver on the card, without a hypervisor between them.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netvale_e1000::core::SharedCore;
use netvale_e1000::device::{Card, E1000};
use netvale_e1000::driver::queues::{CardRings, DriverEgress, DriverIngress};
use netvale_e1000::driver::ram::{CardRam, GUEST};
use netvale_e1000::driver::start::start;
use netvale_e1000::driver::{CardDriverOptions, CardRegisters};
use netvale_e1000::egress::E1000Egress;
use netvale_e1000::ingress::E1000Ingress;
use netvale_e1000::memory::CardMemory;
use netvale_e1000::regs::{CSBAL, TDT};
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_port::{Batch, Egress, Ingress, Scratch};
use netvale_vfio_user::dma::{Dma, WindowPlace};

/// Passes register accesses to the card, as a hypervisor does.
struct Direct {
    shared: Arc<SharedCore>,
    tails: AtomicU64,
}

impl CardRegisters for Direct {
    fn read(&self, at: u32) -> u32 {
        self.shared.enter().as_mut().unwrap().read(at)
    }

    fn write(&self, at: u32, value: u32) {
        self.tails.fetch_add(u64::from(at == TDT), Ordering::Relaxed);
        if self.shared.enter().as_mut().unwrap().write(at, value).sends {
            self.shared.kick();
        }
    }
}

struct Pair {
    direct: Arc<Direct>,
    has_block: bool,
    /// Queues of the driver: to the card, from the card.
    driver: (DriverEgress, DriverIngress),
    card: (E1000Egress, E1000Ingress),
    fault: Fault,
    scratch: Scratch,
    ram: Arc<CardRam>,
}

impl Pair {
    fn new(options: CardDriverOptions) -> Pair {
        let card = Card { mac: [2, 0, 0, 0, 0, 9], subsystem: 0, forced_interval: None };
        let shared = SharedCore::new(E1000::new(card)).unwrap();
        let ram = Arc::new(CardRam::new(options.slots).unwrap());
        let mut dma = Dma::default();
        let call = Doorbell::new().unwrap();
        let fd = ram.as_fd().try_clone_to_owned().unwrap();
        dma.map(WindowPlace { flags: 3, offset: 0, address: GUEST, size: ram.mapping().len() as u64 }, Some(&fd))
            .unwrap();
        let mut inside = shared.enter();
        let core = inside.as_mut().unwrap();
        drop(core.set_memory(CardMemory::of(&dma)));
        core.connect(Some(&call), true).unwrap();
        drop(inside);
        let direct = Arc::new(Direct { shared: Arc::clone(&shared), tails: AtomicU64::new(0) });
        let started = start(&(Arc::clone(&direct) as Arc<dyn CardRegisters>), &ram, options).unwrap();
        assert_eq!(started.mac, card.mac);
        let rings = Arc::<CardRings>::default();
        let fault = Fault::new().unwrap();
        rings.put(started.tx, started.rx).unwrap();
        let link = Arc::new(Doorbell::new().unwrap());
        let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
        let ingress = DriverIngress::new(rings, fault.clone(), call, link);
        let card = (E1000Egress::new(Arc::clone(&shared)), E1000Ingress::new(shared));
        let has_block = started.has_block;
        Pair { direct, has_block, driver: (egress, ingress), card, fault, scratch: Scratch::new(), ram }
    }

    fn tails(&self) -> u64 {
        self.direct.tails.load(Ordering::Relaxed)
    }
}

fn frame(tag: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u32 * 7 + tag) as u8).collect();
    bytes[0] = 2;
    bytes[12] = 8;
    bytes
}

fn copies(batch: &Batch) -> Vec<Vec<u8>> {
    let copy = |f: netvale_port::FrameRef<'_>| {
        let mut bytes = vec![0; f.len()];
        f.copy_out(0, &mut bytes);
        bytes
    };
    batch.iter().map(copy).collect()
}

/// Delivers frames as a switch does.
fn deliver(to: &dyn Egress, frames: &[Vec<u8>], scratch: &mut Scratch) -> usize {
    let mut batch = Batch::new();
    for bytes in frames {
        // SAFETY: the frames outlive the batch.
        unsafe { batch.push(bytes.as_ptr(), bytes.len() as u32) };
    }
    let picks: Vec<u16> = (0..frames.len() as u16).collect();
    to.deliver(&batch, &picks, scratch)
}

fn take(from: &mut dyn Ingress) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    // SAFETY: the batch is read before `release`, and ends here.
    unsafe { from.take(&mut batch) };
    let frames = copies(&batch);
    batch.clear();
    from.release();
    frames
}

const WAYS: [CardDriverOptions; 3] = [
    CardDriverOptions { slots: 64, csb: false, combine: 0 },
    CardDriverOptions { slots: 64, csb: false, combine: 8 },
    CardDriverOptions { slots: 64, csb: true, combine: 0 },
];

/// Objective: frames of all lengths pass in both directions, many times around the rings, in each mode of register
/// writes; short frames are padded.
#[test]
fn frames_of_all_lengths_go_both_ways() {
    for options in WAYS {
        let mut p = Pair::new(options);
        assert_eq!(p.has_block, options.csb);
        for round in 0..100u32 {
            let frames: Vec<_> =
                (0..20).map(|i| frame(round + i, 60 + (round as usize * 31 + i as usize * 97) % 1454)).collect();
            assert_eq!(deliver(&p.driver.0, &frames, &mut p.scratch), 20, "{options:?} {round}");
            let mut got = take(&mut p.card.1);
            // With Send Combining, waiting packets are published once earlier packets have been sent.
            while got.len() < 20 {
                p.driver.1.woken();
                let more = take(&mut p.card.1);
                assert!(!more.is_empty(), "{options:?} {round}: {}", got.len());
                got.extend(more);
            }
            assert!(got == frames, "{options:?} {round}");
            assert_eq!(deliver(&p.card.0, &frames, &mut p.scratch), 20, "{options:?} {round}");
            assert!(take(&mut p.driver.1) == frames, "{options:?} {round}");
        }
        assert_eq!(deliver(&p.driver.0, &[frame(1, 20)], &mut p.scratch), 1);
        assert_eq!(take(&mut p.card.1)[0].len(), 60);
        assert!(p.fault.take().is_none());
    }
}

/// Objective: each batch needs a register access; with Send Combining only if no packets are in flight; with a status
/// block only if the card sleeps.
#[test]
fn register_accesses_are_as_few_as_the_mode_allows() {
    let one = |i: u32| [frame(i, 60)];
    let [mut base, mut combined, mut block] = WAYS.map(Pair::new);
    for p in [&mut base, &mut combined, &mut block] {
        assert!(!p.card.1.arm());
        (0..6).for_each(|i| assert_eq!(deliver(&p.driver.0, &one(i), &mut p.scratch), 1));
    }
    assert_eq!((base.tails(), combined.tails()), (6, 1));
    assert_eq!(block.tails(), 1, "the card slept, and one kick is pending");
    block.card.1.disarm();
    (0..50).for_each(|i| assert_eq!(deliver(&block.driver.0, &one(i), &mut block.scratch), 1));
    assert_eq!((block.tails(), take(&mut block.card.1).len()), (1, 56));
    // The card stays awake for several rounds of the ring.
    for i in 0..300 {
        deliver(&block.driver.0, &one(i), &mut block.scratch);
        assert_eq!((block.tails(), take(&mut block.card.1).len()), (1, 1));
    }
    // The card sleeps before each frame.
    for i in 0..100 {
        assert!(!block.card.1.arm());
        assert_eq!(deliver(&block.driver.0, &one(i), &mut block.scratch), 1);
        assert_eq!(deliver(&block.driver.0, &one(i), &mut block.scratch), 1);
        assert_eq!((block.tails(), take(&mut block.card.1).len()), (2 + u64::from(i), 2));
    }
    // More packets than Send Combining lets wait.
    (0..4).for_each(|i| assert_eq!(deliver(&combined.driver.0, &one(i), &mut combined.scratch), 1));
    assert_eq!((combined.tails(), take(&mut combined.card.1).len()), (2, 10));
}

/// Objective: a full ring refuses frames and loses none; a new frame wakes a sleeping receiver, and arming reports
/// frames that are already there.
#[test]
fn a_full_ring_refuses_frames_and_loses_none() {
    for options in WAYS {
        let mut p = Pair::new(options);
        let frames: Vec<_> = (0..100).map(|i| frame(i, 60)).collect();
        assert_eq!(deliver(&p.driver.0, &frames, &mut p.scratch), 63);
        assert_eq!(take(&mut p.card.1).len(), 63);
        assert_eq!(deliver(&p.driver.0, &frames[63..], &mut p.scratch), 37, "{options:?}");
        p.driver.1.woken();
        assert!(!p.driver.1.arm());
        assert_eq!(deliver(&p.card.0, &frames[..3], &mut p.scratch), 3);
        let fd = p.driver.1.wake_fd().unwrap();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(fd, &mut count), Ok(8), "{options:?}: an interrupt");
        p.driver.1.woken();
        p.driver.1.disarm();
        assert_eq!(take(&mut p.driver.1).len(), 3);
        assert_eq!(deliver(&p.card.0, &frames[..2], &mut p.scratch), 2);
        assert!(p.driver.1.arm(), "there are frames already");
    }
}

/// Objective: a card that reports impossible values is not used any more, and the fault contains the reason.
#[test]
fn a_bad_card_is_given_up_with_the_reason() {
    let mut p = Pair::new(WAYS[2]);
    let csb = p.ram.csb(netvale_e1000::direction::CardDirection::Transmit).unwrap();
    csb.publish_tail(9, 9);
    let frames: Vec<_> = (0..100).map(|i| frame(i, 60)).collect();
    deliver(&p.driver.0, &frames, &mut p.scratch);
    assert_eq!(p.fault.take().unwrap().to_string(), "the card reports the impossible ring position 9");
    let csb = p.ram.csb(netvale_e1000::direction::CardDirection::Receive).unwrap();
    csb.publish_tail(u32::MAX, u32::MAX);
    assert!(take(&mut p.driver.1).is_empty());
    assert!(p.fault.take().is_some());
    // A reset of the card ends the use of the status block.
    p.direct.write(netvale_e1000::regs::CTRL, netvale_e1000::regs::CTRL_RST);
    assert_eq!(p.direct.read(CSBAL), 0);
}
