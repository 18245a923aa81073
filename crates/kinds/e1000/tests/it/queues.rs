//! Tests of both queues on a guest's memory. The tests act as drivers, well-behaved and hostile.

use std::sync::Arc;

use netvale_e1000::core::{Core, SharedCore};
use netvale_e1000::device::{Card, E1000};
use netvale_e1000::egress::E1000Egress;
use netvale_e1000::ingress::E1000Ingress;
use netvale_e1000::memory::CardMemory;
use netvale_e1000::paravirt::{CAUSES_AT, RX_AT, TX_AT};
use netvale_e1000::regs::*;
use netvale_e1000::vfio::E1000Device;
use netvale_mem::Mapping;
use netvale_mem::fault::Fault;
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use netvale_port::{Batch, Egress, Scratch, Source};
use netvale_vfio_user::dma::{Dma, WindowPlace};
use netvale_vfio_user::irqs::Irqs;
use netvale_vfio_user::{Device, DeviceHost};

/// Size of the guest's memory in bytes.
const SIZE: u64 = 1 << 20;
/// Guest address of the memory.
const BASE: u64 = 0x4000_0000;
/// Offset of the transmit ring in the memory.
const TX: u64 = 0;
/// Offset of the receive ring in the memory.
const RX: u64 = 0x1000;
/// Number of descriptors of each ring.
const COUNT: u64 = 64;
/// Offset of the status block in the memory. The first words of a driver's half are head, cur, need_kick; the first
/// words of a card's half are hwcur, hwtail, need_kick.
const CSB: u64 = 0x2000;
/// Offset of the buffers in the memory.
const BUFFERS: u64 = 0x1_0000;

struct Card0 {
    shared: Arc<SharedCore>,
    words: Words,
    _map: Arc<Mapping>,
}

impl Card0 {
    fn new() -> Card0 {
        let (fd, map, _) = sealed_memfd("guest", SIZE, PageKind::Ordinary).unwrap();
        let map = Arc::new(map);
        let mut dma = Dma::default();
        dma.map(WindowPlace { flags: 3, offset: 0, address: BASE, size: SIZE }, Some(&fd)).unwrap();
        let card = Card { mac: [2, 0, 0, 0, 0, 1], subsystem: 0, forced_interval: None };
        let shared = SharedCore::new(E1000::new(card)).unwrap();
        let this = Card0 { shared, words: Words::new(&map, 0, SIZE as usize / 4).unwrap(), _map: map };
        this.with(|core| core.set_memory(CardMemory::of(&dma)));
        this.up();
        this
    }

    fn with<T>(&self, f: impl FnOnce(&mut Core) -> T) -> T {
        f(self.shared.enter().as_mut().unwrap())
    }

    fn write(&self, at: u32, value: u32) {
        self.with(|core| core.write(at, value));
    }

    fn read(&self, at: u32) -> u32 {
        self.with(|core| core.read(at))
    }

    /// Sets up the card as a driver does.
    fn up(&self) {
        let length = COUNT as u32 * 16;
        let registers = [(CTRL, CTRL_RST), (CTRL, CTRL_SLU), (TDBAL, (BASE + TX) as u32), (TDLEN, length)];
        let more = [(RDBAL, (BASE + RX) as u32), (RDLEN, length), (TCTL, TCTL_EN), (IMS, ICR_TXDW | ICR_RXT0)];
        let all = [(RCTL, RCTL_EN | RCTL_UPE | RCTL_MPE | RCTL_BAM | RCTL_SECRC), (RDTR, 0)];
        registers.into_iter().chain(more).chain(all).for_each(|(at, value)| self.write(at, value));
        self.read(ICR);
    }

    fn put64(&self, at: u64, value: u64) {
        self.words.store(at as usize / 4, value as u32);
        self.words.store(at as usize / 4 + 1, (value >> 32) as u32);
    }

    fn get64(&self, at: u64) -> u64 {
        u64::from(self.words.load(at as usize / 4)) | u64::from(self.words.load(at as usize / 4 + 1)) << 32
    }

