//! What several targets need: memory that changes while it is read, and limits on how often it is.

mod replay;

use netvale_mem::mapping::Mapping;
use netvale_mem::probe;
use netvale_mem::words::Words;
use std::sync::Arc;

pub use replay::{TargetInput, replay};

/// A target: libFuzzer's, or a program that runs the inputs that its arguments name.
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

/// A view of all whole words of a mapping.
pub fn words(map: &Arc<Mapping>) -> Words {
    Words::new(map, 0, map.len() / 4).expect("a mapping begins at a word")
}

/// Takes the changes of memory from the beginning of an input: how many, then eight bytes each, which say how many
/// reads later than the one before it happens, to which word, and the word's new value.
///
/// From then on, this thread's reads meet them: the changes are made between two reads of one call, as by a peer on
/// another processor, but each time at the same moment. Words count from `first`, `span` of them.
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

/// The bytes of an input, one after the other; zeros behind its end.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether it is used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// The next two bytes.
    pub fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next four bytes.
    pub fn word(&mut self) -> u32 {
        u32::from(self.half()) | u32::from(self.half()) << 16
    }

    /// A number below `n`, from one byte.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    /// A number that is interesting with rings of `n` slots: most often an index, now and then anything.
    pub fn index(&mut self, n: u32) -> u32 {
        match self.byte() {
            0xff => self.word(),
            b => u32::from(b) % (n + 2),
        }
    }

    /// The next bytes, as many as a byte says.
    pub fn bytes(&mut self) -> &'a [u8] {
        let n = usize::from(self.byte());
        let (bytes, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}
