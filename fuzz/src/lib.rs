//! Common parts of the targets: memory that changes while it is read, limits on the number of reads, and a reader for
//! inputs.

mod replay;

use netvale_mem::mapping::Mapping;
use netvale_mem::probe;
use netvale_mem::words::Words;
use std::sync::Arc;

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

/// A reader for the bytes of an input. After the end of the input, it returns zeros.
pub struct FuzzInput<'a>(pub &'a [u8]);

impl<'a> FuzzInput<'a> {
    /// Returns whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