    fn descriptor(&self, ring: u64, i: u64, address: u64, word: u64) {
        self.put64(ring + i % COUNT * 16, address);
        self.put64(ring + i % COUNT * 16 + 8, word);
    }

    fn byte(&self, at: u64) -> u8 {
        (self.words.load(at as usize / 4) >> (8 * (at % 4))) as u8
    }

    /// Fills a buffer with bytes that depend on their address.
    fn fill(&self, at: u64, len: u64) {
        (0..len.div_ceil(4))
            .for_each(|i| self.words.store((at / 4 + i) as usize, (at as u32 / 4 + i as u32) | 0x0200_0002));
    }
}

/// Command bits of a whole packet: EOP, IFCS, RS.
const WHOLE: u64 = 0b1011 << 24;

fn source(card: &Card0) -> Source<E1000Ingress> {
    Source::new(Box::new(E1000Ingress::new(Arc::clone(&card.shared))))
}

fn bytes(batch: &Batch, i: usize) -> Vec<u8> {
    let frame = batch.get(i).unwrap();
    let mut bytes = vec![0; frame.len()];
    assert_eq!(frame.copy_out(0, &mut bytes), frame.len());
    bytes
}

/// Objective: packets of one and several pieces are sent unchanged, and short packets are padded; their descriptors are
/// done after the release and not before; a packet without its end waits and does not keep the worker awake.
#[test]
fn packets_go_out_unchanged() {
    let card = Card0::new();
    let mut ingress = source(&card);
    let mut spare = Box::default();
    card.fill(BUFFERS, 4096);
    card.descriptor(TX, 0, BASE + BUFFERS, 100 | WHOLE);
    card.descriptor(TX, 1, BASE + BUFFERS + 200, 20 | WHOLE);
    card.descriptor(TX, 2, BASE + BUFFERS + 300, 50);
    card.descriptor(TX, 3, BASE + BUFFERS + 1000, 70 | WHOLE);
    card.write(TDT, 3);
    assert!(ingress.arm());
    let batch = ingress.take(&mut spare);
    assert_eq!(batch.len(), 2, "the third has no end yet");
    let expected = |from: u64, len: u64| (from..from + len).map(|at| card.byte(BUFFERS + at)).collect::<Vec<_>>();
    assert_eq!(bytes(batch, 0), expected(0, 100));
    assert_eq!(bytes(batch, 1), [expected(200, 20), vec![0; 40]].concat());
    assert_eq!((card.get64(TX + 8) >> 32, card.read(TDH)), (0, 0), "not done before it is delivered");
    ingress.release(&mut spare);
    assert_eq!((card.get64(TX + 8) >> 32 & 1, card.get64(TX + 24) >> 32 & 1, card.read(TDH)), (1, 1, 2));
    assert_eq!(card.read(ICR) & ICR_TXDW, ICR_TXDW);
    let batch = ingress.take(&mut spare);
    assert!(batch.is_empty() && !ingress.arm(), "nothing new");
    card.write(TDT, 4);
    assert!(ingress.arm());
    let batch = ingress.take(&mut spare);
    assert_eq!(bytes(batch, 0), [expected(300, 50), expected(1000, 70)].concat());
    ingress.release(&mut spare);
    assert_eq!(card.read(TDH), 4);
    // An incomplete packet waits. After a reset, one descriptor is available as before, but in a new ring: the
    // descriptor is taken.
    card.descriptor(TX, 4, BASE + BUFFERS, 60);
    card.write(TDT, 5);
    let batch = ingress.take(&mut spare);
    assert!(batch.is_empty() && !ingress.arm());
    card.up();
    card.descriptor(TX, 0, BASE + BUFFERS, 60 | WHOLE);
    card.write(TDT, 1);
    assert!(ingress.arm());
    let batch = ingress.take(&mut spare);
    assert_eq!(batch.len(), 1);
    ingress.release(&mut spare);
}

