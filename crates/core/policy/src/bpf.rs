//! Filters: classic BPF, the language that libpcap compiles expressions such as `udp port 53` to.
//!
//! A [`Program`] is verified once, by the rules of Linux's kernel, and decoded; then it is run for each frame. Running
//! it takes no longer than it has instructions, because jumps only lead forward; it neither allocates nor waits, and
//! no frame makes it fail. What it answers is what libpcap's `bpf_filter` answers: 0 for a frame that it does not
//! want, any other number for one that it does.
//!
//! What runs it is small: an accumulator A, an index X and sixteen cells of scratch memory, words of 32 bits that are 0
//! at first. An insn, as C's headers call an instruction, loads from the frame, computes, jumps forward, or ends the
//! program.
//!
//! A frame may lie in memory that others write, so that it has to be copied before it is looked at, and most programs
//! look at its first bytes only. So [`Program::run`] takes a copy of those and the length of the frame, and says
//! [`Beyond`] in the rare case that it needs the rest. [`Program::reach`] says how many bytes are enough.
//!
//! | module | what is in it |
//! |---|---|
//! | `decode` | each instruction by itself: what it does, why it is refused |
//! | `scratch` | whether each cell of the scratch memory is written before it is read |
//! | `reach` | how far into a frame a program can look |
//! | `run` | the interpreter |
//! | `text` | programs as `tcpdump -ddd` prints them and `tc` takes them |

mod decode;
mod reach;
mod run;
mod scratch;
#[cfg(test)]
mod tests;
mod text;

pub use decode::Unverified;
pub use text::Unparsed;

use decode::Op;

/// The most instructions that a program has: `BPF_MAXINSNS` of Linux's kernel.
pub const MAX_INSNS: usize = 4096;
/// Cells of a program's scratch memory: `BPF_MEMWORDS`.
const CELLS: usize = 16;

/// An instruction as it is exchanged: `struct bpf_insn` of libpcap, `struct sock_filter` of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Insn {
    /// What it does.
    pub code: u16,
    /// Instructions that a jump passes over when its condition holds.
    pub jt: u8,
    /// Instructions that a jump passes over when its condition does not hold.
    pub jf: u8,
    /// A constant, a place in the frame or a cell of the scratch memory, as `code` has it.
    pub k: u32,
}

/// A load from the part of the frame that was not given: the program has to be run again, with the whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter looks at a part of the frame that it was not given")]
pub struct Beyond;

/// A verified program.
#[derive(Clone, Debug)]
pub struct Program {
    /// As they were given, to be shown and passed on.
    insns: Box<[Insn]>,
    /// The same, ready to run.
    ops: Box<[Op]>,
    reach: Option<u32>,
}

impl Program {
    /// Takes a program that Linux's kernel would take for a socket, except for one that loads what only the kernel
    /// knows of a frame, such as the interface that it came by.
    ///
    /// # Errors
    /// The first reason to refuse it.
    pub fn verify(insns: &[Insn]) -> Result<Program, Unverified> {
        if insns.is_empty() {
            return Err(Unverified::Empty);
        }
        if insns.len() > MAX_INSNS {
            return Err(Unverified::TooLong { len: insns.len() });
        }
        let mut ops = decode::decode(insns)?;
        scratch::check(&ops)?;
        let reach = reach::reach(&ops);
        run::fuse(&mut ops);
        Ok(Program { insns: insns.into(), ops: ops.into(), reach })
    }

    /// What the program says of a frame: 0 if it does not want it, else how many of its bytes are wanted, which may be
    /// more than it has.
    ///
    /// `head` are the frame's first bytes, as many as there are at hand, and `len` is the length of the whole frame.
    /// As with libpcap, a load past the frame's end and a division by zero end the program with 0.
    ///
    /// # Errors
    /// The answer depends on bytes of the frame that are not in `head`. Never so with a `head` of `len` bytes, nor
    /// with one of [`Program::reach`] bytes.
    #[inline]
    pub fn run(&self, head: &[u8], len: u32) -> Result<u32, Beyond> {
        run::run(&self.ops, head, len)
    }

    /// The same for a frame that is there as a whole, in two parts: headers that were made for it, and what is behind
    /// them.
    pub fn run_parts(&self, first: &[u8], second: &[u8]) -> u32 {
        run::run_parts(&self.ops, first, second)
    }

    /// How many of a frame's first bytes are enough to run the program, whatever the frame. It may be more than any
    /// frame has, and 0 for a program that looks at no byte. `None` if there is no telling from the program alone.
    pub fn reach(&self) -> Option<u32> {
        self.reach
    }

    /// The program's instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }
}

/// Programs are equal when their instructions are.
impl PartialEq for Program {
    fn eq(&self, other: &Program) -> bool {
        self.insns == other.insns
    }
}

impl Eq for Program {}
