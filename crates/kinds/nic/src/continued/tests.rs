use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use netvale_afxdp::ring::XdpRing;
use netvale_afxdp::socket::{XdpDesc, XdpSocket};
use netvale_mem::Mapping;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::xdp::XdpRingOffset;

use super::*;

const SIZE: u32 = 8;
const AT: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: None, desc: 128 };
const BUFFERS: BufferLayout = BufferLayout { first: 0, stride: 2112, count: 1 + 2 * SIZE };
/// The buffers of a queue, as many as a ring has entries.
const OWN: Range<u32> = 1..1 + SIZE;

/// Memory of a ring whose indices begin at `start`.
fn memory(start: u32) -> OwnedFd {
    let memory = memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, 4096).unwrap();
    for at in [AT.producer, AT.consumer] {
        rustix::io::pwrite(&memory, &start.to_ne_bytes(), at).unwrap();
    }
    memory
}

fn side<T: Copy>(memory: &OwnedFd, produces: bool) -> XdpRing<T> {
    XdpRing::map(memory.as_fd(), 0, &AT, SIZE, produces).unwrap()
}

/// A stand-in for the socket: calls on it fail.
fn socket() -> Arc<XdpSocket> {
    let memory = Arc::new(Mapping::private(4096).unwrap());
    XdpSocket::adopt(memfd_create("netvale-test", MemfdFlags::CLOEXEC).unwrap(), SIZE, &memory)
}

fn desc(index: u32) -> XdpDesc {
    XdpDesc { addr: BUFFERS.at(index).unwrap(), len: 60, options: 0 }
}

fn index_of(desc: XdpDesc) -> u32 {
    BUFFERS.index(desc.begin()).unwrap()
}

/// The receiving half of a queue, the kernel's sides of its rings, and where each buffer is.
struct Receiving {
    memory: [OwnedFd; 2],
    ours: (XdpRing<XdpDesc>, XdpRing<u64>),
    kernels: (XdpRing<XdpDesc>, XdpRing<u64>),
    taken: Vec<u32>,
    kernel_has: VecDeque<u32>,
}

impl Receiving {
    /// Creates the rings with indices at 0, like the indices of a new socket, and gives the kernel all buffers.
    fn new() -> Receiving {
        let memory = [memory(0), memory(0)];
        let ours = (side(&memory[0], false), side::<u64>(&memory[1], true));
        let kernels = (side(&memory[0], true), side(&memory[1], false));
        let mut all = Receiving { memory, ours, kernels, taken: Vec::new(), kernel_has: VecDeque::new() };
        all.give(OWN.collect());
        all
    }

    fn give(&mut self, buffers: Vec<u32>) {
        buffers.into_iter().for_each(|index| self.ours.1.put(BUFFERS.at(index).unwrap() - HEADROOM));
        self.ours.1.publish();
    }

    /// Acts as the kernel: takes up to `take` empty buffers, and returns up to `fill` filled buffers.
    fn receive(&mut self, take: usize, fill: usize) {
        for _ in 0..take.min(self.kernels.1.ready() as usize) {
            let at = self.kernels.1.take();
            self.kernel_has.push_back(BUFFERS.index(at + HEADROOM).unwrap());
        }
        self.kernels.1.release();
        let fill = fill.min(self.kernel_has.len());
        self.kernel_has.drain(..fill).for_each(|index| self.kernels.0.put(desc(index)));
        self.kernels.0.publish();
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most.min(self.ours.0.ready() as usize) {
            let index = index_of(self.ours.0.take());
            self.taken.push(index);
        }
        self.ours.0.release();
    }

    /// The successor's receiving half.
    fn heir(&self) -> XdpReceiver {
        XdpReceiver { rx: side(&self.memory[0], false), fill: side(&self.memory[1], true), socket: socket() }
    }
}