/// Objective: a tag is removed if the driver has configured it, and the frame keeps the minimum length.
#[test]
fn tags_are_taken_out() {
    let from = Card0::new();
    let to = Card0::new();
    let mut ingress = source(&from);
    let mut spare = Box::default();
    let egress = E1000Egress::new(Arc::clone(&to.shared));
    let mut scratch = Scratch::new();
    from.descriptor(TX, 0, BASE + BUFFERS, 60 | WHOLE);
    from.write(TDT, 1);
    let batch = ingress.take(&mut spare);
    to.write(VET, 0);
    to.write(CTRL, CTRL_SLU | CTRL_VME);
    to.descriptor(RX, 0, BASE + BUFFERS, 0);
    to.write(RDT, 1);
    assert_eq!(egress.deliver(batch, &[0], &mut scratch), 1);
    // A frame of zeros has a tag of Ethertype 0, which VET selects. Padding replaces the removed tag.
    assert_eq!((to.get64(RX + 8) & 0xffff, to.get64(RX + 8) >> 32 & 0xf), (60, 0xf));
    ingress.release(&mut spare);
}

/// Objective: frames fill buffers, several buffers if one is too small, and descriptors get length and status; without
/// descriptors, frames are counted as missed.
#[test]
fn received_frames_fill_buffers() {
    let from = Card0::new();
    let to = Card0::new();
    let mut ingress = source(&from);
    let mut spare = Box::default();
    let egress = E1000Egress::new(Arc::clone(&to.shared));
    let mut scratch = Scratch::new();
    from.fill(BUFFERS, 4096);
    for (i, len) in [60, 1514, 700].into_iter().enumerate() {
        from.descriptor(TX, i as u64, BASE + BUFFERS, len | WHOLE);
    }
    from.write(TDT, 3);
    let batch = ingress.take(&mut spare);
    assert_eq!(batch.len(), 3);
    // With buffers of 1,024 bytes, the frames need 1 + 2 + 1 descriptors, one descriptor more than available.
    to.write(RCTL, to.read(RCTL) | 1 << 16);
    (0..4).for_each(|i| to.descriptor(RX, i, BASE + BUFFERS + i * 2048, 0));
    to.write(RDT, 3);
    assert_eq!(egress.deliver(batch, &[0, 1, 2], &mut scratch), 2);
    let status = |i: u64| to.get64(RX + i * 16 + 8);
    assert_eq!([0, 1, 2].map(|i| status(i) & 0xffff), [60, 1024, 490]);
    assert_eq!([0, 1, 2].map(|i| status(i) >> 32 & 3), [3, 1, 3], "done, and the end of the packet");
    assert_eq!((status(3), to.read(RDH)), (0, 3));
    let expected = bytes(batch, 1);
    let got: Vec<u8> = (0..1514).map(|i| to.byte(BUFFERS + 2048 + i / 1024 * 2048 + i % 1024)).collect();
    assert_eq!(got, expected);
    assert_eq!(to.read(ICR) & (ICR_RXT0 | ICR_RXO), ICR_RXT0 | ICR_RXO);
    assert_eq!((to.read(0x4074), to.read(0x4010)), (2, 1));
    to.write(RDT, 4);
    assert_eq!(egress.deliver(batch, &[2], &mut scratch), 1);
    assert_eq!(status(3) & 0xffff, 700);
    ingress.release(&mut spare);
}

