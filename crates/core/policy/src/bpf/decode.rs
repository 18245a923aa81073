//! Decodes instructions one by one, and refuses invalid instructions.

use super::{CELLS, Insn};

/// First offset at which loads read metadata of the Linux kernel instead of a frame's bytes: `SKF_AD_OFF`.
const ANCILLARY: u32 = 0xffff_f000;

/// The reason why a program is refused. Instructions are numbered from 0, as in `tcpdump -d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerificationError {
    /// The program has no instructions.
    #[error("the filter is empty: expected at least one instruction")]
    Empty,
    /// The program has more instructions than [`super::MAX_INSNS`].
    #[error("the filter has {len} instructions: expected at most {}", super::MAX_INSNS)]
    TooLong {
        /// Number of instructions.
        len: usize,
    },
    /// An unknown code.
    #[error("instruction {at} has the unknown code {code:#x}")]
    UnknownCode {
        /// The instruction's number.
        at: usize,
        /// The instruction's code.
        code: u16,
    },
    /// A jump past the last instruction, or backwards.
    #[error("instruction {at} jumps out of the filter, or backwards: expected a jump to a later instruction")]
    JumpOut {
        /// The instruction's number.
        at: usize,
    },
    /// A division, or a remainder, by the constant zero.
    #[error("instruction {at} divides by zero")]
    DivisionByZero {
        /// The instruction's number.
        at: usize,
    },
    /// A shift by a constant of 32 bits or more.
    #[error("instruction {at} shifts a word of 32 bits by {by} bits: expected 0 to 31")]
    ShiftTooFar {
        /// The instruction's number.
        at: usize,
        /// Number of bits.
        by: u32,
    },
    /// A cell that the scratch memory does not have.
    #[error("instruction {at} uses cell {cell} of the scratch memory, which has only {CELLS} cells")]
    NoSuchCell {
        /// The instruction's number.
        at: usize,
        /// The cell's number.
        cell: u32,
    },
    /// A load from a cell that is not written on every path to the load.
    #[error("instruction {at} reads cell {cell} of the scratch memory, which may not have been written before")]
    UnwrittenCell {
        /// The instruction's number.
        at: usize,
        /// The cell's number.
        cell: u8,
    },
    /// A load of kernel metadata, an extension of Linux.
    #[error("instruction {at} loads {} (at {offset:#x}), which is not part of a frame", ancillary_name(*offset))]
    Ancillary {
        /// The instruction's number.
        at: usize,
        /// The load's offset: `SKF_AD_OFF` or above.
        offset: u32,
    },
    /// The last instruction does not end the program.
    #[error("instruction {at} is the last one: expected a return")]
    NoReturn {
        /// The instruction's number.
        at: usize,
    },
}

/// Returns the metadata that a load at `offset` reads, by the names of `SKF_AD_*` in linux/filter.h.
fn ancillary_name(offset: u32) -> &'static str {
    match offset.wrapping_sub(ANCILLARY) {
        0 => "the protocol",
        4 => "the packet's type",
        8 => "the interface's index",
        12 | 16 => "a netlink attribute",
        20 => "the mark",
        24 => "the queue",
        28 => "the interface's type",
        32 => "the hash",
        36 => "the CPU",
        40 => "an exclusive or",
        44 => "the removed VLAN tag",
        48 => "whether a VLAN tag was removed",
        52 => "the payload's offset",
        56 => "a random number",
        60 => "the protocol of the removed VLAN tag",
        _ => "an unknown item",
    }
}

/// A decoded instruction. Words and halfwords are big-endian, as on the wire. Jump targets are indices of existing
/// instructions, and cells are within the scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A = four bytes of the frame at a fixed offset.
    Word(u32),
    /// A = two bytes at a fixed offset.
    Half(u32),
    /// A = one byte at a fixed offset.
    Byte(u32),
    /// A = four bytes at X plus a constant.
    WordX(u32),
    /// A = two bytes at X plus a constant.
    HalfX(u32),
    /// A = one byte at X plus a constant.
    ByteX(u32),
    /// X = the length of the IPv4 header whose first byte is at this offset: four times the byte's low four bits.
    HeaderLen(u32),
    /// A = the frame's length.
    Len,
    /// X = the frame's length.
    LenX,
    /// A = a constant.
    Const(u32),
    /// X = a constant.
    ConstX(u32),
    /// A = the cell with this number.
    Load(u8),
    /// X = the cell with this number.
    LoadX(u8),
    /// The cell with this number = A.
    Store(u8),
    /// The cell with this number = X.
    StoreX(u8),
    /// A = the result of an operation on A and a constant.
    Alu(Alu, u32),
    /// A = the result of an operation on A and X.
    AluX(Alu),
    /// A = −A.
    Neg,
    /// X = A.
    ToX,
    /// A = X.
    ToA,
    /// Jumps to an instruction.
    Jump(u16),
    /// Compares A with a constant; jumps to `yes` if the comparison holds, otherwise to `no`.
    If { test: Comparison, k: u32, yes: u16, no: u16 },
    /// Compares A with X; jumps to `yes` if the comparison holds, otherwise to `no`.
    IfX { test: Comparison, yes: u16, no: u16 },
    /// Ends the program with a constant.
    Return(u32),
    /// Ends the program with A.
    ReturnA,
    /// `Word`, then `If` of equality, in one step.
    WordIfEq { place: u16, k: u32, yes: u16, no: u16 },
    /// `Half`, then `If` of equality, in one step.
    HalfIfEq { place: u16, k: u16, yes: u16, no: u16 },
    /// `Byte`, then `If` of equality, in one step.
    ByteIfEq { place: u16, k: u8, yes: u16, no: u16 },
}

