//! An exhaustive test of descriptors with addresses and lengths at the edges of a guest's memory, with all flags and
//! links, in both layouts. The pieces that the queue yields must lie in the memory and cover all that the descriptor
//! describes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_mem::Mapping;
use netvale_virtio::memory::{GuestMemory, RegionSpec};
use netvale_virtio::queue::{DeviceQueue, DriverViolation, Pieces, QueueAddresses, QueueFeatures};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const SIZE: u64 = 0x1000;
/// Guest addresses of the regions: two adjacent regions, of which the first also contains the rings, and a region that
/// ends at the highest possible address.
const AT: [u64; 3] = [0x1000, 0x2000, u64::MAX - 2 * SIZE + 1];
const QUEUE: u16 = 8;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Flags of an available packed descriptor in the first round.
const AVAILABLE: u16 = 1 << 7;

struct Guest {
    memory: GuestMemory,
    /// The first region, which contains the rings.
    rings: Arc<Mapping>,
}

fn guest() -> Guest {
    let file = || -> OwnedFd {
        let fd = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, SIZE).unwrap();
        fd
    };
    let first = file();
    let rings = Arc::new(Mapping::of_peer(first.as_fd(), 0, SIZE as usize).unwrap());
    let spec = |i: usize| RegionSpec { guest: AT[i], size: SIZE, user: SIZE * i as u64, offset: 0 };
    let table = vec![(spec(0), first), (spec(1), file()), (spec(2), file())];
    Guest { memory: GuestMemory::new(table).unwrap(), rings }
}

impl Guest {
    fn write(&self, words: &[(u64, u64)]) {
        for &(at, value) in words {
            let words = netvale_mem::words::Words::new(&self.rings, at, 2).unwrap();
            words.store_wide(0, value);
        }
    }

    /// Returns whether all `len` bytes from `addr` on are in the guest's memory.
    fn has(&self, addr: u64, len: u32) -> bool {
        let end = u128::from(addr) + u128::from(len);
        let mut at = u128::from(addr);
        while at < end {
            let inside = |r: &u64| (u128::from(*r)..u128::from(*r) + u128::from(SIZE)).contains(&at);
            match AT.iter().find(|r| inside(r)) {
                Some(r) => at = u128::from(*r) + u128::from(SIZE),
                None => return false,
            }
        }
        true
    }
}

/// A descriptor as the driver writes it.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// Returns the expected length of a chain in bytes, or the expected violation. The chain consists of `desc` and, if
/// `desc` links to another descriptor, a writable buffer of 16 bytes.
fn expected(g: &Guest, desc: Descriptor, packed: bool) -> Result<u64, DriverViolation> {
    let Descriptor { addr, len, flags, next } = desc;
    if flags & INDIRECT != 0 {
        // The feature is not negotiated.
        return Err(DriverViolation::Indirect);
    }
    if !g.has(addr, len) {
        return Err(DriverViolation::Address);
    }
    match flags & NEXT {
        0 => Ok(len.into()),
        _ if packed => Ok(u64::from(len) + 16),
        _ if next >= QUEUE => Err(DriverViolation::NextIndex),
        // The chain returns to its first descriptor.
        _ if next == 0 => Err(DriverViolation::Loop),
        _ => Ok(u64::from(len) + 16),
    }
}

fn check(g: &Guest, desc: Descriptor, packed: bool) {
    let Descriptor { addr, len, flags, next } = desc;
    let second = AT[1];
    if packed {
        let word = |len: u32, id: u16, flags: u16| u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48;
        g.write(&[(0, addr), (8, word(len, next, flags | AVAILABLE))]);
        g.write(&[(16, second), (24, word(16, 3, WRITE | AVAILABLE))]);
    } else {
        let word = |len: u32, flags: u16, next: u16| u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        g.write(&[(0, addr), (8, word(len, flags, next))]);
        (1..u64::from(QUEUE)).for_each(|i| g.write(&[(16 * i, second), (16 * i + 8, word(16, WRITE, 0))]));
        // The available ring has flags 0, index 1 and the entry 0; the used ring is empty.
        g.write(&[(0x80, 1 << 16), (0xc0, 0)]);
    }
    let features = QueueFeatures { packed, ..QueueFeatures::default() };
    let base = if packed { 1 << 15 } else { 0 };
    let mut queue =
        DeviceQueue::new(&g.memory, QUEUE, QueueAddresses { desc: 0, avail: 0x80, used: 0xc0 }, base, features)
            .unwrap();
    let mut pieces = Pieces::default();
    let found = queue.next(&g.memory, &mut pieces);
    let all = || pieces.readable().iter().chain(pieces.writable());
    let bytes = found.map(|chain| chain.map(|_| all().map(|p| u64::from(p.len)).sum::<u64>()));
    assert_eq!(bytes, expected(g, desc, packed).map(Some), "{desc:x?}, packed: {packed}");
    for p in all() {
        let first = g.memory.guest_of(p.ptr.as_ptr()).expect("a piece begins in the memory");
        let last = g.memory.guest_of(p.ptr.as_ptr().wrapping_add(p.len as usize - 1));
        assert_eq!(last, Some(first + u64::from(p.len) - 1), "{desc:x?}: a piece ends in its region");
    }
}

/// Objective: the pieces of any descriptor lie in the memory (see the module).
#[test]
fn the_pieces_of_any_descriptor_lie_in_the_memory() {
    let g = guest();
    let around = |at: u64| [at.wrapping_sub(16), at.wrapping_sub(1), at, at.wrapping_add(1), at.wrapping_add(16)];
    let edges = AT.into_iter().flat_map(|at| [at, at.wrapping_add(SIZE)]).chain([0, 1 << 32, u64::MAX]);
    let addresses: Vec<u64> = edges.flat_map(around).collect();
    let lengths = [0, 1, 15, 16, 17, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x2001, 1 << 31, u32::MAX];
    for packed in [false, true] {
        for &addr in &addresses {
            for len in lengths {
                for flags in 0..8 {
                    for next in [0, 1, QUEUE - 1, QUEUE, u16::MAX] {
                        check(&g, Descriptor { addr, len, flags, next }, packed);
                    }
                }
            }
        }
    }
}