/// Objective: with any contents of descriptors and registers, nothing outside the guest's memory is accessed, each pass
/// is bounded, and the card works after a reset.
#[test]
fn nonsense_touches_nothing_outside_the_memory() {
    let card = Card0::new();
    let peer = Card0::new();
    let mut ingress = source(&card);
    let mut spare = Box::default();
    let mut other = source(&peer);
    let mut more = Box::default();
    let egress = E1000Egress::new(Arc::clone(&card.shared));
    let mut scratch = Scratch::new();
    (0..32).for_each(|i| peer.descriptor(TX, i, BASE + BUFFERS + i * 8, (60 + i * 47) | WHOLE));
    peer.write(TDT, 32);
    let frames = other.take(&mut more);
    let picks: Vec<u16> = (0..frames.len() as u16).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut sent = 0;
    for _ in 0..20_000 {
        let n = noise();
        let m = noise();
        let near = BASE + n % (SIZE + 4096);
        let address = if n % 7 == 0 { m } else { near };
        let len = if n % 5 == 0 { m & 0xf_ffff } else { m & 0x7ff };
        card.descriptor(if n & 64 == 0 { TX } else { RX }, n >> 32, address, len | m & !0xf_ffff);
        if n % 3 == 0 {
            card.write([TDT, RDT, TDH, RDH, TDLEN, RDLEN, RCTL, CTRL_EXT, RXCSUM][(m % 9) as usize], noise() as u32);
        } else {
            card.write(TDT, (m >> 40) as u32 % 64);
            card.write(RDT, (m >> 50) as u32 % 64);
        }
        if n % 16 == 0 {
            card.up();
        }
        let batch = ingress.take(&mut spare);
        assert!(batch.len() <= 256 && (0..batch.len()).all(|i| batch.get(i).unwrap().len() < 66_000));
        sent += batch.len();
        (0..batch.len()).for_each(|i| drop(bytes(batch, i)));
        ingress.release(&mut spare);
        assert!(egress.deliver(frames, &picks, &mut scratch) <= picks.len());
    }
    assert!(sent > 1000, "{sent}");
    card.up();
    card.descriptor(TX, 0, BASE + BUFFERS, 64 | WHOLE);
    card.write(TDT, 1);
    let batch = ingress.take(&mut spare);
    assert_eq!(batch.len(), 1);
    ingress.release(&mut spare);
}

impl Card0 {
    /// Word `k` of the half at offset `half` of the status block.
    fn word(&self, half: u64, k: u64) -> u32 {
        self.words.load((CSB + half) as usize / 4 + k as usize)
    }

    fn set_word(&self, half: u64, k: u64, value: u32) {
        self.words.store((CSB + half) as usize / 4 + k as usize, value);
    }

    fn with_block(&self) {
        self.write(CSBAH, 0);
        self.write(CSBAL, (BASE + CSB) as u32);
        assert_eq!(self.read(CSBAL), (BASE + CSB) as u32);
    }

    fn standing(&self) -> u32 {
        self.with(|core| core.e1000.causes.peek())
    }
}

/// Objective: with a status block, packets pass in both directions without register writes; only a sleeping side asks
/// for kicks or interrupts; the block shows descriptors that are done whether or not they request a report.
#[test]
fn packets_go_both_ways_with_only_a_status_block() {
    let from = Card0::new();
    let to = Card0::new();
    let mut ingress = source(&from);
    let mut spare = Box::default();
    let egress = E1000Egress::new(Arc::clone(&to.shared));
    let mut scratch = Scratch::new();
    from.with_block();
    to.with_block();
    assert_eq!(from.word(TX_AT.1, 2), 0, "the ingress does not sleep");
    assert!(!ingress.arm());
    from.with_block();
    assert_eq!(from.word(TX_AT.1, 2), 1, "also in a new block");
    ingress.disarm();
    assert_eq!((from.word(TX_AT.1, 2), to.word(RX_AT.1, 2)), (0, 0));
    from.fill(BUFFERS, 4096);
    // The second descriptor has no RS.
    from.descriptor(TX, 0, BASE + BUFFERS, 100 | WHOLE);
    from.descriptor(TX, 1, BASE + BUFFERS + 200, 60 | 0b11 << 24);
    from.set_word(TX_AT.0, 0, 2);
    assert!(ingress.arm());
    let batch = ingress.take(&mut spare);
    assert_eq!(batch.len(), 2);
    // There is room for one frame, then for both frames, without a register write.
    (0..3).for_each(|i| to.descriptor(RX, i, BASE + BUFFERS + i * 2048, 0));
    to.set_word(RX_AT.0, 0, 1);
    assert_eq!(egress.deliver(batch, &[0, 1], &mut scratch), 1);
    assert_eq!((to.word(RX_AT.1, 1), to.standing() & ICR_RXT0), (1, 0), "the driver wants no interrupt");
    to.set_word(RX_AT.0, 0, 3);
    to.set_word(RX_AT.0, 2, 1);
    assert_eq!(egress.deliver(batch, &[1], &mut scratch), 1);
    assert_eq!((to.word(RX_AT.1, 1), to.standing() & ICR_RXT0), (2, ICR_RXT0));
    assert_eq!((to.get64(RX + 8) >> 32 & 3, to.get64(RX + 24) & 0xffff), (3, 60));
    // With a pin interrupt, causes stay set until ICR is read, and the block shows them.
    assert_eq!(to.words.load((CSB + CAUSES_AT) as usize / 4) & ICR_RXT0, ICR_RXT0);
    to.read(ICR);
    assert_eq!(to.words.load((CSB + CAUSES_AT) as usize / 4), 0);
    ingress.release(&mut spare);
    assert_eq!((from.word(TX_AT.1, 0), from.standing() & ICR_TXDW), (2, 0));
    // The sleeping ingress asks for a kick; a driver that asked for an interrupt gets it.
    assert!(!ingress.arm());
    assert_eq!(from.word(TX_AT.1, 2), 1);
    from.set_word(TX_AT.0, 2, 1);
    from.descriptor(TX, 2, BASE + BUFFERS, 60 | WHOLE);
    from.set_word(TX_AT.0, 0, 3);
    ingress.take(&mut spare);
    ingress.release(&mut spare);
    assert_eq!((from.word(TX_AT.1, 0), from.standing() & ICR_TXDW), (3, ICR_TXDW));
}

