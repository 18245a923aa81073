//! Compares the split ring with another implementation, the `virtio-queue` crate: in some tests, both implementations
//! act as devices on the same memory; in others, the crate acts as the device for netvale's driver.

use std::fs::File;
use std::os::fd::OwnedFd;

use netvale_virtio::driver::ram::DriverRam;
use netvale_virtio::driver::{DriverFeatures, DriverQueue};
use netvale_virtio::memory::{GuestMemory, RegionSpec};
use netvale_virtio::queue::{DeviceQueue as OurQueue, DriverViolation, Pieces, QueueAddresses, QueueFeatures};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

const SIZE: u64 = 0x1_0000;
const USER: u64 = 0x7000_0000;
const QUEUE: u16 = 8;
const TABLE: u64 = 0x1000;
const AVAIL: u64 = 0x2000;
const USED: u64 = 0x3000;
const INDIRECT: u64 = 0x4000;

fn file() -> OwnedFd {
    let fd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, SIZE).unwrap();
    fd
}

/// Maps the same memory for the other implementation.
fn memories(fd: &OwnedFd, len: u64, guest: u64) -> GuestMemoryMmap {
    let file = FileOffset::new(File::from(fd.try_clone().unwrap()), 0);
    GuestMemoryMmap::from_ranges_with_files([(GuestAddress(guest), len as usize, Some(file))]).unwrap()
}

fn oracle(size: u16, [table, avail, used]: [u64; 3]) -> Queue {
    let halves = |at: u64| (Some(at as u32), Some((at >> 32) as u32));
    let mut queue = Queue::new(size).unwrap();
    queue.set_size(size);
    let (low, high) = halves(table);
    queue.set_desc_table_address(low, high);
    let (low, high) = halves(avail);
    queue.set_avail_ring_address(low, high);
    let (low, high) = halves(used);
    queue.set_used_ring_address(low, high);
    queue.set_ready(true);
    queue
}

/// A buffer: its address, its length, and whether it is writable.
type Buffer = (u64, u32, bool);

/// Returns a chain as the other implementation reads it, and whether that implementation reached the chain's end.
fn theirs(queue: &mut Queue, memory: &GuestMemoryMmap) -> (u16, Vec<Buffer>, bool) {
    let chain = queue.pop_descriptor_chain(memory).expect("a chain");
    let head = chain.head_index();
    let list: Vec<_> = chain.collect();
    let ended = list.last().is_some_and(|d| !d.has_next());
    (head, list.iter().map(|d| (d.addr().0, d.len(), d.is_write_only())).collect(), ended)
}