proptest! {
    /// Objective: after a kill at any time, the successor finds the taken buffers, in order, before the buffers that
    /// have arrived since then. Together with the buffers in the rings and at the kernel, these are all buffers, each
    /// once. The same holds if the successor is killed.
    #[test]
    fn taken_buffers_are_found_in_order(steps in proptest::collection::vec((0..3u8, 0..9usize, 0..9usize), 0..60)) {
        let mut q = Receiving::new();
        for (what, some, more) in steps {
            match what {
                0 => q.receive(some, more),
                // All taken buffers are returned.
                1 => { let taken = std::mem::take(&mut q.taken); q.give(taken); }
                _ => q.take(some),
            }
            let mut heir = q.heir();
            prop_assert_eq!(find_taken(&mut heir, &BUFFERS, OWN), Ok(()));
            let unread: Vec<u32> = heir.rx.unread().unwrap().into_iter().map(index_of).collect();
            prop_assert!(unread.starts_with(&q.taken), "{:?} {:?}", unread, q.taken);
            let empty = heir.fill.published().unwrap().into_iter().map(|at| BUFFERS.index(at + HEADROOM).unwrap());
            let mut all: Vec<u32> = unread.iter().copied().chain(empty).chain(q.kernel_has.iter().copied()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, OWN.collect::<Vec<_>>());
            let mut next = || {
                assert!(heir.rx.ready() > 0);
                index_of(heir.rx.take())
            };
            let ready: Vec<u32> = (0..unread.len()).map(|_| next()).collect();
            prop_assert_eq!(ready, unread);
        }
    }

    /// Objective: any ring indices are refused, or lead to buffers of the queue, each once.
    #[test]
    fn any_indices_are_refused_or_lead_to_buffers(
        indices in any::<[u32; 4]>(),
        near in proptest::array::uniform4(0..20u32),
        entries in proptest::array::uniform8(any::<(u32, bool)>()),
    ) {
        for [rx_first, rx_end, fill_first, fill_end] in [indices, near] {
            let q = Receiving::new();
            for (memory, first, end) in [(&q.memory[0], rx_first, rx_end), (&q.memory[1], fill_first, fill_end)] {
                rustix::io::pwrite(memory, &end.to_ne_bytes(), AT.producer).unwrap();
                rustix::io::pwrite(memory, &first.to_ne_bytes(), AT.consumer).unwrap();
            }
            for (i, (index, is_near)) in entries.iter().enumerate() {
                let at = if *is_near { u64::from(index % 10) * 2112 } else { u64::from(*index) << 20 };
                rustix::io::pwrite(&q.memory[0], &at.to_ne_bytes(), AT.desc + 16 * i as u64).unwrap();
            }
            let mut heir = q.heir();
            if find_taken(&mut heir, &BUFFERS, OWN).is_ok() {
                let all: Vec<u32> = heir.rx.unread().unwrap().into_iter().map(index_of).collect();
                prop_assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
                prop_assert!(all.iter().all(|index| OWN.contains(index)));
            }
        }
    }
}

/// Objective: inconsistent rings are refused with a reason.
#[test]
fn inconsistent_rings_are_refused_with_a_reason() {
    let refused = |change: fn(&mut Receiving)| {
        let mut q = Receiving::new();
        q.receive(4, 4);
        q.take(2);
        change(&mut q);
        find_taken(&mut q.heir(), &BUFFERS, OWN).unwrap_err().to_string()
    };
    assert_eq!(refused(|q| q.give(vec![1, 2, 3])), "the rings do not show which buffers were taken");
    assert_eq!(refused(|q| q.give(vec![5])), "a buffer is in two places");
    assert_eq!(refused(|q| q.give(vec![12])), "a buffer does not belong to the queue");
    let none =
        |q: &mut Receiving| assert_eq!(rustix::io::pwrite(&q.memory[0], &99u32.to_ne_bytes(), AT.producer), Ok(4));
    assert_eq!(refused(none), "a ring has inconsistent indices");
}