/// Objective: with message interrupts, events that the block shows do not stay set as causes, so that interrupts
/// continue without reads of ICR, spaced by ITR; other causes stay set and are shown in the block.
#[test]
fn status_block_by_message() {
    let card = Card0::new();
    let bell = Doorbell::new().unwrap();
    card.with_block();
    card.with(|core| core.connect(Some(&bell), true)).unwrap();
    let mut ingress = source(&card);
    let mut spare = Box::default();
    let mut send = |i: u64| {
        card.descriptor(TX, i, BASE + BUFFERS, 60 | WHOLE);
        card.set_word(TX_AT.0, 0, i as u32 + 1);
        ingress.take(&mut spare);
        ingress.release(&mut spare);
    };
    card.set_word(TX_AT.0, 2, 1);
    for i in 0..3 {
        send(i);
        assert!(bell.drain(), "{i}");
        assert_eq!(card.standing() & ICR_TXDW, 0);
    }
    card.write(IMS, ICR_LSC);
    card.with(|core| core.e1000.set_cable(false));
    card.with(Core::update);
    assert_eq!((bell.drain(), card.words.load((CSB + CAUSES_AT) as usize / 4)), (true, ICR_LSC));
    assert_eq!(card.read(ICR) & ICR_LSC, ICR_LSC);
    card.with(|core| core.e1000.set_cable(true));
    card.read(ICR);
    bell.drain();
    // Interrupts are at least 16.8 ms apart.
    card.write(ITR, 0xffff);
    send(3);
    assert!(bell.drain(), "the first one is on time");
    send(4);
    assert!(!bell.drain() && card.with(|core| core.e1000.causes.deadline()).is_some());
}

/// Objective: a block outside the memory, or not at a multiple of 64, is refused, and its register reads as zero;
/// invalid values in a block send nothing; a reset or a change of memory ends the use of the block.
#[test]
fn status_blocks_that_are_none() {
    let card = Card0::new();
    for at in [BASE + SIZE - 64, BASE + CSB + 4, 0x10, BASE + SIZE] {
        card.write(CSBAL, at as u32);
        assert_eq!((card.read(CSBAL), card.with(|core| core.paravirt().is_none())), (0, true), "{at:#x}");
    }
    card.with_block();
    let mut ingress = source(&card);
    let mut spare = Box::default();
    for head in [64, 0x1_0001, 0xffff, u32::MAX] {
        card.set_word(TX_AT.0, 0, head);
        let batch = ingress.take(&mut spare);
        assert!(batch.is_empty() && !ingress.arm(), "{head:#x}");
    }
    card.up();
    assert_eq!(card.read(CSBAL), 0);
    card.with_block();
    card.with(|core| core.set_memory(CardMemory::default()));
    assert_eq!(card.read(CSBAL), 0);
}

