//! Tests of a driver that is killed at any point, and of its successor, on rings of all layouts, while the device
//! continues: no frame is lost or reordered, and only frames that were taken after the last note arrive twice.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::Mapping;
use netvale_mem::words::Words;
use netvale_virtio::driver::ram::{BUF, DriverRam, QueueRam};
use netvale_virtio::driver::{DriverFeatures, DriverQueue, UsedBuffer, addresses, killed};
use netvale_virtio::memory::GuestMemory;
use netvale_virtio::queue::{DeviceQueue, Piece, Pieces, QueueAddresses, QueueFeatures};
use proptest::prelude::*;

const SIZE: u16 = 8;

/// A driver's queue, and the device at its other end.
struct Rig {
    features: DriverFeatures,
    ram: DriverRam,
    file: OwnedFd,
    memory: GuestMemory,
    at: QueueAddresses,
    device: DeviceQueue,
    queue_ram: QueueRam,
    driver: DriverQueue,
}

impl Rig {
    fn new(packed: bool, in_order: bool, event_idx: bool) -> Rig {
        let queue = QueueFeatures { packed, event_idx, ..QueueFeatures::default() };
        let features = DriverFeatures { queue, in_order, vector: false };
        let (ram, mut queues) = DriverRam::new(&[SIZE]).unwrap();
        let queue_ram = queues.remove(0);
        let at = addresses(&queue_ram);
        let memory = GuestMemory::new(vec![(ram.spec(), ram.file().unwrap())]).unwrap();
        let base = if packed { 0x8000_8000 } else { 0 };
        let device = DeviceQueue::new(&memory, SIZE, at, base, queue).unwrap();
        let file = ram.file().unwrap();
        let driver = DriverQueue::new(&queue_ram, features);
        Rig { features, ram, file, memory, at, device, queue_ram, driver }
    }

    /// Offset of a buffer's piece in the file.
    fn offset(&self, piece: Piece) -> u64 {
        self.memory.guest_of(piece.ptr.as_ptr()).unwrap() - self.ram.spec().guest
    }

    /// Restores the driver as a successor would. Returns whether the driver could be restored.
    fn goes_on(&mut self) -> bool {
        let (_, mut queues) = DriverRam::restore(self.ram.file().unwrap(), &[SIZE]).unwrap();
        let next = killed::continued(&queues[0], self.features);
        self.queue_ram = queues.remove(0);
        next.map(|next| self.driver = next).is_some()
    }
}

/// The last step that the driver makes, when it takes or sends frames, before it is killed; `End` if it is not killed.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Until {
    Taken,
    Noted,
    Posted,
    Shown,
    End,
}

fn until() -> impl Strategy<Value = Until> {
    use Until::{End, Noted, Posted, Shown, Taken};
    prop_oneof![1 => Just(Taken), 1 => Just(Noted), 1 => Just(Posted), 1 => Just(Shown), 8 => Just(End)]
}

/// Makes the device fill up to `count` of the next buffers with successive numbers and return the buffers to the
/// driver.
fn device_sends(rig: &mut Rig, count: usize, number: &mut u32) {
    let mut pieces = Pieces::default();
    let mut chains = Vec::new();
    while chains.len() < count
        && let Some(chain) = rig.device.next(&rig.memory, &mut pieces).unwrap()
    {
        let piece = pieces.only_writable().unwrap();
        assert_eq!(piece.len, BUF);
        assert_eq!(rustix::io::pwrite(&rig.file, &number.to_le_bytes(), rig.offset(piece)), Ok(4));
        chains.push((chain, 4));
        *number += 1;
    }
    rig.device.give_back_all(chains.into_iter());
    rig.device.publish();
}

