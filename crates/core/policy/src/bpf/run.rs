//! The interpreter of decoded programs.

use super::decode::{Alu, Comparison, Op};
use super::{BeyondReach, CELLS};

/// The reason why a program stops early.
pub(super) enum RunOutcome {
    /// The program ends with 0: a load past the frame's end, or a division by zero.
    Zero,
    /// The program loads from a part of the frame that was not passed to it.
    Beyond,
}

/// The frame as a program reads it.
trait ProgramFrame: Copy {
    /// Loads `N` bytes at an offset; `Err` if the bytes are not in the frame, or not in the frame's known part.
    fn load<const N: usize>(self, at: u32) -> Result<[u8; N], RunOutcome>;

    /// Length of the whole frame in bytes.
    fn len(self) -> u32;

    /// Loads `N` bytes at the sum of two numbers. A sum of more than 32 bits is past the end of any frame.
    #[inline(always)]
    fn load_at_sum<const N: usize>(self, x: u32, k: u32) -> Result<[u8; N], RunOutcome> {
        x.checked_add(k).ok_or(RunOutcome::Zero).and_then(|at| self.load(at))
    }
}

/// A frame of which the first bytes are known.
#[derive(Clone, Copy)]
struct FrameStart<'a> {
    head: &'a [u8],
    len: u32,
}

impl ProgramFrame for FrameStart<'_> {
    #[inline(always)]
    fn load<const N: usize>(self, at: u32) -> Result<[u8; N], RunOutcome> {
        let start = at as usize;
        // This takes one comparison, because the compiler knows that the end does not overflow.
        let bytes = self.head.get(start..start.saturating_add(N)).and_then(<[u8]>::first_chunk::<N>);
        bytes.copied().ok_or_else(|| self.missing(u64::from(at) + N as u64))
    }

    #[inline(always)]
    fn len(self) -> u32 {
        self.len
    }
}

/// A frame in two parts.
#[derive(Clone, Copy)]
struct TwoParts<'a>(&'a [u8], &'a [u8]);

impl ProgramFrame for TwoParts<'_> {
    fn load<const N: usize>(self, at: u32) -> Result<[u8; N], RunOutcome> {
        let TwoParts(first, second) = self;
        let byte = |at: usize| first.get(at).or_else(|| second.get(at.checked_sub(first.len())?));
        let mut bytes = [0; N];
        for (i, to) in bytes.iter_mut().enumerate() {
            *to = *byte((at as usize).saturating_add(i)).ok_or(RunOutcome::Zero)?;
        }
        Ok(bytes)
    }

    fn len(self) -> u32 {
        (self.0.len() + self.1.len()) as u32
    }
}

impl FrameStart<'_> {
    /// Returns the reason why a load that ends at `end` fails.
    #[cold]
    fn missing(self, end: u64) -> RunOutcome {
        if end > u64::from(self.len) { RunOutcome::Zero } else { RunOutcome::Beyond }
    }
}

/// Runs a decoded program on a frame of `len` bytes, of which only the first bytes, `head`, are known.
#[inline]
pub(super) fn run(ops: &[Op], head: &[u8], len: u32) -> Result<u32, BeyondReach> {
    let head = head.get(..len as usize).unwrap_or(head);
    match steps(ops, FrameStart { head, len }) {
        Ok(answer) => Ok(answer),
        Err(RunOutcome::Zero) => Ok(0),
        Err(RunOutcome::Beyond) => Err(BeyondReach),
    }
}

/// Runs a decoded program on a frame in two parts.
pub(super) fn run_parts(ops: &[Op], first: &[u8], second: &[u8]) -> u32 {
    // Both parts are complete, so no load is beyond them.
    steps(ops, TwoParts(first, second)).unwrap_or(0)
}