fn descriptor() -> impl Strategy<Value = [u64; 2]> {
    let addr = prop_oneof![8 => 0x6000u64..0xf000, 1 => 0xff00u64..0x1_0100, 1 => any::<u64>()];
    let len = prop_oneof![8 => 0u32..0x800, 1 => Just(16u32), 1 => Just(64u32)];
    let indirect = (0..4u64, prop_oneof![4 => (1..8u32).prop_map(|n| 16 * n), 1 => 0..200u32]);
    let flags = prop_oneof![6 => Just(0u64), 6 => Just(2u64), 3 => Just(1u64), 3 => Just(3u64)];
    let plain = (addr, len, flags, 0..9u64).prop_map(|(a, l, f, next)| [a, u64::from(l) | f << 32 | next << 48]);
    let table = indirect.prop_map(|(i, len)| [INDIRECT + 0x100 * i, u64::from(len) | 4 << 32]);
    prop_oneof![6 => plain, 1 => table]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Objective: for any writes of a driver, both devices find the same chains. If netvale's device stops the queue,
    /// the other device found no end of the chain, a buffer outside memory, or buffers in the wrong order.
    #[test]
    fn both_devices_find_the_same_chains(
        table in prop::collection::vec(descriptor(), 8),
        indirect in prop::collection::vec(descriptor(), 64),
        heads in prop::collection::vec(0..8u16, 1..=8),
    ) {
        let fd = file();
        let spec = RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 };
        let ours = GuestMemory::new(vec![(spec, fd.try_clone().unwrap())]).unwrap();
        let memory = memories(&fd, SIZE, 0);
        for (i, words) in table.iter().enumerate() {
            memory.write_obj(*words, GuestAddress(TABLE + 16 * i as u64)).unwrap();
        }
        for (i, words) in indirect.iter().enumerate() {
            memory.write_obj(*words, GuestAddress(INDIRECT + 16 * i as u64)).unwrap();
        }
        memory.write_obj(heads.len() as u16, GuestAddress(AVAIL + 2)).unwrap();
        for (i, head) in heads.iter().enumerate() {
            memory.write_obj(*head, GuestAddress(AVAIL + 4 + 2 * i as u64)).unwrap();
        }
        let at = QueueAddresses { desc: USER + TABLE, avail: USER + AVAIL, used: USER + USED };
        let features = QueueFeatures { indirect: true, ..QueueFeatures::default() };
        let mut queue = OurQueue::new(&ours, QUEUE, at, 0, features).unwrap();
        let mut other = oracle(QUEUE, [TABLE, AVAIL, USED]);
        let mut pieces = Pieces::default();
        for _ in &heads {
            let (head, list, ended) = theirs(&mut other, &memory);
            let inside = |b: &Buffer| b.1 == 0 || b.0.checked_add(b.1.into()).is_some_and(|end| end <= SIZE);
            let ordered = list.iter().skip_while(|b| !b.2 || b.1 == 0).all(|b| b.2);
            match queue.next(&ours, &mut pieces) {
                Ok(chain) => {
                    prop_assert_eq!(chain.expect("a chain").id, head);
                    let found: Vec<Buffer> = pieces.readable().iter().map(|p| (p, false))
                        .chain(pieces.writable().iter().map(|p| (p, true)))
                        .map(|(p, writes)| (ours.guest_of(p.ptr.as_ptr()).unwrap(), p.len, writes)).collect();
                    prop_assert_eq!(found, list.into_iter().filter(|b| b.1 > 0).collect::<Vec<_>>());
                }
                Err(DriverViolation::Address) => { prop_assert!(!list.iter().all(inside)); return Ok(()); }
                Err(DriverViolation::Order) => { prop_assert!(!ordered); return Ok(()); }
                Err(why) => {
                    use DriverViolation::{Indirect, Loop, NextIndex};
                    let rule = matches!(why, Loop | NextIndex | Indirect);
                    // Only netvale refuses an indirect table that is longer than the queue (§2.7.5.3.1).
                    prop_assert!(rule && (!ended || why == DriverViolation::Indirect), "{why}");
                    return Ok(());
                }
            }
        }
        prop_assert_eq!(queue.next(&ours, &mut pieces).unwrap(), None);
    }

    /// Objective: the used ring has the same bytes whether netvale or the other implementation returns the buffers.
    #[test]
    fn the_used_ring_reads_the_same_on_both_sides(used in prop::collection::vec((0..8u16, 0..2000u32), 1..40)) {
        let one = file();
        let two = file();
        let spec = RegionSpec { guest: 0, size: SIZE, user: USER, offset: 0 };
        let ours = GuestMemory::new(vec![(spec, one.try_clone().unwrap())]).unwrap();
        let at = QueueAddresses { desc: USER + TABLE, avail: USER + AVAIL, used: USER + USED };
        let mut queue = OurQueue::new(&ours, QUEUE, at, 0, QueueFeatures::default()).unwrap();
        let memory = memories(&two, SIZE, 0);
        let mut other = oracle(QUEUE, [TABLE, AVAIL, USED]);
        for (head, len) in used {
            queue.give_back(netvale_virtio::queue::Chain { id: head, count: 1 }, len);
            queue.publish();
            other.add_used(&memory, head, len).unwrap();
        }
        let read = |fd: &OwnedFd| {
            let mut bytes = [0; 4 + 8 * QUEUE as usize];
            assert_eq!(rustix::io::pread(fd, &mut bytes, USED), Ok(bytes.len()));
            bytes
        };
        prop_assert_eq!(read(&one), read(&two));
    }

    /// Objective: the other implementation, as the device of netvale's driver, finds posted buffers and returns them,
    /// round after round.
    #[test]
    fn device_of_our_driver(
        rounds in prop::collection::vec((1..4usize, 1..1500u32, any::<bool>()), 1..60),
        event_idx: bool,
        in_order: bool,
    ) {
        let (ram, mut queues) = DriverRam::new(&[QUEUE]).unwrap();
        let queue_ram = queues.remove(0);
        let queue = QueueFeatures { event_idx, ..QueueFeatures::default() };
        let mut driver = DriverQueue::new(&queue_ram, DriverFeatures { queue, in_order, vector: in_order });
        let spec = ram.spec();
        let memory = memories(&ram.file().unwrap(), spec.size, spec.guest);
        let at = |p| queue_ram.device_address(p);
        let mut other = oracle(QUEUE, [at(queue_ram.desc()), at(queue_ram.avail()), at(queue_ram.used())]);
        other.set_event_idx(event_idx);
        for (count, len, write) in rounds {
            let first = driver.take(count).expect("all are free");
            driver.post(&queue_ram, first, |_| write, |_| len);
            driver.publish();
            let (head, list, ended) = theirs(&mut other, &memory);
            prop_assert!(ended);
            prop_assert_eq!(head, first);
            prop_assert_eq!(list.len(), count);
            prop_assert!(list.iter().all(|b| b.1 == len && b.2 == write));
            prop_assert_eq!(list[0].0, queue_ram.guest(first));
            prop_assert!(driver.next_used().unwrap().is_none());
            other.add_used(&memory, head, len).unwrap();
            let used = driver.next_used().unwrap().expect("given back");
            prop_assert_eq!((used.id, used.len), (first, len));
            driver.recycle([first]);
        }
    }

    /// Objective: whatever a device writes, a driver either gets back only buffers that it posted, each of them once,
    /// or stops with a reason.
    #[test]
    fn a_driver_gets_back_only_buffers_that_it_posted(
        packed: bool,
        in_order: bool,
        vector: bool,
        posted in 1..=16usize,
        idx in prop_oneof![4 => 0..=16u16, 1 => any::<u16>()],
        words in prop::collection::vec((prop_oneof![4 => 0..16u32, 1 => any::<u32>()], any::<u32>()), 16),
        step in prop_oneof![1 => Just(1u32), 1 => Just(0u32)],
        flags in prop::collection::vec(prop_oneof![3 => Just(0x8082u16), 1 => any::<u16>()], 16),
    ) {
        let (ram, mut queues) = DriverRam::new(&[16]).unwrap();
        let queue_ram = queues.remove(0);
        let queue = QueueFeatures { packed, ..QueueFeatures::default() };
        let mut driver = DriverQueue::new(&queue_ram, DriverFeatures { queue, in_order, vector });
        for _ in 0..posted {
            let id = driver.take(1).expect("free");
            driver.post(&queue_ram, id, |_| true, |_| 100);
        }
        driver.publish();
        let spec = ram.spec();
        let memory = memories(&ram.file().unwrap(), spec.size, spec.guest);
        let at = |p| queue_ram.device_address(p);
        for (k, ((id, len), flags)) in words.iter().zip(&flags).enumerate() {
            // Most writes are valid: the device returns each buffer in turn.
            let id = if step == 1 { k as u32 } else { *id };
            if packed {
                memory.write_obj(*len, GuestAddress(at(queue_ram.desc()) + 16 * k as u64 + 8)).unwrap();
                memory.write_obj(id as u16, GuestAddress(at(queue_ram.desc()) + 16 * k as u64 + 12)).unwrap();
                memory.write_obj(*flags, GuestAddress(at(queue_ram.desc()) + 16 * k as u64 + 14)).unwrap();
            } else {
                memory.write_obj([id, *len], GuestAddress(at(queue_ram.used()) + 4 + 8 * k as u64)).unwrap();
            }
        }
        memory.write_obj(idx, GuestAddress(at(queue_ram.used()) + 2)).unwrap();
        let mut seen = std::collections::HashSet::new();
        let mut run = [netvale_virtio::driver::UsedBuffer::default(); 32];
        while let Ok(n) = driver.used_run(&mut run) {
            for used in &run[..n] {
                prop_assert!(usize::from(used.id) < posted && seen.insert(used.id), "{used:?}");
            }
            if n == 0 {
                break;
            }
        }
        prop_assert!(seen.len() <= posted);
    }
}