/// Makes the driver take up to `most` frames and, if `posts`, post the frames' buffers again. The driver stops after
/// the step `until`. Returns the numbers of the frames.
fn driver_takes(rig: &mut Rig, most: usize, posts: bool, until: Until) -> Vec<u32> {
    let mut run = [UsedBuffer::default(); SIZE as usize];
    let got = rig.driver.used_run(&mut run[..most]).unwrap();
    let number = |used: &UsedBuffer| {
        let mut bytes = [0; 4];
        let at = rig.queue_ram.guest(used.id) - rig.ram.spec().guest;
        assert_eq!(rustix::io::pread(&rig.file, &mut bytes, at), Ok(4));
        u32::from_le_bytes(bytes)
    };
    let numbers = run[..got].iter().map(number).collect();
    if until >= Until::Noted {
        rig.driver.recycle(run[..got].iter().map(|used| used.id));
        let (done, turn) = rig.driver.done();
        rig.queue_ram.note(done, turn);
    }
    if posts && until >= Until::Posted {
        rig.driver.post_free(&rig.queue_ram, BUF);
    }
    if until >= Until::Shown {
        rig.driver.publish();
    }
    assert!(until == Until::End || rig.goes_on());
    numbers
}

/// Makes the driver send frames, as long as it has room; `counts` has the number of buffers of each frame. The driver
/// reclaims sent buffers if fewer than `enough` are free, and stops after the step `until`. Returns the number of
/// frames that were shown to the device.
fn driver_sends(rig: &mut Rig, counts: &[usize], enough: usize, until: Until, first: u32) -> u32 {
    if rig.driver.free() < enough {
        rig.driver.reclaim().unwrap();
        if until >= Until::Noted {
            let (done, turn) = rig.driver.done();
            rig.queue_ram.note(done, turn);
        }
    }
    let mut sent = 0;
    for (number, count) in (first..).zip(counts) {
        if until < Until::Posted {
            break;
        }
        let Some(head) = rig.driver.take(*count) else { break };
        rig.queue_ram.put(head, &number.to_le_bytes());
        rig.driver.post(&rig.queue_ram, head, |_| false, |id| if id == head { 4 } else { 2 });
        sent += 1;
    }
    let is_shown = until >= Until::Shown;
    if is_shown {
        rig.driver.publish();
    }
    assert!(until == Until::End || rig.goes_on());
    if is_shown { sent } else { 0 }
}

