//! Runs netvale's e1000 driver with a card whose registers return arbitrary values, and that writes arbitrary values to
//! the driver's descriptors, status block and buffers.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use netvale_e1000::driver::queues::{CardRings, DriverEgress, DriverIngress};
use netvale_e1000::driver::ram::{BUF, CardRam};
use netvale_e1000::driver::start::start;
use netvale_e1000::driver::{CardDriverOptions, CardRegisters};
use netvale_e1000::regs::{CSBAH, CTRL};
use netvale_fuzz::{FuzzInput, bounded, copied, fuzz_target, meddle, words};
use netvale_mem::fault::Fault;
use netvale_mem::notify::Doorbell;
use netvale_mem::words::Words;
use netvale_port::{Batch, Egress, Ingress, Scratch, Source};

const SLOTS: u32 = 8;
/// Maximum number of reads of shared memory by one call: a few reads for each descriptor of a ring, and for each frame
/// in a batch of four frames.
const MOST: u64 = 64 + 16 * SLOTS as u64;

/// A card whose registers read as the last value from the input. The control register reads as 0, because the driver
/// waits until the reset bit in it is cleared.
#[derive(Default)]
struct ScriptedCard {
    value: AtomicU32,
    /// The high half of the status block's address; `None` if the card has no status block.
    block: Option<u32>,
}

impl CardRegisters for ScriptedCard {
    fn read(&self, at: u32) -> u32 {
        match at {
            CTRL => 0,
            CSBAH => self.block.unwrap_or(0),
            _ => self.value.load(Ordering::Relaxed),
        }
    }

    fn write(&self, _at: u32, _value: u32) {}
}

thread_local! {
    /// The driver's memory, which is reused for all inputs.
    static RAM: Option<Arc<CardRam>> = CardRam::new(SLOTS).ok().map(Arc::new);
}

/// Returns the position of the transmit or receive ring in the driver's memory, in 32-bit words.
fn ring_at(receive: bool) -> usize {
    if receive { 2048 } else { 1024 }
}

fn scribble(memory: &Words, input: &mut FuzzInput<'_>) {
    let at = match input.byte() & 3 {
        0 => input.below(64),
        1 => ring_at(false) + input.below(4 * SLOTS as usize),
        2 => ring_at(true) + input.below(4 * SLOTS as usize),
        _ => usize::from(input.half()),
    };
    memory.store(at, if input.byte() & 1 == 0 { input.index(SLOTS) } else { input.word() });
}

/// Completes a descriptor as the card does: writes its length and status.
fn done(memory: &Words, receive: bool, input: &mut FuzzInput<'_>) {
    let at = ring_at(receive) + 4 * input.below(SLOTS as usize);
    memory.store(at + 2, input.word() % (BUF as u32 + 300));
    memory.store(at + 3, 1 | u32::from(input.byte()));
}

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    let options = CardDriverOptions { slots: SLOTS, csb: kind & 1 != 0, combine: u32::from(kind >> 4) };
    let Some(ram) = RAM.with(Clone::clone) else { return };
    let memory = words(ram.mapping());
    // The descriptors are cleared, since they may have contents from the previous input.
    [false, true].into_iter().for_each(|rx| (0..4 * SLOTS as usize).for_each(|i| memory.store(ring_at(rx) + i, 0)));
    let block = (kind & 2 != 0).then_some((ram.block() >> 32) as u32);
    let card = Arc::new(ScriptedCard { block, ..ScriptedCard::default() });
    let registers = Arc::clone(&card) as Arc<dyn CardRegisters>;
    let (Ok(started), Ok(fault)) = (start(&registers, &ram, options), Fault::new()) else { return };
    let rings = Arc::<CardRings>::default();
    let (Ok(()), Ok(call), Ok(link)) = (rings.put(started.tx, started.rx), Doorbell::new(), Doorbell::new()) else {
        return;
    };
    let egress = DriverEgress::new(Arc::clone(&rings), fault.clone());
    let mut ingress = DriverIngress::new(rings, fault.clone(), call, Arc::new(link));
    let mut input = FuzzInput(meddle(rest, &memory, 0, 3072));
    ingress.woken();
    let mut source = Source::new(Box::new(ingress));
    let mut spare = Box::default();
    let mut frames = Batch::new();
    let mut scratch = Scratch::new();
    let frame = [3u8; 2100];
    // SAFETY: the frame outlives the batch.
    [14, 60, 1514, 2100].into_iter().for_each(|len| _ = unsafe { frames.push(frame.as_ptr(), len) });
    while !input.is_empty() {
        match input.byte() & 7 {
            0 => scribble(&memory, &mut input),
            1 | 2 => done(&memory, true, &mut input),
            3 => done(&memory, false, &mut input),
            4 => card.value.store(input.word(), Ordering::Relaxed),
            5 => assert!(bounded(MOST, "deliver", || egress.deliver(&frames, &[0, 1, 2, 3], &mut scratch)) <= 4),
            6 => {
                bounded(MOST, "arm", || source.arm());
                source.disarm();
            }
            _ => {
                copied(bounded(MOST, "take", || source.take(&mut spare)), |bytes| assert!(bytes.len() <= BUF));
                source.release(&mut spare);
            }
        }
    }
    let _ = fault.reason();
    netvale_mem::probe::unwatch();
});
