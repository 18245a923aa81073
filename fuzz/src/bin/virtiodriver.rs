//! Runs netvale's virtio driver with a device that writes arbitrary values to the driver's rings and buffers, in all
//! ring layouts, even during calls.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::cell::RefCell;
use std::sync::Arc;

use netvale_fuzz::{FuzzInput, bounded, copied, fuzz_target, meddle, words};
use netvale_mem::fault::Fault;
use netvale_mem::words::Words;
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::{Batch, Egress, MAX_FRAME, Scratch, Source};
use netvale_virtio::driver::ram::{BUF, DriverRam, QueueRam};
use netvale_virtio::driver::started::{Kick, RunningQueue};
use netvale_virtio::driver::{DriverFeatures, DriverQueue};
use netvale_virtio::features;
use netvale_virtio::queue::QueueFeatures;

/// Maximum number of reads of shared memory by one call, per buffer of the queue.
const A_BUFFER: u64 = 64;
/// Maximum number of further reads by one call, for a batch of four frames that may be copied in pieces.
const A_CALL: u64 = 1024;

/// The driver's memory for queues of one size, which is reused for all inputs.
struct DriverMemory {
    ram: DriverRam,
    queues: Vec<QueueRam>,
}

const SIZES: [u16; 4] = [8, 16, 64, 256];

thread_local! {
    static MEMORY: RefCell<[Option<DriverMemory>; 4]> =
        RefCell::new(SIZES.map(|n| DriverRam::new(&[n, n]).ok().map(|(ram, queues)| DriverMemory { ram, queues })));
}

struct DriverRig {
    size: u16,
    features: DriverFeatures,
    memory: Words,
    /// For each queue, the first word of each ring area and of the buffers.
    areas: [[usize; 4]; 2],
    seats: [Arc<Seat<RunningQueue>>; 2],
    fault: Fault,
}

fn rig(own: &mut DriverMemory, kind: u8) -> Option<DriverRig> {
    let on = |bit: u8| kind & bit != 0;
    let queue = QueueFeatures { packed: on(1), event_idx: on(2), indirect: false };
    let features = DriverFeatures { queue, in_order: on(4), vector: on(8) };
    let bit = |cond: bool, bits: u64| if cond { bits } else { 0 };
    let negotiated = features::VERSION_1
        | bit(on(16), features::MRG_RXBUF)
        | bit(on(32), features::CSUM | features::HOST_TSO4 | features::HOST_TSO6)
        | bit(on(64), features::GUEST_CSUM | features::GUEST_TSO4);
    let memory = words(own.ram.mapping());
    let fault = Fault::new().ok()?;
    let start = own.ram.mapping().start().as_ptr() as usize;
    let area = |q: &QueueRam| [q.desc(), q.avail(), q.used(), q.buf(0)].map(|p| (p.as_ptr() as usize - start) / 4);
    let areas = [area(&own.queues[0]), area(&own.queues[1])];
    let size = own.queues[0].size();
    let mut seats = own.queues.drain(..).map(|ram| {
        let queue = DriverQueue::new(&ram, features);
        let started = RunningQueue::new(queue, ram, Kick::Register(Box::new(|| ())), negotiated, &fault);
        let seat = Arc::<Seat<RunningQueue>>::default();
        seat.put(started).ok().map(|()| seat)
    });
    let seats = [seats.next()??, seats.next()??];
    Some(DriverRig { size, features, memory, areas, seats, fault })
}

impl DriverRig {
    /// Writes a word to any place in the queues' memory, as the device may.
    fn scribble(&self, input: &mut FuzzInput<'_>) {
        let area = self.areas[input.below(2)][input.below(4)];
        self.memory.store(area + usize::from(input.half()) % 1024, input.word());
    }

    /// Marks a buffer as used, as a device does in this ring layout. The input may make the entry invalid.
    fn use_one(&self, queue: usize, done: &mut u16, input: &mut FuzzInput<'_>) {
        let n = self.size;
        let [desc, _, used, buf] = self.areas[queue];
        let id = input.index(n.into());
        let len = input.word() % (2 * BUF);
        let at = usize::from(*done % n);
        if self.features.queue.packed {
            let wrap = (*done / n).is_multiple_of(2);
            let flags = if wrap { 0x8080 } else { 0 } | u32::from(input.byte() & 3);
            self.memory.store(desc + 4 * at + 2, len);
            self.memory.store(desc + 4 * at + 3, id & 0xffff | flags << 16);
        } else {
            self.memory.store(used + 1 + 2 * at, id);
            self.memory.store(used + 2 + 2 * at, len);
            self.memory.store(used, u32::from(done.wrapping_add(1)) << 16);
        }
        *done = done.wrapping_add(1);
        // The buffer's virtio-net header is written: the offloads, and the number of buffers.
        let header = buf + 528 * (id as usize % usize::from(n));
        self.memory.store(header, input.word());
        self.memory.store(header + 2, u32::from(input.byte()) << 16);
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, more, rest @ ..] = data else { return };
    MEMORY.with_borrow_mut(|all| {
        let Some(own) = &mut all[usize::from(*more) % SIZES.len()] else { return };
        let Some(rig) = rig(own, *kind) else { return };
        drive(&rig, rest);
        own.queues.extend(rig.seats.iter().map(|seat| seat.take(|_| false).ok().flatten().expect("its queue").ram));
    });
});

fn drive(rig: &DriverRig, rest: &[u8]) {
    let span = rig.areas[1][3] + 2048;
    let mut input = FuzzInput(meddle(rest, &rig.memory, 0, span));
    let most = A_CALL + A_BUFFER * u64::from(rig.size);
    let ingress = SeatIngress::new(Arc::clone(&rig.seats[0]));
    let egress = SeatEgress(Arc::clone(&rig.seats[1]));
    let mut source = Source::new(Box::new(ingress));
    let mut spare = Box::default();
    let mut frames = Batch::new();
    let mut scratch = Scratch::new();
    let frame = [3u8; 4000];
    // SAFETY: the frame outlives the batch.
    [60, 1514, 1600, 4000].into_iter().for_each(|len| _ = unsafe { frames.push(frame.as_ptr(), len) });
    let mut done = [0, 0];
    bounded(most, "the first take", || _ = source.take(&mut spare));
    source.release(&mut spare);
    while !input.is_empty() {
        match input.byte() & 7 {
            0 => rig.scribble(&mut input),
            1 | 2 => rig.use_one(0, &mut done[0], &mut input),
            3 => rig.use_one(1, &mut done[1], &mut input),
            4 => _ = bounded(most, "deliver", || egress.deliver(&frames, &[0, 1, 2, 3], &mut scratch)),
            5 => {
                source.arm();
                source.disarm();
            }
            _ => {
                copied(bounded(most, "take", || source.take(&mut spare)), |bytes| assert!(bytes.len() <= MAX_FRAME));
                source.release(&mut spare);
            }
        }
    }
    let _ = rig.fault.reason();
    netvale_mem::probe::unwatch();
}
