//! Filters: classic BPF, the language into which libpcap compiles expressions such as `udp port 53`.
//!
//! A [`FilterProgram`] is verified by the rules of the Linux kernel and decoded once, then runs for each frame. Jumps
//! go only forward, so a run takes no more steps than the program has instructions. A run does not allocate or wait,
//! and succeeds for every frame. It returns the same as libpcap's `bpf_filter`: 0 for an unwanted frame, any other
//! number for a wanted frame.
//!
//! The virtual machine has an accumulator A, an index register X and sixteen cells of scratch memory, all 32-bit words
//! that start at 0. An instruction ("insn" in C headers) loads from the frame, computes, jumps forward, or ends the
//! program.
//!
//! A frame may be in memory that other processes can write, so the frame must be copied before a program reads it. Most
//! programs read only the first bytes. [`FilterProgram::run`] therefore takes a copy of these first bytes and the
//! length of the frame, and returns [`BeyondReach`] in the rare case that the program needs the rest.
//! [`FilterProgram::reach`] returns the number of bytes that are enough.
//!
//! | module | content |
//! |---|---|
//! | `decode` | decodes each instruction, or refuses it |
//! | `scratch` | checks that each cell of the scratch memory is written before it is read |
//! | `reach` | computes how far into a frame a program can read |
//! | `run` | the interpreter |
//! | `text` | programs in the formats of `tcpdump -ddd` and `tc` |

mod decode;
mod reach;
mod run;
mod scratch;
#[cfg(test)]
mod tests;
mod text;

pub use decode::VerificationError;
pub use text::BpfTextError;

use decode::Op;

/// Maximum number of instructions: `BPF_MAXINSNS` of the Linux kernel.
pub const MAX_INSNS: usize = 4096;
/// Number of cells of a program's scratch memory: `BPF_MEMWORDS`.
const CELLS: usize = 16;

/// An instruction in exchange format: `struct bpf_insn` of libpcap, `struct sock_filter` of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Insn {
    /// The operation code.
    pub code: u16,
    /// Number of instructions that a jump skips if its condition holds.
    pub jt: u8,
    /// Number of instructions that a jump skips if its condition does not hold.
    pub jf: u8,
    /// A constant, an offset in the frame or a cell of the scratch memory, depending on `code`.
    pub k: u32,
}

/// The error of a load from a part of the frame that was not passed to the program: the caller must run the program
/// again, with the whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter reads a part of the frame that was not passed: run it with the whole frame")]
pub struct BeyondReach;

/// A verified BPF program.
#[derive(Clone, Debug)]
pub struct FilterProgram {
    /// The original instructions, for printing the program and passing it on.
    insns: Box<[Insn]>,
    /// The decoded instructions.
    ops: Box<[Op]>,
    reach: Option<u32>,
}

impl FilterProgram {
    /// Verifies and decodes a program. Accepts the programs that the Linux kernel accepts for a socket, except those
    /// that load metadata that only the kernel has, such as a frame's interface.
    ///
    /// # Errors
    /// The first reason to refuse the program.
    pub fn verify(insns: &[Insn]) -> Result<FilterProgram, VerificationError> {
        if insns.is_empty() {
            return Err(VerificationError::Empty);
        }
        if insns.len() > MAX_INSNS {
            return Err(VerificationError::TooLong { len: insns.len() });
        }
        let mut ops = decode::decode(insns)?;
        scratch::check(&ops)?;
        let reach = reach::reach(&ops);
        run::fuse(&mut ops);
        Ok(FilterProgram { insns: insns.into(), ops: ops.into(), reach })
    }

    /// Runs the program on a frame. Returns 0 for an unwanted frame, otherwise the number of wanted bytes, which may
    /// exceed the frame's length.
    ///
    /// `head` holds the available first bytes of the frame, and `len` is the length of the whole frame. As with
    /// libpcap, a load past the frame's end and a division by zero end the program with 0.
    ///
    /// # Errors
    /// [`BeyondReach`] if the result depends on bytes of the frame that are not in `head`: never with a `head` of `len`
    /// bytes, nor with a `head` of [`FilterProgram::reach`] bytes.
    #[inline]
    pub fn run(&self, head: &[u8], len: u32) -> Result<u32, BeyondReach> {
        run::run(&self.ops, head, len)
    }

    /// Runs the program on a complete frame in two parts: newly built headers, and the bytes after the headers. Returns
    /// the same as [`FilterProgram::run`] does for the whole frame.
    pub fn run_parts(&self, first: &[u8], second: &[u8]) -> u32 {
        run::run_parts(&self.ops, first, second)
    }

    /// Upper bound of the number of a frame's first bytes that the program reads; 0 for a program that reads no bytes,
    /// `None` if there is no bound. The bound may exceed the length of every frame.
    pub fn reach(&self) -> Option<u32> {
        self.reach
    }

    /// The program's instructions.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }
}

/// Programs are equal if their instructions are equal.
impl PartialEq for FilterProgram {
    fn eq(&self, other: &FilterProgram) -> bool {
        self.insns == other.insns
    }
}

impl Eq for FilterProgram {}
