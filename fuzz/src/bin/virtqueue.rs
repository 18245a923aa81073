//! Runs both queues of netvale's virtio device with arbitrary contents of the guest's memory (rings and buffers), in
//! both ring layouts, with and without the dirty log and the in-flight record. The contents change even during calls.
//! The in-flight record keeps its contents from the previous input.
#![cfg_attr(feature = "libfuzzer", no_main)]

use std::sync::Arc;

use netvale_fuzz::{bounded, fuzz_target, meddle, memfd, words};
use netvale_mem::Mapping;
use netvale_mem::fault::Fault;
use netvale_mem::words::Words;
use netvale_port::seat::{Seat, SeatEgress, SeatIngress};
use netvale_port::{BATCH, Egress, Scratch, Source};
use netvale_vhost::inflight::{Inflight, InflightShape, QueueRecord};
use netvale_vhost::log::DirtyLog;
use netvale_virtio::device::live::{self, LiveQueue, WriteLog};
use netvale_virtio::features::{self, Framing};
use netvale_virtio::memory::{GuestMemory, Hint, RegionSpec};
use netvale_virtio::queue::{DeviceQueue, Pieces, QueueAddresses, QueueFeatures};

/// Size in bytes of each of the two regions of guest memory, which are adjacent, so that buffers may extend over both
/// regions.
const SIZE: u64 = 0x800;
/// Address of the first region in the address space of the guest's VMM.
const USER: u64 = 0x10_0000;
const QUEUE: u16 = 8;
/// Maximum number of reads of shared memory by one call: for each of eight chains, eight descriptors, and a few reads
/// for the buffer of each descriptor.
const MOST: u64 = 64 + 8 * 8 * 16;

struct VirtqueueRig {
    /// The guest's view of the first region.
    words: Words,
    memory: Arc<GuestMemory>,
    fault: Fault,
    log: Arc<DirtyLog>,
    inflight: Arc<Inflight>,
    scratch: Scratch,
}

fn rig() -> Option<VirtqueueRig> {
    let file = || memfd(2 * SIZE);
    let spec = |i: u64| RegionSpec { guest: i * SIZE, size: SIZE, user: USER + i * SIZE, offset: i * SIZE };
    let first = file()?;
    let map = Mapping::of_peer(std::os::fd::AsFd::as_fd(&first), 0, SIZE as usize).ok().map(Arc::new)?;
    let memory = Arc::new(GuestMemory::new(vec![(spec(0), first), (spec(1), file()?)]).ok()?);
    Some(VirtqueueRig {
        words: words(&map),
        memory,
        fault: Fault::new().ok()?,
        log: Arc::new(DirtyLog::new(file()?, 0, 1).ok()?),
        inflight: Arc::new(
            Inflight::new(file()?, InflightShape { len: SIZE, offset: 0, queues: 2, size: QUEUE }).ok()?,
        ),
        scratch: Scratch::new(),
    })
}

thread_local! {
    static RIG: std::cell::RefCell<Option<VirtqueueRig>> = std::cell::RefCell::new(rig());
}

fn fill(memory: &GuestMemory, data: &[u8]) {
    for i in 0..2 {
        let Some((p, n)) = memory.guest(i * SIZE, SIZE, &mut Hint::default()) else { return };
        for k in 0..n as usize {
            let byte = data.get(i as usize * SIZE as usize + k).copied().unwrap_or(0);
            // SAFETY: the address is inside the region.
            unsafe { p.as_ptr().add(k).write_volatile(byte) };
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [kind, base, rest @ ..] = data else { return };
    RIG.with_borrow_mut(|rig| {
        let Some(rig) = rig else { return };
        let rest = meddle(rest, &rig.words, 0, SIZE as usize / 4);
        fill(&rig.memory, rest);
        let on = |bit: u8| kind & bit != 0;
        let layout = QueueFeatures { packed: on(1), event_idx: on(2), indirect: on(4) };
        let bit = |cond: bool, bits: u64| if cond { bits } else { 0 };
        let framing = Framing::of(
            features::VERSION_1
                | bit(on(8), features::MRG_RXBUF)
                | bit(on(16), features::CSUM | features::HOST_TSO4)
                | bit(on(32), features::GUEST_CSUM),
        );
        let at = QueueAddresses { desc: USER, avail: USER + 0x80, used: USER + 0xc0 };
        let seat = |i: usize| {
            let mut queue = DeviceQueue::new(&rig.memory, QUEUE, at, u32::from(*base), layout)?;
            let mut inflight = None;
            if on(64) {
                let record = QueueRecord::open(&rig.inflight, i, &mut queue)?.0;
                inflight = Some(Box::new(record) as Box<dyn live::InflightRecord>);
            }
            let seat = Arc::<Seat<LiveQueue>>::default();
            let live = LiveQueue {
                queue,
                memory: Arc::clone(&rig.memory),
                framing,
                call: None,
                polled: false,
                enabled: true,
                pieces: Pieces::default(),
                is_broken: false,
                fault: (0, rig.fault.clone()),
                log: on(128).then(|| Arc::clone(&rig.log) as Arc<dyn WriteLog>),
                log_ring: true,
                inflight,
                announce: None,
                announced: Vec::new(),
                taken: Vec::with_capacity(BATCH),
                counters: Arc::clone(&seat.counters),
                kicks: Arc::clone(&seat.kicks),
            };
            seat.put(live).ok()?;
            Some(seat)
        };
        let (Some(tx), Some(rx)) = (seat(1), seat(0)) else { return };
        let ingress = SeatIngress::new(tx);
        let egress = SeatEgress(rx);
        let mut source = Source::new(Box::new(ingress));
        let mut spare = Box::default();
        for _ in 0..4 {
            let batch = bounded(MOST, "take", || source.take(&mut spare));
            let picks: Vec<u16> = (0..batch.len() as u16).collect();
            bounded(MOST, "deliver", || egress.deliver(batch, &picks, &mut rig.scratch));
            source.release(&mut spare);
            source.arm();
            source.disarm();
        }
        netvale_mem::probe::unwatch();
    });
});