/// Makes the device take up to `most` frames and return their buffers. Returns each frame's number and the count of its
/// buffers.
fn device_takes(rig: &mut Rig, most: usize) -> Vec<(u32, usize)> {
    let mut pieces = Pieces::default();
    let mut frames = Vec::new();
    let mut chains = Vec::new();
    while frames.len() < most
        && let Some(chain) = rig.device.next(&rig.memory, &mut pieces).unwrap()
    {
        let mut bytes = [0; 4];
        let at = rig.offset(pieces.readable()[0]);
        assert_eq!(rustix::io::pread(&rig.file, &mut bytes, at), Ok(4));
        frames.push((u32::from_le_bytes(bytes), pieces.readable().len()));
        chains.push((chain, 0));
    }
    rig.device.give_back_all(chains.into_iter());
    rig.device.publish();
    frames
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Objective: the successor receives, in order, the frames that follow the frames that the killed driver received.
    #[test]
    fn the_next_driver_receives_in_order(
        packed: bool,
        in_order: bool,
        event_idx: bool,
        steps in prop::collection::vec((0..6usize, (1..=8usize, any::<bool>()), until()), 1..60),
    ) {
        let mut rig = Rig::new(packed, in_order, event_idx);
        rig.driver.post_free(&rig.queue_ram, BUF);
        rig.driver.publish();
        let mut sent = 0;
        let mut next = 0;
        for (count, (most, posts), until) in steps {
            device_sends(&mut rig, count, &mut sent);
            let numbers = driver_takes(&mut rig, most, posts, until);
            prop_assert!(numbers.iter().copied().eq(next..next + numbers.len() as u32), "{:?}, not {}", numbers, next);
            if until != Until::Taken {
                next += numbers.len() as u32;
            }
        }
        let rest = driver_takes(&mut rig, SIZE.into(), true, Until::End);
        prop_assert!(rest.into_iter().eq(next..sent), "not all came up to {}", sent);
    }

    /// Objective: frames that were shown to the device, in one or several buffers, arrive at the device once and in
    /// order.
    #[test]
    fn shown_frames_are_sent_once_and_in_order(
        packed: bool,
        in_order: bool,
        event_idx: bool,
        steps in prop::collection::vec((prop::collection::vec(1..4usize, 0..6), 1..=8usize, 0..6usize, until()), 1..60),
    ) {
        let mut rig = Rig::new(packed, in_order, event_idx);
        let mut expected = VecDeque::new();
        let mut first = 0;
        for (counts, enough, most, until) in steps {
            let sent = driver_sends(&mut rig, &counts, enough, until, first);
            expected.extend((first..first + sent).zip(counts));
            first += sent;
            for frame in device_takes(&mut rig, most) {
                prop_assert_eq!(Some(frame), expected.pop_front());
            }
        }
        for frame in device_takes(&mut rig, SIZE.into()) {
            prop_assert_eq!(Some(frame), expected.pop_front());
        }
        prop_assert!(expected.is_empty(), "{} are lost", expected.len());
        rig.driver.reclaim().unwrap();
        prop_assert_eq!(rig.driver.free(), usize::from(SIZE), "a buffer is lost");
    }

    /// Objective: whatever the rings contain, a queue either resumes with each buffer valid and present once, or does
    /// not resume.
    #[test]
    fn forged_rings_resume_with_valid_buffers_or_never(
        packed: bool,
        in_order: bool,
        note in prop_oneof![
            4 => (0..2u16, 0..8u16, 0..8u16).prop_map(|(wrap, at, turn)| (wrap << 15 | at, turn)),
            1 => any::<(u16, u16)>(),
        ],
        idx in prop_oneof![4 => (0..16u16, 0..16u16), 1 => any::<(u16, u16)>()],
        words in prop::collection::vec(
            (0..10u64, 0..10u16, prop_oneof![any::<u16>(), Just(0x80), Just(0x8080), Just(0x81)]),
            8,
        ),
    ) {
        let mut rig = Rig::new(packed, in_order, false);
        let map = Arc::new(Mapping::of_peer(rig.file.as_fd(), 0, rig.ram.spec().size as usize).unwrap());
        let put = |at: u64, value: u64| Words::new(&map, at - rig.ram.spec().guest, 2).unwrap().store_wide(0, value);
        for (i, (buffer, id, flags)) in (0..).zip(&words) {
            let (low, high) = if packed { (*id, *flags) } else { (*flags, *id) };
            put(rig.at.desc + 16 * i + 8, u64::from(low) << 32 | u64::from(high) << 48);
            if packed {
                put(rig.at.desc + 16 * i, rig.queue_ram.guest(0) + buffer * 2112);
            } else {
                put(rig.at.used + 8 * i + 8, u64::from(*id));
            }
        }
        if !packed {
            put(rig.at.avail, u64::from(idx.0) << 16 | u64::from(idx.1) << 32);
            put(rig.at.used, u64::from(idx.1) << 16);
        }
        rig.queue_ram.note(note.0, note.1);
        if !rig.goes_on() {
            return Ok(());
        }
        prop_assert!(rig.driver.free() <= SIZE.into());
        let mut seen = HashSet::new();
        while let Ok(Some(used)) = rig.driver.next_used() {
            prop_assert!(used.id < SIZE && seen.insert(used.id), "{:?}", used);
        }
        let free = rig.driver.free();
        prop_assert!((0..free).all(|_| rig.driver.take(1).is_some_and(|id| id < SIZE && seen.insert(id))));
    }
}

/// Objective: drivers can still be restored after the index of a split ring has wrapped around, i.e. after 65,536
/// frames.
#[test]
fn drivers_continue_after_the_index_wraps_around() {
    for (packed, in_order) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut rig = Rig::new(packed, in_order, true);
        rig.driver.post_free(&rig.queue_ram, BUF);
        rig.driver.publish();
        let mut sent = 0;
        let mut next = 0;
        for round in 0..40_000 {
            device_sends(&mut rig, 5, &mut sent);
            let until = [Until::End, Until::Shown, Until::Noted, Until::Taken][round % 4];
            let numbers = driver_takes(&mut rig, 7, true, until);
            assert!(numbers.iter().copied().eq(next..next + numbers.len() as u32), "{numbers:?}, not {next}");
            if until != Until::Taken {
                next += numbers.len() as u32;
            }
        }
        assert!(next > 66_000);
    }
}
