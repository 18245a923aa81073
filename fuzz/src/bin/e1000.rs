//! Runs netvale's e1000 device with arbitrary register accesses, and with arbitrary contents of descriptors, status
//! blocks and buffers. The device's queues are used between the accesses; the guest's memory is removed and mapped
//! again, and changes during calls.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::Arc;

use netvale_e1000::core::{Core, SharedCore};
use netvale_e1000::device::{Card, E1000};
use netvale_e1000::egress::E1000Egress;
use netvale_e1000::ingress::E1000Ingress;
use netvale_e1000::memory::CardMemory;
use netvale_e1000::regs::*;
use netvale_fuzz::{bounded, copied, fuzz_target, meddle};
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_mem::words::Words;
use netvale_port::{Batch, Egress, Scratch, Source};
use netvale_vfio_user::dma::{Dma, WindowPlace};

const SIZE: u64 = 1 << 16;
const BASE: u64 = 0x1000;
/// Maximum number of reads of shared memory by one call: this memory has room for rings of 4,096 descriptors. Each
/// descriptor is read once, and its buffer is read in pieces.
const MOST: u64 = 256 + 8 * 4096;

/// Registers that affect the queues. The input can select these registers by their position in this list, and any
/// register by its offset.
const NEAR: [u32; 20] = [
    CTRL, CTRL_EXT, RCTL, TCTL, TDBAL, TDLEN, TDH, TDT, RDBAL, RDLEN, RDH, RDT, CSBAL, CSBAH, IMS, ITR, RDTR, TIDV,
    VET, RSRPD,
];

struct E1000Guest {
    dma: Dma,
    words: Words,
}

fn guest() -> Option<E1000Guest> {
    let (fd, map, _) = sealed_memfd("fuzz", SIZE, PageKind::Ordinary).ok()?;
    let mut dma = Dma::default();
    // The memory is mapped as two adjacent windows, so that rings and buffers can extend over both windows.
    for (offset, address) in [(0, BASE), (SIZE / 2, BASE + SIZE / 2)] {
        dma.map(WindowPlace { flags: 3, offset, address, size: SIZE / 2 }, Some(&fd)).ok()?;
    }
    Some(E1000Guest { dma, words: Words::new(&Arc::new(map), 0, SIZE as usize / 4)? })
}

thread_local! {
    static GUEST: Option<E1000Guest> = guest();
}

/// Initializes the card as a driver does. The input's steps start from this state.
fn up(core: &mut Core) {
    let all = [
        (CTRL, CTRL_SLU),
        (TDBAL, BASE as u32),
        (TDLEN, 256),
        (RDBAL, BASE as u32 + 256),
        (RDLEN, 256),
        (RCTL, RCTL_EN | RCTL_UPE | RCTL_BAM),
        (TCTL, TCTL_EN),
        (IMS, ICR_ALL),
        (RDT, 15),
    ];
    for (at, value) in all {
        core.write(at, value);
    }
}

fn obey(core: &mut Core, guest: &E1000Guest, [kind, a, b, c]: [u8; 4], value: u32) {
    let at = u32::from_le_bytes([a, b, c, 0]) & (SPACE - 1);
    match kind & 7 {
        0 => _ = core.write(at, value),
        1 | 2 => _ = core.write(NEAR[usize::from(a) % NEAR.len()], value),
        3 => _ = core.read(at),
        4 => guest.words.store(usize::from(a), value),
        5 => guest.words.store(usize::from(u16::from_le_bytes([a, b])) % (SIZE as usize / 4), value),
        6 if value == 0 => drop(core.set_memory(CardMemory::default())),
        6 => drop(core.set_memory(CardMemory::of(&guest.dma))),
        _ => core.tick(),
    }
}

fuzz_target!(|data: &[u8]| {
    GUEST.with(|guest| {
        let Some(guest) = guest else { return };
        let card = Card { mac: [2; 6], subsystem: 0, forced_interval: None };
        let Ok(shared) = SharedCore::new(E1000::new(card)) else { return };
        (0..128).for_each(|i| guest.words.store(i, 0));
        let with = |f: &mut dyn FnMut(&mut Core)| shared.control(f).unwrap();
        with(&mut |core| drop(core.set_memory(CardMemory::of(&guest.dma))));
        with(&mut up);
        let ingress = E1000Ingress::new(Arc::clone(&shared));
        let egress = E1000Egress::new(Arc::clone(&shared));
        let mut source = Source::new(Box::new(ingress));
        let mut spare = Box::default();
        let mut frames = Batch::new();
        let mut scratch = Scratch::new();
        let frame = [3u8; 1600];
        // SAFETY: the frame outlives the batch.
        [60, 64, 1514, 1600].into_iter().for_each(|len| _ = unsafe { frames.push(frame.as_ptr(), len) });
        let data = meddle(data, &guest.words, 0, SIZE as usize / 4);
        for (i, step) in data.chunks_exact(8).take(256).enumerate() {
            let words = [step[0], step[1], step[2], step[3]];
            let value = [step[4], step[5], step[6], step[7]];
            with(&mut |core| obey(core, guest, words, u32::from_le_bytes(value)));
            if i % 2 == 0 {
                let done = bounded(MOST, "deliver", || egress.deliver(&frames, &[0, 1, 2, 3], &mut scratch));
                assert!(done <= 4);
                continue;
            }
            copied(bounded(MOST, "take", || source.take(&mut spare)), |bytes| {
                assert!((60..66_000).contains(&bytes.len()))
            });
            source.release(&mut spare);
            let _ = source.arm();
            source.disarm();
        }
        netvale_mem::probe::unwatch();
    });
});