/// Objective: in loopback mode, in the MAC or in the PHY, packets return to their own card's receive ring, and none is
/// sent.
#[test]
fn packets_in_loopback_return_to_their_own_card() {
    let card = Card0::new();
    let mut ingress = source(&card);
    let mut spare = Box::default();
    let mac = card.read(RCTL) | RCTL_LBM_MAC;
    let phy = |value: u32| (MDIC, 0x0400_0000 | 1 << 21 | value);
    for (k, (on, off)) in [((RCTL, mac), (RCTL, mac & !RCTL_LBM)), (phy(0x4140), phy(0x1140))].into_iter().enumerate() {
        let i = 2 * k as u64;
        card.write(on.0, on.1);
        card.descriptor(RX, i, BASE + BUFFERS + 4096, 0);
        card.write(RDT, i as u32 + 1);
        card.fill(BUFFERS, 100);
        card.descriptor(TX, i, BASE + BUFFERS, 100 | WHOLE);
        card.write(TDT, i as u32 + 1);
        let batch = ingress.take(&mut spare);
        assert!(batch.is_empty() && card.read(TDH) == i as u32 + 1);
        assert_eq!(card.get64(RX + i * 16 + 8) & 0xffff, 100);
        assert!((0..100).all(|at| card.byte(BUFFERS + 4096 + at) == card.byte(BUFFERS + at)));
        card.write(off.0, off.1);
        card.descriptor(TX, i + 1, BASE + BUFFERS, 100 | WHOLE);
        card.write(TDT, i as u32 + 2);
        card.write(RDT, i as u32 + 2);
        let batch = ingress.take(&mut spare);
        assert_eq!(batch.len(), 1);
        ingress.release(&mut spare);
        // The packet that was sent and not looped back left a receive descriptor unused: skip it.
        card.write(RDH, i as u32 + 2);
    }
}

/// Objective: if a worker does not return the core, the guest loses its card but does not wait: registers read as on a
/// removed device, the connection must end, and the next guest's card works.
#[test]
fn a_worker_that_stays() {
    let card = Card0::new();
    let fault = Fault::new().unwrap();
    let host = DeviceHost { dma: Dma::new(&fault), irqs: Irqs::new(E1000Device::vectors(), &fault) };
    let read = |device: &mut E1000Device| {
        let mut status = [0; 4];
        device.read(0, STATUS.into(), &mut status, &host);
        u32::from_le_bytes(status)
    };
    let mut device = E1000Device::new(Arc::clone(&card.shared), 0);
    assert!(read(&mut device) != u32::MAX && device.health().is_ok());
    let worker = card.shared.enter();
    assert!(read(&mut device) == u32::MAX && device.health().is_err());
    drop(worker);
    card.shared.power_off().unwrap();
    let mut next = E1000Device::new(Arc::clone(&card.shared), 0);
    assert!(read(&mut next) != u32::MAX && next.health().is_ok());
}

/// Objective: memory that a guest removes is unmapped after workers can use the card again, and not while they wait.
#[test]
fn memory_outlives_the_visit() {
    let card = Card0::new();
    let (fd, ..) = sealed_memfd("guest", SIZE, PageKind::Ordinary).unwrap();
    let mut dma = Dma::default();
    dma.map(WindowPlace { flags: 3, offset: 0, address: BASE, size: SIZE }, Some(&fd)).unwrap();
    let mapped = Arc::downgrade(dma.find(BASE, 1).unwrap().0);
    let given = CardMemory::of(&dma);
    drop(dma);
    drop(card.shared.control(|core| core.set_memory(given)));
    let visit = card.shared.control(|core| {
        let before = core.set_memory(CardMemory::default());
        (mapped.strong_count(), before)
    });
    assert_eq!(visit.map(|(mapped, _)| mapped), Ok(1));
    assert_eq!(mapped.strong_count(), 0);
}
