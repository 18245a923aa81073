//! Exhaustive tests: look-ups at all edges of a guest's memory windows, and small rings with all heads, tails and
//! lengths.

use netvale_e1000::memory::CardMemory;
use netvale_e1000::ring::{CardRing, DESCRIPTOR, RingRegister};
use netvale_mem::mapping::{PageKind, sealed_memfd};
use netvale_vfio_user::dma::{Dma, WindowPlace};

const SIZE: u64 = 0x1000;
/// Guest addresses of two adjacent windows, and of a window at the highest possible address.
const AT: [u64; 3] = [0x1000, 0x2000, u64::MAX - 2 * SIZE + 1];

/// Objective: guest memory is found if and only if all of it is in one window, whatever the previous look-up was.
#[test]
fn a_place_is_found_only_inside_one_window() {
    let (fd, _map, _) = sealed_memfd("netvale-test", 3 * SIZE, PageKind::Ordinary).unwrap();
    let mut dma = Dma::default();
    for (i, address) in AT.into_iter().enumerate() {
        dma.map(WindowPlace { flags: 3, offset: SIZE * i as u64, address, size: SIZE }, Some(&fd)).unwrap();
    }
    let memory = CardMemory::of(&dma);
    let around = |at: u64| [at.wrapping_sub(16), at.wrapping_sub(1), at, at.wrapping_add(1), at.wrapping_add(16)];
    let edges = AT.into_iter().flat_map(|at| [at, at.wrapping_add(SIZE)]).chain([0, 1 << 32, u64::MAX]);
    let addresses: Vec<u64> = edges.flat_map(around).collect();
    let lengths = [1, 2, 15, 16, 17, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, u64::from(u16::MAX), 1 << 32, u64::MAX];
    let inside = |address: u64, len: u64| {
        let fits =
            |at: &u64| address >= *at && u128::from(address) + u128::from(len) <= u128::from(*at) + u128::from(SIZE);
        AT.iter().any(fits)
    };
    for before in AT {
        for &address in &addresses {
            for len in lengths {
                let mut finder = memory.finder();
                assert!(finder.at(before, 1).is_some());
                assert_eq!(finder.at(address, len).is_some(), inside(address, len), "{len:#x} at {address:#x}");
            }
            let mut finder = memory.finder();
            let is_descriptor = inside(address, DESCRIPTOR) && address.is_multiple_of(8);
            assert_eq!(finder.descriptor(address).is_some(), is_descriptor, "{address:#x}");
        }
    }
}

/// Objective: for rings of up to 24 descriptors and all heads and tails, even outside the ring, the device owns exactly
/// the descriptors from head to tail, and each is in the ring.
#[test]
fn owned_descriptors_lie_between_head_and_tail() {
    for lines in 0..=3u32 {
        let n = 8 * lines;
        for head in 0..n + 3 {
            for tail in 0..n + 3 {
                let mut ring = CardRing::default();
                for (register, value) in [
                    (RingRegister::Low, 0x1000),
                    (RingRegister::Length, 128 * lines),
                    (RingRegister::Head, head),
                    (RingRegister::Tail, tail),
                ] {
                    ring.write(register, value);
                }
                let walk = if head < n && tail < n { (0..n).find(|k| (head + k) % n == tail).unwrap() } else { 0 };
                assert_eq!((ring.count(), ring.owned()), (n, walk), "{head} {tail} of {n}");
                for k in 0..ring.owned() {
                    let at = ring.address(k).unwrap() - 0x1000;
                    assert_eq!(at, u64::from((head + k) % n) * DESCRIPTOR);
                }
                ring.advance(walk);
                assert!(n == 0 || head >= n || tail >= n || ring.read(RingRegister::Head) == tail);
            }
        }
    }
}