fn steps(ops: &[Op], frame: impl ProgramFrame) -> Result<u32, RunOutcome> {
    let mut a = 0_u32;
    let mut x = 0_u32;
    let mut cells = [0_u32; CELLS];
    let mut at = 0_usize;
    // The loop always ends with a return: the last instruction of a verified program is a return.
    while let Some(op) = ops.get(at) {
        at += 1;
        match *op {
            Op::WordIfEq { place, k, yes, no } => {
                a = u32::from_be_bytes(frame.load(place.into())?);
                at = way(a == k, yes, no);
            }
            Op::HalfIfEq { place, k, yes, no } => {
                let half = u16::from_be_bytes(frame.load(place.into())?);
                a = half.into();
                at = way(half == k, yes, no);
            }
            Op::ByteIfEq { place, k, yes, no } => {
                let [byte] = frame.load(place.into())?;
                a = byte.into();
                at = way(byte == k, yes, no);
            }
            Op::If { test, k, yes, no } => at = way(test.holds(a, k), yes, no),
            Op::IfX { test, yes, no } => at = way(test.holds(a, x), yes, no),
            Op::Jump(to) => at = to.into(),
            Op::Return(answer) => return Ok(answer),
            Op::ReturnA => return Ok(a),
            Op::Word(k) => a = u32::from_be_bytes(frame.load(k)?),
            Op::Half(k) => a = u16::from_be_bytes(frame.load(k)?).into(),
            Op::Byte(k) => a = u8::from_be_bytes(frame.load(k)?).into(),
            Op::WordX(k) => a = u32::from_be_bytes(frame.load_at_sum(x, k)?),
            Op::HalfX(k) => a = u16::from_be_bytes(frame.load_at_sum(x, k)?).into(),
            Op::ByteX(k) => a = u8::from_be_bytes(frame.load_at_sum(x, k)?).into(),
            Op::HeaderLen(k) => x = u32::from(u8::from_be_bytes(frame.load(k)?) & 0xf) * 4,
            Op::Len => a = frame.len(),
            Op::LenX => x = frame.len(),
            Op::Const(k) => a = k,
            Op::ConstX(k) => x = k,
            Op::Load(cell) => a = cells[usize::from(cell) % CELLS],
            Op::LoadX(cell) => x = cells[usize::from(cell) % CELLS],
            Op::Store(cell) => cells[usize::from(cell) % CELLS] = a,
            Op::StoreX(cell) => cells[usize::from(cell) % CELLS] = x,
            Op::Alu(alu, k) => a = alu.apply(a, k)?,
            Op::AluX(alu) => a = alu.apply(a, x)?,
            Op::Neg => a = a.wrapping_neg(),
            Op::ToX => x = a,
            Op::ToA => a = x,
        }
    }
    Ok(0)
}

/// Returns the target of a comparison.
///
/// Neither branch is cold. But if the compiler considers both branches likely, it selects the target without a branch,
/// and each instruction then waits for the bytes that the previous instruction loads. The processor predicts a branch
/// instead.
#[inline(always)]
fn way(holds: bool, yes: u16, no: u16) -> usize {
    if holds {
        core::hint::cold_path();
        yes.into()
    } else {
        no.into()
    }
}

impl Comparison {
    #[inline(always)]
    fn holds(self, a: u32, b: u32) -> bool {
        match self {
            Comparison::Eq => a == b,
            Comparison::Gt => a > b,
            Comparison::Ge => a >= b,
            Comparison::Set => a & b != 0,
        }
    }
}

impl Alu {
    #[inline(always)]
    pub(super) fn apply(self, a: u32, b: u32) -> Result<u32, RunOutcome> {
        match self {
            Alu::Add => Ok(a.wrapping_add(b)),
            Alu::Sub => Ok(a.wrapping_sub(b)),
            Alu::Mul => Ok(a.wrapping_mul(b)),
            Alu::Div => a.checked_div(b).ok_or(RunOutcome::Zero),
            Alu::Rem => a.checked_rem(b).ok_or(RunOutcome::Zero),
            Alu::And => Ok(a & b),
            Alu::Or => Ok(a | b),
            Alu::Xor => Ok(a ^ b),
            Alu::Shl => Ok(a.checked_shl(b).unwrap_or(0)),
            Alu::Shr => Ok(a.checked_shr(b).unwrap_or(0)),
        }
    }
}

/// Fuses each load and the comparison after it, which make up most of a typical filter, into one step. The original
/// comparison stays in place, for jumps to it.
pub(super) fn fuse(ops: &mut [Op]) {
    for at in 1..ops.len() {
        if let Some([load, test]) = ops.get_mut(at - 1..=at).and_then(|pair| <&mut [Op; 2]>::try_from(pair).ok()) {
            *load = fused(*load, *test).unwrap_or(*load);
        }
    }
}

fn fused(load: Op, test: Op) -> Option<Op> {
    let Op::If { test: Comparison::Eq, k, yes, no } = test else { return None };
    Some(match load {
        Op::Word(place) => Op::WordIfEq { place: place.try_into().ok()?, k, yes, no },
        Op::Half(place) => Op::HalfIfEq { place: place.try_into().ok()?, k: k.try_into().ok()?, yes, no },
        Op::Byte(place) => Op::ByteIfEq { place: place.try_into().ok()?, k: k.try_into().ok()?, yes, no },
        _ => return None,
    })
}
