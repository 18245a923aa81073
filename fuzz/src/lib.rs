//! Common parts of the targets: memory that changes while it is read, limits on the number of reads, and a reader for
//! inputs.

mod replay;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use netvale_mem::host::HostRx;
use netvale_mem::mapping::Mapping;
use netvale_mem::notify::Doorbell;
use netvale_mem::probe;
use netvale_mem::words::Words;
use netvale_mem::{PortMem, PortShape, Region, RegionSizes};
use netvale_port::ring_out::RingEgress;
use netvale_port::{Batch, Egress, Scratch};
use rustix::event::{EventfdFlags, eventfd};

pub use replay::{TargetInput, replay};

/// Defines a target: one for libFuzzer or, without the feature `libfuzzer`, a program that runs the inputs that its
/// arguments name.
#[macro_export]
macro_rules! fuzz_target {
    (|$data:ident: $kind:ty| $body:block) => {
        #[cfg(feature = "libfuzzer")]
        libfuzzer_sys::fuzz_target!(|$data: $kind| $body);

        #[cfg(not(feature = "libfuzzer"))]
        fn main() -> std::process::ExitCode {
            $crate::replay(|bytes| {
                let run = |$data: $kind| $body;
                run($crate::TargetInput::of(bytes));
            })
        }
    };
}

/// Returns a view of all whole 32-bit words of a mapping.
pub fn words(map: &Arc<Mapping>) -> Words {
    Words::new(map, 0, map.len() / 4).expect("a mapping begins at a word")
}

/// Takes changes of `memory` from the beginning of an input, and returns the rest of the input. The first byte of the
/// input has the number of changes (up to 31). Each change takes eight bytes: the number of reads since the previous
/// change, the word to change, and the word's new value.
///
/// The changes are then made between this thread's reads, even in the middle of a call, as a peer on another CPU would
/// make them, but reproducibly. Only the `span` words that begin with the word `first` are changed.
pub fn meddle<'a>(data: &'a [u8], memory: &Words, first: usize, span: usize) -> &'a [u8] {
    probe::unwatch();
    let Some((&count, rest)) = data.split_first() else { return data };
    let (changes, rest) = rest.split_at((8 * usize::from(count & 0x1f)).min(rest.len()));
    let mut at = 0;
    let list: Vec<(u64, usize, u32)> = changes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|[g, h, a, b, value @ ..]| {
            at += u64::from(u16::from_le_bytes([*g, *h]));
            let word = first + usize::from(u16::from_le_bytes([*a, *b])) % span.max(1);
            (at, word, u32::from_le_bytes(*value))
        })
        .collect();
    if !list.is_empty() {
        let memory = memory.clone();
        let mut next = 0;
        probe::watch(move |n| {
            while let Some(&(_, word, value)) = list.get(next).filter(|(at, ..)| *at <= n) {
                memory.store(word, value);
                next += 1;
            }
        });
    }
    rest
}

/// Calls `f`, which may read shared memory at most `most` times.
pub fn bounded<T>(most: u64, what: &str, f: impl FnOnce() -> T) -> T {
    let before = probe::reads();
    let result = f();
    let reads = probe::reads() - before;
    assert!(reads <= most, "{what}: {reads} reads of shared memory, {most} at most");
    result
}

/// Returns an eventfd; `None` if the process has no room for one.
pub fn bell() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
}

/// Returns a memory file of `size` bytes; `None` if the system has no room for it.
pub fn memfd(size: u64) -> Option<OwnedFd> {
    let fd = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    rustix::fs::ftruncate(&fd, size).ok()?;
    Some(fd)
}

/// Checks that each frame of a batch can be copied, and passes the copies to `each`.
pub fn copied(batch: &Batch, mut each: impl FnMut(Vec<u8>)) {
    for one in batch.iter() {
        let mut bytes = vec![0; one.len()];
        assert_eq!(one.copy_out(0, &mut bytes), one.len());
        each(bytes);
    }
}

/// A ring that accepts no offloads: checksums and segmentation are completed before delivery.
pub struct RingReceiver {
    /// Memory of the ring.
    pub mem: Arc<PortMem>,
    /// The egress that writes to the ring.
    pub ring: RingEgress,
    /// Working memory of the egress.
    pub scratch: Scratch,
}

impl RingReceiver {
    /// Creates a ring of 256 slots.
    pub fn new() -> Option<RingReceiver> {
        let shape = PortShape { tx_rings: 0, rx_rings: 1, tx_slots: 2, rx_slots: 256 };
        let mem = Arc::new(Region::private(RegionSizes::for_port(1, 256, 2048, 0, 0)).ok()?.port(shape).ok()?);
        let host = HostRx::new(mem.rx[0].clone(), Doorbell::new().ok()?);
        let ring = RingEgress::new(mem.clone(), host, 0, Arc::default());
        Some(RingReceiver { mem, ring, scratch: Scratch::new() })
    }

    /// Delivers all frames of a batch to the ring, and empties the ring.
    pub fn deliver(&mut self, batch: &Batch) {
        let picks: Vec<u16> = (0..batch.len() as u16).collect();
        self.ring.deliver(batch, &picks, &mut self.scratch);
        let side = &self.mem.rx[0];
        let tail = side.csb.hwtail();
        side.csb.publish_head(tail, tail);
    }
}

/// Returns the word with the number `n` in a list of words; after the last word follows the first one.
pub fn word_at(list: &str, n: impl Into<usize>) -> &str {
    list.split_whitespace().cycle().nth(n.into()).unwrap_or_default()
}

/// A reader for the bytes of an input. After the end of the input, it returns zeros.
pub struct FuzzInput<'a>(pub &'a [u8]);

impl<'a> FuzzInput<'a> {
    /// Returns whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `step` until all bytes have been read, at most `most` times.
    pub fn steps(&mut self, most: usize, mut step: impl FnMut(&mut Self)) {
        for _ in 0..most {
            if self.is_empty() {
                break;
            }
            step(self);
        }
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns the next two bytes as a number.
    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns the next four bytes as a number.
    pub fn word(&mut self) -> u32 {
        u32::from(self.half()) | u32::from(self.half()) << 16
    }

    /// Returns a number below `n`, which is computed from one byte.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// Returns a number for use with rings of `n` slots: in most cases an index that is valid or just exceeds the ring,
    /// sometimes any number.
    pub fn index(&mut self, n: u32) -> u32 {
        match self.byte() {
            0xff => self.word(),
            b => u32::from(b) % (n + 2),
        }
    }

    /// Returns a string of bytes. The byte before the string has its length.
    pub fn bytes(&mut self) -> &'a [u8] {
        let n = usize::from(self.byte());
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