// A program of ten instructions takes two cache lines.
const _: () = assert!(size_of::<Op>() == 12);

/// Operations on two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// Comparisons of A with a second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    /// A equals the second word.
    Eq,
    /// A is greater than the second word.
    Gt,
    /// A is greater than or equal to the second word.
    Ge,
    /// A and the second word have a bit in common.
    Set,
}

/// Decodes all instructions of a program. Refuses the program if an instruction is invalid, or the last instruction is
/// not a return.
pub(super) fn decode(insns: &[Insn]) -> Result<Vec<Op>, VerificationError> {
    let ops: Vec<Op> =
        insns.iter().enumerate().map(|(at, insn)| decode_one(at, insn, insns.len())).collect::<Result<_, _>>()?;
    match ops.last() {
        Some(Op::Return(_) | Op::ReturnA) => Ok(ops),
        _ => Err(VerificationError::NoReturn { at: insns.len().saturating_sub(1) }),
    }
}

/// Decodes instruction number `at` of a program of `len` instructions, or refuses it. Instruction codes are those of
/// linux/bpf_common.h, with the class in the low three bits.
fn decode_one(at: usize, insn: &Insn, len: usize) -> Result<Op, VerificationError> {
    let k = insn.k;
    Ok(match insn.code {
        0x00 => Op::Const(k),
        0x01 => Op::ConstX(k),
        0x02 => Op::Store(cell(at, k)?),
        0x03 => Op::StoreX(cell(at, k)?),
        0x20 => Op::Word(place(at, k)?),
        0x28 => Op::Half(place(at, k)?),
        0x30 => Op::Byte(place(at, k)?),
        0x40 => Op::WordX(k),
        0x48 => Op::HalfX(k),
        0x50 => Op::ByteX(k),
        0x60 => Op::Load(cell(at, k)?),
        0x61 => Op::LoadX(cell(at, k)?),
        0x80 => Op::Len,
        0x81 => Op::LenX,
        0xb1 => Op::HeaderLen(k),
        0x06 => Op::Return(k),
        0x16 => Op::ReturnA,
        0x07 => Op::ToX,
        0x87 => Op::ToA,
        0x84 => Op::Neg,
        0x05 => Op::Jump(target(at, k, len)?),
        code if code & 7 == 4 => arithmetic(at, code, k)?,
        code if code & 7 == 5 => conditional(at, insn, len)?,
        code => return Err(VerificationError::UnknownCode { at, code }),
    })
}

/// Flag in the codes of arithmetic instructions and jumps: the second operand is X instead of the constant.
const WITH_X: u16 = 8;

fn arithmetic(at: usize, code: u16, k: u32) -> Result<Op, VerificationError> {
    let alu = match code & !(7 | WITH_X) {
        0x00 => Alu::Add,
        0x10 => Alu::Sub,
        0x20 => Alu::Mul,
        0x30 => Alu::Div,
        0x40 => Alu::Or,
        0x50 => Alu::And,
        0x60 => Alu::Shl,
        0x70 => Alu::Shr,
        0x90 => Alu::Rem,
        0xa0 => Alu::Xor,
        _ => return Err(VerificationError::UnknownCode { at, code }),
    };
    match alu {
        _ if code & WITH_X != 0 => Ok(Op::AluX(alu)),
        Alu::Div | Alu::Rem if k == 0 => Err(VerificationError::DivisionByZero { at }),
        Alu::Shl | Alu::Shr if k >= u32::BITS => Err(VerificationError::ShiftTooFar { at, by: k }),
        _ => Ok(Op::Alu(alu, k)),
    }
}

fn conditional(at: usize, insn: &Insn, len: usize) -> Result<Op, VerificationError> {
    let test = match insn.code & !(7 | WITH_X) {
        0x10 => Comparison::Eq,
        0x20 => Comparison::Gt,
        0x30 => Comparison::Ge,
        0x40 => Comparison::Set,
        _ => return Err(VerificationError::UnknownCode { at, code: insn.code }),
    };
    let yes = target(at, insn.jt.into(), len)?;
    let no = target(at, insn.jf.into(), len)?;
    Ok(if insn.code & WITH_X != 0 { Op::IfX { test, yes, no } } else { Op::If { test, k: insn.k, yes, no } })
}

/// Returns the target of instruction `at`, a jump over `over` instructions. Refuses a jump out of the program, which
/// has `len` instructions.
fn target(at: usize, over: u32, len: usize) -> Result<u16, VerificationError> {
    let target = usize::try_from(over).ok().and_then(|over| over.checked_add(at + 1)).filter(|&target| target < len);
    target.and_then(|target| u16::try_from(target).ok()).ok_or(VerificationError::JumpOut { at })
}

fn cell(at: usize, k: u32) -> Result<u8, VerificationError> {
    let cell = u8::try_from(k).ok().filter(|&cell| usize::from(cell) < CELLS);
    cell.ok_or(VerificationError::NoSuchCell { at, cell: k })
}

/// Checks a fixed offset in the frame. No frame is long enough for the refused offsets, where the kernel loads
/// metadata: a program written for the kernel would silently have another meaning.
fn place(at: usize, k: u32) -> Result<u32, VerificationError> {
    if k < ANCILLARY { Ok(k) } else { Err(VerificationError::Ancillary { at, offset: k }) }
}
