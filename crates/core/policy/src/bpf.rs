//! Filters: classic BPF, the language that libpcap compiles expressions such as `udp port 53` to.
//!
//! A [`Program`] is verified once, by the rules of Linux's kernel, and decoded; then it runs for each frame. A run
//! takes no more steps than it has instructions, because jumps lead only forward; it neither allocates nor waits, and
//! no frame makes it fail. It returns the same as libpcap's `bpf_filter`: 0 for an unwanted frame, any other number for
//! a wanted one.
//!
//! The machine is small: an accumulator A, an index X and sixteen cells of scratch memory, 32-bit words that start at
//! 0. An insn, as C's headers call an instruction, loads from the frame, computes, jumps forward, or ends the program.
//!
//! A frame may lie in memory that others write, so it has to be copied before a program reads it, and most programs
//! read only its first bytes. So [`Program::run`] takes a copy of those and the length of the frame, and returns
//! [`Beyond`] in the rare case that it needs the rest. [`Program::reach`] gives the number of bytes that are enough.
//!
//! | module | contents |
//! |---|---|
//! | `decode` | each instruction by itself: its meaning, the reasons to refuse it |
//! | `scratch` | checks that each cell of the scratch memory is written before it is read |
//! | `reach` | how far into a frame a program can look |
//! | `run` | the interpreter |
//! | `text` | programs in the formats of `tcpdump -ddd` and `tc` |

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

/// Maximum number of instructions: `BPF_MAXINSNS` of Linux's kernel.
pub const MAX_INSNS: usize = 4096;
/// Cells of a program's scratch memory: `BPF_MEMWORDS`.
const CELLS: usize = 16;

/// An instruction in exchange format: `struct bpf_insn` of libpcap, `struct sock_filter` of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Insn {
    /// Its operation.
    pub code: u16,
    /// Instructions that a jump passes over when its condition holds.
    pub jt: u8,
    /// Instructions that a jump passes over when its condition does not hold.
    pub jf: u8,
    /// A constant, an offset in the frame or a cell of the scratch memory, depending on `code`.
    pub k: u32,
}

/// A load from a part of the frame that was not passed: run the program again, with the whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter looks at a part of the frame that it was not given")]
pub struct Beyond;

/// A verified program.
#[derive(Clone, Debug)]
pub struct Program {
    /// The original instructions, to be shown and passed on.
    insns: Box<[Insn]>,
    /// The same, ready to run.
    ops: Box<[Op]>,
    reach: Option<u32>,
}

impl Program {
    /// Accepts a program that Linux's kernel accepts for a socket, unless it loads metadata that only the kernel has,
    /// such as a frame's interface.
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

    /// Runs the program on a frame. Returns 0 for an unwanted frame, otherwise the number of wanted bytes, which may
    /// exceed its length.
    ///
    /// `head` holds the available first bytes of the frame, and `len` is the length of the whole frame. As with
    /// libpcap, a load past the frame's end and a division by zero end the program with 0.
    ///
    /// # Errors
    /// [`Beyond`] if the result depends on bytes of the frame that are not in `head`: never with a `head` of `len`
    /// bytes, nor with one of [`Program::reach`] bytes.
    #[inline]
    pub fn run(&self, head: &[u8], len: u32) -> Result<u32, Beyond> {
        run::run(&self.ops, head, len)
    }

    /// The same for a complete frame in two parts: headers made for it, and the bytes behind them.
    pub fn run_parts(&self, first: &[u8], second: &[u8]) -> u32 {
        run::run_parts(&self.ops, first, second)
    }

    /// Number of a frame's first bytes that suffice to run the program on any frame. It may exceed every frame's
    /// length, and is 0 for a program that reads no byte. `None` if the program alone does not tell.
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