/// The sending half of a queue, the kernel's sides of its rings, and where each buffer is.
struct Sending {
    memory: [OwnedFd; 2],
    ours: (XdpRing<XdpDesc>, XdpRing<u64>),
    kernels: (XdpRing<XdpDesc>, XdpRing<u64>),
    free: Vec<u32>,
    kernel_has: Vec<u32>,
}

impl Sending {
    fn new() -> Sending {
        let memory = [memory(u32::MAX - 40), memory(u32::MAX - 40)];
        let ours = (side(&memory[0], true), side(&memory[1], false));
        let kernels = (side(&memory[0], false), side(&memory[1], true));
        Sending { memory, ours, kernels, free: OWN.collect(), kernel_has: Vec::new() }
    }

    fn send(&mut self, some: usize) {
        for _ in 0..some.min(self.ours.0.room() as usize) {
            let Some(index) = self.free.pop() else { break };
            self.ours.0.put(desc(index));
        }
        self.ours.0.publish();
    }

    fn reclaim(&mut self, some: usize) {
        for _ in 0..some.min(self.ours.1.ready() as usize) {
            let at = self.ours.1.take();
            self.free.extend(BUFFERS.index(at));
        }
        self.ours.1.release();
    }

    /// Acts as the kernel: takes up to `take` frames, and completes up to `done` of its frames, in any order.
    fn work(&mut self, take: usize, done: usize) {
        for _ in 0..take.min(self.kernels.0.ready() as usize) {
            let index = index_of(self.kernels.0.take());
            self.kernel_has.push(index);
        }
        self.kernels.0.release();
        for _ in 0..done {
            let Some(index) = self.kernel_has.pop() else { break };
            self.kernels.1.put(BUFFERS.at(index).unwrap());
        }
        self.kernels.1.publish();
    }

    fn found(&self) -> Result<Vec<u32>, BadState> {
        let heir =
            XdpSender { tx: side(&self.memory[0], true), completion: side(&self.memory[1], false), socket: socket() };
        find_free(&heir, &BUFFERS, OWN, Duration::ZERO)
    }
}

proptest! {
    /// Objective: after a kill at any time, the successor finds the free buffers once the kernel has no more buffers,
    /// and reports an error until then.
    #[test]
    fn the_successor_finds_the_free_buffers(steps in proptest::collection::vec((0..3u8, 0..9usize, 0..9usize), 0..60)) {
        let mut q = Sending::new();
        for (what, some, more) in steps {
            match what {
                0 => q.send(some),
                1 => q.reclaim(some),
                _ => q.work(some, more),
            }
            let found = q.found();
            if q.kernel_has.is_empty() {
                let mut free = q.free.clone();
                free.sort_unstable();
                prop_assert_eq!(found, Ok(free));
            } else {
                prop_assert_eq!(found, Err(BadState::new("the kernel has not sent all frames")));
            }
        }
    }
}

/// Objective: rings with a buffer in two places or a foreign buffer are refused with a reason.
#[test]
fn bad_sending_rings_are_refused_with_a_reason() {
    let refused = |change: fn(&mut Sending)| {
        let mut q = Sending::new();
        q.send(5);
        q.work(3, 3);
        change(&mut q);
        q.found().unwrap_err().to_string()
    };
    fn put(q: &mut Sending, index: u32) {
        q.ours.0.put(desc(index));
        q.ours.0.publish();
    }
    assert_eq!(refused(|q| put(q, 8)), "a buffer is in two places");
    let mut q = Sending::new();
    put(&mut q, 12);
    assert_eq!(q.found().unwrap_err().to_string(), "a buffer does not belong to the queue");
    let none = |q: &mut Sending| assert_eq!(rustix::io::pwrite(&q.memory[1], &7u32.to_ne_bytes(), AT.consumer), Ok(4));
    assert_eq!(refused(none), "a ring has inconsistent indices");
}
